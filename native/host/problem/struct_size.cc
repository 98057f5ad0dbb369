// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/struct_size.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "error.h"

namespace fmha {
namespace {

// A struct of any version stays far below this; a larger number was never set, and reading that many bytes
// could leave the caller's memory.
constexpr uint32_t kLargestStructBytes = 4096;

bool is_version(uint32_t size, std::span<const uint32_t> versions) {
  if (size > versions.back()) return size <= kLargestStructBytes;
  return std::find(versions.begin(), versions.end(), size) != versions.end();
}

}  // namespace

void check_struct_size(const char* name, const void* data, std::span<const uint32_t> versions) {
  if (data == nullptr) fail(FMHA_INVALID_ARGUMENT, "%s = NULL: expected a struct", name);
  uint32_t size = 0;
  std::memcpy(&size, data, sizeof size);
  const uint32_t known = versions.back();
  if (size == known) return;
  if (!is_version(size, versions)) {
    fail(FMHA_ABI_MISMATCH,
         "%s->struct_size = %" PRIu32 ": expected %" PRIu32 ", its sizeof in fmha_rocm.h %d.%d.%d", name,
         size, known, FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR, FMHA_VERSION_PATCH);
  }
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (uint32_t i = known; i < size; ++i) {
    if (bytes[i] != 0) {
      fail(FMHA_ABI_MISMATCH,
           "%s->struct_size = %" PRIu32 ": byte %" PRIu32
           " is set, but this library (%d.%d.%d) knows the first %" PRIu32
           " alone; expected zeros there, or a newer library",
           name, size, i, FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR, FMHA_VERSION_PATCH, known);
    }
  }
}

}  // namespace fmha
