// SPDX-License-Identifier: MIT OR Apache-2.0
// Opcodes that gfx90a does not share with gfx942: its names of the matrix instructions, and what gfx942
// dropped.
#include "isa/opcodes.h"

namespace fmha::emu::gfx9 {
namespace {

// clang-format off: a line is a run of opcodes
constexpr OpcodeRun kRuns[] = {
    {Format::kVop2, 0x16, "v_mac_f32 v_madmk_f32 v_madak_f32"},
    {Format::kVop2, 0x37, "v_dot2c_f32_f16=v_dot2c_f32_f16_flush"},

    {Format::kVop3, 0x1c0, "v_mad_legacy_f32 v_mad_f32"},

    {Format::kVop3p, 0x23, "v_dot2_f32_f16=v_dot2_f32_f16_flush"},

    {Format::kMai, 0x40, "v_mfma_f32_32x32x1f32=v_mfma_f32_32x32x1_2b_f32"},
    {Format::kMai, 0x41, "v_mfma_f32_16x16x1f32=v_mfma_f32_16x16x1_4b_f32"},
    {Format::kMai, 0x42, "v_mfma_f32_4x4x1f32=v_mfma_f32_4x4x1_16b_f32"},
    {Format::kMai, 0x44, "v_mfma_f32_32x32x2f32=v_mfma_f32_32x32x2_f32"},
    {Format::kMai, 0x45, "v_mfma_f32_16x16x4f32=v_mfma_f32_16x16x4_f32"},
    {Format::kMai, 0x48, "v_mfma_f32_32x32x4f16 v_mfma_f32_16x16x4f16 v_mfma_f32_4x4x4f16"},
    {Format::kMai, 0x4c, "v_mfma_f32_32x32x8f16 v_mfma_f32_16x16x16f16"},
    {Format::kMai, 0x50, "v_mfma_i32_32x32x4i8=v_mfma_i32_32x32x4_2b_i8"},
    {Format::kMai, 0x51, "v_mfma_i32_16x16x4i8=v_mfma_i32_16x16x4_4b_i8"},
    {Format::kMai, 0x52, "v_mfma_i32_4x4x4i8=v_mfma_i32_4x4x4_16b_i8"},
    {Format::kMai, 0x54, "v_mfma_i32_32x32x8i8 v_mfma_i32_16x16x16i8"},
    {Format::kMai, 0x63, "v_mfma_f32_32x32x4bf16_1k v_mfma_f32_16x16x4bf16_1k v_mfma_f32_4x4x4bf16_1k"},
    {Format::kMai, 0x66, "v_mfma_f32_32x32x8bf16_1k v_mfma_f32_16x16x16bf16_1k v_mfma_f32_32x32x2bf16"},
    {Format::kMai, 0x69, "v_mfma_f32_16x16x2bf16"},
    {Format::kMai, 0x6b, "v_mfma_f32_4x4x2bf16 v_mfma_f32_32x32x4bf16 v_mfma_f32_16x16x8bf16"},
    {Format::kMai, 0x6e, "v_mfma_f64_16x16x4f64 v_mfma_f64_4x4x4f64"},

    {Format::kMubuf, 0x29, "buffer_invl2"},
    {Format::kMubuf, 0x3d, "buffer_store_lds_dword buffer_wbinvl1 buffer_wbinvl1_vol"},
};
// clang-format on

}  // namespace

std::span<const OpcodeRun> gfx90a() { return kRuns; }

}  // namespace fmha::emu::gfx9
