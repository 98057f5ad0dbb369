// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h on gfx950: loads write LDS themselves, 16 bytes a lane, and reads turn V.
//
// A load's 64 lanes fill 1 KB of LDS in their order. So chunks are exchanged within a row by what each lane
// loads: where a chunk lies in LDS is the lane's choice of its address in memory. Both tensors lie as they
// do in memory, a row for a key.
//
// Q goes the same way, since a load of what the lanes need of it touches 32 rows, for 32 bytes of each; and O
// the other way, for the same reason.
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_rows.h"
#include "hip/fwd/fwd_pingpong_tiles.h"

namespace fmha {

inline constexpr bool kLoadsWriteLds = true;

// Keys of a tile: two tiles of each, and Q beside the first of K, in 160 KB.
template <int kHdimQ, int kHdimV>
inline constexpr int kPingpongKeys = kHdimV <= 128   ? 128
                                     : kHdimV <= 192 ? 64
                                                     : 32;
inline constexpr int kPingpongWideBuffers = 3;  // of head dim 256

// ds_read_b64_tr_b16: sixteen lanes read four keys by sixteen dims, a lane four dims of a key, and get four
// keys of a dim each. For 32 lanes that are served at a time four keys lie in different banks.
template <int kHdim, int kKeys>
struct ValueTile {
  using Shape = KeysInLds<kHdim, kKeys>;
  static constexpr int kRowBytes = Shape::kRowBytes, kBytes = Shape::kBytes;
  static constexpr bool kInOrder = false;  // a lane's numbers of O are of the dims of place_of_row
  static constexpr int kFirst = 0;         // the first of O's tiles that is multiplied

  __device__ static int exchange(int key, int chunk) {
    return chunk ^ (kExchanged<Shape::kChunks> == 16 ? (key & 3) << 2 : (key & 2) << 1);
  }

  // Where a lane begins to read.
  __device__ static int begin(int lane) {
    const int key = lane / 32 * 8 + lane % 16 / 4, dim = place_of_row((lane & 16) + lane % 4 * 4);
    return key * Shape::kRowBytes + exchange(key, dim / 8) * kChunk + dim % 8 * 2;
  }

  // Reads 32 dims of eight keys of 16: tile t of dims, and step `step` of keys.
  __device__ static Dwords4 read(const LdsByte* tile, int from, int step, int t) {
    using Short4InLds = __attribute__((address_space(3))) Short4;
    const LdsByte* at = chunk_behind<Shape::kChunks>(tile + from, t * 4) + step * 16 * Shape::kRowBytes;
    const auto four = [at](int i) {
      return __builtin_bit_cast(Dwords2, __builtin_amdgcn_ds_read_tr16_b64_v4i16(
                                             (Short4InLds*)(at + i * 4 * Shape::kRowBytes)));  // NOLINT
    };
    const Dwords2 low = four(0), high = four(1);
    return {low[0], low[1], high[0], high[1]};
  }
};

// A wave's part of each tile of K and V: a quarter of the half that its group does, in kLoads parts.
template <typename Tiles>
class Mover {
  using Keys = Tiles::Keys;
  using Values = Tiles::Values;
  static constexpr int kLoadBytes = 64 * kChunk, kWaves = Tiles::kWaves, kWavesOfGroup = kWaves / 2;
  static constexpr int kLoadsOfKeys = Keys::kBytes / (kWaves * kLoadBytes),
                       kLoadsOfValues = Values::kBytes / (kWaves * kLoadBytes);

 public:
  // One by one, between parts of the softmax: L1 takes 16 cycles for each, and four waves ask at a time. They
  // have the rest of the phase to arrive.
  static constexpr bool kMovesBetween = true;
  // Pairs of operands that are read ahead: two MFMA take 64 cycles, LDS twice as long.
  static constexpr int kAhead = 2;

  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    group = wave / kWavesOfGroup;
    of_group = wave % kWavesOfGroup;
    find_rows<Keys>(lane, k_row, hdim_q, k_from);
    find_rows<Values>(lane, v_row, hdim_v, v_from);
  }

  template <typename Owner>
  __device__ void first(const Owner& tiles) const {
    _Pragma("unroll") for (int i = 0; i < kLoadsOfKeys; ++i) load_keys(tiles, 0, i);
  }
  // K[n + 1] and V[n].
  template <typename Owner>
  __device__ void move(const Owner& tiles, int n) const {
    _Pragma("unroll") for (int i = 0; i < kLoadsOfKeys; ++i) load_keys(tiles, n + 1, i);
    _Pragma("unroll") for (int i = 0; i < kLoadsOfValues; ++i) load_values(tiles, n, i);
  }
  // The i-th load of that, if there is one.
  template <typename Owner>
  __device__ void move_some(const Owner& tiles, int n, int i) const {
    if (i < kLoadsOfKeys) {
      load_keys(tiles, n + 1, i);
    } else if (i < kLoadsOfKeys + kLoadsOfValues) {
      load_values(tiles, n, i - kLoadsOfKeys);
    }
  }
  // The loop of waves in step. A block's loads have the time of the block before it; Q has the place of V.
  template <typename Owner, typename BeginQ, typename EndQ, typename DoBlock>
  __device__ void walk_in_step(const Owner& tiles, int blocks, BeginQ begin_q, EndQ end_q, DoBlock do_block) {
    begin_q();
    first(tiles);
    end_q();
    pingpong_barrier();
    _Pragma("unroll") for (int i = 0; i < kLoadsOfValues; ++i) load_values(tiles, 0, i);
    wait();
    pingpong_barrier();
    for (int n = 0; n < blocks; ++n) {
      if (n + 1 < blocks) {
        _Pragma("unroll") for (int i = 0; i < kLoadsOfKeys; ++i) load_keys(tiles, n + 1, i);
        _Pragma("unroll") for (int i = 0; i < kLoadsOfValues; ++i) load_values(tiles, n + 1, i);
      }
      do_block(n);
      wait();
      pingpong_barrier();
    }
  }
  // Until what was loaded is in LDS.
  __device__ static void wait() { wait_for_loads<0>(); }

