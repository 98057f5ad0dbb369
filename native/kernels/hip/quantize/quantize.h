// SPDX-License-Identifier: MIT OR Apache-2.0
// 8-bit floats of 16 bits, each scaled so that the largest of those that share a scale is the type's largest;
// rows may be rotated by a Hadamard matrix first. One launch, whatever shares a scale:
//
//   way       a workgroup                                                          reads x
//   kWrite    scales are known: reads a chunk, writes it                           once
//   kOwn      a block of tokens: its largest, its scale, writes it. Rows stay in   once, beyond 8 rows of
//             registers, as far as there are these                                 each lane twice
//   kTickets  draws a ticket. Those of small numbers look for the largest of some  twice, the second time
//             chunks; those of large ones wait until all that share the scale      from a cache, if what
//             have been looked at, and write them                                  shares a scale fits one
//
// Waiting needs no more workgroups at a time than run anyway. Who waits has drawn its ticket after all those
// that it waits for, each of which has therefore begun, and none of which waits. Tickets deal the scales in
// turn: scale n is written while the largest of scale n + lag is looked for, so that little lies between
// both. The maximum is a maximum of bits, by atomics: the same in any order.
//
//   registers   8 rows of 8 elements in float32: 64
//   bound       HBM gives a CU 8.3 bytes a cycle: the 512 elements of a wave are 3 bytes each, 185 cycles. By
//               kOwn they take 138 VALU instructions, counted on the software device, of which a CU issues
//               one a cycle. The rotation of 128 elements adds 116: then the SIMDs bind, at 73 % of that.
#pragma once

#include "args/quantize.h"
#include "common/device.h"
#include "hip/common/fp8.h"
#include "hip/quantize/hadamard.h"

namespace fmha {

inline constexpr int kQuantizeBlock = 256;
inline constexpr int kQuantizeKept = 8;  // rows of a lane that stay in registers

template <typename In, typename Out>
class Quantize {
  static constexpr int kWaves = kQuantizeBlock / warpSize;
  static constexpr uint32_t kLine = 16;  // counters of a scale: the largest, the count, nothing
  static constexpr uint32_t kInfinity = 0x7f800000;

  struct Shared {
    uint32_t largest[kWaves];
    uint32_t told;
  };

  // Tokens of a group of heads of a batch element.
  struct Chunk {
    int64_t batch, group, block;
    const In* x;
    Out* out;
    int rows;  // tokens times heads
  };

 public:
  __device__ static void run(const QuantizeParams& p) {
    __shared__ Shared shared;
    const Quantize q(p, shared);
    if constexpr (sizeof(Out) == 1) {
      if (p.way == QuantizeWay::kTickets) return q.by_ticket();
      if (p.way == QuantizeWay::kOwn) return q.own(q.chunk(blockIdx.x));
    }
    const Chunk c = q.chunk(blockIdx.x);
    q.write(c, p.descale == nullptr ? p.factor : p.factor / q.descale_of(c));
  }

 private:
  __device__ Quantize(const QuantizeParams& params, Shared& to_share)
      : p(params),
        shared(to_share),
        lane(static_cast<int>(threadIdx.x) & ((1 << params.lanes_shift) - 1)),
        first(static_cast<int>(threadIdx.x) >> params.lanes_shift),
        step(kQuantizeBlock >> params.lanes_shift) {}

  __device__ Chunk chunk(uint32_t number) const {
    const uint32_t heads = number / p.chunks_of_heads, block = number - heads * p.chunks_of_heads;
    const uint32_t batch = heads / p.groups_of_heads, group = heads - batch * p.groups_of_heads;
    const int token = static_cast<int>(block) * p.tokens;
    const auto begin = [&](const QuantizeStrides& s) {
      return batch * s.batch + static_cast<int64_t>(group) * p.heads * s.nhead + token * s.row;
    };
    return {batch,
            group,
            block,
            static_cast<const In*>(p.x) + begin(p.x_strides),
            static_cast<Out*>(p.out) + begin(p.out_strides),
            min(p.tokens, p.seqlen - token) * p.heads};
  }

  __device__ float& descale_of(const Chunk& c) const {
    const QuantizeScaleStrides& s = p.descale_strides;
    return p.descale[c.batch * s.batch + c.group * s.nhead + c.block * s.block];
  }

  __device__ bool has_elements() const { return lane * kPerThread < p.hdim; }

  // The offset of this lane's elements of a row.
  __device__ int64_t at(const QuantizeStrides& s, int row) const {
    const int token = p.heads == 1 ? row : row / p.heads;
    return token * s.row + (row - token * p.heads) * s.nhead + lane * kPerThread;
  }

  __device__ EightNumbers load(const Chunk& c, int row) const {
    const auto loaded = *reinterpret_cast<const Eight<In>*>(c.x + at(p.x_strides, row));
    EightNumbers e;
    for (int i = 0; i < kPerThread; ++i) e.x[i] = to_float(loaded.x[i]);
    if (p.hadamard != 0) hadamard(e, lane, p.lanes_shift);
    return e;
  }

  __device__ void store(const Chunk& c, int row, EightNumbers& e, float factor) const {
    if constexpr (sizeof(Out) > 1) {
      for (float& x : e.x) x *= factor;
    }
    *reinterpret_cast<Eight<Out>*>(c.out + at(p.out_strides, row)) = rounded_eight<Out>(e, factor);
  }

  __device__ void write(const Chunk& c, float factor) const {
    if (!has_elements()) return;
    for (int row = first; row < c.rows; row += step) {
      EightNumbers e = load(c, row);
      store(c, row, e, factor);
    }
  }

  // ---- The largest. NaN and infinities do not count.

