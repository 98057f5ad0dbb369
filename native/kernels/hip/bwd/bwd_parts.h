// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels before and after the main kernel of a backward pass (see args/bwd.h). They are bound by memory:
// each reads its inputs once, eight elements a thread.
#pragma once

#include "args/bwd.h"
#include "common/grid.h"
#include "common/packed_rows.h"
#include "hip/common/numbers.h"

namespace fmha {

inline constexpr int kPartsBlock = 256;
inline constexpr int kDotLanes = 16;       // a row of D
inline constexpr int kBiasColumns = 2048;  // of a row of a bias's gradient, in a workgroup

template <typename Params>
__device__ inline int64_t offset_of(const Params& p, const BwdStrides& s, int64_t row) {
  return grid_batch(p.turned) * s.batch + blockIdx.y * s.nhead + row * s.row;
}

// The rows of the workgroup's sequence, counted from the first of all.
__device__ inline PackedRows rows_in_use(const BwdDotParams& p) {
  const int most = static_cast<int>(p.rows);
  if (p.cu_q == nullptr) return {0, most};
  return packed_rows(p.cu_q, p.used_q, static_cast<int>(grid_batch(p.turned)), p.total_q, most);
}

// The offset of such a row.
__device__ inline int64_t offset_in(const BwdDotParams& p, const BwdStrides& s, int64_t row) {
  if (p.cu_q == nullptr) return offset_of(p, s, row);
  return blockIdx.y * s.nhead + row * s.row;
}

// Writes the start of the workgroup's sequence as the largest up to it, and none outside [0, total]: so they
// do not decrease, whatever they held. The last sequence's workgroup writes the end of all too.
__device__ inline void put_in_order(const BwdDotParams& p, const int32_t* starts, int total,
                                    int32_t* ordered) {
  const int lane = static_cast<int>(threadIdx.x), sequence = static_cast<int>(grid_batch(p.turned));
  if (lane >= warpSize) return;
  int largest = 0;
  for (int i = lane; i <= sequence; i += warpSize) largest = max(largest, starts[i]);
  for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) largest = max(largest, __shfl_xor(largest, lanes));
  if (lane > 0) return;
  ordered[sequence] = min(largest, total);
  if (sequence + 1 < static_cast<int>(grid_batches(p.turned))) return;
  ordered[sequence + 1] = min(max(largest, starts[sequence + 1]), total);
}

