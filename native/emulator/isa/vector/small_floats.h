// SPDX-License-Identifier: MIT OR Apache-2.0
// OCP's small floats (Microscaling Formats specification), and conversions to and from them under a scale of
// E8M0: 2^(scale - 127), 0xff is NaN.
//
// The conversions follow the CDNA4 ISA guide: 7.3 "BF8 / FP8 and Smaller Formats and Conversions", 7.4
// (floats of less than 32 bits keep denormals, whatever MODE says) and the pseudocode of each instruction.
// AMD's HIP header amd_hip_ocp_host.hpp, which does the same on a host, decides the rest: NaN as a 6- or
// 4-bit float, which has none, is the largest one; a result beyond f32, f16 or bf16 is infinite; and the
// place of the random bits that stochastic rounding adds before it cuts off.
#pragma once

#include "isa/vector/valu_float.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

template <int kExponentBits, int kMantissaBits>
struct SmallFloat {
  static constexpr int kMantissa = kMantissaBits, kBits = 1 + kExponentBits + kMantissaBits;
  static constexpr i32 kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr u32 kSign = 1u << (kBits - 1), kAll = kSign - 1;
  static constexpr bool kHasInfinity = kExponentBits == 5;
  static constexpr bool kHasNan = kBits >= 8;
  // Magnitudes: the largest number, what a larger one becomes (infinity, NaN, or it stays), and NaN.
  static constexpr u32 kMost = kHasInfinity ? (kAll ^ ((1u << kMantissa) - 1)) - 1 : kAll - kHasNan;
  static constexpr u32 kOver = kHasNan ? kMost + 1 : kMost;
  static constexpr u32 kNan = kHasInfinity ? kOver | 1u << (kMantissa - 1) : kAll;
};
using E4m3 = SmallFloat<4, 3>;
using E5m2 = SmallFloat<5, 2>;
using E2m3 = SmallFloat<2, 3>;
using E3m2 = SmallFloat<3, 2>;
using E2m1 = SmallFloat<2, 1>;

constexpr u32 kNanScale = 0xff;
// The scale in an f32: its exponent.
FMHA_EMU_INLINE u32 scale_of(float x) { return raw(x) >> 23 & 0xff; }
// A step of v_prng_b32, which gives each further element of one instruction its random bits.
FMHA_EMU_INLINE u32 next_random(u32 x) { return x << 1 ^ (x >> 31) * 197u; }

// x / 2^(scale - 127) as a small float. kSource: the bits of the mantissa that the source had before it was
// an f32. kRandom: rounded by `random`, of whose upper bits as many count as are cut off; else to nearest
// even.
template <class T, int kSource, bool kRandom>
FMHA_EMU_INLINE u32 narrowed(float x, u32 scale, u32 random, const Env& env) {
  constexpr int kDrop = 23 - T::kMantissa;
  constexpr i32 kLeast = 1 - T::kBias;  // the exponent of the least normal number
  const u32 sign = is_negative(x) ? T::kSign : 0;
  if (is_nan(x) || scale == kNanScale) return sign | T::kNan;
  const u32 over = sign | (env.saturate16 ? T::kMost : T::kOver);
  if (is_inf(x)) return over;
  if (is_zero(x)) return sign;
  const u32 a = magnitude(x);
  const i32 up = a >> 23 ? 0 : __builtin_clz(a) - 8;  // of a denormal
  const u32 significand = a >> 23 ? (a & 0x7fffffu) | 0x800000u : a << up;
  const i32 exponent = (a >> 23 ? static_cast<i32>(a >> 23) : 1 - up) - static_cast<i32>(scale);
  const u32 down = exponent >= kLeast ? 0 : kLeast - exponent < 31 ? static_cast<u32>(kLeast - exponent) : 31;
  const u32 above = exponent > kLeast ? static_cast<u32>(exponent - kLeast) : 0;
  u32 v = (above << 23) + (significand >> down);
  if constexpr (kRandom) {
    v += random >> (32 - kSource + T::kMantissa) << (23 - kSource);
  } else {
    v |= (significand & ((1u << down) - 1)) != 0 ? 1 : 0;
    v += (1u << (kDrop - 1)) - 1 + (v >> kDrop & 1);
  }
  const u32 r = v >> kDrop;
  return r > T::kMost ? over : sign | r;
}

// A small float * 2^(scale - 127), as an f32's bits.
template <class T>
FMHA_EMU_INLINE u32 widened(u32 code, u32 scale) {
  const u32 m = code & T::kAll, sign = code & T::kSign ? 1u << 31 : 0;
  const bool nan = T::kHasInfinity ? m > T::kOver : T::kHasNan && m == T::kNan;
  if (nan || scale == kNanScale) return sign | 0x7fc00000u;
  if (T::kHasInfinity && m == T::kOver) return sign | 0x7f800000u;
  if (m == 0) return sign;
  const u32 field = m >> T::kMantissa, fraction = m & ((1u << T::kMantissa) - 1);
  const i32 up = field ? 0 : __builtin_clz(fraction) - (31 - T::kMantissa);  // of a denormal
  const u32 significand = (field ? fraction | 1u << T::kMantissa : fraction << up) << (23 - T::kMantissa);
  const i32 exponent = (field ? static_cast<i32>(field) : 1 - up) - T::kBias + static_cast<i32>(scale);
  if (exponent > 254) return sign | 0x7f800000u;
  if (exponent > 0) return sign | static_cast<u32>(exponent) << 23 | (significand & 0x7fffffu);
  return sign | significand >> (1 - exponent);  // exactly: so deep it has but zeros to lose
}
template <class T>
FMHA_EMU_INLINE u16 widened_to_bf16(u32 code, u32 scale) {
  return static_cast<u16>(to_bf16(bits<float>(widened<T>(code, scale))));
}
// Beyond f32's exponents it is beyond f16's too: there a finite one must not look infinite.
template <class T>
FMHA_EMU_INLINE u16 widened_to_f16(u32 code, u32 scale, const Env& env) {
  const u32 as_if = scale > 200 && scale != kNanScale ? 200 : scale;
  return static_cast<u16>(round_to_f16(widened<T>(code, as_if), ~0u, 0, 0, env.saturate16));
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
