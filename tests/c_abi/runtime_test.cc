// SPDX-License-Identifier: MIT OR Apache-2.0
// The library's choice of a HIP runtime. Each case needs a process of its own, for a choice cannot be undone:
//   runtime_test CASE RUNTIME COPY [TORCH]
// RUNTIME and COPY are two files with the same content, both named libamdhip64*; TORCH is linked to RUNTIME.
#include <dlfcn.h>
#include <elf.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "check.h"
#include "fmha_rocm.h"
#include "params.h"

namespace {

constexpr int kSkip = 77;

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
  CHECK(std::strstr(fmha_last_error(), text) != nullptr);
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
  CHECK(places.size() >= first + 3);
  const char* const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};
  for (size_t i = 0; i < 3 && first + i < places.size(); ++i) {
    CHECK(places[first + i].source == FMHA_HIP_LOADER && places[first + i].path == names[i]);
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
  CHECK(source == -1 && std::strcmp(path, "abc") == 0);
}

int test_none() {
  for (const char* name :
       {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so",
        "/opt/rocm/lib/libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so.7"}) {
    if (void* library = dlopen(name, RTLD_LAZY)) {
      dlclose(library);
      std::fprintf(stderr, "skipped: this machine has a HIP runtime, %s\n", name);
      return kSkip;
    }
  }
  setenv("ROCM_PATH", "/nonexistent/rocm", 1);
  check_search_arguments();
  const std::vector<Place> places = search();
  check_loader_names(places, 0);
  CHECK(places.size() == 3);
  check_no_runtime("no HIP runtime: none is mapped into this process");
  CHECK(std::strstr(fmha_last_error(), "ROCM_PATH (/nonexistent/rocm)") != nullptr);
  return check_result();
}

int test_wrong_environment() {
  setenv("FMHA_HIP_RUNTIME", "/nonexistent/libamdhip64.so.6", 1);
  check_no_runtime("/nonexistent/libamdhip64.so.6 chosen by FMHA_HIP_RUNTIME");
  return check_result();
}

int test_environment(const char* runtime, const char* copy) {
  setenv("FMHA_HIP_RUNTIME", copy, 1);
  map(runtime);  // comes second
  const std::vector<Place> places = search();
  check_loader_names(places, 2);
  CHECK(places[0].source == FMHA_HIP_ENVIRONMENT && places[0].path == copy);
  CHECK(places[1].source == FMHA_HIP_MAPPED && is_same_file(places[1].path.c_str(), runtime));
  check_in_use(copy);
  CHECK(search().size() == places.size() + 1);  // now both are mapped
  return check_result();
}

int test_mapped(const char* runtime) {
  map(runtime);
  check_in_use(runtime);
  CHECK_OK(fmha_set_hip_runtime(runtime));
  return check_result();
}

int test_two_mapped(const char* runtime, const char* copy) {
  map(runtime);
  map(copy);
  const std::vector<Place> places = search();
  check_loader_names(places, 2);
  CHECK(places[0].source == FMHA_HIP_MAPPED && is_same_file(places[0].path.c_str(), runtime));
  CHECK(places[1].source == FMHA_HIP_MAPPED && is_same_file(places[1].path.c_str(), copy));
  check_no_runtime("two HIP runtimes mapped");
  CHECK(std::strstr(fmha_last_error(), runtime) != nullptr &&
        std::strstr(fmha_last_error(), copy) != nullptr);
  CHECK_OK(fmha_set_hip_runtime(copy));  // the way out that the message names
  check_in_use(copy);
  return check_result();
}

int test_chosen(const char* runtime, const char* copy, const char* other_library) {
  CHECK_STATUS(fmha_set_hip_runtime(nullptr), FMHA_INVALID_ARGUMENT, "path = NULL");
  CHECK_STATUS(fmha_set_hip_runtime(""), FMHA_INVALID_ARGUMENT, "path = \"\"");
  CHECK_STATUS(fmha_set_hip_runtime("/nonexistent/libamdhip64.so"), FMHA_HIP_ERROR,
               "/nonexistent/libamdhip64.so");
  CHECK_STATUS(fmha_set_hip_runtime(other_library), FMHA_HIP_ERROR, "has no hipInit: not a HIP runtime");
  setenv("FMHA_HIP_RUNTIME", copy, 1);  // comes second
  CHECK_OK(fmha_set_hip_runtime(runtime));
  CHECK_OK(fmha_set_hip_runtime(runtime));
  check_in_use(runtime);
  const std::string detour = std::string(runtime).insert(std::string(runtime).rfind('/'), "/.");
  CHECK_OK(fmha_set_hip_runtime(detour.c_str()));
  CHECK_STATUS(fmha_set_hip_runtime(copy), FMHA_INVALID_ARGUMENT, "is already in use");
  check_in_use(runtime);
  return check_result();
}

int test_rocm_path(const char* runtime) {
  // RUNTIME is in a folder named lib.
  std::string rocm = runtime;
  rocm.erase(rocm.rfind("/lib/"));
  setenv("ROCM_PATH", rocm.c_str(), 1);
  if (dlopen("libamdhip64.so", RTLD_LAZY) != nullptr) return kSkip;
  const std::vector<Place> places = search();
  check_loader_names(places, 0);
  CHECK(places.size() > 3 && places[3].source == FMHA_HIP_INSTALLED && places[3].path == runtime);
  check_in_use(runtime);
  return check_result();
}

