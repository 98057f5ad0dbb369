// SPDX-License-Identifier: MIT OR Apache-2.0
// A KV cache as the caller described it, checked.
#pragma once

#include <cstdint>

#include "fmha_rocm.h"
#include "memory/tensors.h"
#include "memory/view.h"
#include "problem/fwd.h"
#include "problem/types.h"

namespace fmha {

// The factors on elements of an 8-bit cache.
struct CacheScale {
  const float* data;  // nullptr: 1
  int64_t stride_page, stride_head;
};

// Tells whether keys and values lie in vectors (see fmha_cache), and of how many elements.
struct CacheVectors {
  int32_t k, v;  // 0: they do not

  bool any() const { return k != 0; }
};

struct Cache {
  Cache() {}  // set_cache sets every field

  DType dtype;
  View k, v;  // (pages, page_size, nhead_k, hdim); not paged: (batch elements, tokens, ...)
  bool paged;
  int32_t page_shift;      // log2 of page_size, if paged
  const int32_t* table;    // pages: of 2-d tables or of all sequences together; nullptr: not paged
  int64_t table_stride;    // 2-d
  int64_t pages;           // or batch elements, below 2^31
  int64_t listed;          // entries of a 1-d table, below 2^31
  const int32_t* indptr;   // 1-d: where a sequence begins in `table`
  const int32_t* indices;  // not paged: batch element of each sequence; nullptr: its own
  CacheVectors vectors;
  CacheScale k_scale, v_scale;
  bool scale_per_page;
};

// Names of the strides, numbered like a View's dimensions.
inline constexpr const char* kCacheStrideNames[] = {"stride_page", "stride_token", "stride_head"};

// Fails with INVALID_ARGUMENT or ABI_MISMATCH unless there is a struct of a known size.
void check_cache_struct(const fmha_cache* cache);

// Tells whether a cache has pages. Fails with INVALID_ARGUMENT unless they are listed in one way, or in none.
bool check_page_lists(const fmha_cache& cache);

// Tokens of so many pages, INT64_MAX at most.
int64_t tokens_of(const fmha_cache& cache, int64_t pages);

// Fails with INVALID_ARGUMENT if pages are no power of two long.
void check_page_size(const fmha_cache& cache, bool paged);

// Fails with INVALID_ARGUMENT unless keys and values lie in vectors as fmha_cache says and fill them, or do
// not. `hdim` is what messages call hdim_q.
CacheVectors cache_vectors(const fmha_cache& cache, const char* hdim, int64_t hdim_q, int64_t element_bytes,
                           bool paged);

// The view of keys or values; it is touched if `wanted`. Its strides are not checked. A vectorised
// cache has all tokens of a page and head as one row.
void set_cache_view(View& view, const TensorName& name, const fmha_cache_tensor& tensor,
                    const fmha_cache& cache, int64_t nhead, int64_t hdim, int64_t element_bytes, bool wanted);

// Fails with INVALID_ARGUMENT if there are scales that cannot be: `batch` sequences have them, or all
// pages. The memory it reads is added to `extents` if `wanted`.
CacheScale cache_scale(const char* name, const fmha_cache_scale& scale, const fmha_cache& cache, DType dtype,
                       int64_t batch, int64_t nhead, bool wanted, Pointers pointers, Extents& extents);

// Fails with INVALID_ARGUMENT if a stride that will be read is negative, or leads out of the address space.
void check_cache_strides(const View& view);

// Reads the cache of a call on `problem`, whose dtype and sizes are set, and adds what it touches to the
// problem's extents; `written`: keys and values are. Fails with INVALID_ARGUMENT or ABI_MISMATCH.
void set_cache(const fmha_cache* cache, Pointers pointers, bool written, FwdProblem& problem, Cache& out);

// Takes over the addresses of a cache that is like this one in all else.
void rebind_cache(const fmha_cache& from, Cache& cache, Rebinder& rebinder);

}  // namespace fmha
