// SPDX-License-Identifier: MIT OR Apache-2.0
// WMMA of RDNA: D (16 x 16) = A (16 x K) * B (K x 16) + C.
//
// Registers. A lane l holds elements of row l % 16 of A and of column l % 16 of B, and C and D have in lane l
// elements of column l % 16; g = l / 16 is its group.
// - gfx11 (kRepeated): each group holds all k of A and B, the same in each; the guide wants the copies equal,
//   and the first group's are read here. Register i of C and D is row groups * i + g. 16-bit results take one
//   half of the register, which op_sel's bit 2 picks, of C too; the other half stays.
// - gfx12 (kSplit): group g holds K / groups values of k from g * K / groups on, but never less than a
//   register full: of 16 4-bit elements waves of 64 have all in the first two groups. That numbering is ours:
//   AMD's matrix instruction calculator gives the groups fours of k in turn, A and B the same, so that no
//   product shows which. Rows of C and D, one a register, or two if they have 16 bits: in waves of 32 those
//   of group g are from 8 * g on; in waves of 64 the groups have four each, in the order 0, 2, 1, 3 (AMD's
//   matrix instruction calculator; Mesa, radv's cooperative matrices).
//
// Modifiers: neg_lo and neg_hi negate A's and B's elements of even and odd k; for integers neg_lo says that
// they are signed. For C neg_lo is a negation and neg_hi the absolute value before it. clamp saturates
// integers.
//
// Arithmetic: one fused multiply-add a k, k ascending, in f32, round to nearest even; 16-bit results are
// rounded once, at the end. The hardware documents neither order nor rounding. Denormals are kept, EXEC is
// ignored.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "isa/host_rounding.h"
#include "isa/matrix/multiply_add.h"
#include "isa/rows.h"
#include "isa/vector/valu_float.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

constexpr int kWmmaSize = 16;  // rows and columns of D
constexpr int kLaneGroups = kLanes / kWmmaSize;

// Element types of A and B. value() is that of the lowest bits; `is_signed` is of integers.
struct WmmaHalf {
  using Acc = float;
  static constexpr Element kElement = Element::kF16;
  static constexpr int kBits = 16, kSignificantBits = 11;
  static constexpr bool kExactProduct = true;  // in Acc
  static float value(u32 x, bool) { return to_f32(f16{static_cast<u16>(x)}); }
};
struct WmmaBfloat {
  using Acc = float;
  static constexpr Element kElement = Element::kBf16;
  static constexpr int kBits = 16, kSignificantBits = 8;
  static constexpr bool kExactProduct = false;
  static float value(u32 x, bool) { return bits<float>(x << 16); }
};
template <int kWidth>
struct WmmaInt {
  using Acc = u32;
  static constexpr Element kElement = kWidth == 8 ? Element::kI8 : Element::kI4;
  static constexpr int kBits = kWidth, kSignificantBits = kWidth;
  static constexpr bool kExactProduct = true;
  static u32 value(u32 x, bool is_signed) {
    const u32 top = x << (32 - kWidth);
    return is_signed ? static_cast<u32>(static_cast<i32>(top) >> (32 - kWidth)) : top >> (32 - kWidth);
  }
};
// FP8 (E4M3) and BF8 (E5M2) of gfx12, OCP's: E4M3 has no infinity, and 0x7f and 0xff are its NaNs.
template <int kExponentBits>
struct WmmaFp8 {
  using Acc = float;
  static constexpr Element kElement = kExponentBits == 4 ? Element::kFp8 : Element::kBf8;
  static constexpr int kBits = 8, kSignificantBits = 8 - kExponentBits;
  static constexpr bool kExactProduct = true;
  static float value(u32 x, bool) {
    const u32 m = x & 0x7f, sign = (x & 0x80) << 24;
    if constexpr (kExponentBits == 5) return to_f32(f16{static_cast<u16>(x << 8)});
    if (m == 0x7f) return bits<float>(0x7fc00000 | sign);
    return bits<float>(raw(bits<float>(m << 20) * 0x1p120f) | sign);  // 2^(127 - bias)
  }
};

// Types of C and D: `kBits` wide, widened to Acc and back.
struct WmmaF32 {
  using Acc = float;
  static constexpr int kBits = 32;
  static float widen(u32 x) { return bits<float>(x); }
  static u32 narrow(float x) { return raw(x); }
};
struct WmmaI32 {
  using Acc = u32;
  static constexpr int kBits = 32;
  static u32 widen(u32 x) { return x; }
  static u32 narrow(u32 x) { return x; }
};
struct WmmaF16 {
  using Acc = float;
  static constexpr int kBits = 16;
  static float widen(u32 x) { return to_f32(f16{static_cast<u16>(x)}); }
  static u32 narrow(float x) { return round_to_f16(raw(x), ~0u, 0, 0, 0); }
};
struct WmmaBf16 {
  using Acc = float;
  static constexpr int kBits = 16;
  static float widen(u32 x) { return bits<float>(x << 16); }
  static u32 narrow(float x) {
    const u32 b = raw(x), rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16;
    return blend<u32>(nan_mask(x), b >> 16 | 0x40, rounded);
  }
};

