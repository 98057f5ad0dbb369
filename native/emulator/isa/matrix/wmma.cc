// SPDX-License-Identifier: MIT OR Apache-2.0
// Matrix instructions of RDNA. Those of gfx12, whose registers lie otherwise, have its name in theirs.
#include "isa/matrix/wmma.h"

#include "isa/matrix/wmma_sparse.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr Type type_of_registers(int n) {
  return n == 1 ? Type::kI32 : n == 2 ? Type::kI64 : n == 4 ? Type::kB128 : Type::kB256;
}

template <WmmaLayout kLayout, class Out, int K, class InA, class InB = InA>
constexpr Row wmma_row(const char* mnemonic) {
  using S = Wmma<K, InA, InB, Out, kLayout>;
  constexpr Type kIn = type_of_registers(S::kInRegisters), kOut = type_of_registers(S::kOutRegisters);
  return shaped({mnemonic, kOut, {kIn, kIn, kOut}, 0, wmma<S>},
                {kWmmaSize, K, 1, InA::kElement, InB::kElement, false});
}

template <class Out, int K, class InA, class InB = InA>
constexpr Row sparse_row(const char* mnemonic) {
  using S = Swmmac<K, InA, InB, Out>;
  constexpr Type kA = type_of_registers(S::StoredA::kInRegisters),
                 kB = type_of_registers(S::AllB::kInRegisters);
  constexpr Type kOut = type_of_registers(S::AllB::kOutRegisters);
  return shaped({mnemonic, kOut, {kA, kB, Type::kI32}, kReadsDst, swmmac<S>},
                {kWmmaSize, K, 1, InA::kElement, InB::kElement, true});
}

using enum WmmaLayout;
using Fp8 = WmmaFp8<4>;
using Bf8 = WmmaFp8<5>;

constexpr Row kRows[] = {
    wmma_row<kRepeated, WmmaF32, 16, WmmaHalf>("v_wmma_f32_16x16x16_f16"),
    wmma_row<kRepeated, WmmaF32, 16, WmmaBfloat>("v_wmma_f32_16x16x16_bf16"),
    wmma_row<kRepeated, WmmaF16, 16, WmmaHalf>("v_wmma_f16_16x16x16_f16"),
    wmma_row<kRepeated, WmmaBf16, 16, WmmaBfloat>("v_wmma_bf16_16x16x16_bf16"),
    wmma_row<kRepeated, WmmaI32, 16, WmmaInt<8>>("v_wmma_i32_16x16x16_iu8"),
    wmma_row<kRepeated, WmmaI32, 16, WmmaInt<4>>("v_wmma_i32_16x16x16_iu4"),
    wmma_row<kSplit, WmmaF32, 16, WmmaHalf>("v_wmma_f32_16x16x16_f16_gfx12"),
    wmma_row<kSplit, WmmaF32, 16, WmmaBfloat>("v_wmma_f32_16x16x16_bf16_gfx12"),
    wmma_row<kSplit, WmmaF16, 16, WmmaHalf>("v_wmma_f16_16x16x16_f16_gfx12"),
    wmma_row<kSplit, WmmaBf16, 16, WmmaBfloat>("v_wmma_bf16_16x16x16_bf16_gfx12"),
    wmma_row<kSplit, WmmaI32, 16, WmmaInt<8>>("v_wmma_i32_16x16x16_iu8_gfx12"),
    wmma_row<kSplit, WmmaI32, 16, WmmaInt<4>>("v_wmma_i32_16x16x16_iu4_gfx12"),
    wmma_row<kSplit, WmmaI32, 32, WmmaInt<4>>("v_wmma_i32_16x16x32_iu4"),
    wmma_row<kSplit, WmmaF32, 16, Fp8>("v_wmma_f32_16x16x16_fp8_fp8"),
    wmma_row<kSplit, WmmaF32, 16, Fp8, Bf8>("v_wmma_f32_16x16x16_fp8_bf8"),
    wmma_row<kSplit, WmmaF32, 16, Bf8, Fp8>("v_wmma_f32_16x16x16_bf8_fp8"),
    wmma_row<kSplit, WmmaF32, 16, Bf8>("v_wmma_f32_16x16x16_bf8_bf8"),
    sparse_row<WmmaF32, 32, WmmaHalf>("v_swmmac_f32_16x16x32_f16"),
    sparse_row<WmmaF32, 32, WmmaBfloat>("v_swmmac_f32_16x16x32_bf16"),
    sparse_row<WmmaF16, 32, WmmaHalf>("v_swmmac_f16_16x16x32_f16"),
    sparse_row<WmmaBf16, 32, WmmaBfloat>("v_swmmac_bf16_16x16x32_bf16"),
    sparse_row<WmmaI32, 32, WmmaInt<8>>("v_swmmac_i32_16x16x32_iu8"),
    sparse_row<WmmaI32, 32, WmmaInt<4>>("v_swmmac_i32_16x16x32_iu4"),
    sparse_row<WmmaI32, 64, WmmaInt<4>>("v_swmmac_i32_16x16x64_iu4"),
    sparse_row<WmmaF32, 32, Fp8>("v_swmmac_f32_16x16x32_fp8_fp8"),
    sparse_row<WmmaF32, 32, Fp8, Bf8>("v_swmmac_f32_16x16x32_fp8_bf8"),
    sparse_row<WmmaF32, 32, Bf8, Fp8>("v_swmmac_f32_16x16x32_bf8_fp8"),
    sparse_row<WmmaF32, 32, Bf8>("v_swmmac_f32_16x16x32_bf8_bf8"),
};

}  // namespace

std::span<const Row> wmma_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
