// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention of a few queries over a KV cache that lies in pages, or in one piece.
//
// A workgroup has four waves and 16 rows: the query heads of one key head's group, of one or several tokens,
// so that K and V are read once for all of them. The waves take blocks of keys in turn and do not talk to
// each other until the end, so that the main loop has neither barriers nor LDS:
//
//   phase            a wave, for each block of 32 keys              registers (16 bits, head dim 128)
//   K                loads 16 bytes a lane, straight into the       2 tiles * 4 * 4
//                    layout in which the MFMA takes them
//   S^T = K Q^T      MFMA 16x16x16; a lane has four keys of one     Q: 16, S: 2 * 4
//                    row, and the next block's K is asked for
//   P                maximum and sum of a row are of four lanes;    2 * 2
//                    the sum is put off to the end
//   V                loads 16 bytes a lane, whole rows              2 tiles * 4 * 4
//   O^T += V^T P^T   four keys by eight dims are turned inside of   O: 32
//                    a lane by v_perm_b32; P^T is in the layout
//                    that S^T came in
//   end              the waves' O, maxima and sums meet in LDS      34 KB
//
// Why it should reach the rate of the memory: a block of 32 keys is 16 KB of K and V at head dim 128, in 580
// instructions of a wave, counted on the software device. A SIMD that issues one in four cycles takes 2300
// cycles for it: four SIMDs read 28 bytes a cycle, and 304 compute units at 2.1 GHz 18 TB/s, of which 5.3 are
// to be had. K of the next block is on its way while P is computed, and V while S is, so that a wave has 8 to
// 16 KB in flight, and a compute unit with two workgroups 64 KB or more.
#pragma once

#include <hip/hip_runtime.h>

#include "args/decode.h"
#include "hip/numbers.h"

namespace fmha {

inline constexpr int kDecodeRows = 16;
inline constexpr int kDecodeWaves = 4;
inline constexpr int kDecodeBlock = 64 * kDecodeWaves;
inline constexpr int kTileKeys = 16;  // of an MFMA

using Float4 = __attribute__((ext_vector_type(4))) float;
using Dwords2 = __attribute__((ext_vector_type(2))) uint32_t;
using Dwords4 = __attribute__((ext_vector_type(4))) uint32_t;
using Half4 = __attribute__((ext_vector_type(4))) _Float16;
using Short4 = __attribute__((ext_vector_type(4))) short;

// a (16 x 16) times b (16 x 16), added to c. Of a, a lane has row lane % 16 and columns lane / 16 * 4 on; of
// b the same with rows and columns exchanged; of c column lane % 16 and rows lane / 16 * 4 on.
template <typename T>
__device__ inline Float4 multiply(Dwords2 a, Dwords2 b, Float4 c) {
  if constexpr (__is_same(T, Fp16)) {
    return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Half4, a), __builtin_bit_cast(Half4, b),
                                                 c, 0, 0, 0);
  } else {
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Short4, a),
                                                     __builtin_bit_cast(Short4, b), c, 0, 0, 0);
  }
}

// Two numbers from 0 to 1, to nearest; of two equally near ones bf16 takes the larger.
template <typename T>
__device__ inline uint32_t rounded_pair(float low, float high) {
  if constexpr (__is_same(T, Fp16)) {
    using Half2 = __attribute__((ext_vector_type(2))) _Float16;
    return __builtin_bit_cast(uint32_t, Half2{static_cast<_Float16>(low), static_cast<_Float16>(high)});
  } else {
    return __builtin_amdgcn_perm(__builtin_bit_cast(uint32_t, high) + 0x8000,
                                 __builtin_bit_cast(uint32_t, low) + 0x8000, 0x07060302);
  }
}

__device__ inline float max_of_row(float x) {
  x = __builtin_fmaxf(x, __shfl_xor(x, 16));
  return __builtin_fmaxf(x, __shfl_xor(x, 32));
}
__device__ inline float sum_of_row(float x) {
  x += __shfl_xor(x, 16);
  return x + __shfl_xor(x, 32);
}

