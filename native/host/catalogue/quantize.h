// SPDX-License-Identifier: MIT OR Apache-2.0
// The fields of the kernels that make 8-bit floats in the table of kernels.
#pragma once

#include "catalogue/enums.h"

namespace fmha {

// Each takes any head dim that is a multiple of 8, any scales, and the rotation.
struct QuantizeRow {
  DType o_dtype;  // x's own: it only rotates
};

}  // namespace fmha
