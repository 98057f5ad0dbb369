// SPDX-License-Identifier: MIT OR Apache-2.0
// A setuid program must not load what its user names: it has root's rights, and the user the environment.
//   secure_test FAKE_RUNTIME
// As root it copies itself, makes the copy setuid root, and runs it as nobody.
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "check.h"
#include "fmha_rocm.h"

namespace {

constexpr int kSkip = 77;
constexpr uid_t kNobody = 65534;

int skip(const char* why) {
  std::fprintf(stderr, "skipped: %s\n", why);
  return kSkip;
}

// In the setuid program: neither variable adds a place to the search, nor decides it.
int test_inside(const char* fake) {
  if (getauxval(AT_SECURE) == 0) return skip("this folder's file system, or the kernel, ignores setuid");
  CHECK(std::getenv("FMHA_HIP_RUNTIME") != nullptr && std::getenv("ROCM_PATH") != nullptr);
  char path[4096];
  fmha_hip_source source = -1;
  for (int32_t i = 0; source != FMHA_HIP_NONE; ++i) {
    CHECK_OK(fmha_hip_runtime_search(i, &source, path, sizeof path));
    CHECK(source != FMHA_HIP_ENVIRONMENT && std::strstr(path, "/fake/") == nullptr);
  }
  const char* used = fmha_hip_runtime_path();  // a real one, if this machine has one
  CHECK(used == nullptr || std::strcmp(used, fake) != 0);
  return check_result();
}

int run_as_nobody(const char* program, const char* fake) {
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    execl(program, program, fake, "inside", static_cast<char*>(nullptr));
    std::fprintf(stderr, "%s: %s\n", program, std::strerror(errno));
    _exit(2);
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return test_inside(argv[1]);
  if (argc != 2) return 2;
  const std::string fake = argv[1], rocm = fake.substr(0, fake.rfind("/lib/"));
  setenv("FMHA_HIP_RUNTIME", fake.c_str(), 1);
  setenv("ROCM_PATH", rocm.c_str(), 1);
  if (geteuid() != 0) return skip("only root can make a program setuid root");
  char folder[] = "/tmp/fmha_secure_XXXXXX";
  CHECK(mkdtemp(folder) != nullptr && chmod(folder, 0755) == 0);
  const std::string copy = std::string(folder) + "/program";
  std::filesystem::copy_file("/proc/self/exe", copy);
  CHECK(chmod(copy.c_str(), 04755) == 0);
  const int result = run_as_nobody(copy.c_str(), fake.c_str());
  std::filesystem::remove_all(folder);
  CHECK(result == 0 || result == kSkip);
  return result == kSkip ? kSkip : check_result();
}
