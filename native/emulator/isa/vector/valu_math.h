// SPDX-License-Identifier: MIT OR Apache-2.0
// The transcendental instructions. Hardware promises 1 ulp and flushes f32 denormals, in and out, whatever
// MODE says; here polynomials in f64 without FMA give at most 0.55 ulp and the same bits at every level.
#pragma once

#include "isa/vector/valu_float.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

FMHA_EMU_INLINE float flush_denormal(float x) {
  const u32 b = raw(x);
  return bits<float>((b & Fp<float>::kInf) ? b : b & Fp<float>::kSign);
}

// gfx90a's unfused multiply-adds: two roundings, and no denormals, whatever MODE says.
FMHA_EMU_INLINE float mad32(float a, float b, float c) {
  const float product = flush_denormal(flush_denormal(a) * flush_denormal(b));
  return flush_denormal(product + flush_denormal(c));
}
// Zero times anything is zero.
FMHA_EMU_INLINE float mad_legacy32(float a, float b, float c) {
  const float x = flush_denormal(a), y = flush_denormal(b);
  const float product = x == 0.0f || y == 0.0f ? 0.0f : flush_denormal(x * y);
  return flush_denormal(product + flush_denormal(c));
}

// Sum of two products of halves, widened, and a float. gfx90a's takes and gives no denormals, whatever MODE
// says (PyTorch's notes on numerical accuracy, MI200: "V_DOT2 ... flush input and output denormal values").
template <bool kFlush>
FMHA_EMU_INLINE float dot2_f32(float a0, float b0, float a1, float b1, float c) {
  const auto in = [](float half) { return kFlush && __builtin_fabsf(half) < 0x1p-14f ? half * 0.0f : half; };
  const auto out = [](float x) { return kFlush ? flush_denormal(x) : x; };
  const float first = out(c) + in(a0)*in(b0);
  return out(first + in(a1)*in(b1));
}

// Taylor-like coefficients by Chebyshev interpolation; the comment is the largest relative error.
FMHA_EMU_INLINE float exp2_f32(float x) {
  const float c = x < -160.0f  ? -160.0f
                  : x > 160.0f ? 160.0f
                               : x;  // NaN goes on, to be dealt with at the end
  const float n = __builtin_floorf(c + 0.5f);
  const double r = static_cast<double>(c) - static_cast<double>(n);
  double p = 0x1.443fffc90d649p-13;  // 2^-28.5 on [-0.5, 0.5]
  p = p * r + 0x1.5f48c04f62e22p-10;
  p = p * r + 0x1.3b2a1b7152bf7p-7;
  p = p * r + 0x1.c6aecc669b6dep-5;
  p = p * r + 0x1.ebfbe045f4d3cp-3;
  p = p * r + 0x1.62e430d034702p-1;
  p = p * r + 1.0;
  // Scaling through the exponent field: no denormal ever meets the host's flags.
  const u32 b = raw(static_cast<float>(p));
  const i32 shift = static_cast<i32>(n == n ? n : 0.0f);
  const u32 scaled = b + (static_cast<u32>(shift) << 23);
  const i32 e = static_cast<i32>(b >> 23) + shift;
  const u32 y = e >= 255 ? Fp<float>::kInf : e <= 0 ? 0u : scaled;
  return is_nan(x) ? quiet(x) : bits<float>(y);
}

