// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/kv_append.h"

#include <array>
#include <cinttypes>

#include "error.h"
#include "memory/tensors.h"
#include "problem/cache.h"
#include "problem/options.h"
#include "problem/rebind.h"
#include "problem/struct_size.h"
#include "problem/types.h"

namespace fmha {
namespace {

constexpr StructVersion kAppendVersions[] = {{sizeof(fmha_kv_append_params), sizeof(fmha_kv_append_params)}};

// q may be rotated where it is.
bool is_in_place(const fmha_kv_append_params& p) {
  const fmha_tensor& from = p.q;
  const fmha_tensor& to = p.q_out;
  return to.data == nullptr || (to.data == from.data && to.stride_batch == from.stride_batch &&
                                to.stride_seqlen == from.stride_seqlen && to.stride_head == from.stride_head);
}

class AppendBuilder {
 public:
  AppendBuilder(const fmha_kv_append_params& params, const fmha_cache& cache, Pointers pointers,
                KvAppendProblem& problem)
      : p_(params), c_(cache), pointers_(pointers), problem_(problem) {}

  // Types come first: what follows multiplies by the bytes of an element.
  void make() {
    problem_.dtype = type_of("dtype", p_.dtype).dtype;
    problem_.cache_dtype = type_of("cache->dtype", c_.dtype).dtype;
    set_sizes();
    set_tokens();
    set_rotary();
    set_lists();
    check_positions();
    set_cache();
  }

 private:
  // An absent tensor is not checked.
  bool reads(const void* data) const { return data != nullptr && !problem_.empty; }

  void add(const View& view, bool written) {
    problem_.extents.add(view, written);
    problem_.others.add(view, written);
  }

  const void* array(const char* name, const void* data, int64_t element_bytes, int64_t count,
                    int64_t rows = 1, int64_t stride = 0) {
    if (!reads(data)) return nullptr;
    View view = array_view(name, data, element_bytes, count);
    view.size[0] = rows;
    view.stride[0] = stride;
    check_pointer(view, element_bytes, pointers_);
    add(view, false);
    return data;
  }

  const int32_t* integers(const char* name, const int32_t* data, int64_t count) {
    return static_cast<const int32_t*>(array(name, data, sizeof(int32_t), count));
  }

  void set_sizes() {
    problem_.has_q = p_.q.data != nullptr;
    problem_.has_k = p_.k.data != nullptr;
    problem_.has_v = p_.v.data != nullptr;
    check_least("batch", p_.batch, 0);
    check_least("seqlen", p_.seqlen, 0);
    check_least("nhead_q", p_.nhead_q, problem_.has_q ? 1 : 0);
    check_least("nhead_k", p_.nhead_k, 1);
    check_least("hdim_q", p_.hdim_q, 1);
    check_least("hdim_v", p_.hdim_v, 1);
    problem_.batch = p_.batch;
    problem_.seqlen = p_.seqlen;
    problem_.nhead_q = p_.nhead_q;
    problem_.nhead_k = p_.nhead_k;
    problem_.hdim_q = p_.hdim_q;
    problem_.hdim_v = p_.hdim_v;
    problem_.packed = p_.cu_seqlens != nullptr;
    const bool tokens = p_.batch > 0 && p_.seqlen > 0;
    if (problem_.packed) check_least("total", p_.total, tokens ? 1 : 0);
    problem_.total = p_.total;
    problem_.empty = !tokens || !(problem_.has_q || problem_.has_k || problem_.has_v);
  }

  void set_token_tensor(View& view, const TensorName& name, const fmha_tensor& t, int64_t nhead,
                        int64_t hdim) {
    const Rows rows = rows_of(problem_.packed, p_.batch, p_.seqlen, p_.total);
    const int64_t bytes = type_of(problem_.dtype).bytes;
    set_tensor(view, name, t, rows, nhead, hdim, bytes, reads(t.data), pointers_);
  }

