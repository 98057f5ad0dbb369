// SPDX-License-Identifier: MIT OR Apache-2.0
// The floating-point instructions for one lane, in integer arithmetic wherever the host's floats would follow
// rules of their own for denormals, NaNs or rounding. Everything here vectorises and is the same at every
// level.
#pragma once

#include <cstdint>

#include "isa/lanes.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;

#define FMHA_EMU_INLINE [[gnu::always_inline]] inline

template <class To, class From>
FMHA_EMU_INLINE To bits(From x) {
  return __builtin_bit_cast(To, x);
}

struct f16 {
  u16 raw;
};
struct bf16 {
  u16 raw;
};

// The fields of MODE that lanes need, computed once an instruction. Masks, so that lanes need no branches.
struct Env {
  bool ieee, dx10_clamp;
  u32 minimum_number;     // all ones on gfx12
  u32 nearest, up, down;  // rounding of f16 results: all ones in one of them, or in none (toward zero)
  u32 saturate16;         // FP16_OVFL: a finite value beyond f16 becomes the largest one
  u32 keep32, keep64;     // all ones, or only the sign bit when denormal inputs are flushed
  u32 keep64_out;
  explicit Env(u32 mode)
      : ieee(mode >> Mode::kIeee & 1),
        dx10_clamp(mode >> Mode::kDx10Clamp & 1),
        minimum_number(ones_if(mode >> Mode::kMinimumNumber & 1)),
        nearest(ones_if((mode >> Mode::kRound64 & 3) == 0)),
        up(ones_if((mode >> Mode::kRound64 & 3) == 1)),
        down(ones_if((mode >> Mode::kRound64 & 3) == 2)),
        saturate16(ones_if(mode >> kFp16Ovfl & 1)),
        keep32(kSign32 | ones_if(mode >> Mode::kDenorm32 & 1)),
        keep64(kSign32 | ones_if(mode >> Mode::kDenorm64 & 1)),
        keep64_out(kSign32 | ones_if(mode >> Mode::kDenorm64 & 2)) {}
  static constexpr u32 kFp16Ovfl = 23, kSign32 = 1u << 31;
  static constexpr u32 ones_if(bool b) { return b ? ~0u : 0u; }
};

// The layout of a format, for the operations that are the same in all three.
template <class T>
struct Fp;
template <>
struct Fp<f16> {
  using U = u16;
  using I = i16;
  static constexpr U kSign = 0x8000, kInf = 0x7c00, kQuiet = 0x0200, kFraction = 0x03ff;
  static constexpr int kMantissa = 10, kBias = 15;
  FMHA_EMU_INLINE static U keep(const Env& e) { return e.keep64 >> 16 & 0xffff; }
};
template <>
struct Fp<float> {
  using U = u32;
  using I = i32;
  static constexpr U kSign = 1u << 31, kInf = 0x7f800000, kQuiet = 0x00400000, kFraction = 0x007fffff;
  static constexpr int kMantissa = 23, kBias = 127;
  FMHA_EMU_INLINE static U keep(const Env& e) { return e.keep32; }
};
template <>
struct Fp<double> {
  using U = u64;
  using I = i64;
  static constexpr U kSign = 1ull << 63, kInf = 0x7ffull << 52, kQuiet = 1ull << 51,
                     kFraction = (1ull << 52) - 1;
  static constexpr int kMantissa = 52, kBias = 1023;
  FMHA_EMU_INLINE static U keep(const Env& e) { return e.keep64 == ~0u ? ~0ull : kSign; }
};

