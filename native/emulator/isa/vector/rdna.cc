// SPDX-License-Identifier: MIT OR Apache-2.0
// VOP1, VOP2 and VOP3 instructions that RDNA has and gfx9 lacks, under gfx11's names or, if only gfx12 has
// them, gfx12's. Those that move data between lanes or by M0 are in rdna_moves.cc.
#include "isa/rows.h"
#include "isa/vector/valu_vop3.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr Type kB32 = Type::kI32, kF32 = Type::kF32, kF16 = Type::kF16, kI16 = Type::kI16, kF64 = Type::kF64;
constexpr Type kPkF16 = Type::kPkF16, kPkI16 = Type::kPkI16, kPkF32 = Type::kPkF32, kNone = Type::kNone;
constexpr RowFlags kMod = kHasModifiers, kAcc = kHasModifiers | kReadsDst;
constexpr RowFlags kScalarTrans = kHasModifiers | kTranscendental | kScalarDst;

void nop(Wave&, const Inst&) {}

// As a literal a half stands in the low 16 bits.
FMHA_EMU_INLINE f16 half_of(Literal k) { return {static_cast<u16>(k.value)}; }

// Zero times anything is zero, as DirectX 9 has it.
FMHA_EMU_INLINE float fma_dx9_zero(float a, float b, float c) {
  return a == 0.0f || b == 0.0f ? c : fma32(a, b, c);
}
// Lighting's power: the product, unless the power or the base is out of range.
FMHA_EMU_INLINE float mullit(float a, float b, float c) {
  constexpr float kLowest = -0x1.fffffep+127f;
  const bool out = b <= kLowest || is_nan(b) || c <= 0.0f || is_nan(c);
  const float product = a == 0.0f || b == 0.0f ? 0.0f : a * b;
  return out ? kLowest : product;
}

FMHA_EMU_INLINE f16 low_half(u32 x) { return {static_cast<u16>(x)}; }
FMHA_EMU_INLINE f16 high_half(u32 x) { return {static_cast<u16>(x >> 16)}; }
FMHA_EMU_INLINE float low_bfloat(u32 x) { return bits<float>(x << 16); }
FMHA_EMU_INLINE float high_bfloat(u32 x) { return bits<float>(x & 0xffff0000u); }
// The guides do not say how these round: here the sums in f32 and the result once.
FMHA_EMU_INLINE f16 dot2_f16(u32 a, u32 b, f16 c, const Env& e) {
  return to_f16(dot2_f32<false>(to_f32(low_half(a), e), to_f32(low_half(b), e), to_f32(high_half(a), e),
                                to_f32(high_half(b), e), to_f32(c, e)),
                e);
}
FMHA_EMU_INLINE u16 dot2_bf16(u32 a, u32 b, u16 c) {
  return static_cast<u16>(
      to_bf16(dot2_f32<false>(low_bfloat(a), low_bfloat(b), high_bfloat(a), high_bfloat(b), low_bfloat(c))));
}

// The byte that v_cvt_f32_fp8 takes, and the half that v_cvt_pk_f32_fp8 takes, shifted down.
FMHA_EMU_INLINE u32 picked_byte(u32 x, OpSel o) { return x >> (16 * (o.value & 1) + 8 * (o.value >> 1 & 1)); }
FMHA_EMU_INLINE u32 picked_half(u32 x, OpSel o) { return x >> (16 * (o.value & 1)); }

// One value, a scalar's, into a scalar register: v_s_exp and the like, which no lane mask concerns.
template <auto F, Type kType>
void scalar_result(Wave& w, const Inst& inst) {
  const Env env(w.mode);
  constexpr u32 kSign = kType == Type::kF16 ? 0x8000u : 1u << 31;
  if (inst.clamp || inst.omod) return fault_modifier(w, inst, "clamp or omod with a scalar result");
  u32 x = static_cast<u32>(read_scalar(w, inst.src[0]));
  if (inst.abs & 1) x &= ~kSign;
  if (inst.neg & 1) x ^= kSign;
  if constexpr (kType == Type::kF16) {
    w.sgpr[inst.dst.index] = to_f16(F(to_f32(f16{static_cast<u16>(x)}, env)), env).raw;
  } else {
    w.sgpr[inst.dst.index] = raw(F(bits<float>(x)));
  }
}
template <auto F>
constexpr Exec scalar32 = scalar_result<F, Type::kF32>;
template <auto F>
constexpr Exec scalar16 = scalar_result<F, Type::kF16>;

