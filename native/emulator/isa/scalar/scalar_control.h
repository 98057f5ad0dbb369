// SPDX-License-Identifier: MIT OR Apache-2.0
// The parts of the scalar table, and bodies in scalar_control.cc that scalar.cc's rows use.
#pragma once

#include <span>

#include "isa/lanes.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

std::span<const Row> scalar_alu_rows();      // scalar.cc: SOP1, SOP2, SOPC
std::span<const Row> scalar_special_rows();  // scalar_special.cc
std::span<const Row> scalar_rdna_rows();     // scalar_rdna.cc
std::span<const Row> scalar_float_rows();    // scalar_float.cc

void s_getpc(Wave& w, const Inst& i);
void s_setpc(Wave& w, const Inst& i);
void s_swappc(Wave& w, const Inst& i);
void s_movrelsd_2(Wave& w, const Inst& i);
void jump_to(Wave& w, const Inst& i, uint64_t pc);
void branch(Wave& w, const Inst& i);
template <int kDwords>
void s_movrels(Wave& w, const Inst& i);
template <int kDwords>
void s_movreld(Wave& w, const Inst& i);

}  // namespace fmha::emu::FMHA_EMU_LEVEL
