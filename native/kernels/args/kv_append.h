// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of the kernel that appends keys and values to a cache (see args/fwd.h).
#pragma once

#include <cstdint>

namespace fmha {

// Strides of q, and of new keys and values: a row is a token of the sequence. In elements.
struct AppendStrides {
  int64_t batch;  // not read of packed sequences
  int64_t nhead;
  int64_t row;
};

// Strides of a cache's keys or values, in elements. Without pages it has one page for each batch element.
struct AppendCacheStrides {
  int64_t page;
  int64_t nhead;
  int64_t token;  // not read of a vectorised cache
};

struct AppendScaleStrides {
  int64_t page;  // or of a sequence
  int64_t nhead;
};

// Grid: (blocks of a sequence's rows, 1, batch), see common/grid.h. A row is a (token, head), head by head
// q's, the keys', the values'; what is left out has no heads. `lanes` lanes of a wave do a row. Numbers in
// device arrays are compared with the sizes here: a token that is in none of them is left out.
struct KvAppendParams {
  const void* q;
  void* q_out;
  const void* k;
  const void* v;
  void* cache_k;
  void* cache_v;
  const float* k_scale;  // stored values are divided by it; nullptr: 1
  const float* v_scale;
  const void* cos;  // nullptr: nothing is rotated
  const void* sin;
  const void* slots;      // of each token; nullptr: by table and length
  const void* positions;  // of each token, for rotary; nullptr: its place in the cache
  const int32_t* cu;      // packed sequences: first row of each, and the end; else nullptr
  const int32_t* used_k;  // tokens in the cache before; nullptr: 0
  const int32_t* table;   // pages of a sequence, in order; nullptr: the cache has no pages
  const int32_t* indptr;  // where in `table` each sequence begins, and the end; nullptr: at b * table_stride
  const int32_t*
      batch_index;  // a cache without pages: its batch element for each sequence; nullptr: the same
  AppendStrides q_strides;
  AppendStrides q_out_strides;
  AppendStrides k_strides;
  AppendStrides v_strides;
  AppendCacheStrides cache_k_strides;
  AppendCacheStrides cache_v_strides;
  AppendScaleStrides k_scale_strides;
  AppendScaleStrides v_scale_strides;
  int64_t table_stride;
  int64_t columns;  // of `table`: pages of a sequence; with indptr of all
  int64_t pages;
  int64_t page_size;
  int64_t positions_count;  // rows of cos and sin
  int64_t rotary_stride;    // from one position to the next
  int64_t total;            // rows of packed sequences
  int32_t seqlen;           // of packed sequences the most
  int32_t nhead_q;          // 0: there is no q
  int32_t nhead_k;
  int32_t nhead_v;
  int32_t hdim_q;
  int32_t hdim_v;
  int32_t rotary_dim;
  int32_t interleaved;   // elements 2 i and 2 i + 1 are a pair; else i and i + rotary_dim / 2
  int32_t rotary_float;  // cos and sin are float32; else of q's type
  int32_t wide_slots;    // int64
  int32_t wide_positions;
  int32_t scale_per_page;
  int32_t lanes_shift;  // log2 of the lanes of a row, at most 6
  int32_t k_vector;     // of a vectorised cache: dims of a key that lie together; else 0
  int32_t v_vector;     // and tokens of a value's dim
  int32_t turned;       // the grid
};

}  // namespace fmha