// clang-format off: a row is a line, or two
constexpr Row kRows[] = {
  {"v_pipeflush", kNone, {}, kNoSrc | kNoSuffix, nop},
  {"v_mov_b16", kI16, {kI16}, 0, op<[](u16 a) { return a; }>},
  {"v_not_b16", kI16, {kI16}, 0, op<[](u16 a) { return static_cast<u16>(~a); }>},
  {"v_cvt_i32_i16", kB32, {kI16}, 0, op<[](i16 a) { return i32{a}; }>},
  {"v_cvt_u32_u16", kB32, {kI16}, 0, op<[](u16 a) { return u32{a}; }>},

  {"v_fmac_dx9_zero_f32", kF32, {kF32, kF32}, kAcc,
   op<([](float a, float b, Old<float> d) { return fma_dx9_zero(a, b, d.value); })>},
  {"v_fmac_f16", kF16, {kF16, kF16}, kAcc,
   op<([](const Env& e, f16 a, f16 b, Old<f16> d) { return fma16(a, b, d.value, e); })>},
  {"v_fmamk_f16", kF16, {kF16, kF16}, kLiteralK | kLiteralMiddle,
   op<[](const Env& e, f16 a, f16 b, Literal k) { return fma16(a, half_of(k), b, e); }>},
  {"v_fmaak_f16", kF16, {kF16, kF16}, kLiteralK,
   op<[](const Env& e, f16 a, f16 b, Literal k) { return fma16(a, b, half_of(k), e); }>},

  {"v_fma_dx9_zero_f32", kF32, {kF32, kF32, kF32}, kMod,
   op<[](float a, float b, float c) { return fma_dx9_zero(a, b, c); }>},
  {"v_mullit_f32", kF32, {kF32, kF32, kF32}, kMod,
   op<[](float a, float b, float c) { return mullit(a, b, c); }>},
  {"v_xor3_b32", kB32, {kB32, kB32, kB32}, 0, op<[](u32 a, u32 b, u32 c) { return a ^ b ^ c; }>},
  {"v_cndmask_b16", kI16, {kF16, kF16}, kReadsVcc | kMod,
   op<[](f16 a, f16 b, bool c) { return low(c ? raw(b) : raw(a)); }>},
  {"v_maxmin_f32", kF32, {kF32, kF32, kF32}, kMod,
   op<[](const Env& e, float a, float b, float c) { return min_num(max_num(a, b, e), c, e); }>},
  {"v_minmax_f32", kF32, {kF32, kF32, kF32}, kMod,
   op<[](const Env& e, float a, float b, float c) { return max_num(min_num(a, b, e), c, e); }>},
  {"v_maxmin_f16", kF16, {kF16, kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b, f16 c) { return low(min_num(max_num(a, b, e), c, e)); }>},
  {"v_minmax_f16", kF16, {kF16, kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b, f16 c) { return low(max_num(min_num(a, b, e), c, e)); }>},
  {"v_maxmin_u32", kB32, {kB32, kB32, kB32}, 0,
   op<[](u32 a, u32 b, u32 c) { return least(most(a, b), c); }>},
  {"v_minmax_u32", kB32, {kB32, kB32, kB32}, 0,
   op<[](u32 a, u32 b, u32 c) { return most(least(a, b), c); }>},
  {"v_maxmin_i32", kB32, {kB32, kB32, kB32}, 0,
   op<[](i32 a, i32 b, i32 c) { return least(most(a, b), c); }>},
  {"v_minmax_i32", kB32, {kB32, kB32, kB32}, 0,
   op<[](i32 a, i32 b, i32 c) { return most(least(a, b), c); }>},
  {"v_dot2_f16_f16", kF16, {kPkF16, kPkF16, kF16}, kDot,
   float_dot<[](const Env& e, u32 a, u32 b, f16 c) { return low(dot2_f16(a, b, c, e)); }>},
  {"v_dot2_bf16_bf16", kI16, {kPkI16, kPkI16, kI16}, kDot,
   float_dot<[](u32 a, u32 b, u16 c) { return low(dot2_bf16(a, b, c)); }>},
  {"v_cvt_pk_i16_f32", kB32, {kF32, kF32}, kMod,
   op<[](float a, float b) { return halves(static_cast<u16>(to_i16(a)), static_cast<u16>(to_i16(b))); }, kFits>},
  {"v_cvt_pk_u16_f32", kB32, {kF32, kF32}, kMod,
   op<[](float a, float b) { return halves(to_u16(a), to_u16(b)); }, kFits>},
  {"v_and_b16", kI16, {kI16, kI16}, 0, op<[](u16 a, u16 b) { return low(static_cast<u16>(a & b)); }>},
  {"v_or_b16", kI16, {kI16, kI16}, 0, op<[](u16 a, u16 b) { return low(static_cast<u16>(a | b)); }>},
  {"v_xor_b16", kI16, {kI16, kI16}, 0, op<[](u16 a, u16 b) { return low(static_cast<u16>(a ^ b)); }>},

  // gfx12
  {"v_minimum_f32", kF32, {kF32, kF32}, kMod,
   op<[](const Env& e, float a, float b) { return minimum(a, b, e); }>},
  {"v_maximum_f32", kF32, {kF32, kF32}, kMod,
   op<[](const Env& e, float a, float b) { return maximum(a, b, e); }>},
  {"v_minimum_f16", kF16, {kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b) { return low(minimum(a, b, e)); }>},
  {"v_maximum_f16", kF16, {kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b) { return low(maximum(a, b, e)); }>},
  {"v_minimum_f64", kF64, {kF64, kF64}, kMod,
   op<[](const Env& e, double a, double b) { return minimum(a, b, e); }>},
  {"v_maximum_f64", kF64, {kF64, kF64}, kMod,
   op<[](const Env& e, double a, double b) { return maximum(a, b, e); }>},
  {"v_minimum3_f16", kF16, {kF16, kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b, f16 c) { return low(minimum(minimum(a, b, e), c, e)); }>},
  {"v_maximum3_f16", kF16, {kF16, kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b, f16 c) { return low(maximum(maximum(a, b, e), c, e)); }>},
  {"v_minimummaximum_f32", kF32, {kF32, kF32, kF32}, kMod,
   op<[](const Env& e, float a, float b, float c) { return maximum(minimum(a, b, e), c, e); }>},
  {"v_maximumminimum_f32", kF32, {kF32, kF32, kF32}, kMod,
   op<[](const Env& e, float a, float b, float c) { return minimum(maximum(a, b, e), c, e); }>},
  {"v_minimummaximum_f16", kF16, {kF16, kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b, f16 c) { return low(maximum(minimum(a, b, e), c, e)); }>},
  {"v_maximumminimum_f16", kF16, {kF16, kF16, kF16}, kMod,
   op<[](const Env& e, f16 a, f16 b, f16 c) { return low(minimum(maximum(a, b, e), c, e)); }>},
  // OCP's types; which byte or half is in op_sel.
  {"v_cvt_f32_fp8_gfx12", kF32, {kB32}, kOwnOpSel,
   op<[](u32 a, OpSel o) { return Ocp8::widen<3>(picked_byte(a, o)); }>},
  {"v_cvt_f32_bf8_gfx12", kF32, {kB32}, kOwnOpSel,
   op<[](u32 a, OpSel o) { return Ocp8::widen<2>(picked_byte(a, o)); }>},
  {"v_cvt_pk_f32_fp8_gfx12", kPkF32, {kB32}, kOwnOpSel | kSelectsSource,
   op<([](u32 a, OpSel o) {
     const u32 x = picked_half(a, o);
     return FloatPair{Ocp8::widen<3>(x), Ocp8::widen<3>(x >> 8)};
   })>},
  {"v_cvt_pk_f32_bf8_gfx12", kPkF32, {kB32}, kOwnOpSel | kSelectsSource,
   op<([](u32 a, OpSel o) {
     const u32 x = picked_half(a, o);
     return FloatPair{Ocp8::widen<2>(x), Ocp8::widen<2>(x >> 8)};
   })>},
  {"v_s_exp_f32", kF32, {kF32}, kScalarTrans, scalar32<[](float a) { return exp2_f32(a); }>},
  {"v_s_exp_f16", kF16, {kF16}, kScalarTrans, scalar16<[](float a) { return exp2_f32(a); }>},
  {"v_s_log_f32", kF32, {kF32}, kScalarTrans, scalar32<[](float a) { return log2_f32(a); }>},
  {"v_s_log_f16", kF16, {kF16}, kScalarTrans, scalar16<[](float a) { return log2_f32(a); }>},
  {"v_s_rcp_f32", kF32, {kF32}, kScalarTrans, scalar32<[](float a) { return rcp_f32(a); }>},
  {"v_s_rcp_f16", kF16, {kF16}, kScalarTrans, scalar16<[](float a) { return rcp_wide(a); }>},
  {"v_s_rsq_f32", kF32, {kF32}, kScalarTrans, scalar32<[](float a) { return rsq_f32(a); }>},
  {"v_s_rsq_f16", kF16, {kF16}, kScalarTrans, scalar16<[](float a) { return rsq_f32(a); }>},
  {"v_s_sqrt_f32", kF32, {kF32}, kScalarTrans, scalar32<[](float a) { return sqrt_f32(a); }>},
  {"v_s_sqrt_f16", kF16, {kF16}, kScalarTrans, scalar16<[](float a) { return sqrt_wide(a); }>},
};
// clang-format on

}  // namespace

std::span<const Row> rdna_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
