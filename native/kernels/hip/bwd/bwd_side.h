// SPDX-License-Identifier: MIT OR Apache-2.0
// A workgroup of our own backward kernels for Instinct (hip/bwd/bwd_pingpong.h, hip/bwd/bwd_wide.h,
// hip/bwd/bwd_halves.h): its own rows and those that it walks over, P and dS of a block, and the gradients
// that it writes.
//
// A workgroup owns keys of a key head, for dK and dV, and walks over the rows of all query heads of its
// group; or it owns rows of a query head, for dQ, and walks over the keys. A wave owns 32 rows: "a" is the
// pair Q and K, whose product is S; "b" is dO and V, whose product is dP. Walked rows come in blocks of 32,
// or of 16.
#pragma once

#include "args/bwd_pingpong.h"
#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/bwd/bwd_row_sums.h"
#include "hip/bwd/bwd_rows.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// A score is scaled; and ALiBi is added to it, or it is capped.
enum class BwdScore { kPlain, kAlibi, kSoftcap };

// A workgroup of so many waves, that owns keys (kKeys), or rows of queries. kShare waves share the same rows,
// and each has kHdim of their dims. A block has kBlock walked rows.
template <typename T, int kHdim, BwdScore kScore, bool kKeys, int kWaves, int kShare = 1, int kBlock = 32>
class BwdSide {
 public:
  static constexpr int kOwnRows = 32 * kWaves / kShare, kThreads = 64 * kWaves;

  __device__ BwdSide(const BwdPingpongParams& params, const BwdTask<kKeys, kOwnRows>& task)
      : p(params.problem), s_(task.sequence), head(task.head), first(task.first), parts(params.key_parts) {}

 protected:
  static constexpr int kSums = kKeys ? 2 : 1;
  static constexpr int kSteps = kHdim / 16;     // of two products each, of S and dP
  static constexpr int kTiles = kHdim / 32;     // of a sum
  static constexpr int kElements = kBlock / 2;  // of S that a lane has
  using Scores = float __attribute__((ext_vector_type(kElements)));
  static constexpr float kMostLse = 3e38F;

  // ---- The beginning.

  // The workgroup's blocks lie in LDS in front of LSE and D.
  template <typename Blocks>
  static constexpr int kLdsBytesWith = Blocks::kBytes + (kKeys ? kWaves * BwdRowSums::kBytesOfWave : 0);

