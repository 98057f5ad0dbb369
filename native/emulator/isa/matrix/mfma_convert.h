// SPDX-License-Identifier: MIT OR Apache-2.0
// Element types of matrix instructions: how the elements packed in registers widen to the type they are
// multiplied in. widen<kCount> reads what holds kCount elements a lane and writes [element][lane].
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "isa/lanes.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

using Lanes = const uint32_t (*)[kLanes];

inline float float_of(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline void join_doubles(const uint32_t* regs, double* out) {
  for (int l = 0; l < kLanes; ++l) {
    const uint64_t bits = regs[l] | static_cast<uint64_t>(regs[l + kLanes]) << 32;
    std::memcpy(&out[l], &bits, 8);
  }
}
inline void split_doubles(const double* in, uint32_t* regs) {
  for (int l = 0; l < kLanes; ++l) {
    uint64_t bits;
    std::memcpy(&bits, &in[l], 8);
    regs[l] = static_cast<uint32_t>(bits);
    regs[l + kLanes] = static_cast<uint32_t>(bits >> 32);
  }
}

// Both halves of 64 registers, f16 to f32; denormals are kept.
inline void widen_halves(const uint32_t* in, float* lo, float* hi) {
#if defined(__AVX512F__)
  // The zero-masking forms with a full mask: gcc 12 warns about its own header in the plain ones.
  for (int l = 0; l < kLanes; l += 16) {
    const __m512i x = _mm512_load_si512(in + l), y = _mm512_maskz_srli_epi32(0xffff, x, 16);
    _mm512_store_ps(lo + l, _mm512_maskz_cvtph_ps(0xffff, _mm512_maskz_cvtepi32_epi16(0xffff, x)));
    _mm512_store_ps(hi + l, _mm512_maskz_cvtph_ps(0xffff, _mm512_maskz_cvtepi32_epi16(0xffff, y)));
  }
#elif defined(__F16C__) && defined(__AVX2__)
  // Within each 128 bits: the four low halves, then the four high halves.
  const __m256i apart = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8,
                                         9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  for (int l = 0; l < kLanes; l += 8) {
    const __m256i x = _mm256_shuffle_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(in + l)), apart);
    const __m256i y = _mm256_permute4x64_epi64(x, 0xd8);
    _mm256_store_ps(lo + l, _mm256_cvtph_ps(_mm256_castsi256_si128(y)));
    _mm256_store_ps(hi + l, _mm256_cvtph_ps(_mm256_extracti128_si256(y, 1)));
  }
#else
  // Exponent and significand moved up; a multiplication puts the exponent right and normalises denormals.
  const auto widen = [](uint32_t h) {
    const uint32_t shifted = (h & 0x7fff) << 13;
    const float scaled = float_of(shifted) * 0x1p112f;
    uint32_t bits;
    std::memcpy(&bits, &scaled, 4);
    bits = shifted >= 0x0f800000 ? (shifted | 0x7f800000) : bits;
    return float_of(bits | (h & 0x8000) << 16);
  };
  for (int l = 0; l < kLanes; ++l) {
    lo[l] = widen(in[l] & 0xffff);
    hi[l] = widen(in[l] >> 16);
  }
#endif
}

template <bool kFlush>
struct Half {
  using Acc = float;
  static constexpr Element kElement = Element::kF16;
  static constexpr int kBits = 16;
  static constexpr bool kExactProduct = true;  // in Acc
  static constexpr int kSignificantBits = 11;
  template <int kCount>
  static void widen(const uint32_t* in, float (*out)[kLanes]) {
    for (int r = 0; r < kCount / 2; ++r) {
      widen_halves(in + r * kLanes, out[2 * r], out[2 * r + 1]);
      if constexpr (kFlush) {
        for (int l = 0; l < kLanes; ++l) {
          out[2 * r][l] *= (in[r * kLanes + l] & 0x7c00) ? 1.0f : 0.0f;
          out[2 * r + 1][l] *= (in[r * kLanes + l] & 0x7c000000) ? 1.0f : 0.0f;
        }
      }
    }
  }
};

struct Bfloat {
  using Acc = float;
  static constexpr Element kElement = Element::kBf16;
  static constexpr int kBits = 16;
  static constexpr bool kExactProduct = false;  // in Acc
  static constexpr int kSignificantBits = 8;
  template <int kCount>
  static void widen(const uint32_t* in, float (*out)[kLanes]) {
    for (int r = 0; r < kCount / 2; ++r) {
      uint32_t* lo = reinterpret_cast<uint32_t*>(out[2 * r]);
      uint32_t* hi = reinterpret_cast<uint32_t*>(out[2 * r + 1]);
      for (int l = 0; l < kLanes; ++l) {
        lo[l] = in[r * kLanes + l] << 16;
        hi[l] = in[r * kLanes + l] & 0xffff0000;
      }
    }
  }
};

