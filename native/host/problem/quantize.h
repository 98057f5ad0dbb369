// SPDX-License-Identifier: MIT OR Apache-2.0
// 8-bit floats of a tensor as the caller asked for them, checked: see problem/fwd.h.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "fmha_rocm.h"
#include "memory/view.h"
#include "memory/workspace.h"

namespace fmha {

enum class ScaleUnit : uint8_t { kNone, kTensor, kHead, kBlock };

struct QuantizeProblem {
  QuantizeProblem() {}  // make_quantize_problem sets every field

  DType dtype;
  DType o_dtype;
  int64_t batch, seqlen, nhead, hdim;
  ScaleUnit unit;  // kNone: the elements keep their type
  int64_t heads;   // that share a scale; 1 where all do
  int64_t block;   // tokens that share one; seqlen where all do
  bool given;      // the scales are read
  bool hadamard;
  bool empty;
  bool checks_memory;
  int32_t candidate;  // as of FwdProblem
  View x, out;
  View descale;  // (batch, blocks, groups of heads), or one; not touched: there is none
  Workspace workspace;
  Extents extents;
};

// Fails with INVALID_ARGUMENT or ABI_MISMATCH. It does not look whether tensors overlap.
void make_quantize_problem(const fmha_quantize_params* params, Pointers pointers, QuantizeProblem& problem);

// Takes over the addresses of a call that is like the problem's own in all else: see problem/fwd.h.
void rebind(const fmha_quantize_params& params, QuantizeProblem& problem);

// Fails with INVALID_ARGUMENT if what is written overlaps itself or anything else.
void check_overlaps(const QuantizeProblem& problem);

}  // namespace fmha
