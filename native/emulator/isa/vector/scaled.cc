// SPDX-License-Identifier: MIT OR Apache-2.0
// gfx950's conversions between floats and OCP's small ones under a scale, and the stochastic ones to 16 bits.
// small_floats.h has their arithmetic.
//
// The data of those that convert 32 elements at once, and the random bits and the scale of all, are read as
// the CDNA4 ISA guide's pseudocode has it. It does not say how neg, abs or a constant reads as two halves,
// nor what an instruction of several passes makes of a source that its destination overlaps: refused.
#include "base/errors.h"
#include "isa/rows.h"
#include "isa/vector/small_floats.h"
#include "isa/vector/valu.h"
#include "isa/vector/valu_vop3.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr Type kB32 = Type::kI32, kF32 = Type::kF32, kF16 = Type::kF16, kBf16 = Type::kBf16,
               kI16 = Type::kI16, kPkF32 = Type::kPkF32;
constexpr Type kB192 = Type::kB192, kB512 = Type::kB512, kB1024 = Type::kB1024;
constexpr RowFlags kMod = kHasModifiers | kNoResultModifiers;
constexpr RowFlags kToByte = kMod | kSelectsByte, kOfByte = kMod | kOwnOpSel, kOfHalf = kMod | kSelectsSource;

// A source as f32, without loss, and the bits of its mantissa. Only f32 obeys MODE.
template <class S>
constexpr int kMantissaOf = 23;
template <>
inline constexpr int kMantissaOf<f16> = 10;
template <>
inline constexpr int kMantissaOf<bf16> = 7;
FMHA_EMU_INLINE float single(float x, const Env& e) { return flushed(x, e); }
FMHA_EMU_INLINE float single(f16 x, const Env&) { return to_f32(x); }
FMHA_EMU_INLINE float single(bf16 x, const Env&) { return to_f32(x); }
// One of the two in a register.
template <class S>
FMHA_EMU_INLINE float half_of(u32 pair, int i) {
  return to_f32(S{static_cast<u16>(pair >> (16 * i))});
}
template <class T, class S, bool kRandom>
FMHA_EMU_INLINE u32 narrow(float x, u32 scale, u32 random, const Env& e) {
  return narrowed<T, kMantissaOf<S>, kRandom>(x, scale, random, e);
}
// Two codes, the first lower.
template <class T>
FMHA_EMU_INLINE u32 two(u32 first, u32 second) {
  return first | second << T::kBits;
}
FMHA_EMU_INLINE u32 with_byte_of(u32 old, u32 byte, OpSel o) {
  const u32 shift = (o.value >> 2 & 3) * 8;
  return (old & ~(0xffu << shift)) | byte << shift;
}
FMHA_EMU_INLINE u32 byte_of(u32 source, OpSel o) { return source >> (8 * (o.value & 3)) & 0xff; }
FMHA_EMU_INLINE u32 word_of(u32 source, OpSel o) { return source >> (16 * (o.value & 1)) & 0xffff; }

// --- to 8 and 4 bits, to nearest even ---
template <class T>
constexpr Exec pair_to_half = op<([](const Env& e, float a, float b, float s) {
  const u32 scale = scale_of(s);
  return low(static_cast<u16>(two<T>(narrow<T, float, false>(single(a, e), scale, 0, e),
                                     narrow<T, float, false>(single(b, e), scale, 0, e))));
})>;
template <class T, class S>
FMHA_EMU_INLINE u32 narrow_halves(u32 pair, u32 scale, const Env& e) {
  return two<T>(narrow<T, S, false>(half_of<S>(pair, 0), scale, 0, e),
                narrow<T, S, false>(half_of<S>(pair, 1), scale, 0, e));
}
template <class T, class S>
constexpr auto kHalvesToHalf = [](const Env& e, u32 pair, float s) {
  return low(static_cast<u16>(narrow_halves<T, S>(pair, scale_of(s), e)));
};
template <class T>
constexpr Exec pair_to_byte = op<([](const Env& e, float a, float b, float s, OpSel o, Old<u32> d) {
  const u32 scale = scale_of(s);
  return with_byte_of(d.value,
                      two<T>(narrow<T, float, false>(single(a, e), scale, 0, e),
                             narrow<T, float, false>(single(b, e), scale, 0, e)),
                      o);
})>;
template <class T, class S>
constexpr auto kHalvesToByte = [](const Env& e, u32 pair, float s, OpSel o, Old<u32> d) {
  return with_byte_of(d.value, narrow_halves<T, S>(pair, scale_of(s), e), o);
};

