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

}  // namespace fmha
