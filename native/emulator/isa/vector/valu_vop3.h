// SPDX-License-Identifier: MIT OR Apache-2.0
// One-lane bodies of VOP3 instructions that do not fit on a line.
#pragma once

#include "isa/vector/valu.h"
#include "isa/vector/valu_math.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

struct OpSel {
  u32 value;
};  // parameter: the instruction's op_sel
struct Table {
  u32 value;
};  // parameter: the instruction's truth table
struct Vcc {
  bool bit;
};  // parameter: the lane's bit of VCC, whatever src2 is
template <>
struct Param<OpSel> : Param<Env> {
  FMHA_EMU_INLINE static OpSel lane(const u32*, int, const Inst& inst, const Env&) { return {inst.op_sel}; }
};
template <>
struct Param<Table> : Param<Env> {
  FMHA_EMU_INLINE static Table lane(const u32*, int, const Inst& inst, const Env&) {
    return {static_cast<u32>(inst.imm)};
  }
};
template <>
struct Param<Vcc> : Param<bool> {
  FMHA_EMU_INLINE static const u32* prepare(Wave& w, const Inst&, int, bool, u32* mask) {
    spread_mask(vcc_mask(w), mask);
    return mask;
  }
  FMHA_EMU_INLINE static Vcc lane(const u32* p, int l, const Inst&, const Env&) { return {p[l] != 0}; }
};

template <class T>
FMHA_EMU_INLINE Low<T> low(T x) {
  return {x};
}
template <class T>
FMHA_EMU_INLINE T least(T a, T b) {
  return a < b ? a : b;
}
template <class T>
FMHA_EMU_INLINE T most(T a, T b) {
  return a > b ? a : b;
}
template <class T>
FMHA_EMU_INLINE T median(T a, T b, T c) {
  return most(least(a, b), least(most(a, b), c));
}
FMHA_EMU_INLINE u32 halves(u32 low, u32 high) { return (low & 0xffff) | high << 16; }

// Two numbers shifted right and limited to bytes, that of a below that of b.
FMHA_EMU_INLINE u16 shifted_bytes(i32 a, i32 b, u32 shift, i32 least, i32 most) {
  const i32 x = clamp_int(a >> (shift & 31), least, most), y = clamp_int(b >> (shift & 31), least, most);
  return static_cast<u16>((x & 0xff) | (y & 0xff) << 8);
}
FMHA_EMU_INLINE i16 saturated_i16(i32 x) { return static_cast<i16>(clamp_int(x, -0x8000, 0x7fff)); }
FMHA_EMU_INLINE i32 extended24(u32 x) { return static_cast<i32>(x << 8) >> 8; }
FMHA_EMU_INLINE u32 mul24(u32 a, u32 b) {
  return static_cast<u32>(extended24(a)) * static_cast<u32>(extended24(b));
}
FMHA_EMU_INLINE i32 mad24_saturated(u32 a, u32 b, i32 c) {
  return saturated_i32(static_cast<i64>(extended24(a)) * extended24(b) + c);
}
FMHA_EMU_INLINE u16 mad_u16(u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * b + c); }
FMHA_EMU_INLINE u16 mad_u16_saturated(u16 a, u16 b, u16 c) {
  const u64 r = u64{a} * b + c;
  return static_cast<u16>(r > 0xffff ? 0xffff : r);
}
FMHA_EMU_INLINE i16 mad_i16(i16 a, i16 b, i16 c) { return static_cast<i16>(i32{a} * b + c); }
FMHA_EMU_INLINE i16 mad_i16_saturated(i16 a, i16 b, i16 c) { return saturated_i16(i32{a} * b + c); }

