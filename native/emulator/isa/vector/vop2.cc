// SPDX-License-Identifier: MIT OR Apache-2.0
// VOP2: two sources, and the accumulating and literal-carrying forms.
#include "isa/rows.h"
#include "isa/vector/valu.h"
#include "isa/vector/valu_math.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr Type kB32 = Type::kI32, kF32 = Type::kF32, kF16 = Type::kF16, kI16 = Type::kI16, kF64 = Type::kF64;
constexpr Type kPkF16 = Type::kPkF16, kPkI16 = Type::kPkI16;
constexpr RowFlags kMod = kHasModifiers, kAcc = kHasModifiers | kReadsDst, kDotAcc = kReadsDst | kDot;

FMHA_EMU_INLINE i32 signed24(u32 x) { return static_cast<i32>(x << 8) >> 8; }
FMHA_EMU_INLINE u32 unsigned24(u32 x) { return x & 0xffffff; }
FMHA_EMU_INLINE u16 saturate_u16(i32 x) { return static_cast<u16>(clamp_int(x, 0, 0xffff)); }
FMHA_EMU_INLINE u32 saturate_sub(u32 a, u32 b) { return a < b ? 0 : a - b; }
FMHA_EMU_INLINE u32 saturate_add(u32 a, u32 b) { return a + b < a ? ~0u : a + b; }
FMHA_EMU_INLINE Carry<u32> add_carry(u32 a, u32 b, bool c) {
  const u64 sum = static_cast<u64>(a) + b + c;
  return {static_cast<u32>(sum), sum >> 32 != 0};
}
FMHA_EMU_INLINE Carry<u32> sub_borrow(u32 a, u32 b, bool c) {
  return {a - b - c, static_cast<u64>(b) + c > a};
}
FMHA_EMU_INLINE Carry<u32> saturated(Carry<u32> r, u32 limit) { return {r.bit ? limit : r.value, r.bit}; }

FMHA_EMU_INLINE f16 low_half(u32 x) { return {static_cast<u16>(x)}; }
FMHA_EMU_INLINE f16 high_half(u32 x) { return {static_cast<u16>(x >> 16)}; }
template <int kWidth>
FMHA_EMU_INLINE i32 element(u32 x, int i) {
  return static_cast<i32>(x << (32 - kWidth * (i + 1))) >> (32 - kWidth);
}
template <int kWidth, class Sum>
FMHA_EMU_INLINE Sum dot(u32 a, u32 b, Sum sum) {
  for (int i = 0; i < 32 / kWidth; ++i)
    sum += static_cast<Sum>(element<kWidth>(a, i) * element<kWidth>(b, i));
  return sum;
}
template <int kWidth>
constexpr auto kDotc = [](u32 a, u32 b, Old<u32> d) { return dot<kWidth>(a, b, d.value); };
template <int kWidth>
constexpr auto kDotcSaturated =
    [](u32 a, u32 b, Old<i32> d) { return saturated_i32(dot<kWidth>(a, b, i64{d.value})); };

// f16 values are products of f32 rounded, then sums rounded: mad is not fused.
FMHA_EMU_INLINE f16 mad16(const Env& e, f16 a, f16 b, f16 c) {
  const f16 product = to_f16(to_f32(a, e) * to_f32(b, e), e);
  return to_f16(to_f32(product, e) + to_f32(c, e), e);
}
// As a literal a half stands in the low 16 bits.
FMHA_EMU_INLINE f16 half_of(Literal k) { return {static_cast<u16>(k.value)}; }

template <bool kFlush>
constexpr auto dot2c = [](u32 a, u32 b, Old<float> d) {
  return dot2_f32<kFlush>(to_f32(low_half(a)), to_f32(low_half(b)), to_f32(high_half(a)),
                          to_f32(high_half(b)), d.value);
};

constexpr auto dot2c_bf16 = [](u32 a, u32 b, Old<float> d) {
  const auto first = [](u32 x) { return bits<float>(x << 16); };
  const auto second = [](u32 x) { return bits<float>(x & 0xffff0000u); };
  return dot2_f32<false>(first(a), first(b), second(a), second(b), d.value);
};

