// SPDX-License-Identifier: MIT OR Apache-2.0
// New keys and values into a cache, with rotary embedding and 8-bit quantising on the way, and q rotated
// beside them. A row is one head of one token; some lanes of a wave do it.
//
//   phase     a lane, for its row                                         registers
//   place     token and head of the row; the token's slot, or its         ~10
//             page by the table; its position, if anything is rotated;
//             each compared with the size of what it counts
//   elements  a pair of eights that rotary mixes (i and i + dim / 2),     4 * 8
//             or eight that stay among themselves: loads 16 bytes of
//             each, cos and sin, computes in float32, rounds once, and
//             stores 16 bytes of each, or 8 of an 8-bit type
//
// No LDS, no barrier. Both halves of a pair are one lane's, so that q may be rotated in place.
//
// It is bound by memory. It reads each new element once and writes it once, and the look-ups of a token
// (slot or page, position, cos and sin) are shared by its heads in the caches. With 16 bits a lane moves 64
// bytes a pair in about 100 instructions: 4 cycles each, 64 lanes and 4 SIMDs make 41 bytes a cycle of a CU,
// five times the 8.3 that HBM gives it.
#pragma once

#include "args/kv_append.h"
#include "common/grid.h"
#include "hip/common/fp8.h"

namespace fmha {

inline constexpr int kAppendBlock = 256;

template <typename T>
__device__ inline EightNumbers append_load(const T* from) {
  const auto loaded = *reinterpret_cast<const Eight<T>*>(from);
  EightNumbers numbers;
  for (int i = 0; i < kPerThread; ++i) numbers.x[i] = to_float(loaded.x[i]);
  return numbers;
}

// Where a row goes. Elements lie together, or in pieces (keys of a vectorised cache), or each on its own
// (values of one).
template <typename T>
struct AppendTarget {
  T* data;
  int shift = 31;     // log2 of the elements of a piece
  int64_t piece = 0;  // from one to the next
  int64_t element = 1;

  __device__ void store(int column, const EightNumbers& numbers, float factor) const {
    const Eight<T> rounded = rounded_eight<T>(numbers, factor);
    if (element == 1) {
      const int in_piece = column & static_cast<int>((1U << shift) - 1);
      *reinterpret_cast<Eight<T>*>(data + (column >> shift) * piece + in_piece) = rounded;
      return;
    }
    for (int i = 0; i < kPerThread; ++i) data[(column + i) * element] = rounded.x[i];
  }
};

__device__ inline int64_t append_integer(const void* data, bool wide, int64_t at) {
  return wide ? static_cast<const int64_t*>(data)[at] : static_cast<const int32_t*>(data)[at];
}

// From 0 to below `count`, which is not negative.
__device__ inline bool is_below(int64_t x, int64_t count) {
  return static_cast<uint64_t>(x) < static_cast<uint64_t>(count);
}

// One token of a sequence.
struct AppendToken {
  int64_t batch;
  int64_t row;       // in its batch element, or of all packed rows
  int64_t index;     // among all tokens of the call
  int64_t in_cache;  // its place in the sequence
};

// False: there is no such token.
__device__ inline bool append_token(const KvAppendParams& p, int64_t token, AppendToken& t) {
  t.batch = grid_batch(p.turned);
  t.in_cache = (p.used_k == nullptr ? 0 : p.used_k[t.batch]) + token;
  if (token >= p.seqlen) return false;
  if (p.cu == nullptr) {
    t.row = token;
    t.index = t.batch * p.seqlen + token;
    return true;
  }
  const int64_t first = p.cu[t.batch], end = p.cu[t.batch + 1];
  t.row = t.index = first + token;
  return t.row < end && is_below(t.row, p.total);
}

__device__ inline int64_t append_offset(const KvAppendParams& p, const AppendStrides& s, const AppendToken& t,
                                        int64_t head) {
  return (p.cu == nullptr ? t.batch * s.batch : 0) + head * s.nhead + t.row * s.row;
}

// Where a token goes: page and token of the page.
struct AppendPlace {
  int64_t page, token;
};

// The entry of a sequence's list that has its n-th page; -1: none has.
__device__ inline int64_t append_entry(const KvAppendParams& p, int64_t batch, int64_t n) {
  if (p.indptr == nullptr) return n < p.columns ? batch * p.table_stride + n : -1;
  const int64_t at = p.indptr[batch] + n;
  return at < p.indptr[batch + 1] && is_below(at, p.columns) ? at : -1;
}

// False: nowhere. A place behind the end of a list, a page or the cache would be another sequence's.
__device__ inline bool append_place(const KvAppendParams& p, const AppendToken& t, AppendPlace& place) {
  if (p.slots != nullptr) {
    const int64_t slot = append_integer(p.slots, p.wide_slots, t.index);
    if (slot < 0) return false;
    place.page = slot / p.page_size;
    place.token = slot - place.page * p.page_size;
  } else if (p.table == nullptr) {
    place.page = p.batch_index == nullptr ? t.batch : p.batch_index[t.batch];
    place.token = t.in_cache;
    if (!is_below(place.token, p.page_size)) return false;
  } else {
    if (t.in_cache < 0) return false;
    const int64_t n = t.in_cache / p.page_size, at = append_entry(p, t.batch, n);
    if (at < 0) return false;
    place.page = p.table[at];
    place.token = t.in_cache - n * p.page_size;
  }
  return is_below(place.page, p.pages);
}

// cos and sin of a position.
template <typename T>
struct AppendRotary {
  const void* cos;
  const void* sin;
  int64_t at;
  bool is_float;

