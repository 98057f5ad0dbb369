// SPDX-License-Identifier: MIT OR Apache-2.0
// The library's choice of a HIP runtime. Each case needs a process of its own, for a choice cannot be undone:
//   FMHA_TEST_RUNTIME=... FMHA_TEST_COPY=... FMHA_TEST_TORCH=... runtime_test --test-case=NAME
// The first two are files with the same content, both named libamdhip64*; the last is linked to the first.
#include <dlfcn.h>
#include <elf.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fmha_rocm.h"
#include "params.h"
#include "status.h"

namespace {

const char* const kRuntime = std::getenv("FMHA_TEST_RUNTIME");
const char* const kCopy = std::getenv("FMHA_TEST_COPY");
const char* const kTorch = std::getenv("FMHA_TEST_TORCH");

struct NothingChosen {
  NothingChosen() {
    unsetenv("FMHA_HIP_RUNTIME");
    unsetenv("ROCM_PATH");
  }
};

bool is_same_file(const char* a, const char* b) {
  struct stat sa{}, sb{};
  return a != nullptr && stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_ino == sb.st_ino &&
         sa.st_dev == sb.st_dev;
}

void check_in_use(const char* path) { CHECK(is_same_file(fmha_hip_runtime_path(), path)); }

void map(const char* path) { CHECK(dlopen(path, RTLD_NOW | RTLD_LOCAL) != nullptr); }

// fmha_fwd's message when it finds no runtime; a null pointer is refused before one is needed.
void check_no_runtime(const char* text) {
  const fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 1, 128, 128, 1, 1, 64);
  CHECK_STATUS(fmha_fwd_supported(&p), FMHA_HIP_ERROR, text);
  CHECK_STATUS(fmha_fwd_prepare(&p), FMHA_HIP_ERROR, text);
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_INVALID_ARGUMENT, "q.data = NULL");
  CHECK(fmha_hip_runtime_path() == nullptr);
  CHECK(fmha_last_error() == doctest::Contains(text));
}

struct Place {
  fmha_hip_source source;
  std::string path;
};

// The list that the search goes through.
std::vector<Place> search() {
  std::vector<Place> places;
  char path[4096];
  for (int32_t i = 0;; ++i) {
    fmha_hip_source source = -1;
    CHECK_OK(fmha_hip_runtime_search(i, &source, path, sizeof path));
    if (source <= FMHA_HIP_NONE) break;
    places.push_back({source, path});
  }
  CHECK(path[0] == '\0');
  return places;
}

// Names for the loader come after `first` places, in the order of preference.
void check_loader_names(const std::vector<Place>& places, size_t first) {
  REQUIRE(places.size() >= first + 3);
  const char* const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};
  for (size_t i = 0; i < 3; ++i) {
    CHECK(places[first + i].source == FMHA_HIP_LOADER);
    CHECK(places[first + i].path == names[i]);
  }
}

void check_search_arguments() {
  fmha_hip_source source = -1;
  char path[4] = "abc";
  CHECK_STATUS(fmha_hip_runtime_search(-1, &source, path, 4), FMHA_INVALID_ARGUMENT,
               "index = -1: expected 0");
  CHECK_STATUS(fmha_hip_runtime_search(0, nullptr, path, 4), FMHA_INVALID_ARGUMENT, "source = NULL");
  CHECK_STATUS(fmha_hip_runtime_search(0, &source, nullptr, 4), FMHA_INVALID_ARGUMENT, "path = NULL");
  CHECK_STATUS(fmha_hip_runtime_search(0, &source, path, 4), FMHA_INVALID_ARGUMENT,
               "path_bytes = 4: expected 17 or more, for libamdhip64.so.7");
  CHECK(source == -1);
  CHECK(std::string(path) == "abc");
}

TEST_CASE_FIXTURE(NothingChosen, "none") {
  for (const char* name :
       {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so",
        "/opt/rocm/lib/libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so.7"}) {
    if (void* library = dlopen(name, RTLD_LAZY)) {
      dlclose(library);
      MESSAGE("skipped: this machine has a HIP runtime, ", name);
      return;
    }
  }
  setenv("ROCM_PATH", "/nonexistent/rocm", 1);
  check_search_arguments();
  const std::vector<Place> places = search();
  check_loader_names(places, 0);
  CHECK(places.size() == 3);
  check_no_runtime("no HIP runtime: none is mapped into this process");
  CHECK(fmha_last_error() == doctest::Contains("ROCM_PATH (/nonexistent/rocm)"));
}

TEST_CASE_FIXTURE(NothingChosen, "wrong_environment") {
  setenv("FMHA_HIP_RUNTIME", "/nonexistent/libamdhip64.so.6", 1);
  check_no_runtime("/nonexistent/libamdhip64.so.6 chosen by FMHA_HIP_RUNTIME");
}