 private:
  // The place that a wave's i-th load of a tile writes.
  template <typename Tile>
  __device__ int place(int i) const {
    return group * (Tile::kBytes / 2) + (of_group + i * kWavesOfGroup) * kLoadBytes;
  }
  // The place that each lane loads from.
  template <typename Tile, int kLoads>
  __device__ void find_rows(int lane, uint32_t row_bytes, int hdim, uint32_t (&from)[kLoads]) const {
    constexpr int kRowChunks = Tile::kRowBytes / kChunk;
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      const int at = place<Tile>(i) / kChunk + lane, key = at / kRowChunks;
      const int chunk = Tile::exchange(key, at % kRowChunks);
      from[i] = chunk * 8 < hdim ? key * row_bytes + chunk * kChunk : kNowhere;
    }
  }

  template <typename Owner>
  __device__ void load_keys(const Owner& tiles, int n, int i) const {
    load_to_lds(tiles.keys_in_memory(n), tiles.key_buffer(n) + place<Keys>(i), kChunk, k_from[i], 0, 0, 0);
  }
  template <typename Owner>
  __device__ void load_values(const Owner& tiles, int n, int i) const {
    load_to_lds(tiles.values_in_memory(n), tiles.value_buffer(n) + place<Values>(i), kChunk, v_from[i], 0, 0,
                0);
  }

  int group, of_group;
  uint32_t k_from[kLoadsOfKeys], v_from[kLoadsOfValues];
};

// A wave's 32 rows of Q and O, by way of LDS.
template <int kHdim>
class WaveRows {
  static constexpr int kRows = 32;
  using Shape = KeysInLds<kHdim, kRows>;
  static constexpr int kLoads = kRows * Shape::kChunks / 64;

 public:
  using Chunks = Dwords4[kHdim / 16];
  static constexpr int kBytes = kRows * Shape::kRowBytes;

  __device__ WaveRows(int wave_, int lane_, LdsByte* in_lds) : wave(wave_), lane(lane_), area(in_lds) {}

  // Chunk 2 * i + lane / 32 of row lane % 32, each; they are there after end_load.
  __device__ void begin_load(Resource from, uint32_t row_bytes, int hdim, Chunks&) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      const int at = i * 64 + lane, row = at / Shape::kChunks,
                chunk = Shape::exchange(row, at % Shape::kChunks);
      load_to_lds(from, area + i * 64 * kChunk, kChunk, place(row, chunk, row_bytes, hdim), 0, 0, 0);
    }
  }
  __device__ void end_load(Chunks& x) const {
    wait_for_loads<0>();
    const LdsByte* at = area + Shape::place(lane % 32, lane / 32);
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      x[i] = lds_load<Dwords4>(chunk_behind<Shape::kChunks>(at, 2 * i));
    }
    wait_for_lds();  // the rows' place is that of V
  }

  // Stores rows of which x has chunk 2 * i + lane / 32 of row lane % 32.
  __device__ void store(Resource to, uint32_t row_bytes, int hdim, const Chunks& x) const {
    const int own = lane % 32;
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      lds_store(area + own * Shape::kRowBytes + turn(own, 2 * i + lane / 32) * kChunk, x[i]);
    }
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      const int at = i * 64 + lane, row = at / Shape::kChunks, chunk = turn(row, at % Shape::kChunks);
      const auto four = lds_load<Dwords4>(area + at * kChunk);
      __builtin_amdgcn_raw_buffer_store_b128(four, to, place(row, chunk, row_bytes, hdim), 0, 0);
    }
  }

 private:
  // A chunk of eight rows that are written at a time lies in eight places.
  __device__ static int turn(int row, int chunk) { return chunk ^ (row & 7); }

  __device__ uint32_t place(int row, int chunk, uint32_t row_bytes, int hdim) const {
    return chunk * 8 < hdim ? (wave * kRows + row) * row_bytes + chunk * kChunk : kNowhere;
  }

  int wave, lane;
  LdsByte* area;
};

template <int kHdim>
using RowsInStep = WaveRows<kHdim>;

}  // namespace fmha
