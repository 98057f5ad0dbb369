// SPDX-License-Identifier: MIT OR Apache-2.0
// As hip/decode/decode_cache.h, by waves of 32 lanes into the layouts of WMMAs (hip/common/wmma.h). A lane
// brings a key of a tile of 16, and a dim of the values of its tokens: on gfx12 and gfx10.3 of eight, on
// gfx11 of all 16, as its WMMA wants, so that both halves of a wave load the same.
//
// With 8-bit caches, which gfx12 has, a lane loads 16 dims of a key at once too, those of two WMMAs: its own
// eight of the first and of the second lie together. So dims come in another order, in which Q is (q_place).
//
// A lane finds where one token is, a block ahead: the page of its key. For values the lanes tell each other.
#pragma once

#include "hip/decode/decode_place.h"
#include "hip/decode/decode_wmma.h"

namespace fmha {

// T is q's type, and C the cache's.
template <typename T, typename C, int kQ, int kV>
struct DecodeShape {
  static constexpr bool kWidens = sizeof(C) == 1;
  static_assert(__is_same(C, T) || __is_same(C, ArchFp8), "this arch converts no such numbers");
  static constexpr int kTiles = 1;  // a block
  static constexpr int kKeys = kDecodeTileRows * kTiles;
  static constexpr int kDims = 16 / sizeof(C);                 // of a key that a lane loads at once
  static constexpr int kSteps = kQ / 16;                       // WMMAs of a tile
  static constexpr int kStepsAtOnce = kQ <= 128 ? kSteps : 4;  // of those, whose keys are in registers
  static constexpr bool kValuesEarly = kQ <= 128;              // on their way while scores are computed
  static constexpr int kLoads = kStepsAtOnce * (kWholeA ? 2 : 1) / (kWidens ? 2 : 1);  // of a key
  static constexpr int kTokens = kWholeA ? 16 : 8;  // of a tile, whose values a lane has
  static constexpr int kSlices = kV > 256 ? 2 : 1;  // of O's dims: so many waves have the same keys
  static constexpr int kSlice = kV / kSlices;
  static constexpr int kSpan = kDecodeTileRows;
  static constexpr int kMeet = 4;
  static_assert(kSteps % kStepsAtOnce == 0 && kSlice % 64 == 0);
  static_assert(!kWidens || (!kWholeA && kStepsAtOnce % 2 == 0), "a load is half of two operands");

  // Where in a row of Q its chunk of eight dims is, in the order of a key's.
  __device__ static constexpr int q_place(int chunk) {
    return kWidens ? (chunk & ~3) | (chunk & 1) << 1 | (chunk >> 1 & 1) : chunk;
  }

  // The row of an operand that this lane brings, and which eight of its columns, if not all; the first of the
  // tokens whose values it has.
  __device__ static int row() { return row_of_lane(decode_lane()); }
  __device__ static int chunk() { return kWholeA ? 0 : chunk_of_lane(decode_lane()); }
  __device__ static int first_token() { return chunk() * kTokens; }

  // The token of the first of a lane's eight scores of a tile; the first token of the tile.
  __device__ static int scored(int block, int tile) {
    return first(block, tile) + remade(decode_part()) * kDecodeRun;
  }
  __device__ static int first(int block, int tile) { return block * kKeys + tile * kDecodeTileRows; }

  // The token whose key a lane brings.
  __device__ static int token(const DecodePlace& place, int block, int tile) {
    return place.within(first(block, tile) + remade(row()));
  }

  // The first of this wave's dims of O.
  __device__ static int first_dim() { return decode_wave() % kSlices * kSlice; }

  // Each lane has an address for its token. Returns that of the i-th of first_token().
  __device__ static const uint8_t* told(const void* own, int i) {
    const auto address = reinterpret_cast<uint64_t>(own);
    const uint64_t low = told(static_cast<uint32_t>(address), i);
    const uint64_t high = told(static_cast<uint32_t>(address >> 32), i);
    return reinterpret_cast<const uint8_t*>(high << 32 | low);
  }