  void set_tokens() {
    set_token_tensor(problem_.q, {"q", "q.data"}, p_.q, p_.nhead_q, p_.hdim_q);
    set_token_tensor(problem_.k, {"k", "k.data"}, p_.k, p_.nhead_k, p_.hdim_q);
    set_token_tensor(problem_.v, {"v", "v.data"}, p_.v, p_.nhead_k, p_.hdim_v);
    problem_.q_out = problem_.q;
    if (problem_.has_q && !is_in_place(p_)) {
      set_token_tensor(problem_.q_out, {"q_out", "q_out.data"}, p_.q_out, p_.nhead_q, p_.hdim_q);
      add(problem_.q, false);
    } else if (!problem_.has_q && p_.q_out.data != nullptr) {
      raise(FMHA_INVALID_ARGUMENT, "q_out.data = %p: expected NULL without q", p_.q_out.data);
    }
    add(problem_.q_out, true);
    add(problem_.k, false);
    add(problem_.v, false);
    const int64_t starts = p_.batch < INT64_MAX ? p_.batch + 1 : p_.batch;
    problem_.cu_seqlens = integers("cu_seqlens", p_.cu_seqlens, starts);
    problem_.seqused_k = integers("seqused_k", p_.seqused_k, p_.batch);
    problem_.slots = token_numbers("slots", p_.slots, truth("slots_int64", p_.slots_int64));
    problem_.positions =
        token_numbers("positions", p_.positions, truth("positions_int64", p_.positions_int64));
  }

  TokenNumbers token_numbers(const char* name, const void* data, bool wide) {
    int64_t count = p_.total;
    if (!problem_.packed && __builtin_mul_overflow(p_.batch, p_.seqlen, &count))
      count = int64_t{kAddressSpace};
    return {array(name, data, wide ? sizeof(int64_t) : sizeof(int32_t), count), wide};
  }

  void set_rotary() {
    const fmha_rotary& r = p_.rotary;
    if ((r.cos == nullptr) != (r.sin == nullptr)) {
      raise(FMHA_INVALID_ARGUMENT, "rotary.%s = NULL, but rotary.%s is set: expected both or neither",
            r.cos == nullptr ? "cos" : "sin", r.cos == nullptr ? "sin" : "cos");
    }
    problem_.cos = problem_.sin = nullptr;
    problem_.interleaved = problem_.rotary_float = false;
    problem_.rotary_dim = problem_.rotary_positions = problem_.rotary_stride = 0;
    if (r.cos == nullptr) {
      if (problem_.has_q) raise(FMHA_INVALID_ARGUMENT, "rotary.cos = NULL: expected a device pointer with q");
      return;
    }
    const AbiType& type = r.dtype == 0 ? type_of(problem_.dtype) : type_of("rotary.dtype", r.dtype);
    if (type.dtype != problem_.dtype && type.dtype != DType::kFp32) {
      raise(FMHA_INVALID_ARGUMENT, "rotary.dtype = %s: expected 0, dtype = %s, or FMHA_FP32",
            dtype_name(type.dtype), dtype_name(problem_.dtype));
    }
    problem_.rotary_float = type.dtype == DType::kFp32;
    problem_.interleaved = truth("rotary.interleaved", r.interleaved);
    const int64_t multiple = problem_.interleaved ? 8 : 16;
    if (r.dim <= 0 || r.dim > p_.hdim_q || r.dim % multiple != 0) {
      raise(FMHA_INVALID_ARGUMENT,
            "rotary.dim = %" PRId64 ": expected a multiple of %" PRId64 " up to hdim_q = %" PRId64, r.dim,
            multiple, p_.hdim_q);
    }
    check_least("rotary.positions", r.positions, 1);
    if (r.positions > 1) check_least("rotary.stride_position", r.stride_position, 0);
    problem_.rotary_dim = r.dim;
    problem_.rotary_positions = r.positions;
    problem_.rotary_stride = r.positions > 1 ? r.stride_position : 0;
    const auto table = [&](const char* name, const void* data) {
      return array(name, data, type.bytes, r.dim / 2, r.positions, problem_.rotary_stride);
    };
    problem_.cos = table("rotary.cos", r.cos);
    problem_.sin = table("rotary.sin", r.sin);
  }

