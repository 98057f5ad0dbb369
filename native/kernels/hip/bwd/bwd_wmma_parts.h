// SPDX-License-Identifier: MIT OR Apache-2.0
// The rows that hip/bwd/bwd_wmma.h walks over, and those that its waves own.
#pragma once

#include <utility>

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/common/wmma_tiles.h"

namespace fmha {

// How many products ahead their operands are read: an LDS read takes up to 128 cycles, and two waves of a
// SIMD multiply for 32 cycles each, or 16 (gfx12). Four waves need less, and features of scores take
// registers. `own` counts pairs of products. The next tile is loaded before the products if registers last
// (loads_first).
struct WmmaAhead {
  int scores, own, sums;
  bool loads_first;
};
constexpr WmmaAhead wmma_ahead([[maybe_unused]] bool two_waves, [[maybe_unused]] bool plain) {
#if defined(__GFX12__)
  if (two_waves && plain) return {4, 2, 4, true};
  return {3, 1, 3, plain};
#elif defined(__GFX11__)
  if (two_waves && plain) return {2, 1, 2, false};
#endif
  return {1, 1, 1, false};
}

// Calls f<0>() to f<kCount - 1>().
template <int kCount, typename F>
__device__ inline void unrolled(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (f.template operator()<i>(), ...);
  }(std::make_integer_sequence<int, kCount>{});
}

// The value of lane kLane of the lane's sixteen.
template <int kLane>
__device__ inline float row_share(float x) {
  return __builtin_bit_cast(
      float, __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(int, x), 0x150 + kLane, 0xf, 0xf, true));
}

// The walked rows that own ones see: the lane's row; some of the wave's rows, and all of them; some of the
// workgroup's.
struct WmmaSeen {
  RowRange shown, some, whole, all;

  // The workgroup has kOwn rows from `first` on, a wave kGroup from `wave_first` on, a lane `row`.
  template <int kOwn, int kGroup>
  __device__ void begin(const Window& w, int first, int wave_first, int row, int own_rows, int walked_rows) {
    const int last = min(wave_first + kGroup, own_rows) - 1;
    shown = w.seen_by(row, row, row < own_rows ? walked_rows : 0);
    some = w.seen_by(wave_first, last, walked_rows);
    whole = {w.seen_by(last, last, walked_rows).begin, w.seen_by(wave_first, wave_first, walked_rows).end};
    if (wave_first + kGroup > own_rows) whole.end = 0;
    all = w.seen_by(first, min(first + kOwn, own_rows) - 1, walked_rows);
  }
  // The wave sees any of the walked rows from `at` on; it does not see all of them.
  __device__ bool any(int at, int rows) const { return at < some.end && at + rows > some.begin; }
  __device__ bool hides(int at, int rows) const { return at < whole.begin || at + rows > whole.end; }
};

// The walked row of two products' 32 whose LSE and D a lane holds: lane n of each sixteen has those of the
// half's element n (row_share).
__device__ inline int held_row(int lane) { return lane % 16 / 8 * 16 + lane / 16 * 8 + lane % 8; }

// The tiles of kWalk rows to walk over, head by head: one head of keys, or those of a group's queries.
template <int kWalk>
struct WmmaWalk {
  int head, end_head, at;
  RowRange range;

  // The walk of own rows of `head`, keys or queries, that see `all`.
  template <bool kKeys>
  __device__ static WmmaWalk of(const RowRange& all, int head) {
    const int ratio = arguments().nhead_ratio_qk;
    const RowRange range = {all.begin / kWalk * kWalk, all.end};
    const int first_head = kKeys ? head * ratio : head / ratio;
    return {first_head, first_head + (kKeys ? ratio : 1), range.begin, range};
  }

  __device__ bool more() const { return head < end_head && range.begin < range.end; }
  __device__ WmmaWalk next() const {
    const bool same = at + kWalk < range.end;
    return {same ? head : head + 1, end_head, same ? at + kWalk : range.begin, range};
  }
};

// A wave's own rows as operands of one product: 16 of the workgroup's kRows, and if kParts waves share them
// its part of the head dim. All of the workgroup's are in LDS, or a wave's in registers.
template <int kRows, int kHdim, int kParts, bool kInLds, int kThreads>
class WmmaOwn {
  using Tile = WmmaTile<kRows, kHdim>;
  static constexpr int kDims = kHdim / kParts;
  static constexpr int kSteps = kDims / 16;
  static_assert(!kInLds || kParts == 1);

 public:
  using Places = KeyPlaces<kWholeB>;

  // The wave's rows begin at `wave_row` of the workgroup's.
  __device__ void load(const WmmaRows& rows, int hdim, int first, int wave_row, int lane, LdsByte* lds) {
    lds_ = lds;
    if constexpr (kInLds) {
      RowMover<kRows, kHdim, kThreads> mover;
      mover.begin(rows.row_bytes, hdim);
      mover.load(rows.from(first, kRows));
      mover.store(lds);
    } else {
      load_registers(rows, hdim, first, wave_row, lane);
    }
  }

  // `places` are the lane's.
  __device__ OperandB at(const Places& places, int step) const {
    if constexpr (kInLds) return Tile::template read_at<OperandB>(lds_, places, 0, step);
    return x_[step];
  }