 private:
  __device__ static uint32_t told(uint32_t own, int i) {
#if defined(__GFX11__)
    return __builtin_amdgcn_readlane(own, i % 8 * 2 + i / 8);  // the lane whose row() is i
#else
#if defined(__GFX12__)
    constexpr int kRowShare = 0x150, kLower = 1, kUpper = 2,
                  kAll = 15;  // of DPP: a lane of 16, and to which 16
    const int x = static_cast<int>(own);
#define FMHA_TOLD(n)                                                                                         \
  case n:                                                                                                    \
    return __builtin_amdgcn_update_dpp(                                                                      \
        __builtin_amdgcn_update_dpp(x, x, kRowShare + n, kLower, kAll, false), x, kRowShare + 8 + n, kUpper, \
        kAll, false);
#else
    // Eight lanes have the addresses of eight tokens, those of their own chunk() once lanes 8 to 15 and 16 to
    // 23 have exchanged theirs: of them DPP8 takes the i-th, by three bits for each lane.
    const int lane = decode_lane();
    const uint32_t exchanged = __builtin_amdgcn_permlanex16(own, own, 0xfedcba98, 0x76543210, true, false);
    const uint32_t x = lane / 16 == chunk_of_lane(lane) ? own : exchanged;
#define FMHA_TOLD(n) \
  case n:            \
    return __builtin_amdgcn_mov_dpp8(x, n * 0x249249);
#endif
    switch (i) {
      FMHA_TOLD(0)
      FMHA_TOLD(1)
      FMHA_TOLD(2)
      FMHA_TOLD(3)
      FMHA_TOLD(4)
      FMHA_TOLD(5)
      FMHA_TOLD(6)
      FMHA_TOLD(7)
    }
#undef FMHA_TOLD
    return 0;
#endif
  }
};

// A lane's part of the keys: registers, and the operand of each WMMA.
template <typename T, typename C, int kQ, int kV>
struct DecodeKeys : DecodeShape<T, C, kQ, kV> {
  using Shape = DecodeShape<T, C, kQ, kV>;

  // Finds the pages of a block that is the next one until `advance`.
  __device__ void ask(const DecodePlace& place, int block) {
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      next_page[t] = place.page;
      if (place.table != nullptr) {
        const int at = Shape::token(place, block, t) >> place.page_shift;
        next_page[t] = place.listed(global_load<int>(place.table + at));
      }
    }
  }

  __device__ void advance() {
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) page[t] = next_page[t];
  }

  __device__ OperandA key(int tile, int step) const {
    const int at = step % Shape::kStepsAtOnce;
    if constexpr (Shape::kWidens) {
      const Dwords4 x = keys[tile][at / 2];
      return at % 2 == 0 ? widened_eight<T>(x.xy) : widened_eight<T>(x.zw);
    } else {
      const Dwords4* loaded = keys[tile] + at * (kWholeA ? 2 : 1);
      return operand_by<OperandA>([&](int i) { return loaded[i]; });
    }
  }

  // Loads a key whose dims, kDims at a time, are `pitch` elements apart for each of them.
  __device__ void load_key(const DecodeParams& p, int tile, const C* key, int pitch, int first_step) {
    const int part = kWholeA ? 0 : remade(Shape::chunk()), hdim = remade_scalar(p.hdim_q);
    _Pragma("unroll") for (int i = 0; i < Shape::kLoads; ++i) {
      const int load = kWholeA ? i : 2 * i + part, dim = first_step * 16 + load * Shape::kDims;
      keys[tile][i] = global_load<Dwords4>(key + (dim < hdim ? dim : 0) * pitch);
    }
  }

  Dwords4 keys[Shape::kTiles][Shape::kLoads];
  int page[Shape::kTiles], next_page[Shape::kTiles];  // of a lane's token
};

// Head dims of a token lie together. Loads of values are whole rows; a lane turns its tokens by kEach dims.
template <typename T, typename C, int kQ, int kV>
class DecodeRows : public DecodeKeys<T, C, kQ, kV> {
  using Shape = DecodeShape<T, C, kQ, kV>;

 public:
  static constexpr int kEach = kWholeA || Shape::kSlice < 128 ? 4 : 8;  // dims of a value, loaded at once
  static constexpr int kParts = Shape::kSlice / 16 / kEach;             // loads a value
  static constexpr int kPartsAtOnce = 1;

  // kMeet tiles of O, from `first` on, meet in LDS at once. Row i of the j-th of them has its place in a row
  // of LDS, and `dim_of` is the dim of its slice at place column * kMeet.
  __device__ static int dim_of(int first, int column) {
    return first / kEach * kEach * 16 + column * kEach + first % kEach;
  }
  __device__ static int place_of(int i, int j) { return i * Shape::kMeet + j; }

