// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/cache.h"

#include <bit>
#include <cinttypes>

#include "divide.h"
#include "error.h"
#include "problem/options.h"
#include "problem/struct_size.h"

namespace fmha {
namespace {

constexpr StructVersion kCacheVersions[] = {{sizeof(fmha_cache), sizeof(fmha_cache)}};
constexpr int64_t kVectorBytes = 16;
constexpr int32_t kLeastValueVector = 8;
constexpr int64_t kMostCount = INT32_MAX;  // the device's numbers of pages and tokens are int32

void check_count(const char* name, int64_t value) {
  if (value >= 1 && value <= kMostCount) return;
  raise(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected 1 to %" PRId64, name, value, kMostCount);
}

// Checks that the longest sequence fits.
void check_capacity(const fmha_cache& c, const FwdProblem& f, bool paged) {
  int64_t most = c.page_size;
  if (paged) {
    const char* name = c.block_table != nullptr ? "cache->max_pages" : "cache->indices";
    const int64_t listed = c.block_table != nullptr ? c.max_pages : c.indices;
    if (f.seqlen_k > 0) check_count(name, listed);
    most = tokens_of(c, listed);
    if (f.seqlen_k > most) {
      raise(FMHA_INVALID_ARGUMENT,
            "fwd->seqlen_k = %" PRId64 ": expected at most %s * cache->page_size = %" PRId64, f.seqlen_k,
            name, most);
    }
    return;
  }
  if (f.seqlen_k > most) {
    raise(FMHA_INVALID_ARGUMENT, "fwd->seqlen_k = %" PRId64 ": expected at most cache->page_size = %" PRId64,
          f.seqlen_k, most);
  }
  if (c.cache_batch_idx == nullptr && f.batch > c.pages) {
    raise(FMHA_INVALID_ARGUMENT,
          "cache->pages = %" PRId64 ": expected fwd->batch = %" PRId64 " or more without cache_batch_idx",
          c.pages, f.batch);
  }
}

[[noreturn]] void raise_cache_stride(const View& v, Dimension i) {
  raise(FMHA_INVALID_ARGUMENT, "%s.%s = %" PRId64 ": expected 0 or more", v.name, kCacheStrideNames[i],
        v.stride[i]);
}

[[noreturn]] void raise_cache_reach(const View& v, Dimension i) {
  raise(FMHA_INVALID_ARGUMENT,
        "%s.%s = %" PRId64 ": over a size of %" PRId64 " it leads further than any process can address",
        v.name, kCacheStrideNames[i], v.stride[i], v.size[i]);
}

const int32_t* add_array(const char* name, const int32_t* data, int64_t rows, int64_t stride, int64_t count,
                         bool wanted, Pointers pointers, Extents& extents) {
  if (data == nullptr || !wanted) return nullptr;
  View view = array_view(name, data, sizeof(int32_t), count);
  view.size[0] = rows;
  view.stride[0] = stride;
  check_pointer(view, alignof(int32_t), pointers);
  extents.add(view, false);
  return data;
}

}  // namespace

void check_cache_struct(const fmha_cache* cache) { (void)check_struct_size("cache", cache, kCacheVersions); }

bool check_page_lists(const fmha_cache& c) {
  const bool paged = c.block_table != nullptr || c.kv_indptr != nullptr;
  if (c.block_table != nullptr && c.kv_indptr != nullptr) {
    raise_set("cache->kv_indptr", c.kv_indptr, " with block_table");
  }
  if ((c.kv_indptr == nullptr) != (c.kv_indices == nullptr)) {
    raise(FMHA_INVALID_ARGUMENT, "cache->%s = NULL, but cache->%s is set: expected both or neither",
          c.kv_indptr == nullptr ? "kv_indptr" : "kv_indices",
          c.kv_indptr == nullptr ? "kv_indices" : "kv_indptr");
  }
  if (paged && c.cache_batch_idx != nullptr) {
    raise_set("cache->cache_batch_idx", c.cache_batch_idx, " with pages");
  }
  return paged;
}

int64_t tokens_of(const fmha_cache& c, int64_t pages) {
  int64_t tokens = 0;
  return __builtin_mul_overflow(pages, c.page_size, &tokens) ? INT64_MAX : tokens;
}

void check_page_size(const fmha_cache& c, bool paged) {
  if (!paged || std::has_single_bit(static_cast<uint64_t>(c.page_size))) return;
  raise(FMHA_INVALID_ARGUMENT, "cache->page_size = %" PRId64 ": expected a power of two", c.page_size);
}

CacheVectors cache_vectors(const fmha_cache& c, const char* hdim, int64_t hdim_q, int64_t element_bytes,
                           bool paged) {
  if (c.k_vector == 0 && c.v_vector == 0) return {0, 0};
  if (!paged) {
    raise(FMHA_INVALID_ARGUMENT, "cache->k_vector = %" PRId32 ": expected 0 without pages", c.k_vector);
  }
  if (c.k_vector * element_bytes != kVectorBytes) {
    raise(FMHA_INVALID_ARGUMENT,
          "cache->k_vector = %" PRId32 ": expected %" PRId64 " (16 bytes), or 0 with v_vector 0", c.k_vector,
          kVectorBytes / element_bytes);
  }
  if (c.v_vector < kLeastValueVector || c.v_vector > c.page_size ||
      !std::has_single_bit(static_cast<uint32_t>(c.v_vector))) {
    raise(FMHA_INVALID_ARGUMENT,
          "cache->v_vector = %" PRId32 ": expected a power of two from %" PRId32
          " to cache->page_size = %" PRId64,
          c.v_vector, kLeastValueVector, c.page_size);
  }
  // Elements that do not fill their vectors would lie in the next head, or in the next page.
  if (!is_multiple(c.page_size, c.v_vector)) {
    raise(FMHA_INVALID_ARGUMENT,
          "cache->page_size = %" PRId64 ": expected a multiple of cache->v_vector = %" PRId32, c.page_size,
          c.v_vector);
  }
  if (!is_multiple(hdim_q, c.k_vector)) {
    raise(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected a multiple of cache->k_vector = %" PRId32, hdim,
          hdim_q, c.k_vector);
  }
  return {c.k_vector, c.v_vector};
}

void set_cache_view(View& view, const TensorName& name, const fmha_cache_tensor& t, const fmha_cache& c,
                    int64_t nhead, int64_t hdim, int64_t element_bytes, bool wanted) {
  view.name = name.name;
  view.pointer = name.pointer;
  view.stride = {t.stride_page, t.stride_token, t.stride_head};
  Rows rows = {c.pages, c.page_size, c.page_size, false};
  if (c.k_vector != 0) {
    if (__builtin_mul_overflow(hdim, c.page_size, &hdim)) hdim = INT64_MAX;
    view.stride[kSeqlen] = 0;
    rows.count = rows.sequence = 1;
  }
  set_shape(view, t.data, rows, nhead, hdim, element_bytes, wanted);
}

CacheScale cache_scale(const char* name, const fmha_cache_scale& s, const fmha_cache& c, DType dtype,
                       int64_t batch, int64_t nhead, bool wanted, Pointers pointers, Extents& extents) {
  if (s.data == nullptr) return {nullptr, 0, 0};
  if (!is_fp8(dtype)) {
    raise(FMHA_INVALID_ARGUMENT, "%s = %p: expected NULL for a cache of %s: scales are for fp8", name,
          static_cast<const void*>(s.data), dtype_name(dtype));
  }
  if (!wanted) return {nullptr, 0, 0};
  View view = array_view(name, s.data, sizeof(float), 1);
  view.size = {c.scale_per_page != 0 ? c.pages : batch, 1, nhead};
  view.stride = {s.stride_page, 0, s.stride_head};
  if (s.stride_page < 0 || s.stride_head < 0) {
    raise(FMHA_INVALID_ARGUMENT, "%s: got strides %" PRId64 " and %" PRId64 ", expected 0 or more", name,
          s.stride_page, s.stride_head);
  }
  check_pointer(view, alignof(float), pointers);
  extents.add(view, false);
  return {s.data, s.stride_page, s.stride_head};
}

void check_cache_strides(const View& view) {
  // Nearly always sizes and strides are so small that no product leads anywhere.
  constexpr int kSmallBits = 26;
  const int64_t all =
      view.size[0] | view.size[1] | view.size[2] | view.stride[0] | view.stride[1] | view.stride[2];
  static_assert((kAddressSpace >> (2 * kSmallBits)) >= sizeof(double));
  if ((all >> kSmallBits) == 0) return;
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    if (view.size[i] <= 1) continue;
    if (view.stride[i] < 0) raise_cache_stride(view, i);
    int64_t elements = 0, bytes = 0;
    if (__builtin_mul_overflow(view.size[i] - 1, view.stride[i], &elements) ||
        __builtin_mul_overflow(elements, view.element_bytes, &bytes) || bytes >= int64_t{kAddressSpace}) {
      raise_cache_reach(view, i);
    }
  }
}

void set_cache(const fmha_cache* cache, Pointers pointers, bool written, FwdProblem& f, Cache& out) {
  check_cache_struct(cache);
  const fmha_cache& c = *cache;
  const AbiType& type = type_of("cache->dtype", c.dtype);
  out.dtype = type.dtype;
  check_reserved("cache->reserved", c.reserved);
  check_count("cache->pages", c.pages);
  check_count("cache->page_size", c.page_size);
  out.pages = c.pages;
  out.paged = check_page_lists(c);
  check_page_size(c, out.paged);
  check_capacity(c, f, out.paged);
  out.page_shift = out.paged ? std::countr_zero(static_cast<uint64_t>(c.page_size)) : 0;
  out.vectors = cache_vectors(c, "fwd->hdim_q", f.hdim_q, type.bytes, out.paged);
  out.scale_per_page = truth("cache->scale_per_page", c.scale_per_page);
  const bool wanted = !f.empty && f.seqlen_k > 0;
  set_cache_view(out.k, {"cache->k", "cache->k.data"}, c.k, c, f.nhead_k, f.hdim_q, type.bytes, wanted);
  set_cache_view(out.v, {"cache->v", "cache->v.data"}, c.v, c, f.nhead_k, f.hdim_v, type.bytes, wanted);
  for (const View* view : {&out.k, &out.v}) {
    check_cache_strides(*view);
    check_pointer(*view, 1, pointers);
  }
  f.extents.add(out.k, written);
  f.extents.add(out.v, written);
  const auto scale = [&](const char* name, const fmha_cache_scale& s) {
    return cache_scale(name, s, c, out.dtype, f.batch, f.nhead_k, wanted, pointers, f.extents);
  };
  out.k_scale = scale("cache->k_scale.data", c.k_scale);
  out.v_scale = scale("cache->v_scale.data", c.v_scale);
  if (f.batch > 1 && c.block_table != nullptr && c.stride_block_table < 0) {
    raise(FMHA_INVALID_ARGUMENT, "cache->stride_block_table = %" PRId64 ": expected 0 or more",
          c.stride_block_table);
  }
  out.table_stride = f.batch > 1 ? c.stride_block_table : 0;
  const int64_t starts = f.batch < INT64_MAX ? f.batch + 1 : f.batch;
  out.table = add_array("cache->block_table", c.block_table, f.batch, out.table_stride, c.max_pages, wanted,
                        pointers, f.extents);
  out.indptr = add_array("cache->kv_indptr", c.kv_indptr, 1, 0, starts, wanted, pointers, f.extents);
  out.listed = 0;
  if (c.kv_indices != nullptr) {
    if (wanted) out.listed = c.indices;
    out.table = add_array("cache->kv_indices", c.kv_indices, 1, 0, c.indices, wanted, pointers, f.extents);
  }
  out.indices =
      add_array("cache->cache_batch_idx", c.cache_batch_idx, 1, 0, f.batch, wanted, pointers, f.extents);
}

void rebind_cache(const fmha_cache& c, Cache& cache, Rebinder& r) {
  r.view(cache.k, c.k.data);
  r.view(cache.v, c.v.data);
  r.array(cache.k_scale.data, c.k_scale.data);
  r.array(cache.v_scale.data, c.v_scale.data);
  if (c.block_table != nullptr) r.array(cache.table, c.block_table);
  r.array(cache.indptr, c.kv_indptr);
  if (c.kv_indices != nullptr) r.array(cache.table, c.kv_indices);
  r.array(cache.indices, c.cache_batch_idx);
}

}  // namespace fmha
