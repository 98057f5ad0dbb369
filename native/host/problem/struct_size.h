// SPDX-License-Identifier: MIT OR Apache-2.0
// The beginning and end of every public struct: the struct_size that the caller sets, and a reserved word.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace fmha {

// A struct as one released header had it.
struct StructVersion {
  uint32_t size;    // its sizeof
  uint32_t fields;  // bytes from its start to the end of its last field: what comes after them is padding
};

// Checks the caller's struct_size. `versions` rise, and the last is this library's own. A longer struct is
// accepted if the bytes that this library does not know are zero. Returns how many bytes of the struct are
// fields that the caller has set and this library knows. Fails with INVALID_ARGUMENT for NULL, otherwise with
// ABI_MISMATCH.
uint32_t check_struct_size(const char* name, const void* data, std::span<const StructVersion> versions);

// The params as this library's own version of the struct: in place, or what an older one has of them, in
// `copy`. Fails as check_struct_size.
template <typename Params>
const Params& current_params(const char* name, const Params* params, std::span<const StructVersion> versions,
                             Params& copy) {
  const uint32_t bytes = check_struct_size(name, params, versions);
  if (bytes == sizeof *params) return *params;
  copy = {};
  std::memcpy(&copy, params, bytes);
  return copy;
}

// Fails with INVALID_ARGUMENT unless the reserved word is zero.
void check_reserved(const char* name, uint32_t value);

}  // namespace fmha
