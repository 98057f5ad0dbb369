// SPDX-License-Identifier: MIT OR Apache-2.0
// VOPD: two operations of the vector ALU in one instruction. Both read before either writes: where Y reads
// what X writes, the decoder has pointed it at a copy.
#include <cstring>

#include "isa/lanes.h"
#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

void v_dual(Wave& w, const Inst& inst) {
  const Inst &x = inst.dual[0], &y = inst.dual[1];
  if (inst.op_sel) std::memcpy(w.vgpr[kVopdCopy], w.vgpr[x.dst.index], sizeof w.vgpr[0]);
  x.exec(w, x);
  y.exec(w, y);
}

constexpr Row kRows[] = {{"v_dual", Type::kNone, {Type::kNone, Type::kNone, Type::kNone}, 0, v_dual}};

}  // namespace

std::span<const Row> vopd_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
