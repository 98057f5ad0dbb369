// SPDX-License-Identifier: MIT OR Apache-2.0
// VOP3P: packed 16-bit and packed f32 arithmetic, mixed-precision FMA, dot products.
#include "isa/rows.h"
#include "isa/vector/valu.h"
#include "isa/vector/valu_math.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr Type kPkF16 = Type::kPkF16, kPkI16 = Type::kPkI16, kPkBf16 = Type::kPkBf16, kPkF32 = Type::kPkF32,
               kF32 = Type::kF32;
constexpr Type kF16 = Type::kF16, kB32 = Type::kI32;
constexpr RowFlags kMod = kHasModifiers, kMix = kMod | kMixedSources | kDppToo;

template <class T>
FMHA_EMU_INLINE T half_of(u32 x, int i) {
  return bits<T>(static_cast<u16>(x >> (16 * i)));
}

template <class T>
struct PackedSignature;
template <class C, class R, class... A>
struct PackedSignature<R (C::*)(const Env&, A...) const> {
  static constexpr int kSources = sizeof...(A);
  static constexpr bool kFloat = is_float(kTypeOf<R>);
  template <auto F>
  FMHA_EMU_INLINE static u32 both(const Env& e, decltype(static_cast<u32>(sizeof(A)))... x) {
    const u32 low = bits<u16>(F(e, half_of<A>(x, 0)...)), high = bits<u16>(F(e, half_of<A>(x, 1)...));
    return low | high << 16;
  }
};
template <auto F>
using PackedOf = PackedSignature<decltype(&std::remove_cvref_t<decltype(F)>::operator())>;

FMHA_EMU_INLINE const u32* fetch_packed(Wave& w, const Inst& inst, int n, bool plain, bool is_float) {
  const Operand& o = inst.src[n];
  if (plain && o.kind == OperandKind::kVgpr) return w.vgpr[o.index];
  return fetch_packed_slow(w, inst, n, is_float);
}
FMHA_EMU_INLINE bool packed_plain(const Inst& inst, int sources) {
  const u8 all = static_cast<u8>((1 << sources) - 1);
  const bool moves = is_dpp(inst.encoding);
  return !((inst.op_sel | inst.neg | inst.neg_hi) & all) && (inst.op_sel_hi & all) == all && !moves;
}

// F does one half, and both are done alike.
template <auto F>
FMHA_EMU_INLINE void run_packed(Wave& w, const Inst& inst) {
  using S = PackedOf<F>;
  const HostFp host(w.mode, false);
  const Env env(w.mode);
  const bool plain = packed_plain(inst, S::kSources);
  const bool direct = all_active(w) && !(S::kFloat && inst.clamp);
  u32* d = aligned(direct ? w.vgpr[inst.dst.index] : w.tmp[3][0]);
  const u32* a = aligned(fetch_packed(w, inst, 0, plain, S::kFloat));
  const u32* b = aligned(fetch_packed(w, inst, 1, plain, S::kFloat));
  if constexpr (S::kSources == 3) {
    const u32* c = aligned(fetch_packed(w, inst, 2, plain, S::kFloat));
    for_lanes([&](int l) { d[l] = S::template both<F>(env, a[l], b[l], c[l]); });
  } else {
    for_lanes([&](int l) { d[l] = S::template both<F>(env, a[l], b[l]); });
  }
  if (!direct) finish_packed(w, inst, S::kFloat);
}
template <auto F, auto Saturating = nullptr>
[[gnu::flatten]] void packed(Wave& w, const Inst& inst) {
  if constexpr (!PackedOf<F>::kFloat) {
    if (inst.clamp) {
      using Clamped = std::remove_cvref_t<decltype(Saturating)>;
      if constexpr (std::is_same_v<Clamped, std::nullptr_t>) {
        return fault_modifier(w, inst, "clamp");
      } else if constexpr (!std::is_same_v<Clamped, Fits>) {
        return run_packed<Saturating>(w, inst);
      }
    }
  }
  run_packed<F>(w, inst);
}