FMHA_EMU_INLINE float log2_f32(float x) {
  const u32 b = raw(flush_denormal(x));
  // m in [sqrt(1/2), sqrt(2)) so that e + log2(m) does not cancel.
  const i32 e = static_cast<i32>(b - 0x3f3504f3u) >> 23;
  const float mf = bits<float>(b - (static_cast<u32>(e) << 23));
  const double m = mf;
  const double t = (m - 1.0) / (m + 1.0), u = t * t;
  double p = 0x1.21acc146cc99fp-2;  // 2^-45 on |t| <= 0.1716
  p = p * u + 0x1.4795a3c22c97bp-2;
  p = p * u + 0x1.a61a2cd00d3dap-2;
  p = p * u + 0x1.2776c295df592p-1;
  p = p * u + 0x1.ec709dc539f4ep-1;
  p = p * u + 0x1.71547652b8252p+1;
  const float y = static_cast<float>(static_cast<double>(e) + p * t);
  const u32 special = is_nan(x) ? raw(quiet(x)) : (b << 1) == 0 ? 0xff800000u : b >> 31 ? 0x7fc00000u : b;
  const bool ordinary = b - 1 < Fp<float>::kInf - 1;
  return bits<float>(ordinary ? raw(y) : special);
}

FMHA_EMU_INLINE float rcp_f32(float x) { return flush_denormal(1.0f / flush_denormal(x)); }
FMHA_EMU_INLINE float sqrt_f32(float x) { return __builtin_sqrtf(flush_denormal(x)); }
FMHA_EMU_INLINE float rsq_f32(float x) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(flush_denormal(x))));
}

// sin(2 pi r) for r in [-1/2, 1/2].
FMHA_EMU_INLINE double sin_turns(double r) {
  const double folded = r > 0.25 ? 0.5 - r : r < -0.25 ? -0.5 - r : r;
  const double u = folded * folded;
  double p = 0x1.d53abdf3723b6p+1;  // 2^-43 on [-1/4, 1/4]
  p = p * u + -0x1.e29b82abee747p+3;
  p = p * u + 0x1.50770f6a5b8a0p+5;
  p = p * u + -0x1.32d2c9b2d1e1cp+6;
  p = p * u + 0x1.466bc66ed3d1bp+6;
  p = p * u + -0x1.4abbce624ad99p+5;
  p = p * u + 0x1.921fb54442bb4p+2;
  return p * folded;
}
// The argument is in turns. Beyond 256 of them: 0 and 1; of infinities: NaN.
FMHA_EMU_INLINE float sin_f32(float x) {
  const double t = flush_denormal(x);
  const double r = t - __builtin_floor(t + 0.5);
  const float y = static_cast<float>(sin_turns(r));
  return is_nan(x)                 ? quiet(x)
         : is_inf(x)               ? bits<float>(0x7fc00000u)
         : t > 256.0 || t < -256.0 ? 0.0f
         : t == 0.0                ? flush_denormal(x)
                                   : y;
}
FMHA_EMU_INLINE float cos_f32(float x) {
  const double t = static_cast<double>(flush_denormal(x)) + 0.25;
  const double r = t - __builtin_floor(t + 0.5);
  const float y = static_cast<float>(sin_turns(r));
  return is_nan(x) ? quiet(x) : is_inf(x) ? bits<float>(0x7fc00000u) : t > 256.25 || t < -255.75 ? 1.0f : y;
}

// f16 goes through f32, which has more than twice its bits and none of its denormals.
FMHA_EMU_INLINE float rcp_wide(float x) { return 1.0f / x; }
FMHA_EMU_INLINE float sqrt_wide(float x) { return __builtin_sqrtf(x); }