  __device__ float value(const void* table, int i) const {
    return is_float ? static_cast<const float*>(table)[at + i]
                    : to_float(static_cast<const T*>(table)[at + i]);
  }
};

template <typename T>
__device__ inline void append_rotate(const AppendRotary<T>& r, int i, float& a, float& b) {
  const float c = r.value(r.cos, i), s = r.value(r.sin, i), x = a, y = b;
  a = __builtin_fmaf(x, c, -(y * s));
  b = __builtin_fmaf(y, c, x * s);
}

// One row, `dim` of whose elements are rotated.
template <typename In, typename Out>
__device__ inline void append_row(const KvAppendParams& p, const In* from, const AppendTarget<Out>& to,
                                  int hdim, int dim, const AppendRotary<In>& rotary, float factor) {
  const int lanes = 1 << p.lanes_shift, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int half = dim / 2, pairs = p.interleaved ? 0 : half / kPerThread;
  const int units = pairs + (hdim - 2 * pairs * kPerThread) / kPerThread;
#pragma unroll 1
  for (int unit = lane; unit < units; unit += lanes) {
    if (unit < pairs) {
      const int column = unit * kPerThread;
      EightNumbers a = append_load(from + column), b = append_load(from + half + column);
      for (int i = 0; i < kPerThread; ++i) append_rotate(rotary, column + i, a.x[i], b.x[i]);
      to.store(column, a, factor);
      to.store(half + column, b, factor);
      continue;
    }
    const int column = (unit + pairs) * kPerThread;
    EightNumbers a = append_load(from + column);
    if (column < dim) {
      for (int i = 0; i < kPerThread; i += 2) append_rotate(rotary, (column + i) / 2, a.x[i], a.x[i + 1]);
    }
    to.store(column, a, factor);
  }
}

// The factor on the elements of a head.
__device__ inline float append_factor(const KvAppendParams& p, const float* scales,
                                      const AppendScaleStrides& s, const AppendToken& t,
                                      const AppendPlace& place, int64_t head) {
  if (scales == nullptr) return 1;
  return 1 / scales[(p.scale_per_page ? place.page : t.batch) * s.page + head * s.nhead];
}

// A row of keys or values in the cache.
template <typename Stored>
__device__ inline AppendTarget<Stored> append_target(const KvAppendParams& p, bool is_value,
                                                     const AppendPlace& place, int64_t head) {
  const AppendCacheStrides& s = is_value ? p.cache_v_strides : p.cache_k_strides;
  auto* data = static_cast<Stored*>(is_value ? p.cache_v : p.cache_k) + place.page * s.page + head * s.nhead;
  if (p.k_vector == 0) return {data + place.token * s.token};
  if (!is_value) {
    return {data + place.token * p.k_vector, __builtin_ctz(p.k_vector), p.page_size * p.k_vector};
  }
  const int64_t in_vector = place.token & (p.v_vector - 1);
  return {data + (place.token - in_vector) * p.hdim_v + in_vector, 31, 0, p.v_vector};
}

template <typename In, typename Stored>
__device__ void kv_append(const KvAppendParams& p) {
  const uint32_t at = (grid_tile(p.turned) << (8 - p.lanes_shift)) + (threadIdx.x >> p.lanes_shift);
  static_assert(kAppendBlock == 1 << 8);
  const uint32_t heads = p.nhead_q + p.nhead_k + p.nhead_v, token = at / heads;
  int head = static_cast<int>(at - token * heads);
  AppendToken t;
  if (!append_token(p, token, t)) return;
  AppendRotary<In> rotary = {p.cos, p.sin, 0, p.rotary_float != 0};
  const bool is_value = head >= p.nhead_q + p.nhead_k;
  const int dim = p.cos == nullptr || is_value ? 0 : p.rotary_dim;
  if (p.cos != nullptr) {
    const int64_t position =
        p.positions == nullptr ? t.in_cache : append_integer(p.positions, p.wide_positions, t.index);
    if (!is_below(position, p.positions_count)) return;
    rotary.at = position * p.rotary_stride;
  }
  if (head < p.nhead_q) {
    const In* from = static_cast<const In*>(p.q) + append_offset(p, p.q_strides, t, head);
    In* to = static_cast<In*>(p.q_out) + append_offset(p, p.q_out_strides, t, head);
    return append_row(p, from, AppendTarget<In>{to}, p.hdim_q, dim, rotary, 1.0F);
  }
  AppendPlace place;
  if (!append_place(p, t, place)) return;
  head -= is_value ? p.nhead_q + p.nhead_k : p.nhead_q;
  const auto of = [&](const auto& key, const auto& value) { return is_value ? value : key; };
  const In* from =
      static_cast<const In*>(of(p.k, p.v)) + append_offset(p, of(p.k_strides, p.v_strides), t, head);
  const auto to = append_target<Stored>(p, is_value, place, head);
  const float factor =
      append_factor(p, of(p.k_scale, p.v_scale), of(p.k_scale_strides, p.v_scale_strides), t, place, head);
  append_row(p, from, to, of(p.hdim_q, p.hdim_v), dim, rotary, factor);
}

struct KvAppendFacts {
  int32_t block_size;
};

}  // namespace fmha

// FMHA_KV_APPEND_KERNEL(symbol, type of q, k and v, type of the cache)
#define FMHA_KV_APPEND_KERNEL(entry, in, stored)                                                   \
  extern "C" __device__ __attribute__((used, visibility("protected")))                             \
  const fmha::KvAppendFacts entry##_facts = {fmha::kAppendBlock};                                  \
  extern "C" __global__ __launch_bounds__(fmha::kAppendBlock) void entry(fmha::KvAppendParams p) { \
    fmha::kv_append<fmha::in, fmha::stored>(p);                                                    \
  }
