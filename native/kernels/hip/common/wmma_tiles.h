// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles in LDS that WMMA's operands are read from, and the way there. A tile is rows of 16-byte chunks, which
// are exchanged within each 128 bytes, by the low bits of the row, so that no access has a bank conflict:
//
//   access                    lanes at once   what differs among them               so must, of the exchange
//   operand, 16 bytes         8               bits 0, 1, 2 of the row; or 0, 1, 3   those rows
//                                             (row_of_lane on gfx11)
//   row-wise store, 16 bytes  8               the chunk                             nothing
//   turned store, 8 bytes     16              bits 3, 4, 5 of the row; the half     those rows
//                                             of the chunk
//
// The exchange, of row bits b: (b0 ^ b4, b1 ^ b5, b2 ^ b3). It does all of these. Rows of 64 bytes lie in
// pairs: there it is (b1 ^ b4, b2 ^ b3, b0 ^ b5), in which b0 says which of the pair.
#pragma once

#include "common/device.h"
#include "hip/common/eights.h"
#include "hip/common/memory.h"
#include "hip/common/wmma.h"

namespace fmha {

// Where a lane's chunks lie in tiles, by their key (WmmaTile): an instruction adds the rest. All are made at
// once, since between products each instruction for an address may wait until one is over. kAll: also the odd
// keys.
template <bool kAll>
struct KeyPlaces {
  static constexpr int kStep = kAll ? 1 : 2;
  int at[8 / kStep];

  __device__ KeyPlaces() = default;
  __device__ explicit KeyPlaces(int begin) {
    const int here = remade(begin);  // else the compiler would keep them for good
    _Pragma("unroll") for (int i = 0; i < 8; i += kStep) at[i / kStep] = here ^ i * kChunk;
  }
  __device__ int operator[](int key) const { return at[key / kChunk / kStep]; }
};
using AllPlaces = KeyPlaces<true>;

// A tile of so many rows of so many elements of 16 bits.
template <int kRows, int kColumns>
struct WmmaTile {
  static constexpr int kRowBytes = 2 * kColumns;
  static constexpr int kChunks = kRowBytes / kChunk;
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kRowBytes == 64 || kRowBytes % 128 == 0);

  __device__ static constexpr int exchange(int row) {
    if (kRowBytes == 64) {
      return ((row >> 1 ^ row >> 4) & 1) | ((row >> 2 ^ row >> 3) & 1) << 1 | ((row ^ row >> 5) & 1) << 2;
    }
    return ((row ^ row >> 4) & 3) | ((row >> 2 ^ row >> 3) & 1) << 2;
  }

  // The place of a row's 128 bytes, or of the first ones of them.
  __device__ static constexpr int line(int row) { return row * kRowBytes & ~127; }

  __device__ static int place(int row, int chunk) { return line(row) + (chunk ^ exchange(row)) * kChunk; }

  // Where a lane reads of the first 16 rows: as a, or as b of which rows are columns, from `first` on.
  __device__ static int begin_a(int lane) {
    return place(row_of_lane(lane), kWholeA ? 0 : chunk_of_lane(lane));
  }
  __device__ static int begin_b(int first, int lane) {
    return place(first + lane % 16, kWholeB ? 0 : lane / 16);
  }

  // The chunk of row 16 * t + the lane's; `begin` is of the lane's.
  __device__ static const LdsByte* chunk(const LdsByte* tile, int begin, int t, int chunk) {
    return exchanged(tile, begin ^ key(t, chunk), t, chunk);
  }

  // A lane's chunks that have the same key lie at `begin` ^ the key, and so far on as an instruction can add.
  __device__ static constexpr int key(int t, int chunk) { return ((chunk & 7) ^ exchange(16 * t)) * kChunk; }
  __device__ static const LdsByte* exchanged(const LdsByte* tile, int at, int t, int chunk) {
    return tile + at + 16 * t * kRowBytes + (chunk & ~7) * kChunk;
  }

  // Rows from 16 * t on, columns from 16 * s on.
  __device__ static OperandA read_a(const LdsByte* tile, int begin, int t, int s) {
    return read<OperandA>(tile, begin, t, s);
  }
  __device__ static OperandB read_b(const LdsByte* tile, int begin, int t, int s) {
    return read<OperandB>(tile, begin, t, s);
  }
  template <typename Operand, typename P>
  __device__ static Operand read_at(const LdsByte* tile, const P& places, int t, int s) {
    return operand_by<Operand>([&](int i) {
      const int c = 2 * s + i;
      return lds_load<Dwords4>(exchanged(tile, places[key(t, c)], t, c));
    });
  }

 private:
  template <typename Operand>
  __device__ static Operand read(const LdsByte* tile, int begin, int t, int s) {
    return operand_by<Operand>([&](int i) { return lds_load<Dwords4>(chunk(tile, begin, t, 2 * s + i)); });
  }
};

