// SPDX-License-Identifier: MIT OR Apache-2.0
// One kernel for every matrix instruction: D[block] = A[block] (M x K) * B[block] (K x N) + C[block].
//
// Registers (CDNA3 ISA, "Matrix core"): element e of lane l of A is row l % M, and with g = l / M it is block
// g % Blocks, k = e + PerLane * (g / Blocks). B is the same with columns. Widening a register to f32 for all
// 64 lanes therefore yields rows of B, contiguous, and columns of A, whose elements are broadcast: no
// transpose. A D register holds, for each N lanes, one row; see row_place().
//
// Arithmetic: one fused multiply-add a k, k ascending, in the accumulator's type, round to nearest even. The
// hardware does not document its order. EXEC is ignored. Denormals are kept, except by gfx90a's 16-bit types.
#pragma once

#include <type_traits>

#include "isa/host_rounding.h"
#include "isa/matrix/mfma_convert.h"
#include "isa/matrix/multiply_add.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

static_assert(kLanes == 64 && kLanes == kMostLanes, "MFMA exists for waves of 64 lanes");

// Shape and types of an instruction. InA and InB are of mfma_convert.h. Broadcast: CBSZ, ABID and BLGP are
// honoured; kNegate: BLGP negates A, B, C; else they must be zero.
enum class Modifiers : uint8_t { kNone, kBroadcast, kNegate };

template <int kM, int kN, int kK, int kBlocks_, class InA_, class InB_, Modifiers kMods, bool kFlush_ = false>
struct Shape {
  static constexpr int M = kM, N = kN, K = kK, kBlocks = kBlocks_;
  using InA = InA_;
  using InB = InB_;
  using Acc = typename InA::Acc;
  static constexpr Modifiers kModifiers = kMods;
  static constexpr bool kFlush = kFlush_;
  static constexpr int kPerLane = M * K * kBlocks / kLanes;       // elements of A or B in a lane
  static constexpr int kRowsPerGroup = sizeof(Acc) == 8 ? 1 : 4;  // consecutive rows in consecutive registers
  static constexpr int kAccDwords = sizeof(Acc) / 4;
  static constexpr int kGroups = M * kBlocks / kRowsPerGroup;
  static constexpr int kRegisters = M * N * kBlocks / kLanes;  // of Acc, in a lane
};

// Where a group of rows of a block lies in C and D: first register (of Acc) and first lane.
struct RowPlace {
  int reg, lane;
};
template <class S>
constexpr RowPlace row_place(int block, int group) {
  constexpr int kRowGroups = S::M / S::kRowsPerGroup, kLaneGroups = kLanes / S::N;
  if (sizeof(typename S::Acc) == 8 && S::kBlocks > 1) return {0, S::N * (block + S::kBlocks * group)};
  const int linear = block * kRowGroups + group;
  return {S::kRowsPerGroup * (linear / kLaneGroups), S::N * (linear % kLaneGroups)};
}

// A type of inputs that multiply_add() treats as it does In. Instructions of one shape and one such type
// share the code of the product, which is most of what there is to compile.
template <class In>
constexpr auto multiplied_as() {
  if constexpr (std::is_integral_v<typename In::Acc>) {
    return Byte{};
  } else if constexpr (sizeof(typename In::Acc) == 8) {
    return Double{};
  } else if constexpr (kFused || In::kSignificantBits > 11) {
    return Single{};
  } else if constexpr (In::kExactProduct) {
    return Half<false>{};
  } else {
    return Bfloat{};
  }
}
template <class S, class In = decltype(multiplied_as<typename S::InA>())>
using Product = Shape<S::M, S::N, S::K, S::kBlocks, In, In, Modifiers::kNone>;

// A, B widened: [element of a lane][lane]. C and D: rows of 64, `c_stride` 0 if C is one constant.
template <class S>
struct Matrices {
  using Acc = typename S::Acc;
  alignas(64) Acc a[S::kPerLane][kLanes];
  alignas(64) Acc b[S::kPerLane][kLanes];
  const Acc* c;
  int c_stride;
  Acc* d;
  int broadcast_mask, broadcast_block;  // blocks of A that share one: CBSZ and ABID
};

template <class S, class V>
[[gnu::always_inline]] inline const V* row_of_b(const Matrices<S>& m, int block, int k, int column) {
  return reinterpret_cast<const V*>(
      &m.b[k % S::kPerLane][S::N * (block + S::kBlocks * (k / S::kPerLane)) + column]);
}

