// SPDX-License-Identifier: MIT OR Apache-2.0
// The phase of products of hip/fwd/fwd_pingpong.h. Its operands are read in pairs, those of V first: the half
// of V that group 1 stores is complete before group 0's barrier.
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"
#include "hip/fwd/fwd_pingpong_fp8.h"
#include "hip/fwd/fwd_pingpong_lds.h"

namespace fmha {

// The products of `Owner`, which has all that they read and write.
template <typename Owner, typename T, typename Tiles, int kAhead, int kDimsQ, int kDimsV>
class PingpongProducts {
  using Keys = Tiles::Keys;
  using Values = Tiles::Values;
  // Steps take 32 bytes of a row, which are two products, or half of one (Order).
  static constexpr int kSteps = kDimsQ * sizeof(T) / 32, kStepsO = Keys::kKeys * sizeof(T) / 32;
  using Order = OperandOrder<sizeof(T) == 1 && kLoadsWriteLds>;
  static constexpr int kTilesS = Keys::kKeys / 32, kTilesO = kDimsV / 32;
  // Steps of a phase: pairs of operands, each read kAhead steps ahead.
  static constexpr int kRing = kAhead + 1;
  static constexpr int kPairsO = kStepsO * kTilesO / 2, kPairsS = kSteps * kTilesS / 2;

 protected:
  static constexpr auto kNothing = [](int) {};

  __device__ void products(int n) { run_steps<0, kPairsO + kPairsS>(n, kNothing); }

  __device__ void scores_only(int n, auto meanwhile) {
    read_first<kPairsO>(n);
    run_steps<kPairsO, kPairsO + kPairsS>(n, meanwhile);
  }

  __device__ void values_only(int n, auto meanwhile) {
    read_first<0>(n);
    run_steps<0, kPairsO>(n, meanwhile);
  }

  template <int first, int ahead = 0>
  __device__ void read_first(int n) {
    owner().ring[(first + ahead) % kRing] = read<first + ahead>(n);
    if constexpr (ahead + 1 < kAhead) {
      read_first<first, ahead + 1>(n);
    } else {
      __builtin_amdgcn_sched_barrier(0);
    }
  }

 private:
  __device__ Owner& owner() { return static_cast<Owner&>(*this); }
  __device__ const Owner& owner() const { return static_cast<const Owner&>(*this); }

  template <int j>  // operand j of V
  static constexpr int kStepOfValues = (Order::step(j, kTilesO) + kStepsO / 2) % kStepsO;
  template <int j>
  static constexpr int kTileOfValues = (Order::tile(j, kTilesO) + Values::kFirst) % kTilesO;

  template <int i>
  __device__ Pair read_values(int n) const {
    const LdsByte* tile = owner().value_buffer(n - 1);
    return {Values::read(tile, owner().v_read, kStepOfValues<2 * i>, kTileOfValues<2 * i>),
            Values::read(tile, owner().v_read, kStepOfValues<2 * i + 1>, kTileOfValues<2 * i + 1>)};
  }

  // Operand j of K: both tiles of a pair take a step, or one tile takes two.
  template <int j>
  __device__ Dwords4 read_key(int n) const {
    constexpr int step = Order::step(j, kTilesS), t = Order::tile(j, kTilesS);
    return lds_load<Dwords4>(chunk_behind<Keys::kChunks>(owner().key_buffer(n) + owner().k_read, step * 2) +
                             t * 32 * Keys::kRowBytes);
  }

  template <int i>
  __device__ Pair read_keys(int n) const {
    return {read_key<2 * i>(n), read_key<2 * i + 1>(n)};
  }

  template <int i>
  __device__ void multiply_values(const Pair& a) {
    multiply_two<T>(a, owner().probabilities[kStepOfValues<2 * i>],
                    owner().probabilities[kStepOfValues<2 * i + 1>], owner().o[kTileOfValues<2 * i>],
                    owner().o[kTileOfValues<2 * i + 1>]);
  }

  template <int i>
  __device__ void multiply_keys(const Pair& a) {
    constexpr int x = 2 * i, y = x + 1, t = Order::tile(x, kTilesS), u = Order::tile(y, kTilesS);
    if constexpr (Order::step(x, kTilesS) == 0) owner().s[t] = owner().s[u] = Float16{};
    multiply_two<T>(a, owner().q[Order::step(x, kTilesS)], owner().q[Order::step(y, kTilesS)], owner().s[t],
                    owner().s[u]);
  }

  // Pair i of the phase: those of V, then those of K.
  template <int i>
  __device__ Pair read(int n) const {
    if constexpr (i < kPairsO) {
      return read_values<i>(n);
    } else {
      return read_keys<i - kPairsO>(n);
    }
  }

  // Steps from i to before `end`. A step's reads are used kAhead steps later. `meanwhile` is called with the
  // number of each step.
  template <int i, int end, int first>
  __device__ void steps(int n, auto meanwhile) {
    if constexpr (i < end) {
      if constexpr (i + kAhead < end) owner().ring[(i + kAhead) % kRing] = read<i + kAhead>(n);
      meanwhile(i - first);
      __builtin_amdgcn_sched_barrier(0);
      if constexpr (i < kPairsO) {
        multiply_values<i>(owner().ring[i % kRing]);
      } else {
        multiply_keys<i - kPairsO>(owner().ring[i % kRing]);
      }
      __builtin_amdgcn_sched_barrier(0);
      steps<i + 1, end, first>(n, meanwhile);
    }
  }

  template <int first, int end>
  __device__ void run_steps(int n, auto meanwhile) {
    __builtin_amdgcn_s_setprio(1);
    steps<first, end, first>(n, meanwhile);
    __builtin_amdgcn_s_setprio(0);
    __builtin_amdgcn_sched_barrier(0);
  }
};

}  // namespace fmha
