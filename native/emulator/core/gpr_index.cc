// SPDX-License-Identifier: MIT OR Apache-2.0
#include "core/gpr_index.h"

namespace fmha::emu {
namespace {

constexpr int kLaunchFailure = 719;         // hipErrorLaunchFailure
constexpr uint32_t kDestination = 1u << 3;  // of M0[15:12]; bits 0..2 are the sources

bool is_vector_alu(const Inst& inst) {
  return inst.row && inst.row->format >= Format::kVop1 && inst.row->format <= Format::kMai;
}

// Whose registers are no plain sources and destinations of lanes.
bool cannot_move(const Inst& inst) {
  if (inst.row->format == Format::kMai || inst.encoding > Encoding::kVop3) return true;
  // The ISA guides' table of special cases: the one vector register of these moves like any other.
  if (inst.row->is(kReadLane | kWriteLane)) return false;
  return inst.row->is(kReadsDst | kScalarDst);
}

bool move(Wave& w, const Inst& inst, Operand* o) {
  constexpr uint32_t kVgprs = 256;
  if (o->kind != OperandKind::kVgpr) return true;
  const uint32_t to = o->index + (w.sgpr[kM0] & 0xff);
  if (to + o->dwords > kVgprs) {
    w.fault(inst, kLaunchFailure, "VGPR indexing makes v%u of v%u, beyond v255", to, o->index);
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
    w.fault(inst, kLaunchFailure, "the software device does not index the VGPRs of this instruction");
    return false;
  }
  for (int n = 0; n < 3; ++n) {
    if (which >> n & 1 && !move(w, inst, &moved->src[n])) return false;
  }
  return !(which & kDestination) || move(w, inst, &moved->dst);
}

}  // namespace fmha::emu