struct Single {
  using Acc = float;
  static constexpr Element kElement = Element::kF32;
  static constexpr int kBits = 32;
  static constexpr bool kExactProduct = false;  // in Acc
  static constexpr int kSignificantBits = 24;
  template <int kCount>
  static void widen(const uint32_t* in, float (*out)[kLanes]) {
    std::memcpy(out, in, sizeof(float) * kLanes * kCount);
  }
};

// XF32: f32 inputs rounded (to nearest even, the manual says nothing) to ten bits of fraction.
struct Xfloat {
  using Acc = float;
  static constexpr Element kElement = Element::kXf32;
  static constexpr int kBits = 32;
  static constexpr bool kExactProduct = false;  // in Acc
  static constexpr int kSignificantBits = 11;
  template <int kCount>
  static void widen(const uint32_t* in, float (*out)[kLanes]) {
    uint32_t* bits = reinterpret_cast<uint32_t*>(out);
    for (int i = 0; i < kLanes * kCount; ++i) {
      const uint32_t x = in[i], rounded = (x + 0xfff + (x >> 13 & 1)) & ~0x1fffu;
      const bool special = (x & 0x7f800000) == 0x7f800000;
      bits[i] = !special ? rounded : (x & 0x7fffff) ? x | 0x400000 : x;
    }
  }
};

struct Double {
  using Acc = double;
  static constexpr Element kElement = Element::kF64;
  static constexpr int kBits = 64;
  static constexpr bool kExactProduct = false;  // in Acc
  static constexpr int kSignificantBits = 53;
  template <int kCount>
  static void widen(const uint32_t* in, double (*out)[kLanes]) {
    for (int e = 0; e < kCount; ++e) join_doubles(in + 2 * e * kLanes, out[e]);
  }
};

struct Byte {
  using Acc = uint32_t;  // wraps, as the accumulator does
  static constexpr Element kElement = Element::kI8;
  static constexpr int kBits = 8;
  static constexpr bool kExactProduct = true;  // in Acc
  static constexpr int kSignificantBits = 8;
  template <int kCount>
  static void widen(const uint32_t* in, uint32_t (*out)[kLanes]) {
    for (int e = 0; e < kCount; ++e) {
      for (int l = 0; l < kLanes; ++l) {
        out[e][l] =
            static_cast<uint32_t>(static_cast<int32_t>(in[e / 4 * kLanes + l] << (24 - 8 * (e % 4))) >> 24);
      }
    }
  }
};

// FP8 (E4M3) and BF8 (E5M2) as CDNA3 has them, "FNUZ": bias one more than IEEE's way, no infinity, no
// negative zero; 0x80 is NaN.
template <int kExponentBits>
struct Fnuz {
  using Acc = float;
  static constexpr Element kElement = kExponentBits == 4 ? Element::kFp8 : Element::kBf8;
  static constexpr int kBits = 8;
  static constexpr bool kExactProduct = true;  // in Acc
  static constexpr int kSignificantBits = 8 - kExponentBits;
  template <int kCount>
  static void widen(const uint32_t* in, float (*out)[kLanes]) {
    constexpr float kScale = kExponentBits == 4 ? 0x1p119f : 0x1p111f;  // 2^(127 - bias)
    for (int e = 0; e < kCount; ++e) {
      for (int l = 0; l < kLanes; ++l) {
        const uint32_t byte = in[e / 4 * kLanes + l] >> (8 * (e % 4)) & 0xff;
        const float value = float_of((byte & 0x7f) << (16 + kExponentBits)) * kScale;
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        bits = byte == 0x80 ? 0x7fc00000 : bits | (byte & 0x80) << 24;
        out[e][l] = float_of(bits);
      }
    }
  }
};
using Fp8 = Fnuz<4>;
using Bf8 = Fnuz<5>;

// As CDNA4 has them, OCP's: IEEE's way of biases, with -0. E5M2 has infinities and NaNs; E4M3 has one NaN.
template <int kExponentBits>
struct Ocp : Fnuz<kExponentBits> {
  template <int kCount>
  static void widen(const uint32_t* in, float (*out)[kLanes]) {
    constexpr float kScale = kExponentBits == 4 ? 0x1p120f : 0x1p112f;  // 2^(127 - bias)
    for (int e = 0; e < kCount; ++e) {
      for (int l = 0; l < kLanes; ++l) {
        const uint32_t byte = in[e / 4 * kLanes + l] >> (8 * (e % 4)) & 0xff, m = byte & 0x7f;
        const float value = float_of(m << (16 + kExponentBits)) * kScale;
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        const bool nan = kExponentBits == 4 ? m == 0x7f : m > 0x7c;
        bits = nan ? 0x7fc00000 : kExponentBits == 5 && m == 0x7c ? 0x7f800000 : bits;
        out[e][l] = float_of(bits | (byte & 0x80) << 24);
      }
    }
  }
};
using OcpFp8 = Ocp<4>;
using OcpBf8 = Ocp<5>;

}  // namespace fmha::emu::FMHA_EMU_LEVEL
