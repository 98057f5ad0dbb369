// SPDX-License-Identifier: MIT OR Apache-2.0
// gfx950's matrix instructions whose A and B are floats of 8, 6 or 4 bits, and may have scales.
//
// Types (CDNA4 ISA guide, 7.1.5): CBSZ says A's, BLGP B's; it also says how many registers they take. A lane
// has 32 elements of a row of A or a column of B: with g = lane / M those of k = 32 g and on, but of 8 bits
// the sixteen from 16 g and the sixteen from K / 2 + 16 g.
//
// Scales (7.2): a byte of E8M0 for 32 elements along k, lane l's for row l % M and k = 32 (l / M) and on,
// whatever the type. v_mfma_scale is two instructions in one, of which the first says where they are: in a
// byte of a register, or they are the exponent of a float constant. 0xff is NaN.
//
// Arithmetic: as of MFMA (mfma.h): k ascends, each product is exact, scales included, and each sum is rounded
// once.
#include "base/errors.h"
#include "isa/matrix/mfma.h"
#include "isa/rows.h"
#include "isa/vector/small_floats.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr int kOfLane = 32;  // elements

// Formats by CBSZ and BLGP.
struct Kind {
  int bits;
  float value[256];  // of every code
};
template <class T>
Kind kind_of() {
  Kind kind{T::kBits, {}};
  for (u32 code = 0; code < 2 * T::kSign; ++code) kind.value[code] = bits<float>(widened<T>(code, 127));
  return kind;
}
const Kind& kind(int number) {
  static const Kind kinds[] = {kind_of<E4m3>(), kind_of<E5m2>(), kind_of<E2m3>(), kind_of<E3m2>(),
                               kind_of<E2m1>()};
  return kinds[number];
}

// The type that they are widened to.
struct Small {
  using Acc = float;
  static constexpr Element kElement = Element::kF8F6F4;
  static constexpr int kBits = 8;               // at most
  static constexpr bool kExactProduct = false;  // of scaled ones
  static constexpr int kSignificantBits = 4;
};

template <int kM, int kK>
struct Scaled : Shape<kM, kM, kK, 1, Small, Small, Modifiers::kNone> {
  static constexpr int kGroups = kLanes / kM;  // of lanes
  // Where element e of a lane of group g belongs along k.
  static int along(int bits, int group, int e) {
    if (bits != 8) return kOfLane * group + e;
    return (e < 16 ? 0 : kK / 2) + 16 * group + e % 16;
  }
};

// [k % 32][lane of k's group]: as mfma.h wants it.
template <class S>
void widen(const uint32_t (*regs)[kLanes], const Kind& kind, float (*out)[kLanes]) {
  const u32 mask = (1u << kind.bits) - 1;
  for (int e = 0; e < kOfLane; ++e) {
    const int bit = kind.bits * e, word = bit / 32, shift = bit % 32;
    const bool crosses = shift + kind.bits > 32;
    for (int group = 0; group < S::kGroups; ++group) {
      const int k = S::along(kind.bits, group, e);
      float* to = out[k % kOfLane] + S::M * (k / kOfLane);
      for (int i = 0; i < S::M; ++i) {
        const int lane = S::M * group + i;
        const u64 both = regs[word][lane] | static_cast<u64>(crosses ? regs[word + 1][lane] : 0) << 32;
        to[i] = kind.value[static_cast<u32>(both >> shift) & mask];
      }
    }
  }
}

// Scales as exponents of two, a lane each; false after a finding. clang 20 puts a scale that all lanes share
// into an SGPR, and one that it knows into an integer constant; LLVM 22 takes neither.
bool fetch_scales(Wave& w, const Inst& inst, int n, uint8_t* out) {
  const Inst& loads = *inst.scales;
  const Operand& o = loads.src[n];
  const int byte = (loads.op_sel >> n & 1) + 2 * (loads.op_sel_hi >> n & 1);
  if (o.kind == OperandKind::kVgpr) {
    for (int l = 0; l < kLanes; ++l) out[l] = static_cast<uint8_t>(w.vgpr[o.index][l] >> (8 * byte));
    return true;
  }
  constexpr int kFirstFloat = 240;
  if (o.kind == OperandKind::kConst && o.encoded >= kFirstFloat && byte == 0) {
    std::memset(out, static_cast<int>(scale_of(bits<float>(static_cast<u32>(o.value)))), kLanes);
    return true;
  }
  w.fault(inst, hipErrorLaunchFailure,
          "a scale must be a VGPR or, without op_sel, a float constant: the ISA guide says of nothing else "
          "what the instruction makes of it");
  return false;
}

// Scales near enough to 1 that an f32 holds every element with its scale.
bool are_near(const uint8_t* scales) {
  bool near = true;
  for (int l = 0; l < kLanes; ++l)
    near = near && ((scales[l] > 27 && scales[l] < 227) || scales[l] == kNanScale);
  return near;
}
float power_of(int scale) {
  return bits<float>(scale == static_cast<int>(kNanScale) ? 0x7fc00000u : static_cast<u32>(scale) << 23);
}