enum class WmmaLayout : uint8_t { kRepeated, kSplit };

template <int kK, class InA_, class InB_, class Out_, WmmaLayout kLayout_>
struct Wmma {
  static constexpr int K = kK;
  using InA = InA_;
  using InB = InB_;
  using Out = Out_;
  using Acc = typename InA::Acc;
  static constexpr bool kSplit = kLayout_ == WmmaLayout::kSplit;
  static constexpr int kPerLane = kSplit ? std::max(K / kLaneGroups, 32 / InA::kBits) : K;
  static constexpr int kInGroups = K / kPerLane;         // those that hold different k
  static constexpr int kRows = kWmmaSize / kLaneGroups;  // of D in a lane
  static constexpr bool kPacked = kSplit && Out::kBits == 16;
  static constexpr int kInRegisters = kPerLane * InA::kBits / 32;
  static constexpr int kOutRegisters = kPacked ? kRows / 2 : kRows;
};

// One half of each of 16 registers.
[[gnu::always_inline]] inline void widen_halves16(const u32* in, u32 flip, int shift, float* out) {
#if defined(__F16C__) && defined(__AVX2__)
  for (int l = 0; l < kWmmaSize; l += 8) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + l));
    const __m256i y =
        _mm256_srli_epi32(_mm256_xor_si256(x, _mm256_set1_epi32(static_cast<int>(flip))), shift);
    const __m256i low = _mm256_and_si256(y, _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    _mm256_storeu_ps(out + l, _mm256_cvtph_ps(_mm256_castsi256_si128(packed)));
  }
#else
  for (int l = 0; l < kWmmaSize; ++l) out[l] = WmmaHalf::value((in[l] ^ flip) >> shift, false);
#endif
}

template <class Acc, int K>
using WmmaOperand = Acc[K][kWmmaSize];

// A or B widened: [k][row or column].
template <class S, class In>
[[gnu::always_inline]] inline void widen_operand(const Wave& w, const Inst& inst, int n,
                                                 WmmaOperand<typename S::Acc, S::K>& out) {
  constexpr int kPerRegister = 32 / In::kBits;
  const bool low = inst.neg >> n & 1, high = inst.neg_hi >> n & 1;
  const u32 flip = In::kBits != 16 ? 0 : (low ? 0x8000u : 0) | (high ? 0x80000000u : 0);
  for (int k = 0; k < S::K; ++k) {
    const int group = k / S::kPerLane, e = k % S::kPerLane;
    const u32* lanes = w.vgpr[inst.src[n].index + e / kPerRegister] + kWmmaSize * group;
    const int shift = e % kPerRegister * In::kBits;
    if constexpr (std::is_same_v<In, WmmaHalf>) {
      widen_halves16(lanes, flip, shift, out[k]);
    } else {
      for (int l = 0; l < kWmmaSize; ++l) out[k][l] = In::value((lanes[l] ^ flip) >> shift, low);
    }
  }
}

// Where row `row` of C and D lies: register, first lane, and the bit its elements begin at.
struct WmmaPlace {
  int reg, lane, shift;
};
template <class S>
constexpr WmmaPlace wmma_place(int row, bool high_half) {
  if constexpr (!S::kSplit) {
    return {row / kLaneGroups, kWmmaSize * (row % kLaneGroups), S::Out::kBits == 16 && high_half ? 16 : 0};
  } else {
    const int i = row % S::kRows, part = row / S::kRows;
    const int lane = kWmmaSize * (kLaneGroups == 4 ? part >> 1 | (part & 1) << 1 : part);
    return {S::kPacked ? i / 2 : i, lane, S::kPacked && i % 2 ? 16 : 0};
  }
}

// An inline constant as C: integers are bits, reals are of C's type.
template <class Out>
u32 wmma_constant(int encoded) {
  static constexpr float kReals[] = {0.5f, -0.5f, 1, -1, 2, -2, 4, -4, 0.15915494309189532f};
  if (encoded >= 240 && encoded <= 248) {
    if constexpr (std::is_same_v<typename Out::Acc, float>) return Out::narrow(kReals[encoded - 240]);
    return raw(kReals[encoded - 240]);
  }
  return static_cast<u32>(encoded <= 192 ? encoded - 128 : 192 - encoded);
}

