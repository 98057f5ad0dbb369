// SPDX-License-Identifier: MIT OR Apache-2.0
// SMFMAC: D += A * B with a sparse A, of which only two elements of every four along k are stored.
//
// Registers as of a dense instruction of this shape (mfma.h): lane l is row l % M of A and column l % N of B,
// and its group l / M has K * M / 64 consecutive k. B has all of these, and A every other one: elements 2i
// and 2i + 1 are among the four k from 4i on, at the places that two pairs of bits of the index register say.
// ABID picks the bits' set in that register if CBSZ is 0, else it is the lowest (CDNA3 ISA, 7.4).
//
// Arithmetic: as of MFMA; the products that A leaves out do not exist, so no infinity of B meets a zero
// there.
#include "isa/matrix/mfma.h"
#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

template <int M_, int K_, class InA_, class InB_>
struct Sparse {
  static constexpr int M = M_, N = M_, K = K_;
  using InA = InA_;
  using InB = InB_;
  using Acc = typename InA::Acc;
  static constexpr int kGroups = kLanes / M;                 // of lanes
  static constexpr int kOfB = K / kGroups, kOfA = kOfB / 2;  // elements in a lane
  static constexpr int kIndexBits = 2 * kOfA;
  using Dense = Shape<M, N, K, 1, InA, InB, Modifiers::kNone>;
};

// The bits of the 32 that hold the indices: 8 (16-bit types) or 16 (8-bit types), or twice as many for the
// deeper instructions.
template <class S>
int first_index_bit(const Inst& inst) {
  constexpr int kSets = 32 / S::kIndexBits;
  return inst.cbsz ? 0 : inst.abid % kSets * S::kIndexBits;
}

// The two indices of a pair must ascend; otherwise the result is not documented.
template <class S>
bool indices_ascend(Wave& w, const Inst& inst, const uint32_t* index, int shift) {
  for (int l = 0; l < kLanes; ++l) {
    for (int bit = shift; bit < shift + S::kIndexBits; bit += 4) {
      const uint32_t first = index[l] >> bit & 3, second = index[l] >> (bit + 2) & 3;
      if (first < second) continue;
      w.fault(inst, hipErrorLaunchFailure,
              "lane %d: the sparse indices in bits %d..%d are %u and %u, which do not ascend", l, bit,
              bit + 3, first, second);
      return false;
    }
  }
  return true;
}

// One row of D: k ascending, all columns at once.
template <class S>
[[gnu::always_inline]] inline void accumulate_row(const typename S::Acc (*a)[kLanes],
                                                  const typename S::Acc (*b)[kLanes], const uint32_t* index,
                                                  int shift, int row, typename S::Acc* d) {
  using V = Vector<typename S::Acc, 4>;
  for (int group = 0; group < S::kGroups; ++group) {
    const int lane = group * S::M + row;
    for (int e = 0; e < S::kOfA; ++e) {
      const int k = e / 2 * 4 + static_cast<int>(index[lane] >> (shift + 2 * e) & 3);
      const V x = splat<V>(a[e][lane]);
      for (int n = 0; n < S::N; n += 4) {
        V y, sum;
        std::memcpy(&y, &b[k][group * S::N + n], sizeof y);
        std::memcpy(&sum, d + n, sizeof sum);
        sum = multiply_add<typename S::InA>(x, y, sum);
        std::memcpy(d + n, &sum, sizeof sum);
      }
    }
  }
}

template <class S>
void smfmac(Wave& w, const Inst& inst) {
  using Acc = typename S::Acc;
  const uint32_t* index = w.vgpr[inst.src[2].index];
  const int shift = first_index_bit<S>(inst);
  if (!indices_ascend<S>(w, inst, index, shift)) return;
  const HostRounding rounding(false);
  alignas(64) Acc a[S::kOfA][kLanes], b[S::kOfB][kLanes];
  S::InA::template widen<S::kOfA>(w.vgpr[inst.src[0].index], a);
  S::InB::template widen<S::kOfB>(w.vgpr[inst.src[1].index], b);
  for (int row = 0; row < S::M; ++row) {
    using Dense = typename S::Dense;
    const RowPlace place = row_place<Dense>(0, row / Dense::kRowsPerGroup);
    uint32_t* regs = w.vgpr[inst.dst.index + place.reg + row % Dense::kRowsPerGroup] + place.lane;
    Acc sums[S::N];
    std::memcpy(sums, regs, sizeof sums);
    accumulate_row<S>(a, b, index, shift, row, sums);
    std::memcpy(regs, sums, sizeof sums);
  }
  w.mfma_macs += S::M * S::N * S::K / 2;
}

