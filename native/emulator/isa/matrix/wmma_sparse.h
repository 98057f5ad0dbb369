// SPDX-License-Identifier: MIT OR Apache-2.0
// SWMMAC of gfx12: D += A * B with a sparse A, of which only two elements of every four along k are stored.
//
// Registers as of gfx12's WMMA (wmma.h), of B as for K, of A as for K / 2, since it has every other element:
// 2i and 2i + 1 are among the four k from 4i on, at the places that two pairs of bits of the index register
// say. If the indices take a half or a quarter of that register, index_key (op_sel's bits 0 and 1) says
// which. That index and A's elements lie in the same lane is how CDNA3's SMFMAC has it.
//
// Arithmetic: as of WMMA; the products that A leaves out do not exist, so no infinity of B meets a zero
// there.
#pragma once

#include "isa/matrix/wmma.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

template <int kK, class InA_, class InB_, class Out_>
struct Swmmac {
  static constexpr int K = kK;
  using InA = InA_;
  using InB = InB_;
  using Acc = typename InA::Acc;
  static constexpr int kStored = K / 2;  // elements of a row of A
  using StoredA = Wmma<kStored, InA, InA, Out_, WmmaLayout::kSplit>;
  static constexpr int kPerLane = StoredA::kPerLane;  // of them, in a lane
  static constexpr int kIndexBits = 2 * kPerLane;     // in a lane
  using AllB = Wmma<K, InB, InB, Out_, WmmaLayout::kSplit>;
};

// The two indices of a pair must ascend; otherwise the result is not documented.
template <class S>
bool wmma_indices_ascend(Wave& w, const Inst& inst, const u32* index, int shift) {
  for (int l = 0; l < kWmmaSize * S::StoredA::kInGroups; ++l) {
    for (int bit = shift; bit < shift + S::kIndexBits; bit += 4) {
      const u32 first = index[l] >> bit & 3, second = index[l] >> (bit + 2) & 3;
      if (first < second) continue;
      w.fault(inst, hipErrorLaunchFailure,
              "lane %d: the sparse indices in bits %d..%d are %u and %u, which do not ascend", l, bit,
              bit + 3, first, second);
      return false;
    }
  }
  return true;
}

// sums += the products, k ascending.
template <class S>
void multiply_sparse(const WmmaOperand<typename S::Acc, S::kStored>& a,
                     const WmmaOperand<typename S::Acc, S::K>& b, const u32* index, int shift,
                     typename S::Acc (*sums)[kWmmaSize]) {
  using V = Vector<typename S::Acc, 4>;
  for (int row = 0; row < kWmmaSize; ++row) {
    for (int stored = 0; stored < S::kStored; ++stored) {
      const int group = stored / S::kPerLane, e = stored % S::kPerLane;
      const u32 place = index[kWmmaSize * group + row] >> (shift + 2 * e) & 3;
      const int k = stored / 2 * 4 + static_cast<int>(place);
      const V x = splat<V>(a[stored][row]);
      for (int n = 0; n < kWmmaSize; n += 4) {
        V y, sum;
        std::memcpy(&y, &b[k][n], sizeof y);
        std::memcpy(&sum, &sums[row][n], sizeof sum);
        sum = multiply_add<typename S::InA>(x, y, sum);
        std::memcpy(&sums[row][n], &sum, sizeof sum);
      }
    }
  }
}

template <class S>
void swmmac(Wave& w, const Inst& inst) {
  using Acc = typename S::Acc;
  constexpr bool kFloat = std::is_same_v<Acc, float>;
  if (kFloat && inst.clamp) [[unlikely]]
    return w.fault(inst, hipErrorLaunchFailure, "clamp of a matrix instruction that adds floats");
  const u32* index = w.vgpr[inst.src[2].index];
  const int shift = S::kIndexBits * (inst.op_sel & (32 / S::kIndexBits - 1));
  if (!wmma_indices_ascend<S>(w, inst, index, shift)) return;
  const HostRounding rounding(false);
  alignas(64) WmmaOperand<Acc, S::kStored> a;
  alignas(64) WmmaOperand<Acc, S::K> b;
  alignas(64) Acc d[kWmmaSize][kWmmaSize];
  widen_operand<typename S::StoredA, typename S::InA>(w, inst, 0, a);
  widen_operand<typename S::AllB, typename S::InB>(w, inst, 1, b);
  Inst accumulate = inst;  // C is what D holds, as it is
  accumulate.src[2] = inst.dst;
  accumulate.neg = accumulate.neg_hi = accumulate.op_sel = 0;
  read_c<typename S::AllB>(w, accumulate, d);
  if constexpr (!kFloat) {
    alignas(64) Acc sums[kWmmaSize][kWmmaSize] = {};
    multiply_sparse<S>(a, b, index, shift, sums);
    add_products(sums[0], d[0], kWmmaSize * kWmmaSize, inst.clamp);
  } else {
    multiply_sparse<S>(a, b, index, shift, d);
  }
  write_d<typename S::AllB>(w, accumulate, d);
  w.mfma_macs += kWmmaSize * kWmmaSize * S::K / 2;
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
