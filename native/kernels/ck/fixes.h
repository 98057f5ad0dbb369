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

// For head dims of 256 the pipeline `qr` prescribes an order of LDS reads and MFMAs. clang 19 follows it
// across barriers: LDS accesses of one step end up on the other side of its s_barrier, and waves race.
// Without it their order is the source's, for as many registers (fp16: two more). The headers that the
// pipeline includes come first, so that the macro changes only the pipeline.
#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ck_tile/ops/fmha/block/block_dropout.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_default_policy.hpp"
#include "ck_tile/ops/reduce/block/block_reduce.hpp"
#define __builtin_amdgcn_sched_group_barrier(kinds, count, group) ((void)0)
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs.hpp"
#undef __builtin_amdgcn_sched_group_barrier