template <class T>
using BitsOf = typename Fp<T>::U;
template <class T>
FMHA_EMU_INLINE BitsOf<T> raw(T x) {
  return bits<BitsOf<T>>(x);
}
template <class T>
FMHA_EMU_INLINE BitsOf<T> magnitude(T x) {
  return raw(x) & static_cast<BitsOf<T>>(~Fp<T>::kSign);
}
template <class T>
FMHA_EMU_INLINE bool is_nan(T x) {
  return magnitude(x) > Fp<T>::kInf;
}
template <class T>
FMHA_EMU_INLINE bool is_inf(T x) {
  return magnitude(x) == Fp<T>::kInf;
}
template <class T>
FMHA_EMU_INLINE bool is_zero(T x) {
  return magnitude(x) == 0;
}
template <class T>
FMHA_EMU_INLINE bool is_negative(T x) {
  return (raw(x) & Fp<T>::kSign) != 0;
}
template <class T>
FMHA_EMU_INLINE bool is_signaling(T x) {
  return is_nan(x) && !(raw(x) & Fp<T>::kQuiet);
}
template <class T>
FMHA_EMU_INLINE bool is_denormal(T x) {
  return magnitude(x) - BitsOf<T>{1} < Fp<T>::kFraction;
}
template <class T>
FMHA_EMU_INLINE T quiet(T x) {
  return bits<T>(static_cast<BitsOf<T>>(raw(x) | Fp<T>::kQuiet));
}
template <class T>
FMHA_EMU_INLINE T with_sign(T x, bool negative) {
  return bits<T>(static_cast<BitsOf<T>>(magnitude(x) | (negative ? Fp<T>::kSign : 0)));
}
template <class T>
FMHA_EMU_INLINE i32 biased_exponent(T x) {
  return static_cast<i32>(magnitude(x) >> Fp<T>::kMantissa);
}
// Denormal inputs become zeros of their sign when MODE says so.
template <class T>
FMHA_EMU_INLINE T flushed(T x, const Env& e) {
  const BitsOf<T> b = raw(x);
  return bits<T>(static_cast<BitsOf<T>>(magnitude(x) > Fp<T>::kFraction ? b : b & Fp<T>::keep(e)));
}

// Bits as an integer of the same order: -inf < ... < -0 < +0 < ... < inf.
template <class T>
FMHA_EMU_INLINE typename Fp<T>::I order(T x) {
  using I = typename Fp<T>::I;
  const I b = bits<I>(x);
  return static_cast<I>(b ^ (static_cast<I>(b >> (8 * sizeof(T) - 1)) & static_cast<I>(~Fp<T>::kSign)));
}

// All ones for a NaN.
template <class T>
FMHA_EMU_INLINE BitsOf<T> nan_mask(T x) {
  using I = typename Fp<T>::I;
  return static_cast<BitsOf<T>>(static_cast<I>(Fp<T>::kInf - magnitude(x)) >> (8 * sizeof(T) - 1));
}
template <class U>
FMHA_EMU_INLINE U blend(U mask, U yes, U no) {
  return static_cast<U>((yes & mask) | (no & ~mask));
}

