// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention of many rows over a latent KV cache (DeepSeek's), whose values are the first dims of its keys.
// hip/decode/decode.h reads such a cache once for 16 rows, which asks more of L1 and of the vector ports than
// they have. This kernel reads it once for 128 rows: a group of 128 query heads, or of 16 in eight tokens.
//
// A workgroup has four waves, each alone on its SIMD with 32 rows. They share a block of 32 keys:
//
//   phase           a wave                                                    matrix cycles
//   stores          its eight keys, loaded during the block before, to LDS (8-bit ones are widened earlier)
//   S^T = K Q^T     32x32x8; a lane has 16 keys of one row                    2304
//   softmax         that of hip/fwd/fwd_pingpong_softmax.h
//   O^T = V^T P^T   four keys by four dims are turned inside of a lane by     2048
//                   v_perm_b32; P^T is in the layout that S^T came in
//
//   budget of 512 registers   O 256, Q 144, keys on their way 36 (of 8 bits 54), S 16, P 8, operands read
//                             ahead 16 or 24
//   LDS                       32 keys: 37 KB, of which each wave reads all twice: 2176 cycles of the unit
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"
#include "hip/decode/decode_work.h"
#include "hip/fwd/fwd_pingpong_softmax.h"
#include "hip/latent/latent_keys.h"
#include "hip/latent/latent_products.h"

namespace fmha {

inline constexpr int kLatentBlock = 64 * kLatentWaves;

// One instance: head dims up to kQ and kV, T of q, C of the cache.
template <typename T, typename C, int kQ, int kV>
class Latent {
  using Block = LatentBlock;
  using Keys = LatentKeys<T, C>;
  static constexpr float kLog2e = 1.44269504088896340736F;
  static constexpr bool kScaled = sizeof(C) == 1;
  static constexpr int kRowsOfWave = 32;
  static constexpr int kSteps = kQ / 16, kTilesO = kV / 32;
  static_assert(kQ == Block::kDims + Block::kRest,
                "a load has a key's first dims, and one the rest of eight");
  static_assert(kV % 128 == 0 && kV <= Block::kDims);

 public:
  static constexpr int kRows = kLatentWaves * kRowsOfWave, kTileN = Block::kKeys;

  __device__ static void run() {
    __shared__ __attribute__((aligned(256))) uint8_t lds[Keys::kLdsBytes];
    Latent d(decode_arguments());
    if (!d.work.find(kRows)) return;
    d.begin();
    Keys keys;
    keys.begin(d.work, (LdsByte*)(lds));  // NOLINT: the only cast that changes address spaces
    if (!d.has_rows()) {
      keys.walk(d.work, [&](int block, LdsByte*) {
        keys.load(d.work, block + 1);
        keys.widen(block + 1, 0, 1);
      });  // they are the others' too
      return;
    }
    d.begin_rows();
    keys.walk(d.work, [&](int block, const LdsByte* tile) {
      d.multiply_keys(tile, [&](int step) {
        constexpr int kStepsOfPart = Keys::kBuffers;
        if (step % kStepsOfPart == 0 && step / kStepsOfPart < Keys::kLoadParts) {
          keys.load(d.work, block + 1, step / kStepsOfPart);
        }
      });
      d.weigh(block);
      d.multiply_values(tile, [&](int part, int parts) { keys.widen(block + 1, part, parts); });
    });
    d.end();
  }

 private:
  __device__ explicit Latent(const DecodeParams& params) : p(params), work(params) {}

  __device__ void begin() {
    wave = decode_wave();
    work.find_range(kRows, kTileN);
    plain = p.softcap == 0 && p.alibi == nullptr && !(kScaled && p.scale_per_page != 0);
    unit = value_scale();
    work.scale = __builtin_bit_cast(
        float, __builtin_amdgcn_readfirstlane(__builtin_bit_cast(int, work.scale)));  // a product
  }

  // Finds the factor on scores, and returns that on O.
  __device__ float value_scale() {
    float of_values;
    work.find_scales(kScaled, of_values);
    return of_values;
  }

  __device__ bool has_rows() const { return work.first_row + wave * kRowsOfWave < work.rows; }

  __device__ void begin_rows() {
    const int token = own_token();
    seen_from = work.first_seen(token), seen_to = work.last_seen(token);
    begin_q(token, work.head_of(own_row(), token));
    rows.begin();
    _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) o[t] = Float16{};
  }

