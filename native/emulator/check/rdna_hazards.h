// SPDX-License-Identifier: MIT OR Apache-2.0
// Hazards of RDNA that its hardware leaves to software. Where CDNA counts wait states, RDNA counts VALU
// instructions, or wants s_waitcnt_depctr.
//
// These rules of LLVM's GCNHazardRecognizer.cpp (19) concern programs that this device runs, and are checked:
// - fixVALUTransUseHazard, gfx11.0 only: v_rcp and the like write a VGPR, a VALU instruction reads it with at
//   most five VALU instructions between them, of which at most one is transcendental. An LDS or vector memory
//   instruction between them ends it, and so does s_waitcnt_depctr depctr_va_vdst(0).
// - mad64_hazard.h, gfx11.0 only: the result of v_mad_u64_u32 or v_mad_i64_i32 overlaps a source. LLVM's
//   register allocator sees to it.
// - fixVcmpxPermlaneHazards, from gfx11 on: v_cmpx writes EXEC, and v_permlane is the next VALU instruction,
//   v_nop aside.
// - fixVALUPartialForwardingHazard (gfx11, waves of 64): partial_forwarding.h.
// - fixVALUMaskWriteHazard (gfx11, waves of 64) and fixVALUReadSGPRHazard (gfx12; LLVM 20): scalar_hazards.h.
// - checkFPAtomicToDenormModeHazard, gfx10: s_denorm_mode comes less than three wait states behind a float
//   atomic to memory. A VALU instruction between them, or a wait for memory, ends it.
// - Not of the recogniser (SIInsertWaitcnts does it): from gfx11 on s_sendmsg of MSG_DEALLOC_VGPRS comes
//   directly behind an s_nop.
// - fixWMMAHazards is one of hazards.h, beside the matrix instructions of CDNA.
// The others cannot happen here, and are not checked:
// - gfx10.1 has them and gfx10.3 does not: fixVMEMtoScalarWriteHazards, fixSMEMtoVectorWriteHazards,
//   fixVcmpxExecWARHazard, fixLdsBranchVmemWARHazard, checkNSAtoVMEMHazard, fixVcmpxPermlaneHazards before
//   gfx11;
// - this device lacks the instructions: fixLdsDirectVALUHazard, fixLdsDirectVMEMHazard (LDS_DIRECT),
//   fixRequiredExportPriority (exports);
// - the rest are gfx1250's.
// s_delay_alu is only a hint.
#pragma once

#include <cstdint>

#include "check/mad64_hazard.h"
#include "check/partial_forwarding.h"
#include "check/scalar_hazards.h"
#include "code/facts.h"
#include "core/wave.h"

namespace fmha::emu {

class RdnaHazards {
 public:
  // `checks`: of enum Check.
  void reset(const TextFacts* facts, const Inst* first, Arch arch, int wave_size, uint32_t checks);
  // `inst` comes next, and then counts as issued. False after a finding.
  bool step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);

 private:
  struct Transcendental {
    const Inst* inst = nullptr;  // null: none, or its result is there
    int64_t valu = 0;            // VALU instructions issued before it
  };

  bool products(Wave& w, const Inst& inst, const FactsDetail& d);
  bool transcendental(Wave& w, const Inst& inst, const FactsDetail& d) const;
  bool scalars(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);
  bool neighbours(Wave& w, const Inst& inst, const Facts& f);
  void record(const Inst& inst, const Facts& f, const FactsDetail& d);
  void forget_recent() {  // apart: a copy of what has just been written would wait for it
    recent_[0] = {};
    recent_[1] = {};
  }
  bool finding(Wave& w, const Inst& inst, const Inst& producer, const char* what) const;

  ScalarHazards scalars_;
  PartialForwarding forwarding_;
  Mad64Hazard mad64_;
  const TextFacts* facts_ = nullptr;
  const Inst* first_ = nullptr;
  Arch arch_{};
  bool late_transcendentals_ = false;   // does this arch have the first rule?
  bool late_permlane_ = false;          // and the second?
  bool of_waves_of_64_ = false;         // and those of gfx11's waves of 64?
  bool early_mad64_ = false;            // and that of v_mad_u64_u32?
  bool late_scalars_ = false;           // and gfx12's of scalar_hazards.h?
  bool late_denorms_ = false;           // and that of s_denorm_mode?
  const Inst* last_ = nullptr;          // the instruction before
  const Inst* float_atomic_ = nullptr;  // the last one, if nothing has ended it
  int since_atomic_ = 0;                // wait states
  int64_t valu_ = 0;                    // VALU instructions issued
  Transcendental recent_[2];            // the last two, the last one first
  const Inst* cmpx_ = nullptr;          // the last VALU instruction but v_nop, if it is v_cmpx
};

}  // namespace fmha::emu
