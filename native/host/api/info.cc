// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries that belong to no family: versions, messages, and which HIP runtime this process uses.
#include <cinttypes>
#include <cstring>
#include <vector>

#include "catalogue/catalogue.h"
#include "error.h"
#include "fmha_rocm.h"
#include "hip/runtime.h"

#define FMHA_TEXT_OF(x) #x
#define FMHA_TEXT(x) FMHA_TEXT_OF(x)

namespace fmha {
namespace {

void search_at(int32_t index, fmha_hip_source* source, char* path, int64_t path_bytes) {
  if (index < 0) raise(FMHA_INVALID_ARGUMENT, "index = %" PRId32 ": expected 0 or more", index);
  if (source == nullptr) raise(FMHA_INVALID_ARGUMENT, "source = NULL: expected an address to write to");
  if (path == nullptr) raise(FMHA_INVALID_ARGUMENT, "path = NULL: expected an address to write to");
  const std::vector<HipCandidate> found = search_hip();
  const auto i = static_cast<size_t>(index);
  const HipCandidate candidate = i < found.size() ? found[i] : HipCandidate{FMHA_HIP_NONE, ""};
  const auto bytes = static_cast<int64_t>(candidate.path.size() + 1);
  if (path_bytes < bytes) {
    raise(FMHA_INVALID_ARGUMENT, "path_bytes = %" PRId64 ": expected %" PRId64 " or more, for %s", path_bytes,
          bytes, candidate.path.c_str());
  }
  *source = candidate.source;
  std::memcpy(path, candidate.path.c_str(), static_cast<size_t>(bytes));
}

}  // namespace
}  // namespace fmha

extern "C" {

const char* fmha_version(void) {
  return FMHA_TEXT(FMHA_VERSION_MAJOR) "." FMHA_TEXT(FMHA_VERSION_MINOR) "." FMHA_TEXT(FMHA_VERSION_PATCH);
}

const char* fmha_build_info(void) { return fmha::kBuildInfoJson; }

const char* fmha_last_error(void) { return fmha::last_error(); }

fmha_status fmha_set_hip_runtime(const char* path) {
  return fmha::guard([&] { fmha::choose_hip(path); });
}

const char* fmha_hip_runtime_path(void) {
  const char* path = nullptr;
  (void)fmha::guard([&] { path = fmha::bind_hip().path.c_str(); });
  return path;
}

fmha_status fmha_hip_runtime_search(int32_t index, fmha_hip_source* source, char* path, int64_t path_bytes) {
  return fmha::guard([&] { fmha::search_at(index, source, path, path_bytes); });
}

}  // extern "C"
