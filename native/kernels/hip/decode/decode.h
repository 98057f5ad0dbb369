// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention of a few queries over a KV cache that lies in pages, or in one piece.
//
// A workgroup has four waves and 16 rows (or 32, or 64, in tiles of 16): the query heads of one key head's
// group, of one or several tokens, so that K and V are read once for all of them. The waves take blocks of
// keys in turn and do not talk to each other until the end, so that the main loop has neither barriers nor
// LDS:
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
// More rows are for prompts and drafts: each tile of 16 has its own Q, S, P and O, while K and V are read,
// and V turned, once. 32 rows are what 256 registers hold at head dim 128, and 64 at 64: per row 1.6 and 2.4
// times fewer instructions, and two and four times fewer reads of the cache.
//
// K and V of 8-bit caches are widened in registers; values of vectorised ones come as the MFMA takes them and
// are not turned (see hip/decode/decode_cache.h).
//
// Why it should reach the rate of the memory: a block of 32 keys is 16 KB of K and V at head dim 128, in some
// 530 instructions of a wave. Issuing alone, four SIMDs would read 16 TB/s on 304 compute units at 2.1 GHz,
// of which HBM gives 5.3: `pyfa-rocm bench decode` counts it, and docs/python.md has the arithmetic. K of the
// next block is on its way while P is computed, and V while S is, so that a wave has 8 to 16 KB in flight,
// and a compute unit with two workgroups 64 KB or more.
#pragma once

#include "common/device.h"
#include "hip/decode/decode_tile.h"

namespace fmha {

inline constexpr int kDecodeWaves = 4;
inline constexpr int kDecodeBlock = kDecodeLanes * kDecodeWaves;

// One instance: head dims up to kQ and kV, T of q, C of the cache, how a wave reads that, and how many rows.
template <typename T, typename C, int kQ, int kV, template <typename, typename, int, int> class Layout,
          int kRows>
class Decode {
  using Reader = Layout<T, C, kQ, kV>;
  using Tile = DecodeTile<T, Reader, kQ>;
  static constexpr int kTiles = kRows / kDecodeTileRows;
  static constexpr int kPartsAtOnce = Reader::kPartsAtOnce;
  static constexpr int kMeet = Reader::kMeet;
  static constexpr int kPitch = kMeet * 16 + 4;  // of a row in LDS, against bank conflicts
  static_assert(kRows % kDecodeTileRows == 0);

  struct Shared {
    float o[kDecodeWaves][kDecodeTileRows][kPitch];
    float max[kDecodeWaves][kDecodeTileRows];
    float sum[kDecodeWaves][kDecodeTileRows];
  };
  using P = typename Tile::P;
  static constexpr int kSlices = Reader::kSlices;
  static constexpr int kStreams = kDecodeWaves / kSlices;  // that keys are dealt to

 public:
  static constexpr int kTileN = kStreams * Reader::kKeys;

  __device__ static void run() {
    __shared__ Shared shared;
    __shared__ typename Tile::Q::Shared q[kTiles];
    Decode d(decode_arguments());
    if (!d.begin(q)) return;
    d.walk();
    _Pragma("unroll") for (int i = 0; i < kTiles; ++i) {
      if (i > 0) __syncthreads();
      d.meet(shared, d.tiles[i], i * kDecodeTileRows);
    }
  }

 private:
  __device__ explicit Decode(const DecodeParams& params) : p(params), work(params) {}

  __device__ static int stream() { return decode_wave() / kSlices; }

  // Finds the workgroup's rows and keys. False: there is no such row.
  __device__ bool begin(typename Tile::Q::Shared (&q)[kTiles]) {
    if (!work.find(kRows)) return false;
    k = static_cast<const C*>(p.k) + blockIdx.y * p.k_strides.nhead;
    v = static_cast<const C*>(p.v) + blockIdx.y * p.v_strides.nhead;
    float unit = 1;
    work.find_scales(Reader::kWidens, unit);
    _Pragma("unroll") for (int i = 0; i < kTiles; ++i) {
      tiles[i].begin(work, work.first_row + i * kDecodeTileRows, unit, q[i]);
    }
    Tile::Q::wait();
    work.find_range(kRows, Reader::kKeys);
    return true;
  }