  __device__ static void find(const EightNumbers& e, float& largest) {
    for (const float x : e.x) {
      const float size = __builtin_fabsf(x);
      largest = size < __builtin_inff() ? __builtin_fmaxf(largest, size) : largest;
    }
  }

  // The largest of all threads', for all of them.
  __device__ float of_all(float mine) const {
    for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) {
      mine = __builtin_fmaxf(mine, __shfl_xor(mine, lanes));
    }
    const int thread = static_cast<int>(threadIdx.x);
    if (thread % warpSize == 0) shared.largest[thread / warpSize] = __builtin_bit_cast(uint32_t, mine);
    __syncthreads();
    uint32_t largest = 0;
    for (const uint32_t x : shared.largest) largest = max(largest, x);
    return __builtin_bit_cast(float, largest);
  }

  // A scale that is finite and not 0, of whatever is.
  __device__ float scale_of(float largest) const {
    if (largest == 0) return 1;
#if defined(FMHA_HAS_FP8)
    return __builtin_fmaxf(largest * p.factor / kLargestFp8, __FLT_MIN__);
#else
    return 1;
#endif
  }

  // ---- A chunk with a scale of its own.

  __device__ void own(const Chunk& c) const {
    EightNumbers kept[kQuantizeKept];
    float largest = 0;
    if (has_elements()) {
      _Pragma("unroll") for (int i = 0; i < kQuantizeKept; ++i) {
        const int row = first + i * step;
        if (row >= c.rows) continue;
        kept[i] = load(c, row);
        find(kept[i], largest);
      }
      for (int row = first + kQuantizeKept * step; row < c.rows; row += step) find(load(c, row), largest);
    }
    const float scale = scale_of(of_all(largest)), factor = p.factor / scale;
    if (threadIdx.x == 0) descale_of(c) = scale;
    if (!has_elements()) return;
    _Pragma("unroll") for (int i = 0; i < kQuantizeKept; ++i) {
      const int row = first + i * step;
      if (row < c.rows) store(c, row, kept[i], factor);
    }
    for (int row = first + kQuantizeKept * step; row < c.rows; row += step) {
      EightNumbers e = load(c, row);
      store(c, row, e, factor);
    }
  }

  // ---- Chunks that share a scale.

  struct Item {
    uint32_t scale, first_chunk, end_chunk;
    bool writes;
  };

  // The work of ticket t. First come the items of `lag` scales that look, then in turn those of one that look
  // and of one that write, then the others that write.
  __device__ Item item_of(uint32_t t) const {
    const uint32_t turn = t / p.items, item = t - turn * p.items;
    const uint32_t both = 2 * (p.scales - p.lag);
    Item found{};
    if (turn < p.lag) {
      found.scale = turn;
    } else if (turn < p.lag + both) {
      const uint32_t pair = (turn - p.lag) / 2;
      found.writes = (turn - p.lag) % 2 != 0;
      found.scale = found.writes ? pair : p.lag + pair;
    } else {
      found.writes = true;
      found.scale = turn - p.scales;
    }
    const uint32_t begin = item * p.per_item, base = found.scale * p.chunks;
    found.first_chunk = base + begin;
    found.end_chunk = base + min(begin + p.per_item, p.chunks);
    return found;
  }

  // A number of thread 0's, for all.
  __device__ uint32_t told(uint32_t number) const {
    __syncthreads();
    if (threadIdx.x == 0) shared.told = number;
    __syncthreads();
    return shared.told;
  }

  __device__ void by_ticket() const {
    uint32_t ticket = 0;
    if (threadIdx.x == 0) {
      ticket = __hip_atomic_fetch_add(p.counters, 1U, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }
    const Item item = item_of(__builtin_amdgcn_readfirstlane(told(ticket)));
    uint32_t* const line = p.counters + kLine * (1 + item.scale);
    if (item.writes) return write_all(item, line);
    float largest = 0;
    if (has_elements()) {
      for (uint32_t n = item.first_chunk; n < item.end_chunk; ++n) {
        const Chunk c = chunk(n);
        for (int row = first; row < c.rows; row += step) find(load(c, row), largest);
      }
    }
    largest = of_all(largest);
    if (threadIdx.x != 0) return;
    __hip_atomic_fetch_max(line, __builtin_bit_cast(uint32_t, largest), __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(line + 1, 1U, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  }

  __device__ void write_all(const Item& item, uint32_t* line) const {
    uint32_t bits = 0;
    if (threadIdx.x == 0) {
      while (__hip_atomic_load(line + 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < p.items) {
        __builtin_amdgcn_s_sleep(8);
      }
      bits = __hip_atomic_load(line, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }
    const float scale = scale_of(__builtin_bit_cast(float, told(bits))), factor = p.factor / scale;
    for (uint32_t n = item.first_chunk; n < item.end_chunk; ++n) {
      const Chunk c = chunk(n);
      if (threadIdx.x == 0 && n == item.scale * p.chunks) descale_of(c) = scale;
      write(c, factor);
    }
  }

  const QuantizeParams& p;
  Shared& shared;
  const int lane, first, step;  // of the row's lanes; this lane's first row, and from one to the next
};

struct QuantizeFacts {
  int32_t block_size;
};

}  // namespace fmha

// FMHA_QUANTIZE_KERNEL(symbol, type of x, type of out)
#define FMHA_QUANTIZE_KERNEL(entry, in, result)                                                      \
  extern "C" __device__ __attribute__((used, visibility("protected")))                               \
  const fmha::QuantizeFacts entry##_facts = {fmha::kQuantizeBlock};                                  \
  extern "C" __global__ __launch_bounds__(fmha::kQuantizeBlock) void entry(fmha::QuantizeParams p) { \
    fmha::Quantize<fmha::in, fmha::result>::run(p);                                                  \
  }