// A float as the magnitude of an 8-bit one of so many bits of mantissa and this bias, rounded to nearest
// even; if it is too large, more than the largest.
template <int kMantissa, int kBias>
FMHA_EMU_INLINE u32 rounded_to_8_bits(float x) {
  constexpr i32 kLeast = 128 - kBias;  // biased f32 exponent of the least normal
  const u32 a = magnitude(x);
  const i32 e = static_cast<i32>(a >> 23);
  const u32 significand = (a & 0x7fffffu) | 0x800000u;  // of an f32 denormal too: it rounds to zero anyway
  const u32 normal = static_cast<u32>((kLeast - 1 - e) >> 31);
  const i32 deep = kLeast - e + 23 - kMantissa;
  const u32 shift = blend<u32>(normal, 23u - kMantissa, deep > 25 ? 25u : static_cast<u32>(deep));
  const u32 v = blend(normal, a - (static_cast<u32>(kLeast - 1) << 23), significand);
  return (v + (((1u << shift) - 1) >> 1) + (v >> shift & 1)) >> shift;
}
template <int kMantissa, int kBias>
FMHA_EMU_INLINE u32 widened_from_8_bits(u32 code) {
  const u32 m = code & 0x7f, sign = (code & 0x80) << 24;
  const u32 normal = (m << (23 - kMantissa)) + ((127u - kBias) << 23);
  constexpr float kStep =
      __builtin_bit_cast(float, static_cast<u32>(128 - kBias - kMantissa) << 23);  // of the denormals
  const u32 denormal = bits<u32>(static_cast<float>(static_cast<i32>(m)) * kStep);
  const u32 small = 0u - static_cast<u32>(m < (1u << kMantissa));
  return sign | (denormal & small) | (normal & ~small);
}
FMHA_EMU_INLINE u32 mask_if(bool holds) { return 0u - static_cast<u32>(holds); }

// FP8 of gfx942: FNUZ. No infinities, no -0 (its code is the only NaN); E4M3 has bias 8, E5M2 bias 16.
struct Fnuz8 {
  template <int kMantissa>
  FMHA_EMU_INLINE static float widen(u32 code) {
    const u32 value = widened_from_8_bits < kMantissa, kMantissa == 3 ? 8 : 16 > (code);
    return bits<float>((code & 0xff) == 0x80 ? 0x7fc00000u : value);
  }
  // A number that is too large becomes NaN, or the largest value if MODE.FP16_OVFL is set.
  template <int kMantissa>
  FMHA_EMU_INLINE static u32 narrow(float x, const Env& env) {
    const u32 r = rounded_to_8_bits < kMantissa, kMantissa == 3 ? 8 : 16 > (x), sign = raw(x) >> 24 & 0x80u;
    const u32 limited =
        blend(mask_if(r > 0x7fu), blend(env.saturate16, 0x7fu | sign, 0x80u), r | (sign & mask_if(r != 0)));
    return blend(nan_mask(x), 0x80u, limited);
  }
};

// The 8-bit floats of gfx950 and gfx12: OCP, with -0. E4M3 has bias 7, no infinity, and 0x7f as its NaN; E5M2
// is a short f16.
struct Ocp8 {
  template <int kMantissa>
  FMHA_EMU_INLINE static float widen(u32 code) {
    const u32 value = widened_from_8_bits < kMantissa, kMantissa == 3 ? 7 : 15 > (code), m = code & 0x7f;
    const u32 infinity = (code & 0x80) << 24 | 0x7f800000u;
    const bool nan = kMantissa == 3 ? m == 0x7f : m > 0x7c, infinite = kMantissa == 2 && m == 0x7c;
    return bits<float>(nan ? infinity | 0x400000u : infinite ? infinity : value);
  }
  // A number that is too large becomes NaN, in E5M2 infinity; or the largest value if MODE.FP16_OVFL is set.
  template <int kMantissa>
  FMHA_EMU_INLINE static u32 narrow(float x, const Env& env) {
    constexpr u32 kMost = kMantissa == 3 ? 0x7e : 0x7b;
    const u32 r = rounded_to_8_bits < kMantissa, kMantissa == 3 ? 7 : 15 > (x), sign = raw(x) >> 24 & 0x80u;
    const u32 limited = blend(mask_if(r > kMost), blend(env.saturate16, kMost, kMost + 1), r);
    return sign | blend(nan_mask(x), 0x7fu, limited);
  }
};

FMHA_EMU_INLINE u32 saturated_u32(u64 x) { return x > 0xffffffffu ? ~0u : static_cast<u32>(x); }
FMHA_EMU_INLINE i32 saturated_i32(i64 x) {
  return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : static_cast<i32>(x);
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
