// SPDX-License-Identifier: MIT OR Apache-2.0
// The parts of the instruction table. Every isa/*.cc is compiled once a level of host vector instructions,
// with FMHA_EMU_LEVEL as v2, v3 or v4; all its code lives in that namespace, so that the linker never merges
// code of two levels.
#pragma once

#include <span>

#include "core/inst.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

std::span<const Row> scalar_rows();  // SOP1, SOP2, SOPC, SOPK, SOPP
std::span<const Row> smem_rows();
std::span<const Row> smem_write_rows();
std::span<const Row> vop1_rows();
std::span<const Row> vop2_rows();
std::span<const Row> vopc_rows();
std::span<const Row> vop3_rows();    // those that have no shorter form
std::span<const Row> scaled_rows();  // gfx950's conversions under a scale
std::span<const Row> vop3p_rows();
std::span<const Row> rdna_rows();       // VOP1, VOP2 and VOP3 that only RDNA has
std::span<const Row> rdna_move_rows();  // its moves between lanes and by M0
std::span<const Row> vopd_rows();
std::span<const Row> mai_rows();
std::span<const Row> sparse_rows();        // SMFMAC
std::span<const Row> small_matrix_rows();  // MFMA of 8, 6 and 4 bits
std::span<const Row> wmma_rows();
std::span<const Row> ds_rows();
std::span<const Row> ds_atomic_rows();
std::span<const Row> mubuf_rows();
std::span<const Row> format_rows();  // MUBUF and MTBUF that convert
std::span<const Row> flat_rows();    // FLAT, GLOBAL, SCRATCH

// A row of a memory instruction that moves `bytes` of a lane to or from each place.
constexpr Row sized(Row row, uint32_t bytes) {
  row.bytes = static_cast<uint8_t>(bytes);
  return row;
}
// A row of a matrix instruction.
constexpr Row shaped(Row row, MatrixShape matrix) {
  row.matrix = matrix;
  return row;
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
