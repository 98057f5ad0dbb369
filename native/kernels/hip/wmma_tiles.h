// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles in LDS that WMMA's operands are read from, and the way there. A tile is rows of 16-byte chunks, which
// are exchanged within each 128 bytes, by the low bits of the row, so that no access has a bank conflict:
//
//   access                   lanes at once   what differs among them                  so must, of the
//   exchange operand, 16 bytes        8               bits 0, 1, 2 of the row (gfx12),         those rows
//                                            or 0, 1, 3 (gfx11: row_of_lane)
//   row-wise store, 16 bytes 8               the chunk                                nothing
//   turned store, 8 bytes    16              bits 3, 4, 5 of the row; the half chunk  those rows
//
// The exchange, of row bits b: (b0 ^ b4, b1 ^ b5, b2 ^ b3). It does all of these.
#pragma once

#include <hip/hip_runtime.h>

#include "hip/memory.h"
#include "hip/wmma.h"

namespace fmha {

inline constexpr int kWmmaWaves = 8;
inline constexpr int kWmmaBlock = 32 * kWmmaWaves;

__device__ constexpr int exchange_of_row(int row) {
  return ((row ^ row >> 4) & 3) | ((row >> 2 ^ row >> 3) & 1) << 2;
}

// A tile of so many rows of so many elements of 16 bits.
template <int kRows, int kColumns>
struct WmmaTile {
  static constexpr int kRowBytes = 2 * kColumns;
  static constexpr int kChunks = kRowBytes / kChunk;
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kRowBytes % 128 == 0);

  __device__ static int place(int row, int chunk) {
    return row * kRowBytes + (chunk ^ exchange_of_row(row)) * kChunk;
  }

  // Where a lane reads; add `read`'s own place.
  __device__ static int begin(int lane) { return place(row_of_lane(lane), kBothHalves ? 0 : lane / 16); }

  // The chunk of row 16 * t + the lane's, of rows that `begin` is of.
  __device__ static const LdsByte* chunk(const LdsByte* tile, int begin, int t, int chunk) {
    const int exchanged = (chunk & 7) ^ exchange_of_row(16 * t);
    return tile + (begin ^ exchanged * kChunk) + 16 * t * kRowBytes + (chunk & ~7) * kChunk;
  }

  // a of rows from 16 * t on and columns from 16 * s on.
  __device__ static Operand read(const LdsByte* tile, int begin, int t, int s) {
    const auto low = lds_load<Dwords4>(chunk(tile, begin, t, 2 * s));
#if defined(__GFX12__)
    return low;
#else
    const auto high = lds_load<Dwords4>(chunk(tile, begin, t, 2 * s + 1));
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#endif
  }
};

// Moves a tile of 16 KB, or of kRows * kHdim * 2 bytes, by all waves: as it lies in memory.
template <int kRows, int kHdim>
class RowMover {
  using Tile = WmmaTile<kRows, kHdim>;
  static constexpr int kLoads = kRows * kHdim * 2 / kChunk / kWmmaBlock;
  static constexpr int kRowsAtOnce = kWmmaBlock / Tile::kChunks;
  static_assert(kRowsAtOnce % 16 == 0 && kLoads > 0);

 public:
  __device__ void begin(uint32_t row_bytes, int hdim) {
    const int thread = static_cast<int>(threadIdx.x), chunk = thread % Tile::kChunks;
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
      // Rows that are 16 apart exchange chunks in another way.
      const int exchanged = exchange_of_row(i * kRowsAtOnce);
      lds_store(tile + (to ^ exchanged * kChunk) + i * kRowsAtOnce * Tile::kRowBytes, x_[i]);
    }
  }

 private:
  uint32_t from_, step_;
  int to_;
  Dwords4 x_[kLoads];
};

// The same, turned: rows of the tile are columns of memory. A lane loads four rows by eight columns, and
// turns them by 16 v_perm_b32.
template <int kRows, int kHdim>
class TurningMover {
  using Tile = WmmaTile<kHdim, kRows>;
  static constexpr int kOctets = kHdim / 8;
  static_assert(kRows * kHdim == 32 * kWmmaBlock && kOctets % 8 == 0);

 public:
  __device__ void begin(uint32_t row_bytes, int hdim) {
    const int thread = static_cast<int>(threadIdx.x);
    // Of eight octets, then of two rows of four, then of what is left.
    const int left = thread / 16, octet = thread % 8 + left % (kOctets / 8) * 8;
    const int four = thread / 8 % 2 + left / (kOctets / 8) * 2;
    from_ = octet * 8 < hdim ? four * 4 * row_bytes + octet * kChunk : kNowhere;
    step_ = row_bytes;
    to_ = Tile::place(octet * 8, four / 2) + four % 2 * 8;
  }

  __device__ void load(Resource from) {
    const uint32_t begin = remade(from_);
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      x_[i] = __builtin_amdgcn_raw_buffer_load_b128(from, begin + i * step_, 0, 0);
    }
  }

  __device__ void store(LdsByte* tile) const {
    const int to = remade(to_);
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      const uint32_t which = i % 2 == 0 ? 0x05040100 : 0x07060302;
      lds_store(tile + (to ^ exchange_of_row(i) * kChunk) + i * Tile::kRowBytes,
                Dwords2{__builtin_amdgcn_perm(x_[1][i / 2], x_[0][i / 2], which),
                        __builtin_amdgcn_perm(x_[3][i / 2], x_[2][i / 2], which)});
    }
  }

 private:
  uint32_t from_, step_;
  int to_;
  Dwords4 x_[4];
};

// Between what is written to LDS before and what is read of it after.
__device__ inline void lds_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
  __builtin_amdgcn_sched_barrier(0);
}

}  // namespace fmha
