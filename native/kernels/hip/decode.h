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
// Of 8-bit caches K and V are widened in registers; of vectorised ones values come as the MFMA takes them and
// are not turned (see hip/decode_cache.h).
//
// Why it should reach the rate of the memory: a block of 32 keys is 16 KB of K and V at head dim 128, in some
// 700 instructions of a wave. Issuing alone, four SIMDs would read 13 TB/s on 304 compute units at 2.1 GHz,
// of which HBM gives 5.3: `pyfa-rocm bench decode` counts it, and docs/python.md has the arithmetic. K of the
// next block is on its way while P is computed, and V while S is, so that a wave has 8 to 16 KB in flight,
// and a compute unit with two workgroups 64 KB or more.
#pragma once

#include <hip/hip_runtime.h>

#include "args/decode.h"
#include "hip/decode_cache.h"
#include "hip/decode_numbers.h"

namespace fmha {

inline constexpr int kDecodeRows = 16;
inline constexpr int kDecodeWaves = 4;
inline constexpr int kDecodeBlock = 64 * kDecodeWaves;

__device__ inline float max_of_row(float x) {
  x = __builtin_fmaxf(x, __shfl_xor(x, 16));
  return __builtin_fmaxf(x, __shfl_xor(x, 32));
}
__device__ inline float sum_of_row(float x) {
  x += __shfl_xor(x, 16);
  return x + __shfl_xor(x, 32);
}

// One instance: head dims up to kQ and kV, T of q, C of the cache, and how a wave reads that.
template <typename T, typename C, int kQ, int kV, template <typename, typename, int, int> class Layout>
class Decode {
  using Reader = Layout<T, C, kQ, kV>;
  static constexpr int kBlockTiles = Reader::kTiles;  // of a step of a wave
  static constexpr int kBlockKeys = Reader::kKeys;
  static constexpr int kEach = Reader::kEach;
  static constexpr int kParts = Reader::kParts;
  static constexpr int kPartsAtOnce = Reader::kPartsAtOnce;
  static constexpr int kTilesO = kEach * kParts;  // 16 dims each
  static constexpr int kMeet = Reader::kMeet;
  static constexpr int kPitch = kMeet * 16 + 4;  // of a row in LDS, against bank conflicts
  static constexpr float kLog2e = 1.44269504088896340736F;

  struct Shared {
    float o[kDecodeWaves][kDecodeRows][kPitch];
    float max[kDecodeWaves][kDecodeRows];
    float sum[kDecodeWaves][kDecodeRows];
  };

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
    end_k = length_k(b);
    place.page = p.indices ? p.indices[b] : b;
    place.page_shift = p.page_shift;
    place.table = nullptr;
    if (p.table != nullptr) place.table = p.table + (p.indptr ? p.indptr[b] : b * p.table_stride);
    k = static_cast<const C*>(p.k) + blockIdx.y * p.k_strides.nhead;
    v = static_cast<const C*>(p.v) + blockIdx.y * p.v_strides.nhead;
    find_scales();
    find_range();
    return true;
  }

  __device__ int length_k(int b) const {
    if (p.used_k != nullptr) return p.used_k[b] + p.seqlen_new;
    if (p.cu_k != nullptr) return p.cu_k[b + 1] - p.cu_k[b] + p.seqlen_new;
    return p.seqlen_k;
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
    place.from = first_seen(token_of(first_row));
    place.to = last_seen(token_of(min(first_row + kDecodeRows, rows) - 1));
    const int from = place.from / kBlockKeys;
    const int blocks = place.to < place.from ? 0 : place.to / kBlockKeys - from + 1;
    const int each = (blocks + p.splits - 1) / p.splits;
    first_block = from + split * each;
    last_block = from + min(split * each + each, blocks);
  }

  __device__ static int lane() { return decode_lane(); }
  __device__ static int quarter() { return decode_quarter(); }
  __device__ static int wave() { return __builtin_amdgcn_readfirstlane(threadIdx.x / 64); }

  __device__ void load_q() {
    const T* row = static_cast<const T*>(p.q) + head * p.q_strides.nhead + (q_base + token) * p.q_strides.row;
    if (p.cu_q == nullptr) row += blockIdx.z * p.q_strides.batch;
    constexpr int kOfChunk = Reader::kDims / 8;
    _Pragma("unroll") for (int i = 0; i < kQ / 32; ++i) {
      const int dim = Reader::key_dim(i / kOfChunk) + i % kOfChunk * 8;
      q[i] = dim < p.hdim_q ? *reinterpret_cast<const Dwords4*>(row + dim) : Dwords4{};
    }
  }

