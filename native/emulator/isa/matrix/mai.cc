// SPDX-License-Identifier: MIT OR Apache-2.0
// Matrix instructions and the moves to and from the accumulation registers.
#include "isa/matrix/mfma.h"
#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

constexpr Type type_of_dwords(int n) {
  switch (n) {
    case 1:
      return Type::kF32;
    case 2:
      return Type::kI64;
    case 4:
      return Type::kB128;
    case 8:
      return Type::kB256;
    case 16:
      return Type::kB512;
    default:
      return Type::kB1024;
  }
}

// Named as gfx942 names it; gfx90a's names of the same are in its opcode table.
template <int M, int N, int K, int kBlocks, class In, Modifiers kModifiers, bool kFlush = false,
          class InB = In>
constexpr Row matrix_row(const char* mnemonic) {
  using S = Shape<M, N, K, kBlocks, In, InB, kModifiers, kFlush>;
  constexpr int kInputDwords = S::kPerLane * In::kBits / 32;
  constexpr Type kInput = type_of_dwords(kInputDwords), kAcc = type_of_dwords(S::kRegisters * S::kAccDwords);
  return shaped({mnemonic, kAcc, {kInput, kInput, kAcc}, 0, mfma<S>},
                {M, K, kBlocks, In::kElement, InB::kElement, false});
}

using enum Modifiers;
using Half942 = Half<false>;
using Half90a = Half<true>;

void accvgpr_move(Wave& w, const Inst& inst) {
  const Operand& src = inst.src[0];
  uint32_t* dst = w.vgpr[inst.dst.index];
  uint32_t constant[kLanes];
  const uint32_t* from = constant;
  if (src.kind == OperandKind::kVgpr) {
    from = w.vgpr[src.index];
  } else {
    const uint32_t value =
        src.kind == OperandKind::kSgpr ? w.sgpr[src.index] : static_cast<uint32_t>(src.value);
    for (uint32_t& x : constant) x = value;
  }
  if (all_active(w)) {
    std::memmove(dst, from, sizeof constant);
    return;
  }
  const uint32_t* mask = exec_lanes(w);
  for (int l = 0; l < kLanes; ++l) dst[l] = (from[l] & mask[l]) | (dst[l] & ~mask[l]);
}

constexpr RowFlags kAccMov = kAccSrc | kAccDst | kOneForm | kNoSuffix;