  __device__ void begin_q(int token, int head) {
    const int half = lane_anew() / 32;
    const T* row =
        static_cast<const T*>(p.q) + head * p.q_strides.nhead + (work.q_base + token) * p.q_strides.row;
    if (p.cu_q == nullptr) row += work.batch() * p.q_strides.batch;
    _Pragma("unroll") for (int i = 0; i < kSteps; ++i) {
      const int dim = (2 * i + half) * 8;
      const auto x = global_load<Dwords4>(row + (dim < p.hdim_q ? dim : 0));
      q[i] = dim < p.hdim_q ? x : Dwords4{};
    }
  }

  // The lane's row: behind the last one it is the last again, and is not stored. Found anew each time.
  __device__ int own_row() const {
    return min(work.first_row + wave * kRowsOfWave + lane_anew() % 32, work.rows - 1);
  }
  __device__ int own_token() const { return work.token_of(own_row()); }

  // ---- A block of keys.

  // `meanwhile` is called with the number of each step.
  template <typename Meanwhile>
  __device__ void multiply_keys(const LdsByte* tile, Meanwhile meanwhile) {
    constexpr int kAhead = 3, kWhole = Block::kDims / 16;
    const int lane = lane_anew(), key = lane % 32, half = lane / 32;
    const LdsByte* from = tile + key * Block::kPitch + half * kChunk;
    const LdsByte* rest = tile + Block::rest(key, half);
    Dwords4 ring[kAhead + 1];
    const auto read = [&](int i) {
      if (i >= kSteps) return;
      const LdsByte* at = i < kWhole ? from + i * 2 * kChunk : flipped(rest, (i - kWhole) * 2 * kChunk);
      ring[i % (kAhead + 1)] = lds_load<Dwords4>(at);
    };
    _Pragma("unroll") for (int i = 0; i < kAhead; ++i) read(i);
    _Pragma("unroll") for (int i = 0; i < kSteps; ++i) {
      read(i + kAhead);
      __builtin_amdgcn_sched_barrier(0);
      multiply_in_vgprs<T>(ring[i % (kAhead + 1)], q[i], s[0], i == 0);
      meanwhile(i);
    }
    wait_for_sum(s[0]);
  }

  // Scores to P. A lane has keys 8 * i + half * 4 + j in elements 4 * i + j.
  __device__ void weigh(int block) {
    const int at = block * kTileN + lane_anew() / 32 * 4;
    const float scale = shape(block, at);
    if (__builtin_amdgcn_ballot_w64(block * kTileN < seen_from || block * kTileN + kTileN - 1 > seen_to) !=
        0) {
      for_each([&](float x, int key) {
        return at + key < seen_from || at + key > seen_to ? -__builtin_inff() : x;
      });
    }
    rows.run(s, PlainScores{scale}, probabilities, o, [](int) {});
    if constexpr (kScaled) {
      if (!plain && scales_pages(decode_arguments().v_scale)) scale_values(block, scale);
    }
  }

  // ---- Scales by page, as hip/decode/decode_tile.h has them.

  __device__ static bool scales_pages(const float* scales) {
    return decode_arguments().scale_per_page != 0 && scales != nullptr;
  }

  // Each lane asks for one of the block's keys, and gives it to those that have its scores.
  class PageScales {
   public:
    __device__ PageScales(const DecodeWork& work, const float* scales, const ScaleStrides& strides, int block)
        : own_(work.page_scale(scales, strides, block * kTileN + lane_anew() % kTileN)),
          first_(lane_anew() / 32 * 4) {}

    __device__ float operator()(int key) const {
      if (key % 4 == 0) __builtin_amdgcn_sched_barrier(0);  // few at once, as registers allow
      return __builtin_bit_cast(
          float, __builtin_amdgcn_ds_bpermute((first_ + key) * 4, __builtin_bit_cast(int, own_)));
    }

   private:
    float own_;
    int first_;
  };