// One instance: head dims up to kQ and kV, T of q and of the cache.
template <typename T, int kQ, int kV>
class Decode {
  static constexpr int kBlockTiles = kQ > 256 ? 1 : 2;  // of a step of a wave
  static constexpr int kBlockKeys = kTileKeys * kBlockTiles;
  static constexpr int kChunks = kQ / 32;                       // of a key that a lane loads
  static constexpr int kEach = kV >= 128 ? 8 : kV / 16;         // dims of a value that a lane loads at once
  static constexpr int kParts = kV / 16 / kEach;                // loads a value
  static constexpr int kPartsAtOnce = kParts > 2 ? 2 : kParts;  // of those, as registers allow
  static constexpr int kTilesO = kEach * kParts;                // 16 dims each
  static constexpr int kPart = kEach * 16;                      // dims of a load
  static constexpr int kMeet = kEach > 4 ? 4 : kEach;  // dims of a lane's kEach that meet in LDS at once
  static constexpr int kPitch = kMeet * 16 + 4;        // of a row there, against bank conflicts
  static constexpr float kLog2e = 1.44269504088896340736F;
  static constexpr float kLn2 = 0.69314718055994530942F;
  static_assert(kQ % 32 == 0 && kV % 16 == 0 && kV / 16 % kEach == 0);

  struct Shared {
    float o[kDecodeWaves][kDecodeRows][kPitch];
    float max[kDecodeWaves][kDecodeRows];
    float sum[kDecodeWaves][kDecodeRows];
  };

  using Value = __attribute__((ext_vector_type(kEach / 2))) uint32_t;

 public:
  static constexpr int kTileN = kDecodeWaves * kBlockKeys;

  __device__ static void run() {
    __shared__ Shared shared;
    Decode d(arguments());
    if (!d.find()) return;
    d.load_q();
    d.walk();
    d.meet(shared);
  }

 private:
  __device__ explicit Decode(const DecodeParams& params) : p(params) {}