// --- stochastic ---
template <class T, class S>
constexpr Exec random_to_byte = op<([](const Env& e, S a, u32 random, float s, OpSel o, Old<u32> d) {
  return with_byte_of(d.value, narrow<T, S, true>(single(a, e), scale_of(s), random, e), o);
})>;
template <class T, class S>
FMHA_EMU_INLINE u32 narrow_two(float first, float second, u32 scale, u32 random, const Env& e) {
  return two<T>(narrow<T, S, true>(first, scale, random, e),
                narrow<T, S, true>(second, scale, next_random(random), e));
}
template <class T>
constexpr auto kRandomPairToByte = [](const Env& e, Pair a, u32 random, float s, OpSel o, Old<u32> d) {
  const float first = single(bits<float>(a.low), e), second = single(bits<float>(a.high), e);
  return with_byte_of(d.value, narrow_two<T, float>(first, second, scale_of(s), random, e), o);
};
template <class T, class S>
constexpr auto kRandomHalvesToByte = [](const Env& e, u32 pair, u32 random, float s, OpSel o, Old<u32> d) {
  const float first = half_of<S>(pair, 0), second = half_of<S>(pair, 1);
  return with_byte_of(d.value, narrow_two<T, S>(first, second, scale_of(s), random, e), o);
};

// Sources of two elements, which a constant is not, nor for LLVM 22 a pair of SGPRs.
template <auto F>
void of_registers(Wave& w, const Inst& inst) {
  const Operand& o = inst.src[0];
  if (o.kind != OperandKind::kVgpr && (o.kind != OperandKind::kSgpr || o.dwords > 1))
    return w.fault(inst, hipErrorLaunchFailure, "how a constant reads as two elements is not documented");
  op<F>(w, inst);
}

// --- from 8 and 4 bits ---
template <class T>
constexpr Exec byte_to_f32_scaled =
    op<([](u32 a, float s, OpSel o) { return bits<float>(widened<T>(byte_of(a, o), scale_of(s))); })>;
template <class T>
constexpr Exec byte_to_f16 = op<([](const Env& e, u32 a, float s, OpSel o) {
  return low(f16{widened_to_f16<T>(byte_of(a, o), scale_of(s), e)});
})>;
// Two: of the half, or for 4 bits of the byte, that op_sel picks.
template <class T>
FMHA_EMU_INLINE u32 picked(u32 source, OpSel o) {
  return T::kBits == 8 ? word_of(source, o) : byte_of(source, o);
}
template <class T>
constexpr Exec pair_to_f32 = op<([](u32 a, float s, OpSel o) {
  const u32 codes = picked<T>(a, o), scale = scale_of(s);
  return FloatPair{bits<float>(widened<T>(codes, scale)), bits<float>(widened<T>(codes >> T::kBits, scale))};
})>;
template <class T>
constexpr Exec pair_to_f16 = op<([](const Env& e, u32 a, float s, OpSel o) {
  const u32 codes = picked<T>(a, o), scale = scale_of(s);
  return halves(widened_to_f16<T>(codes, scale, e), widened_to_f16<T>(codes >> T::kBits, scale, e));
})>;
template <class T>
constexpr Exec pair_to_bf16 = op<([](u32 a, float s, OpSel o) {
  const u32 codes = picked<T>(a, o), scale = scale_of(s);
  return halves(widened_to_bf16<T>(codes, scale), widened_to_bf16<T>(codes >> T::kBits, scale));
})>;

// --- 32 elements at once, to and from 6 bits ---
constexpr int kElements = 32, kSixBitDwords = 6;

// LLVM keeps the destination of all but v_cvt_scalef32_2xpk16 apart from the sources.
bool apart(Wave& w, const Inst& inst) {
  const auto end = [](const Operand& o) { return o.index + o.dwords; };
  for (const Operand& o : inst.src) {
    const bool overlaps = o.kind == OperandKind::kVgpr && o.index < end(inst.dst) && inst.dst.index < end(o);
    if (!overlaps) continue;
    w.fault(inst, hipErrorLaunchFailure,
            "the destination overlaps a source, which the instruction may still read when it writes");
    return false;
  }
  return true;
}