  // The last of a sequence's new tokens is at least that far from its beginning.
  void check_positions() const {
    const fmha_rotary& r = p_.rotary;
    if (problem_.cos == nullptr || problem_.packed || problem_.empty || p_.positions != nullptr ||
        r.positions >= p_.seqlen)
      return;
    raise(FMHA_INVALID_ARGUMENT,
          "rotary.positions = %" PRId64 ": expected seqlen = %" PRId64 " or more without positions",
          r.positions, p_.seqlen);
  }

  bool stores() const { return problem_.has_k || problem_.has_v; }

  // How the tokens' pages are found: by slots, by one of two lists, or without pages.
  void set_lists() {
    paged_ = check_page_lists(c_);
    check_least("cache->pages", c_.pages, 1);
    check_least("cache->page_size", c_.page_size, 1);
    check_page_size(c_, paged_);
    problem_.pages = c_.pages;
    problem_.page_size = c_.page_size;
    problem_.table = problem_.indptr = problem_.batch_index = nullptr;
    problem_.table_stride = problem_.columns = 0;
    if (p_.slots != nullptr || !stores()) return;
    if (c_.block_table != nullptr) return set_table();
    if (c_.kv_indptr != nullptr) {
      check_least("cache->indices", c_.indices, 1);
      check_capacity("cache->indices * cache->page_size", tokens_of(c_, c_.indices));
      const int64_t starts = p_.batch < INT64_MAX ? p_.batch + 1 : p_.batch;
      problem_.columns = c_.indices;
      problem_.indptr = integers("cache->kv_indptr", c_.kv_indptr, starts);
      problem_.table = integers("cache->kv_indices", c_.kv_indices, c_.indices);
      return;
    }
    problem_.batch_index = integers("cache->cache_batch_idx", c_.cache_batch_idx, p_.batch);
    check_capacity("cache->page_size", c_.page_size);
    if (c_.cache_batch_idx == nullptr && p_.batch > c_.pages) {
      raise(FMHA_INVALID_ARGUMENT,
            "cache->pages = %" PRId64 ": expected batch = %" PRId64 " or more without cache_batch_idx",
            c_.pages, p_.batch);
    }
  }

  void set_table() {
    check_least("cache->max_pages", c_.max_pages, 1);
    check_capacity("cache->max_pages * cache->page_size", tokens_of(c_, c_.max_pages));
    if (p_.batch > 1) check_least("cache->stride_block_table", c_.stride_block_table, 0);
    problem_.table_stride = p_.batch > 1 ? c_.stride_block_table : 0;
    problem_.columns = c_.max_pages;
    problem_.table = static_cast<const int32_t*>(array("cache->block_table", c_.block_table, sizeof(int32_t),
                                                       c_.max_pages, p_.batch, problem_.table_stride));
  }

  // New tokens at least must fit; what is there already only the device knows.
  void check_capacity(const char* name, int64_t most) const {
    if (p_.seqlen <= most || problem_.packed) return;
    raise(FMHA_INVALID_ARGUMENT, "seqlen = %" PRId64 ": expected at most %s = %" PRId64, p_.seqlen, name,
          most);
  }

  void set_cache_tensor(View& view, const TensorName& name, const fmha_cache_tensor& t, int64_t hdim,
                        int64_t element_bytes, bool wanted) {
    set_cache_view(view, name, t, c_, p_.nhead_k, hdim, element_bytes, wanted && !problem_.empty);
    if (!view.touched) return;
    check_cache_strides(view);
    check_pointer(view, 1, pointers_);
    problem_.extents.add(view, true);
  }