  // ---- Scales of an 8-bit cache. Those of keys are multiplied to scores, those of values to P: P, which is
  // rounded, to a fraction of `unit`, the power of two above the largest so far, and O at the end to unit.

  __device__ void find_scales() {
    scale = p.scale;
    unit = 1;
    if constexpr (Reader::kWidens) {
      if (p.scale_per_page) {
        unit = p.v_scale != nullptr ? 0 : 1;
        return;
      }
      if (p.k_scale != nullptr) scale *= p.k_scale[scale_at(p.k_scale_strides, blockIdx.z)];
      if (p.v_scale != nullptr) unit = p.v_scale[scale_at(p.v_scale_strides, blockIdx.z)];
    }
  }

  __device__ static int64_t scale_at(const ScaleStrides& s, int64_t page) {
    return page * s.page + blockIdx.y * s.nhead;
  }

  // Of the four keys at `at` of a tile.
  __device__ Float4 page_scales(const float* scales, const ScaleStrides& s, int at) const {
    const auto of = [&](int token) { return scales[scale_at(s, place.page_of(place.within(token)))]; };
    Float4 four;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) four[i] = of(at + i);
    return four;
  }

  __device__ bool scales_pages(const float* scales) const {
    return Reader::kWidens && p.scale_per_page && scales != nullptr;
  }

  // What P is to be multiplied with, and the factor on the sums so far.
  __device__ float scale_values(int block, Float4 (&fractions)[kBlockTiles]) {
    float most = unit;
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      fractions[t] = page_scales(p.v_scale, p.v_scale_strides, Reader::scored(block, t));
      _Pragma("unroll") for (int i = 0; i < 4; ++i) most = __builtin_fmaxf(most, fractions[t][i]);
    }
    most = max_of_row(most);
    constexpr uint32_t kExponent = 0x7f800000, kOne = 0x00800000;
    const float next =
        most == unit ? unit
                     : __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, most) & kExponent) + kOne);
    const float inverse = next == 0 ? 0 : 1 / next;
    for (auto& tile : fractions) tile *= inverse;
    const float factor = unit * inverse;
    unit = next;
    return factor;
  }

  // ---- The main loop.

  __device__ void walk() {
    _Pragma("unroll") for (auto& tile : o) tile = Float4{};
    row_max = -__builtin_inff();
    row_sum = 0;
    int block = first_block + wave();
    if (block >= last_block) return;
    cache.load_keys(p, place, k, block);
    for (; block < last_block; block += kDecodeWaves) {
      cache.load_values(p, place, v, block, 0);
      Float4 s[kBlockTiles];
      scores(s);
      const int next = block + kDecodeWaves;
      if (next < last_block) cache.load_keys(p, place, k, next);
      _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) change(s[t], block, t);
      Dwords2 p_t[kBlockTiles];
      exponentials(s, block, p_t);
      cache.hide(place, block);
      add_values(p_t, 0);
      _Pragma("unroll") for (int part = kPartsAtOnce; part < kParts; part += kPartsAtOnce) {
        cache.load_values(p, place, v, block, part);
        add_values(p_t, part);
      }
    }
  }

  __device__ void scores(Float4 (&s)[kBlockTiles]) const {
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      s[t] = Float4{};
      _Pragma("unroll") for (int i = 0; i < Reader::kSteps; ++i) {
        s[t] = multiply<T>(cache.key(t, i), i % 2 == 0 ? q[i / 2].xy : q[i / 2].zw, s[t]);
      }
    }
  }

  // Scores to base-2 exponents: scale, softcap, ALiBi, mask. A lane has four keys of its row.
  __device__ void change(Float4& s, int block, int tile) const {
    const int at = Reader::scored(block, tile);
    if (scales_pages(p.k_scale)) s *= page_scales(p.k_scale, p.k_scale_strides, at);
    if (p.softcap != 0) {
      const float to_two = 2 * kLog2e * scale / p.softcap;
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        s[i] = p.softcap * kLog2e * (1 - 2 / (__builtin_amdgcn_exp2f(s[i] * to_two) + 1));
      }
    } else {
      s *= scale * kLog2e;
    }
    if (p.alibi != nullptr) {
      const float slope = p.alibi[static_cast<int64_t>(blockIdx.z) * p.alibi_stride_batch + head] * kLog2e;
      const int own = token + end_k - seqlen_q;
      _Pragma("unroll") for (int i = 0; i < 4; ++i) s[i] -=
          slope * __builtin_fabsf(static_cast<float>(at + i - own));
    }
    const int first = Reader::first(block, tile);
    const bool all_seen = first >= seen_from && first + Reader::kSpan - 1 <= seen_to;
    if (__all(all_seen)) return;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      if (at + i < seen_from || at + i > seen_to) s[i] = -__builtin_inff();
    }
  }

  // P of the scores, and what it changes of the sums so far.
  __device__ void exponentials(Float4 (&s)[kBlockTiles], int block, Dwords2 (&p_t)[kBlockTiles]) {
    float most = row_max;
    for (const auto& tile : s) {
      _Pragma("unroll") for (int i = 0; i < 4; ++i) most = __builtin_fmaxf(most, tile[i]);
    }
    most = max_of_row(most);
    const float shift = most == -__builtin_inff() ? 0 : most;
    float factor = __builtin_amdgcn_exp2f(row_max - shift);
    row_max = most;
    row_sum *= factor;
    _Pragma("unroll") for (auto& tile : s) {
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        tile[i] = __builtin_amdgcn_exp2f(tile[i] - shift);
        row_sum += tile[i];
      }
    }
    if (scales_pages(p.v_scale)) {
      Float4 fractions[kBlockTiles];
      factor *= scale_values(block, fractions);
      _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) s[t] *= fractions[t];
    }
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      p_t[t] = {rounded_pair<T>(s[t][0], s[t][1]), rounded_pair<T>(s[t][2], s[t][3])};
    }
    if (__any(factor != 1)) {
      _Pragma("unroll") for (auto& tile : o) tile *= factor;
    }
  }

  __device__ void add_values(const Dwords2 (&p_t)[kBlockTiles], int first_part) {
    _Pragma("unroll") for (int t = 0; t < kBlockTiles; ++t) {
      _Pragma("unroll") for (int part = 0; part < kPartsAtOnce; ++part) {
        _Pragma("unroll") for (int j = 0; j < kEach; ++j) {
          auto& tile = o[(first_part + part) * kEach + j];
          tile = multiply<T>(cache.value(t, part, j), p_t[t], tile);
        }
      }
    }
  }

  // ---- The end. A lane has of each tile of O four rows, which are dims, of query lane % 16.

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
    const float factor = row_max == -__builtin_inff() ? 0 : __builtin_amdgcn_exp2f(row_max - all_max) * unit;
    _Pragma("unroll") for (int first = 0; first < kTilesO; first += kMeet) {
      if (first > 0) __syncthreads();
      float* to = shared.o[wave()][row];
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        _Pragma("unroll") for (int j = 0; j < kMeet; ++j) {
          to[Reader::place_of(quarter() * 4 + i, j)] = o[first + j][i] * factor;
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
    const int dim = Reader::dim_of(first, column);
    const int64_t batch = p.cu_q == nullptr ? blockIdx.z : 0;
    if (dim < p.hdim_v) {
      store_row(p, x,
                split * p.o_split + batch * p.o_strides.batch + row_head * p.o_strides.nhead +
                    (q_base + row_token) * p.o_strides.row + dim);
    }
    if (first == 0 && column == 0 && p.lse != nullptr) {
      const float lse = sum > 0 ? (most + __builtin_amdgcn_logf(sum)) * p.lse_unit : -__builtin_inff();
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
  const C* k;  // of this workgroup's head
  const C* v;
  DecodePlace place;
  int64_t q_base;
  int split, seqlen_q, begin_k, end_k;
  int rows, first_row;          // of the workgroup's sequence and key head; of its tile
  int token, head;              // of this lane's row
  int seen_from, seen_to;       // keys that it sees, both included
  int first_block, last_block;  // of this split
  Dwords4 q[kQ / 32];
  Reader cache;
  Float4 o[kTilesO];
  float row_max, row_sum;  // of this lane's keys
  float scale;             // of scores
  float unit;              // of O
};

// What the host must know of an instance, read out of the code object by the build (native/tools/report.py).
struct DecodeFacts {
  int32_t block_size, tile_m, tile_n, hdim_q, hdim_v;
};

}  // namespace fmha

// FMHA_DECODE_KERNEL(symbol, type of q, of the cache, head dims of the tile, layout of the cache): one kernel
// and its facts.
#define FMHA_DECODE_KERNEL(entry, type, cache, hdim_q, hdim_v, layout)                                  \
  using entry##_type = fmha::Decode<fmha::type, fmha::cache, hdim_q, hdim_v, fmha::layout>;             \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                  \
  const fmha::DecodeFacts entry##_facts = {fmha::kDecodeBlock, fmha::kDecodeRows, entry##_type::kTileN, \
                                           hdim_q, hdim_v};                                             \
  extern "C" __global__ __launch_bounds__(fmha::kDecodeBlock) void entry(fmha::DecodeParams) {          \
    entry##_type::run();                                                                                \
  }