// Element i of lane l.
template <class S>
FMHA_EMU_INLINE float element(const u32 (*regs)[kMostLanes], int i, int l, const Env& e) {
  if constexpr (std::is_same_v<S, float>)
    return single(bits<float>(regs[i][l]), e);
  else
    return half_of<S>(regs[i / 2][l], i % 2);
}

// kSources: of the data; 2 are interleaved, the first's elements first.
template <class T, class S, int kSources, bool kRandom>
void narrow32(Wave& w, const Inst& inst) {
  if (kSources == 1 && !apart(w, inst)) return;
  const Env e(w.mode);
  const u32* scales = fetch<u32>(w, inst, kSources + kRandom, true);
  const u32* seeds = kRandom ? fetch<u32>(w, inst, 1, true) : scales;
  const u32(*data[2])[kMostLanes] = {&w.vgpr[inst.src[0].index],
                                     &w.vgpr[inst.src[kSources == 2 ? 1 : 0].index]};
  u32(*d)[kMostLanes] = &w.vgpr[inst.dst.index];
  for (u64 lanes = exec_mask(w); lanes; lanes &= lanes - 1) {
    const int l = __builtin_ctzll(lanes);
    const u32 scale = scale_of(bits<float>(scales[l]));
    u32 random = seeds[l], out[kSixBitDwords + 1] = {};
    for (int i = 0; i < kElements; ++i) {
      const float x = element<S>(data[i % kSources], i / kSources, l, e);
      const u64 code = narrow<T, S, kRandom>(x, scale, random, e);
      const u64 placed = code << (6 * i % 32);
      out[6 * i / 32] |= static_cast<u32>(placed);
      out[6 * i / 32 + 1] |= static_cast<u32>(placed >> 32);
      random = next_random(random);
    }
    for (int j = 0; j < kSixBitDwords; ++j) d[j][l] = out[j];
  }
}

template <class T, class D>
void widen32(Wave& w, const Inst& inst) {
  if (!apart(w, inst)) return;
  const Env e(w.mode);
  const u32* scales = fetch<u32>(w, inst, 1, true);
  const u32(*s)[kMostLanes] = &w.vgpr[inst.src[0].index];
  u32(*d)[kMostLanes] = &w.vgpr[inst.dst.index];
  for (u64 lanes = exec_mask(w); lanes; lanes &= lanes - 1) {
    const int l = __builtin_ctzll(lanes);
    const u32 scale = scale_of(bits<float>(scales[l]));
    for (int i = 0; i < kElements; ++i) {
      const int word = 6 * i / 32, shift = 6 * i % 32;
      const u64 both = s[word][l] | static_cast<u64>(shift > 26 ? s[word + 1][l] : 0) << 32;
      const u32 code = static_cast<u32>(both >> shift) & 0x3f;
      if constexpr (std::is_same_v<D, float>) {
        d[i][l] = widened<T>(code, scale);
      } else {
        const u32 x =
            std::is_same_v<D, f16> ? widened_to_f16<T>(code, scale, e) : widened_to_bf16<T>(code, scale);
        d[i / 2][l] = i % 2 ? d[i / 2][l] | x << 16 : x;
      }
    }
  }
}

// --- to f16 and bf16, stochastic: random bits are added below the last one kept, the rest is cut off ---
FMHA_EMU_INLINE u16 random_f16(const Env& e, float x, u32 random) {
  using Half = SmallFloat<5, 10>;
  const float a = flushed(x, e);
  if (is_nan(a) || is_inf(a)) return to_f16(a, e).raw;
  const u32 r = narrowed<Half, 23, true>(a, 127, random, e);
  return static_cast<u16>((r & 0x7fffu) > 0x3ffu ? r : r & e.keep64_out >> 16);
}
FMHA_EMU_INLINE u16 random_bf16(const Env& e, float x, u32 random) {
  const float a = flushed(x, e);
  return static_cast<u16>(is_nan(a) || is_inf(a) ? to_bf16(a) : (raw(a) + (random >> 16)) >> 16);
}

