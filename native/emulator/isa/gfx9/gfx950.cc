// SPDX-License-Identifier: MIT OR Apache-2.0
// Opcodes of gfx950 that gfx942 has not. Its scaling instructions and 8-bit floats, which are OCP, are not
// here yet: a program that has one stops with the instruction's words.
#include "isa/opcodes.h"

namespace fmha::emu::gfx9 {
namespace {

// clang-format off: a line is a run of opcodes
constexpr OpcodeRun kRuns[] = {
    {Format::kVop1, 0x58, "v_prng_b32 v_permlane16_swap_b32 v_permlane32_swap_b32"},

    {Format::kVop3, 0x233, "v_bitop3_b16 v_bitop3_b32"},
    {Format::kVop3, 0x265, "v_ashr_pk_i8_i32 v_ashr_pk_u8_i32 v_cvt_pk_f16_f32 v_cvt_pk_bf16_f32"},
    {Format::kVop3, 0x2a8, "v_minimum3_f32 v_maximum3_f32"},

    {Format::kMai, 0x35, "v_mfma_f32_16x16x32_bf16 v_mfma_i32_16x16x64_i8"},
    {Format::kMai, 0x37, "v_mfma_f32_32x32x16_bf16 v_mfma_i32_32x32x32_i8"},
    {Format::kMai, 0x54, "v_mfma_f32_16x16x32_f16 v_mfma_f32_32x32x16_f16"},

    {Format::kDs, 0xe0, "ds_read_b64_tr_b4 ds_read_b96_tr_b6 ds_read_b64_tr_b8 ds_read_b64_tr_b16"},

    {Format::kMubuf, 0x52, "buffer_atomic_pk_add_bf16"},

    {Format::kGlobal, 0x7d, "global_load_lds_dwordx4 global_load_lds_dwordx3"},
};
// clang-format on

}  // namespace

std::span<const OpcodeRun> gfx950() { return kRuns; }

}  // namespace fmha::emu::gfx9
