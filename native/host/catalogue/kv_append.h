// SPDX-License-Identifier: MIT OR Apache-2.0
// The fields of the kernels that append to a cache in the table of kernels.
#pragma once

#include "catalogue/enums.h"

namespace fmha {

// Each takes any head dims that are multiples of 8, pages and rotary.
struct KvAppendRow {
  DType o_dtype;  // of the cache
};

}  // namespace fmha
