// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions of CK that explicit specialisations of ours replace, each declared before CK first uses it. This
// file is included before anything else of CK.
#pragma once

#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 4  // rta_asm, replaced just below
#define CK_TILE_FMHA_FWD_FAST_EXP2 1         // base-2 exponentials: half the instructions of the main loop

#include "ck_tile/core/numeric/bfloat16.hpp"

namespace ck_tile {

// float to bf16 to nearest, ties away from zero: one add an element. CK rounds like that by an asm volatile,
// which stops the scheduler (519 VALU instructions in the d128 loop against 359 here). The add may carry into
// the exponent, as rounding should. It cannot make a NaN finite: the low half of every NaN that reaches it is
// 0 (those of bf16 inputs, and the hardware's own, 0x7fc00000).
template <>
CK_TILE_HOST_DEVICE constexpr uint16_t float_to_bf16_raw<bf16_rounding_mode::rta_asm>(
    float value, constant<bf16_rounding_mode::rta_asm>) {
  return static_cast<uint16_t>((ck_tile::bit_cast<uint32_t>(value) + 0x8000u) >> 16);
}

}  // namespace ck_tile

#include "ck_tile/core/arch/amd_buffer_addressing_builtins.hpp"

namespace ck_tile {

// A load from memory to LDS, whose address comes from M0. The hardware needs one wait state between a scalar
// write of M0 and this load. The compiler inserts it for its own instructions but not for CK's asm: in five
// of twelve kernels it was missing. One s_nop a load costs 32 of some 4000 cycles of a d128 step. The form
// with `pre_nop` has CK's own s_nop.
template <>
CK_TILE_DEVICE void async_buffer_load_dwordxn_v<1, false>(void* smem, int32x4_t rsrc, index_t voffset,
                                                          index_t /*soffset*/, index_t ioffset,
                                                          index_t /*flag*/, bool_constant<false>) {
  asm volatile("s_nop 0\n\tbuffer_load_dword %1, %2, 0 offen offset:%3 lds"
               : "=r"(smem)  // so that what reads smem stays behind the load
               : "v"(voffset), "s"(rsrc), "n"(ioffset)
               : "memory");
}

// The same of 16 bytes a lane, which gfx950 has: without it a kernel in six of its default set was one state
// short.
#if defined(__gfx950__)
template <>
CK_TILE_DEVICE void async_buffer_load_dwordxn_v<4, false>(void* smem, int32x4_t rsrc, index_t voffset,
                                                          index_t /*soffset*/, index_t ioffset,
                                                          index_t /*flag*/, bool_constant<false>) {
  asm volatile("s_nop 0\n\tbuffer_load_dwordx4 %1, %2, 0 offen offset:%3 lds"
               : "=r"(smem)
               : "v"(voffset), "s"(rsrc), "n"(ioffset)
               : "memory");
}
#endif

}  // namespace ck_tile

#include "ck_tile/core/container/thread_buffer.hpp"

namespace ck_tile {

// Stores of 16 bytes. The hardware reads the data of a store of more than 8 bytes late: gfx940 needs two wait
// states before a vector instruction overwrites it. The compiler inserts them for its own stores but not for
// CK's asm.
template <>
CK_TILE_DEVICE void buffer_store<16>::operator()(const thread_buffer<float, 4>& value, int32x4_t rsrc,
                                                 index_t voffset, index_t /*soffset*/, index_t ioffset,
                                                 index_t /*flag*/) {
  asm volatile("buffer_store_dwordx4 %0, %1, %2, 0 offen offset:%3\n\ts_nop 1"
               :
               : "v"(bit_cast<fp32x4_t>(value)), "v"(voffset), "s"(rsrc), "n"(ioffset)
               : "memory");
}

template <>
CK_TILE_DEVICE void buffer_store_if<16>::operator()(const thread_buffer<float, 4>& value, int32x4_t rsrc,
                                                    index_t voffset, index_t /*soffset*/, index_t ioffset,
                                                    index_t flag) {
  const auto exec = __builtin_amdgcn_read_exec();
  asm volatile(
      "v_cmpx_le_u32 exec, 1, %4\n\t"
      "buffer_store_dwordx4 %0, %1, %2, 0 offen offset:%3\n\t"
      "s_mov_b64 exec, %5\n\ts_nop 0"
      :
      : "v"(bit_cast<fp32x4_t>(value)), "v"(voffset), "s"(rsrc), "n"(ioffset), "v"(flag), "s"(exec)
      : "memory");
}

}  // namespace ck_tile

#include "ck_tile/ops/fmha/block/block_position_encoding.hpp"

namespace ck_tile {

// ALiBi is -slope * |column - the row's own column| for every mask and length. CK takes two short cuts that
// change the scores: it computes |.| by a 16-bit instruction, which is wrong from a distance of 65536 on; and
// under a causal mask it adds +slope * column, which shifts each row: the softmax stays, the LSE does not.
template <>
CK_TILE_HOST_DEVICE void Alibi<float, true, 16>::update(float& pixel, index_t row, index_t column) {
  const index_t distance = row + shift_right_down - (column + shift_left_up);
  pixel += slope * __builtin_fabsf(static_cast<float>(distance));
}

template <>
CK_TILE_HOST_DEVICE auto make_alibi_from_lr_mask<float, true, 16>(float slope, index_t /*window_left*/,
                                                                  index_t /*window_right*/, index_t y_total,
                                                                  index_t x_total,
                                                                  GenericAttentionMaskEnum mask) {
  return Alibi<float, true, 16>{slope, y_total, x_total, static_cast<AlibiMode>(mask)};
}

}  // namespace ck_tile