constexpr Row kRows[] = {
    {"v_accvgpr_read_b32", Type::kI32, {Type::kI32}, kAccSrc, accvgpr_move},
    {"v_accvgpr_write_b32", Type::kI32, {Type::kI32}, kAccDst, accvgpr_move},
    {"v_accvgpr_mov_b32", Type::kI32, {Type::kI32}, kAccMov, accvgpr_move},

    // f32
    matrix_row<32, 32, 1, 2, Single, kBroadcast>("v_mfma_f32_32x32x1_2b_f32"),
    matrix_row<16, 16, 1, 4, Single, kBroadcast>("v_mfma_f32_16x16x1_4b_f32"),
    matrix_row<4, 4, 1, 16, Single, kBroadcast>("v_mfma_f32_4x4x1_16b_f32"),
    matrix_row<32, 32, 2, 1, Single, kBroadcast>("v_mfma_f32_32x32x2_f32"),
    matrix_row<16, 16, 4, 1, Single, kBroadcast>("v_mfma_f32_16x16x4_f32"),

    // xf32
    matrix_row<16, 16, 8, 1, Xfloat, kNone>("v_mfma_f32_16x16x8_xf32"),
    matrix_row<32, 32, 4, 1, Xfloat, kNone>("v_mfma_f32_32x32x4_xf32"),

    // f16
    matrix_row<32, 32, 4, 2, Half90a, kBroadcast, true>("v_mfma_f32_32x32x4f16"),
    matrix_row<16, 16, 4, 4, Half90a, kBroadcast, true>("v_mfma_f32_16x16x4f16"),
    matrix_row<4, 4, 4, 16, Half90a, kBroadcast, true>("v_mfma_f32_4x4x4f16"),
    matrix_row<32, 32, 8, 1, Half90a, kBroadcast, true>("v_mfma_f32_32x32x8f16"),
    matrix_row<16, 16, 16, 1, Half90a, kBroadcast, true>("v_mfma_f32_16x16x16f16"),
    matrix_row<32, 32, 4, 2, Half942, kBroadcast>("v_mfma_f32_32x32x4_2b_f16"),
    matrix_row<16, 16, 4, 4, Half942, kBroadcast>("v_mfma_f32_16x16x4_4b_f16"),
    matrix_row<4, 4, 4, 16, Half942, kBroadcast>("v_mfma_f32_4x4x4_16b_f16"),
    matrix_row<32, 32, 8, 1, Half942, kBroadcast>("v_mfma_f32_32x32x8_f16"),
    matrix_row<16, 16, 16, 1, Half942, kBroadcast>("v_mfma_f32_16x16x16_f16"),
    matrix_row<32, 32, 16, 1, Half942, kBroadcast>("v_mfma_f32_32x32x16_f16"),
    matrix_row<16, 16, 32, 1, Half942, kBroadcast>("v_mfma_f32_16x16x32_f16"),

    // bf16: two a lane (gfx90a only), and four a lane ("1k" on gfx90a)
    matrix_row<32, 32, 2, 2, Bfloat, kBroadcast, true>("v_mfma_f32_32x32x2bf16"),
    matrix_row<16, 16, 2, 4, Bfloat, kBroadcast, true>("v_mfma_f32_16x16x2bf16"),
    matrix_row<4, 4, 2, 16, Bfloat, kBroadcast, true>("v_mfma_f32_4x4x2bf16"),
    matrix_row<32, 32, 4, 1, Bfloat, kBroadcast, true>("v_mfma_f32_32x32x4bf16"),
    matrix_row<16, 16, 8, 1, Bfloat, kBroadcast, true>("v_mfma_f32_16x16x8bf16"),
    matrix_row<32, 32, 4, 2, Bfloat, kBroadcast, true>("v_mfma_f32_32x32x4bf16_1k"),
    matrix_row<16, 16, 4, 4, Bfloat, kBroadcast, true>("v_mfma_f32_16x16x4bf16_1k"),
    matrix_row<4, 4, 4, 16, Bfloat, kBroadcast, true>("v_mfma_f32_4x4x4bf16_1k"),
    matrix_row<32, 32, 8, 1, Bfloat, kBroadcast, true>("v_mfma_f32_32x32x8bf16_1k"),
    matrix_row<16, 16, 16, 1, Bfloat, kBroadcast, true>("v_mfma_f32_16x16x16bf16_1k"),
    matrix_row<32, 32, 4, 2, Bfloat, kBroadcast>("v_mfma_f32_32x32x4_2b_bf16"),
    matrix_row<16, 16, 4, 4, Bfloat, kBroadcast>("v_mfma_f32_16x16x4_4b_bf16"),
    matrix_row<4, 4, 4, 16, Bfloat, kBroadcast>("v_mfma_f32_4x4x4_16b_bf16"),
    matrix_row<32, 32, 8, 1, Bfloat, kBroadcast>("v_mfma_f32_32x32x8_bf16"),
    matrix_row<16, 16, 16, 1, Bfloat, kBroadcast>("v_mfma_f32_16x16x16_bf16"),
    matrix_row<32, 32, 16, 1, Bfloat, kBroadcast>("v_mfma_f32_32x32x16_bf16"),
    matrix_row<16, 16, 32, 1, Bfloat, kBroadcast>("v_mfma_f32_16x16x32_bf16"),

    // fp8 and bf8
    matrix_row<16, 16, 32, 1, Bf8, kNone>("v_mfma_f32_16x16x32_bf8_bf8"),
    matrix_row<16, 16, 32, 1, Bf8, kNone, false, Fp8>("v_mfma_f32_16x16x32_bf8_fp8"),
    matrix_row<16, 16, 32, 1, Fp8, kNone, false, Bf8>("v_mfma_f32_16x16x32_fp8_bf8"),
    matrix_row<16, 16, 32, 1, Fp8, kNone>("v_mfma_f32_16x16x32_fp8_fp8"),
    matrix_row<32, 32, 16, 1, Bf8, kNone>("v_mfma_f32_32x32x16_bf8_bf8"),
    matrix_row<32, 32, 16, 1, Bf8, kNone, false, Fp8>("v_mfma_f32_32x32x16_bf8_fp8"),
    matrix_row<32, 32, 16, 1, Fp8, kNone, false, Bf8>("v_mfma_f32_32x32x16_fp8_bf8"),
    matrix_row<32, 32, 16, 1, Fp8, kNone>("v_mfma_f32_32x32x16_fp8_fp8"),
    matrix_row<16, 16, 32, 1, OcpBf8, kNone>("v_mfma_f32_16x16x32_bf8_bf8_ocp"),
    matrix_row<16, 16, 32, 1, OcpBf8, kNone, false, OcpFp8>("v_mfma_f32_16x16x32_bf8_fp8_ocp"),
    matrix_row<16, 16, 32, 1, OcpFp8, kNone, false, OcpBf8>("v_mfma_f32_16x16x32_fp8_bf8_ocp"),
    matrix_row<16, 16, 32, 1, OcpFp8, kNone>("v_mfma_f32_16x16x32_fp8_fp8_ocp"),
    matrix_row<32, 32, 16, 1, OcpBf8, kNone>("v_mfma_f32_32x32x16_bf8_bf8_ocp"),
    matrix_row<32, 32, 16, 1, OcpBf8, kNone, false, OcpFp8>("v_mfma_f32_32x32x16_bf8_fp8_ocp"),
    matrix_row<32, 32, 16, 1, OcpFp8, kNone, false, OcpBf8>("v_mfma_f32_32x32x16_fp8_bf8_ocp"),
    matrix_row<32, 32, 16, 1, OcpFp8, kNone>("v_mfma_f32_32x32x16_fp8_fp8_ocp"),

    // i8
    matrix_row<32, 32, 8, 1, Byte, kBroadcast>("v_mfma_i32_32x32x8i8"),
    matrix_row<16, 16, 16, 1, Byte, kBroadcast>("v_mfma_i32_16x16x16i8"),
    matrix_row<32, 32, 4, 2, Byte, kBroadcast>("v_mfma_i32_32x32x4_2b_i8"),
    matrix_row<16, 16, 4, 4, Byte, kBroadcast>("v_mfma_i32_16x16x4_4b_i8"),
    matrix_row<4, 4, 4, 16, Byte, kBroadcast>("v_mfma_i32_4x4x4_16b_i8"),
    matrix_row<32, 32, 16, 1, Byte, kNone>("v_mfma_i32_32x32x16_i8"),
    matrix_row<16, 16, 32, 1, Byte, kNone>("v_mfma_i32_16x16x32_i8"),
    matrix_row<32, 32, 32, 1, Byte, kNone>("v_mfma_i32_32x32x32_i8"),
    matrix_row<16, 16, 64, 1, Byte, kNone>("v_mfma_i32_16x16x64_i8"),

    // f64: gfx942 negates A, B, C by BLGP
    matrix_row<16, 16, 4, 1, Double, kNone>("v_mfma_f64_16x16x4f64"),
    matrix_row<4, 4, 4, 4, Double, kNone>("v_mfma_f64_4x4x4f64"),
    matrix_row<16, 16, 4, 1, Double, kNegate>("v_mfma_f64_16x16x4_f64"),
    matrix_row<4, 4, 4, 4, Double, kNegate>("v_mfma_f64_4x4x4_4b_f64"),
};

}  // namespace

std::span<const Row> mai_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
