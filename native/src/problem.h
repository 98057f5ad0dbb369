// SPDX-License-Identifier: MIT OR Apache-2.0
// What a caller asked for, checked. Whatever is wrong with the arguments themselves is found here, before
// anything is said to a device; what this build or this device cannot do is the selector's business.
#pragma once

#include <cstdint>

#include "../kernels/params.h"
#include "catalogue.h"
#include "fmha_rocm.h"

namespace fmha {

// Rows a kernel may address beyond a tensor's end are those that fill its last tile, and every tile height
// in the catalogue divides this (select.cc checks it).
inline constexpr int64_t kTileRows = 256;

struct Problem {
  DType dtype;
  int32_t batch;
  int32_t nhead_k;
  bool masked;           // false as well for a mask that hides nothing
  bool empty;            // nothing to write: select, but do not launch
  FwdKernelParams args;  // what the kernel is handed, and the home of lengths, head dims and strides
};

enum class Pointers {
  kRequired,  // a tensor that will be touched must have its data
  kOptional,  // NULL data is not looked at
};

// Fails with INVALID_ARGUMENT, ABI_MISMATCH, or UNSUPPORTED for what no kernel of any build could do.
Problem make_problem(const fmha_fwd_params* params, Pointers pointers);

// Checks a struct_size that a caller set against what this library knows, and that the bytes beyond are
// zero. `smallest` is the size of the struct's first version.
void check_struct_size(const char* name, const void* data, uint32_t smallest, uint32_t known);

}  // namespace fmha
