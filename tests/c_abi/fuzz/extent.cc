// SPDX-License-Identifier: MIT OR Apache-2.0
#include "extent.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "rows.h"
#include "span.h"

namespace fmha::fuzz {
namespace {

// Lengths are read from where make_case put them, or are not there.
bool lengths_inside(const Case& c, const Device& device) {
  const fmha_fwd_params& p = c.params;
  const auto is_at = [&](const int32_t* pointer, Region region, const std::vector<int32_t>& values,
                         size_t count) {
    return reinterpret_cast<const uint8_t*>(pointer) == device.start(region) && values.size() == count;
  };
  const auto batch = static_cast<size_t>(p.batch);
  return is_at(p.cu_seqlens_q, kCuQ, c.cu_q, batch + 1) && is_at(p.cu_seqlens_k, kCuK, c.cu_k, batch + 1) &&
         (p.seqused_q == nullptr || is_at(p.seqused_q, kUsedQ, c.used_q, batch)) &&
         (p.seqused_k == nullptr || is_at(p.seqused_k, kUsedK, c.used_k, batch));
}

bool group_fits(const Case& c) {
  if (!is_group(c.params)) return true;
  // An upper bound that is too low, or rows beyond the end, is the caller's fault and cannot be seen.
  const auto longest = [](const std::vector<int32_t>& cu) {
    int32_t most = 0;
    for (size_t i = 1; i < cu.size(); ++i) most = std::max(most, cu[i] - cu[i - 1]);
    return most;
  };
  const fmha_fwd_params& p = c.params;
  return longest(c.cu_q) <= p.seqlen_q && longest(c.cu_k) <= p.seqlen_k && c.cu_q.back() <= p.total_q &&
         c.cu_k.back() <= p.total_k;
}

// Returns whether the arguments are in a range where finite inputs give finite results.
bool is_tame(const fmha_fwd_params& p) {
  const auto between = [](float x, float low, float high) { return x == 0 || (x >= low && x <= high); };
  return between(p.softmax_scale, 1e-6F, 1e3F) && between(p.softcap, 1e-3F, 1e6F) &&
         between(p.p_drop, 0, 0.99F) && between(p.q_descale, 1e-3F, 1e3F) &&
         between(p.k_descale, 1e-3F, 1e3F) && between(p.v_descale, 1e-3F, 1e3F);
}

bool is_lse(const uint8_t* at) {
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return std::isfinite(value) || value == -INFINITY;
}

void take_o(const Case& c, const Device& device, Result& result) {
  const fmha_fwd_params& p = c.params;
  const fmha_dtype dtype = p.o_dtype != 0 ? p.o_dtype : p.dtype;
  const auto size = static_cast<size_t>(element_bytes(dtype));
  const bool tame = is_tame(p);
  const size_t start = device.place(p.o.data);
  const Strides strides{p.o.stride_batch, p.o.stride_seqlen, p.o.stride_head};
  for (int64_t b = 0; b < p.batch; ++b) {
    const Rows rows = query_rows(c, b);
    for (int64_t s = rows.first; s < rows.first + rows.count; ++s) {
      for (int64_t h = 0; h < p.nhead_q; ++h) {
        const auto element = static_cast<size_t>(strides.offset(p, p.nhead_q, b, h, s));
        result.take(start + element * size, static_cast<size_t>(p.hdim_v), size, "o",
                    [&](const uint8_t* at) { return !tame || is_finite(at, dtype); });
      }
    }
  }
}

void take_lse(const Case& c, const Device& device, Result& result) {
  const fmha_fwd_params& p = c.params;
  if (p.lse.data == nullptr) return;
  const bool tame = is_tame(p);
  const size_t start = device.place(p.lse.data);
  const Strides strides{p.lse.stride_batch, 1, p.lse.stride_head};
  for (int64_t b = 0; b < p.batch; ++b) {
    const Rows rows = query_rows(c, b);
    for (int64_t h = 0; h < p.nhead_q; ++h) {
      const auto element = static_cast<size_t>(strides.offset(p, p.nhead_q, b, h, rows.first));
      result.take(start + element * 4, static_cast<size_t>(rows.count), 4, "lse",
                  [&](const uint8_t* at) { return !tame || is_lse(at); });
    }
  }
}

void take_randval(const Case& c, const Device& device, Result& result) {
  const fmha_fwd_params& p = c.params;
  if (p.p_drop == 0 || p.randval.data == nullptr) return;
  const size_t start = device.place(p.randval.data);
  const Strides strides{p.randval.stride_batch, p.randval.stride_seqlen, p.randval.stride_head};
  for (int64_t b = 0; b < p.batch; ++b) {
    const Rows rows = query_rows(c, b);
    const auto columns = static_cast<size_t>(key_rows(c, b).count);
    for (int64_t h = 0; h < p.nhead_q; ++h) {
      for (int64_t s = rows.first; s < rows.first + rows.count; ++s) {
        const auto element = static_cast<size_t>(strides.offset(p, p.nhead_q, b, h, s));
        result.take(start + element, columns, 1, "randval", [](const uint8_t*) { return true; });
      }
    }
  }
}

}  // namespace

bool lies_in_memory(const Case& c, const Device& device) {
  const fmha_fwd_params& p = c.params;
  if (is_empty(p)) return true;
  if (is_group(p) && (!lengths_inside(c, device) || !group_fits(c))) return false;
  const int64_t q_rows = is_group(p) ? p.total_q : p.seqlen_q;
  const int64_t k_rows = is_group(p) ? p.total_k : p.seqlen_k;
  const int64_t batch = is_group(p) ? 1 : p.batch;
  const fmha_dtype o_dtype = p.o_dtype != 0 ? p.o_dtype : p.dtype;
  if (!tensor_inside(c, device, p.q, q_rows, p.nhead_q, p.hdim_q, p.dtype) ||
      !tensor_inside(c, device, p.k, k_rows, p.nhead_k, p.hdim_q, p.dtype) ||
      !tensor_inside(c, device, p.v, k_rows, p.nhead_k, p.hdim_v, p.dtype) ||
      !tensor_inside(c, device, p.o, q_rows, p.nhead_q, p.hdim_v, o_dtype)) {
    return false;
  }
  if (p.lse.data != nullptr && !Span()
                                    .step(batch, p.lse.stride_batch)
                                    .step(p.nhead_q, p.lse.stride_head)
                                    .inside(device, p.lse.data, q_rows, 4)) {
    return false;
  }
  const auto matrix = [&](const void* data, const int64_t(&stride)[3], int64_t size) {
    return data == nullptr || Span()
                                  .step(batch, stride[0])
                                  .step(p.nhead_q, stride[1])
                                  .step(q_rows, stride[2])
                                  .inside(device, data, p.seqlen_k, size);
  };
  if (!matrix(p.bias.data, {p.bias.stride_batch, p.bias.stride_head, p.bias.stride_seqlen},
              element_bytes(p.dtype)) ||
      !matrix(p.randval.data, {p.randval.stride_batch, p.randval.stride_head, p.randval.stride_seqlen}, 1)) {
    return false;
  }
  if (p.alibi_slopes != nullptr &&
      !Span().step(p.batch, p.alibi_stride_batch).inside(device, p.alibi_slopes, p.nhead_q, 4)) {
    return false;
  }
  if (p.sinks != nullptr && !device.holds(p.sinks, static_cast<uint64_t>(p.nhead_q) * sizeof(float))) {
    return false;
  }
  return p.philox_seed_offset == nullptr || p.p_drop == 0 || device.holds(p.philox_seed_offset, 16);
}

bool take_results(const Case& c, const Device& device, std::vector<uint8_t>& before,
                  const std::vector<uint8_t>& now) {
  Result result{before, now};
  const fmha_fwd_params& p = c.params;
  if (is_empty(p)) return true;
  take_o(c, device, result);
  take_lse(c, device, result);
  take_randval(c, device, result);
  return result.good;
}

}  // namespace fmha::fuzz