// Rows [group, group + kGroups) x kVectors vectors of columns of one block: the accumulators stay in
// registers.
template <class S, int kGroups, int kVectors, class V>
[[gnu::always_inline]] inline void multiply_tile(const Matrices<S>& m, int block, int group, int column,
                                                 const V (*held)[kVectors]) {
  constexpr int kRows = S::kRowsPerGroup, kWidth = sizeof(V) / sizeof(typename S::Acc);
  const int a_block = (block & ~m.broadcast_mask) + m.broadcast_block;
  V acc[kGroups * kRows][kVectors];
  for (int r = 0; r < kGroups * kRows; ++r) {
    const RowPlace place = row_place<S>(block, group + r / kRows);
    const auto* c = m.c + (place.reg + r % kRows) * m.c_stride + (m.c_stride ? place.lane + column : 0);
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] = *reinterpret_cast<const V*>(c + v * kWidth * (m.c_stride != 0));
  }
#pragma GCC unroll 32
  for (int k = 0; k < S::K; ++k) {
    const V* b = held ? held[k] : row_of_b<S, V>(m, block, k, column);
    const auto* a = &m.a[k % S::kPerLane][S::M * (a_block + S::kBlocks * (k / S::kPerLane)) + group * kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kGroups * kRows; ++r) {
      const V row = splat<V>(a[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[r][v] = multiply_add<typename S::InA>(row, b[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kGroups * kRows; ++r) {
    const RowPlace place = row_place<S>(block, group + r / kRows);
    auto* d = m.d + (place.reg + r % kRows) * kLanes + place.lane + column;
    for (int v = 0; v < kVectors; ++v) *reinterpret_cast<V*>(d + v * kWidth) = acc[r][v];
  }
}

template <class S>
[[gnu::noinline]] void multiply(const Matrices<S>& m) {
  constexpr int kMaxWidth = kVectorBytes / static_cast<int>(sizeof(typename S::Acc));
  constexpr int kWidth = S::N < kMaxWidth ? S::N : kMaxWidth;
  constexpr int kVectors = S::N / kWidth >= 2 ? 2 : 1;
  // Eight chains of multiply-adds hide their latency.
  constexpr int kRowGroups = S::M / S::kRowsPerGroup, kWanted = 8 / (kVectors * S::kRowsPerGroup);
  constexpr int kTile = kWanted < 1 ? 1 : kWanted < kRowGroups ? kWanted : kRowGroups;
  // B's rows stay in registers too, where there are enough; gcc 12 needs the loops' pragmas to keep them
  // there.
  constexpr bool kHold = kRegisterCount == 32 && S::K * kVectors <= 16;
  using V = Vector<typename S::Acc, kWidth>;
  for (int block = 0; block < S::kBlocks; ++block) {
    for (int column = 0; column < S::N; column += kVectors * kWidth) {
      V held[kHold ? S::K : 1][kVectors];
#pragma GCC unroll 32
      for (int k = 0; k < (kHold ? S::K : 0); ++k) {
        for (int v = 0; v < kVectors; ++v) held[k][v] = row_of_b<S, V>(m, block, k, column)[v];
      }
#pragma GCC unroll 1
      for (int group = 0; group < kRowGroups; group += kTile) {
        int from = column;
        if constexpr (!kHold)
          __asm__("" : "+r"(from));  // or gcc moves B's rows out of this loop, to the stack
        multiply_tile<S, kTile, kVectors, V>(m, block, group, from, kHold ? held : nullptr);
      }
    }
  }
}

// BLGP: which lane B's values for lane l come from.
inline int pattern_lane(int blgp, int l) {
  switch (blgp) {
    case 1:
      return l % 32;
    case 2:
      return l % 32 + 32;
    case 3:
      return (l + 16) % kLanes;
    case 0:
      return l;
    default:
      return l % 16 + 16 * (blgp - 4);
  }
}

template <class Acc, int kCount>
[[gnu::cold, gnu::noinline]] void permute_lanes(Acc (*b)[kLanes], int blgp) {
  for (int e = 0; e < kCount; ++e) {
    Acc from[kLanes];
    std::memcpy(from, b[e], sizeof from);
    for (int l = 0; l < kLanes; ++l) b[e][l] = from[pattern_lane(blgp, l)];
  }
}

// An inline constant as the source of an accumulator: integers are their bits, as everywhere on GFX9.
template <class Acc>
inline Acc inline_constant(int encoded) {
  static constexpr double kReals[] = {0.5, -0.5, 1, -1, 2, -2, 4, -4, 0.15915494309189532};
  using Bits = std::conditional_t<sizeof(Acc) == 8, int64_t, int32_t>;
  Bits bits = 0;
  if (encoded >= 128 && encoded <= 192) bits = encoded - 128;
  if (encoded >= 193 && encoded <= 208) bits = 192 - encoded;
  if (encoded >= 240 && encoded <= 248) {
    const std::conditional_t<sizeof(Acc) == 8, double, float> real = kReals[encoded - 240];
    std::memcpy(&bits, &real, sizeof bits);
  }
  Acc value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class S>
[[gnu::cold, gnu::noinline]] bool modifiers_ok(Wave& w, const Inst& inst) {
  constexpr int kLog2Blocks = S::kBlocks == 16 ? 4 : S::kBlocks == 4 ? 2 : S::kBlocks == 2 ? 1 : 0;
  const bool a_ok = S::kModifiers == Modifiers::kBroadcast
                        ? inst.cbsz <= kLog2Blocks && inst.abid < (1 << inst.cbsz)
                        : inst.cbsz == 0 && inst.abid == 0;
  if (a_ok && (inst.blgp == 0 || S::kModifiers != Modifiers::kNone)) return true;
  w.fault(inst, hipErrorLaunchFailure, "unsupported modifiers cbsz %d, abid %d, blgp %d", inst.cbsz,
          inst.abid, inst.blgp);
  return false;
}

// C and D of 32-bit accumulators are used in place; only a C that partly overlaps D needs a copy.
template <class S, class M>
inline void multiply_in_place(Wave& w, const Inst& inst, M& m) {
  using Acc = typename S::Acc;
  alignas(64) Acc constant[16];
  alignas(64) Acc copy[S::kRegisters][kLanes];
  m.d = reinterpret_cast<Acc*>(w.vgpr[inst.dst.index]);
  if (inst.src[2].kind == OperandKind::kConst) {
    const Acc value = inline_constant<Acc>(inst.src[2].encoded);
    for (Acc& x : constant) x = value;
    m.c = constant;
    m.c_stride = 0;
  } else {
    m.c = reinterpret_cast<const Acc*>(w.vgpr[inst.src[2].index]);
    m.c_stride = kLanes;
    const int distance = inst.dst.index - inst.src[2].index;
    if (distance != 0 && distance < S::kRegisters && -distance < S::kRegisters) [[unlikely]] {
      std::memcpy(copy, m.c, sizeof copy);
      m.c = copy[0];
    }
  }
  multiply(m);
  m.c = nullptr;  // it may be of this function
}

// f64: a register pair holds the halves of 64 values apart; join them, and split the result.
template <class S>
inline void multiply_doubles(Wave& w, const Inst& inst, Matrices<Product<S>>& m) {
  alignas(64) double acc[S::kRegisters][kLanes];
  const bool negate = inst.blgp & 4;
  const double constant = inline_constant<double>(inst.src[2].encoded);
  for (int r = 0; r < S::kRegisters; ++r) {
    if (inst.src[2].kind == OperandKind::kConst) {
      for (int l = 0; l < kLanes; ++l) acc[r][l] = constant;
    } else {
      join_doubles(w.vgpr[inst.src[2].index + 2 * r], acc[r]);
    }
    if (negate)
      for (int l = 0; l < kLanes; ++l) acc[r][l] = -acc[r][l];
  }
  m.c = m.d = acc[0];
  m.c_stride = kLanes;
  multiply(m);
  for (int r = 0; r < S::kRegisters; ++r) split_doubles(acc[r], w.vgpr[inst.dst.index + 2 * r]);
}

template <class S>
void mfma(Wave& w, const Inst& inst) {
  if ((inst.cbsz | inst.abid | inst.blgp) && !modifiers_ok<S>(w, inst)) [[unlikely]]
    return;
  const HostRounding rounding(S::kFlush);
  Matrices<Product<S>> m;
  S::InA::template widen<S::kPerLane>(w.vgpr[inst.src[0].index], m.a);
  S::InB::template widen<S::kPerLane>(w.vgpr[inst.src[1].index], m.b);
  m.broadcast_mask = (1 << inst.cbsz) - 1;
  m.broadcast_block = inst.abid;
  if constexpr (S::kModifiers == Modifiers::kBroadcast) {
    if (inst.blgp) [[unlikely]]
      permute_lanes<typename S::Acc, S::kPerLane>(m.b, inst.blgp);
  }
  if constexpr (S::kModifiers == Modifiers::kNegate) {
    for (auto& row : m.a)
      if (inst.blgp & 1)
        for (auto& x : row) x = -x;
    for (auto& row : m.b)
      if (inst.blgp & 2)
        for (auto& x : row) x = -x;
  }
  if constexpr (sizeof(typename S::Acc) == 8) {
    multiply_doubles<S>(w, inst, m);
  } else {
    multiply_in_place<S>(w, inst, m);
  }
  w.mfma_macs += S::M * S::N * S::K * S::kBlocks;
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