// Two f32 of a register pair, both done alike.
template <auto F, int kSources>
[[gnu::flatten]] void pair(Wave& w, const Inst& inst) {
  const u32 *low[3] = {}, *high[3] = {};
  for (int n = 0; n < kSources; ++n) fetch_pair(w, inst, n, &low[n], &high[n]);
  const u32 *a = aligned(low[0]), *b = aligned(low[1]), *c = aligned(kSources == 3 ? low[2] : low[0]);
  const u32 *x = aligned(high[0]), *y = aligned(high[1]), *z = aligned(kSources == 3 ? high[2] : high[0]);
  const bool direct = all_active(w) && !inst.clamp;
  u32* d = aligned(direct ? w.vgpr[inst.dst.index] : w.tmp[3][0]);
  for_lanes([=](int l) {
    const u32 first = raw(F(bits<float>(a[l]), bits<float>(b[l]), bits<float>(c[l])));
    const u32 second = raw(F(bits<float>(x[l]), bits<float>(y[l]), bits<float>(z[l])));
    d[l] = first;
    d[kMostLanes + l] = second;
  });
  if (!direct) finish(w, inst, Type::kPkF32, false);
}

// Low register from S0, high one from S1, each the one its op_sel bit picks. Bits only.
void pk_mov(Wave& w, const Inst& inst) {
  const u32 *low[2], *high[2];
  for (int n = 0; n < 2; ++n) fetch_pair(w, inst, n, &low[n], &high[n]);
  u32* t = w.tmp[3][0];
  const u32 *a = low[0], *b = low[1];
  for_lanes([=](int l) {
    t[l] = a[l];
    t[kMostLanes + l] = b[l];
  });
  finish(w, inst, Type::kI64, false);
}

enum class MixTo { kF32, kLow, kHigh };
// The manual rounds twice for f16 results: the FMA to f32, then the conversion.
template <MixTo kTo>
[[gnu::flatten]] void fma_mix(Wave& w, const Inst& inst) {
  const u32* a = aligned(fetch_mix(w, inst, 0));
  const u32* b = aligned(fetch_mix(w, inst, 1));
  const u32* c = aligned(fetch_mix(w, inst, 2));
  const Env env(w.mode);
  u32* t = aligned(w.tmp[3][0]);
  for_lanes([=](int l) {
    const float r = fma32(bits<float>(a[l]), bits<float>(b[l]), bits<float>(c[l]));
    t[l] = kTo == MixTo::kF32 ? raw(r) : to_f16(r, env).raw;
  });
  if (kTo == MixTo::kF32)
    finish(w, inst, Type::kF32, false);
  else
    finish_half(w, inst, kTo == MixTo::kHigh);
}

// Dot products. Sources take op_sel and neg as packed halves; the accumulator is 32 bits.
template <int kWidth, bool kSigned>
FMHA_EMU_INLINE u32 element(u32 x, int i) {
  const u32 top = x << (32 - kWidth * (i + 1));
  return kSigned ? static_cast<u32>(static_cast<i32>(top) >> (32 - kWidth)) : top >> (32 - kWidth);
}
template <int kWidth, bool kSigned>
[[gnu::flatten]] void dot_int(Wave& w, const Inst& inst) {
  const bool plain = kWidth < 16 || packed_plain(inst, 2);
  const Inst simple = [&] {
    Inst i = inst;
    i.op_sel = i.neg = i.neg_hi = 0;
    i.op_sel_hi = 7;
    return i;
  }();
  const Inst& view = kWidth < 16 ? simple : inst;
  const u32* a = fetch_packed(w, view, 0, plain, false);
  const u32* b = fetch_packed(w, view, 1, plain, false);
  const u32* c = fetch_packed(w, simple, 2, false, false);
  u32* t = w.tmp[3][0];
  const bool clamp = inst.clamp;
  for (int l = 0; l < kLanes; ++l) {
    u64 sum = kSigned ? static_cast<u64>(static_cast<i64>(static_cast<i32>(c[l]))) : c[l];
    for (int i = 0; i < 32 / kWidth; ++i) {
      const u32 p = element<kWidth, kSigned>(a[l], i) * element<kWidth, kSigned>(b[l], i);
      sum += kSigned ? static_cast<u64>(static_cast<i64>(static_cast<i32>(p))) : p;
    }
    const i64 s = static_cast<i64>(sum);
    const u64 limited = kSigned ? static_cast<u64>(s > INT32_MAX   ? INT32_MAX
                                                   : s < INT32_MIN ? INT32_MIN
                                                                   : s)
                                : (sum > UINT32_MAX ? UINT32_MAX : sum);
    t[l] = static_cast<u32>(clamp ? limited : sum);
  }
  finish_packed(w, inst, false);
}
// AMD's __ockl_fdot2 sets clamp, and cards of gfx11 and gfx12 ignore it.
enum class DotClamp { kUnknown, kIgnored };
template <bool kFlush, DotClamp kClamp>
[[gnu::flatten]] void dot2_f32_f16(Wave& w, const Inst& inst) {
  if (inst.clamp && kClamp == DotClamp::kUnknown) [[unlikely]]
    return fault_clamped_dot(w, inst);
  const Env env(w.mode);
  const bool plain = packed_plain(inst, 2);
  const u32* a = fetch_packed(w, inst, 0, plain, true);
  const u32* b = fetch_packed(w, inst, 1, plain, true);
  Inst third = inst;  // an f32: neg as in VOP3
  third.op_sel = third.abs = 0;
  const u32* c = fetch_slow(w, third, 2, Type::kF32);
  u32* t = w.tmp[3][0];
  for_lanes([=](int l) {
    const auto half = [&env](u32 x, int i) { return to_f32(half_of<f16>(x, i), env); };
    t[l] =
        raw(dot2_f32<kFlush>(half(a[l], 0), half(b[l], 0), half(a[l], 1), half(b[l], 1), bits<float>(c[l])));
  });
  third.clamp = false;
  finish(w, third, Type::kF32, false);
}

