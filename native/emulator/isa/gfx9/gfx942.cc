// SPDX-License-Identifier: MIT OR Apache-2.0
// Opcodes that gfx942 does not share with gfx90a: its names of the matrix instructions, sparse matrices,
// which gfx950 has too; and its xf32 and fp8, which are FNUZ: what gfx950 encodes the same way is OCP.
#include "isa/opcodes.h"

namespace fmha::emu::gfx9 {
namespace {

// clang-format off: a line is a run of opcodes
constexpr OpcodeRun kShared[] = {
    {Format::kVop2, 0x17, "v_fmamk_f32 v_fmaak_f32"},
    {Format::kVop2, 0x37, "v_dot2c_f32_f16"},

    {Format::kVop1, 0x38, "v_mov_b64"},

    {Format::kVop3, 0x208, "v_lshl_add_u64"},

    {Format::kVop3p, 0x23, "v_dot2_f32_f16"},

    {Format::kMai, 0x40, "v_mfma_f32_32x32x1_2b_f32"},
    {Format::kMai, 0x41, "v_mfma_f32_16x16x1_4b_f32 v_mfma_f32_4x4x1_16b_f32"},
    {Format::kMai, 0x44, "v_mfma_f32_32x32x2_f32 v_mfma_f32_16x16x4_f32"},
    {Format::kMai, 0x48, "v_mfma_f32_32x32x4_2b_f16 v_mfma_f32_16x16x4_4b_f16 v_mfma_f32_4x4x4_16b_f16"},
    {Format::kMai, 0x4c, "v_mfma_f32_32x32x8_f16 v_mfma_f32_16x16x16_f16"},
    {Format::kMai, 0x50, "v_mfma_i32_32x32x4_2b_i8 v_mfma_i32_16x16x4_4b_i8 v_mfma_i32_4x4x4_16b_i8"},
    {Format::kMai, 0x56, "v_mfma_i32_32x32x16_i8 v_mfma_i32_16x16x32_i8"},
    {Format::kMai, 0x5d, "v_mfma_f32_32x32x4_2b_bf16 v_mfma_f32_16x16x4_4b_bf16 v_mfma_f32_4x4x4_16b_bf16"},
    {Format::kMai, 0x60, "v_mfma_f32_32x32x8_bf16 v_mfma_f32_16x16x16_bf16 v_smfmac_f32_16x16x32_f16"},
    {Format::kMai, 0x64, "v_smfmac_f32_32x32x16_f16"},
    {Format::kMai, 0x66, "v_smfmac_f32_16x16x32_bf16"},
    {Format::kMai, 0x68, "v_smfmac_f32_32x32x16_bf16"},
    {Format::kMai, 0x6a, "v_smfmac_i32_16x16x64_i8"},
    {Format::kMai, 0x6c, "v_smfmac_i32_32x32x32_i8"},
    {Format::kMai, 0x6e, "v_mfma_f64_16x16x4_f64 v_mfma_f64_4x4x4_4b_f64"},

    {Format::kDs, 0x17, "ds_pk_add_f16 ds_pk_add_bf16"},
    {Format::kDs, 0xb7, "ds_pk_add_rtn_f16 ds_pk_add_rtn_bf16"},

    {Format::kMubuf, 0x29, "buffer_inv"},

    {Format::kFlat, 0x4d, "flat_atomic_add_f32 flat_atomic_pk_add_f16"},
    {Format::kFlat, 0x52, "flat_atomic_pk_add_bf16"},

    {Format::kGlobal, 0x26, "global_load_lds_ubyte global_load_lds_sbyte global_load_lds_ushort"},
    {Format::kGlobal, 0x29, "global_load_lds_sshort global_load_lds_dword"},
    {Format::kGlobal, 0x52, "global_atomic_pk_add_bf16"},

    {Format::kScratch, 0x26, "scratch_load_lds_ubyte scratch_load_lds_sbyte scratch_load_lds_ushort"},
    {Format::kScratch, 0x29, "scratch_load_lds_sshort scratch_load_lds_dword"},
};

constexpr OpcodeRun kOwn[] = {
    {Format::kVop1, 0x54, "v_cvt_f32_fp8 v_cvt_f32_bf8 v_cvt_pk_f32_fp8 v_cvt_pk_f32_bf8"},

    {Format::kVop3, 0x2a2, "v_cvt_pk_fp8_f32 v_cvt_pk_bf8_f32 v_cvt_sr_fp8_f32 v_cvt_sr_bf8_f32"},

    {Format::kMai, 0x3e, "v_mfma_f32_16x16x8_xf32 v_mfma_f32_32x32x4_xf32"},
    {Format::kMai, 0x70, "v_mfma_f32_16x16x32_bf8_bf8"},
    {Format::kMai, 0x71, "v_mfma_f32_16x16x32_bf8_fp8 v_mfma_f32_16x16x32_fp8_bf8"},
    {Format::kMai, 0x73, "v_mfma_f32_16x16x32_fp8_fp8 v_mfma_f32_32x32x16_bf8_bf8"},
    {Format::kMai, 0x75, "v_mfma_f32_32x32x16_bf8_fp8 v_mfma_f32_32x32x16_fp8_bf8"},
    {Format::kMai, 0x77, "v_mfma_f32_32x32x16_fp8_fp8 v_smfmac_f32_16x16x64_bf8_bf8"},
    {Format::kMai, 0x79, "v_smfmac_f32_16x16x64_bf8_fp8 v_smfmac_f32_16x16x64_fp8_bf8"},
    {Format::kMai, 0x7b, "v_smfmac_f32_16x16x64_fp8_fp8 v_smfmac_f32_32x32x32_bf8_bf8"},
    {Format::kMai, 0x7d, "v_smfmac_f32_32x32x32_bf8_fp8 v_smfmac_f32_32x32x32_fp8_bf8"},
    {Format::kMai, 0x7f, "v_smfmac_f32_32x32x32_fp8_fp8"},

    {Format::kMubuf, 0x3d, "buffer_store_lds_dword buffer_wbinvl1 buffer_wbinvl1_vol"},
};
// clang-format on

}  // namespace

std::span<const OpcodeRun> cdna3() { return kShared; }
std::span<const OpcodeRun> gfx942() { return kOwn; }

}  // namespace fmha::emu::gfx9
