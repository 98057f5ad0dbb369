// SPDX-License-Identifier: MIT OR Apache-2.0
#include "origins/hip/decode_pack.h"

#include <algorithm>
#include <cfloat>
#include <cinttypes>
#include <cmath>
#include <new>
#include <numbers>

#include "args/decode.h"
#include "divide.h"
#include "plan/grid.h"

namespace fmha::hip_decode {
namespace {

constexpr uint64_t kAlignBytes = 16;      // of loads and of most stores
constexpr int64_t kMostLength = 1 << 30;  // sums of two lengths are int32
constexpr int64_t kMostWorkItems = 256;   // of a workgroup
constexpr int32_t kNoPages = 31;          // page_shift
constexpr float kMostSoftcap = 819.0F;    // as forward: tanh loses precision beyond

bool types_fit(const DecodeProblem& p, Refusal& why) {
  const FwdProblem& f = p.fwd;
  if (f.dtype != DType::kFp16 && f.dtype != DType::kBf16) {
    return why.because(FMHA_UNSUPPORTED, "fwd->dtype = %s: kernels over a KV cache take fp16 and bf16",
                       dtype_name(f.dtype));
  }
  if (f.o_dtype != f.dtype) {
    return why.because(FMHA_UNSUPPORTED, "fwd->o_dtype = %s: kernels over a KV cache give fwd->dtype = %s",
                       dtype_name(f.o_dtype), dtype_name(f.dtype));
  }
  if (p.cache.dtype == f.dtype || is_fp8(p.cache.dtype)) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "cache->dtype = %s: kernels over a KV cache take fwd->dtype = %s, or 8-bit floats",
                     dtype_name(p.cache.dtype), dtype_name(f.dtype));
}

bool dim_fits(const char* name, int64_t value, int64_t most, Refusal& why) {
  if (value <= most) return true;
  return why.because(FMHA_UNSUPPORTED, "%s = %" PRId64 ": kernels take at most %" PRId64, name, value, most);
}

bool dims_fit(const FwdProblem& f, Refusal& why) {
  const int64_t rows = f.nhead_k == 0 ? 0 : f.nhead_q / f.nhead_k;
  return dim_fits("fwd->batch", f.batch, most_batches(kMostWorkItems), why) &&
         dim_fits("fwd->nhead_k", f.nhead_k, kMaxGridYZ, why) &&
         dim_fits("fwd->seqlen_k", f.seqlen_k, kMostLength, why) &&
         dim_fits("fwd->seqlen_q", f.seqlen_q, rows == 0 ? kMostLength : kMostLength / rows, why) &&
         dim_fits("fwd->total_q", f.total_q, INT32_MAX, why) &&
         dim_fits("fwd->hdim_q", f.hdim_q, INT16_MAX, why) &&
         dim_fits("fwd->hdim_v", f.hdim_v, INT16_MAX, why);
}

// A vectorised page of a head is counted in 32 bits.
bool page_fits(const DecodeProblem& p, Refusal& why) {
  if (!p.cache.vectors.any()) return true;
  const int64_t hdim = std::max(p.fwd.hdim_q, p.fwd.hdim_v), page_size = int64_t{1} << p.cache.page_shift;
  const int64_t most = INT32_MAX / hdim;
  if (page_size <= most) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "cache->page_size = %" PRId64
                     ": of a vectorised cache kernels take pages of less than 2^31 elements a head, here at "
                     "most %" PRId64 " tokens",
                     page_size, most);
}

bool features_fit(const FwdProblem& f, Refusal& why) {
  if (f.dropout.is_on()) {
    return why.because(FMHA_UNSUPPORTED, "fwd->p_drop = %g: kernels over a KV cache do not drop; expected 0",
                       double{f.dropout.p_drop});
  }
  if (f.has_bias) {
    return why.because(FMHA_UNSUPPORTED,
                       "fwd->bias is set: kernels over a KV cache take none; expected NULL data, or "
                       "fwd->alibi_slopes");
  }
  if (f.mask.top_left && (f.mask.hides() || f.has_alibi)) {
    return why.because(FMHA_UNSUPPORTED,
                       "fwd->mask is aligned top-left: kernels over a KV cache align bottom-right");
  }
  if (f.softcap > kMostSoftcap) {
    return why.because(FMHA_UNSUPPORTED, "fwd->softcap = %g: kernels take at most %g", double{f.softcap},
                       double{kMostSoftcap});
  }
  if (f.softmax_scale >= FLT_MIN) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "fwd->softmax_scale = %g: kernels take scales from 1e-38 (negate q for a sign)",
                     double{f.softmax_scale});
}