// Where they are.
void scale(float (*elements)[kLanes], const uint8_t* scales) {
  for (int l = 0; l < kLanes; ++l) {
    const float power = power_of(scales[l]);
    for (int e = 0; e < kOfLane; ++e) elements[e][l] *= power;
  }
}

template <class S>
struct Far : Matrices<S> {
  uint8_t scale_a[kLanes], scale_b[kLanes];
};
// Like that of Matrices, in doubles, which hold each product with both scales, and its sum with an f32 well
// enough to round once more without harm (multiply_add.h).
template <class S>
void multiply(const Far<S>& m) {
  constexpr int kNan = static_cast<int>(kNanScale);
  for (int row = 0; row < S::M; ++row) {
    const RowPlace place = row_place<S>(0, row / S::kRowsPerGroup);
    const int reg = place.reg + row % S::kRowsPerGroup;
    for (int column = 0; column < S::N; ++column) {
      float sum = m.c[reg * m.c_stride + (m.c_stride ? place.lane + column : 0)];
      for (int k = 0; k < S::K; ++k) {
        const int lane = S::M * (k / kOfLane), a = m.scale_a[lane + row], b = m.scale_b[lane + column];
        const double product = static_cast<double>(m.a[k % kOfLane][lane + row]) *
                               static_cast<double>(m.b[k % kOfLane][lane + column]);
        const double scaled =
            a == kNan || b == kNan ? __builtin_nan("") : __builtin_ldexp(product, a + b - 254);
        sum = static_cast<float>(scaled + static_cast<double>(sum));
      }
      m.d[reg * kLanes + place.lane + column] = sum;
    }
  }
}

// MODE.FP16_OVFL makes of what is too large the largest f32.
constexpr u32 kFp16Ovfl = 1u << 23;
template <class S>
void saturate(float* d) {
  constexpr u32 kMost = 0x7f7fffffu;
  for (int i = 0; i < S::kRegisters * kLanes; ++i) {
    if (is_inf(d[i])) d[i] = bits<float>((raw(d[i]) & 1u << 31) | kMost);
  }
}
template <class S>
bool has_infinity(const Matrices<S>& m, const Inst& inst, const Wave& w) {
  bool found = false;
  for (int e = 0; e < kOfLane; ++e) {
    for (int l = 0; l < kLanes; ++l) found = found || is_inf(m.a[e][l]) || is_inf(m.b[e][l]);
  }
  if (inst.src[2].kind == OperandKind::kConst) return found;
  for (int r = 0; r < S::kRegisters; ++r) {
    for (int l = 0; l < kLanes; ++l) found = found || is_inf(bits<float>(w.vgpr[inst.src[2].index + r][l]));
  }
  return found;
}

template <class S>
void mfma_small(Wave& w, const Inst& inst) {
  const HostRounding rounding(false);
  Far<S> m;
  widen<S>(&w.vgpr[inst.src[0].index], kind(inst.cbsz), m.a);
  widen<S>(&w.vgpr[inst.src[1].index], kind(inst.blgp), m.b);
  if (w.mode & kFp16Ovfl && has_infinity(m, inst, w)) [[unlikely]]
    return w.fault(inst, hipErrorLaunchFailure, "what MODE.FP16_OVFL does to infinities is not documented");
  m.broadcast_mask = m.broadcast_block = 0;
  const bool scaled = inst.scales != nullptr;
  if (scaled && !(fetch_scales(w, inst, 0, m.scale_a) && fetch_scales(w, inst, 1, m.scale_b))) return;
  w.mfma_macs += S::M * S::N * S::K;
  if (scaled && !(are_near(m.scale_a) && are_near(m.scale_b))) {
    multiply_in_place<S>(w, inst, m);
  } else {
    Matrices<S>& near = m;
    if (scaled) scale(near.a, m.scale_a), scale(near.b, m.scale_b);
    multiply_in_place<S>(w, inst, near);
  }
  if (w.mode & kFp16Ovfl) saturate<S>(m.d);
}

void load_scales(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorLaunchFailure,
          "scales for no v_mfma_f32_*_f8f6f4 behind it that takes them: they are used just for one "
          "instruction, says the ISA guide, and not what is left of them");
}

template <int M, int K>
constexpr Row small_row(const char* mnemonic, Type acc) {
  return shaped({mnemonic, acc, {Type::kB256, Type::kB256, acc}, 0, mfma_small<Scaled<M, K>>},
                {M, K, 1, Element::kF8F6F4, Element::kF8F6F4, false});
}

constexpr Row kRows[] = {
    {"v_mfma_ld_scale_b32", Type::kNone, {Type::kI32, Type::kI32}, kRefused | kLoadsScales, load_scales},
    small_row<16, 128>("v_mfma_f32_16x16x128_f8f6f4", Type::kB128),
    small_row<32, 64>("v_mfma_f32_32x32x64_f8f6f4", Type::kB512),
    small_row<16, 128>("v_mfma_scale_f32_16x16x128_f8f6f4", Type::kB128),
    small_row<32, 64>("v_mfma_scale_f32_32x32x64_f8f6f4", Type::kB512),
};

}  // namespace

std::span<const Row> small_matrix_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
