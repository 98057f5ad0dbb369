// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/runtime.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "error.h"

namespace fmha {
namespace {

constexpr const char* kNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};

// Both are written under the mutex and never go back. The runtime stays loaded and the table allocated until
// the process ends: other threads may be inside it.
std::mutex g_mutex;
std::atomic<const HipApi*> g_bound{nullptr};
std::atomic<bool> g_initialised{false};

template <typename Function>
void resolve(void* library, const char* path, const char* name, Function& function) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) raise(FMHA_HIP_ERROR, "%s has no %s: not a HIP runtime, or too old", path, name);
  function = reinterpret_cast<Function>(symbol);
}

std::unique_ptr<HipApi> resolve_all(void* library, const char* path) {
  auto api = std::make_unique<HipApi>();
  api->path = path;
#define FMHA_RESOLVE(name) resolve(library, path, #name, api->name)
  FMHA_RESOLVE(hipInit);
  FMHA_RESOLVE(hipRuntimeGetVersion);
  FMHA_RESOLVE(hipGetDevice);
  FMHA_RESOLVE(hipDeviceGetAttribute);
  FMHA_RESOLVE(hipPointerGetAttribute);
  FMHA_RESOLVE(hipModuleLoadData);
  FMHA_RESOLVE(hipModuleUnload);
  FMHA_RESOLVE(hipModuleGetFunction);
  FMHA_RESOLVE(hipModuleLaunchKernel);
  FMHA_RESOLVE(hipMemsetAsync);
  FMHA_RESOLVE(hipGetErrorName);
  FMHA_RESOLVE(hipGetErrorString);
  FMHA_RESOLVE(hipGetLastError);
#undef FMHA_RESOLVE
  return api;
}

// Path of a loaded library as the loader knows it.
const char* path_of(void* library, const char* fallback) {
  struct link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) return fallback;
  return map->l_name != nullptr && map->l_name[0] != '\0' ? map->l_name : fallback;
}

// Takes over one reference to `library`.
const HipApi& adopt(void* library, const char* name) {
  try {
    const HipApi* api = resolve_all(library, path_of(library, name)).release();
    g_bound.store(api, std::memory_order_release);
    return *api;
  } catch (...) {
    dlclose(library);
    throw;
  }
}

const HipApi& open_chosen(const char* path, const char* chosen_by) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    raise(FMHA_HIP_ERROR, "cannot load the HIP runtime %s chosen by %s: %s", path, chosen_by,
          reason != nullptr ? reason : "unknown reason");
  }
  return adopt(library, path);
}

// libamdhip64.so, libamdhip64.so.6, and a wheel's libamdhip64-1a2b3c4d.so.6.
bool is_hip_runtime(const char* path) {
  const char* slash = std::strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  return std::strncmp(name, "libamdhip64", 11) == 0 && std::strstr(name, ".so") != nullptr;
}

// Every object in the process is listed once, however often and by whatever name it was opened, so two
// entries are two copies.
std::vector<std::string> mapped_runtimes() {
  struct Found {
    std::vector<std::string> paths;
    bool out_of_memory = false;
  } found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& result = *static_cast<Found*>(data);
        if (info->dlpi_name == nullptr || !is_hip_runtime(info->dlpi_name)) return 0;
        try {  // nothing may be thrown through the loader
          result.paths.emplace_back(info->dlpi_name);
        } catch (...) {
          result.out_of_memory = true;
        }
        return 0;
      },
      &found);
  if (found.out_of_memory) throw std::bad_alloc();
  return std::move(found.paths);
}

const HipApi& open_mapped(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    const char* reason = dlerror();
    raise(FMHA_HIP_ERROR, "cannot open the HIP runtime %s, which this process has mapped: %s", path.c_str(),
          reason != nullptr ? reason : "its file has moved");
  }
  return adopt(library, path.c_str());
}

// Value of an environment variable, nullptr if it is unset or empty.
const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

void add_installed(const std::string& folder, std::vector<HipCandidate>& found) {
  for (const char* name : kNames) {
    std::string path = folder + "/" + name;
    if (access(path.c_str(), F_OK) == 0) found.push_back({FMHA_HIP_INSTALLED, std::move(path)});
  }
}