template <int M, int K, class InA, class InB = InA>
constexpr Row sparse_row(const char* mnemonic) {
  using S = Sparse<M, K, InA, InB>;
  constexpr Type kAcc = M == 32 ? Type::kB512 : Type::kB128;
  constexpr bool kDeep = S::kOfB * InB::kBits == 256;
  constexpr Type kA = kDeep ? Type::kB128 : Type::kI64, kB = kDeep ? Type::kB256 : Type::kB128;
  constexpr MatrixShape kShape{M, K, 1, InA::kElement, InB::kElement, true};
  return shaped({mnemonic, kAcc, {kA, kB, Type::kI32}, kReadsDst, smfmac<S>}, kShape);
}

constexpr Row kRows[] = {
    sparse_row<16, 32, Half<false>>("v_smfmac_f32_16x16x32_f16"),
    sparse_row<32, 16, Half<false>>("v_smfmac_f32_32x32x16_f16"),
    sparse_row<16, 32, Bfloat>("v_smfmac_f32_16x16x32_bf16"),
    sparse_row<32, 16, Bfloat>("v_smfmac_f32_32x32x16_bf16"),
    sparse_row<16, 64, Byte>("v_smfmac_i32_16x16x64_i8"),
    sparse_row<32, 32, Byte>("v_smfmac_i32_32x32x32_i8"),
    sparse_row<16, 64, Bf8>("v_smfmac_f32_16x16x64_bf8_bf8"),
    sparse_row<16, 64, Bf8, Fp8>("v_smfmac_f32_16x16x64_bf8_fp8"),
    sparse_row<16, 64, Fp8, Bf8>("v_smfmac_f32_16x16x64_fp8_bf8"),
    sparse_row<16, 64, Fp8>("v_smfmac_f32_16x16x64_fp8_fp8"),
    sparse_row<32, 32, Bf8>("v_smfmac_f32_32x32x32_bf8_bf8"),
    sparse_row<32, 32, Bf8, Fp8>("v_smfmac_f32_32x32x32_bf8_fp8"),
    sparse_row<32, 32, Fp8, Bf8>("v_smfmac_f32_32x32x32_fp8_bf8"),
    sparse_row<32, 32, Fp8>("v_smfmac_f32_32x32x32_fp8_fp8"),
    sparse_row<16, 64, OcpBf8>("v_smfmac_f32_16x16x64_bf8_bf8_ocp"),
    sparse_row<16, 64, OcpBf8, OcpFp8>("v_smfmac_f32_16x16x64_bf8_fp8_ocp"),
    sparse_row<16, 64, OcpFp8, OcpBf8>("v_smfmac_f32_16x16x64_fp8_bf8_ocp"),
    sparse_row<16, 64, OcpFp8>("v_smfmac_f32_16x16x64_fp8_fp8_ocp"),
    sparse_row<32, 32, OcpBf8>("v_smfmac_f32_32x32x32_bf8_bf8_ocp"),
    sparse_row<32, 32, OcpBf8, OcpFp8>("v_smfmac_f32_32x32x32_bf8_fp8_ocp"),
    sparse_row<32, 32, OcpFp8, OcpBf8>("v_smfmac_f32_32x32x32_fp8_bf8_ocp"),
    sparse_row<32, 32, OcpFp8>("v_smfmac_f32_32x32x32_fp8_fp8_ocp"),
    // Twice as deep.
    sparse_row<16, 64, Half<false>>("v_smfmac_f32_16x16x64_f16"),
    sparse_row<32, 32, Half<false>>("v_smfmac_f32_32x32x32_f16"),
    sparse_row<16, 64, Bfloat>("v_smfmac_f32_16x16x64_bf16"),
    sparse_row<32, 32, Bfloat>("v_smfmac_f32_32x32x32_bf16"),
    sparse_row<16, 128, Byte>("v_smfmac_i32_16x16x128_i8"),
    sparse_row<32, 64, Byte>("v_smfmac_i32_32x32x64_i8"),
    sparse_row<16, 128, OcpBf8>("v_smfmac_f32_16x16x128_bf8_bf8"),
    sparse_row<16, 128, OcpBf8, OcpFp8>("v_smfmac_f32_16x16x128_bf8_fp8"),
    sparse_row<16, 128, OcpFp8, OcpBf8>("v_smfmac_f32_16x16x128_fp8_bf8"),
    sparse_row<16, 128, OcpFp8>("v_smfmac_f32_16x16x128_fp8_fp8"),
    sparse_row<32, 64, OcpBf8>("v_smfmac_f32_32x32x64_bf8_bf8"),
    sparse_row<32, 64, OcpBf8, OcpFp8>("v_smfmac_f32_32x32x64_bf8_fp8"),
    sparse_row<32, 64, OcpFp8, OcpBf8>("v_smfmac_f32_32x32x64_fp8_bf8"),
    sparse_row<32, 64, OcpFp8>("v_smfmac_f32_32x32x64_fp8_fp8"),
};

}  // namespace

std::span<const Row> sparse_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