#include "ck_tile/core/tensor/tile_elementwise.hpp"

namespace ck_tile::impl {

// P to fp16, to nearest. CK's asynchronous pipeline packs two by v_cvt_pkrtz_f16_f32, toward zero: O comes
// out too small by half an ulp on average. CK's other way takes three instructions for two. Here the second
// of two is multiplied by a 1 that the compiler cannot see, so that it uses v_fma_mixhi_f16, which rounds
// into the upper half of a register: two instructions (d128: 359 of them in the loop, not 391).
template <std::same_as<fp16_t> Out, typename Tile>
CK_TILE_DEVICE auto cast_tile_pk_fp16_fp32(const Tile& tile) {
  constexpr index_t kSize = Tile::get_thread_buffer_size();
  static_assert(kSize % 2 == 0);
  auto rounded = make_static_distributed_tensor<Out>(Tile::get_tile_distribution());
  float one = 1.0F;
  asm("" : "+s"(one));
  for (index_t i = 0; i < kSize; i += 2) {
    rounded.get_thread_buffer().at(i) = static_cast<Out>(tile.get_thread_buffer()[i]);
    rounded.get_thread_buffer().at(i + 1) =
        static_cast<Out>(__builtin_fmaf(tile.get_thread_buffer()[i + 1], one, 0.0F));
  }
  return rounded;
}

}  // namespace ck_tile::impl

namespace fmha {

// A row's largest score times the scale, R, and what the pipelines do with it. P = exp2(scale * s - R) is one
// FMA, half the instructions of scale * (s - max). The largest P is then not 1, but 2 to the power of what
// R's rounding lost: a factor of all P of the row, which cancels in O and LSE. Two things in CK are wrong:
//
// - When the maximum grows from m_old to m, CK rescales by exp2(scale * m_old - R), an FMA too, which
//   brings in that factor at every step, even if the maximum stays. The longer the row, the more wrong is
//   the weight of its first keys. Right is exp2(R_old - R), with R_old rounded as it was.
// - The factor is at most 2^8 up to a limit. Beyond, P would overflow or vanish, and O would be wrong; there
//   R, and so the row, is NaN. For fp8 it is 2^(1/32): P, scaled to 240 or 448, then still rounds to
//   that, and not to the next number up, which is NaN.
//
// Kernels with a bias, ALiBi or softcap scale first and then subtract: exact, and without limit.
struct ScaledMax {
  float value;
};

template <typename P>
struct RowMax {
  static constexpr float kLimit = sizeof(P) == 1 ? 0x1p20F : 0x1p28F;
  float value;

  CK_TILE_DEVICE constexpr operator float() const { return value; }
  CK_TILE_DEVICE friend ScaledMax operator*(float scale, RowMax max) {
    const float scaled = scale * max.value;
    return {__builtin_fabsf(scaled) < kLimit ? scaled : __builtin_nanf("")};
  }
};

// exp2(scaled - max): as a number, P; as a factor, that of a rescaling.
struct Power {
  float scaled, max;

  CK_TILE_DEVICE operator float() const { return ck_tile::exp2(scaled - max); }
  CK_TILE_DEVICE float factor() const {
#pragma clang fp contract(off)
    return ck_tile::exp2(scaled - max);
  }
  CK_TILE_DEVICE friend float operator*(Power power, float l) { return power.factor() * l; }
  CK_TILE_DEVICE friend void operator*=(float& o, Power power) { o *= power.factor(); }
};

struct Exponent {
  float scaled, max;
  CK_TILE_DEVICE friend Power exp2(Exponent x) { return {x.scaled, x.max}; }
};

CK_TILE_DEVICE Exponent operator-(float scaled, ScaledMax max) { return {scaled, max.value}; }

}  // namespace fmha

// The pipelines, with macros for what no specialisation reaches. Their own includes come first, so that the
// macros change only the pipelines.
//
// For head dims of 256 the pipeline `qr` prescribes an order of LDS reads and MFMAs. clang 19 follows it
// across barriers: LDS accesses of one step end up on the other side of its s_barrier, and waves race.
// Without it their order is the source's, for as many registers (fp16: two more).
#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ck_tile/ops/fmha/block/block_dropout.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_async_default_policy.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_default_policy.hpp"
#include "ck_tile/ops/reduce/block/block_reduce.hpp"
#define get_validated_m(max) \
  ::fmha::RowMax<PDataType> { get_validated_m(max) }
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_async.hpp"
#define __builtin_amdgcn_sched_group_barrier(kinds, count, group) ((void)0)
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs.hpp"
#undef __builtin_amdgcn_sched_group_barrier
#undef get_validated_m
