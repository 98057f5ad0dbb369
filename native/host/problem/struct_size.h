// SPDX-License-Identifier: MIT OR Apache-2.0
// The struct_size that a caller sets, against what this library knows.
#pragma once

#include <cstdint>
#include <span>

namespace fmha {

// `versions` are the sizes of the struct in every released header, rising; the last is this library's own. A
// longer struct is taken if the bytes that this library does not know are zero. Fails with INVALID_ARGUMENT
// for NULL, else with ABI_MISMATCH.
void check_struct_size(const char* name, const void* data, std::span<const uint32_t> versions);

}  // namespace fmha