 private:
  __device__ void load_registers(const WmmaRows& rows, int hdim, int first, int wave_row, int lane) {
    const int wave = static_cast<int>(threadIdx.x) / 32;
    const uint32_t begin = (wave_row + lane % 16) * rows.row_bytes;
    const Resource from = rows.from(first, kRows);
    const auto eight = [&](int dim_of_part) {
      const int dim = wave % kParts * kDims + dim_of_part;
      return __builtin_amdgcn_raw_buffer_load_b128(from, dim < hdim ? begin + dim * 2 : kNowhere, 0, 0);
    };
    _Pragma("unroll") for (int s = 0; s < kSteps; ++s) {
      x_[s] = operand_by<OperandB>([&](int i) { return eight(s * 16 + (kWholeB ? i : lane / 16) * 8); });
    }
  }

  LdsByte* lds_;
  OperandB x_[kInLds ? 1 : kSteps];
};

// K or Q of a head, and V or dO.
template <typename T>
__device__ WmmaRows rows_at(const void* data, const BwdStrides& strides, const BwdSequence& s, int64_t first,
                            int head, int rows) {
  const T* base = rows_of(typed<T>(data), strides, s, first, head);
  return {reinterpret_cast<const uint8_t*>(base), static_cast<uint32_t>(strides.row * sizeof(T)), rows};
}
template <typename T, bool kKeys>
__device__ WmmaRows rows_a(const BwdFp32Params& p, const BwdSequence& s, int head) {
  if constexpr (kKeys) return rows_at<T>(p.k, p.k_strides, s, s.first_k, head, s.seqlen_k);
  return rows_at<T>(p.q, p.q_strides, s, s.first_q, head, s.seqlen_q);
}
template <typename T, bool kKeys>
__device__ WmmaRows rows_b(const BwdFp32Params& p, const BwdSequence& s, int head) {
  if constexpr (kKeys) return rows_at<T>(p.v, p.v_strides, s, s.first_k, head, s.seqlen_k);
  return rows_at<T>(p.dout, p.dout_strides, s, s.first_q, head, s.seqlen_q);
}

// So many floats, and one of them; 0 behind them.
__device__ inline Resource floats(const float* from, int count) {
  return resource(from, count * static_cast<int>(sizeof(float)));
}
__device__ inline float load_float(Resource from, int at) {
  return __builtin_bit_cast(float, __builtin_amdgcn_raw_buffer_load_b32(from, at, 0, 0));
}

// Makes P or dS, or both, 0 where the lane's row sees none of `shown`; its elements begin with that of walked
// row `first`.
template <int kPair, typename... More>
__device__ inline void hide(const RowRange& shown, int first, Float8 (&x)[kPair], More&... more) {
  const int begin = shown.begin - first, end = shown.end - first;
  _Pragma("unroll") for (int j = 0; j < kPair; ++j) {
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      const bool hidden = j * 16 + i < begin || j * 16 + i >= end;
      x[j][i] = hidden ? 0 : x[j][i];
      ((more[j][i] = hidden ? 0 : more[j][i]), ...);
    }
  }
}

// Writes a lane's row of a gradient, which begins at `begin`: eight elements from `dim` on of each 16.
template <typename E, int kSteps>
__device__ inline void write_sums(const Float8 (&sums)[kSteps], float factor, Resource to, uint32_t begin,
                                  int dim, int hdim) {
  const bool accumulate = arguments().accumulate != 0;
  _Pragma("unroll") for (int t = 0; t < kSteps; ++t) {
    const uint32_t at = dim + t * 16 < hdim ? begin + (dim + t * 16) * sizeof(E) : kNowhere;
    Float8 x = sums[t] * factor;
    if (accumulate) {
      const Eight<E> before = load_eight<E>(to, at);
      _Pragma("unroll") for (int i = 0; i < 8; ++i) {
        x[i] = __builtin_fmaf(sums[t][i], factor, to_float(before.x[i]));
      }
    }
    store_eight<E>(x, to, at);
  }
}

// A workgroup's own rows: `rows` of a head's from `first` on.
struct WmmaOwnRows {
  const BwdSequence& s;
  int head, first, rows;
};

// Writes the wave's sums to a gradient whose sequence begins at row `first`: `row` of the workgroup's is the
// lane's.
template <typename E, int kSteps>
__device__ inline void write_gradient_as(const Float8 (&sums)[kSteps], float factor, E* gradient,
                                         const BwdStrides& strides, int64_t first, const WmmaOwnRows& own,
                                         int row, int dim, int hdim) {
  E* const base = rows_of(gradient, strides, own.s, first, own.head) + own.first * strides.row;
  const auto row_bytes = static_cast<uint32_t>(strides.row * sizeof(E));
  write_sums<E>(sums, factor, resource(base, own.rows * row_bytes), row * row_bytes, dim, hdim);
}
template <typename T, int kSteps>
__device__ inline void write_gradient(const Float8 (&sums)[kSteps], float factor, void* gradient,
                                      const BwdStrides& strides, int64_t first, const WmmaOwnRows& own,
                                      int row, int dim, int hdim) {
  if (arguments().float_gradients) {
    write_gradient_as(sums, factor, typed<float>(gradient), strides, first, own, row, dim, hdim);
  } else {
    write_gradient_as(sums, factor, typed<T>(gradient), strides, first, own, row, dim, hdim);
  }
}

}  // namespace fmha