bool is_aligned(const View& v, Refusal& why) {
  if (!v.touched) return true;
  // Nearly always all are, and none is negative.
  const uint64_t all =
      static_cast<uint64_t>(v.stride[0] | v.stride[1] | v.stride[2]) * static_cast<uint64_t>(v.element_bytes);
  if (((all | reinterpret_cast<uintptr_t>(v.data)) & (kAlignBytes - 1)) == 0) return true;
  if ((reinterpret_cast<uintptr_t>(v.data) & (kAlignBytes - 1)) != 0) {
    return why.because(FMHA_INVALID_ARGUMENT, "%s = %p: expected an address aligned to %" PRIu64 " bytes",
                       v.pointer, v.data, kAlignBytes);
  }
  for (size_t i = 0; i < v.stride.size(); ++i) {
    const uint64_t bytes = static_cast<uint64_t>(v.stride[i]) * static_cast<uint64_t>(v.element_bytes);
    if (v.size[i] > 1 && bytes % kAlignBytes != 0) {
      return why.because(FMHA_INVALID_ARGUMENT,
                         "%s: stride %" PRId64 " of dimension %zu: expected a multiple of %" PRId64
                         " elements (16-byte loads)",
                         v.name, v.stride[i], i, static_cast<int64_t>(kAlignBytes) / v.element_bytes);
    }
  }
  return true;
}

int32_t side(int64_t keys) { return keys == Mask::kUnlimited ? -1 : static_cast<int32_t>(keys); }

DecodeStrides strides(const View& v) { return {v.step(kBatch), v.step(kHead), v.step(kSeqlen)}; }
CacheStrides cache_strides(const View& v) { return {v.step(kBatch), v.step(kHead), v.step(kSeqlen)}; }

ScaleStrides scale_strides(const CacheScale& s) { return {s.stride_page, s.stride_head}; }

}  // namespace

bool is_within_limits(const DecodeProblem& p, Refusal& why) {
  const FwdProblem& f = p.fwd;
  return types_fit(p, why) && dims_fit(f, why) && page_fits(p, why) && features_fit(f, why) &&
         is_aligned(f.q, why) && is_aligned(f.o, why) && is_aligned(p.cache.k, why) &&
         is_aligned(p.cache.v, why);
}

void add_main(const Kernel& kernel, const DecodeProblem& p, const DecodeWorkspace& w, int32_t splits,
              Plan& plan) {
  const FwdProblem& f = p.fwd;
  const int64_t ratio = f.nhead_q / f.nhead_k;
  const int64_t tiles = ceil_div(f.seqlen_q * ratio, kernel.decode.tile_m);
  const int64_t most = most_tiles(f.batch, kernel.block_size) / splits;
  if (tiles > most) {
    raise(FMHA_UNSUPPORTED, "fwd->seqlen_q = %" PRId64 ": one launch does at most %" PRId64, f.seqlen_q,
          most * kernel.decode.tile_m / ratio);
  }
  const Grid grid = grid_of_tiles(tiles * splits, f.nhead_k, f.batch);
  new (plan.add_launch<DecodeParams>(kernel, grid)) DecodeParams{
      .q = f.q.address(),
      .k = p.cache.k.address(),
      .v = p.cache.v.address(),
      .o = w.o.address(),
      .lse = w.lse.address<float>(),
      .table = p.cache.table,
      .indptr = p.cache.indptr,
      .batch_index = p.cache.indices,
      .used_k = f.seqlen_k > 0 ? f.seqused_k : nullptr,  // without keys there is no cache
      .cu_k = f.seqlen_k > 0 ? f.cu_seqlens_k : nullptr,
      .first_k = p.leftpad_k,
      .cu_q = f.cu_seqlens_q,
      .alibi = f.alibi_slopes,
      .sinks = p.sinks,
      .k_scale = p.cache.k_scale.data,
      .v_scale = p.cache.v_scale.data,
      .q_strides = strides(f.q),
      .o_strides = strides(w.o),
      .lse_strides = {w.lse.step(kBatch), w.lse.step(kHead), 1},
      .k_strides = cache_strides(p.cache.k),
      .v_strides = cache_strides(p.cache.v),
      .k_scale_strides = scale_strides(p.cache.k_scale),
      .v_scale_strides = scale_strides(p.cache.v_scale),
      .table_stride = p.cache.table_stride,
      .o_split = w.o_split,
      .lse_split = w.lse_split,
      .alibi_stride_batch = f.alibi_stride_batch,
      .seqlen_q = static_cast<int32_t>(f.seqlen_q),
      .seqlen_k = static_cast<int32_t>(f.seqlen_k),
      .total_q = static_cast<int32_t>(f.total_q),
      .pages = static_cast<int32_t>(p.cache.pages),
      .indices = static_cast<int32_t>(p.cache.listed),
      .hdim_q = static_cast<int32_t>(f.hdim_q),
      .hdim_v = static_cast<int32_t>(f.hdim_v),
      .nhead_ratio = static_cast<int32_t>(ratio),
      .page_shift = p.cache.paged ? p.cache.page_shift : kNoPages,
      .splits = splits,
      .window_left = side(f.mask.left),
      .window_right = side(f.mask.right),
      .seqlen_new = p.seqlen_new,
      .scale_per_page = p.cache.scale_per_page ? 1 : 0,
      .v_vector = p.cache.vectors.v,
      .scale = f.softmax_scale,
      .softcap = f.softcap,
      .lse_unit = p.lse_base2 ? 1.0F : std::numbers::ln2_v<float>,
      .turned = grid_is_turned(f.batch) ? 1 : 0,
      .reserved = 0,
  };
}

}  // namespace fmha::hip_decode
