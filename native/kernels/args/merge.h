// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of the kernel that merges partial outputs by their LSEs (see args/fwd.h).
#pragma once

#include <cstdint>

namespace fmha {

// Strides of an array by (batch, seqlen, nhead), in elements.
struct MergeStrides {
  int64_t batch;
  int64_t nhead;
  int64_t row;
};

// o = sum_i w_i * o_i / sum_i w_i over the parts, w_i = exp(lse_i - the largest), and lse = log of the sum of
// exp(lse_i). Some lanes of a wave do a row, eight elements each at a time; several groups of them deal the
// parts among themselves. Grid: (blocks of rows, 1, 1).
struct MergeParams {
  const void* parts;  // the first part's
  const float* parts_lse;
  void* o;
  float* lse;  // nullptr: not wanted
  MergeStrides parts_strides;
  MergeStrides parts_lse_strides;  // row is 1
  MergeStrides o_strides;
  MergeStrides lse_strides;  // row is 1
  int64_t part;              // from one part to the next
  int64_t part_lse;
  uint32_t rows;  // batch * seqlen * nhead
  uint32_t seqlen;
  uint32_t nhead;
  int32_t parts_count;
  int32_t hdim;          // a multiple of 8
  int32_t lanes_shift;   // log2 of the lanes of a row, at most 6
  float to_base2;        // factor that makes an LSE one of base 2: log2(e), or 1
  float from_base2;      // and back
  int32_t accumulate;    // o and lse hold one more part
  int32_t groups_shift;  // log2 of the groups
};

}  // namespace fmha