FMHA_EMU_INLINE i32 bfe_signed(i32 x, u32 offset, u32 width) {
  const u32 field = static_cast<u32>(x >> offset) & ((1u << width) - 1);
  const u32 up = (32 - width) & 31;
  return width ? static_cast<i32>(field << up) >> up : 0;
}
FMHA_EMU_INLINE u32 align(u32 high, u32 low, u32 shift) {
  return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> shift);
}
// The half of source 2 that op_sel says.
FMHA_EMU_INLINE u32 shift_half(u32 c, OpSel o) { return o.value & 4 ? c >> 16 : c; }
FMHA_EMU_INLINE u32 lerp(u32 a, u32 b, u32 c) {
  u32 r = 0;
  for (int i = 0; i < 32; i += 8) r |= ((a >> i & 0xff) + (b >> i & 0xff) + (c >> i & 1)) >> 1 << i;
  return r;
}
// Bit 4 a + 2 b + c of the table, for each bit of a, b and c.
FMHA_EMU_INLINE u32 bitop3(u32 a, u32 b, u32 c, u32 table) {
  u32 r = 0;
  for (u32 i = 0; i < 8; ++i) {
    const u32 chosen = (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    r |= table >> i & 1 ? chosen : 0;
  }
  return r;
}
FMHA_EMU_INLINE u32 difference(u32 a, u32 b) { return a > b ? a - b : b - a; }
template <int kWidth>
FMHA_EMU_INLINE u32 sad(u32 a, u32 b) {
  constexpr u32 kMask = ~0u >> (32 - kWidth);
  u32 sum = 0;
  for (int i = 0; i < 32; i += kWidth) sum += difference(a >> i & kMask, b >> i & kMask);
  return sum;
}
// Bytes whose reference in b is zero do not count.
FMHA_EMU_INLINE u32 msad(u32 a, u32 b, u32 c = 0) {
  for (int i = 0; i < 32; i += 8) c += b >> i & 0xff ? difference(a >> i & 0xff, b >> i & 0xff) : 0;
  return c;
}
template <bool kMasked, bool kSaturates = false>
FMHA_EMU_INLINE u64 qsad(u64 a, u32 b, u64 c) {
  u64 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 window = static_cast<u32>(a >> (8 * i)), sum = static_cast<u32>(c >> (16 * i)) & 0xffff;
    const u32 exact = kMasked ? msad(window, b, sum) : sad<8>(window, b) + sum;
    r |= static_cast<u64>(kSaturates && exact > 0xffff ? 0xffff : exact & 0xffff) << (16 * i);
  }
  return r;
}
template <bool kSaturates>
FMHA_EMU_INLINE Quad mqsad(u64 a, u32 b, Quad c) {
  for (int i = 0; i < 4; ++i) {
    const u64 exact = u64{msad(static_cast<u32>(a >> (8 * i)), b)} + c.word[i];
    c.word[i] = kSaturates ? saturated_u32(exact) : static_cast<u32>(exact);
  }
  return c;
}
FMHA_EMU_INLINE u32 count_ones(u32 x) {
  x -= x >> 1 & 0x55555555u;
  x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
  return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}
FMHA_EMU_INLINE u32 lanes_below(u32 lane) { return lane < 32 ? (1u << lane) - 1 : ~0u; }

// mad is not fused: the product is rounded, then the sum.
FMHA_EMU_INLINE f16 mad16(const Env& e, f16 a, f16 b, f16 c) {
  const f16 product = to_f16(to_f32(a, e) * to_f32(b, e), e);
  return to_f16(to_f32(product, e) + to_f32(c, e), e);
}
FMHA_EMU_INLINE u32 toward_zero16(float x, const Env& e) {
  const u32 r = to_f16_toward_zero(flushed(x, e)).raw;
  return (r & 0x7fffu) > 0x3ffu ? r : r & e.keep64_out >> 16;
}

// x * 2^n rounded once: one multiplication if 2^n is normal.
FMHA_EMU_INLINE double ldexp64(double x, i32 n) {
  if (n >= -1000 && n <= 1000) return x * exp2_int(n);
  return __builtin_ldexp(x, clamp_int(n, -2200, 2200));
}

