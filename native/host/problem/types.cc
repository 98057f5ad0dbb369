// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/types.h"

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <iterator>

#include "error.h"

namespace fmha {
namespace {

constexpr AbiType kAbiTypes[] = {
    {FMHA_FP16, DType::kFp16, 2},         {FMHA_BF16, DType::kBf16, 2},         {FMHA_FP32, DType::kFp32, 4},
    {FMHA_FP8_E4M3_FNUZ, DType::kFp8, 1}, {FMHA_FP8_E4M3_FN, DType::kFp8fn, 1},
};
static_assert(std::size(kAbiTypes) == kDTypeCount, "every type of the catalogue has a value in the C ABI");

static_assert(std::ranges::all_of(kAbiTypes,
                                  [](const AbiType& type) {
                                    return &type == &kAbiTypes[static_cast<size_t>(type.dtype)];
                                  }),
              "they are in the catalogue's order");

}  // namespace

const AbiType& type_of(DType dtype) { return kAbiTypes[static_cast<size_t>(dtype)]; }

const AbiType& type_of(const char* name, fmha_dtype value) {
  for (const AbiType& type : kAbiTypes) {
    if (type.value == value) return type;
  }
  raise(FMHA_INVALID_ARGUMENT,
        "%s = %" PRId32
        ": expected FMHA_FP16 (1), FMHA_BF16 (2), FMHA_FP32 (3), FMHA_FP8_E4M3_FNUZ (4) or "
        "FMHA_FP8_E4M3_FN (5)",
        name, value);
}

}  // namespace fmha
