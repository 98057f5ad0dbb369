// SPDX-License-Identifier: MIT OR Apache-2.0
// Opcodes of gfx950 that gfx942 lacks, or whose numbers are of other types: its 8-bit floats are OCP.
#include "isa/opcodes.h"

namespace fmha::emu::gfx9 {
namespace {

// clang-format off: a line is a run of opcodes
constexpr OpcodeRun kRuns[] = {
    {Format::kVop1, 0x58, "v_prng_b32 v_permlane16_swap_b32 v_permlane32_swap_b32 v_cvt_f32_bf16"},

    {Format::kVop2, 0x16, "v_dot2c_f32_bf16"},

    {Format::kVop1, 0x54, "v_cvt_f32_fp8=v_cvt_f32_fp8_ocp v_cvt_f32_bf8=v_cvt_f32_bf8_ocp"},
    {Format::kVop1, 0x56, "v_cvt_pk_f32_fp8=v_cvt_pk_f32_fp8_ocp v_cvt_pk_f32_bf8=v_cvt_pk_f32_bf8_ocp"},

    {Format::kVop3, 0x233, "v_bitop3_b16 v_bitop3_b32"},
    {Format::kVop3, 0x235, "v_cvt_scalef32_pk_fp8_f32 v_cvt_scalef32_pk_bf8_f32 v_cvt_scalef32_sr_fp8_f32"},
    {Format::kVop3, 0x238, "v_cvt_scalef32_sr_bf8_f32 v_cvt_scalef32_pk_f32_fp8 v_cvt_scalef32_pk_f32_bf8"},
    {Format::kVop3, 0x23b, "v_cvt_scalef32_f32_fp8 v_cvt_scalef32_f32_bf8 v_cvt_scalef32_pk_fp4_f32"},
    {Format::kVop3, 0x23e, "v_cvt_scalef32_sr_pk_fp4_f32 v_cvt_scalef32_pk_f32_fp4 v_cvt_scalef32_pk_fp8_f16"},
    {Format::kVop3, 0x241, "v_cvt_scalef32_pk_bf8_f16 v_cvt_scalef32_sr_fp8_f16 v_cvt_scalef32_sr_bf8_f16"},
    {Format::kVop3, 0x244, "v_cvt_scalef32_pk_fp8_bf16 v_cvt_scalef32_pk_bf8_bf16 v_cvt_scalef32_sr_fp8_bf16"},
    {Format::kVop3, 0x247, "v_cvt_scalef32_sr_bf8_bf16 v_cvt_scalef32_pk_f16_fp8 v_cvt_scalef32_pk_f16_bf8"},
    {Format::kVop3, 0x24a, "v_cvt_scalef32_f16_fp8 v_cvt_scalef32_f16_bf8 v_cvt_scalef32_pk_fp4_f16"},
    {Format::kVop3, 0x24d, "v_cvt_scalef32_pk_fp4_bf16 v_cvt_scalef32_sr_pk_fp4_f16"},
    {Format::kVop3, 0x24f, "v_cvt_scalef32_sr_pk_fp4_bf16 v_cvt_scalef32_pk_f16_fp4 v_cvt_scalef32_pk_bf16_fp4"},
    {Format::kVop3, 0x252, "v_cvt_scalef32_2xpk16_fp6_f32 v_cvt_scalef32_2xpk16_bf6_f32"},
    {Format::kVop3, 0x254, "v_cvt_scalef32_sr_pk32_fp6_f32 v_cvt_scalef32_sr_pk32_bf6_f32"},
    {Format::kVop3, 0x256, "v_cvt_scalef32_pk32_f32_fp6 v_cvt_scalef32_pk32_f32_bf6 v_cvt_scalef32_pk32_fp6_f16"},
    {Format::kVop3, 0x259, "v_cvt_scalef32_pk32_fp6_bf16 v_cvt_scalef32_pk32_bf6_f16"},
    {Format::kVop3, 0x25b, "v_cvt_scalef32_pk32_bf6_bf16 v_cvt_scalef32_sr_pk32_fp6_f16"},
    {Format::kVop3, 0x25d, "v_cvt_scalef32_sr_pk32_fp6_bf16 v_cvt_scalef32_sr_pk32_bf6_f16"},
    {Format::kVop3, 0x25f, "v_cvt_scalef32_sr_pk32_bf6_bf16 v_cvt_scalef32_pk32_f16_fp6"},
    {Format::kVop3, 0x261, "v_cvt_scalef32_pk32_bf16_fp6 v_cvt_scalef32_pk32_f16_bf6"},
    {Format::kVop3, 0x263, "v_cvt_scalef32_pk32_bf16_bf6"},
    {Format::kVop3, 0x269, "v_cvt_scalef32_pk_bf16_fp8 v_cvt_scalef32_pk_bf16_bf8"},
    {Format::kVop3, 0x2a6, "v_cvt_sr_f16_f32 v_cvt_sr_bf16_f32"},

    {Format::kVop3, 0x265, "v_ashr_pk_i8_i32 v_ashr_pk_u8_i32 v_cvt_pk_f16_f32 v_cvt_pk_bf16_f32"},
    {Format::kVop3, 0x2a8, "v_minimum3_f32 v_maximum3_f32"},

    {Format::kVop3, 0x2a2, "v_cvt_pk_fp8_f32=v_cvt_pk_fp8_f32_ocp v_cvt_pk_bf8_f32=v_cvt_pk_bf8_f32_ocp"},
    {Format::kVop3, 0x2a4, "v_cvt_sr_fp8_f32=v_cvt_sr_fp8_f32_ocp v_cvt_sr_bf8_f32=v_cvt_sr_bf8_f32_ocp"},

    {Format::kVop3p, 0x1a, "v_dot2_f32_bf16"},
    {Format::kVop3p, 0x1b, "v_pk_minimum3_f16 v_pk_maximum3_f16"},

    {Format::kMai, 0x2c, "v_mfma_ld_scale_b32 v_mfma_f32_16x16x128_f8f6f4 v_mfma_f32_32x32x64_f8f6f4"},
    // These are of 16 bytes: the opcode of the second half, beyond those of 8.
    {Format::kMai, 0x12d, "v_mfma_scale_f32_16x16x128_f8f6f4 v_mfma_scale_f32_32x32x64_f8f6f4"},
    {Format::kMai, 0x35, "v_mfma_f32_16x16x32_bf16 v_mfma_i32_16x16x64_i8"},
    {Format::kMai, 0x37, "v_mfma_f32_32x32x16_bf16 v_mfma_i32_32x32x32_i8"},
    {Format::kMai, 0x54, "v_mfma_f32_16x16x32_f16 v_mfma_f32_32x32x16_f16"},
    {Format::kMai, 0x39, "v_smfmac_f32_16x16x64_bf16 v_smfmac_i32_16x16x128_i8 v_smfmac_f32_16x16x128_bf8_bf8"},
    {Format::kMai, 0x3c, "v_smfmac_f32_16x16x128_bf8_fp8 v_smfmac_f32_16x16x128_fp8_bf8"},
    {Format::kMai, 0x43, "v_smfmac_f32_16x16x128_fp8_fp8"},
    {Format::kMai, 0x46, "v_smfmac_f32_32x32x32_bf16 v_smfmac_i32_32x32x64_i8"},
    {Format::kMai, 0x4b, "v_smfmac_f32_32x32x64_bf8_bf8"},
    {Format::kMai, 0x4e, "v_smfmac_f32_32x32x64_bf8_fp8 v_smfmac_f32_32x32x64_fp8_bf8"},
    {Format::kMai, 0x53, "v_smfmac_f32_32x32x64_fp8_fp8"},
    {Format::kMai, 0x5a, "v_smfmac_f32_16x16x64_f16 v_smfmac_f32_32x32x32_f16"},
    {Format::kMai, 0x70, "v_mfma_f32_16x16x32_bf8_bf8=v_mfma_f32_16x16x32_bf8_bf8_ocp"},
    {Format::kMai, 0x71, "v_mfma_f32_16x16x32_bf8_fp8=v_mfma_f32_16x16x32_bf8_fp8_ocp"},
    {Format::kMai, 0x72, "v_mfma_f32_16x16x32_fp8_bf8=v_mfma_f32_16x16x32_fp8_bf8_ocp"},
    {Format::kMai, 0x73, "v_mfma_f32_16x16x32_fp8_fp8=v_mfma_f32_16x16x32_fp8_fp8_ocp"},
    {Format::kMai, 0x74, "v_mfma_f32_32x32x16_bf8_bf8=v_mfma_f32_32x32x16_bf8_bf8_ocp"},
    {Format::kMai, 0x75, "v_mfma_f32_32x32x16_bf8_fp8=v_mfma_f32_32x32x16_bf8_fp8_ocp"},
    {Format::kMai, 0x76, "v_mfma_f32_32x32x16_fp8_bf8=v_mfma_f32_32x32x16_fp8_bf8_ocp"},
    {Format::kMai, 0x77, "v_mfma_f32_32x32x16_fp8_fp8=v_mfma_f32_32x32x16_fp8_fp8_ocp"},
    {Format::kMai, 0x78, "v_smfmac_f32_16x16x64_bf8_bf8=v_smfmac_f32_16x16x64_bf8_bf8_ocp"},
    {Format::kMai, 0x79, "v_smfmac_f32_16x16x64_bf8_fp8=v_smfmac_f32_16x16x64_bf8_fp8_ocp"},
    {Format::kMai, 0x7a, "v_smfmac_f32_16x16x64_fp8_bf8=v_smfmac_f32_16x16x64_fp8_bf8_ocp"},
    {Format::kMai, 0x7b, "v_smfmac_f32_16x16x64_fp8_fp8=v_smfmac_f32_16x16x64_fp8_fp8_ocp"},
    {Format::kMai, 0x7c, "v_smfmac_f32_32x32x32_bf8_bf8=v_smfmac_f32_32x32x32_bf8_bf8_ocp"},
    {Format::kMai, 0x7d, "v_smfmac_f32_32x32x32_bf8_fp8=v_smfmac_f32_32x32x32_bf8_fp8_ocp"},
    {Format::kMai, 0x7e, "v_smfmac_f32_32x32x32_fp8_bf8=v_smfmac_f32_32x32x32_fp8_bf8_ocp"},
    {Format::kMai, 0x7f, "v_smfmac_f32_32x32x32_fp8_fp8=v_smfmac_f32_32x32x32_fp8_fp8_ocp"},

    {Format::kDs, 0xe0, "ds_read_b64_tr_b4 ds_read_b96_tr_b6 ds_read_b64_tr_b8 ds_read_b64_tr_b16"},

    {Format::kMubuf, 0x52, "buffer_atomic_pk_add_bf16"},

    {Format::kGlobal, 0x7d, "global_load_lds_dwordx4 global_load_lds_dwordx3"},
};
// clang-format on

}  // namespace

std::span<const OpcodeRun> gfx950() { return kRuns; }

}  // namespace fmha::emu::gfx9