// Products of bytes or nibbles, of which neg_lo says whether S0's and S1's are signed; the sum is.
template <int kWidth>
void dot_mixed(Wave& w, const Inst& inst) {
  const bool signed_a = inst.neg & 1, signed_b = inst.neg & 2;
  Inst plain = inst;
  plain.op_sel = plain.neg = plain.neg_hi = 0;
  plain.op_sel_hi = 7;
  const u32* a = fetch_packed(w, plain, 0, true, false);
  const u32* b = fetch_packed(w, plain, 1, true, false);
  const u32* c = fetch_packed(w, plain, 2, true, false);
  const auto pick = [](u32 x, int i, bool is_signed) {
    return static_cast<i32>(is_signed ? element<kWidth, true>(x, i) : element<kWidth, false>(x, i));
  };
  u32* t = w.tmp[3][0];
  for (int l = 0; l < kLanes; ++l) {
    i64 sum = static_cast<i32>(c[l]);
    for (int i = 0; i < 32 / kWidth; ++i) sum += pick(a[l], i, signed_a) * pick(b[l], i, signed_b);
    t[l] = static_cast<u32>(inst.clamp ? saturated_i32(sum) : static_cast<i32>(static_cast<u32>(sum)));
  }
  finish_packed(w, inst, false);
}
// Halves are bf16; the sum is made as dot2_f32_f16's.
[[gnu::flatten]] void dot2_f32_bf16(Wave& w, const Inst& inst) {
  if (inst.clamp) [[unlikely]]
    return fault_clamped_dot(w, inst);
  const bool plain = packed_plain(inst, 2);
  const u32* a = fetch_packed(w, inst, 0, plain, true);
  const u32* b = fetch_packed(w, inst, 1, plain, true);
  Inst third = inst;
  third.op_sel = third.abs = 0;
  const u32* c = fetch_slow(w, third, 2, Type::kF32);
  u32* t = w.tmp[3][0];
  for_lanes([=](int l) {
    const auto low = [](u32 x) { return bits<float>(x << 16); };
    const auto high = [](u32 x) { return bits<float>(x & 0xffff0000u); };
    t[l] = raw(dot2_f32<false>(low(a[l]), low(b[l]), high(a[l]), high(b[l]), bits<float>(c[l])));
  });
  finish(w, inst, Type::kF32, false);
}

// Four products of OCP's FP8 or BF8, added to an f32 one after the other, which the guides do not say.
template <int kMantissaA, int kMantissaB>
void dot4_fp8(Wave& w, const Inst& inst) {
  if (inst.clamp) [[unlikely]]
    return fault_clamped_dot(w, inst);
  Inst plain = inst;
  plain.op_sel = plain.abs = plain.neg = 0;
  const u32* a = fetch_slow(w, plain, 0, Type::kI32);
  const u32* b = fetch_slow(w, plain, 1, Type::kI32);
  const u32* c = fetch_slow(w, plain, 2, Type::kF32);
  const u32 keep = inst.neg_hi & 4 ? ~(1u << 31) : ~0u, flip = inst.neg & 4 ? 1u << 31 : 0;
  u32* t = w.tmp[3][0];
  for (int l = 0; l < kLanes; ++l) {
    float sum = bits<float>((c[l] & keep) ^ flip);
    for (int i = 0; i < 32; i += 8)
      sum = fma32(Ocp8::widen<kMantissaA>(a[l] >> i), Ocp8::widen<kMantissaB>(b[l] >> i), sum);
    t[l] = raw(sum);
  }
  finish(w, inst, Type::kF32, false);
}

