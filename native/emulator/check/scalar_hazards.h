// SPDX-License-Identifier: MIT OR Apache-2.0
// The hazard of scalar registers on gfx12: a VALU instruction reads one, the scalar or the vector unit
// rewrites it, and who reads it next may get the old value. Software must wait in between, with s_wait_alu.
//
// The hardware remembers, for the rest of the wave, which pairs of registers VALU instructions have read. A
// write of such a pair is late:
// - by the scalar unit: for VALU and scalar instructions. s_wait_alu depctr_sa_sdst(0) ends that, and so do
//   10 other scalar instructions before a scalar one that reads it, 11 before a VALU one;
// - by the vector unit: for VALU instructions. Scalar ones wait by themselves, and are a wait for all that
//   the vector unit has written, VCC aside. Else depctr_va_sdst(0) ends it, for VCC depctr_va_vcc(0).
// A later write of the vector unit ends one of the scalar unit, and of VCC the other way round too. A scalar
// load and a buffer instruction end both. EXEC and M0 are none of it.
//
// gfx11 has the same of registers that a VALU instruction reads as a mask of 64 lanes (v_cndmask,
// v_add_co_ci, v_div_fmas). It forgets them as soon as a VALU instruction reads another scalar register or a
// literal, and at depctr_sa_sdst(0); scalar instructions and loads end nothing, and those that read what the
// vector unit has written must wait too. LLVM looks at one function there, so that here a jump by register
// ends it.
//
// Sources: LLVM. GCNHazardRecognizer.cpp (20, fixVALUReadSGPRHazard) mends writes of the scalar unit, and has
// the 10 and 11. For gfx11, 19 has fixVALUMaskWriteHazard.
// AMDGPUWaitSGPRHazards.cpp (from 21 on) mends those of the vector unit too, has the loads,
// and counts nothing. A finding is what all of them mend, which know of that write: so what any of them
// compiles has none. In two things LLVM 21 asks for more than 20 does, and this device does not: a branch on
// VCC, and a return address that s_swappc writes. It does not know the pass's ds_nop either, which is off by
// default.
//
// Writes of the vector unit are a check of their own, hazards-vector-scalar, which is off by default:
// programs of clang 20 have them. In our kernels for gfx12 the build mends them
// (native/tools/compile/scalar_waits.py).
#pragma once

#include <cstdint>

#include "code/facts.h"
#include "core/wave.h"

namespace fmha::emu {

class ScalarHazards {
 public:
  // The reads of VALU instructions that make a register late.
  enum class Of { kAll, kMasks };
  struct Finding {
    const Inst* writer = nullptr;  // null: none
    int scalar = 0;                // the register
    const char* mend = "";
  };
  // `by_vector`: are writes of the vector unit checked too?
  explicit ScalarHazards(Of of = Of::kAll, bool by_vector = false) : of_(of), by_vector_(by_vector) {}
  // `inst` comes next, and then counts as issued.
  Finding step(const Inst& inst, const Facts& f, const FactsDetail& d);

 private:
  static constexpr int kRegisters = kM0;  // s0 to VCC and the trap handler's

  // The last write of a register, if it is late.
  struct Late {
    const Inst* inst = nullptr;
    int64_t scalars = 0;  // scalar instructions issued before it, and itself
  };

  bool seen(int s) const { return seen_ >> s / 2 & 1; }
  void wait(uint32_t fields);
  void forget_vector(bool vcc);
  Finding read(bool scalar, int s);
  void see(const Inst& inst, uint64_t pairs);
  void write(const Inst& inst, bool scalar, int s);

  Of of_;
  bool by_vector_;
  bool late_ = false;    // may any register be late?
  uint64_t seen_ = 0;    // pairs of registers that a VALU instruction has read: a bit for each
  int64_t scalars_ = 0;  // scalar instructions issued
  Late by_scalar_unit_[kRegisters], by_vector_unit_[kRegisters];
};

}  // namespace fmha::emu