  template <typename Blocks>
  __device__ void begin_with(Blocks& tiles, LdsByte* lds) {
    wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64);
    lane = threadIdx.x % 64;
    own_count = kKeys ? s_.seqlen_k : s_.seqlen_q;
    tiles.begin(lds, wave, lane);
    if constexpr (kKeys) row_sums.begin(lds + Blocks::kBytes, wave, lane);
    find_scales();
    find_blocks();
    load_own();
    _Pragma("unroll") for (int i = 0; i < kSums; ++i) {
      _Pragma("unroll") for (int t = 0; t < kTiles; ++t) sums[i][t] = Float16{};
    }
  }

  // The first of the wave's own rows of the workgroup's, and of its dims.
  __device__ int wave_rows() const { return wave / kShare * 32; }
  __device__ int wave_dims() const { return wave % kShare * kHdim; }

  // All lanes have the same scales: in a scalar register they take none of the others.
  __device__ void find_scales() {
    const auto same = [](float x) {
      return __builtin_bit_cast(float, __builtin_amdgcn_readfirstlane(__builtin_bit_cast(int, x)));
    };
    constexpr bool kCapped = kScore == BwdScore::kSoftcap;
    scale = same(p.scale * (kCapped ? 2 * kLog2e / p.softcap : kLog2e));
    cap_log2 = same(p.softcap * kLog2e);
    lse_scale = same(kCapped ? kLog2e : 1 / p.scale);
  }

  // The walked rows that any own row sees; of blocks in `whole` each own row of the wave sees all.
  __device__ void find_blocks() {
    const int walked = kKeys ? s_.seqlen_q : s_.seqlen_k;
    const Window window = window_of<kKeys>(p, s_);
    const int last = min(first + kOwnRows, own_count) - 1;
    const RowRange seen = window.seen_by(first, last, walked);
    const int begin = seen.begin / kBlock * kBlock;
    const int of_head = seen.begin < seen.end ? (seen.end - begin + kBlock - 1) / kBlock : 0;
    const int heads = kKeys ? p.nhead_ratio_qk / parts : 1;
    blocks = of_head * heads;
    const int wave_first = first + wave_rows();
    whole = {window.first(min(wave_first + 31, last)), min(window.last(wave_first) + 1, walked)};
    range = {begin, begin + of_head * kBlock};
    const int first_head = kKeys ? head * heads : head / p.nhead_ratio_qk;
    rows_walk = BlockWalk<kBlock>(matrix<!kKeys, false>(p, s_, first_head),
                                  matrix<!kKeys, true>(p, s_, first_head), range, blocks);
    at = begin;
    walked_head = first_head;
    if (blocks > 0) find_slope(kKeys ? first_head : head);
    if constexpr (kKeys) {
      sums_walk = BlockWalk<kBlock>(row_vector(p.lse, p.lse_strides, s_, first_head),
                                    row_vector(p.d, p.d_strides, s_, first_head), range, blocks);
    }
  }

  __device__ void load_own() {
    const int own_head = kKeys ? head / parts : head;
    const int dims = wave_dims();
    own_a.load(matrix<kKeys, false>(p, s_, own_head), first, kOwnRows, wave_rows(), dims, lane);
    own_b.load(matrix<kKeys, true>(p, s_, own_head), first, kOwnRows, wave_rows(), dims, lane);
    if constexpr (!kKeys) {
      const float* lse = rows_of(p.lse, p.lse_strides, s_, s_.first_q, head);
      const float* d = rows_of(p.d, p.d_strides, s_, s_.first_q, head);
      const int row = min(first + wave_rows() + lane % 32, own_count - 1);
      own_lse = -lse_log2(lse[row]);
      own_d = -d[row];
    }
  }

  // ---- P and dS of a block.

  // The block behind the n-th.
  __device__ void next_block(int n) {
    at += kBlock;
    if (at < range.end) return;
    at = range.begin;
    ++walked_head;
    if (kKeys && n + 1 < blocks) find_slope(walked_head);
  }

  __device__ void find_slope(int head_q) {
    if constexpr (kScore == BwdScore::kAlibi) {
      slope = p.alibi[int64_t{s_.index} * p.alibi_stride_batch + head_q] * -kLog2e;
    }
  }

  // S in units of log2, less LSE, and dP times the slope of the cap.
  __device__ void cap() {
    cap_with([this](int i, float slope) { dp[i] = (kKeys ? dp[i] : dp[i] + own_d) * slope; });
  }
  // Hands the slope of the cap at each element to `take`.
  template <typename F>
  __device__ void cap_with(F take) {
    if constexpr (kScore != BwdScore::kSoftcap) return;
    _Pragma("unroll") for (int i = 0; i < kElements; ++i) {
      const float tanh = 1 - 2 * __builtin_amdgcn_rcpf(__builtin_amdgcn_exp2f(s[i] * scale) + 1);
      s[i] = kKeys ? tanh * cap_log2 : __builtin_fmaf(tanh, cap_log2, own_lse);
      take(i, 1 - tanh * tanh);
      if (i % 4 == 3) __builtin_amdgcn_sched_barrier(0);
    }
    if constexpr (kKeys) subtract_lse();
  }
  __device__ void subtract_lse() {
    Float16 x{};
    _Pragma("unroll") for (int i = 0; i < kElements; ++i) x[i] = s[i];
    x = multiply32<Bf16>(lse_parts, kMinusThree, x);
    _Pragma("unroll") for (int i = 0; i < kElements; ++i) s[i] = x[i];
  }

  // Hides what own rows do not see of the block.
  __device__ void hide(int block) {
    if (block >= whole.begin && block + kBlock <= whole.end) return;
    const int lane_now = remade(lane), first_of_lane = block + lane_now / 32 * 8;
    const Window window = window_of<kKeys>(p, s_);
    const int row_of_lane = first + wave_rows() + lane_now % 32, walked = kKeys ? s_.seqlen_q : s_.seqlen_k;
    const int begin = window.first(row_of_lane) - first_of_lane;
    const int end = min(window.last(row_of_lane) + 1, walked) - first_of_lane;
    _Pragma("unroll") for (int i = 0; i < kElements; ++i) {
      const int row = (i & 8) * 2 + (i & 7);
      s[i] = row < begin || row >= end ? -__builtin_inff() : s[i];
    }
  }

  // The column of the lane's first walked row, as its own row sees it.
  __device__ float first_column(int block) const {
    if constexpr (kScore != BwdScore::kAlibi) return 0;
    const int of_lane = remade(lane);
    return static_cast<float>(block + of_lane / 32 * 8 - window_of<kKeys>(p, s_).shift -
                              (first + wave_rows() + of_lane % 32));
  }

  // P in place of S, and dS in place of dP, in stages, each for elements from `begin` to before `end`:
  // exponents, P, and both rounded.
  __device__ void scale_scores(int begin, int end, float column) {
    if constexpr (kScore == BwdScore::kSoftcap) return;
    _Pragma("unroll") for (int j = begin; j < end; ++j) {
      s[j] = kKeys ? s[j] * scale : __builtin_fmaf(s[j], scale, own_lse);
      if constexpr (kScore == BwdScore::kAlibi) {
        s[j] = __builtin_fmaf(slope, __builtin_fabsf(column + ((j & 8) * 2 + (j & 7))), s[j]);
      }
    }
  }
  __device__ void raise_scores(int begin, int end) {
    _Pragma("unroll") for (int j = begin; j < end; ++j) s[j] = __builtin_amdgcn_exp2f(s[j]);
  }
  __device__ void subtract_own_d(int begin, int end) {
    if constexpr (kKeys || kScore == BwdScore::kSoftcap) return;
    _Pragma("unroll") for (int j = begin; j < end; ++j) dp[j] += own_d;
  }
  __device__ void round_weights(int begin, int end) {
    if constexpr (!kKeys) return;
    _Pragma("unroll") for (int j = begin; j < end; j += 2) {
      probabilities[j / 8][j % 8 / 2] = rounded_pair<T>(s[j], s[j + 1]);
    }
  }
  __device__ void round_slopes(int begin, int end) {
    _Pragma("unroll") for (int j = begin; j < end; j += 2) {
      ds[j / 8][j % 8 / 2] = rounded_pair<T>(s[j] * dp[j], s[j + 1] * dp[j + 1]);
    }
  }

  // Four elements at a time: exponentials wait for nothing that was asked for just before them.
  __device__ void make_weights(float column) {
    _Pragma("unroll") for (int i = 0; i < 16 + 8; i += 4) {
      if (i >= 8) {
        round_weights(i - 8, i - 4);
        round_slopes(i - 8, i - 4);
      }
      if (i >= 4 && i < 20) {
        raise_scores(i - 4, i);
        subtract_own_d(i - 4, i);
      }
      if (i < 16) scale_scores(i, i + 4, column);
      __builtin_amdgcn_sched_barrier(0);
    }
  }

  // ---- LSE and D of walked rows.

  __device__ void load_row_sums(int n) {
    if constexpr (kKeys) {
      const int count = sums_walk.count();
      row_sums.load(n, sums_walk.a.rows(count), sums_walk.b.rows(count));
      sums_walk.next();
    }
  }

  // Makes of those of block n what the products take.
  __device__ void split_row_sums(int n) {
    if constexpr (kKeys) {
      // A row whose LSE is infinite has P 0, as in load_own: parts of an infinite number would be NaNs.
      const float lse = row_sums.lse(n) * lse_scale;
      lse_parts = three_parts(__builtin_fabsf(lse) > kMostLse ? kMostLse : lse);
      d_parts = three_parts(row_sums.d(n));
      __builtin_amdgcn_sched_barrier(0);
    }
  }

  // ---- The end.

  __device__ void end() const {
    end_with([](const auto& sum, int t) { return sum[t]; });
  }
  // `tile_of` gives 32 dims of a sum. The task is found anew: to remember it would take registers all the
  // time.
  template <typename F>
  __device__ void end_with(F tile_of) const {
    const auto& params = reinterpret_cast<const BwdPingpongParams&>(arguments());
    const BwdTask<kKeys, kOwnRows> task(params);
    const BwdFp32Params& again = params.problem;
    if constexpr (kKeys) {
      const bool is_part = params.key_parts > 1;
      write(task, is_part, sums[0], again.scale, again.dk, again.dk_strides, again.hdim_q, tile_of);
      write(task, is_part, sums[1], 1, again.dv, again.dv_strides, again.hdim_v, tile_of);
    } else {
      write(task, false, sums[0], again.scale, again.dq, again.dq_strides, again.hdim_q, tile_of);
    }
  }

  template <typename F>
  __device__ void write(const BwdTask<kKeys, kOwnRows>& task, bool is_part, const Float16 (&sum)[kTiles],
                        float factor, void* gradient, const BwdStrides& strides, int hdim, F tile_of) const {
    const int lane_now = remade(lane), row = wave_rows() + lane_now % 32;
    const int first_dim = wave_dims() + lane_now / 32 * 8;
    const BwdSequence& of = task.sequence;
    const int rows_of_head = kKeys ? of.seqlen_k : of.seqlen_q;
    const bool adds = arguments().accumulate != 0 && !is_part;
    const auto to = [&]<typename E>(E* data) {
      const OwnGradient<E> rows(rows_of(data, strides, of, kKeys ? of.first_k : of.first_q, task.head),
                                strides.row, task.first, rows_of_head, kOwnRows, hdim);
      _Pragma("unroll") for (int t = 0; t < kTiles; ++t) {
        rows.write(tile_of(sum, t), factor, row, first_dim + t * 32, adds);
      }
    };
    if (arguments().float_gradients || is_part) {
      to(typed<float>(gradient));
    } else {
      to(typed<T>(gradient));
    }
  }

  const BwdFp32Params& p;
  BwdSequence s_;
  int head, first;
  int parts;  // how many workgroups divide a key head's group; `head` counts them
  int wave, lane, own_count;
  int blocks, at;  // the first row of the block whose scores come next
  RowRange range, whole;
  BlockWalk<kBlock> rows_walk, sums_walk;
  BwdRowSums row_sums;
  OwnRows<kHdim, kBlock> own_a, own_b;
  int walked_head;
  float slope;           // ALiBi's of the query head whose weights come next, negative
  float own_lse, own_d;  // of queries: negative
  float scale;           // takes S to units of log2; with a cap, to the argument of its exponential
  float cap_log2;        // the cap, in units of log2
  float lse_scale;       // takes LSE to units of S; with a cap, to units of log2
  Dwords2 lse_parts, d_parts;
  Scores s, dp;
  Float16 sums[kSums][kTiles];
  Dwords4 probabilities[kElements / 8], ds[kElements / 8];
};

