// SPDX-License-Identifier: MIT OR Apache-2.0
// A setuid program must not load what its user names: it has root's rights, and the user the environment.
// As root it copies itself, makes the copy setuid root, and runs it as nobody.
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fmha_rocm.h"
#include "status.h"

namespace {

constexpr uid_t kNobody = 65534;

// In the setuid program: neither variable adds a place to the search, nor decides it.
TEST_CASE("inside" * doctest::skip()) {
  if (getauxval(AT_SECURE) == 0) {
    MESSAGE("skipped: this folder's file system, or the kernel, ignores setuid");
    return;
  }
  CHECK(std::getenv("FMHA_HIP_RUNTIME") != nullptr);
  CHECK(std::getenv("ROCM_PATH") != nullptr);
  char path[4096];
  fmha_hip_source source = -1;
  for (int32_t i = 0; source != FMHA_HIP_NONE; ++i) {
    CHECK_OK(fmha_hip_runtime_search(i, &source, path, sizeof path));
    CHECK(source != FMHA_HIP_ENVIRONMENT);
    CHECK(std::string(path).find("/fake/") == std::string::npos);
  }
  const char* used = fmha_hip_runtime_path();  // a real one, if this machine has one
  if (used != nullptr) CHECK(std::string(used) != FAKE_HIP);
}

int run_as_nobody(const char* program) {
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    execl(program, program, "--no-skip", "--test-case=inside", static_cast<char*>(nullptr));
    _exit(2);
  }
  int status = 0;
  CHECK(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("a setuid program loads nothing that its user names") {
  const std::string fake = FAKE_HIP, rocm = fake.substr(0, fake.rfind("/lib/"));
  setenv("FMHA_HIP_RUNTIME", fake.c_str(), 1);
  setenv("ROCM_PATH", rocm.c_str(), 1);
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can make a program setuid root");
    return;
  }
  char folder[] = "/tmp/fmha_secure_XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  CHECK(chmod(folder, 0755) == 0);
  const std::string copy = std::string(folder) + "/program";
  std::filesystem::copy_file("/proc/self/exe", copy);
  CHECK(chmod(copy.c_str(), 04755) == 0);
  const int result = run_as_nobody(copy.c_str());
  std::filesystem::remove_all(folder);
  CHECK(result == 0);
}

}  // namespace
