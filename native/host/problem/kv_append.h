// SPDX-License-Identifier: MIT OR Apache-2.0
// An append to a KV cache as the caller asked for it, checked: see problem/fwd.h.
#pragma once

#include <cstdint>

#include "fmha_rocm.h"
#include "memory/view.h"
#include "problem/cache.h"

namespace fmha {

// Integers of a token: int32 or int64.
struct TokenNumbers {
  const void* data;  // nullptr: there are none
  bool wide;
};

struct KvAppendProblem {
  KvAppendProblem() {}  // make_kv_append_problem sets every field

  DType dtype;  // of q, k and v
  DType cache_dtype;
  int64_t batch, seqlen, nhead_q, nhead_k, hdim_q, hdim_v, total;
  bool packed;
  bool empty;  // there is no token
  bool has_q, has_k, has_v;
  bool checks_memory;
  int32_t candidate;  // as of FwdProblem
  View q, q_out, k, v;
  View cache_k, cache_v;  // (pages, page_size, nhead_k, hdim): sizes and strides in the order of Dimension
  CacheScale k_scale, v_scale;
  CacheVectors vectors;
  bool scale_per_page;
  const int32_t* cu_seqlens;
  const int32_t* seqused_k;
  TokenNumbers slots, positions;
  const int32_t* table;  // of pages; nullptr: the cache has none
  const int32_t* indptr;
  const int32_t* batch_index;
  int64_t table_stride;
  int64_t columns;  // entries of the list of a sequence; with indptr of all
  int64_t pages, page_size;
  const void* cos;  // nullptr: no rotary
  const void* sin;
  bool rotary_float, interleaved;
  int64_t rotary_dim, rotary_positions, rotary_stride;
  Extents extents;  // of all memory
  Extents others;   // of all but the cache, whose keys and values may lie in one another's gaps
};

// Fails with INVALID_ARGUMENT or ABI_MISMATCH. It does not look whether tensors overlap.
void make_kv_append_problem(const fmha_kv_append_params* params, Pointers pointers, KvAppendProblem& problem);

// Takes over the addresses of a call that is like the problem's own in all else: see problem/fwd.h.
void rebind(const fmha_kv_append_params& params, KvAppendProblem& problem);

// Fails with INVALID_ARGUMENT if what is written overlaps itself or anything else. Keys and values of the
// cache may interleave.
void check_overlaps(const KvAppendProblem& problem);

}  // namespace fmha