// Rows of a head from `first` on, as a mover takes them; past `rows` there are none.
struct WmmaRows {
  const uint8_t* base;
  uint32_t row_bytes;
  int rows;

  __device__ Resource from(int first, int most) const {
    const int left = min(rows - first, most);
    return resource(base + static_cast<int64_t>(first) * row_bytes, left > 0 ? left * row_bytes : 0);
  }
};

// Moves rows of 16 bits to a tile, by all of kThreads.
template <int kRows, int kHdim, int kThreads>
class RowMover {
  using Tile = WmmaTile<kRows, kHdim>;
  static constexpr int kLoads = kRows * Tile::kChunks / kThreads;
  static constexpr int kRowsAtOnce = kThreads / Tile::kChunks;
  static_assert(kLoads > 0 && (kRowsAtOnce & (kRowsAtOnce - 1)) == 0);

 public:
  __device__ void begin(uint32_t row_bytes, int hdim) {
    const int thread = static_cast<int>(threadIdx.x) % kThreads, chunk = thread % Tile::kChunks;
    const int row = thread / Tile::kChunks;
    from_ = chunk * 8 < hdim ? row * row_bytes + chunk * kChunk : kNowhere;
    step_ = kRowsAtOnce * row_bytes;
    to_ = Tile::place(row, chunk);
  }

  __device__ void load(Resource from) {
    const uint32_t begin = remade(from_);
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      x_[i] = __builtin_amdgcn_raw_buffer_load_b128(from, begin + i * step_, 0, 0);
    }
  }

  __device__ void store(LdsByte* tile) const {
    const int to = remade(to_);
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      constexpr auto kStep = kRowsAtOnce;
      lds_store(tile + (to ^ Tile::exchange(i * kStep) * kChunk) + Tile::line(i * kStep), x_[i]);
    }
  }

 private:
  uint32_t from_, step_;
  int to_;
  Dwords4 x_[kLoads];
};

// Moves rows of 16 bits to a tile of which they are columns, to one of which they are rows, or to both. A
// lane has four rows by eight columns, and turns them by 16 v_perm_b32.
template <int kRows, int kHdim, int kThreads>
class TurningMover {
  using Rows = WmmaTile<kRows, kHdim>;
  using Turned = WmmaTile<kHdim, kRows>;
  static constexpr int kOctets = kHdim / 8;
  static_assert(kRows * kHdim == 32 * kThreads && kOctets % 8 == 0);

 public:
  __device__ void begin(uint32_t row_bytes, int hdim) {
    const int thread = static_cast<int>(threadIdx.x) % kThreads;
    // Eight octets come first, then two rows of four, then the rest.
    const int left = thread / 16, octet = thread % 8 + left % (kOctets / 8) * 8;
    const int four = thread / 8 % 2 + left / (kOctets / 8) * 2;
    from_ = octet * 8 < hdim ? four * 4 * row_bytes + octet * kChunk : kNowhere;
    step_ = row_bytes;
    to_rows_ = Rows::place(four * 4, octet);
    to_turned_ = Turned::place(octet * 8, four / 2) + four % 2 * 8;
  }

  __device__ void load(Resource from) {
    const uint32_t begin = remade(from_);
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      x_[i] = __builtin_amdgcn_raw_buffer_load_b128(from, begin + i * step_, 0, 0);
    }
  }

  // Where there is nothing more to load: else the compiler keeps what was loaded last.
  __device__ void forget() { _Pragma("unroll") for (Dwords4& x : x_) asm volatile("" : "=v"(x)); }

  __device__ void store_turned(LdsByte* tile) const {
    const int to = remade(to_turned_);
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      const uint32_t which = i % 2 == 0 ? 0x05040100 : 0x07060302;
      lds_store(tile + (to ^ Turned::exchange(i) * kChunk) + Turned::line(i),
                Dwords2{__builtin_amdgcn_perm(x_[1][i / 2], x_[0][i / 2], which),
                        __builtin_amdgcn_perm(x_[3][i / 2], x_[2][i / 2], which)});
    }
  }

  __device__ void store_rows(LdsByte* tile) const {
    const int to = remade(to_rows_);
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      lds_store(tile + (to ^ Rows::exchange(i) * kChunk) + Rows::line(i), x_[i]);
    }
  }

 private:
  uint32_t from_, step_;
  int to_rows_, to_turned_;
  Dwords4 x_[4];
};

// Between what is written to LDS before and what is read of it after.
__device__ inline void lds_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
#if defined(__GFX10__)
  // lgkmcnt(0), once more: clang 19 drops the fence's at a loop's head if the way into the loop needs none.
  __builtin_amdgcn_s_waitcnt(0xc07f);
#endif
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
  __builtin_amdgcn_sched_barrier(0);
}

}  // namespace fmha
