// SPDX-License-Identifier: MIT OR Apache-2.0
// The gradient of a bias, by hip/bwd/bwd_wmma.h's kernels. Its workgroups have a tile of keys of their own
// and the rows of one walked tile, or all rows if they are to be summed up. They compute S and dP once more,
// over the heads and sequences that share the bias, in their order: the sums have the same bits each time.
#pragma once

#include "common/grid.h"
#include "hip/common/numbers.h"

namespace fmha {

template <typename Main>
class BwdWmmaBias {
  using Side = typename Main::template Side<true>;
  using Type = typename Main::Type;
  static constexpr int kWalk = Main::kWalk, kGroup = Main::kGroup, kPair = Main::kPair;

  // Gradients of scores: element i of tile t is of the lane's key and row 16 * t + 8 * (lane / 16) + i.
  struct Sums {
    Float8 x[kWalk / kGroup];

    __device__ void clear() { _Pragma("unroll") for (Float8& tile : x) tile = Float8{}; }
  };

 public:
  __device__ static void tile(int x, LdsByte* lds) {
    const BwdFp32Params& p = arguments();
    if (is_summed_elsewhere(p)) return;
    const int first = x % p.dbias_key_tiles * Main::kOwn;
    Sums sums;
    if (bias_sum().all_rows) {
      sums.clear();
      add_all(first, 0, lds, sums);
      return write_sum(sums, first);
    }
    const int rows = __builtin_amdgcn_readfirstlane(bias_rows(p, grid_batch(p.turned))),
              apart = p.dbias_row_tiles * kWalk;
    for (int row = x / p.dbias_key_tiles * kWalk; row < rows; row += apart) {
      sums.clear();
      add_all(first, row, lds, sums);
      write_rows(sums, first, row, rows);
    }
  }

 private:
  // Adds all sequences, heads and rows of the sum. The loops ask for them anew each time, see arguments().
  __device__ static void add_all(int first, int row, LdsByte* lds, Sums& sums) {
    for (int b = bias_sum().first_sequence; b < bias_sum().end_sequence; ++b) {
      for (int head = bias_sum().first_head; head < bias_sum().end_head; ++head) {
        add_head(b, head, first, row, lds, sums);
      }
    }
  }

  // Adds one head: keys from `first` and rows from `row` on.
  __device__ static void add_head(int b, int head, int first, int row, LdsByte* lds, Sums& sums) {
    const BwdSequence s = uniform(sequence_of(arguments(), b));
    if (first >= s.seqlen_k) return;
    lds_barrier();  // the head before has been read
    Side side(s, head / arguments().nhead_ratio_qk, first, lds);
    side.begin();
    const int end = bias_sum().all_rows ? s.seqlen_q : row + 1;
    for (int at = row; at < end; at += kWalk) {
      if (at < side.seen_.all.end && at + kWalk > side.seen_.all.begin) add_tile(side, head, at, sums);
    }
  }

  __device__ static void add_tile(Side& side, int head, int at, Sums& sums) {
    side.load({head, head + 1, at, side.seen_.all});
    lds_barrier();
    side.store_rows();
    lds_barrier();
    _Pragma("unroll") for (int pair = 0; pair < kWalk / (kPair * kGroup); ++pair) {
      const int first = at + pair * kPair * kGroup;
      const bool seen = side.sees(first);
      Float8 s[kPair], dp[kPair];
      if (seen) side.scores(pair * kPair, side.d_[pair], s, dp);
      side.share(seen, s, dp);
      if (seen) {
        side.weigh(head, first, side.lse_[pair], side.d_[pair], s, dp);
        _Pragma("unroll") for (int j = 0; j < kPair; ++j) sums.x[pair * kPair + j] += dp[j];
      }
    }
  }

  // ---- The waves that share rows have the same sums. The first one writes.

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int wave() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int column_of(int first) { return first + wave() / Main::kParts * kGroup + lane() % 16; }
  __device__ static bool writes(int column) {
    return wave() % Main::kParts == 0 && column < arguments().seqlen_k;
  }

  template <typename E>
  __device__ static void write_one(float sum, E* to) {
    const BwdFp32Params& p = arguments();
    round_to(*to, __builtin_fmaf(sum, p.rp_keep, p.accumulate ? to_float(*to) : 0.0F));
  }

  // At an element of the bias's gradient.
  __device__ static void write(float sum, int64_t at) {
    const BwdFp32Params& p = arguments();
    if (p.float_gradients) return write_one(sum, typed<float>(p.dbias) + at);
    write_one(sum, typed<Type>(p.dbias) + at);
  }

  // Rows from `row` on of a sequence that has so many.
  __device__ static void write_rows(const Sums& sums, int first, int row, int rows) {
    const int column = column_of(first), eight = lane() / 16 * 8;
    if (!writes(column)) return;
    const BwdFp32Params& p = arguments();
    const BwdSequence s = uniform(sequence_of(p, grid_batch(p.turned)));
    const BwdStrides& strides = p.dbias_strides;
    int64_t at = s.batch * strides.batch + static_cast<int>(blockIdx.y) * strides.nhead + column +
                 (s.first_q + row + eight) * strides.row;
    _Pragma("unroll") for (int t = 0; t < kWalk / kGroup; ++t) {
      _Pragma("unroll") for (int i = 0; i < 8; ++i) {
        if (row + t * kGroup + eight + i < rows) write(sums.x[t][i], at);
        at = remade(at +
                    strides.row * (i < 7 ? 1 : kGroup - 7));  // one after another: addresses take registers
        __builtin_amdgcn_sched_barrier(0);
      }
    }
  }

  // The sum of all rows: over a lane's, and then over both halves.
  __device__ static void write_sum(const Sums& sums, int first) {
    float sum = 0;
    _Pragma("unroll") for (const Float8& x : sums.x) {
      sum += ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    }
    sum = remade(sum + across(sum));  // by all lanes: clang 19 would do it behind the branch, by some
    const int column = column_of(first);
    if (lane() >= 16 || !writes(column)) return;
    const BwdFp32Params& p = arguments();
    const int64_t batch = p.cu_q ? 0 : grid_batch(p.turned);
    write(sum, batch * p.dbias_strides.batch + static_cast<int>(blockIdx.y) * p.dbias_strides.nhead + column);
  }
};

}  // namespace fmha