FMHA_EMU_INLINE i16 limit_i16(i32 x) { return static_cast<i16>(clamp_int(x, -0x8000, 0x7fff)); }
FMHA_EMU_INLINE u16 limit_u16(i64 x) { return static_cast<u16>(x < 0 ? 0 : x > 0xffff ? 0xffff : x); }
template <auto F>
constexpr auto f32_2 = [](const Env& e, f16 a, f16 b) { return to_f16(F(to_f32(a, e), to_f32(b, e)), e); };

// clang-format off: a row is a line, or two
constexpr Row kRows[] = {
  {"v_pk_mad_i16", kPkI16, {kPkI16, kPkI16, kPkI16}, 0,
   packed<[](const Env&, i16 a, i16 b, i16 c) { return static_cast<i16>(i32{a} * b + c); },
          [](const Env&, i16 a, i16 b, i16 c) { return limit_i16(i32{a} * b + c); }>},
  {"v_pk_mul_lo_u16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<[](const Env&, u16 a, u16 b) { return static_cast<u16>(u32{a} * b); }>},
  {"v_pk_add_i16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<[](const Env&, i16 a, i16 b) { return static_cast<i16>(a + b); },
          [](const Env&, i16 a, i16 b) { return limit_i16(a + b); }>},
  {"v_pk_sub_i16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<[](const Env&, i16 a, i16 b) { return static_cast<i16>(a - b); },
          [](const Env&, i16 a, i16 b) { return limit_i16(a - b); }>},
  {"v_pk_lshlrev_b16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<[](const Env&, u16 a, u16 b) { return static_cast<u16>(u32{b} << (a & 15)); }>},
  {"v_pk_lshrrev_b16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<([](const Env&, u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); })>},
  {"v_pk_ashrrev_i16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<([](const Env&, i16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); }), kFits>},
  {"v_pk_max_i16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<([](const Env&, i16 a, i16 b) { return a > b ? a : b; }), kFits>},
  {"v_pk_min_i16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<[](const Env&, i16 a, i16 b) { return a < b ? a : b; }, kFits>},
  {"v_pk_mad_u16", kPkI16, {kPkI16, kPkI16, kPkI16}, 0,
   packed<[](const Env&, u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * b + c); },
          [](const Env&, u16 a, u16 b, u16 c) { return limit_u16(i64{a} * b + c); }>},
  {"v_pk_add_u16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<[](const Env&, u16 a, u16 b) { return static_cast<u16>(a + b); },
          [](const Env&, u16 a, u16 b) { return limit_u16(a + b); }>},
  {"v_pk_sub_u16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<[](const Env&, u16 a, u16 b) { return static_cast<u16>(a - b); },
          [](const Env&, u16 a, u16 b) { return limit_u16(i64{a} - b); }>},
  {"v_pk_max_u16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<([](const Env&, u16 a, u16 b) { return a > b ? a : b; }), kFits>},
  {"v_pk_min_u16", kPkI16, {kPkI16, kPkI16}, 0,
   packed<[](const Env&, u16 a, u16 b) { return a < b ? a : b; }, kFits>},
  {"v_pk_fma_f16", kPkF16, {kPkF16, kPkF16, kPkF16}, kMod,
   packed<[](const Env& e, f16 a, f16 b, f16 c) { return fma16(a, b, c, e); }>},
  {"v_pk_add_f16", kPkF16, {kPkF16, kPkF16}, kMod,
   packed<f32_2<[](float a, float b) { return a + b; }>>},
  {"v_pk_mul_f16", kPkF16, {kPkF16, kPkF16}, kMod,
   packed<f32_2<[](float a, float b) { return a * b; }>>},
  {"v_pk_min_f16", kPkF16, {kPkF16, kPkF16}, kMod,
   packed<[](const Env& e, f16 a, f16 b) { return min_num(a, b, e); }>},
  {"v_pk_minimum3_f16", kPkF16, {kPkF16, kPkF16, kPkF16}, kMod,
   packed<[](const Env& e, f16 a, f16 b, f16 c) { return minimum(minimum(a, b, e), c, e); }>},
  {"v_pk_maximum3_f16", kPkF16, {kPkF16, kPkF16, kPkF16}, kMod,
   packed<[](const Env& e, f16 a, f16 b, f16 c) { return maximum(maximum(a, b, e), c, e); }>},
  {"v_pk_max_f16", kPkF16, {kPkF16, kPkF16}, kMod,
   packed<[](const Env& e, f16 a, f16 b) { return max_num(a, b, e); }>},
  {"v_fma_mix_f32", kF32, {kF32, kF32, kF32}, kMix, fma_mix<MixTo::kF32>},
  {"v_fma_mixlo_f16", kF16, {kF32, kF32, kF32}, kMix, fma_mix<MixTo::kLow>},
  {"v_fma_mixhi_f16", kF16, {kF32, kF32, kF32}, kMix, fma_mix<MixTo::kHigh>},
  {"v_dot2_f32_f16_flush", kF32, {kPkF16, kPkF16, kF32}, kMod | kDot, dot2_f32_f16<true, DotClamp::kUnknown>},
  {"v_dot2_f32_f16", kF32, {kPkF16, kPkF16, kF32}, kMod | kDot | kDppToo, dot2_f32_f16<false, DotClamp::kUnknown>},
  {"v_dot2_f32_f16_gfx11", kF32, {kPkF16, kPkF16, kF32}, kMod | kDot | kDppToo, dot2_f32_f16<false, DotClamp::kIgnored>},
  {"v_dot2_i32_i16", kB32, {kPkI16, kPkI16, kB32}, kDot, dot_int<16, true>},
  {"v_dot2_u32_u16", kB32, {kPkI16, kPkI16, kB32}, kDot, dot_int<16, false>},
  {"v_dot4_i32_i8", kB32, {kB32, kB32, kB32}, kDot, dot_int<8, true>},
  {"v_dot4_u32_u8", kB32, {kB32, kB32, kB32}, kDot, dot_int<8, false>},
  {"v_dot8_i32_i4", kB32, {kB32, kB32, kB32}, kDot, dot_int<4, true>},
  {"v_dot8_u32_u4", kB32, {kB32, kB32, kB32}, kDot, dot_int<4, false>},
  {"v_dot4_i32_iu8", kB32, {kB32, kB32, kB32}, kDot, dot_mixed<8>},
  {"v_dot8_i32_iu4", kB32, {kB32, kB32, kB32}, kDot, dot_mixed<4>},
  {"v_dot2_f32_bf16", kF32, {kPkBf16, kPkBf16, kF32}, kMod | kDot, dot2_f32_bf16},
  {"v_dot4_f32_fp8_bf8", kF32, {kB32, kB32, kF32}, kMod | kDot | kDppToo, dot4_fp8<3, 2>},
  {"v_dot4_f32_bf8_fp8", kF32, {kB32, kB32, kF32}, kMod | kDot | kDppToo, dot4_fp8<2, 3>},
  {"v_dot4_f32_fp8_fp8", kF32, {kB32, kB32, kF32}, kMod | kDot | kDppToo, dot4_fp8<3, 3>},
  {"v_dot4_f32_bf8_bf8", kF32, {kB32, kB32, kF32}, kMod | kDot | kDppToo, dot4_fp8<2, 2>},
  {"v_pk_minimum_f16", kPkF16, {kPkF16, kPkF16}, kMod,
   packed<[](const Env& e, f16 a, f16 b) { return minimum(a, b, e); }>},
  {"v_pk_maximum_f16", kPkF16, {kPkF16, kPkF16}, kMod,
   packed<[](const Env& e, f16 a, f16 b) { return maximum(a, b, e); }>},
  {"v_pk_fma_f32", kPkF32, {kPkF32, kPkF32, kPkF32}, kMod,
   pair<[](float a, float b, float c) { return fma32(a, b, c); }, 3>},
  {"v_pk_mul_f32", kPkF32, {kPkF32, kPkF32}, kMod,
   pair<[](float a, float b, float) { return a * b; }, 2>},
  {"v_pk_add_f32", kPkF32, {kPkF32, kPkF32}, kMod,
   pair<[](float a, float b, float) { return a + b; }, 2>},
  {"v_pk_mov_b32", kPkF32, {kPkF32, kPkF32}, 0, pk_mov},
};
// clang-format on

}  // namespace

std::span<const Row> vop3p_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
