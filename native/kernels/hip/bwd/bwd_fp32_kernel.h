// SPDX-License-Identifier: MIT OR Apache-2.0
// dQ, dK and dV of float32, which CK has no backward kernel for. It adds up nothing in memory: a workgroup
// writes its rows' gradients, once, so that they have the same bits whatever the order of waves and
// workgroups.
//
// A workgroup has 64 rows of its own and walks over those of the other side: a tile of keys over the queries
// of its group's heads, for dK and dV; a tile of queries over the keys, for dQ. Both compute S and dP, so
// that there are seven products and not five. One launch has both kinds, keys first: they take longer.
//
// "a" is the pair Q and K, whose product is S; "b" is dO and V, whose product is dP. A wave has 16 of the 64
// rows, and takes walked rows 16 at a time. Where each operand lies, and MFMA (16x16x4) per wave and 16
// walked rows:
//
//   phase       own rows            walked rows                     result                  MFMA
//   load                            memory to registers, a tile
//                                   ahead of their use
//   barriers                        registers to LDS
//   S, dP       a, b in registers   LDS, 16 bytes a lane            4 elements a lane       kHdim / 2
//   P, dS                                                           in place of S and dP
//   dK, dV      P, dS               LDS, 16 bytes a lane            sums in registers       kHdim / 2
//   or dQ       dS                  LDS, 16 bytes a lane            sums in registers       kHdim / 4
//   write       sums to memory
//
// A lane's four elements of S are those that it has to bring to the last products: P and dS never leave the
// registers.
//
//   kHdim   rows a step   VGPR: own rows, sums   all, gfx942 (gfx90a)   LDS        workgroups a unit
//   64      32            32, 32                 172 (166)              17.3 KiB   2 (3)
//   128     16            64, 64                 214 (204)              16.6 KiB   2
//   256     16            128, 128               466 (465)              32.6 KiB   1
//
// The gradient of a bias has workgroups of its own, for 64 keys and the rows of a step, or all rows if they
// are to be summed up: they compute S and dP once more, over the heads and sequences that share the bias.
//
// It is bound by MFMA: one keeps its SIMD busy for 32 cycles, and an LDS load of 1 KiB feeds four of them, 8
// cycles at 128 bytes a cycle: of the four SIMDs' 128 cycles LDS takes 32. Walked rows come from L2 at four
// or five bytes a cycle and unit. So the matrix unit bounds it, at 7/5 of the usual operations.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"

namespace fmha {

template <int kHdim, int kWalk>
class BwdFp32 {
 public:
  static constexpr int kBlockSize = 256;
  static constexpr int kOwn = 64;
  static constexpr int kBlocksPerCu = kHdim > 128 ? 1 : 2;

  __device__ static void run() {
    __shared__ Lds lds;
    const BwdFp32Params& p = arguments();
    const int head = blockIdx.y, x = grid_tile(p.turned), after_keys = x - p.key_tiles;
    if (after_keys >= p.query_tiles) return bias_tile(p, after_keys - p.query_tiles, lds);
    const BwdSequence sequence = sequence_of(p, grid_batch(p.turned));
    if (after_keys >= 0) {
      if (after_keys * kOwn < sequence.seqlen_q) tile<false>(p, sequence, head, after_keys * kOwn, lds);
    } else if (head * p.nhead_ratio_qk < p.nhead_q && x * kOwn < sequence.seqlen_k) {
      tile<true>(p, sequence, head, x * kOwn, lds);
    }
  }

 private:
  static constexpr int kGroup = 16;          // rows of a wave, and of a step
  static constexpr int kStride = kHdim + 4;  // of a row in LDS: 16 rows then touch all banks alike
  static constexpr int kLoads = kWalk * kHdim / 4 / kBlockSize;
  static constexpr int kVectors = kHdim / 16;
  static_assert(kHdim % 64 == 0 && kWalk % kGroup == 0);

  struct Lds {
    alignas(16) float a[kWalk * kStride];
    alignas(16) float b[kWalk * kStride];
    float lse[kWalk], d[kWalk];  // of walked queries
  };

  // A wave's own rows. Lane l has of row l % 16 the elements 16 * t + 4 * (l / 16) + 0 to 3.
  struct Rows {
    Vec4 x[kVectors];
  };

  // Sums for a wave's own rows. Element i of lane l's vector 4 * c + j is of row 4 * (l / 16) + i and column
  // 64 * c + 4 * (l % 16) + j.
  using Sums = Rows;

