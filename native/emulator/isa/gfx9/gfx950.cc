// SPDX-License-Identifier: MIT OR Apache-2.0
// Opcodes of gfx950 that gfx942 has not: those that this project's kernels use. Its transposing and scaling
// instructions and its 8-bit floats, which are OCP, are not here yet: a program that has one stops with the
// instruction's words.
#include "isa/opcodes.h"

namespace fmha::emu::gfx9 {
namespace {

// clang-format off: a line is a run of opcodes
constexpr OpcodeRun kRuns[] = {
    {Format::kVop3, 0x233, "v_bitop3_b16 v_bitop3_b32"},
    {Format::kVop3, 0x267, "v_cvt_pk_f16_f32"},

    {Format::kMai, 0x35, "v_mfma_f32_16x16x32_bf16"},
    {Format::kMai, 0x37, "v_mfma_f32_32x32x16_bf16"},
    {Format::kMai, 0x54, "v_mfma_f32_16x16x32_f16 v_mfma_f32_32x32x16_f16"},
};
// clang-format on

}  // namespace

std::span<const OpcodeRun> gfx950() { return kRuns; }

}  // namespace fmha::emu::gfx9