TEST_CASE_FIXTURE(NothingChosen, "environment") {
  setenv("FMHA_HIP_RUNTIME", kCopy, 1);
  map(kRuntime);  // comes second
  const std::vector<Place> places = search();
  check_loader_names(places, 2);
  CHECK(places[0].source == FMHA_HIP_ENVIRONMENT);
  CHECK(places[0].path == kCopy);
  CHECK(places[1].source == FMHA_HIP_MAPPED);
  CHECK(is_same_file(places[1].path.c_str(), kRuntime));
  check_in_use(kCopy);
  CHECK(search().size() == places.size() + 1);  // now both are mapped
}

TEST_CASE_FIXTURE(NothingChosen, "mapped") {
  map(kRuntime);
  check_in_use(kRuntime);
  CHECK_OK(fmha_set_hip_runtime(kRuntime));
}

TEST_CASE_FIXTURE(NothingChosen, "two_mapped") {
  map(kRuntime);
  map(kCopy);
  const std::vector<Place> places = search();
  check_loader_names(places, 2);
  CHECK(places[0].source == FMHA_HIP_MAPPED);
  CHECK(is_same_file(places[0].path.c_str(), kRuntime));
  CHECK(places[1].source == FMHA_HIP_MAPPED);
  CHECK(is_same_file(places[1].path.c_str(), kCopy));
  check_no_runtime("two HIP runtimes mapped");
  CHECK(fmha_last_error() == doctest::Contains(kRuntime));
  CHECK(fmha_last_error() == doctest::Contains(kCopy));
  CHECK_OK(fmha_set_hip_runtime(kCopy));  // the way out that the message names
  check_in_use(kCopy);
}

TEST_CASE_FIXTURE(NothingChosen, "chosen") {
  CHECK_STATUS(fmha_set_hip_runtime(nullptr), FMHA_INVALID_ARGUMENT, "path = NULL");
  CHECK_STATUS(fmha_set_hip_runtime(""), FMHA_INVALID_ARGUMENT, "path = \"\"");
  CHECK_STATUS(fmha_set_hip_runtime("/nonexistent/libamdhip64.so"), FMHA_HIP_ERROR,
               "/nonexistent/libamdhip64.so");
  CHECK_STATUS(fmha_set_hip_runtime("libm.so.6"), FMHA_HIP_ERROR, "has no hipInit: not a HIP runtime");
  setenv("FMHA_HIP_RUNTIME", kCopy, 1);  // comes second
  CHECK_OK(fmha_set_hip_runtime(kRuntime));
  CHECK_OK(fmha_set_hip_runtime(kRuntime));
  check_in_use(kRuntime);
  const std::string detour = std::string(kRuntime).insert(std::string(kRuntime).rfind('/'), "/.");
  CHECK_OK(fmha_set_hip_runtime(detour.c_str()));
  CHECK_STATUS(fmha_set_hip_runtime(kCopy), FMHA_INVALID_ARGUMENT, "is already in use");
  check_in_use(kRuntime);
}

TEST_CASE_FIXTURE(NothingChosen, "rocm_path") {
  // RUNTIME is in a folder named lib.
  std::string rocm = kRuntime;
  rocm.erase(rocm.rfind("/lib/"));
  setenv("ROCM_PATH", rocm.c_str(), 1);
  if (dlopen("libamdhip64.so", RTLD_LAZY) != nullptr) {
    MESSAGE("skipped: this machine has a HIP runtime");
    return;
  }
  const std::vector<Place> places = search();
  check_loader_names(places, 0);
  REQUIRE(places.size() > 3);
  CHECK(places[3].source == FMHA_HIP_INSTALLED);
  CHECK(places[3].path == kRuntime);
  check_in_use(kRuntime);
}

// If two runtimes are mapped, the library takes PyTorch's own, wherever it is in the list.
TEST_CASE_FIXTURE(NothingChosen, "torch") {
  map(kCopy);
  map(kRuntime);
  map(kTorch);
  const std::vector<Place> places = search();
  CHECK(places[0].source == FMHA_HIP_MAPPED);
  CHECK(is_same_file(places[0].path.c_str(), kRuntime));
  CHECK(places[1].source == FMHA_HIP_MAPPED);
  CHECK(is_same_file(places[1].path.c_str(), kCopy));
  check_in_use(kRuntime);
}