  // The kernel's arguments, at an address that the compiler takes for another one each time: it would load
  // them all at the beginning, keep them until the end, and spill.
  __device__ static const DecodeParams& arguments() {
    auto* address = __builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(address));
    return *reinterpret_cast<const DecodeParams*>(address);
  }

  // What this workgroup does; false: there is no such row.
  __device__ bool find() {
    const int b = blockIdx.z;
    split = blockIdx.x % p.splits;
    first_row = static_cast<int>(blockIdx.x / p.splits) * kDecodeRows;
    q_base = 0;
    seqlen_q = p.seqlen_q;
    if (p.cu_q != nullptr) {
      q_base = p.cu_q[b];
      seqlen_q = p.cu_q[b + 1] - p.cu_q[b];
    }
    rows = seqlen_q * p.nhead_ratio;
    if (first_row >= rows) return false;
    begin_k = p.first_k ? p.first_k[b] : 0;
    end_k = p.used_k ? p.used_k[b] : p.seqlen_k;
    page = p.indices ? p.indices[b] : b;
    table = nullptr;
    if (p.table != nullptr) table = p.table + (p.indptr ? p.indptr[b] : b * p.table_stride);
    k = static_cast<const T*>(p.k) + blockIdx.y * p.k_strides.nhead;
    v = static_cast<const T*>(p.v) + blockIdx.y * p.v_strides.nhead;
    find_range();
    return true;
  }

  // A row's token and query head within the group.
  __device__ int token_of(int row) const { return row / p.nhead_ratio; }

  // Keys that a token's rows see, and blocks of keys that any row of the tile does.
  __device__ int first_seen(int token) const {
    const int own = token + end_k - seqlen_q;
    return p.window_left < 0 ? begin_k : max(begin_k, own - p.window_left);
  }
  __device__ int last_seen(int token) const {
    const int own = token + end_k - seqlen_q;
    return p.window_right < 0 ? end_k - 1 : min(end_k - 1, own + p.window_right);
  }

  __device__ void find_range() {
    const int row = min(first_row + lane() % kDecodeRows, rows - 1);
    token = token_of(row);
    head = row - token * p.nhead_ratio + static_cast<int>(blockIdx.y) * p.nhead_ratio;
    seen_from = first_seen(token);
    seen_to = last_seen(token);
    tile_from = first_seen(token_of(first_row));
    tile_to = last_seen(token_of(min(first_row + kDecodeRows, rows) - 1));
    const int from = tile_from / kBlockKeys;
    const int blocks = tile_to < tile_from ? 0 : tile_to / kBlockKeys - from + 1;
    const int each = (blocks + p.splits - 1) / p.splits;
    first_block = from + split * each;
    last_block = from + min(split * each + each, blocks);
  }

  __device__ static int lane() { return threadIdx.x % 64; }
  __device__ static int wave() { return __builtin_amdgcn_readfirstlane(threadIdx.x / 64); }
  __device__ static int quarter() { return lane() / 16; }

  // ---- Loads.

  // Dims of a chunk of 32 that this lane has: eight, which are four of each of two MFMAs.
  __device__ int dim_of_chunk(int chunk) const { return chunk * 32 + quarter() * 8; }

  __device__ void load_q() {
    const T* row = static_cast<const T*>(p.q) + head * p.q_strides.nhead + (q_base + token) * p.q_strides.row;
    if (p.cu_q == nullptr) row += blockIdx.z * p.q_strides.batch;
    _Pragma("unroll") for (int i = 0; i < kChunks; ++i) {
      const int dim = dim_of_chunk(i);
      q[i] = dim < p.hdim_q ? *reinterpret_cast<const Dwords4*>(row + dim) : Dwords4{};
    }
  }

  // Where a token of the sequence lies, from the beginning of its head.
  __device__ int64_t offset_of(int at, const CacheStrides& s) const {
    const int slot = at & static_cast<int>((1U << p.page_shift) - 1);
    const int64_t which = table ? table[at >> p.page_shift] : page;
    return which * s.page + slot * s.token;
  }

  // Rows of a tile that no row of queries sees are read as one that some row does: what lies there, if it is
  // memory at all, may be NaN, and NaN times 0 is NaN.
  __device__ int within(int at) const { return min(max(at, tile_from), tile_to); }

  // The tokens of a tile lie in one page if pages have at least 16: its number is then one scalar load.
  __device__ bool is_whole() const { return p.page_shift >= 4; }

  __device__ const T* key_at(int tile) const {
    const int at = within(tile + lane() % 16);
    if (!is_whole()) return k + offset_of(at, p.k_strides);
    const int first = __builtin_amdgcn_readfirstlane(within(tile));
    return k + offset_of(first, p.k_strides) + (at - first) * p.k_strides.token;
  }

  __device__ void load_keys(int block) {
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      const int tile = block * kBlockKeys + t * kTileKeys;
      const T* key = key_at(tile);
      _Pragma("unroll") for (int i = 0; i < kChunks; ++i) {
        const int dim = dim_of_chunk(i);
        keys[t][i] = *reinterpret_cast<const Dwords4*>(key + (dim < p.hdim_q ? dim : 0));
      }
    }
  }

  // Parts of the values that are on their way together.
  __device__ void load_values(int block, int first_part) {
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      const int tile = block * kBlockKeys + t * kTileKeys;
      const int first = __builtin_amdgcn_readfirstlane(within(tile));
      const T* whole = is_whole() ? v + offset_of(first, p.v_strides) : nullptr;
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        const int at = within(tile + quarter() * 4 + i);
        const T* value =
            is_whole() ? whole + (at - first) * p.v_strides.token : v + offset_of(at, p.v_strides);
        _Pragma("unroll") for (int part = 0; part < kPartsAtOnce; ++part) {
          const int dim = (first_part + part) * kPart + lane() % 16 * kEach;
          values[t][part][i] = *reinterpret_cast<const Value*>(value + (dim < p.hdim_v ? dim : 0));
        }
      }
    }
  }

  // ---- The main loop.

  __device__ void walk() {
    _Pragma("unroll") for (auto& tile : o) tile = Float4{};
    row_max = -__builtin_inff();
    row_sum = 0;
    int block = first_block + wave();
    if (block >= last_block) return;
    load_keys(block);
    for (; block < last_block; block += kDecodeWaves) {
      load_values(block, 0);
      Float4 s[kBlockTiles];
      scores(s);
      const int next = block + kDecodeWaves;
      if (next < last_block) load_keys(next);
      _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t)
          change(s[t], block * kBlockKeys + t * kTileKeys);
      Dwords2 p_t[kBlockTiles];
      exponentials(s, p_t);
      add_values(p_t, 0);
      _Pragma("unroll") for (int part = kPartsAtOnce; part < kParts; part += kPartsAtOnce) {
        load_values(block, part);
        add_values(p_t, part);
      }
    }
  }

  __device__ void scores(Float4 (&s)[kBlockTiles]) const {
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      s[t] = Float4{};
      _Pragma("unroll") for (int i = 0; i < kChunks; ++i) {
        s[t] = multiply<T>(keys[t][i].xy, q[i].xy, s[t]);
        s[t] = multiply<T>(keys[t][i].zw, q[i].zw, s[t]);
      }
    }
  }

  // Scores to base-2 exponents: scale, softcap, ALiBi, mask. A lane has keys quarter * 4 on of its row.
  __device__ void change(Float4& s, int tile) const {
    const int at = tile + quarter() * 4;
    if (p.softcap != 0) {
      const float to_two = 2 * kLog2e * p.scale / p.softcap;
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        s[i] = p.softcap * kLog2e * (1 - 2 / (__builtin_amdgcn_exp2f(s[i] * to_two) + 1));
      }
    } else {
      s *= p.scale * kLog2e;
    }
    if (p.alibi != nullptr) {
      const float slope = p.alibi[static_cast<int64_t>(blockIdx.z) * p.alibi_stride_batch + head] * kLog2e;
      const int own = token + end_k - seqlen_q;
      _Pragma("unroll") for (int i = 0; i < 4; ++i) s[i] -=
          slope * __builtin_fabsf(static_cast<float>(at + i - own));
    }
    const bool all_seen = tile >= seen_from && tile + kTileKeys - 1 <= seen_to;
    if (__all(all_seen)) return;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      if (at + i < seen_from || at + i > seen_to) s[i] = -__builtin_inff();
    }
  }

  // P of the scores, and what it changes of the sums so far.
  __device__ void exponentials(Float4 (&s)[kBlockTiles], Dwords2 (&p_t)[kBlockTiles]) {
    float most = row_max;
    for (const auto& tile : s) {
      _Pragma("unroll") for (int i = 0; i < 4; ++i) most = __builtin_fmaxf(most, tile[i]);
    }
    most = max_of_row(most);
    const float shift = most == -__builtin_inff() ? 0 : most;
    const float factor = __builtin_amdgcn_exp2f(row_max - shift);
    row_max = most;
    row_sum *= factor;
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        s[t][i] = __builtin_amdgcn_exp2f(s[t][i] - shift);
        row_sum += s[t][i];
      }
      p_t[t] = {rounded_pair<T>(s[t][0], s[t][1]), rounded_pair<T>(s[t][2], s[t][3])};
    }
    if (__any(factor != 1)) {
      _Pragma("unroll") for (auto& tile : o) tile *= factor;
    }
  }

  // Four keys by kEach dims are four keys of one dim, kEach times.
  __device__ void add_values(const Dwords2 (&p_t)[kBlockTiles], int first_part) {
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      _Pragma("unroll") for (int part = 0; part < kPartsAtOnce; ++part) {
        const auto& x = values[t][part];
        _Pragma("unroll") for (int j = 0; j < kEach; ++j) {
          const uint32_t select = j % 2 == 0 ? 0x05040100 : 0x07060302;
          const Dwords2 v_t = {__builtin_amdgcn_perm(x[1][j / 2], x[0][j / 2], select),
                               __builtin_amdgcn_perm(x[3][j / 2], x[2][j / 2], select)};
          auto& tile = o[(first_part + part) * kEach + j];
          tile = multiply<T>(v_t, p_t[t], tile);
        }
      }
    }
  }

  // ---- The end. A lane has of O dims (quarter * 4 + i) * kEach + j of each part, of row lane % 16.

  __device__ void meet(Shared& shared) {
    const int row = lane() % kDecodeRows;
    row_sum = sum_of_row(row_sum);
    add_sink();
    if (quarter() == 0) {
      shared.max[wave()][row] = row_max;
      shared.sum[wave()][row] = row_sum;
    }
    __syncthreads();
    const float all_max = most_of(shared, row);
    const float factor = row_max == -__builtin_inff() ? 0 : __builtin_amdgcn_exp2f(row_max - all_max);
    _Pragma("unroll") for (int first = 0; first < kTilesO; first += kMeet) {
      if (first > 0) __syncthreads();
      float* to = shared.o[wave()][row];
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        _Pragma("unroll") for (int j = 0; j < kMeet; ++j) {
          to[(quarter() * 4 + i) * kMeet + j] = o[first + j][i] * factor;
        }
      }
      __syncthreads();
      store(shared, first);
    }
  }

  // A logit without a value: once for each row.
  __device__ void add_sink() {
    if (p.sinks == nullptr || split != 0 || wave() != 0) return;
    const float sink = p.sinks[head] * kLog2e;
    const float most = __builtin_fmaxf(row_max, sink);
    if (most == -__builtin_inff()) return;
    const float factor = __builtin_amdgcn_exp2f(row_max - most);
    row_sum = row_sum * factor + __builtin_amdgcn_exp2f(sink - most);
    _Pragma("unroll") for (auto& tile : o) tile *= factor;
    row_max = most;
  }

  __device__ static float most_of(const Shared& shared, int row) {
    float most = shared.max[0][row];
    for (int w = 1; w < kDecodeWaves; ++w) most = __builtin_fmaxf(most, shared.max[w][row]);
    return most;
  }

  // A thread has kMeet dims of a row, of the tiles of O from `first` on.
  __device__ void store(const Shared& shared, int first) const {
    const DecodeParams& p = arguments();
    const int tile_row = threadIdx.x / 16, column = threadIdx.x % 16;
    const int row = first_row + tile_row;
    if (row >= rows) return;
    const int row_token = token_of(row);
    const int row_head = row - row_token * p.nhead_ratio + static_cast<int>(blockIdx.y) * p.nhead_ratio;
    const float most = most_of(shared, tile_row);
    float sum = 0;
    if (most != -__builtin_inff()) {
      _Pragma("unroll") for (int w = 0; w < kDecodeWaves; ++w) {
        sum += shared.sum[w][tile_row] * __builtin_amdgcn_exp2f(shared.max[w][tile_row] - most);
      }
    }
    const float factor = sum > 0 ? 1 / sum : 0;
    float x[kMeet] = {};
    _Pragma("unroll") for (int w = 0; w < kDecodeWaves; ++w) {
      _Pragma("unroll") for (int i = 0; i < kMeet; ++i) x[i] += shared.o[w][tile_row][column * kMeet + i];
    }
    _Pragma("unroll") for (int i = 0; i < kMeet; ++i) x[i] *= factor;
    const int dim = first / kEach * kPart + column * kEach + first % kEach;
    const int64_t batch = p.cu_q == nullptr ? blockIdx.z : 0;
    if (dim < p.hdim_v) {
      store_row(p, x,
                split * p.o_split + batch * p.o_strides.batch + row_head * p.o_strides.nhead +
                    (q_base + row_token) * p.o_strides.row + dim);
    }
    if (first == 0 && column == 0 && p.lse != nullptr) {
      const float lse = sum > 0 ? (most + __builtin_amdgcn_logf(sum)) * kLn2 : -__builtin_inff();
      p.lse[split * p.lse_split + batch * p.lse_strides.batch + row_head * p.lse_strides.nhead + q_base +
            row_token] = lse;
    }
  }

  __device__ static void store_row(const DecodeParams& p, const float (&x)[kMeet], int64_t to) {
    if (p.splits > 1) {
      auto* out = static_cast<float*>(p.o) + to;
      _Pragma("unroll") for (int i = 0; i < kMeet; ++i) out[i] = x[i];
      return;
    }
    auto* out = static_cast<T*>(p.o) + to;
    _Pragma("unroll") for (int i = 0; i < kMeet; ++i) round_to(out[i], x[i]);
  }

  const DecodeParams& p;
  const T* k;
  const T* v;
  const int32_t* table;
  int64_t q_base;
  int split, page, seqlen_q, begin_k, end_k;
  int rows, first_row;          // of the workgroup's sequence and key head; of its tile
  int token, head;              // of this lane's row
  int seen_from, seen_to;       // keys that it sees, both included
  int tile_from, tile_to;       // keys that any row of the tile sees
  int first_block, last_block;  // of this split
  Dwords4 q[kChunks];
  Dwords4 keys[kBlockTiles][kChunks];
  Value values[kBlockTiles][kPartsAtOnce][4];
  Float4 o[kTilesO];
  float row_max, row_sum;  // of this lane's keys
};

// What the host must know of an instance, read out of the code object by the build (native/tools/report.py).
struct DecodeFacts {
  int32_t block_size, tile_m, tile_n, hdim_q, hdim_v;
};

}  // namespace fmha

// FMHA_DECODE_KERNEL(symbol, type of q and of the cache, head dims of the tile): one kernel and its facts.
#define FMHA_DECODE_KERNEL(entry, type, hdim_q, hdim_v)                                              \
  extern "C" __device__ __attribute__((used, visibility("protected")))                               \
  const fmha::DecodeFacts entry##_facts = {fmha::kDecodeBlock, fmha::kDecodeRows,                    \
                                           fmha::Decode<fmha::type, hdim_q, hdim_v>::kTileN, hdim_q, \
                                           hdim_v};                                                  \
  extern "C" __global__ __launch_bounds__(fmha::kDecodeBlock) void entry(fmha::DecodeParams) {       \
    fmha::Decode<fmha::type, hdim_q, hdim_v>::run();                                                 \
  }
