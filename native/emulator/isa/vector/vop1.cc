// SPDX-License-Identifier: MIT OR Apache-2.0
// VOP1: one source. Moves, conversions, rounding, transcendentals, bit counting.
#include "isa/rows.h"
#include "isa/vector/valu.h"
#include "isa/vector/valu_math.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr Type kB32 = Type::kI32, kF32 = Type::kF32, kF16 = Type::kF16, kI16 = Type::kI16, kF64 = Type::kF64;
constexpr Type kB64 = Type::kI64, kPkF32 = Type::kPkF32, kNone = Type::kNone;
constexpr RowFlags kMod = kHasModifiers, kTrans = kHasModifiers | kTranscendental;

void nop(Wave&, const Inst&) {}

// The lowest lane that is on; lane 0 if none is.
void readfirstlane(Wave& w, const Inst& inst) {
  const Operand& s = inst.src[0];
  const int lane = exec_mask(w) ? __builtin_ctzll(exec_mask(w)) : 0;
  w.sgpr[inst.dst.index] =
      s.kind == OperandKind::kVgpr ? w.vgpr[s.index][lane] : static_cast<u32>(read_scalar(w, s));
}

// A table of the graphics pipeline, which the manuals of these GPUs do not give.
void no_screen(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorLaunchFailure, "a graphics instruction that the manuals of this GPU do not describe");
}

void swap(Wave& w, const Inst& inst) {
  u32 *a = w.vgpr[inst.dst.index], *b = w.vgpr[inst.src[0].index], *t = w.tmp[0][0];
  const u64 exec = exec_mask(w);
  std::memcpy(t, a, sizeof w.tmp[0][0]);
  select_lanes(exec, b, a, a);
  select_lanes(exec, t, b, b);
}

// The odd rows of kRow lanes of the first register change places with the even ones of the second. A pair of
// which one lane alone is on is refused: what then happens depends on fi and bound_ctrl, which no manual
// explains for two destinations.
template <int kRow>
void permlane_swap(Wave& w, const Inst& inst) {
  u32 *a = w.vgpr[inst.dst.index], *b = w.vgpr[inst.src[0].index];
  const u64 exec = exec_mask(w);
  for (int l = 0; l < kLanes; ++l) {
    if (l & kRow) continue;
    const u64 on = (exec >> l & 1) + (exec >> (l + kRow) & 1);
    if (on == 1)
      return w.fault(inst, hipErrorLaunchFailure, "lane %d swaps with lane %d, and only one is on", l,
                     l + kRow);
    if (on) std::swap(b[l], a[l + kRow]);
  }
}