// --- division: div_scale, then a Newton iteration in FMAs, then div_fmas and div_fixup ---
template <class T>
struct DivTraits;
template <>
struct DivTraits<float> {
  static constexpr int kFarApart = 96, kTiny = 23, kScale = 64, kUnderflow = -150;
  static constexpr float kLeastNormal = 0x1p-126f, kUp = 0x1p64f, kDown = 0x1p-64f;
};
template <>
struct DivTraits<double> {
  static constexpr int kFarApart = 768, kTiny = 53, kScale = 128, kUnderflow = -1075;
  static constexpr double kLeastNormal = 0x1p-1022, kUp = 0x1p128, kDown = 0x1p-128;
};
// Would 1 / b be denormal? Decided on exponent and significand, as MODE must not matter.
template <class T>
FMHA_EMU_INLINE bool reciprocal_is_denormal(T b) {
  const bool power_of_two = (raw(frexp_mantissa(b)) & Fp<T>::kFraction) == 0;
  return 1 - frexp_exponent(b) - (power_of_two ? 0 : 1) < 1 - Fp<T>::kBias;
}
// May a / b be denormal, for all that the exponents tell? A card asks no more: of 2^-126 / 1, which is
// normal, it sets VCC (tinygrad's test/amd/hw). The quotient is right either way.
template <class T>
FMHA_EMU_INLINE bool quotient_may_be_denormal(T a, T b) {
  return frexp_exponent(a) - frexp_exponent(b) - 1 < 1 - Fp<T>::kBias;
}
// VCC says that only one of the two is scaled, so that div_fmas scales the quotient back. A card sets it
// for zeros too (the same tests), which the manual does not say.
template <class T>
FMHA_EMU_INLINE Carry<T> div_scale(T s0, T d, T n) {
  using D = DivTraits<T>;
  const i32 ed = biased_exponent(d), en = biased_exponent(n);
  if (is_zero(n) || is_zero(d)) return {quiet(bits<T>(Fp<T>::kInf)), true};
  const bool of_denominator = raw(s0) == raw(d), of_numerator = raw(s0) == raw(n);
  if (en - ed >= D::kFarApart) return {of_denominator ? s0 * D::kUp : s0, true};
  if (is_denormal(d)) return {s0 * D::kUp, false};
  const bool rcp_denormal = reciprocal_is_denormal(d), q_denormal = quotient_may_be_denormal(n, d);
  // The manual scales up here, which would overflow: this denominator is at the top of the range.
  if (rcp_denormal && q_denormal) return {of_denominator ? s0 * D::kDown : s0, true};
  if (rcp_denormal) return {s0 * D::kDown, false};
  if (q_denormal) return {of_numerator ? s0 * D::kUp : s0, true};
  if (en <= D::kTiny) return {s0 * D::kUp, false};
  return {s0, false};
}
// The manual's pseudo-code says 2^32 (2^64 for f64). With that no division whose div_scale set VCC comes out
// right; scaling undoes div_scale's factor, up or down by the size of the quotient so far.
FMHA_EMU_INLINE float div_fmas(float a, float b, float c, bool scaled) {
  const float r = fma32(a, b, c);
  return scaled ? r * (biased_exponent(c) > 127 ? 0x1p64f : 0x1p-64f) : r;
}
FMHA_EMU_INLINE double div_fmas(double a, double b, double c, bool scaled) {
  const double r = fma64(a, b, c);
  return scaled ? r * (biased_exponent(c) > 1023 ? 0x1p128 : 0x1p-128) : r;
}
template <class T>
FMHA_EMU_INLINE T div_fixup(T q, T d, T n) {
  const bool negative = is_negative(d) != is_negative(n);
  const T zero = bits<T>(BitsOf<T>{0}), inf = bits<T>(Fp<T>::kInf);
  if (is_nan(n)) return quiet(n);
  if (is_nan(d)) return quiet(d);
  if ((is_zero(d) && is_zero(n)) || (is_inf(d) && is_inf(n))) return with_sign(quiet(inf), true);
  if (is_zero(d) || is_inf(n)) return with_sign(inf, negative);
  if (is_inf(d) || is_zero(n)) return with_sign(zero, negative);
  if constexpr (!std::is_same_v<T, f16>) {
    const i32 apart = biased_exponent(n) - biased_exponent(d);
    if (apart < DivTraits<T>::kUnderflow) return with_sign(zero, negative);
    // The manual's condition for overflow, exponent(d) == 255, cannot hold here. A NaN is what the iteration
    // made of infinities: a card makes it an infinity (tinygrad's test/amd/hw), which the manual does not
    // say.
    if (apart > Fp<T>::kBias + 1 || is_nan(q)) return with_sign(inf, negative);
  }
  return with_sign(q, negative);
}

