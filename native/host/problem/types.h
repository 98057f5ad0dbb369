// SPDX-License-Identifier: MIT OR Apache-2.0
// The element types of the C ABI.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "fmha_rocm.h"

namespace fmha {

struct AbiType {
  fmha_dtype value;
  DType dtype;
  int64_t bytes;
};

// Fails with INVALID_ARGUMENT, naming the argument.
const AbiType& type_of(const char* name, fmha_dtype value);

const AbiType& type_of(DType dtype);

// Either kind of 8-bit float.
constexpr bool is_fp8(DType dtype) { return dtype == DType::kFp8 || dtype == DType::kFp8fn; }
constexpr DType other_fp8(DType dtype) { return dtype == DType::kFp8 ? DType::kFp8fn : DType::kFp8; }
// NumPy's and frameworks' name of it.
constexpr const char* fp8_format(DType dtype) {
  return dtype == DType::kFp8 ? "float8_e4m3fnuz" : "float8_e4m3fn";
}

}  // namespace fmha