// A launch of workgroups of both kinds: those of keys come first.
template <typename Keys, typename Queries>
class BwdBothSides {
  static constexpr int kTile = Keys::kOwnRows;
  static constexpr int kLdsBytes =
      Keys::kLdsBytes > Queries::kLdsBytes ? Keys::kLdsBytes : Queries::kLdsBytes;

 public:
  static constexpr int kOwnRows = kTile, kBlock = Keys::kThreads;

  __device__ static void run() {
    __shared__ __attribute__((aligned(256))) uint8_t lds[kLdsBytes];
    auto* const memory = (LdsByte*)(lds);  // NOLINT: the only cast that changes address spaces
    const auto& p = *reinterpret_cast<const BwdPingpongParams*>(__builtin_amdgcn_kernarg_segment_ptr());
    if (static_cast<int>(blockIdx.z) < p.key_parts) {
      run<Keys>(p, BwdTask<true, kTile>(p), memory);
    } else {
      run<Queries>(p, BwdTask<false, kTile>(p), memory);
    }
  }

 private:
  template <typename Side, typename Task>
  __device__ static void run(const BwdPingpongParams& p, const Task& task, LdsByte* lds) {
    if (!task.exists()) return;
    Side side(p, task);
    side.begin(lds);
    if (side.blocks > 0) side.walk();
    side.end();
  }
};

}  // namespace fmha

// FMHA_BWD_SIDES_KERNEL(symbol, class of a side, waves a SIMD, type, head dim, score): a kernel and its
// facts.
#define FMHA_BWD_SIDES_KERNEL(entry, side, waves, type, hdim, score)                                    \
  using entry##_sides = fmha::BwdBothSides<fmha::side<fmha::type, hdim, fmha::BwdScore::score, true>,   \
                                           fmha::side<fmha::type, hdim, fmha::BwdScore::score, false>>; \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                  \
  const fmha::BwdFp32Facts entry##_facts = {32,   entry##_sides::kOwnRows, hdim,                        \
                                            hdim, entry##_sides::kBlock,   1};                          \
  extern "C" __global__ __launch_bounds__(entry##_sides::kBlock,                                        \
                                          waves) void entry(fmha::BwdPingpongParams) {                  \
    entry##_sides::run();                                                                               \
  }
