// SPDX-License-Identifier: MIT OR Apache-2.0
// A KV cache as the caller described it, checked.
#pragma once

#include <cstdint>

#include "fmha_rocm.h"
#include "problem/fwd.h"
#include "problem/tensors.h"
#include "problem/types.h"
#include "problem/view.h"

namespace fmha {

struct Cache {
  Cache() {}  // set_cache sets every field

  DType dtype;
  View k, v;  // (pages, page_size, nhead_k, hdim); not paged: (batch elements, tokens, ...)
  bool paged;
  int32_t page_shift;      // log2 of page_size, if paged
  const int32_t* table;    // pages: of 2-d tables or of all sequences together; nullptr: not paged
  int64_t table_stride;    // 2-d
  const int32_t* indptr;   // 1-d: where a sequence begins in `table`
  const int32_t* indices;  // not paged: batch element of each sequence; nullptr: its own
};

// As a View's dimensions.
inline constexpr const char* kCacheStrideNames[] = {"stride_page", "stride_token", "stride_head"};

// Fails with INVALID_ARGUMENT or ABI_MISMATCH unless there is a struct of a known size.
void check_cache_struct(const fmha_cache* cache);

// Whether a cache has pages. Fails with INVALID_ARGUMENT unless they are listed in one way, or in none.
bool check_page_lists(const fmha_cache& cache);

// Fails with INVALID_ARGUMENT if pages are no power of two long.
void check_page_size(const fmha_cache& cache, bool paged);

// The view of keys or values; it is touched if `wanted`. Its strides are not checked.
void set_cache_view(View& view, const TensorName& name, const fmha_cache_tensor& tensor,
                    const fmha_cache& cache, int64_t nhead, int64_t hdim, int64_t element_bytes, bool wanted);

// Fails with INVALID_ARGUMENT if a stride that will be read is negative, or leads out of the address space.
void check_cache_strides(const View& view);

// Reads the cache of a call on `problem`, whose dtype and sizes are set, and adds what it touches to the
// problem's extents; `written`: keys and values are. Fails with INVALID_ARGUMENT or ABI_MISMATCH.
void set_cache(const fmha_cache* cache, Pointers pointers, bool written, FwdProblem& problem, Cache& out);

}  // namespace fmha
