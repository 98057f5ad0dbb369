// SPDX-License-Identifier: MIT OR Apache-2.0
// What a caller asked for, checked. Whatever is wrong with the arguments themselves is found here, before
// anything is said to a device; what this build or this device cannot do is the selector's business.
#pragma once

#include <cstdint>

#include "args/fwd.h"
#include "catalogue/catalogue.h"
#include "fmha_rocm.h"
#include "problem/view.h"

namespace fmha {

// The bias of kernels that do not pad is loaded by vectors of this many elements.
inline constexpr int64_t kBiasVector = 4;

struct Problem {
  DType dtype;    // of q, k and v
  DType o_dtype;  // of o
  Bias bias;
  bool group;   // packed sequences
  bool masked;  // needs a masked kernel: false as well for a mask that hides nothing
  bool softcap;
  bool dropout;
  bool vector_bias;  // each row of the bias begins at a whole vector
  bool empty;        // nothing to write: select, but do not launch
  int32_t batch;
  int32_t nhead_k;
  int32_t kernel;        // 0: the best; n: the n-th candidate
  FwdKernelParams args;  // what the kernel is handed, and the home of lengths, head dims and strides
};

// Fails with INVALID_ARGUMENT, ABI_MISMATCH, or UNSUPPORTED for what no kernel of any build could do.
void make_problem(const fmha_fwd_params* params, Pointers pointers, Problem& problem, Extents& extents);

// A type of the ABI.
struct AbiType {
  fmha_dtype value;
  DType dtype;
  int64_t bytes;
};

inline constexpr AbiType kAbiTypes[] = {
    {FMHA_FP16, DType::kFp16, 2},
    {FMHA_BF16, DType::kBf16, 2},
    {FMHA_FP32, DType::kFp32, 4},
    {FMHA_FP8_E4M3_FNUZ, DType::kFp8, 1},
};

// The second half of make_problem: every piece of memory of the call, its strides and its overlaps. `problem`
// has all the rest already.
void set_tensors(const fmha_fwd_params& p, const AbiType& type, const AbiType& o_type, Pointers pointers,
                 Problem& problem, Extents& extents);

}  // namespace fmha
