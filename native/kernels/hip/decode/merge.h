// SPDX-License-Identifier: MIT OR Apache-2.0
// Partial outputs and their LSEs, merged into one: what decode's splits, ring attention and a shared prefix
// end with. A row is one (batch, seqlen, head); some lanes of a wave do it: as many as it has eights of
// elements, times the groups that its parts are dealt to.
//
//   phase      a lane, for its row                                   registers (fp32 parts)
//   LSEs       of up to four parts: reads them all, and knows the    4
//              weights
//              of more: reads those of every n-th part, n being the  2
//              lanes of the row, and asks the others for the
//              maximum; then has the weight of one part at a time
//   parts      four, or eight of its group's, at a time: takes       8 * 8 for what is on its way,
//              their weights from their lanes, asks for 16 or 32     8 for the sum
//              bytes of each whose weight is not 0, adds them up
//   end        adds up the groups' sums, divides, rounds; the first
//              group stores 16 or 32 bytes a lane, the first lane
//              of a row stores the LSE last
//
// No LDS, no barrier. A part of weight 0 is not read: what has LSE -inf may hold anything. The maximum makes
// each exponent at most 0, and at least one weight 1, so that nothing overflows and the sum is 0 only if all
// parts are empty. All lanes of a row are of one wave and read the LSEs before one of them writes, so that
// the result may take the place of a part.
//
// With many rows it is bound by memory. At head dim 128 a wave does four rows of two float32 parts, 4 KB in
// and 1 KB out, in 424 instructions, counted on the software device, each of which takes a SIMD four cycles:
// a compute unit moves 12 bytes a cycle, and 304 of them at 2.1 GHz 7.7 TB/s, where HBM has 5.3. With more
// parts it is more: with 128, 46 bytes a cycle. Few rows are bound by latency: loads wait for those before. A
// row of 128 parts waits 7 times for memory: once for the maximum, and for each 64 parts once for their LSEs
// and twice for what four groups load, eight parts each at once. One part after the other would wait 128
// times and more.
#pragma once

#include "args/merge.h"
#include "common/device.h"
#include "hip/common/numbers.h"

namespace fmha {

inline constexpr int kMergeBlock = 256;
inline constexpr int kMergeFew = 4;     // parts that a lane has the LSEs of
inline constexpr int kMergeAtOnce = 8;  // of more, those of a group that are on their way

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

// A lane's place in its row. Lanes that have the same columns, one of each group, are `columns` apart.
struct MergeLane {
  int lane, lanes, columns;
  int group, groups;

