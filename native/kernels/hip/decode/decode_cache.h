// SPDX-License-Identifier: MIT OR Apache-2.0
// How a wave of 64 lanes reads keys and values of a cache into the layouts in which MFMAs take them: rows of
// head dims, or vectors (see fmha_cache in fmha_rocm.h).
//
// A reader holds a block of keys and its values in registers. A lane has the scores of
// four of a tile's 16 keys with one query row. The reader decides which tokens these are: any order is right
// if the values are in the same order.
#pragma once

#include "hip/decode/decode_mfma.h"
#include "hip/decode/decode_place.h"

namespace fmha {

// T is q's type, and C the cache's.
template <typename T, typename C, int kQ, int kV>
struct DecodeShape {
  static constexpr bool kWidens = sizeof(C) == 1;
  static_assert(__is_same(C, T) || __is_same(C, ArchFp8), "this arch converts no such numbers");
  static constexpr int kTiles = kQ > 256 ? 1 : 2;  // a block
  static constexpr int kTileKeys = 16;             // of an MFMA
  static constexpr int kKeys = kTileKeys * kTiles;
  static constexpr int kDims = 16 / sizeof(C);      // of a key that a lane loads at once
  static constexpr int kChunks = kQ / (4 * kDims);  // such loads
  static constexpr int kSteps = kQ / 16;            // MFMAs of a tile
  static constexpr int kStepsAtOnce = kSteps;       // of those, whose keys are in registers
  static constexpr int kStepsOfChunk = kDims / 4;
  static constexpr bool kValuesEarly = true;  // on their way while scores are computed
  static constexpr int kSlices = 1;           // each wave has all dims of O
  static constexpr int kSlice = kV;
  static_assert(kQ % (4 * kDims) == 0 && kV % 16 == 0);

  // The first of the dims of a chunk that this lane has.
  __device__ static int key_dim(int chunk) { return (chunk * 4 + decode_part()) * kDims; }
};

// A lane's part of the keys: registers, and the operand of each MFMA.
template <typename T, typename C, int kQ, int kV>
struct DecodeKeys : DecodeShape<T, C, kQ, kV> {
  using Shape = DecodeShape<T, C, kQ, kV>;

  // Nothing is to be found a block ahead: a page's number is a scalar load.
  __device__ void ask(const DecodePlace& /*place*/, int /*block*/) {}
  __device__ void advance() {}

  __device__ Dwords2 key(int tile, int step) const {
    const Dwords4& loaded = keys[tile][step / Shape::kStepsOfChunk];
    if constexpr (Shape::kWidens) {
      return widened<T>(loaded[step % 4]);
    } else {
      return step % 2 == 0 ? loaded.xy : loaded.zw;
    }
  }

  Dwords4 keys[Shape::kTiles][Shape::kChunks];
};

// Head dims of a token lie together. Loads of values are whole rows; four keys by kEach dims are turned
// inside of a lane.
template <typename T, typename C, int kQ, int kV>
class DecodeRows : public DecodeKeys<T, C, kQ, kV> {
  using Shape = DecodeShape<T, C, kQ, kV>;

 public:
  static constexpr int kEach = kV >= 128 ? 8 : kV / 16;         // dims of a value that a lane loads at once
  static constexpr int kParts = kV / 16 / kEach;                // loads a value
  static constexpr int kPartsAtOnce = kParts > 2 ? 2 : kParts;  // of those, as registers allow
  static constexpr int kMeet = kEach > 4 ? 4 : kEach;           // of kEach that meet in LDS at once
  static_assert(kV / 16 % kEach == 0);

  // The token of the first of a lane's four scores of a tile; the first token of the tile, and how many
  // tokens from there on it has scores of.
  __device__ static int scored(int block, int tile) { return first(block, tile) + decode_part() * 4; }
  __device__ static int first(int block, int tile) { return block * Shape::kKeys + tile * Shape::kTileKeys; }
  static constexpr int kSpan = Shape::kTileKeys;

  // kMeet tiles of O, from `first` on, meet in LDS at once. Row i of the j-th of them has its place in a row
  // of LDS, and `dim_of` is the dim at place column * kMeet.
  __device__ static int dim_of(int first, int column) {
    return first / kEach * kEach * 16 + column * kEach + first % kEach;
  }
  __device__ static int place_of(int i, int j) { return i * kMeet + j; }

  __device__ void load_keys(const DecodeParams& p, const DecodePlace& place, const void* k, int block,
                            int /*first_step*/) {
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      const int tile = first(block, t), at = place.within(tile + decode_lane() % 16);
      const C* key = DecodePlace::Tokens<C>(place, k, p.k_strides, tile).at(at);
      _Pragma("unroll") for (int i = 0; i < Shape::kChunks; ++i) {
        const int dim = Shape::key_dim(i);
        this->keys[t][i] = *reinterpret_cast<const Dwords4*>(key + (dim < p.hdim_q ? dim : 0));
      }
    }
  }

