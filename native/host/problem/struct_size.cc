// SPDX-License-Identifier: MIT OR Apache-2.0
// No public struct may have padding, now or later: a field added there would be read, at an unchanged
// struct_size, from whatever an older caller's memory holds.
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#include "fmha_rocm.h"
#pragma GCC diagnostic pop

#include <cinttypes>
#include <cstring>

#include "error.h"
#include "problem/struct_size.h"

namespace fmha {
namespace {

// A struct of any version stays far below this; a larger number was never set, and reading that many bytes
// could leave the caller's memory.
constexpr uint32_t kLargestStructBytes = 4096;

[[noreturn]] void raise_unknown_size(const char* name, uint32_t size, uint32_t known) {
  raise(FMHA_ABI_MISMATCH,
        "%s->struct_size = %" PRIu32 ": expected %" PRIu32 ", its sizeof in fmha_rocm.h %d.%d.%d", name, size,
        known, FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR, FMHA_VERSION_PATCH);
}

void check_unknown_bytes(const char* name, const void* data, uint32_t known, uint32_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (uint32_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    raise(FMHA_ABI_MISMATCH,
          "%s->struct_size = %" PRIu32 ": byte %" PRIu32
          " is set, but this library (%d.%d.%d) knows only the first %" PRIu32
          "; expected zeros there, or a newer library",
          name, size, i, FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR, FMHA_VERSION_PATCH, known);
  }
}

}  // namespace

uint32_t check_struct_size(const char* name, const void* data, std::span<const StructVersion> versions) {
  if (data == nullptr) raise(FMHA_INVALID_ARGUMENT, "%s = NULL: expected a struct", name);
  uint32_t size = 0;
  std::memcpy(&size, data, sizeof size);
  const uint32_t known = versions.back().size;
  if (size == known) return known;
  if (size > known) {
    if (size > kLargestStructBytes) raise_unknown_size(name, size, known);
    check_unknown_bytes(name, data, known, size);
    return known;
  }
  for (const StructVersion& version : versions) {
    if (version.size == size) return version.fields;
  }
  raise_unknown_size(name, size, known);
}

void check_reserved(const char* name, uint32_t value) {
  if (value != 0) raise(FMHA_INVALID_ARGUMENT, "%s = %" PRIu32 ": expected 0", name, value);
}

}  // namespace fmha