  // From the first step on those of the next block.
  __device__ void load_keys(const DecodeParams& p, const DecodePlace& place, const void* k, int block,
                            int first_step) {
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      const int page = first_step == 0 ? this->next_page[t] : this->page[t];
      const C* key = row(place, k, p.k_strides, page, Shape::token(place, block, t));
      this->load_key(p, t, key, 1, first_step);
    }
  }

  __device__ void load_values(const DecodeParams& p, const DecodePlace& place, const void* v, int block,
                              int part) {
    const int dim = Shape::first_dim() + (part * 16 + remade(Shape::row())) * kEach;
    const uint32_t from = (dim < p.hdim_v ? dim : 0) * sizeof(C);
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      const C* own = row(place, v, p.v_strides, remade(this->page[t]), Shape::token(place, block, t));
      _Pragma("unroll") for (int i = 0; i < Shape::kTokens; ++i) {
        values_[t][i] = global_load<Value>(Shape::told(own, i) + from);
      }
    }
  }

  __device__ void hide(const DecodePlace& /*place*/, int /*block*/) {}

  // Returns a WMMA's operand of a tile's keys: one dim a lane.
  __device__ OperandA value(int tile, int /*part*/, int j) const {
    const auto& x = values_[tile];
    OperandA turned;
    _Pragma("unroll") for (int i = 0; i < Shape::kTokens / 2; ++i) {
      if constexpr (Shape::kWidens) {
        turned[i] =
            exact_pair<T>(float_of_fp8<C>(x[2 * i][j / 4], j), float_of_fp8<C>(x[2 * i + 1][j / 4], j));
      } else {
        const uint32_t select = j % 2 == 0 ? 0x05040100 : 0x07060302;
        turned[i] = __builtin_amdgcn_perm(x[2 * i + 1][j / 2], x[2 * i][j / 2], select);
      }
    }
    return turned;
  }

 private:
  using Value = __attribute__((ext_vector_type(kEach * sizeof(C) / 4))) uint32_t;

  __device__ static const C* row(const DecodePlace& place, const void* data, const CacheStrides& s, int page,
                                 int token) {
    return static_cast<const C*>(data) + page * s.page + place.slot_of(token) * s.token;
  }

  Value values_[Shape::kTiles][Shape::kTokens];
};

// Keys (hdim / n, page_size, n), of n in 16 bytes, and values (page_size / n, hdim, n) of a page and head:
// what a WMMA takes is loaded as it is.
template <typename T, typename C, int kQ, int kV>
class DecodeVectors : public DecodeKeys<T, C, kQ, kV> {
  using Shape = DecodeShape<T, C, kQ, kV>;
  static_assert(Shape::kSlices == 1);

 public:
  static constexpr int kEach = 4;
  static constexpr int kParts = kV / 16 / kEach;
  static constexpr int kPartsAtOnce = 1;

  __device__ static int dim_of(int first, int column) { return first * 16 + column * Shape::kMeet; }
  __device__ static int place_of(int i, int j) { return j * 16 + i; }

  __device__ void load_keys(const DecodeParams& p, const DecodePlace& place, const void* k, int block,
                            int first_step) {
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      const int page = first_step == 0 ? this->next_page[t] : this->page[t];
      const int slot = place.slot_of(Shape::token(place, block, t));
      const C* key = static_cast<const C*>(k) + page * p.k_strides.page + slot * Shape::kDims;
      this->load_key(p, t, key, 1 << place.page_shift, first_step);
    }
  }

  __device__ void load_values(const DecodeParams& p, const DecodePlace& place, const void* v, int block,
                              int part) {
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      const int slot = place.slot_of(Shape::token(place, block, t) & -8), in_vector = slot & (p.v_vector - 1);
      const C* own = static_cast<const C*>(v) + remade(this->page[t]) * p.v_strides.page +
                     (slot - in_vector) * p.hdim_v + in_vector;
      _Pragma("unroll") for (int i = 0; i < kEights; ++i) {
        const uint8_t* value = Shape::told(own, i * 8);
        _Pragma("unroll") for (int j = 0; j < kEach; ++j) {
          const int dim = (part * kEach + j) * 16 + remade(Shape::row());
          const uint32_t from = (dim < p.hdim_v ? dim : 0) * p.v_vector * sizeof(C);
          values_[t][j][i] = global_load<Eight>(value + from);
        }
      }
    }
  }

  // Zeroes the values of tokens that no row sees.
  __device__ void hide(const DecodePlace& place, int block) {
    if (block * Shape::kKeys >= place.from && (block + 1) * Shape::kKeys - 1 <= place.to) return;
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      _Pragma("unroll") for (int i = 0; i < kEights; ++i) {
        Eight seen = {};
        _Pragma("unroll") for (int k = 0; k < 8; ++k) {
          constexpr int kBits = 8 * sizeof(C), kPerDword = 32 / kBits;
          const int at = Shape::first(block, t) + Shape::first_token() + i * 8 + k;
          const uint32_t ones = ((1U << kBits) - 1) << (k % kPerDword * kBits);
          seen[k / kPerDword] |= at >= place.from && at <= place.to ? ones : 0;
        }
        _Pragma("unroll") for (int j = 0; j < kEach; ++j) values_[t][j][i] &= seen;
      }
    }
  }

  __device__ OperandA value(int tile, int /*part*/, int j) const {
    if constexpr (Shape::kWidens) {
      return widened_eight<T>(values_[tile][j][0]);
    } else {
      return operand_by<OperandA>([&](int i) { return values_[tile][j][i]; });
    }
  }

 private:
  static constexpr int kEights = Shape::kTokens / 8;

  using Eight = __attribute__((ext_vector_type(2 * sizeof(C)))) uint32_t;  // tokens

  Eight values_[Shape::kTiles][kEach][kEights];
};

}  // namespace fmha
