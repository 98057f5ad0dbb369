// SPDX-License-Identifier: MIT OR Apache-2.0
#include "launch/gpr_index.h"

#include "base/errors.h"

namespace fmha::emu {
namespace {

constexpr uint32_t kDestination = 1u << 3;  // of M0[15:12]; bits 0..2 are the sources
constexpr int kLast = 2;

bool is_vector_alu(const Inst& inst) {
  return inst.row && inst.row->format >= Format::kVop1 && inst.row->format <= Format::kMai;
}

// Tells whether the ISA guides leave open what moves: matrices and AccVGPRs, v_swap, DPP.
bool cannot_move(const Inst& inst) {
  return inst.row->format == Format::kMai || inst.row->is(kWritesSrc0 | kAccDst | kAccSrc) ||
         is_dpp(inst.encoding);
}

// The bit of M0[15:12] that moves source n: the guides' table of special cases. v_madmk, whose second source
// is the constant, hands its other register to the adder as the third.
int bit_of(const Inst& inst, int n) { return n == 1 && inst.row->is(kLiteralMiddle) ? kLast : n; }

bool move(Wave& w, const Inst& inst, Operand* o) {
  constexpr uint32_t kVgprs = 256;
  if (o->kind != OperandKind::kVgpr) return true;
  const uint32_t to = o->index + (w.sgpr[kM0] & 0xff);
  if (to + o->dwords > kVgprs) {
    w.fault(inst, hipErrorLaunchFailure, "VGPR indexing makes v%u of v%u, beyond v255", to, o->index);
    return false;
  }
  o->index = static_cast<uint16_t>(to);
  return true;
}

}  // namespace

bool move_registers(Wave& w, const Inst& inst, Inst* moved) {
  *moved = inst;
  const uint32_t which = w.sgpr[kM0] >> 12 & 15;
  if (!which || !is_vector_alu(inst)) return true;
  if (cannot_move(inst)) {
    w.fault(inst, hipErrorLaunchFailure, "the software device does not index the VGPRs of this instruction");
    return false;
  }
  for (int n = 0; n <= kLast; ++n) {
    if (which >> bit_of(inst, n) & 1 && !move(w, inst, &moved->src[n])) return false;
  }
  // A value that an instruction keeps or accumulates in its destination (v_mac, SDWA) moves with it.
  return !(which & kDestination) || move(w, inst, &moved->dst);
}

}  // namespace fmha::emu