// A NaN gives way to the other operand, -0 < +0; in IEEE mode a signalling NaN wins, quieted. On gfx12 none
// does, and of two NaNs the first one comes out quiet. Masks throughout: GCC would make branches of these
// conditionals.
template <class T, bool kMax>
FMHA_EMU_INLINE T min_or_max(T x, T y, const Env& e) {
  using U = BitsOf<T>;
  const T a = flushed(x, e), b = flushed(y, e);
  const U quiet_test = e.ieee ? Fp<T>::kQuiet : static_cast<U>(~U{0});  // no NaN has none of these bits
  const U nan_a = nan_mask(a), nan_b = nan_mask(b);
  const U quieted_a = static_cast<U>(U{0} - static_cast<U>((raw(a) & quiet_test) == 0)) |
                      static_cast<U>(nan_b & static_cast<U>(static_cast<int32_t>(e.minimum_number)));
  const U signaling_a = nan_a & quieted_a;
  const U signaling_b = nan_b & static_cast<U>(U{0} - static_cast<U>((raw(b) & quiet_test) == 0));
  U r = (kMax ? order(a) > order(b) : order(a) < order(b)) ? raw(a) : raw(b);
  r = blend<U>(nan_b, raw(a), r);
  r = blend<U>(nan_a, raw(b), r);
  r = blend<U>(signaling_b, raw(quiet(b)), r);
  return bits<T>(blend<U>(signaling_a, raw(quiet(a)), r));
}
template <class T>
FMHA_EMU_INLINE T min_num(T a, T b, const Env& e) {
  return min_or_max<T, false>(a, b, e);
}
template <class T>
FMHA_EMU_INLINE T max_num(T a, T b, const Env& e) {
  return min_or_max<T, true>(a, b, e);
}
// As IEEE 754-2019 has them: a NaN wins, quieted; -0 < +0. Numbers do not care for the mode of NaNs.
template <class T>
FMHA_EMU_INLINE T propagate_nan(T x, T y, T number) {
  using U = BitsOf<T>;
  const U r = blend<U>(nan_mask(y), raw(quiet(y)), raw(number));
  return bits<T>(blend<U>(nan_mask(x), raw(quiet(x)), r));
}
template <class T>
FMHA_EMU_INLINE T minimum(T a, T b, const Env& e) {
  return propagate_nan(a, b, min_num(a, b, e));
}
template <class T>
FMHA_EMU_INLINE T maximum(T a, T b, const Env& e) {
  return propagate_nan(a, b, max_num(a, b, e));
}
template <class T>
FMHA_EMU_INLINE T min3_num(T a, T b, T c, const Env& e) {
  return min_num(min_num(a, b, e), c, e);
}
template <class T>
FMHA_EMU_INLINE T max3_num(T a, T b, T c, const Env& e) {
  return max_num(max_num(a, b, e), c, e);
}
// All ones for numbers that are equal, zeros of either sign among them.
template <class T>
FMHA_EMU_INLINE BitsOf<T> equal_mask(T x, T y) {
  using U = BitsOf<T>;
  const U differ = raw(x) ^ raw(y), both = magnitude(x) | magnitude(y);
  return static_cast<U>(U{0} - static_cast<U>(differ == 0)) |
         static_cast<U>(U{0} - static_cast<U>(both == 0));
}
// Whichever equals the largest is set aside, the larger of the others is the result. In masks, as a
// conditional around the alternatives would stay a branch.
template <class T>
FMHA_EMU_INLINE T med3_num(T a, T b, T c, const Env& e) {
  using U = BitsOf<T>;
  const T largest = max3_num(a, b, c, e);
  const U is_a = equal_mask(largest, flushed(a, e)), is_b = equal_mask(largest, flushed(b, e));
  const U without_a = raw(max_num(b, c, e)), without_b = raw(max_num(a, c, e)),
          without_c = raw(max_num(a, b, e));
  const U middle = blend<U>(is_a, without_a, blend<U>(is_b, without_b, without_c));
  const U nan = nan_mask(a) | nan_mask(b) | nan_mask(c);
  return bits<T>(blend<U>(nan, raw(min3_num(a, b, c, e)), middle));
}

// v_cmp_class: one bit of `mask` a class.
template <class T>
FMHA_EMU_INLINE bool in_class(T x, u32 mask) {
  const bool n = is_negative(x);
  const u32 c = is_nan(x)        ? (is_signaling(x) ? 0 : 1)
                : is_inf(x)      ? (n ? 2 : 9)
                : is_zero(x)     ? (n ? 5 : 6)
                : is_denormal(x) ? (n ? 4 : 7)
                                 : (n ? 3 : 8);
  return mask >> c & 1;
}

// Exact: the host's conversion would obey its denormal flags, which belong to f32.
FMHA_EMU_INLINE float to_f32(f16 h) {
  const u32 m = h.raw & 0x7fffu, sign = (h.raw & 0x8000u) << 16;
  const u32 normal = (m << 13) + (112u << 23);
  const u32 denormal = bits<u32>(static_cast<float>(static_cast<i32>(m)) * 0x1p-24f);
  const u32 special = m << 13 | 0x7f800000u | static_cast<u32>(m > 0x7c00u) << 22;
  // Masks: a conditional around the float multiply would stay a branch.
  const u32 small = 0u - static_cast<u32>(m < 0x400u);
  return bits<float>(sign | (denormal & small) | ((m >= 0x7c00u ? special : normal) & ~small));
}
FMHA_EMU_INLINE float to_f32(f16 h, const Env& e) { return to_f32(flushed(h, e)); }