// If two runtimes are mapped, the library takes PyTorch's own, wherever it is in the list.
int test_torch(const char* runtime, const char* copy, const char* torch) {
  map(copy);
  map(runtime);
  map(torch);
  const std::vector<Place> places = search();
  CHECK(places[0].source == FMHA_HIP_MAPPED && is_same_file(places[0].path.c_str(), runtime));
  CHECK(places[1].source == FMHA_HIP_MAPPED && is_same_file(places[1].path.c_str(), copy));
  check_in_use(runtime);
  return check_result();
}

// Files named like a runtime that are none, in a folder that is gone at the end.
class Unusable {
 public:
  explicit Unusable(const char* runtime) {
    char folder[] = "/tmp/fmha_runtime_XXXXXX";
    CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    std::filesystem::create_directory(folder_ + "/lib");
    CHECK(mkfifo(path("libamdhip64.so.7").c_str(), 0600) == 0);
    std::ofstream(path("text.so"))
        << "/* GNU ld script */ INPUT(libamdhip64.so.7) and so on, as long as a header";
    std::filesystem::copy_file(runtime, path("libamdhip64.so.6"));
    std::filesystem::resize_file(path("libamdhip64.so.6"), std::filesystem::file_size(runtime) / 4);
    std::filesystem::copy_file(runtime, path("other_arch.so"));
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
  CHECK(std::strstr(fmha_last_error(), path.c_str()) != nullptr);
}

// Each is refused with what is wrong with it, at once, and another can be tried.
int test_unusable(const char* runtime) {
  const Unusable files(runtime);
  alarm(60);  // instead of waiting for a writer of the FIFO
  check_unusable(files.path("libamdhip64.so.7"), "is not a file but a FIFO");
  check_unusable(files.path("libamdhip64.so.6"), "is cut off: it has");
  check_unusable(files.path("text.so"), "invalid ELF header");
  check_unusable(files.path("other_arch.so"), "other_arch.so: cannot open shared object file");
  check_unusable(files.folder(), "is not a file");
  setenv("FMHA_HIP_RUNTIME", files.path("libamdhip64.so.7").c_str(), 1);
  check_no_runtime("chosen by FMHA_HIP_RUNTIME");
  CHECK_OK(fmha_set_hip_runtime(runtime));
  CHECK_STATUS(fmha_set_hip_runtime(files.path("libamdhip64.so.7").c_str()), FMHA_INVALID_ARGUMENT,
               "is already in use");
  check_in_use(runtime);
  return check_result();
}

// The loader reads its variable when the process starts, so that this starts another.
int test_unusable_search(char** argv) {
  if (dlopen("libamdhip64.so", RTLD_LAZY) != nullptr || access("/opt/rocm/lib/libamdhip64.so", F_OK) == 0) {
    return kSkip;
  }
  const Unusable files(argv[2]);
  setenv("LD_LIBRARY_PATH", files.path("").c_str(), 1);
  setenv("ROCM_PATH", files.folder().c_str(), 1);
  const std::string command =
      std::string(argv[0]) + " unusable_search_inside " + argv[2] + " " + files.path("libamdhip64.so");
  CHECK(std::system(command.c_str()) == 0);
  return check_result();
}

// The FIFO and the cut off file are passed over, each time, and told of if nothing else is there.
int test_unusable_search_inside(const char* runtime, const char* last) {
  alarm(60);
  check_no_runtime("no HIP runtime: none is mapped into this process, and none that was found can be used: ");
  CHECK(std::strstr(fmha_last_error(), "libamdhip64.so.7 is not a file but a FIFO; ") != nullptr);
  CHECK(std::strstr(fmha_last_error(), "libamdhip64.so.6 is cut off") != nullptr);
  std::filesystem::copy_file("/proc/self/exe", last);  // an ELF file, which is no library
  check_no_runtime("libamdhip64.so: cannot dynamically load");
  std::filesystem::remove(last);
  std::filesystem::copy_file(runtime, last);
  check_in_use(last);
  return check_result();
}

// Neither the library nor the loader reads /proc.
int test_no_proc(const char* runtime) {
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", "/proc", "tmpfs", 0, nullptr) != 0) {
    std::perror("skipped: only root can take /proc away");
    return kSkip;
  }
  CHECK(access("/proc/self", F_OK) != 0);
  setenv("FMHA_HIP_RUNTIME", runtime, 1);
  const fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 1, 128, 128, 1, 1, 64);
  CHECK_OK(fmha_fwd_prepare(&p));
  check_in_use(runtime);
  CHECK_OK(fmha_set_hip_runtime(runtime));
  return check_result();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string name = argv[1];
  if (name == "unusable_search_inside") return test_unusable_search_inside(argv[2], argv[3]);
  unsetenv("FMHA_HIP_RUNTIME");
  unsetenv("ROCM_PATH");
  if (name == "none") return test_none();
  if (name == "wrong_environment") return test_wrong_environment();
  if (name == "environment") return test_environment(argv[2], argv[3]);
  if (name == "mapped") return test_mapped(argv[2]);
  if (name == "two_mapped") return test_two_mapped(argv[2], argv[3]);
  if (name == "chosen") return test_chosen(argv[2], argv[3], "libm.so.6");
  if (name == "torch" && argc == 5) return test_torch(argv[2], argv[3], argv[4]);
  if (name == "unusable") return test_unusable(argv[2]);
  if (name == "unusable_search") return test_unusable_search(argv);
  if (name == "no_proc") return test_no_proc(argv[2]);
  if (name == "rocm_path") return test_rocm_path(argv[2]);
  return 2;
}