// A runtime that is already mapped comes before any file, because its streams and its memory are what callers
// hand over.
const HipApi& find() {
  const std::vector<HipCandidate> candidates = search_hip();
  const HipCandidate& first = candidates.front();
  if (first.source == FMHA_HIP_ENVIRONMENT) return open_chosen(first.path.c_str(), "FMHA_HIP_RUNTIME");
  if (first.source == FMHA_HIP_MAPPED) {
    if (candidates[1].source == FMHA_HIP_MAPPED) {
      raise(FMHA_HIP_ERROR,
            "this process has two HIP runtimes mapped, %s and %s: streams and memory of one mean nothing to "
            "the other; choose one by fmha_set_hip_runtime or FMHA_HIP_RUNTIME",
            first.path.c_str(), candidates[1].path.c_str());
    }
    return open_mapped(first.path);
  }
  for (const HipCandidate& candidate : candidates) {
    if (void* library = dlopen(candidate.path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return adopt(library, candidate.path.c_str());
    }
  }
  const char* rocm = environment("ROCM_PATH");
  raise(FMHA_HIP_ERROR,
        "no HIP runtime: none is mapped into this process, and libamdhip64.so.7, .so.6 and .so were found "
        "neither by the loader nor in ROCM_PATH (%s) nor in /opt/rocm/lib; set FMHA_HIP_RUNTIME to the path "
        "of one",
        rocm != nullptr ? rocm : "not set");
}

bool is_same_file(const char* a, const char* b) {
  struct stat sa{}, sb{};
  if (stat(a, &sa) != 0 || stat(b, &sb) != 0) return std::strcmp(a, b) == 0;
  return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

// A library name without a path means what the loader makes of it.
bool is_bound(const HipApi& api, const char* path) {
  if (is_same_file(path, api.path.c_str())) return true;
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const bool same = std::strcmp(path_of(library, ""), api.path.c_str()) == 0;
  dlclose(library);
  return same;
}

}  // namespace

std::vector<HipCandidate> search_hip() {
  std::vector<HipCandidate> found;
  if (const char* chosen = environment("FMHA_HIP_RUNTIME")) found.push_back({FMHA_HIP_ENVIRONMENT, chosen});
  for (std::string& path : mapped_runtimes()) found.push_back({FMHA_HIP_MAPPED, std::move(path)});
  for (const char* name : kNames) found.push_back({FMHA_HIP_LOADER, name});
  if (const char* rocm = environment("ROCM_PATH")) add_installed(std::string(rocm) + "/lib", found);
  add_installed("/opt/rocm/lib", found);
  return found;
}

const HipApi& bind_hip() {
  if (const HipApi* api = g_bound.load(std::memory_order_acquire)) return *api;
  const std::lock_guard lock(g_mutex);
  if (const HipApi* api = g_bound.load(std::memory_order_relaxed)) return *api;
  return find();
}

const HipApi& hip() {
  const HipApi& api = bind_hip();
  if (g_initialised.load(std::memory_order_acquire)) return api;
  const std::lock_guard lock(g_mutex);
  if (!g_initialised.load(std::memory_order_relaxed)) {
    // A runtime opened by dlopen may refuse every call before this one; after the first time it does nothing.
    if (const int error = api.hipInit(0); error != kHipSuccess) raise_hip(api, "hipInit", error, "flags 0");
    g_initialised.store(true, std::memory_order_release);
  }
  return api;
}

void choose_hip(const char* path) {
  if (path == nullptr || path[0] == '\0') {
    raise(FMHA_INVALID_ARGUMENT, "path = %s: expected the path of a libamdhip64",
          path == nullptr ? "NULL" : "\"\"");
  }
  const std::lock_guard lock(g_mutex);
  const HipApi* api = g_bound.load(std::memory_order_relaxed);
  if (api == nullptr) {
    open_chosen(path, "fmha_set_hip_runtime");
  } else if (!is_bound(*api, path)) {
    raise(FMHA_INVALID_ARGUMENT,
          "path = %s: the HIP runtime %s is already in use; choose before the first call", path,
          api->path.c_str());
  }
}

void raise_hip(const HipApi& api, const char* call, int error, const char* format, ...) {
  char subject[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(subject, sizeof subject, format, arguments);
  va_end(arguments);
  const char* name = api.hipGetErrorName(error);
  const char* words = api.hipGetErrorString(error);
  (void)api.hipGetLastError();
  raise(FMHA_HIP_ERROR, "%s (%s): %s (%d): %s [%s]", call, subject, name != nullptr ? name : "unknown error",
        error, words != nullptr ? words : "no description", api.path.c_str());
}

}  // namespace fmha