FMHA_EMU_INLINE u32 reversed(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
FMHA_EMU_INLINE u32 first_from_msb(u32 x) { return x ? static_cast<u32>(__builtin_clz(x)) : ~0u; }
FMHA_EMU_INLINE u32 first_from_lsb(u32 x) { return x ? static_cast<u32>(__builtin_ctz(x)) : ~0u; }
// The first bit that differs from the sign.
FMHA_EMU_INLINE u32 first_unlike_sign(i32 x) { return first_from_msb(static_cast<u32>(x ^ x >> 31)); }
FMHA_EMU_INLINE float byte_to_f32(u32 x, int i) {
  return static_cast<float>(static_cast<i32>(x >> (8 * i) & 0xff));
}
FMHA_EMU_INLINE u32 saturated_byte(i16 x) { return static_cast<u32>(clamp_int(x, 0, 255)); }
FMHA_EMU_INLINE u32 saturated_bytes(u32 a) {
  return saturated_byte(static_cast<i16>(a)) | saturated_byte(static_cast<i16>(a >> 16)) << 8;
}
FMHA_EMU_INLINE float fract(float x) { return below_one(x - __builtin_floorf(x)); }
FMHA_EMU_INLINE double fract(double x) { return below_one(x - __builtin_floor(x)); }
// fract in f16: below 1 even where x - floor(x) rounds up.
FMHA_EMU_INLINE f16 fract16(f16 x, const Env& e) {
  const float v = to_f32(x, e);
  const f16 r = to_f16(v - __builtin_floorf(v), e);
  return {static_cast<u16>(r.raw == 0x3c00 ? 0x3bff : r.raw)};
}

template <class Kind, int kMantissa>
constexpr Exec widen8 = op<[](u32 a) { return Kind::template widen<kMantissa>(a); }>;
template <class Kind, int kMantissa>
constexpr Exec widen8_pair = op<([](u32 a) {
  return FloatPair{Kind::template widen<kMantissa>(a), Kind::template widen<kMantissa>(a >> 8)};
})>;

// clang-format off: a row is a line, or two
constexpr Row kRows[] = {
  {"v_nop", kNone, {}, kNoSrc | kNoSuffix | kVectorNop, nop},
  {"v_mov_b32", kB32, {kB32}, 0, op<[](u32 a) { return a; }>},
  {"v_readfirstlane_b32", kB32, {kB32}, kScalarDst | kReadLane | kNoSuffix, readfirstlane},
  {"v_cvt_i32_f64", kB32, {kF64}, kMod, op<[](double a) { return to_i32(a); }, kFits>},
  {"v_cvt_f64_i32", kF64, {kB32}, kMod, op<[](i32 a) { return static_cast<double>(a); }>},
  {"v_cvt_f32_i32", kF32, {kB32}, kMod, op<[](i32 a) { return static_cast<float>(a); }>},
  {"v_cvt_f32_u32", kF32, {kB32}, kMod, op<[](u32 a) { return static_cast<float>(a); }>},
  {"v_cvt_u32_f32", kB32, {kF32}, kMod, op<[](float a) { return to_u32(a); }, kFits>},
  {"v_cvt_i32_f32", kB32, {kF32}, kMod, op<[](float a) { return to_i32(a); }, kFits>},
  {"v_cvt_f16_f32", kF16, {kF32}, kMod, op<[](const Env& e, float a) { return to_f16(a, e); }>},
  {"v_cvt_f32_f16", kF32, {kF16}, kMod, op<[](const Env& e, f16 a) { return to_f32(a, e); }>},
  {"v_cvt_rpi_i32_f32", kB32, {kF32}, kMod,
   op<[](float a) { return to_i32(__builtin_floorf(a + 0.5f)); }, kFits>},
  {"v_cvt_flr_i32_f32", kB32, {kF32}, kMod,
   op<[](float a) { return to_i32(__builtin_floorf(a)); }, kFits>},
  {"v_cvt_off_f32_i4", kF32, {kB32}, kMod,
   op<([](u32 a) { return static_cast<float>(static_cast<i32>(a << 28) >> 28) * 0.0625f; })>},
  {"v_cvt_f32_f64", kF32, {kF64}, kMod, op<[](double a) { return static_cast<float>(a); }>},
  {"v_cvt_f64_f32", kF64, {kF32}, kMod, op<[](float a) { return static_cast<double>(a); }>},
  {"v_cvt_f32_ubyte0", kF32, {kB32}, kMod, op<[](u32 a) { return byte_to_f32(a, 0); }>},
  {"v_cvt_f32_ubyte1", kF32, {kB32}, kMod, op<[](u32 a) { return byte_to_f32(a, 1); }>},
  {"v_cvt_f32_ubyte2", kF32, {kB32}, kMod, op<[](u32 a) { return byte_to_f32(a, 2); }>},
  {"v_cvt_f32_ubyte3", kF32, {kB32}, kMod, op<[](u32 a) { return byte_to_f32(a, 3); }>},
  {"v_cvt_u32_f64", kB32, {kF64}, kMod, op<[](double a) { return to_u32(a); }, kFits>},
  {"v_cvt_f64_u32", kF64, {kB32}, kMod, op<[](u32 a) { return static_cast<double>(a); }>},
  {"v_trunc_f64", kF64, {kF64}, kMod, op<[](double a) { return __builtin_trunc(a); }>},
  {"v_ceil_f64", kF64, {kF64}, kMod, op<[](double a) { return __builtin_ceil(a); }>},
  {"v_rndne_f64", kF64, {kF64}, kMod, op<[](double a) { return round_even(a); }>},
  {"v_floor_f64", kF64, {kF64}, kMod, op<[](double a) { return __builtin_floor(a); }>},
  {"v_fract_f32", kF32, {kF32}, kMod, op<[](float a) { return fract(a); }>},
  {"v_trunc_f32", kF32, {kF32}, kMod, op<[](float a) { return __builtin_truncf(a); }>},
  {"v_ceil_f32", kF32, {kF32}, kMod, op<[](float a) { return __builtin_ceilf(a); }>},
  {"v_rndne_f32", kF32, {kF32}, kMod, op<[](float a) { return round_even(a); }>},
  {"v_floor_f32", kF32, {kF32}, kMod, op<[](float a) { return __builtin_floorf(a); }>},
  {"v_exp_f32", kF32, {kF32}, kTrans, op<[](float a) { return exp2_f32(a); }>},
  {"v_log_f32", kF32, {kF32}, kTrans, op<[](float a) { return log2_f32(a); }>},
  {"v_rcp_f32", kF32, {kF32}, kTrans, op<[](float a) { return rcp_f32(a); }>},
  {"v_rcp_iflag_f32", kF32, {kF32}, kTrans, op<[](float a) { return rcp_f32(a); }>},
  {"v_rsq_f32", kF32, {kF32}, kTrans, op<[](float a) { return rsq_f32(a); }>},
  {"v_rcp_f64", kF64, {kF64}, kTrans, op<[](double a) { return 1.0 / a; }>},
  {"v_rsq_f64", kF64, {kF64}, kTrans, op<[](double a) { return 1.0 / __builtin_sqrt(a); }>},
  {"v_sqrt_f32", kF32, {kF32}, kTrans, op<[](float a) { return sqrt_f32(a); }>},
  {"v_sqrt_f64", kF64, {kF64}, kTrans, op<[](double a) { return __builtin_sqrt(a); }>},
  {"v_sin_f32", kF32, {kF32}, kTrans, op<[](float a) { return sin_f32(a); }>},
  {"v_cos_f32", kF32, {kF32}, kTrans, op<[](float a) { return cos_f32(a); }>},
  {"v_not_b32", kB32, {kB32}, 0, op<[](u32 a) { return ~a; }>},
  {"v_bfrev_b32", kB32, {kB32}, 0, op<[](u32 a) { return reversed(a); }>},
  {"v_ffbh_u32", kB32, {kB32}, 0, op<[](u32 a) { return first_from_msb(a); }, kFits>},
  {"v_ffbl_b32", kB32, {kB32}, 0, op<[](u32 a) { return first_from_lsb(a); }>},
  {"v_ffbh_i32", kB32, {kB32}, 0, op<[](i32 a) { return first_unlike_sign(a); }, kFits>},
  {"v_frexp_exp_i32_f64", kB32, {kF64}, kMod,
   op<[](const Env& e, double a) { return frexp_exponent(flushed(a, e)); }, kFits>},
  {"v_frexp_mant_f64", kF64, {kF64}, kMod,
   op<[](const Env& e, double a) { return frexp_mantissa(flushed(a, e)); }>},
  {"v_fract_f64", kF64, {kF64}, kMod, op<[](double a) { return fract(a); }>},
  {"v_frexp_exp_i32_f32", kB32, {kF32}, kMod,
   op<[](const Env& e, float a) { return frexp_exponent(flushed(a, e)); }, kFits>},
  {"v_frexp_mant_f32", kF32, {kF32}, kMod,
   op<[](const Env& e, float a) { return frexp_mantissa(flushed(a, e)); }>},
  {"v_clrexcp", kNone, {}, kNoSrc | kNoSuffix, nop},
  {"v_mov_b64", kB64, {kB64}, 0, op<[](Pair a) { return a; }>},
  {"v_cvt_f16_u16", kF16, {kI16}, kMod,
   op<[](const Env& e, u16 a) { return to_f16(static_cast<float>(static_cast<i32>(a)), e); }>},
  {"v_cvt_f16_i16", kF16, {kI16}, kMod,
   op<[](const Env& e, i16 a) { return to_f16(static_cast<float>(static_cast<i32>(a)), e); }>},
  {"v_cvt_u16_f16", kI16, {kF16}, kMod, op<[](f16 a) { return to_u16(to_f32(a)); }, kFits>},
  {"v_cvt_i16_f16", kI16, {kF16}, kMod, op<[](f16 a) { return to_i16(to_f32(a)); }, kFits>},
  {"v_rcp_f16", kF16, {kF16}, kTrans, op<half1<[](float a) { return rcp_wide(a); }>>},
  {"v_sqrt_f16", kF16, {kF16}, kTrans, op<half1<[](float a) { return sqrt_wide(a); }>>},
  {"v_rsq_f16", kF16, {kF16}, kTrans, op<half1<[](float a) { return rsq_f32(a); }>>},
  {"v_log_f16", kF16, {kF16}, kTrans, op<half1<[](float a) { return log2_f32(a); }>>},
  {"v_exp_f16", kF16, {kF16}, kTrans, op<half1<[](float a) { return exp2_f32(a); }>>},
  {"v_frexp_mant_f16", kF16, {kF16}, kMod,
   op<[](const Env& e, f16 a) { return frexp_mantissa(flushed(a, e)); }>},
  {"v_frexp_exp_i16_f16", kI16, {kF16}, kMod,
   op<[](const Env& e, f16 a) { return static_cast<i16>(frexp_exponent(flushed(a, e))); }, kFits>},
  {"v_floor_f16", kF16, {kF16}, kMod,
   op<half1<[](float a) { return __builtin_floorf(a); }>>},
  {"v_ceil_f16", kF16, {kF16}, kMod, op<half1<[](float a) { return __builtin_ceilf(a); }>>},
  {"v_trunc_f16", kF16, {kF16}, kMod,
   op<half1<[](float a) { return __builtin_truncf(a); }>>},
  {"v_rndne_f16", kF16, {kF16}, kMod,
   op<half1<[](float a) { return round_even(a); }>>},
  {"v_fract_f16", kF16, {kF16}, kMod, op<[](const Env& e, f16 a) { return fract16(a, e); }>},
  {"v_sin_f16", kF16, {kF16}, kTrans, op<half1<[](float a) { return sin_f32(a); }>>},
  {"v_cos_f16", kF16, {kF16}, kTrans, op<half1<[](float a) { return cos_f32(a); }>>},
  {"v_exp_legacy_f32", kF32, {kF32}, kTrans, op<[](float a) { return exp2_f32(a); }>},
  {"v_log_legacy_f32", kF32, {kF32}, kTrans, op<[](float a) { return log2_f32(a); }>},
  {"v_screen_partition_4se_b32", kB32, {kB32}, kRefused, no_screen},
  {"v_cvt_norm_i16_f16", kI16, {kF16}, kMod, op<[](f16 a) { return to_snorm16(to_f32(a)); }, kFits>},
  {"v_cvt_norm_u16_f16", kI16, {kF16}, kMod, op<[](f16 a) { return to_unorm16(to_f32(a)); }, kFits>},
  {"v_sat_pk_u8_i16", kB32, {kB32}, 0, op<[](u32 a) { return saturated_bytes(a); }, kFits>},
  {"v_sat_pk_u8_i16_gfx11", kI16, {kB32}, 0,
   op<[](u32 a) { return static_cast<u16>(saturated_bytes(a)); }, kFits>},
  {"v_prng_b32", kB32, {kB32}, 0, op<([](u32 a) { return a << 1 ^ (a >> 31) * 197u; })>},
  {"v_swap_b32", kB32, {kB32}, kReadsDst | kWritesSrc0 | kOneForm | kNoSuffix, swap},
  {"v_permlane16_swap_b32", kB32, {kB32}, kReadsDst | kWritesSrc0 | kSwapsLanes, permlane_swap<16>},
  {"v_permlane32_swap_b32", kB32, {kB32}, kReadsDst | kWritesSrc0 | kSwapsLanes, permlane_swap<32>},
  {"v_cvt_f32_bf16", kF32, {Type::kBf16}, kMod, op<[](bf16 a) { return to_f32(a); }>},
  {"v_cvt_f32_fp8", kF32, {kB32}, kMod | kNoDstSel, widen8<Fnuz8, 3>},
  {"v_cvt_f32_bf8", kF32, {kB32}, kMod | kNoDstSel, widen8<Fnuz8, 2>},
  {"v_cvt_pk_f32_fp8", kPkF32, {kB32}, kMod | kNoDstSel, widen8_pair<Fnuz8, 3>},
  {"v_cvt_pk_f32_bf8", kPkF32, {kB32}, kMod | kNoDstSel, widen8_pair<Fnuz8, 2>},
  {"v_cvt_f32_fp8_ocp", kF32, {kB32}, kMod | kNoDstSel, widen8<Ocp8, 3>},
  {"v_cvt_f32_bf8_ocp", kF32, {kB32}, kMod | kNoDstSel, widen8<Ocp8, 2>},
  {"v_cvt_pk_f32_fp8_ocp", kPkF32, {kB32}, kMod | kNoDstSel, widen8_pair<Ocp8, 3>},
  {"v_cvt_pk_f32_bf8_ocp", kPkF32, {kB32}, kMod | kNoDstSel, widen8_pair<Ocp8, 2>},
};
// clang-format on

}  // namespace

std::span<const Row> vop1_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
