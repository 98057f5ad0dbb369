// SPDX-License-Identifier: MIT OR Apache-2.0
// Opcodes that gfx1150 to gfx1153 have beside gfx11's: floats in scalar registers, where gfx12 has them too.
#include "isa/opcodes.h"

namespace fmha::emu::gfx11 {
namespace {

// clang-format off: a line is a run of opcodes
constexpr OpcodeRun kRuns[] = {
    {Format::kSop2, 0x42, "s_min_f32=s_min_num_f32 s_max_f32=s_max_num_f32"},
    {Format::kSop2, 0x4b, "s_min_f16=s_min_num_f16 s_max_f16=s_max_num_f16"},

    {Format::kSopp, 0x13, "s_singleuse_vdst"},
};

constexpr OpcodeRun kScalarFloats[] = {
    {Format::kSop2, 0x40, "s_add_f32 s_sub_f32"},
    {Format::kSop2, 0x44, "s_mul_f32 s_fmaak_f32 s_fmamk_f32 s_fmac_f32 s_cvt_pk_rtz_f16_f32"},
    {Format::kSop2, 0x49, "s_add_f16 s_sub_f16"},
    {Format::kSop2, 0x4d, "s_mul_f16 s_fmac_f16"},

    {Format::kSop1, 0x60, "s_ceil_f32 s_floor_f32 s_trunc_f32 s_rndne_f32 s_cvt_f32_i32"},
    {Format::kSop1, 0x65, "s_cvt_f32_u32 s_cvt_i32_f32 s_cvt_u32_f32 s_cvt_f16_f32 s_cvt_f32_f16"},
    {Format::kSop1, 0x6a, "s_cvt_hi_f32_f16 s_ceil_f16 s_floor_f16 s_trunc_f16 s_rndne_f16"},

    {Format::kSopc, 0x41, "s_cmp_lt_f32 s_cmp_eq_f32 s_cmp_le_f32 s_cmp_gt_f32 s_cmp_lg_f32"},
    {Format::kSopc, 0x46, "s_cmp_ge_f32 s_cmp_o_f32 s_cmp_u_f32 s_cmp_nge_f32 s_cmp_nlg_f32"},
    {Format::kSopc, 0x4b, "s_cmp_ngt_f32 s_cmp_nle_f32 s_cmp_neq_f32 s_cmp_nlt_f32"},
    {Format::kSopc, 0x51, "s_cmp_lt_f16 s_cmp_eq_f16 s_cmp_le_f16 s_cmp_gt_f16 s_cmp_lg_f16"},
    {Format::kSopc, 0x56, "s_cmp_ge_f16 s_cmp_o_f16 s_cmp_u_f16 s_cmp_nge_f16 s_cmp_nlg_f16"},
    {Format::kSopc, 0x5b, "s_cmp_ngt_f16 s_cmp_nle_f16 s_cmp_neq_f16 s_cmp_nlt_f16"},
};
// clang-format on

}  // namespace

std::span<const OpcodeRun> gfx1150() { return kRuns; }
std::span<const OpcodeRun> scalar_floats() { return kScalarFloats; }

}  // namespace fmha::emu::gfx11
