// SPDX-License-Identifier: MIT OR Apache-2.0
// VGPR indexing: between s_set_gpr_idx_on and s_set_gpr_idx_off, M0[7:0] is added to the numbers of the
// vector registers that the vector ALU reads or writes, for those operands that M0[15:12] names. Such code is
// a few instructions long, and it has a run loop of its own, so that no other code pays for it.
#pragma once

#include "core/wave.h"

namespace fmha::emu {

// `inst` with its registers where M0 moves them to. False after a fault: a register past the last one, or an
// instruction whose registers the manuals do not say how to index.
bool move_registers(Wave& w, const Inst& inst, Inst* moved);

}  // namespace fmha::emu