// One rounding to f16, with its denormals. nearest, up, down and saturate are masks, see Env.
FMHA_EMU_INLINE u32 round_to_f16(u32 b, u32 nearest, u32 up, u32 down, u32 saturate) {
  const u32 sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
  const i32 exponent = static_cast<i32>(a >> 23);
  // Below f16's normals the significand, with its hidden bit, is shifted out further; 25 leaves only a trace.
  const u32 significand =
      (a & 0x7fffffu) | 0x800000u;  // of an f32 denormal too: far below anything that counts
  const u32 normal = static_cast<u32>((112 - exponent) >> 31);
  const i32 deep = exponent < 101 ? 25 : 126 - exponent;
  const u32 v = blend(normal, a - (112u << 23), significand);
  const u32 shift = blend(normal, 13u, static_cast<u32>(deep));
  const u32 below = (1u << shift) - 1;
  const u32 away = (sign ? down : up) & (0u - static_cast<u32>(a != 0));
  const u32 bias = (nearest & ((below >> 1) + (v >> shift & 1))) | (away & below);
  const u32 r = (v + bias) >> shift;
  const u32 overflow = 0x7bffu + ((nearest | away) & ~saturate & 1);
  const u32 nan = 0x7e00u | (a >> 13 & 0x3ffu);
  const u32 finite = blend(static_cast<u32>(static_cast<i32>(0x7bffu - r) >> 31), overflow, r);
  const u32 special = blend(nan_mask(bits<float>(b)), nan, 0x7c00u);
  return sign | blend(static_cast<u32>(static_cast<i32>(0x7f7fffffu - a) >> 31), special, finite);
}
FMHA_EMU_INLINE f16 to_f16(float x, const Env& e) {
  const u32 r = round_to_f16(raw(flushed(x, e)), e.nearest, e.up, e.down, e.saturate16);
  return {static_cast<u16>((r & 0x7fffu) > 0x3ffu ? r : r & e.keep64_out >> 16)};
}
// Rounds to nearest even, whatever MODE says; a NaN stays one.
FMHA_EMU_INLINE u32 to_bf16(float x) {
  const u32 b = raw(x), rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16;
  return blend<u32>(nan_mask(x), b >> 16 | 0x40, rounded);
}
FMHA_EMU_INLINE float to_f32(bf16 h) { return bits<float>(static_cast<u32>(h.raw) << 16); }
FMHA_EMU_INLINE f16 to_f16_toward_zero(float x) {
  return {static_cast<u16>(round_to_f16(raw(x), 0, 0, 0, 0))};
}

// a + b with the lowest bit set if anything was lost ("round to odd"): a later rounding to fewer than half
// the bits then gives what a single one would have. Needs the host to round to nearest.
template <class T>
FMHA_EMU_INLINE T add_to_odd(T a, T b) {
  const T s = a + b;
  const T bb = s - a;
  const T lost = (a - (s - bb)) + (b - bb);
  const BitsOf<T> u = raw(s);
  const BitsOf<T> toward_zero = is_negative(lost) == is_negative(s) ? u : u - 1;
  const bool inexact = static_cast<BitsOf<T>>(magnitude(lost) - 1) < Fp<T>::kInf;  // neither zero nor NaN
  return inexact ? bits<T>(static_cast<BitsOf<T>>(toward_zero | 1)) : s;
}

// Fused multiply-add with one rounding. Without FMA hardware: the product of two f32 is exact in f64.
FMHA_EMU_INLINE float fma32(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return static_cast<float>(
      add_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
#endif
}
FMHA_EMU_INLINE double fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }

FMHA_EMU_INLINE f16 fma16(f16 a, f16 b, f16 c, const Env& e) {
  const float product = to_f32(a, e) * to_f32(b, e), addend = to_f32(c, e);
  return to_f16(e.nearest ? add_to_odd(product, addend) : product + addend, e);
}

// Conversions to integers saturate and make NaN zero.
FMHA_EMU_INLINE i32 to_i32(float x) {
  const i32 r = static_cast<i32>(x >= -0x1p31f && x < 0x1p31f ? x : 0.0f);
  return x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : r;
}
FMHA_EMU_INLINE u32 to_u32(float x) {
  const bool high = x >= 0x1p31f;
  const float y = high ? x - 0x1p31f : x;
  const u32 r = static_cast<u32>(static_cast<i32>(y > 0.0f && y < 0x1p31f ? y : 0.0f));
  return x >= 0x1p32f ? UINT32_MAX : high ? r | 1u << 31 : r;
}
FMHA_EMU_INLINE i32 to_i32(double x) {
  const i32 r = static_cast<i32>(x > -0x1p31 - 1 && x < 0x1p31 ? x : 0.0);
  return x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 - 1 ? INT32_MIN : r;
}
FMHA_EMU_INLINE u32 to_u32(double x) {
  const bool high = x >= 0x1p31;
  const double y = high ? x - 0x1p31 : x;
  const u32 r = static_cast<u32>(static_cast<i32>(y > 0.0 && y < 0x1p31 ? y : 0.0));
  return x >= 0x1p32 ? UINT32_MAX : high ? r | 1u << 31 : r;
}
FMHA_EMU_INLINE i32 clamp_int(i32 x, i32 low, i32 high) { return x < low ? low : x > high ? high : x; }

