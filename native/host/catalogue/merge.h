// SPDX-License-Identifier: MIT OR Apache-2.0
// The fields of the kernels that merge partial outputs in the table of kernels.
#pragma once

#include "catalogue/enums.h"

namespace fmha {

// Each takes any head dim that is a multiple of 8, and any number of parts.
struct MergeRow {
  DType o_dtype;
};

}  // namespace fmha