  // ---- The main loop.

  __device__ void walk() {
    const DecodePlace& place = work.place;
    int block = work.first_block + stream();
    if (block >= work.last_block) return;
    cache.ask(place, block);
    cache.load_keys(p, place, k, block, 0);
    for (; block < work.last_block; block += kStreams) {
      cache.advance();
      if (block + kStreams < work.last_block) cache.ask(place, block + kStreams);
      if (Reader::kValuesEarly) cache.load_values(p, place, v, block, 0);
      typename Tile::Scores s[kTiles];
      _Pragma("unroll") for (int step = 0; step < Reader::kSteps; step += Reader::kStepsAtOnce) {
        if (step > 0) cache.load_keys(p, place, k, block, step);
        _Pragma("unroll") for (int i = 0; i < kTiles; ++i) tiles[i].scores(cache, step, s[i]);
      }
      if (!Reader::kValuesEarly) cache.load_values(p, place, v, block, 0);
      const int next = block + kStreams;
      if (next < work.last_block) cache.load_keys(p, place, k, next, 0);
      P p_t[kTiles];
      _Pragma("unroll") for (int i = 0; i < kTiles; ++i) {
        _Pragma("unroll") for (int t = 0; t < Reader::kTiles; ++t) tiles[i].change(work, s[i][t], block, t);
        tiles[i].exponentials(work, s[i], block, p_t[i]);
      }
      cache.hide(place, block);
      add_values(p_t, 0);
      _Pragma("unroll") for (int part = kPartsAtOnce; part < Reader::kParts; part += kPartsAtOnce) {
        cache.load_values(p, place, v, block, part);
        cache.hide(place, block);
        add_values(p_t, part);
      }
    }
  }

  __device__ void add_values(const P (&p_t)[kTiles], int first_part) {
    _Pragma("unroll") for (int t = 0; t < Reader::kTiles; ++t) {
      _Pragma("unroll") for (int part = 0; part < kPartsAtOnce; ++part) {
        _Pragma("unroll") for (int j = 0; j < Reader::kEach; ++j) {
          const auto value = cache.value(t, part, j);
          _Pragma("unroll") for (int i = 0; i < kTiles; ++i) {
            auto& o = tiles[i].o[(first_part + part) * Reader::kEach + j];
            o = multiply<T>(value, p_t[i][t], o);
            settle(o);
          }
        }
      }
    }
  }

  // ---- The end. A lane has of each tile of O kDecodeRun rows, which are dims, of query lane % 16.

  __device__ void meet(Shared& shared, Tile& tile, int first_row) {
    const int row = decode_lane() % kDecodeTileRows;
    tile.row_sum = sum_of_row(tile.row_sum);
    if (p.sinks != nullptr && work.split == 0 && stream() == 0) tile.add_sink(p.sinks);
    if (decode_part() == 0) {
      shared.max[decode_wave()][row] = tile.row_max;
      shared.sum[decode_wave()][row] = tile.row_sum;
    }
    __syncthreads();
    const float all_max = most_of(shared, row);
    const float factor =
        tile.row_max == -__builtin_inff() ? 0 : __builtin_amdgcn_exp2f(tile.row_max - all_max) * tile.unit;
    _Pragma("unroll") for (int first = 0; first < Tile::kTilesO; first += kMeet) {
      if (first > 0) __syncthreads();
      float* to = shared.o[decode_wave()][row];
      _Pragma("unroll") for (int i = 0; i < kDecodeRun; ++i) {
        _Pragma("unroll") for (int j = 0; j < kMeet; ++j) {
          to[Reader::place_of(decode_part() * kDecodeRun + i, j)] = tile.o[first + j][i] * factor;
        }
      }
      __syncthreads();
      _Pragma("unroll") for (int i = 0; i < kDecodeTileRows; i += kDecodeBlock / 16) {
        _Pragma("unroll") for (int slice = 0; slice < kSlices; ++slice) {
          store(shared, first_row, threadIdx.x / 16 + i, first, slice);
        }
      }
    }
  }