template <class S>
void read_c(const Wave& w, const Inst& inst, typename S::Acc (*c)[kWmmaSize]) {
  using Out = typename S::Out;
  const Operand& o = inst.src[2];
  const bool constant = o.kind == OperandKind::kConst;
  const u32 value = constant ? wmma_constant<Out>(o.encoded) : 0;
  const u32 sign = Out::kBits == 16 ? 0x8000u : 1u << 31;
  const u32 keep = inst.neg_hi & 4 ? ~sign : ~0u, flip = inst.neg & 4 ? sign : 0;
  for (int row = 0; row < kWmmaSize; ++row) {
    const WmmaPlace place = wmma_place<S>(row, inst.op_sel & 4);
    const u32* lanes = w.vgpr[o.index + place.reg] + place.lane;
    for (int l = 0; l < kWmmaSize; ++l) {
      const u32 x = constant ? value : lanes[l] >> place.shift;
      c[row][l] = Out::widen(std::is_same_v<Out, WmmaI32> ? x : (x & keep) ^ flip);
    }
  }
}

template <class S>
void write_d(Wave& w, const Inst& inst, const typename S::Acc (*d)[kWmmaSize]) {
  for (int row = 0; row < kWmmaSize; ++row) {
    const WmmaPlace place = wmma_place<S>(row, inst.op_sel & 4);
    u32* lanes = w.vgpr[inst.dst.index + place.reg] + place.lane;
    const u32 kept = S::Out::kBits == 16 ? ~(0xffffu << place.shift) : 0;
    for (int l = 0; l < kWmmaSize; ++l)
      lanes[l] = (lanes[l] & kept) | S::Out::narrow(d[row][l]) << place.shift;
  }
}

// d += a * b. Eight accumulators at a time stay in registers and hide each other's latency.
template <class S>
[[gnu::always_inline]] inline void multiply_wmma(const WmmaOperand<typename S::Acc, S::K>& a,
                                                 const WmmaOperand<typename S::Acc, S::K>& b,
                                                 typename S::Acc (*d)[kWmmaSize]) {
  using Acc = typename S::Acc;
  constexpr int kWidth = kVectorBytes / 4, kVectors = kWmmaSize / kWidth, kTile = 8 / kVectors;
  using V = Vector<Acc, kWidth>;
  for (int first = 0; first < kWmmaSize; first += kTile) {
    V acc[kTile][kVectors];
    std::memcpy(acc, d[first], sizeof acc);
#pragma GCC unroll 1
    for (int k = 0; k < S::K; ++k) {
      V row[kVectors];
      std::memcpy(row, b[k], sizeof row);
#pragma GCC unroll 8
      for (int r = 0; r < kTile; ++r) {
        const V x = splat<V>(a[k][first + r]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) acc[r][v] = multiply_add<typename S::InA>(x, row[v], acc[r][v]);
      }
    }
    std::memcpy(d[first], acc, sizeof acc);
  }
}

// c += sums, which do not leave 32 bits; clamp saturates.
inline void add_products(const u32* sums, u32* c, int count, bool clamp) {
  for (int i = 0; i < count; ++i) {
    i32 r;
    const bool over = __builtin_add_overflow(static_cast<i32>(c[i]), static_cast<i32>(sums[i]), &r) && clamp;
    c[i] = over ? (c[i] >> 31 ? 0x80000000u : 0x7fffffffu) : static_cast<u32>(r);
  }
}

template <class S>
void wmma(Wave& w, const Inst& inst) {
  using Acc = typename S::Acc;
  constexpr bool kFloat = std::is_same_v<Acc, float>;
  if (kFloat && inst.clamp) [[unlikely]]
    return w.fault(inst, hipErrorLaunchFailure, "clamp of a matrix instruction that adds floats");
  const HostRounding rounding(false);
  alignas(64) WmmaOperand<Acc, S::K> a, b;
  alignas(64) Acc d[kWmmaSize][kWmmaSize];
  widen_operand<S, typename S::InA>(w, inst, 0, a);
  widen_operand<S, typename S::InB>(w, inst, 1, b);
  read_c<S>(w, inst, d);
  if constexpr (kFloat) {
    multiply_wmma<S>(a, b, d);
  } else {
    alignas(64) Acc sums[kWmmaSize][kWmmaSize] = {};
    multiply_wmma<S>(a, b, sums);
    add_products(sums[0], d[0], kWmmaSize * kWmmaSize, inst.clamp);
  }
  write_d<S>(w, inst, d);
  w.mfma_macs += kWmmaSize * kWmmaSize * S::K;
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