  // The next rows to walk over, on their way to LDS.
  struct Next {
    Vec4 a[kLoads], b[kLoads];
    float lse, d;
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 64; }
  __device__ static int own_in_group() { return lane() % kGroup; }
  __device__ static int quarter() { return lane() / kGroup; }  // of the walked rows of a step
  __device__ static int first_of_wave(int first) {
    return first + kGroup * __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x) / 64);
  }

  __device__ static Rows own_rows(const Matrix& m, int row) {
    Rows rows;
    for (int t = 0; t < kVectors; ++t) rows.x[t] = m.at(row, 16 * t + 4 * quarter());
    return rows;
  }

  __device__ static void load(const Matrix& m, int first, Vec4 (&to)[kLoads]) {
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kBlockSize + static_cast<int>(threadIdx.x);
      to[i] = m.at(first + at / (kHdim / 4), at % (kHdim / 4) * 4);
    }
  }

  __device__ static void store(const Vec4 (&from)[kLoads], float* rows) {
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kBlockSize + static_cast<int>(threadIdx.x);
      *reinterpret_cast<Vec4*>(rows + at / (kHdim / 4) * kStride + at % (kHdim / 4) * 4) = from[i];
    }
  }

  // Products of 16 walked rows (`a`, `b`) and a wave's own: element i of lane l is that of walked row
  // 4 * (l / 16) + i and own row l % 16.
  __device__ static void scores(const float* a, const float* b, const Rows& own_a, const Rows& own_b, Vec4& s,
                                Vec4& dp) {
    const int begin = own_in_group() * kStride + 4 * quarter();
    s = dp = Vec4{};
    for (int t = 0; t < kVectors; ++t) {
      const Vec4 walked_a = *reinterpret_cast<const Vec4*>(a + begin + 16 * t);
      const Vec4 walked_b = *reinterpret_cast<const Vec4*>(b + begin + 16 * t);
      for (int j = 0; j < 4; ++j) {
        s = __builtin_amdgcn_mfma_f32_16x16x4f32(walked_a[j], own_a.x[t][j], s, 0, 0, 0);
        dp = __builtin_amdgcn_mfma_f32_16x16x4f32(walked_b[j], own_b.x[t][j], dp, 0, 0, 0);
      }
    }
  }

  // sums += weights^T rows, of 16 walked rows: `weights` are as `scores` leaves them.
  __device__ static void add(const Vec4& weights, const float* rows, Sums& sums) {
    for (int i = 0; i < 4; ++i) {
      const float* row = rows + (4 * quarter() + i) * kStride + 4 * own_in_group();
      for (int c = 0; c < kVectors / 4; ++c) {
        const Vec4 walked = *reinterpret_cast<const Vec4*>(row + 64 * c);
        for (int j = 0; j < 4; ++j) {
          Vec4& sum = sums.x[4 * c + j];
          sum = __builtin_amdgcn_mfma_f32_16x16x4f32(weights[i], walked[j], sum, 0, 0, 0);
        }
      }
    }
  }

  // A wave's knowledge of its own rows, and a lane's of its row.
  struct Own {
    int first;       // of the wave
    int row;         // of the lane
    RowRange seen;   // by the wave's
    RowRange shown;  // to the lane's
    float lse, d;    // of a query
  };

  template <bool kKeys>
  __device__ static Own own_of(const BwdFp32Params& p, const BwdSequence& s, const Window& w, int head,
                               int first) {
    const int rows = kKeys ? s.seqlen_k : s.seqlen_q, walked = kKeys ? s.seqlen_q : s.seqlen_k;
    const int row = first + own_in_group();
    Own own = {first, row, w.seen_by(first, first + kGroup - 1, walked), {0, 0}, 0, 0};
    if (row >= rows) return own;
    own.shown = w.seen_by(row, row, walked);
    if constexpr (!kKeys) {
      own.lse = lse_log2(rows_of(p.lse, p.lse_strides, s, s.first_q, head)[row]);
      own.d = rows_of(p.d, p.d_strides, s, s.first_q, head)[row];
    }
    return own;
  }

  // The tiles to walk over, head by head: one head of keys, or those of a group's queries.
  struct Walk {
    int head, end_head, at;
    RowRange range;

    __device__ bool more() const { return head < end_head && range.begin < range.end; }

    __device__ Walk next() const {
      const bool same = at + kWalk < range.end;
      return {same ? head : head + 1, end_head, same ? at + kWalk : range.begin, range};
    }
  };

  template <bool kKeys>
  __device__ static Walk walk_of(const BwdFp32Params& p, const BwdSequence& s, const Window& w, int head,
                                 int first) {
    const int rows = kKeys ? s.seqlen_k : s.seqlen_q, walked = kKeys ? s.seqlen_q : s.seqlen_k;
    RowRange range = w.seen_by(first, min(first + kOwn, rows) - 1, walked);
    range.begin = range.begin / kWalk * kWalk;
    const int first_head = kKeys ? head * p.nhead_ratio_qk : head / p.nhead_ratio_qk;
    return {first_head, first_head + (kKeys ? p.nhead_ratio_qk : 1), range.begin, range};
  }

  template <bool kKeys>
  __device__ static void load_walked(const BwdFp32Params& p, const BwdSequence& s, const Walk& walk,
                                     Next& next) {
    load(matrix_a<!kKeys>(p, s, walk.head), walk.at, next.a);
    load(matrix_b<!kKeys>(p, s, walk.head), walk.at, next.b);
    if constexpr (kKeys) {
      const int row = walk.at + static_cast<int>(threadIdx.x);
      if (threadIdx.x >= kWalk || row >= s.seqlen_q) return;
      next.lse = lse_log2(rows_of(p.lse, p.lse_strides, s, s.first_q, walk.head)[row]);
      next.d = rows_of(p.d, p.d_strides, s, s.first_q, walk.head)[row];
    }
  }

  // Between two barriers: the rows before have been read by all waves, these are there for all.
  template <bool kKeys>
  __device__ static void store_walked(const Next& next, Lds& lds) {
    __syncthreads();
    store(next.a, lds.a);
    store(next.b, lds.b);
    if (kKeys && threadIdx.x < kWalk) {
      lds.lse[threadIdx.x] = next.lse;
      lds.d[threadIdx.x] = next.d;
    }
    __syncthreads();
  }

  // P and dS of a step, in place of S and dP; `walked` is the first of the lane's four.
  template <bool kKeys>
  __device__ static void weigh(const HeadScores& head, const Own& own, int walked, const Vec4& lse,
                               const Vec4& d, Vec4& s, Vec4& dp) {
    const int row = kKeys ? walked : own.row, column = kKeys ? own.row : walked;
    const uint32_t kept = head.template kept<kKeys>(row, column);
    for (int i = 0; i < 4; ++i) {
      if (walked + i < own.shown.begin || walked + i >= own.shown.end) {
        s[i] = dp[i] = 0;
        continue;
      }
      float slope;
      const float x = head.score(s[i], kKeys ? row + i : row, kKeys ? column : column + i, slope);
      const float probability = __builtin_amdgcn_exp2f(x - lse[i]);
      const bool keep = (kept >> i & 1) != 0;
      dp[i] = probability * ((keep ? dp[i] : 0) - d[i]) * slope;
      s[i] = keep ? probability : 0;
    }
  }

  // P and dS of a wave's own rows and 16 walked ones, `step` rows into their tile.
  template <bool kKeys>
  __device__ static void weights(const HeadScores& head, const Own& own, const Rows& own_a, const Rows& own_b,
                                 int tile, int step, const Lds& lds, Vec4& s, Vec4& dp) {
    const int at = step + 4 * quarter();
    Vec4 lse = own.lse, d = own.d;
    if constexpr (kKeys) {
      lse = *reinterpret_cast<const Vec4*>(lds.lse + at);
      d = *reinterpret_cast<const Vec4*>(lds.d + at);
    }
    scores(lds.a + step * kStride, lds.b + step * kStride, own_a, own_b, s, dp);
    weigh<kKeys>(head, own, tile + at, lse, d, s, dp);
  }

  // A wave's part in a tile of walked rows.
  template <bool kKeys>
  __device__ static void steps(const HeadScores& head, const Own& own, const Rows& own_a, const Rows& own_b,
                               int tile, const Lds& lds, Sums& sums_a, Sums& sums_b) {
#pragma clang loop unroll(disable)
    for (int step = 0; step < kWalk; step += kGroup) {
      if (tile + step + kGroup <= own.seen.begin || tile + step >= own.seen.end) continue;
      Vec4 s, dp;
      weights<kKeys>(head, own, own_a, own_b, tile, step, lds, s, dp);
      add(dp, lds.a + step * kStride, sums_a);
      if constexpr (kKeys) add(s, lds.b + step * kStride, sums_b);
    }
  }

  __device__ static void write(const Sums& sums, float factor, const BwdFp32Params& p, float* gradient,
                               const BwdStrides& strides, const BwdSequence& s, int64_t first, int head,
                               const Own& own, int rows, int hdim) {
    float* out = rows_of(gradient, strides, s, first, head);
    for (int i = 0; i < 4; ++i) {
      const int row = own.first + 4 * quarter() + i;
      for (int c = 0; c < kVectors / 4; ++c) {
        const int column = 64 * c + 4 * own_in_group();
        if (row >= rows || column >= hdim) continue;
        auto* to = reinterpret_cast<Vec4*>(out + row * strides.row + column);
        const Vec4 before = p.accumulate ? *to : Vec4{};
        Vec4 sum;
        for (int j = 0; j < 4; ++j) sum[j] = __builtin_fmaf(sums.x[4 * c + j][i], factor, before[j]);
        *to = sum;
      }
    }
  }

  template <bool kKeys>
  __device__ static void write_all(const BwdFp32Params& p, const BwdSequence& s, int head, const Own& own,
                                   const Sums& a, const Sums& b) {
    const float factor = p.scale * p.rp_keep;
    if constexpr (kKeys) {
      write(a, factor, p, typed<float>(p.dk), p.dk_strides, s, s.first_k, head, own, s.seqlen_k, p.hdim_q);
      write(b, p.rp_keep, p, typed<float>(p.dv), p.dv_strides, s, s.first_k, head, own, s.seqlen_k, p.hdim_v);
    } else {
      write(a, factor, p, typed<float>(p.dq), p.dq_strides, s, s.first_q, head, own, s.seqlen_q, p.hdim_q);
    }
  }

  // Gradients of own rows from `first` on: of keys, or of queries.
  template <bool kKeys>
  __device__ static void tile(const BwdFp32Params& p, const BwdSequence& s, int head, int first, Lds& lds) {
    const Window window = window_of<kKeys>(p, s);
    const Own own = own_of<kKeys>(p, s, window, head, first_of_wave(first));
    const Rows own_a = own_rows(matrix_a<kKeys>(p, s, head), own.row);
    const Rows own_b = own_rows(matrix_b<kKeys>(p, s, head), own.row);
    Sums sums_a{}, sums_b{};
    Walk walk = walk_of<kKeys>(p, s, window, head, first);
    Next next{};
    if (walk.more()) load_walked<kKeys>(p, s, walk, next);
    while (walk.more()) {
      store_walked<kKeys>(next, lds);
      const Walk after = walk.next();
      if (after.more()) load_walked<kKeys>(arguments(), s, after, next);
      const HeadScores scores_of_head(arguments(), s, kKeys ? walk.head : head);
      steps<kKeys>(scores_of_head, own, own_a, own_b, walk.at, lds, sums_a, sums_b);
      walk = after;
    }
    write_all<kKeys>(arguments(), s, head, own, sums_a, sums_b);
  }

  // Gradients of scores of a wave's 16 keys and a tile of rows, element by element as `scores` has them.
  struct BiasTile {
    Vec4 x[kWalk / kGroup];
  };

  // Adds those of one head, for keys from `first` and rows from `row` on.
  __device__ static void add_bias(const BwdFp32Params& p, int b, int head, int first, int row, Lds& lds,
                                  BiasTile& sums) {
    const BwdSequence s = sequence_of(p, b);
    const Window window = window_of<true>(p, s);
    const RowRange seen = window.seen_by(first, min(first + kOwn, s.seqlen_k) - 1, s.seqlen_q);
    if (first >= s.seqlen_k || row + kWalk <= seen.begin || row >= seen.end) return;
    const int head_k = head / p.nhead_ratio_qk;
    const Own own = own_of<true>(p, s, window, head_k, first_of_wave(first));
    const Rows k = own_rows(matrix_a<true>(p, s, head_k), own.row);
    const Rows v = own_rows(matrix_b<true>(p, s, head_k), own.row);
    Next next{};
    load_walked<true>(arguments(), s, {head, head + 1, row, seen}, next);
    store_walked<true>(next, lds);
    const HeadScores scores_of_head(arguments(), s, head);
    for (int i = 0; i < kWalk / kGroup; ++i) {
      Vec4 probabilities, gradient;
      weights<true>(scores_of_head, own, k, v, row, i * kGroup, lds, probabilities, gradient);
      sums.x[i] += gradient;
    }
  }

  // Adds those of all sequences, heads and rows of the sum. The loops ask for them anew each time, see
  // arguments().
  __device__ static void add_biases(int first, int row, Lds& lds, BiasTile& sums) {
    for (int b = bias_sum().first_sequence; b < bias_sum().end_sequence; ++b) {
      const int end = bias_sum().all_rows ? sequence_of(arguments(), b).seqlen_q : row + 1;
      for (int head = bias_sum().first_head; head < bias_sum().end_head; ++head) {
        for (int at = row; at < end; at += kWalk) add_bias(arguments(), b, head, first, at, lds, sums);
      }
    }
  }

  __device__ static void write_bias(const BwdFp32Params& p, float sum, float* to) {
    *to = __builtin_fmaf(sum, p.rp_keep, p.accumulate ? *to : 0.0F);
  }

  // Rows from `row` on of a sequence that has so many.
  __device__ static void write_bias_rows(const BwdFp32Params& p, const BiasTile& sums, int first, int row,
                                         int rows) {
    const BwdSequence s = sequence_of(p, grid_batch(p.turned));
    const int column = first_of_wave(first) + own_in_group();
    float* out = rows_of(typed<float>(p.dbias), p.dbias_strides, s, s.first_q, blockIdx.y) + column;
    for (int i = 0; i < kWalk; ++i) {
      if (i / 4 % 4 != quarter()) continue;
      if (row + i < rows && column < p.seqlen_k) {
        write_bias(p, sums.x[i / kGroup][i % 4], out + (row + i) * p.dbias_strides.row);
      }
    }
  }

  // The sum of all rows: over a lane's, and then over the lanes that have the same key.
  __device__ static void write_bias_sum(const BwdFp32Params& p, const BiasTile& sums, int first) {
    float sum = 0;
    for (const Vec4& x : sums.x) sum += (x[0] + x[1]) + (x[2] + x[3]);
    for (int lanes = kGroup; lanes < 64; lanes *= 2) sum += __shfl_xor(sum, lanes, 64);
    const int column = first_of_wave(first) + own_in_group();
    if (quarter() > 0 || column >= p.seqlen_k) return;
    const int64_t batch = p.cu_q ? 0 : grid_batch(p.turned);
    write_bias(
        p, sum,
        typed<float>(p.dbias) + batch * p.dbias_strides.batch + blockIdx.y * p.dbias_strides.nhead + column);
  }

  // The gradient of the bias: of 64 keys, and the rows of a tile or the sum of all. Where the bias is the
  // same for several sequences or heads, a workgroup adds them up itself, in their order.
  __device__ static void bias_tile(const BwdFp32Params& p, int x, Lds& lds) {
    if (is_summed_elsewhere(p)) return;
    const int first = x % p.dbias_key_tiles * kOwn;
    if (bias_sum().all_rows) {
      BiasTile sums{};
      add_biases(first, 0, lds, sums);
      return write_bias_sum(arguments(), sums, first);
    }
    const int rows = bias_rows(p, grid_batch(p.turned)), apart = p.dbias_row_tiles * kWalk;
    for (int row = x / p.dbias_key_tiles * kWalk; row < rows; row += apart) {
      BiasTile sums{};
      add_biases(first, row, lds, sums);
      write_bias_rows(arguments(), sums, first, row, rows);
    }
  }
};

}  // namespace fmha

// FMHA_BWD_FP32_KERNEL(symbol, head dim, walked rows of a tile): one kernel and its facts.
#define FMHA_BWD_FP32_KERNEL(entry, hdim, walk)                                                             \
  using entry##_instance = fmha::BwdFp32<hdim, walk>;                                                       \
  extern "C" __device__                                                                                     \
      __attribute__((used, visibility("protected"))) const fmha::BwdFp32Facts entry##_facts = {             \
          walk, entry##_instance::kOwn,       hdim,                                                         \
          hdim, entry##_instance::kBlockSize, entry##_instance::kBlocksPerCu};                              \
  extern "C" __global__ __launch_bounds__(entry##_instance::kBlockSize,                                     \
                                          entry##_instance::kBlocksPerCu) void entry(fmha::BwdFp32Params) { \
    entry##_instance::run();                                                                                \
  }