  __device__ static float most_of(const Shared& shared, int row) {
    float most = shared.max[0][row];
    for (int w = 1; w < kDecodeWaves; ++w) most = __builtin_fmaxf(most, shared.max[w][row]);
    return most;
  }

  // A thread has kMeet dims of a row, of a slice's tiles of O from `first` on.
  __device__ void store(const Shared& shared, int first_row, int tile_row, int first, int slice) const {
    const DecodeParams& p = decode_arguments();
    const int column = threadIdx.x % 16;
    const int row = work.first_row + first_row + tile_row;
    if (row >= work.rows) return;
    const int token = work.token_of(row), head = work.head_of(row, token);
    const float most = most_of(shared, tile_row);
    const float shift = most == -__builtin_inff() ? 0 : most;
    float sum = 0;
    _Pragma("unroll") for (int w = slice; w < kDecodeWaves; w += kSlices) {
      sum += shared.sum[w][tile_row] * __builtin_amdgcn_exp2f(shared.max[w][tile_row] - shift);
    }
    const float factor = sum == 0 ? 0 : 1 / sum;  // a NaN stays one, which a merge counts
    float x[kMeet] = {};
    _Pragma("unroll") for (int w = slice; w < kDecodeWaves; w += kSlices) {
      _Pragma("unroll") for (int i = 0; i < kMeet; ++i) x[i] += shared.o[w][tile_row][column * kMeet + i];
    }
    _Pragma("unroll") for (int i = 0; i < kMeet; ++i) x[i] *= factor;
    const int dim = slice * Reader::kSlice + Reader::dim_of(first, column);
    const int64_t batch = p.cu_q == nullptr ? grid_batch(p.turned) : 0;
    if (dim < p.hdim_v) {
      store_row(p, x,
                work.split * p.o_split + batch * p.o_strides.batch + head * p.o_strides.nhead +
                    (work.q_base + token) * p.o_strides.row + dim);
    }
    if (first == 0 && slice == 0 && column == 0 && p.lse != nullptr) {
      const float lse = sum == 0 ? -__builtin_inff() : (most + __builtin_amdgcn_logf(sum)) * p.lse_unit;
      p.lse[work.split * p.lse_split + batch * p.lse_strides.batch + head * p.lse_strides.nhead +
            work.q_base + token] = lse;
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
  DecodeWork work;
  Reader cache;
  Tile tiles[kTiles];
};

// Waves that a SIMD must have room for: beyond head dim 128 registers do for one.
constexpr int decode_waves_per_simd(int hdim) { return hdim <= 128 ? 2 : 1; }

}  // namespace fmha

// FMHA_DECODE_KERNEL(symbol, type of q, of the cache, head dims of the tile, layout of the cache, rows of a
// workgroup): one kernel and its facts.
#define FMHA_DECODE_KERNEL(entry, type, cache, hdim_q, hdim_v, layout, rows)                                \
  using entry##_type = fmha::Decode<fmha::type, fmha::cache, hdim_q, hdim_v, fmha::layout, rows>;           \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                      \
  const fmha::DecodeFacts entry##_facts = {fmha::kDecodeBlock, rows, entry##_type::kTileN, hdim_q, hdim_v}; \
  extern "C" __global__ __launch_bounds__(                                                                  \
      fmha::kDecodeBlock, fmha::decode_waves_per_simd(hdim_q)) void entry(fmha::DecodeParams) {             \
    entry##_type::run();                                                                                    \
  }