// D of a block of rows. The lanes of a row each sum some of its products, and then add up their sums.
template <typename T>
__device__ void bwd_dot(const BwdDotParams& p) {
  if (p.starts != nullptr && grid_tile(p.turned) == 0 && blockIdx.y == 0) {
    put_in_order(p, p.cu_q, p.total_q, p.starts);
    put_in_order(p, p.cu_k, p.total_k, p.starts + grid_batches(p.turned) + 1);
  }
  const int64_t at_row = int64_t{grid_tile(p.turned)} * (kPartsBlock / kDotLanes) + threadIdx.x / kDotLanes;
  const PackedRows rows = rows_in_use(p);
  if (at_row >= rows.count) return;
  const int64_t row = rows.first + at_row;
  const T* o = static_cast<const T*>(p.o) + offset_in(p, p.o_strides, row);
  const T* dout = static_cast<const T*>(p.dout) + offset_in(p, p.dout_strides, row);
  float sum = 0;
  for (int at = threadIdx.x % kDotLanes * kPerThread; at < p.hdim_v; at += kDotLanes * kPerThread) {
    const auto a = *reinterpret_cast<const Eight<T>*>(o + at);
    const auto b = *reinterpret_cast<const Eight<T>*>(dout + at);
    for (int i = 0; i < kPerThread; ++i) sum = __builtin_fmaf(to_float(a.x[i]), to_float(b.x[i]), sum);
  }
  for (int lanes = kDotLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor(sum, lanes, kDotLanes);
  if (threadIdx.x % kDotLanes == 0) p.d[offset_in(p, p.d_strides, row)] = sum * p.p_keep;
}

// Where a row's element lies in sums of hip/bwd/bwd_one_pass.h: a block has 32 rows; of 16 dims each, every
// fourth of 16 rows lies together, so that 64 lanes add to lines as a whole.
__device__ inline int64_t offset_in_block(int64_t row, int dim) {
  const auto of_block = static_cast<int>(row % 32);
  return row / 32 * 32 * 128 + dim / 16 * 512 + (of_block / 16 * 4 + of_block % 4) * 64 +
         of_block % 16 / 4 * 16 + dim % 16;
}

// Eight elements of a row of `out`.
template <typename T>
__device__ void bwd_sum(const BwdSumParams& p) {
  const int per_row = p.hdim / kPerThread;
  const int64_t at = int64_t{grid_tile(p.turned)} * kPartsBlock + threadIdx.x;
  const int64_t row = at / per_row;
  if (row >= p.rows) return;
  const int column = static_cast<int>(at - row * per_row) * kPerThread;
  const float* parts =
      p.parts + (p.in_blocks != 0 ? offset_of(p, p.parts_strides, 0) + offset_in_block(row, column)
                                  : offset_of(p, p.parts_strides, row) + column);
  T* out = static_cast<T*>(p.out) + offset_of(p, p.out_strides, row) + column;
  Eight<float> sum = {};
  for (int part = 0; part < p.parts_count; ++part) {
    const auto more = *reinterpret_cast<const Eight<float>*>(parts + part * p.part);
    for (int i = 0; i < kPerThread; ++i) sum.x[i] += more.x[i];
  }
  if (p.beta != 0) {
    const auto before = *reinterpret_cast<const Eight<T>*>(out);
    for (int i = 0; i < kPerThread; ++i) sum.x[i] = __builtin_fmaf(p.beta, to_float(before.x[i]), sum.x[i]);
  }
  Eight<T> rounded;
  for (int i = 0; i < kPerThread; ++i) round_to(rounded.x[i], sum.x[i]);
  *reinterpret_cast<Eight<T>*>(out) = rounded;
}

__device__ inline float sum_of_bias(const BwdBiasParams& p, int64_t row, int column) {
  const BwdStrides& s = p.parts_strides;
  float sum = 0;
  for (int b = 0; b < p.batches; ++b) {
    for (int head = 0; head < p.heads; ++head) {
      const float* parts = p.parts + offset_of(p, s, row) + b * s.batch + head * s.nhead + column;
      for (int i = 0; i < p.rows; ++i) sum += parts[i * s.row];
    }
  }
  return sum;
}

// A row of the gradient of a bias, or a block of it: rows have any length and alignment.
template <typename T>
__device__ void bwd_bias(const BwdBiasParams& p) {
  const int block = static_cast<int>(grid_tile(p.turned));
  const int64_t row = block / p.row_blocks;
  const int first = block % p.row_blocks * kBiasColumns, end = min(first + kBiasColumns, p.columns);
  T* out = static_cast<T*>(p.out) + offset_of(p, p.out_strides, row);
  for (int column = first + static_cast<int>(threadIdx.x); column < end; column += kPartsBlock) {
    float sum = sum_of_bias(p, row, column);
    if (p.beta != 0) sum = __builtin_fmaf(p.beta, to_float(out[column]), sum);
    round_to(out[column], sum);
  }
}

struct BwdPartFacts {
  int32_t block_size, per_block;  // per_block: rows (dot), vectors of eight elements (sum), columns (bias)
};

}  // namespace fmha

// FMHA_BWD_DOT_KERNEL(symbol, type of o and dout), FMHA_BWD_SUM_KERNEL(symbol, type of the sum) and
// FMHA_BWD_BIAS_KERNEL.
#define FMHA_BWD_PART_KERNEL(entry, params, call, count)               \
  extern "C" __device__ __attribute__((used, visibility("protected"))) \
  const fmha::BwdPartFacts entry##_facts = {fmha::kPartsBlock, count}; \
  extern "C" __global__ __launch_bounds__(fmha::kPartsBlock) void entry(fmha::params p) { call(p); }
#define FMHA_BWD_DOT_KERNEL(entry, type) \
  FMHA_BWD_PART_KERNEL(entry, BwdDotParams, fmha::bwd_dot<fmha::type>, fmha::kPartsBlock / fmha::kDotLanes)
#define FMHA_BWD_SUM_KERNEL(entry, type) \
  FMHA_BWD_PART_KERNEL(entry, BwdSumParams, fmha::bwd_sum<fmha::type>, fmha::kPartsBlock)
#define FMHA_BWD_BIAS_KERNEL(entry, type) \
  FMHA_BWD_PART_KERNEL(entry, BwdBiasParams, fmha::bwd_bias<fmha::type>, fmha::kBiasColumns)
