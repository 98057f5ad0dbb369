// SPDX-License-Identifier: MIT OR Apache-2.0
// Which HIP runtime is taken. Each case needs a process of its own, for a choice cannot be undone:
//   runtime_test CASE RUNTIME COPY
// RUNTIME and COPY are two files with the same content, both named libamdhip64*.
#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
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

// What fmha_fwd says when it gets no runtime; a null pointer is found before it is needed.
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string name = argv[1];
  unsetenv("FMHA_HIP_RUNTIME");
  unsetenv("ROCM_PATH");
  if (name == "none") return test_none();
  if (name == "wrong_environment") return test_wrong_environment();
  if (name == "environment") return test_environment(argv[2], argv[3]);
  if (name == "mapped") return test_mapped(argv[2]);
  if (name == "two_mapped") return test_two_mapped(argv[2], argv[3]);
  if (name == "chosen") return test_chosen(argv[2], argv[3], "libm.so.6");
  if (name == "rocm_path") return test_rocm_path(argv[2]);
  return 2;
}