// frexp: x = mantissa * 2^exponent, mantissa in [0.5, 1). Inf and NaN stay, with exponent 0.
template <class T>
FMHA_EMU_INLINE int leading_zeros(T x) {
  const u64 m = magnitude(x);
  return __builtin_clzll(m | 1) - (64 - (Fp<T>::kMantissa + 1));  // of a denormal, from the hidden bit down
}
template <class T>
FMHA_EMU_INLINE i32 frexp_exponent(T x) {
  if (is_nan(x) || is_inf(x) || is_zero(x)) return 0;
  const i32 e = biased_exponent(x);
  return (e ? e : 1 - leading_zeros(x)) - Fp<T>::kBias + 1;
}
template <class T>
FMHA_EMU_INLINE T frexp_mantissa(T x) {
  if (is_nan(x) || is_inf(x) || is_zero(x)) return x;
  const BitsOf<T> m =
      biased_exponent(x) ? magnitude(x) : static_cast<BitsOf<T>>(magnitude(x) << leading_zeros(x));
  const BitsOf<T> half = static_cast<BitsOf<T>>(static_cast<u64>(Fp<T>::kBias - 1) << Fp<T>::kMantissa);
  return bits<T>(static_cast<BitsOf<T>>((raw(x) & Fp<T>::kSign) | half | (m & Fp<T>::kFraction)));
}

// fract stays below one: the hardware clamps what x - floor(x) would round up.
FMHA_EMU_INLINE float below_one(float x) { return x >= 1.0f ? 0x1.fffffep-1f : x; }
FMHA_EMU_INLINE double below_one(double x) { return x >= 1.0 ? 0x1.fffffffffffffp-1 : x; }

// Rounds to the nearest integer, ties to even, whatever the host's rounding; -0 stays. GCC does not vectorise
// roundeven.
template <class T, T (*kFloor)(T)>
FMHA_EMU_INLINE T round_even_with(T x) {
  const T f = kFloor(x), d = x - f;
  const T half = static_cast<T>(0.5);
  const bool odd = kFloor(f * half) != f * half;
  const T tie = odd ? static_cast<T>(1) : static_cast<T>(0);
  const T up = d > half ? static_cast<T>(1) : d == half ? tie : static_cast<T>(0);
  return bits<T>(static_cast<BitsOf<T>>(magnitude(f + up) | (raw(x) & Fp<T>::kSign)));
}
FMHA_EMU_INLINE float floor32(float x) { return __builtin_floorf(x); }
FMHA_EMU_INLINE double floor64(double x) { return __builtin_floor(x); }
FMHA_EMU_INLINE float round_even(float x) { return round_even_with<float, floor32>(x); }
FMHA_EMU_INLINE double round_even(double x) { return round_even_with<double, floor64>(x); }

FMHA_EMU_INLINE i16 to_i16(float x) { return static_cast<i16>(clamp_int(to_i32(x), -0x8000, 0x7fff)); }
FMHA_EMU_INLINE u16 to_u16(float x) { return static_cast<u16>(clamp_int(to_i32(x), 0, 0xffff)); }
FMHA_EMU_INLINE float clamped(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
FMHA_EMU_INLINE i16 to_snorm16(float x) { return to_i16(round_even(clamped(x, -1, 1) * 32767.0f)); }
FMHA_EMU_INLINE u16 to_unorm16(float x) { return to_u16(round_even(clamped(x, 0, 1) * 65535.0f)); }

// 2^n for n in f64's normal range.
FMHA_EMU_INLINE double exp2_int(i32 n) { return bits<double>(static_cast<u64>(n + 1023) << 52); }
// x * 2^n, rounded once: in f64 nothing is lost before the rounding to f32.
FMHA_EMU_INLINE float ldexp32(float x, i32 n) {
  return static_cast<float>(static_cast<double>(x) * exp2_int(clamp_int(n, -400, 400)));
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
