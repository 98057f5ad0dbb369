// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of the kernels of attention over a KV cache (see args/fwd.h).
//
// A call is one launch, or two if the keys of a sequence are split: each split writes its own float32 O and
// LSE to the workspace, and a merge (args/merge.h) makes one of them.
#pragma once

#include <cstdint>

namespace fmha {

// Strides of q and o: a row is a token of the sequence. In elements.
struct DecodeStrides {
  int64_t batch;  // not read of packed sequences
  int64_t nhead;
  int64_t row;
};

// Strides of a cache's keys or values, in elements. Without pages it has one page for each batch element.
struct CacheStrides {
  int64_t page;
  int64_t nhead;
  int64_t token;  // not read of a vectorised cache
};

struct ScaleStrides {
  int64_t page;  // or of a sequence
  int64_t nhead;
};

// A workgroup does tile_m rows of a key head of a sequence, over one split of its keys; a row is a (token,
// query head of the key head's group), token by token. Grid: (row tiles * splits, nhead_k, batch), splits
// inner; see common/grid.h. The numbers in arrays of the device are brought into the bounds that are here:
// lengths, rows of q, pages.
struct DecodeParams {
  const void* q;
  const void* k;
  const void* v;
  void* o;                // of q's type; of several splits float32, one after another
  float* lse;             // nullptr: not wanted
  const int32_t* table;   // pages of a sequence, in order; nullptr: the cache has no pages
  const int32_t* indptr;  // where in `table` each sequence begins, and the end; nullptr: at b * table_stride
  const int32_t*
      batch_index;         // a cache without pages: its batch element for each sequence; nullptr: the same
  const int32_t* used_k;   // length of each sequence in the cache; nullptr: that of cu_k
  const int32_t* cu_k;     // differences are lengths; nullptr: seqlen_k
  const int32_t* first_k;  // the first key of each sequence; nullptr: 0
  const int32_t* cu_q;     // packed sequences of queries: first row of each, and the end; else nullptr
  const float* alibi;      // nullptr: none
  const float* sinks;      // a logit for each query head, in the denominator only; nullptr: none
  const float* k_scale;    // of an 8-bit cache; nullptr: 1
  const float* v_scale;
  DecodeStrides q_strides;
  DecodeStrides o_strides;
  DecodeStrides lse_strides;  // row is 1
  CacheStrides k_strides;
  CacheStrides v_strides;
  ScaleStrides k_scale_strides;
  ScaleStrides v_scale_strides;
  int64_t table_stride;
  int64_t o_split;  // from one split to the next, in elements
  int64_t lse_split;
  int64_t alibi_stride_batch;
  int32_t seqlen_q;  // of packed sequences the most
  int32_t seqlen_k;  // of a sequence, at most
  int32_t total_q;   // rows of packed sequences
  int32_t pages;     // or batch elements of the cache
  int32_t indices;   // entries of `table`, if there is indptr
  int32_t hdim_q;
  int32_t hdim_v;
  int32_t nhead_ratio;  // nhead_q / nhead_k
  int32_t page_shift;   // log2 of the tokens of a page; 31: the cache has no pages
  int32_t splits;
  int32_t window_left;  // keys to the left and right of a row's own that it sees; negative: unlimited
  int32_t window_right;
  int32_t seqlen_new;      // added to lengths of used_k and cu_k
  int32_t scale_per_page;  // else by sequence
  int32_t v_vector;        // of a vectorised cache: tokens that lie together
  float scale;             // softmax_scale
  float softcap;           // 0: none
  float lse_unit;          // the LSE of base 2 is multiplied with it
  int32_t turned;          // the grid
  int32_t reserved;
};

}  // namespace fmha
