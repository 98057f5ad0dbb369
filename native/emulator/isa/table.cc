// SPDX-License-Identifier: MIT OR Apache-2.0
// The parts of this level's instruction table, for isa/select.cc to put together.
#include "isa/table.h"

#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

void table_parts(std::span<const Row>* out) {
  *out++ = scalar_rows();
  *out++ = smem_rows();
  *out++ = smem_write_rows();
  *out++ = vop1_rows();
  *out++ = vop2_rows();
  *out++ = vopc_rows();
  *out++ = vop3_rows();
  *out++ = vop3p_rows();
  *out++ = rdna_rows();
  *out++ = rdna_move_rows();
  *out++ = mai_rows();
  *out++ = sparse_rows();
  *out++ = wmma_rows();
  *out++ = ds_rows();
  *out++ = ds_atomic_rows();
  *out++ = mubuf_rows();
  *out++ = format_rows();
  *out++ = flat_rows();
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
