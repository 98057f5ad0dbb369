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
#include "hip/common/pingpong_parts.h"

namespace fmha {

// ds_read_b64_tr_b16: sixteen lanes read four keys by sixteen dims, a lane four dims of a key, and get four
// keys of a dim each. For 32 lanes that are served at a time four keys lie in different banks.
template <int kHdim>
struct ValueTile {
  using Shape = KeyTile<kHdim>;

  __device__ static int exchange(int key, int chunk) {
    return chunk ^ (Shape::kChunks == 16 ? (key & 3) << 2 : (key & 2) << 1);
  }

  // Where a lane begins to read.
  __device__ static int begin(int lane) {
    const int key = lane / 32 * 8 + lane % 16 / 4, dim = place_of_row((lane & 16) + lane % 4 * 4);
    return key * Shape::kRowBytes + exchange(key, dim / 8) * kChunk + dim % 8 * 2;
  }

  // Reads 32 dims of eight keys of 16: tile t of dims, and step `step` of keys.
  __device__ static Dwords4 read(const LdsByte* tile, int from, int step, int t) {
    using Short4InLds = __attribute__((address_space(3))) Short4;
    const LdsByte* at = flipped(tile + from, t * 4 * kChunk) + step * 16 * Shape::kRowBytes;
    const auto four = [at](int i) {
      return __builtin_bit_cast(Dwords2, __builtin_amdgcn_ds_read_tr16_b64_v4i16(
                                             (Short4InLds*)(at + i * 4 * Shape::kRowBytes)));  // NOLINT
    };
    const Dwords2 low = four(0), high = four(1);
    return {low[0], low[1], high[0], high[1]};
  }
};

// A wave's part of each tile of K and V: a quarter of the half that its group does, in kLoads parts.
template <int kHdim>
class Mover {
  using Shape = KeyTile<kHdim>;
  static constexpr int kLoadBytes = 64 * kChunk;
  static constexpr int kLoads = Shape::kBytes / (8 * kLoadBytes);
  static constexpr int kKeysAtOnce = kLoadBytes / Shape::kRowBytes;
  static constexpr int kKeysOfPart = 4 * kKeysAtOnce;

 public:
  // One by one, between parts of the softmax: L1 takes 16 cycles for each, and four waves ask at a time. They
  // have the rest of the phase to arrive.
  static constexpr bool kMovesBetween = true;
  // Pairs of operands that are read ahead: two MFMA take 64 cycles, LDS twice as long.
  static constexpr int kAhead = 2;

  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    const int place = lane % Shape::kChunks;
    const int first = wave / 4 * (Shape::kKeys / 2) + wave % 4 * kKeysAtOnce,
              key = first + lane / Shape::kChunks;
    const int k_chunk = Shape::exchange(key, place), v_chunk = ValueTile<kHdim>::exchange(key, place);
    static_assert(kKeysOfPart % 16 == 0, "chunks are exchanged by the key's last four bits");
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      const int of_part = key + i * kKeysOfPart;
      k_from[i] = k_chunk * 8 < hdim_q ? of_part * k_row + k_chunk * kChunk : kNowhere;
      v_from[i] = v_chunk * 8 < hdim_v ? of_part * v_row + v_chunk * kChunk : kNowhere;
    }
    to = first * Shape::kRowBytes;
  }

  template <typename Tiles>
  __device__ void first(const Tiles& tiles) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) load_keys(tiles, 0, i);
  }
  // K[n + 1] and V[n].
  template <typename Tiles>
  __device__ void move(const Tiles& tiles, int n) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) load_keys(tiles, n + 1, i);
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) load_values(tiles, n, i);
  }
  // The i-th load of that, if there is one.
  template <typename Tiles>
  __device__ void move_some(const Tiles& tiles, int n, int i) const {
    if (i >= 2 * kLoads) return;
    if (i < kLoads) {
      load_keys(tiles, n + 1, i);
    } else {
      load_values(tiles, n, i - kLoads);
    }
  }
  // Until what was loaded is in LDS.
  __device__ static void wait() { wait_for_loads<0>(); }

 private:
  template <typename Tiles>
  __device__ void load_keys(const Tiles& tiles, int n, int i) const {
    load(tiles.keys_in_memory(n), k_from[i], tiles.key_buffer(n), i);
  }
  template <typename Tiles>
  __device__ void load_values(const Tiles& tiles, int n, int i) const {
    load(tiles.values_in_memory(n), v_from[i], tiles.value_buffer(n), i);
  }
  __device__ void load(Resource from, uint32_t at, LdsByte* tile, int i) const {
    load_to_lds(from, tile + to + i * kKeysOfPart * Shape::kRowBytes, kChunk, at, 0, 0, 0);
  }

  uint32_t k_from[kLoads], v_from[kLoads];
  int to;
};

// A wave's 32 rows of Q and O, by way of LDS.
template <int kHdim>
class WaveRows {
  using Shape = KeyTile<kHdim>;
  static constexpr int kRows = 32, kAtOnce = 64 / Shape::kChunks;  // rows

 public:
  static constexpr int kBytes = kRows * Shape::kRowBytes;

  __device__ WaveRows(int wave_, int lane_, LdsByte* in_lds) : wave(wave_), lane(lane_), area(in_lds) {}

  // Chunk 2 * i + lane / 32 of row lane % 32, each; they are there after end_load.
  __device__ void begin_load(Resource from, uint32_t row_bytes, int hdim, Dwords4 (&)[kHdim / 16]) const {
    _Pragma("unroll") for (int first = 0; first < kRows; first += kAtOnce) {
      const int row = first + lane / Shape::kChunks, chunk = Shape::exchange(row, lane % Shape::kChunks);
      load_to_lds(from, area + first * Shape::kRowBytes, kChunk, place(row, chunk, row_bytes, hdim), 0, 0, 0);
    }
  }
  __device__ void end_load(Dwords4 (&x)[kHdim / 16]) const {
    Mover<kHdim>::wait();
    const LdsByte* at = area + Shape::place(lane % 32, lane / 32);
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      x[i] = lds_load<Dwords4>(flipped(at, 2 * i * kChunk));
    }
    wait_for_lds();  // the rows' place is that of V
  }

  // Stores rows of which x has chunk 2 * i + lane / 32 of row lane % 32.
  __device__ void store(Resource to, uint32_t row_bytes, int hdim, const Dwords4 (&x)[kHdim / 16]) const {
    const int own = lane % 32;
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      lds_store(area + own * Shape::kRowBytes + turn(own, 2 * i + lane / 32) * kChunk, x[i]);
    }
    _Pragma("unroll") for (int first = 0; first < kRows; first += kAtOnce) {
      const int row = first + lane / Shape::kChunks, chunk = turn(row, lane % Shape::kChunks);
      const auto four = lds_load<Dwords4>(area + first * Shape::kRowBytes + lane * kChunk);
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

}  // namespace fmha