// clang-format off: a row is a line, or two
constexpr Row kRows[] = {
  {"v_cvt_sr_f16_f32", kI16, {kF32, kB32}, kMod,
   op<[](const Env& e, float a, u32 random) { return low(random_f16(e, a, random)); }>},
  {"v_cvt_sr_bf16_f32", kI16, {kF32, kB32}, kMod,
   op<[](const Env& e, float a, u32 random) { return low(random_bf16(e, a, random)); }>},

  {"v_cvt_scalef32_pk_fp8_f32", kI16, {kF32, kF32, kF32}, kMod, pair_to_half<E4m3>},
  {"v_cvt_scalef32_pk_bf8_f32", kI16, {kF32, kF32, kF32}, kMod, pair_to_half<E5m2>},
  {"v_cvt_scalef32_pk_fp8_f16", kI16, {kB32, kF32}, kMod, of_registers<kHalvesToHalf<E4m3, f16>>},
  {"v_cvt_scalef32_pk_bf8_f16", kI16, {kB32, kF32}, kMod, of_registers<kHalvesToHalf<E5m2, f16>>},
  {"v_cvt_scalef32_pk_fp8_bf16", kI16, {kB32, kF32}, kMod, of_registers<kHalvesToHalf<E4m3, bf16>>},
  {"v_cvt_scalef32_pk_bf8_bf16", kI16, {kB32, kF32}, kMod, of_registers<kHalvesToHalf<E5m2, bf16>>},
  {"v_cvt_scalef32_pk_fp4_f32", kB32, {kF32, kF32, kF32}, kToByte, pair_to_byte<E2m1>},
  {"v_cvt_scalef32_pk_fp4_f16", kB32, {kB32, kF32}, kToByte, of_registers<kHalvesToByte<E2m1, f16>>},
  {"v_cvt_scalef32_pk_fp4_bf16", kB32, {kB32, kF32}, kToByte, of_registers<kHalvesToByte<E2m1, bf16>>},

  {"v_cvt_scalef32_sr_fp8_f32", kB32, {kF32, kB32, kF32}, kToByte, random_to_byte<E4m3, float>},
  {"v_cvt_scalef32_sr_bf8_f32", kB32, {kF32, kB32, kF32}, kToByte, random_to_byte<E5m2, float>},
  {"v_cvt_scalef32_sr_fp8_f16", kB32, {kF16, kB32, kF32}, kToByte, random_to_byte<E4m3, f16>},
  {"v_cvt_scalef32_sr_bf8_f16", kB32, {kF16, kB32, kF32}, kToByte, random_to_byte<E5m2, f16>},
  {"v_cvt_scalef32_sr_fp8_bf16", kB32, {kBf16, kB32, kF32}, kToByte, random_to_byte<E4m3, bf16>},
  {"v_cvt_scalef32_sr_bf8_bf16", kB32, {kBf16, kB32, kF32}, kToByte, random_to_byte<E5m2, bf16>},
  {"v_cvt_scalef32_sr_pk_fp4_f32", kB32, {Type::kI64, kB32, kF32}, kToByte | kPlacesLate,
   of_registers<kRandomPairToByte<E2m1>>},
  {"v_cvt_scalef32_sr_pk_fp4_f16", kB32, {kB32, kB32, kF32}, kToByte | kPlacesLate,
   of_registers<kRandomHalvesToByte<E2m1, f16>>},
  {"v_cvt_scalef32_sr_pk_fp4_bf16", kB32, {kB32, kB32, kF32}, kToByte | kPlacesLate,
   of_registers<kRandomHalvesToByte<E2m1, bf16>>},

  {"v_cvt_scalef32_f32_fp8", kF32, {kB32, kF32}, kOfByte, byte_to_f32_scaled<E4m3>},
  {"v_cvt_scalef32_f32_bf8", kF32, {kB32, kF32}, kOfByte, byte_to_f32_scaled<E5m2>},
  {"v_cvt_scalef32_f16_fp8", kF16, {kB32, kF32}, kOfByte, byte_to_f16<E4m3>},
  {"v_cvt_scalef32_f16_bf8", kF16, {kB32, kF32}, kOfByte, byte_to_f16<E5m2>},
  {"v_cvt_scalef32_pk_f32_fp8", kPkF32, {kB32, kF32}, kOfHalf, pair_to_f32<E4m3>},
  {"v_cvt_scalef32_pk_f32_bf8", kPkF32, {kB32, kF32}, kOfHalf, pair_to_f32<E5m2>},
  {"v_cvt_scalef32_pk_f32_fp4", kPkF32, {kB32, kF32}, kOfByte, pair_to_f32<E2m1>},
  {"v_cvt_scalef32_pk_f16_fp8", kB32, {kB32, kF32}, kOfHalf, pair_to_f16<E4m3>},
  {"v_cvt_scalef32_pk_f16_bf8", kB32, {kB32, kF32}, kOfHalf, pair_to_f16<E5m2>},
  {"v_cvt_scalef32_pk_f16_fp4", kB32, {kB32, kF32}, kOfByte, pair_to_f16<E2m1>},
  {"v_cvt_scalef32_pk_bf16_fp8", kB32, {kB32, kF32}, kOfHalf, pair_to_bf16<E4m3>},
  {"v_cvt_scalef32_pk_bf16_bf8", kB32, {kB32, kF32}, kOfHalf, pair_to_bf16<E5m2>},
  {"v_cvt_scalef32_pk_bf16_fp4", kB32, {kB32, kF32}, kOfByte, pair_to_bf16<E2m1>},

  {"v_cvt_scalef32_2xpk16_fp6_f32", kB192, {kB512, kB512, kB32}, 0, narrow32<E2m3, float, 2, false>},
  {"v_cvt_scalef32_2xpk16_bf6_f32", kB192, {kB512, kB512, kB32}, 0, narrow32<E3m2, float, 2, false>},
  {"v_cvt_scalef32_pk32_fp6_f16", kB192, {kB512, kB32}, 0, narrow32<E2m3, f16, 1, false>},
  {"v_cvt_scalef32_pk32_bf6_f16", kB192, {kB512, kB32}, 0, narrow32<E3m2, f16, 1, false>},
  {"v_cvt_scalef32_pk32_fp6_bf16", kB192, {kB512, kB32}, 0, narrow32<E2m3, bf16, 1, false>},
  {"v_cvt_scalef32_pk32_bf6_bf16", kB192, {kB512, kB32}, 0, narrow32<E3m2, bf16, 1, false>},
  {"v_cvt_scalef32_sr_pk32_fp6_f32", kB192, {kB1024, kB32, kB32}, 0, narrow32<E2m3, float, 1, true>},
  {"v_cvt_scalef32_sr_pk32_bf6_f32", kB192, {kB1024, kB32, kB32}, 0, narrow32<E3m2, float, 1, true>},
  {"v_cvt_scalef32_sr_pk32_fp6_f16", kB192, {kB512, kB32, kB32}, 0, narrow32<E2m3, f16, 1, true>},
  {"v_cvt_scalef32_sr_pk32_bf6_f16", kB192, {kB512, kB32, kB32}, 0, narrow32<E3m2, f16, 1, true>},
  {"v_cvt_scalef32_sr_pk32_fp6_bf16", kB192, {kB512, kB32, kB32}, 0, narrow32<E2m3, bf16, 1, true>},
  {"v_cvt_scalef32_sr_pk32_bf6_bf16", kB192, {kB512, kB32, kB32}, 0, narrow32<E3m2, bf16, 1, true>},
  {"v_cvt_scalef32_pk32_f32_fp6", kB1024, {kB192, kB32}, 0, widen32<E2m3, float>},
  {"v_cvt_scalef32_pk32_f32_bf6", kB1024, {kB192, kB32}, 0, widen32<E3m2, float>},
  {"v_cvt_scalef32_pk32_f16_fp6", kB512, {kB192, kB32}, 0, widen32<E2m3, f16>},
  {"v_cvt_scalef32_pk32_f16_bf6", kB512, {kB192, kB32}, 0, widen32<E3m2, f16>},
  {"v_cvt_scalef32_pk32_bf16_fp6", kB512, {kB192, kB32}, 0, widen32<E2m3, bf16>},
  {"v_cvt_scalef32_pk32_bf16_bf6", kB512, {kB192, kB32}, 0, widen32<E3m2, bf16>},
};
// clang-format on

}  // namespace

std::span<const Row> scaled_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
