// SPDX-License-Identifier: MIT OR Apache-2.0
// Partial outputs and their LSEs, merged into one: what decode's splits, ring attention and a shared prefix
// end with. A row is one (batch, seqlen, head); some lanes of a wave do it, eight elements each at a time.
//
//   phase      a lane, for its row                            registers (fp32 parts)
//   maximum    reads the LSE of every part                    1
//   parts      four at a time: their LSEs give the weights;   4 * 8 for what is on its way,
//              asks for 16 or 32 bytes of each part whose     8 for the sum
//              weight is not 0, then adds them up
//   end        divides, rounds and stores 16 or 32 bytes; the
//              first lane of a row stores the LSE last
//
// No LDS, no barrier. A part of weight 0 is not read: what has LSE -inf may hold anything. The maximum makes
// each exponent at most 0, and at least one weight 1, so that nothing overflows and the sum is 0 only if all
// parts are empty. All lanes of a row are of one wave and read the LSEs before one of them writes, so that
// the result may take the place of a part.
//
// What bounds it: memory. Of n parts of 16 bits a lane loads 16 n bytes of O, and n LSEs that all lanes of a
// row share in the L1, in 30 n instructions. A SIMD takes four cycles for one, so 120 n cycles for the 1024 n
// bytes of a wave: a CU takes in 34 bytes a cycle, and 304 of them at 2.1 GHz 22 TB/s, four times what HBM
// gives.
#pragma once

#include <hip/hip_runtime.h>

#include "args/merge.h"
#include "hip/numbers.h"

namespace fmha {

inline constexpr int kMergeBlock = 256;
inline constexpr int kMergeAtOnce = 4;  // parts on their way

// A row of the call: where its arrays begin.
template <typename In, typename Out>
struct MergePointers {
  const In* parts;
  const float* parts_lse;
  Out* o;
  float* lse;
};

template <typename In, typename Out>
__device__ inline MergePointers<In, Out> merge_row(const MergeParams& p, uint32_t row) {
  const uint32_t token = row / p.nhead;
  const int64_t head = row - token * p.nhead, batch = token / p.seqlen, at = token - batch * p.seqlen;
  const auto offset = [&](const MergeStrides& s) { return batch * s.batch + head * s.nhead + at * s.row; };
  return {static_cast<const In*>(p.parts) + offset(p.parts_strides),
          p.parts_lse + offset(p.parts_lse_strides), static_cast<Out*>(p.o) + offset(p.o_strides),
          p.lse == nullptr ? nullptr : p.lse + offset(p.lse_strides)};
}

// A part's weight. Those at the maximum weigh 1, also if that is infinite; none weighs NaN for its sake. An
// LSE that is NaN makes its weight NaN.
__device__ inline float merge_weight(const MergeParams& p, float lse, float largest) {
  if (lse == -__builtin_inff()) return 0;
  return lse == largest ? 1 : __builtin_amdgcn_exp2f((lse - largest) * p.to_base2);
}

template <typename In, typename Out>
__device__ inline float merge_largest(const MergeParams& p, const MergePointers<In, Out>& row) {
  float largest = p.accumulate ? *row.lse : -__builtin_inff();
  for (int i = 0; i < p.parts_count; ++i) {
    largest = __builtin_fmaxf(largest, row.parts_lse[i * p.part_lse]);
  }
  return largest;
}

template <typename T>
__device__ inline void merge_add(Eight<float>& sum, const Eight<T>& part, float weight) {
  for (int i = 0; i < kPerThread; ++i) {
    // 0 * NaN is NaN: a part that was not loaded is zeros.
    sum.x[i] = __builtin_fmaf(weight, to_float(part.x[i]), sum.x[i]);
  }
}

// What is not weighed is not loaded.
template <typename T>
__device__ inline Eight<T> merge_load(const T* from, float weight) {
  Eight<T> part = {};
  if (weight != 0) part = *reinterpret_cast<const Eight<T>*>(from);
  return part;
}

// Eight columns of a row. Returns the sum of all weights.
template <typename In, typename Out>
__device__ inline float merge_eight(const MergeParams& p, const MergePointers<In, Out>& row, int column,
                                    float largest) {
  Eight<float> sum = {};
  float weights = 0;
  if (p.accumulate) {
    weights = merge_weight(p, *row.lse, largest);
    merge_add(sum, merge_load(row.o + column, weights), weights);
  }
  const In* part = row.parts + column;
  const float* lse = row.parts_lse;
  int i = 0;
  for (; i + kMergeAtOnce <= p.parts_count; i += kMergeAtOnce) {
    Eight<In> loaded[kMergeAtOnce];
    float weight[kMergeAtOnce];
#pragma unroll
    for (int j = 0; j < kMergeAtOnce; ++j) {
      weight[j] = merge_weight(p, lse[j * p.part_lse], largest);
      loaded[j] = merge_load(part + j * p.part, weight[j]);
    }
#pragma unroll
    for (int j = 0; j < kMergeAtOnce; ++j) {
      merge_add(sum, loaded[j], weight[j]);
      weights += weight[j];
    }
    part += kMergeAtOnce * p.part;
    lse += kMergeAtOnce * p.part_lse;
  }
  for (; i < p.parts_count; ++i, part += p.part, lse += p.part_lse) {
    const float weight = merge_weight(p, *lse, largest);
    merge_add(sum, merge_load(part, weight), weight);
    weights += weight;
  }
  // Sums of weights are 0, NaN, or from 1 to the number of parts.
  const float scale = weights == 0 ? 0 : 1 / weights;
  Eight<Out> rounded;
  for (int k = 0; k < kPerThread; ++k) round_to(rounded.x[k], sum.x[k] * scale);
  *reinterpret_cast<Eight<Out>*>(row.o + column) = rounded;
  return weights;
}

template <typename In, typename Out>
__device__ void merge(const MergeParams& p) {
  const uint32_t at = (blockIdx.x << (8 - p.lanes_shift)) + (threadIdx.x >> p.lanes_shift);
  static_assert(kMergeBlock == 1 << 8);
  if (at >= p.rows) return;
  const MergePointers<In, Out> row = merge_row<In, Out>(p, at);
  const int lanes = 1 << p.lanes_shift, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const float largest = merge_largest(p, row);
  float weights = 0;
  for (int column = lane * kPerThread; column < p.hdim; column += lanes * kPerThread) {
    weights = merge_eight(p, row, column, largest);
  }
  // log2 of a sum of 0 is -inf, and so is the maximum then.
  if (lane == 0 && row.lse != nullptr) *row.lse = largest + __builtin_amdgcn_logf(weights) * p.from_base2;
}

struct MergeFacts {
  int32_t block_size;
};

}  // namespace fmha

// FMHA_MERGE_KERNEL(symbol, type of the parts, type of the result)
#define FMHA_MERGE_KERNEL(entry, in, out)                                                      \
  extern "C" __device__ __attribute__((used, visibility("protected")))                         \
  const fmha::MergeFacts entry##_facts = {fmha::kMergeBlock};                                  \
  extern "C" __global__ __launch_bounds__(fmha::kMergeBlock) void entry(fmha::MergeParams p) { \
    fmha::merge<fmha::in, fmha::out>(p);                                                       \
  }