// v_cndmask selects bits: neg and abs flip the sign even of a NaN, nothing is rounded or flushed.
// clang-format off: a row is a line, or two
constexpr Row kRows[] = {
  {"v_cndmask_b32", kB32, {kF32, kF32}, kReadsVcc | kMod,
   op<[](float a, float b, bool c) { return bits<u32>(c ? raw(b) : raw(a)); }>},
  {"v_add_f32", kF32, {kF32, kF32}, kMod, op<[](float a, float b) { return a + b; }>},
  {"v_sub_f32", kF32, {kF32, kF32}, kMod, op<[](float a, float b) { return a - b; }>},
  {"v_subrev_f32", kF32, {kF32, kF32}, kMod, op<[](float a, float b) { return b - a; }>},
  {"v_fmac_f64", kF64, {kF64, kF64}, kAcc | kFma64,
   op<([](double a, double b, Old<double> d) { return fma64(a, b, d.value); })>},
  {"v_mul_f32", kF32, {kF32, kF32}, kMod, op<[](float a, float b) { return a * b; }>},
  {"v_mul_i32_i24", kB32, {kB32, kB32}, 0,
   op<[](u32 a, u32 b) { return static_cast<u32>(signed24(a)) * static_cast<u32>(signed24(b)); },
      [](u32 a, u32 b) { return saturated_i32(i64{signed24(a)} * signed24(b)); }>},
  {"v_mul_hi_i32_i24", kB32, {kB32, kB32}, 0,
   op<([](u32 a, u32 b) { return static_cast<u32>(static_cast<i64>(signed24(a)) * signed24(b) >> 32); }), kFits>},
  {"v_mul_u32_u24", kB32, {kB32, kB32}, 0,
   op<[](u32 a, u32 b) { return unsigned24(a) * unsigned24(b); },
      [](u32 a, u32 b) { return saturated_u32(u64{unsigned24(a)} * unsigned24(b)); }>},
  {"v_mul_hi_u32_u24", kB32, {kB32, kB32}, 0,
   op<([](u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(unsigned24(a)) * unsigned24(b) >> 32); }), kFits>},
  {"v_min_f32", kF32, {kF32, kF32}, kMod,
   op<[](const Env& e, float a, float b) { return min_num(a, b, e); }>},
  {"v_max_f32", kF32, {kF32, kF32}, kMod,
   op<[](const Env& e, float a, float b) { return max_num(a, b, e); }>},
  {"v_min_i32", kB32, {kB32, kB32}, 0, op<[](i32 a, i32 b) { return a < b ? a : b; }, kFits>},
  {"v_max_i32", kB32, {kB32, kB32}, 0, op<([](i32 a, i32 b) { return a > b ? a : b; }), kFits>},
  {"v_min_u32", kB32, {kB32, kB32}, 0, op<[](u32 a, u32 b) { return a < b ? a : b; }, kFits>},
  {"v_max_u32", kB32, {kB32, kB32}, 0, op<([](u32 a, u32 b) { return a > b ? a : b; }), kFits>},
  {"v_lshrrev_b32", kB32, {kB32, kB32}, 0, op<([](u32 a, u32 b) { return b >> (a & 31); })>},
  {"v_ashrrev_i32", kB32, {kB32, kB32}, 0, op<([](u32 a, i32 b) { return b >> (a & 31); }), kFits>},
  {"v_lshlrev_b32", kB32, {kB32, kB32}, 0, op<[](u32 a, u32 b) { return b << (a & 31); }>},
  {"v_and_b32", kB32, {kB32, kB32}, 0, op<[](u32 a, u32 b) { return a & b; }>},
  {"v_or_b32", kB32, {kB32, kB32}, 0, op<[](u32 a, u32 b) { return a | b; }>},
  {"v_xor_b32", kB32, {kB32, kB32}, 0, op<[](u32 a, u32 b) { return a ^ b; }>},
  {"v_mac_f32", kF32, {kF32, kF32}, kAcc,
   op<([](float a, float b, Old<float> d) { return mad32(a, b, d.value); })>},
  {"v_madmk_f32", kF32, {kF32, kF32}, kLiteralK | kLiteralMiddle,
   op<[](float a, float b, Literal k) { return mad32(a, bits<float>(k.value), b); }>},
  {"v_madak_f32", kF32, {kF32, kF32}, kLiteralK,
   op<[](float a, float b, Literal k) { return mad32(a, b, bits<float>(k.value)); }>},
  {"v_fmamk_f32", kF32, {kF32, kF32}, kLiteralK | kLiteralMiddle,
   op<[](float a, float b, Literal k) { return fma32(a, bits<float>(k.value), b); }>},
  {"v_fmaak_f32", kF32, {kF32, kF32}, kLiteralK,
   op<[](float a, float b, Literal k) { return fma32(a, b, bits<float>(k.value)); }>},
  {"v_add_co_u32", kB32, {kB32, kB32}, kWritesVcc,
   op<[](u32 a, u32 b) { return add_carry(a, b, false); },
      [](u32 a, u32 b) { return saturated(add_carry(a, b, false), ~0u); }>},
  {"v_sub_co_u32", kB32, {kB32, kB32}, kWritesVcc,
   op<[](u32 a, u32 b) { return sub_borrow(a, b, false); },
      [](u32 a, u32 b) { return saturated(sub_borrow(a, b, false), 0); }>},
  {"v_subrev_co_u32", kB32, {kB32, kB32}, kWritesVcc,
   op<[](u32 a, u32 b) { return sub_borrow(b, a, false); },
      [](u32 a, u32 b) { return saturated(sub_borrow(b, a, false), 0); }>},
  {"v_addc_co_u32", kB32, {kB32, kB32}, kReadsVcc | kWritesVcc,
   op<[](u32 a, u32 b, bool c) { return add_carry(a, b, c); },
      [](u32 a, u32 b, bool c) { return saturated(add_carry(a, b, c), ~0u); }>},
  {"v_subb_co_u32", kB32, {kB32, kB32}, kReadsVcc | kWritesVcc,
   op<[](u32 a, u32 b, bool c) { return sub_borrow(a, b, c); },
      [](u32 a, u32 b, bool c) { return saturated(sub_borrow(a, b, c), 0); }>},
  {"v_subbrev_co_u32", kB32, {kB32, kB32}, kReadsVcc | kWritesVcc,
   op<[](u32 a, u32 b, bool c) { return sub_borrow(b, a, c); },
      [](u32 a, u32 b, bool c) { return saturated(sub_borrow(b, a, c), 0); }>},
  {"v_add_f16", kF16, {kF16, kF16}, kMod,
   op<half2<[](float a, float b) { return a + b; }>>},
  {"v_sub_f16", kF16, {kF16, kF16}, kMod,
   op<half2<[](float a, float b) { return a - b; }>>},
  {"v_subrev_f16", kF16, {kF16, kF16}, kMod,
   op<half2<[](float a, float b) { return b - a; }>>},
  {"v_mul_f16", kF16, {kF16, kF16}, kMod,
   op<half2<[](float a, float b) { return a * b; }>>},
  {"v_mac_f16", kF16, {kF16, kF16}, kAcc,
   op<([](const Env& e, f16 a, f16 b, Old<f16> d) { return mad16(e, a, b, d.value); })>},
  {"v_madmk_f16", kF16, {kF16, kF16}, kLiteralK | kLiteralMiddle,
   op<[](const Env& e, f16 a, f16 b, Literal k) { return mad16(e, a, half_of(k), b); }>},
  {"v_madak_f16", kF16, {kF16, kF16}, kLiteralK,
   op<[](const Env& e, f16 a, f16 b, Literal k) { return mad16(e, a, b, half_of(k)); }>},
  {"v_add_u16", kI16, {kI16, kI16}, 0,
   op<[](u16 a, u16 b) { return static_cast<u16>(a + b); }, [](u16 a, u16 b) { return saturate_u16(a + b); }>},
  {"v_sub_u16", kI16, {kI16, kI16}, 0,
   op<[](u16 a, u16 b) { return static_cast<u16>(a - b); }, [](u16 a, u16 b) { return saturate_u16(a - b); }>},
  {"v_subrev_u16", kI16, {kI16, kI16}, 0,
   op<[](u16 a, u16 b) { return static_cast<u16>(b - a); }, [](u16 a, u16 b) { return saturate_u16(b - a); }>},
  {"v_mul_lo_u16", kI16, {kI16, kI16}, 0,
   op<[](u16 a, u16 b) { return static_cast<u16>(u32{a} * b); }>},
  {"v_lshlrev_b16", kI16, {kI16, kI16}, 0,
   op<[](u16 a, u16 b) { return static_cast<u16>(u32{b} << (a & 15)); }>},
  {"v_lshrrev_b16", kI16, {kI16, kI16}, 0,
   op<([](u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); })>},
  {"v_ashrrev_i16", kI16, {kI16, kI16}, 0,
   op<([](u16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); }), kFits>},
  {"v_max_f16", kF16, {kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b) { return max_num(a, b, e); }>},
  {"v_min_f16", kF16, {kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b) { return min_num(a, b, e); }>},
  {"v_max_u16", kI16, {kI16, kI16}, 0, op<([](u16 a, u16 b) { return a > b ? a : b; }), kFits>},
  {"v_max_i16", kI16, {kI16, kI16}, 0, op<([](i16 a, i16 b) { return a > b ? a : b; }), kFits>},
  {"v_min_u16", kI16, {kI16, kI16}, 0, op<[](u16 a, u16 b) { return a < b ? a : b; }, kFits>},
  {"v_min_i16", kI16, {kI16, kI16}, 0, op<[](i16 a, i16 b) { return a < b ? a : b; }, kFits>},
  {"v_ldexp_f16", kF16, {kF16, kI16}, kMod | kHalfConstants,
   op<[](const Env& e, f16 a, i16 n) { return to_f16(ldexp32(to_f32(a, e), clamp_int(n, -60, 60)), e); }>},
  {"v_add_u32", kB32, {kB32, kB32}, 0,
   op<[](u32 a, u32 b) { return a + b; }, [](u32 a, u32 b) { return saturate_add(a, b); }>},
  {"v_sub_u32", kB32, {kB32, kB32}, 0,
   op<[](u32 a, u32 b) { return a - b; }, [](u32 a, u32 b) { return saturate_sub(a, b); }>},
  {"v_subrev_u32", kB32, {kB32, kB32}, 0,
   op<[](u32 a, u32 b) { return b - a; }, [](u32 a, u32 b) { return saturate_sub(b, a); }>},
  {"v_dot2c_f32_f16_flush", kF32, {kPkF16, kPkF16}, kDotAcc, float_dot<dot2c<true>>},
  {"v_dot2c_f32_f16", kF32, {kPkF16, kPkF16}, kDotAcc, float_dot<dot2c<false>>},
  {"v_dot2c_f32_bf16", kF32, {Type::kPkBf16, Type::kPkBf16}, kDotAcc, float_dot<dot2c_bf16>},
  {"v_dot2c_i32_i16", kB32, {kPkI16, kPkI16}, kDotAcc,
   op<kDotc<16>, kDotcSaturated<16>>},
  {"v_dot4c_i32_i8", kB32, {kB32, kB32}, kDotAcc,
   op<kDotc<8>, kDotcSaturated<8>>},
  {"v_dot8c_i32_i4", kB32, {kB32, kB32}, kDotAcc,
   op<kDotc<4>, kDotcSaturated<4>>},
  {"v_fmac_f32", kF32, {kF32, kF32}, kAcc,
   op<([](float a, float b, Old<float> d) { return fma32(a, b, d.value); })>},
  {"v_pk_fmac_f16", kPkF16, {kPkF16, kPkF16}, kReadsDst | kOneForm | kDppToo,
   op<([](const Env& e, u32 a, u32 b, Old<u32> d) {
     const u32 low = fma16(low_half(a), low_half(b), low_half(d.value), e).raw;
     return low | static_cast<u32>(fma16(high_half(a), high_half(b), high_half(d.value), e).raw) << 16;
   })>},
  {"v_xnor_b32", kB32, {kB32, kB32}, 0, op<[](u32 a, u32 b) { return ~(a ^ b); }>},
};
// clang-format on

}  // namespace

std::span<const Row> vop2_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
