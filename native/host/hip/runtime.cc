// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "error.h"
#include "hip/library.h"
#include "platform/platform.h"

namespace fmha {
namespace {

// The first two are written under the mutex and go back only in a forked child. The runtime stays loaded and
// the table allocated until the process ends: other threads may be inside it.
std::mutex g_mutex;
std::atomic<const HipApi*> g_bound{nullptr};
std::atomic<bool> g_initialised{false};
std::atomic<bool> g_forked{false};

// A child has neither the threads nor the device of what its parent began to use, so that the first
// wait would never end. The mutex may be another thread's, which is not in the child.
void note_fork() {
  const bool idle = g_mutex.try_lock();
  if (idle) g_mutex.unlock();
  if (idle && !g_initialised.load(std::memory_order_relaxed)) return;
  g_forked.store(true, std::memory_order_relaxed);
  g_initialised.store(false, std::memory_order_relaxed);
}

[[gnu::constructor]] void watch_forks() { platform::at_fork_in_child(note_fork); }

void check_process() {
  if (!g_forked.load(std::memory_order_relaxed)) return;
  raise(FMHA_HIP_ERROR,
        "this process was forked from one that had used HIP, whose threads and device it does not have; "
        "start it by spawn or exec (in Python multiprocessing.get_context(\"spawn\")), or fork before the "
        "first call");
}

const HipApi& adopt(std::unique_ptr<HipApi> api) {
  g_bound.store(api.get(), std::memory_order_release);
  return *api.release();
}

const HipApi& open_chosen(const char* path, const char* chosen_by) {
  std::string why;
  if (auto api = open_hip(path, why)) return adopt(std::move(api));
  raise(FMHA_HIP_ERROR, "cannot use the HIP runtime %s chosen by %s: %s", path, chosen_by, why.c_str());
}

// PyTorch's own comes first of several: the others came along with something else.
std::vector<std::string> mapped_runtimes() {
  std::vector<std::string> paths = platform::loaded_runtimes();
  if (paths.size() < 2) return paths;
  const std::string torch = platform::runtime_of_torch();
  const auto is_torch = [&](const std::string& path) {
    return platform::is_same_file(path.c_str(), torch.c_str());
  };
  std::stable_partition(paths.begin(), paths.end(), is_torch);
  return paths;
}

const HipApi& use_mapped(const std::string& path, const std::string* other) {
  if (other != nullptr && !platform::is_same_file(path.c_str(), platform::runtime_of_torch().c_str())) {
    raise(FMHA_HIP_ERROR,
          "this process has two HIP runtimes mapped, %s and %s: streams and memory of one mean nothing to "
          "the other; choose one by fmha_set_hip_runtime or FMHA_HIP_RUNTIME",
          path.c_str(), other->c_str());
  }
  std::string why;
  if (auto api = open_loaded_hip(path.c_str(), why)) return adopt(std::move(api));
  raise(FMHA_HIP_ERROR, "cannot use the HIP runtime %s, which this process has mapped: %s", path.c_str(),
        why.c_str());
}

[[noreturn]] void raise_none(const std::string& refused) {
  if (!refused.empty()) {
    raise(FMHA_HIP_ERROR,
          "no HIP runtime: none is mapped into this process, and none that was found can be used: %s; set "
          "FMHA_HIP_RUNTIME to the path of one",
          refused.c_str());
  }
  raise(FMHA_HIP_ERROR,
        "no HIP runtime: none is mapped into this process, and %s; set FMHA_HIP_RUNTIME to the path of one",
        platform::where_none_was().c_str());
}

// A runtime that is already mapped comes before any file, because its streams and its memory are what callers
// hand over.
const HipApi& find() {
  const std::vector<HipCandidate> candidates = search_hip();
  const HipCandidate& first = candidates.front();
  if (first.source == FMHA_HIP_ENVIRONMENT) return open_chosen(first.path.c_str(), "FMHA_HIP_RUNTIME");
  if (first.source == FMHA_HIP_MAPPED) {
    const bool alone = candidates[1].source != FMHA_HIP_MAPPED;
    return use_mapped(first.path, alone ? nullptr : &candidates[1].path);
  }
  std::string refused;
  for (const HipCandidate& candidate : candidates) {
    std::string why;
    const char* path = candidate.path.c_str();
    if (auto api = open_hip(path, why)) return adopt(std::move(api));
    if (!platform::is_not_found(path, why)) refused += (refused.empty() ? "" : "; ") + why;
  }
  raise_none(refused);
}

// A library name without a path means what the loader makes of it.
bool is_bound(const HipApi& api, const char* path) {
  if (platform::is_same_file(path, api.path.c_str())) return true;
  std::string why;
  platform::Library library = platform::is_loadable(path, why) ? platform::open_loaded(path) : nullptr;
  if (library == nullptr) return false;
  const bool same = platform::path_of(library, "") == api.path;
  platform::close(library);
  return same;
}

}  // namespace

std::vector<HipCandidate> search_hip() {
  std::vector<HipCandidate> found;
  std::string chosen = platform::environment("FMHA_HIP_RUNTIME");
  if (!chosen.empty()) found.push_back({FMHA_HIP_ENVIRONMENT, std::move(chosen)});
  for (std::string& path : mapped_runtimes()) found.push_back({FMHA_HIP_MAPPED, std::move(path)});
  for (const std::string& name : platform::runtime_names()) found.push_back({FMHA_HIP_LOADER, name});
  for (std::string& path : platform::installed_runtimes())
    found.push_back({FMHA_HIP_INSTALLED, std::move(path)});
  return found;
}

const HipApi& bind_hip() {
  if (const HipApi* api = g_bound.load(std::memory_order_acquire)) return *api;
  check_process();
  const std::lock_guard lock(g_mutex);
  if (const HipApi* api = g_bound.load(std::memory_order_relaxed)) return *api;
  return find();
}

const HipApi& hip() {
  const HipApi& api = bind_hip();
  if (g_initialised.load(std::memory_order_acquire)) return api;
  check_process();
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
  check_process();
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