FMHA_EMU_INLINE Carry<u64> mad_wide(u64 product, u64 c) { return {product + c, product + c < product}; }
// The carry is bit 64 of the 65-bit signed sum.
FMHA_EMU_INLINE Carry<u64> mad_wide(i64 product, i64 c) {
  const u64 s = static_cast<u64>(product) + static_cast<u64>(c);
  const u64 overflow = (static_cast<u64>(product) ^ s) & (static_cast<u64>(c) ^ s);
  return {s, (overflow ^ s) >> 63 != 0};
}
FMHA_EMU_INLINE Carry<u64> saturated(Carry<u64> sum) { return {sum.bit ? ~0ull : sum.value, sum.bit}; }
// Signed: bit 64 is the true sign, and where bit 63 differs from it the sum does not fit.
FMHA_EMU_INLINE Carry<u64> saturated_signed(Carry<u64> sum) {
  const bool fits = sum.bit == (sum.value >> 63 != 0);
  return {fits ? sum.value : sum.bit ? 1ull << 63 : ~0ull >> 1, sum.bit};
}

// The random bits are added below the last bit kept, the sum is then rounded to nearest as usual.
template <class Kind, int kMantissa>
FMHA_EMU_INLINE u32 stochastic_fp8(float x, u32 random, u32 op_sel, u32 old, const Env& e) {
  const u32 b = raw(x);
  const u32 m = ((b & 0x7fffffu) + (random >> (kMantissa == 3 ? 12 : 11))) & 0x7fffffu;
  const u32 code = Kind::template narrow<kMantissa>(bits<float>((b & ~0x7fffffu) | m), e);
  const u32 shift = (op_sel >> 2 & 3) * 8;
  return (old & ~(0xffu << shift)) | code << shift;
}

// --- not lane by lane ---
inline u32 lane_select(const Wave& w, const Operand& o) {
  return static_cast<u32>(read_scalar(w, o)) & (kLanes - 1);
}

inline void readlane(Wave& w, const Inst& inst) {
  const Operand& s = inst.src[0];
  const u32 lane = lane_select(w, inst.src[1]);
  w.sgpr[inst.dst.index] =
      s.kind == OperandKind::kVgpr ? w.vgpr[s.index][lane] : static_cast<u32>(read_scalar(w, s));
}
inline void writelane(Wave& w, const Inst& inst) {
  w.vgpr[inst.dst.index][lane_select(w, inst.src[1])] = static_cast<u32>(read_scalar(w, inst.src[0]));
}

// A byte of {S0, S1} by its number; 8..11 the sign of an odd byte, 12 zero, above ones.
FMHA_EMU_INLINE u32 permuted_byte(u32 s0, u32 s1, u32 selector) {
  const u32 word = selector & 4 ? s0 : s1;
  const u32 byte = word >> (8 * (selector & 3)) & 0xff;
  const u32 signs = (selector & 2 ? s0 : s1) >> (selector & 1 ? 31 : 15) & 1;
  return selector < 8 ? byte : selector < 12 ? (0u - signs) & 0xff : selector == 12 ? 0 : 0xff;
}
FMHA_EMU_INLINE u32 permuted(u32 s0, u32 s1, u32 selectors) {
  u32 r = 0;
  for (int i = 0; i < 32; i += 8) r |= permuted_byte(s0, s1, selectors >> i & 0xff) << i;
  return r;
}
// Selectors that pick two whole halves: 0x0504, for example, is S0's low one.
FMHA_EMU_INLINE bool picks_halves(u32 s) {
  return (s & 0xf9f9f9f9u) == 0x01000100u && ((s >> 8 ^ s) & 0x00060006u) == 0;
}