// Files named like a runtime that are none, in a folder that is gone at the end.
class Unusable {
 public:
  Unusable() {
    char folder[] = "/tmp/fmha_runtime_XXXXXX";
    CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    std::filesystem::create_directory(folder_ + "/lib");
    CHECK(mkfifo(path("libamdhip64.so.7").c_str(), 0600) == 0);
    std::ofstream(path("text.so"))
        << "/* GNU ld script */ INPUT(libamdhip64.so.7) and so on, as long as a header";
    std::filesystem::copy_file(kRuntime, path("libamdhip64.so.6"));
    std::filesystem::resize_file(path("libamdhip64.so.6"), std::filesystem::file_size(kRuntime) / 4);
    std::filesystem::copy_file(kRuntime, path("other_arch.so"));
    std::fstream other(path("other_arch.so"), std::ios::in | std::ios::out | std::ios::binary);
    other.seekp(offsetof(Elf64_Ehdr, e_machine)).put(static_cast<char>(EM_AARCH64)).put(0);
  }
  ~Unusable() { std::filesystem::remove_all(folder_); }
  Unusable(const Unusable&) = delete;
  Unusable& operator=(const Unusable&) = delete;

  const std::string& folder() const { return folder_; }
  std::string path(const char* name) const { return folder_ + "/lib/" + name; }

 private:
  std::string folder_;
};

void check_unusable(const std::string& path, const char* text) {
  CHECK_STATUS(fmha_set_hip_runtime(path.c_str()), FMHA_HIP_ERROR, text);
  CHECK(fmha_last_error() == doctest::Contains(path.c_str()));
}

// Each is refused with what is wrong with it, at once, and another can be tried.
TEST_CASE_FIXTURE(NothingChosen, "unusable") {
  const Unusable files;
  alarm(60);  // instead of waiting for a writer of the FIFO
  check_unusable(files.path("libamdhip64.so.7"), "is not a file but a FIFO");
  check_unusable(files.path("libamdhip64.so.6"), "is cut off: it has");
  check_unusable(files.path("text.so"), "invalid ELF header");
  check_unusable(files.path("other_arch.so"), "other_arch.so: cannot open shared object file");
  check_unusable(files.folder(), "is not a file");
  setenv("FMHA_HIP_RUNTIME", files.path("libamdhip64.so.7").c_str(), 1);
  check_no_runtime("chosen by FMHA_HIP_RUNTIME");
  CHECK_OK(fmha_set_hip_runtime(kRuntime));
  CHECK_STATUS(fmha_set_hip_runtime(files.path("libamdhip64.so.7").c_str()), FMHA_INVALID_ARGUMENT,
               "is already in use");
  check_in_use(kRuntime);
}

// The loader reads its variable when the process starts, so that this starts another.
TEST_CASE_FIXTURE(NothingChosen, "unusable_search") {
  if (dlopen("libamdhip64.so", RTLD_LAZY) != nullptr || access("/opt/rocm/lib/libamdhip64.so", F_OK) == 0) {
    MESSAGE("skipped: this machine has a HIP runtime");
    return;
  }
  const Unusable files;
  setenv("LD_LIBRARY_PATH", files.path("").c_str(), 1);
  setenv("ROCM_PATH", files.folder().c_str(), 1);
  const std::string command = std::filesystem::read_symlink("/proc/self/exe").string() +
                              " --no-skip --test-case=unusable_search_inside";
  CHECK(std::system(command.c_str()) == 0);
}

// The FIFO and the cut off file are passed over, each time, and told of if nothing else is there.
TEST_CASE("unusable_search_inside" * doctest::skip()) {
  alarm(60);
  const std::string last = std::string(std::getenv("ROCM_PATH")) + "/lib/libamdhip64.so";
  check_no_runtime("no HIP runtime: none is mapped into this process, and none that was found can be used: ");
  CHECK(fmha_last_error() == doctest::Contains("libamdhip64.so.7 is not a file but a FIFO; "));
  CHECK(fmha_last_error() == doctest::Contains("libamdhip64.so.6 is cut off"));
  std::filesystem::copy_file("/proc/self/exe", last);  // an ELF file, which is no library
  check_no_runtime("libamdhip64.so: cannot dynamically load");
  std::filesystem::remove(last);
  std::filesystem::copy_file(kRuntime, last);
  check_in_use(last.c_str());
}

// Neither the library nor the loader reads /proc.
TEST_CASE_FIXTURE(NothingChosen, "no_proc") {
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", "/proc", "tmpfs", 0, nullptr) != 0) {
    MESSAGE("skipped: only root can take /proc away: ", std::strerror(errno));
    return;
  }
  CHECK(access("/proc/self", F_OK) != 0);
  setenv("FMHA_HIP_RUNTIME", kRuntime, 1);
  const fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 1, 128, 128, 1, 1, 64);
  CHECK_OK(fmha_fwd_prepare(&p));
  check_in_use(kRuntime);
  CHECK_OK(fmha_set_hip_runtime(kRuntime));
}
}  // namespace
