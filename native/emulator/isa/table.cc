// SPDX-License-Identifier: MIT OR Apache-2.0
// The parts of this level's instruction table, for isa/select.cc to put together.
#include "isa/table.h"

#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

TableParts table_parts() {
  TableParts parts = {scalar_rows(),    smem_rows(),   smem_write_rows(), vop1_rows(),  vop2_rows(),
                      vopc_rows(),      vop3_rows(),   scaled_rows(),     vop3p_rows(), rdna_rows(),
                      rdna_move_rows(), vopd_rows(),   wmma_rows(),       ds_rows(),    ds_atomic_rows(),
                      mubuf_rows(),     format_rows(), flat_rows()};
#if FMHA_EMU_WAVE == 64
  parts.push_back(mai_rows());
  parts.push_back(sparse_rows());
  parts.push_back(small_matrix_rows());
#endif
  return parts;
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