// The selector is a constant or an SGPR almost always, and picks halves: half a dozen operations, not fifty.
[[gnu::flatten]] inline void perm(Wave& w, const Inst& inst) {
  const Operand& o = inst.src[2];
  const u32 s = o.kind == OperandKind::kVgpr ? 0 : static_cast<u32>(read_scalar(w, o));
  if (!picks_halves(s) || !all_active(w) || inst.clamp || !sources_plain(inst)) {
    return op<([](u32 a, u32 b, u32 c) { return permuted(a, b, c); })>(w, inst);
  }
  const u32* sources[] = {fetch<u32>(w, inst, 1, true), fetch<u32>(w, inst, 0, true)};
  const u32 *low = aligned(sources[s >> 2 & 1]), *high = aligned(sources[s >> 18 & 1]);
  const u32 low_shift = s & 2 ? 16 : 0, high_shift = s >> 16 & 2 ? 16 : 0;
  u32* d = aligned(w.vgpr[inst.dst.index]);
  for_lanes([=](int l) { d[l] = (low[l] >> low_shift & 0xffff) | high[l] >> high_shift << 16; });
}

// The longest axis of a cube's direction: of equal ones z before y before x.
enum class Axis { kX, kY, kZ };
FMHA_EMU_INLINE Axis major_axis(float x, float y, float z) {
  const float ax = __builtin_fabsf(x), ay = __builtin_fabsf(y), az = __builtin_fabsf(z);
  return az >= ax && az >= ay ? Axis::kZ : ay >= ax ? Axis::kY : Axis::kX;
}
FMHA_EMU_INLINE float cube_face(float x, float y, float z) {
  const Axis axis = major_axis(x, y, z);
  if (axis == Axis::kZ) return z < 0.0f ? 5.0f : 4.0f;
  if (axis == Axis::kY) return y < 0.0f ? 3.0f : 2.0f;
  return x < 0.0f ? 1.0f : 0.0f;
}
FMHA_EMU_INLINE float cube_s(float x, float y, float z) {
  const Axis axis = major_axis(x, y, z);
  if (axis == Axis::kZ) return z < 0.0f ? -x : x;
  if (axis == Axis::kY) return x;
  return x < 0.0f ? z : -z;
}
FMHA_EMU_INLINE float cube_t(float x, float y, float z) {
  if (major_axis(x, y, z) != Axis::kY) return -y;
  return y < 0.0f ? -z : z;
}
FMHA_EMU_INLINE float cube_major(float x, float y, float z) {
  const Axis axis = major_axis(x, y, z);
  return 2.0f * (axis == Axis::kZ ? z : axis == Axis::kY ? y : x);
}

// A float as a byte, in place of byte `place` of `into`. NaN is 0. Rounding is MODE's.
FMHA_EMU_INLINE u32 with_byte(float x, u32 place, u32 into) {
  const float limited = x > 255.0f ? 255.0f : x > 0.0f ? x : 0.0f;
  const u32 shift = (place & 3) * 8;
  return (into & ~(0xffu << shift)) | static_cast<u32>(__builtin_rintf(limited)) << shift;
}

// The 1201 bits of 2 / pi behind its point, from the top, and zeros.
inline constexpr u32 kTwoOverPi[] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
    0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
    0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b0000};

// 53 bits of 2 / pi for the reduction of an angle: the segment says which, further down for large angles,
// whose result is scaled by 2^128 so that its end does not fall off.
FMHA_EMU_INLINE double trig_preop(double x, u32 segment) {
  constexpr u32 kBits = 1201, kTaken = 53;
  const u32 exponent = static_cast<u32>(bits<u64>(x) >> 52 & 0x7ff);
  const u32 shift = (segment & 31) * kTaken + (exponent > 1077 ? exponent - 1077 : 0);
  if (shift >= kBits) return 0.0;
  u64 taken = 0;
  for (u32 i = 0; i < kTaken; ++i) {
    const u32 at = shift + i;
    taken = taken << 1 | (at < kBits ? kTwoOverPi[at / 32] >> (31 - at % 32) & 1 : 0u);
  }
  return ldexp64(static_cast<double>(taken), (exponent >= 1968 ? 128 : 0) - static_cast<i32>(kTaken + shift));
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
