// SPDX-License-Identifier: MIT OR Apache-2.0
// VOPD: two operations of the vector ALU in one instruction. Both read before either writes: where Y reads
// what X writes, the decoder has pointed it at a copy.
#include <cstring>

#include "core/wave.h"
#include "isa/rows.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

[[maybe_unused]] void v_dual(Wave& w, const Inst& inst) {
  const Inst &x = inst.dual[0], &y = inst.dual[1];
  if (inst.op_sel) std::memcpy(w.vgpr[kVopdCopy], w.vgpr[x.dst.index], sizeof w.vgpr[0]);
  x.exec(w, x);
  y.exec(w, y);
}

#if FMHA_EMU_WAVE == 64
// The table has it, so that the refusal has a name.
void no_dual(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorNoBinaryForGpu,
          "a pair of operations (VOPD) exists in waves of 32 lanes only; this kernel's have 64");
}
constexpr RowFlags kDualFlags = kRefused;
constexpr Exec kDual = no_dual;
#else
constexpr RowFlags kDualFlags = 0;
constexpr Exec kDual = v_dual;
#endif

constexpr Row kRows[] = {{"v_dual", Type::kNone, {Type::kNone, Type::kNone, Type::kNone}, kDualFlags, kDual}};

}  // namespace

std::span<const Row> vopd_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