  __device__ explicit MergeLane(const MergeParams& p) {
    const int columns_shift = p.lanes_shift - p.groups_shift;
    lanes = 1 << p.lanes_shift;
    columns = 1 << columns_shift;
    groups = 1 << p.groups_shift;
    lane = static_cast<int>(threadIdx.x) & (lanes - 1);
    group = lane >> columns_shift;
  }
  __device__ int column() const { return (lane & (columns - 1)) * kPerThread; }
};

// Eight elements as they are loaded, 16 bytes at a time.
template <typename T>
struct MergeLoaded {
  using Dwords = __attribute__((ext_vector_type(4))) uint32_t;
  Dwords x[sizeof(Eight<T>) / sizeof(Dwords)];
};

template <typename T>
__device__ inline MergeLoaded<T> merge_load(const T* from) {
  return *reinterpret_cast<const MergeLoaded<T>*>(from);
}

template <typename T>
__device__ inline void merge_add(Eight<float>& sum, const MergeLoaded<T>& loaded, float weight) {
  const auto part = __builtin_bit_cast(Eight<T>, loaded);
  for (int i = 0; i < kPerThread; ++i) sum.x[i] = __builtin_fmaf(weight, to_float(part.x[i]), sum.x[i]);
}

// Adds to `sum` eight columns of parts, the first at `from`, the others `step` apart. A part without weight
// is neither loaded nor added: 0 * NaN is NaN. Its registers are not zeroed either, which would wait for the
// loads before it.
template <int kCount, typename T>
__device__ inline void merge_weighed(const T* from, int64_t step, const float (&weight)[kCount],
                                     Eight<float>& sum) {
  MergeLoaded<T> loaded[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (weight[j] != 0) loaded[j] = merge_load(from);
    from += step;
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (weight[j] != 0) merge_add(sum, loaded[j], weight[j]);
  }
}

// The part in the result's place.
template <typename Out>
__device__ inline void merge_accumulated(const Out* from, float weight, Eight<float>& sum) {
  if (weight != 0) merge_add(sum, merge_load(from), weight);
}

// Sums of weights are 0, NaN, or from 1 to the number of parts.
template <typename Out>
__device__ inline void merge_store(Out* to, const Eight<float>& sum, float weights) {
  const float scale = weights == 0 ? 0 : 1 / weights;
  Eight<Out> rounded;
  for (int k = 0; k < kPerThread; ++k) round_to(rounded.x[k], sum.x[k] * scale);
  *reinterpret_cast<Eight<Out>*>(to) = rounded;
}

// The sums that a row's LSE is made of.
struct MergeTotal {
  float largest, weights;
};

// Few parts: each lane has the LSEs of all of them.
template <typename In, typename Out>
__device__ inline MergeTotal merge_few(const MergeParams& p, const MergePointers<In, Out>& row,
                                       const MergeLane& at) {
  float weight[kMergeFew];
  const float before = p.accumulate ? *row.lse : -__builtin_inff();
#pragma unroll
  for (int i = 0; i < kMergeFew; ++i) {
    weight[i] = i < p.parts_count ? row.parts_lse[i * p.part_lse] : -__builtin_inff();
  }
  float largest = before;
  for (const float lse : weight) largest = __builtin_fmaxf(largest, lse);
  const float weight_before = merge_weight(p, before, largest);
  float weights = weight_before;
  for (float& w : weight) weights += w = merge_weight(p, w, largest);
  for (int column = at.column(); column < p.hdim; column += at.columns * kPerThread) {
    Eight<float> sum = {};
    merge_accumulated(row.o + column, weight_before, sum);
    merge_weighed(row.parts + column, p.part, weight, sum);
    merge_store(row.o + column, sum, weights);
  }
  return {largest, weights};
}

template <typename In, typename Out>
__device__ inline float merge_largest(const MergeParams& p, const MergePointers<In, Out>& row,
                                      const MergeLane& at) {
  float largest = p.accumulate ? *row.lse : -__builtin_inff();
#pragma unroll 2
  for (int i = at.lane; i < p.parts_count; i += at.lanes) {
    largest = __builtin_fmaxf(largest, row.parts_lse[i * p.part_lse]);
  }
  for (int apart = 1; apart < at.lanes; apart *= 2) {
    largest = __builtin_fmaxf(largest, __shfl_xor(largest, apart));
  }
  return largest;
}

// Eight columns, from `column` on, of a row of many parts; it has them if they are `active`. All its lanes
// take part. Returns the sum of all weights.
template <typename In, typename Out>
__device__ inline float merge_eight(const MergeParams& p, const MergePointers<In, Out>& row,
                                    const MergeLane& at, int column, float largest) {
  const bool active = column < p.hdim, stores = active && at.group == 0;
  Eight<float> sum = {};
  float weights = 0;
  if (p.accumulate) {
    const float weight = merge_weight(p, *row.lse, largest);
    if (at.lane == 0) weights = weight;
    merge_accumulated(row.o + column, stores ? weight : 0, sum);
  }
  for (int first = 0; first < p.parts_count; first += at.lanes) {
    const int own = first + at.lane, count = min(at.lanes, p.parts_count - first);
    const float own_weight =
        own < p.parts_count ? merge_weight(p, row.parts_lse[own * p.part_lse], largest) : 0;
    weights += own_weight;
    for (int i = at.group; i - at.group < count; i += at.groups * kMergeAtOnce) {
      float weight[kMergeAtOnce];
#pragma unroll
      for (int j = 0; j < kMergeAtOnce; ++j) {
        const float of_part = __shfl(own_weight, i + j * at.groups, at.lanes);
        weight[j] = active && i + j * at.groups < count ? of_part : 0;
      }
      merge_weighed(row.parts + column + (first + i) * p.part, at.groups * p.part, weight, sum);
    }
  }
  for (int apart = 1; apart < at.lanes; apart *= 2) weights += __shfl_xor(weights, apart);
  for (int apart = at.columns; apart < at.lanes; apart *= 2) {
    for (float& x : sum.x) x += __shfl_xor(x, apart);
  }
  if (stores) merge_store(row.o + column, sum, weights);
  return weights;
}

template <typename In, typename Out>
__device__ inline MergeTotal merge_many(const MergeParams& p, const MergePointers<In, Out>& row,
                                        const MergeLane& at) {
  const float largest = merge_largest(p, row, at);
  float weights = 0;
  for (int first = 0; first < p.hdim; first += at.columns * kPerThread) {
    weights = merge_eight(p, row, at, first + at.column(), largest);
  }
  return {largest, weights};
}

template <typename In, typename Out>
__device__ void merge(const MergeParams& p) {
  const uint32_t at = (blockIdx.x << (8 - p.lanes_shift)) + (threadIdx.x >> p.lanes_shift);
  static_assert(kMergeBlock == 1 << 8);
  if (at >= p.rows) return;
  const MergePointers<In, Out> row = merge_row<In, Out>(p, at);
  const MergeLane lane(p);
  const MergeTotal total = p.parts_count <= kMergeFew ? merge_few(p, row, lane) : merge_many(p, row, lane);
  // log2 of a sum of 0 is -inf, and so is the maximum then.
  if (lane.lane == 0 && row.lse != nullptr) {
    *row.lse = total.largest + __builtin_amdgcn_logf(total.weights) * p.from_base2;
  }
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