  // kPartsAtOnce of the parts.
  __device__ void load_values(const DecodeParams& p, const DecodePlace& place, const void* v, int block,
                              int first_part) {
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      const int tile = first(block, t);
      const DecodePlace::Tokens<C> tokens(place, v, p.v_strides, tile);
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        const C* value = tokens.at(place.within(tile + decode_part() * 4 + i));
        _Pragma("unroll") for (int part = 0; part < kPartsAtOnce; ++part) {
          const int dim = ((first_part + part) * 16 + decode_lane() % 16) * kEach;
          values_[t][part][i] = *reinterpret_cast<const Value*>(value + (dim < p.hdim_v ? dim : 0));
        }
      }
    }
  }

  __device__ void hide(const DecodePlace& /*place*/, int /*block*/) {}

  // Returns an MFMA's operand of four keys of a tile: one dim a lane.
  __device__ Dwords2 value(int tile, int part, int j) const {
    const auto& x = values_[tile][part];
    if constexpr (Shape::kWidens) {
      const auto of = [&](int i) { return float_of_fp8<C>(x[i][j / 4], j); };
      return {exact_pair<T>(of(0), of(1)), exact_pair<T>(of(2), of(3))};
    } else {
      const uint32_t select = j % 2 == 0 ? 0x05040100 : 0x07060302;
      return {__builtin_amdgcn_perm(x[1][j / 2], x[0][j / 2], select),
              __builtin_amdgcn_perm(x[3][j / 2], x[2][j / 2], select)};
    }
  }

 private:
  using Value = __attribute__((ext_vector_type(kEach * sizeof(C) / 4))) uint32_t;

  Value values_[Shape::kTiles][kPartsAtOnce][4];
};

// Keys (hdim / 16 bytes, page_size, 16 bytes) and values (page_size / n, hdim, n) of a page and head: what an
// MFMA takes is loaded as it is. A quarter of a wave has eight tokens, four for each tile.
template <typename T, typename C, int kQ, int kV>
class DecodeVectors : public DecodeKeys<T, C, kQ, kV> {
  using Shape = DecodeShape<T, C, kQ, kV>;
  static_assert(Shape::kTiles == 2);

 public:
  static constexpr int kEach = kV / 16;
  static constexpr int kParts = 1;
  static constexpr int kPartsAtOnce = 1;
  static constexpr int kMeet = 4;
  static constexpr int kSpan = Shape::kKeys;
  static_assert(kEach % kMeet == 0);

  __device__ static int scored(int block, int tile) { return eight(block, decode_part()) + tile * 4; }
  __device__ static int first(int block, int /*tile*/) { return block * Shape::kKeys; }

  __device__ static int dim_of(int first, int column) { return first * 16 + column * kMeet; }
  __device__ static int place_of(int i, int j) { return j * 16 + i; }

  __device__ void load_keys(const DecodeParams& p, const DecodePlace& place, const void* k, int block,
                            int /*first_step*/) {
    const int row = decode_lane() % 16, page_size = 1 << place.page_shift;
    _Pragma("unroll") for (int t = 0; t < Shape::kTiles; ++t) {
      const int at = place.within(eight(block, row / 4) + t * 4 + row % 4);
      const C* key =
          static_cast<const C*>(k) + place.page_of(at) * p.k_strides.page + place.slot_of(at) * Shape::kDims;
      _Pragma("unroll") for (int i = 0; i < Shape::kChunks; ++i) {
        const int dim = Shape::key_dim(i);
        this->keys[t][i] = *reinterpret_cast<const Dwords4*>(key + (dim < p.hdim_q ? dim : 0) * page_size);
      }
    }
  }

  __device__ void load_values(const DecodeParams& p, const DecodePlace& place, const void* v, int block,
                              int /*first_part*/) {
    const int at = place.within(eight(block, decode_part())) & -8, slot = place.slot_of(at);
    const int in_vector = slot & (p.v_vector - 1);
    const C* value = static_cast<const C*>(v) + place.page_of(at) * p.v_strides.page +
                     (slot - in_vector) * p.hdim_v + in_vector;
    _Pragma("unroll") for (int j = 0; j < kEach; ++j) {
      const int dim = j * 16 + decode_lane() % 16;
      values_[j] = *reinterpret_cast<const Value*>(value + (dim < p.hdim_v ? dim : 0) * p.v_vector);
    }
  }

  // Zeroes the values of tokens that no row sees.
  __device__ void hide(const DecodePlace& place, int block) {
    if (block * Shape::kKeys >= place.from && (block + 1) * Shape::kKeys - 1 <= place.to) return;
    const int at = eight(block, decode_part());
    constexpr int kPerDword = 4 / sizeof(C);
    Value seen = {};
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      constexpr uint32_t kOnes = kPerDword == 2 ? 0xffff : 0xff;
      const uint32_t ones = kOnes << (i % kPerDword * 8 * static_cast<int>(sizeof(C)));
      seen[i / kPerDword] |= at + i >= place.from && at + i <= place.to ? ones : 0;
    }
    _Pragma("unroll") for (auto& value : values_) value &= seen;
  }

  __device__ Dwords2 value(int tile, int /*part*/, int j) const {
    if constexpr (Shape::kWidens) {
      return widened<T>(values_[j][tile]);
    } else {
      return tile == 0 ? values_[j].xy : values_[j].zw;
    }
  }

 private:
  using Value = __attribute__((ext_vector_type(2 * sizeof(C)))) uint32_t;  // of eight tokens

  __device__ static int eight(int block, int which) { return block * Shape::kKeys + which * 8; }

  Value values_[kEach];
};

}  // namespace fmha
