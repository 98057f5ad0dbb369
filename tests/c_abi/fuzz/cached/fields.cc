// SPDX-License-Identifier: MIT OR Apache-2.0
// Fields of the structs of caches, appends, merges and the quantiser.
#include "fields.h"

namespace fmha::fuzz {
namespace {

#define CACHE_TENSOR(name) \
  POINTER(name.data), INT64(name.stride_page), INT64(name.stride_token), INT64(name.stride_head)
#define SCALE(name) POINTER(name.data), INT64(name.stride_page), INT64(name.stride_head)

struct OfCache {
  using Params = fmha_cache;
  static constexpr Field kFields[] = {
      INT32(dtype),
      CACHE_TENSOR(k),
      CACHE_TENSOR(v),
      INT64(pages),
      INT64(page_size),
      POINTER(block_table),
      INT64(stride_block_table),
      INT64(max_pages),
      POINTER(kv_indptr),
      POINTER(kv_indices),
      INT64(indices),
      POINTER(cache_batch_idx),
      SCALE(k_scale),
      SCALE(v_scale),
      INT32(scale_per_page),
      INT32(k_vector),
      INT32(v_vector),
      INT32(reserved),
  };
};

struct OfDecode {
  using Params = fmha_decode_params;
  static constexpr Field kFields[] = {
      INT32(kernel),   POINTER(leftpad_k), POINTER(sinks),     INT32(num_splits),      INT32(seqlen_new),
      INT32(lse_base), INT32(reserved),    POINTER(workspace), INT64(workspace_bytes),
  };
};

struct OfAppend {
  using Params = fmha_kv_append_params;
  static constexpr Field kFields[] = {
      INT32(dtype),
      INT64(batch),
      INT64(seqlen),
      INT64(total),
      INT64(nhead_q),
      INT64(nhead_k),
      INT64(hdim_q),
      INT64(hdim_v),
      TENSOR(q),
      TENSOR(q_out),
      TENSOR(k),
      TENSOR(v),
      POINTER(cu_seqlens),
      POINTER(seqused_k),
      POINTER(slots),
      POINTER(positions),
      INT32(slots_int64),
      INT32(positions_int64),
      POINTER(rotary.cos),
      POINTER(rotary.sin),
      INT64(rotary.positions),
      INT64(rotary.stride_position),
      INT64(rotary.dim),
      INT32(rotary.dtype),
      INT32(rotary.interleaved),
      INT32(kernel),
      INT32(reserved),
  };
};

struct OfQuantize {
  using Params = fmha_quantize_params;
  static constexpr Field kFields[] = {
      INT32(dtype),
      INT32(out_dtype),
      INT32(scale_unit),
      INT64(batch),
      INT64(seqlen),
      INT64(nhead),
      INT64(hdim),
      INT64(heads_per_scale),
      INT64(block_tokens),
      TENSOR(x),
      TENSOR(out),
      POINTER(descale.data),
      INT64(descale.stride_batch),
      INT64(descale.stride_head),
      INT64(descale.stride_block),
      INT32(given),
      INT32(hadamard),
      POINTER(workspace),
      INT64(workspace_bytes),
      INT32(kernel),
  };
};

struct OfMerge {
  using Params = fmha_merge_params;
  static constexpr Field kFields[] = {
      INT32(dtype),
      INT32(o_dtype),
      INT32(lse_base),
      INT64(parts),
      INT64(batch),
      INT64(seqlen),
      INT64(nhead),
      INT64(hdim),
      TENSOR(o_parts),
      INT64(o_parts.stride_part),
      POINTER(lse_parts.data),
      INT64(lse_parts.stride_part),
      INT64(lse_parts.stride_batch),
      INT64(lse_parts.stride_head),
      TENSOR(o),
      POINTER(lse.data),
      INT64(lse.stride_batch),
      INT64(lse.stride_head),
      INT32(accumulate),
      INT32(kernel),
  };
};

}  // namespace

std::span<const Field> fields_of(const fmha_cache& /*cache*/) { return OfCache::kFields; }
std::span<const Field> fields_of(const fmha_decode_params& /*params*/) { return OfDecode::kFields; }
std::span<const Field> fields_of(const fmha_kv_append_params& /*params*/) { return OfAppend::kFields; }
std::span<const Field> fields_of(const fmha_merge_params& /*params*/) { return OfMerge::kFields; }
std::span<const Field> fields_of(const fmha_quantize_params& /*params*/) { return OfQuantize::kFields; }

}  // namespace fmha::fuzz