  // P anew, of which fractions are rounded, and O in the new unit.
  __device__ void scale_values(int block, float scale) {
    const DecodeParams& p = decode_arguments();
    const PageScales of(work, p.v_scale, p.v_scale_strides, block);
    float most = unit;
    for_each([&](float x, int key) {
      most = __builtin_fmaxf(most, of(key));
      return x;
    });
    const Halves of_halves = halves(most, lane_anew());
    most = __builtin_fmaxf(of_halves.first, of_halves.second);
    const float next = DecodeWork::unit_for(most, unit), inverse = next == 0 ? 0 : 1 / next;
    const float factor = unit * inverse, reference = rows.state()[0];
    unit = next;
    for_each([&](float x, int key) {
      return __builtin_amdgcn_exp2f(__builtin_fmaf(x, scale, -reference)) * (of(key) * inverse);
    });
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      probabilities[i / 4][i % 4] = rounded_pair<T>(s[0][2 * i], s[0][2 * i + 1]);
    }
    if (__builtin_amdgcn_ballot_w64(factor != 1) != 0) rows.rescale(o, factor);
  }

  // Softcap and ALiBi make base-2 exponents of the products, in place; returns the factor of those that are
  // left to make.
  __device__ float shape(int block, int at) {
    if (plain) return work.scale * kLog2e;
    const DecodeParams& p = decode_arguments();
    if constexpr (kScaled) {
      if (scales_pages(p.k_scale)) {
        const PageScales of(work, p.k_scale, p.k_scale_strides, block);
        for_each([&](float x, int key) { return x * of(key); });
      }
    }
    if (p.softcap == 0 && p.alibi == nullptr) return work.scale * kLog2e;
    if (p.softcap != 0) {
      const float to_two = 2 * kLog2e * work.scale / p.softcap;
      for_each([&](float x, int) {
        return p.softcap * kLog2e * (1 - 2 / (__builtin_amdgcn_exp2f(x * to_two) + 1));
      });
    } else {
      for_each([&](float x, int) { return x * (work.scale * kLog2e); });
    }
    if (p.alibi != nullptr) {
      const int token = own_token(), head = work.head_of(own_row(), token);
      const float slope = p.alibi[work.batch() * p.alibi_stride_batch + head] * kLog2e;
      const int column = work.own(token);
      for_each([&](float x, int key) {
        return x - slope * __builtin_fabsf(static_cast<float>(at + key - column));
      });
    }
    return 1;
  }

  template <typename Change>
  __device__ void for_each(Change change) {
    _Pragma("unroll") for (int i = 0; i < 16; ++i) s[0][i] = change(s[0][i], i / 4 * 8 + i % 4);
  }

  // Tile 4 * t + u of O has dims 128 * t + 4 * m + u, so that a lane reads four dims of a key at once: of
  // each eight keys the four whose P it has. A product takes 16 keys on gfx950, and 8 elsewhere.
  // `meanwhile` is called now and then, with the number of the call, and of all.
  template <typename Meanwhile>
  __device__ void multiply_values(const LdsByte* tile, Meanwhile meanwhile) {
    const int lane = lane_anew();
    const LdsByte* from = tile + lane / 32 * 4 * Block::kPitch + lane % 32 * 8;
    constexpr int kEights = Keys::kBuffers, kGroups = kV / 128, kAll = kTileN / (8 * kEights) * kGroups;
    Dwords2 ring[2][kEights][4];
    const auto read = [&](int n) {
      _Pragma("unroll") for (int i = 0; i < 4 * kEights; ++i) {
        const int key = n / kGroups * 8 * kEights + i / 4 * 8 + i % 4;
        ring[n % 2][i / 4][i % 4] = lds_load<Dwords2>(from + key * Block::kPitch + n % kGroups * 256);
      }
    };
    read(0);
    _Pragma("unroll") for (int n = 0; n < kAll; ++n) {
      if (n + 1 < kAll) read(n + 1);
      __builtin_amdgcn_sched_barrier(0);
      const Dwords2(&x)[kEights][4] = ring[n % 2];
      const Dwords4& weights = probabilities[n / kGroups * kEights / 2];
      _Pragma("unroll") for (int u = 0; u < 4; ++u) {
        Float16& to = o[n % kGroups * 4 + u];
        const Dwords2 first = turned(x[0], u), second = turned(x[kEights - 1], u);
        meanwhile(n * 4 + u, kAll * 4);
        if constexpr (kEights == 2) {
          to = multiply_one<T>(Dwords4{first.x, first.y, second.x, second.y}, weights, to);
        } else {
          to = multiply32<T>(first, n / kGroups % 2 == 0 ? low_half(weights) : high_half(weights), to);
        }
      }
    }
  }

  // Four keys of dim u, of four keys by four dims.
  __device__ static Dwords2 turned(const Dwords2 (&x)[4], int u) {
    const uint32_t which = u % 2 == 0 ? 0x05040100 : 0x07060302;
    return {__builtin_amdgcn_perm(x[1][u / 2], x[0][u / 2], which),
            __builtin_amdgcn_perm(x[3][u / 2], x[2][u / 2], which)};
  }

  // ---- The end.

  __device__ void end() {
    const DecodeParams& p = decode_arguments();
    const int token = own_token(), head = work.head_of(own_row(), token);
    const auto [of_sum, lse] = rows.result(work.split == 0 ? p.sinks : nullptr, head);
    float factor = of_sum;
    if constexpr (kScaled) factor *= p.scale_per_page != 0 ? unit : value_scale();
    const int lane = lane_anew();
    if (work.first_row + wave * kRowsOfWave + lane % 32 >= work.rows) return;
    const int64_t batch = p.cu_q == nullptr ? work.batch() : 0;
    const int64_t at = batch * p.o_strides.batch + head * p.o_strides.nhead +
                       (work.q_base + token) * p.o_strides.row + work.split * p.o_split;
    if (lane < 32 && p.lse != nullptr) {
      p.lse[work.split * p.lse_split + batch * p.lse_strides.batch + head * p.lse_strides.nhead +
            work.q_base + token] = lse * (kLog2e * p.lse_unit);
    }
    if (p.splits > 1) {
      store_row(static_cast<float*>(p.o) + at, factor, lane / 32);
    } else {
      store_row(static_cast<T*>(p.o) + at, factor, lane / 32);
    }
  }

  // A lane has 16 dims that lie together, of each 32.
  template <typename Out>
  __device__ void store_row(Out* to, float factor, int half) const {
    constexpr int kTogether = 16 / sizeof(Out);
    _Pragma("unroll") for (int t = 0; t < kV / 128; ++t) {
      _Pragma("unroll") for (int i = 0; i < 4; ++i) {
        _Pragma("unroll") for (int j = 0; j < 16; j += kTogether) {
          const int dim = 128 * t + 32 * i + 16 * half + j;
          if (dim >= p.hdim_v) continue;
          float x[kTogether];
          _Pragma("unroll") for (int n = 0; n < kTogether; ++n) {
            x[n] = o[4 * t + (j + n) % 4][4 * i + (j + n) / 4] * factor;
          }
          store_some(to + dim, x);
        }
      }
    }
  }
  __device__ static void store_some(float* to, const float (&x)[4]) {
    *reinterpret_cast<Float4*>(to) = Float4{x[0], x[1], x[2], x[3]};
  }
  __device__ static void store_some(T* to, const float (&x)[8]) {
    *reinterpret_cast<Dwords4*>(to) = Dwords4{rounded_to_even<T>(x[0], x[1]), rounded_to_even<T>(x[2], x[3]),
                                              rounded_to_even<T>(x[4], x[5]), rounded_to_even<T>(x[6], x[7])};
  }

  const DecodeParams& p;
  DecodeWork work;
  int wave;
  bool plain;              // scores are only scaled, by one number, and so is O
  float unit;              // of O, if values have scales by page
  int seen_from, seen_to;  // keys that the lane's row sees, both included
  Softmax<T, 1, kTilesO> rows;
  Dwords4 q[kSteps], probabilities[2];
  Float16 s[1], o[kTilesO];
};

}  // namespace fmha

// FMHA_LATENT_KERNEL(symbol, type of q, of the cache, head dims of the tile): one kernel and its facts.
#define FMHA_LATENT_KERNEL(entry, type, cache, hdim_q, hdim_v)                                            \
  using entry##_type = fmha::Latent<fmha::type, fmha::cache, hdim_q, hdim_v>;                             \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                    \
  const fmha::DecodeFacts entry##_facts = {fmha::kLatentBlock, entry##_type::kRows, entry##_type::kTileN, \
                                           hdim_q, hdim_v};                                               \
  extern "C" __global__ __launch_bounds__(fmha::kLatentBlock, 1) void entry(fmha::DecodeParams) {         \
    entry##_type::run();                                                                                  \
  }