  void set_cache() {
    const AbiType& type = type_of(problem_.cache_dtype);
    check_reserved("cache->reserved", c_.reserved);
    problem_.vectors = cache_vectors(c_, "hdim_q", p_.hdim_q, type.bytes, paged_ || p_.slots != nullptr);
    set_cache_tensor(problem_.cache_k, {"cache->k", "cache->k.data"}, c_.k, p_.hdim_q, type.bytes,
                     problem_.has_k);
    set_cache_tensor(problem_.cache_v, {"cache->v", "cache->v.data"}, c_.v, p_.hdim_v, type.bytes,
                     problem_.has_v);
    problem_.scale_per_page = truth("cache->scale_per_page", c_.scale_per_page);
    const auto scale = [&](const char* name, const fmha_cache_scale& s, bool wanted) {
      const CacheScale scale = cache_scale(name, s, c_, type.dtype, p_.batch, p_.nhead_k,
                                           wanted && !problem_.empty, pointers_, problem_.extents);
      if (scale.data != nullptr) problem_.others.add(problem_.extents.all().back());
      return scale;
    };
    problem_.k_scale = scale("cache->k_scale.data", c_.k_scale, problem_.has_k);
    problem_.v_scale = scale("cache->v_scale.data", c_.v_scale, problem_.has_v);
  }

  const fmha_kv_append_params& p_;
  const fmha_cache& c_;
  const Pointers pointers_;
  KvAppendProblem& problem_;
  bool paged_ = false;
};

}  // namespace

void make_kv_append_problem(const fmha_kv_append_params* params, Pointers pointers,
                            KvAppendProblem& problem) {
  (void)check_struct_size("params", params, kAppendVersions);
  const fmha_kv_append_params& p = *params;
  // Only q needs no cache.
  fmha_cache none{};
  none.dtype = p.dtype;
  none.pages = none.page_size = 1;
  const bool needs_cache = p.cache != nullptr || p.k.data != nullptr || p.v.data != nullptr;
  if (needs_cache) check_cache_struct(p.cache);
  check_reserved("reserved", p.reserved);
  const CallOptions options = make_call_options(p.kernel, p.flags);
  problem.candidate = options.candidate;
  problem.checks_memory = options.checks_memory;
  problem.extents.clear();
  problem.others.clear();
  AppendBuilder(p, p.cache == nullptr ? none : *p.cache, pointers, problem).make();
}

void rebind(const fmha_kv_append_params& p, KvAppendProblem& problem) {
  const fmha_cache& c = *p.cache;
  Rebinder r(problem.extents, &problem.others);
  if (is_in_place(p)) {
    problem.q.data = p.q.data;
    r.view(problem.q_out, p.q.data);
  } else {
    r.view(problem.q, p.q.data);
    r.view(problem.q_out, p.q_out.data);
  }
  r.view(problem.k, p.k.data);
  r.view(problem.v, p.v.data);
  r.array(problem.cu_seqlens, p.cu_seqlens);
  r.array(problem.seqused_k, p.seqused_k);
  r.array(problem.slots.data, p.slots);
  r.array(problem.positions.data, p.positions);
  r.array(problem.cos, p.rotary.cos);
  r.array(problem.sin, p.rotary.sin);
  if (c.block_table != nullptr) r.array(problem.table, c.block_table);
  r.array(problem.indptr, c.kv_indptr);
  if (c.kv_indices != nullptr) r.array(problem.table, c.kv_indices);
  r.array(problem.batch_index, c.cache_batch_idx);
  r.view(problem.cache_k, c.k.data, false);
  r.view(problem.cache_v, c.v.data, false);
  r.array(problem.k_scale.data, c.k_scale.data);
  r.array(problem.v_scale.data, c.v_scale.data);
}

void check_overlaps(const KvAppendProblem& problem) {
  if (problem.q_out.touched) check_no_self_overlap(problem.q_out);
  problem.others.check_overlaps();
  for (const View* cache : {&problem.cache_k, &problem.cache_v}) {
    if (!cache->touched) continue;
    check_no_self_overlap(*cache, kCacheStrideNames);
    problem.others.check_overlaps_with(
        {cache->name, cache->pointer, reinterpret_cast<uintptr_t>(cache->data), reach_bytes(*cache), true});
  }
  check_apart(problem.cache_k, problem.cache_v);
}

}  // namespace fmha
