// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of our own forward kernel (hip/fwd/fwd_pingpong.h; see args/fwd.h).
#pragma once

#include <cstdint>

namespace fmha {

// In bytes. With packed sequences `batch` is 0: a sequence's rows begin where cu_seqlens says.
struct PingpongStrides {
  int64_t batch;
  int64_t nhead;
  uint32_t row;  // of 256 rows less than 2^31 bytes
};

// In a launch, each row tile may be shared by `count` workgroups, which divide the keys. They then write,
// in float32, O by (part, batch, head, row, dim) and its LSE by (part, batch, head, row).
struct PingpongParts {
  float* o;
  float* lse;
  int64_t heads;       // of all batches
  int32_t rows;        // of each, from the launch's first on
  int32_t count;       // 1: no tile is shared, and o, lse, heads and rows mean nothing
  int32_t first_tile;  // the launch's
};

// A workgroup does 256, 128 or 64 rows of a query head. Grid: (XCDs, row tiles, heads of all batches for each
// XCD). The device deals workgroups out to its XCDs in turn, so that each XCD has the tiles of a head one
// after another, and K and V in its L2. With `heads_first` the grid is (XCDs, heads, row tiles): all heads'
// first tiles come before their second ones. If the heads do not divide, as if there were one XCD. If tiles
// are shared, parts of a tile lie one after another.
struct PingpongParams {
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse;           // nullptr: not wanted
  const int32_t* cu_q;  // packed sequences: first row of each, and the end; nullptr: a batch of equal ones
  const int32_t* cu_k;
  const int32_t* used_q;  // packed sequences: lengths in use; nullptr: whole
  const int32_t* used_k;
  PingpongStrides q_strides;
  PingpongStrides k_strides;
  PingpongStrides v_strides;
  PingpongStrides o_strides;
  int64_t lse_batch;  // in elements; a row is 1
  int64_t lse_nhead;
  int32_t seqlen_q;  // of packed sequences the most
  int32_t seqlen_k;
  int32_t total_q;  // rows of packed sequences
  int32_t total_k;
  int32_t hdim_q;  // multiples of 8, at most the tile's
  int32_t hdim_v;
  int32_t nhead_q;
  int32_t nhead_ratio;  // nhead_q / nhead_k
  int32_t window_left;  // keys to the left and right of a row's own that it sees: at most 2^30
  int32_t window_right;
  int32_t heads_first;
  int32_t top_left;  // row i is at column i; else at column i + seqlen_k - seqlen_q
  float scale;       // softmax_scale * log2(e): above 0
  PingpongParts parts;
  const float* sinks;  // for each query head a score without a value, natural; nullptr: none
};

// The score of a product s of q and k is outer * (1 - 2 / (2^(inner * s) + 1)), in units of log2. If |s| is
// at most `nearly_line`, that is s * (c0 + c1 s^2 + c2 s^4) to a few times 2^-24 of the cap; c2 is above 0.
struct PingpongCap {
  float nearly_line;  // below 0: no s is small enough
  float c0, c1, c2;
  float inner, outer;
};

// The arguments of instances with ALiBi or a softcap.
struct PingpongScoreParams {
  PingpongParams plain;
  const float* alibi;   // ALiBi: a slope for each query head
  int64_t alibi_batch;  // in elements
  float per_scale;      // ALiBi: 1 / softmax_scale
  PingpongCap cap;      // softcap
};

// The arguments of instances with 8-bit floats; plain.scale has the factors of q and k too.
struct PingpongFp8Params {
  PingpongParams plain;
  float v_descale;  // the factor on V, or on O
};

}  // namespace fmha
