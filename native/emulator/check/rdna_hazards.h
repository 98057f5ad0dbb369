// SPDX-License-Identifier: MIT OR Apache-2.0
// Hazards of RDNA that its hardware leaves to software. Where CDNA counts wait states, RDNA counts VALU
// instructions, or wants s_waitcnt_depctr.
//
// Checked are the rules of LLVM's GCNHazardRecognizer.cpp (19) that concern waves of 32 and what this device
// runs:
// - fixVALUTransUseHazard, gfx11.0 only: v_rcp and the like write a VGPR, a VALU instruction reads it with at
//   most five VALU instructions between them, of which at most one is transcendental. An LDS or vector memory
//   instruction between them ends it, and so does s_waitcnt_depctr depctr_va_vdst(0).
// - fixVcmpxPermlaneHazards, from gfx11 on: v_cmpx writes EXEC, and the next VALU instruction, v_nop aside,
// is v_permlane.
// - fixWMMAHazards is one of hazards.h, beside the matrix instructions of CDNA.
// Not checked: fixVALUPartialForwardingHazard and fixVALUMaskWriteHazard (waves of 64), fixLdsDirect (the
// device has no LDS_DIRECT), fixVcmpxExecWARHazard and others of gfx10. s_delay_alu is only a hint.
// - fixVALUReadSGPRHazard of LLVM 20: scalar_hazards.h.
#pragma once

#include <cstdint>

#include "check/facts.h"
#include "check/scalar_hazards.h"
#include "core/wave.h"

namespace fmha::emu {

class RdnaHazards {
 public:
  // `checks`: of enum Check.
  void reset(const TextFacts* facts, const Inst* first, Arch arch, uint32_t checks);
  // `inst` comes next, and then counts as issued. False after a finding.
  bool step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);

 private:
  struct Transcendental {
    const Inst* inst = nullptr;  // null: none, or its result is there
    int64_t valu = 0;            // VALU instructions issued before it
  };

  bool transcendental(Wave& w, const Inst& inst, const FactsDetail& d) const;
  void record(const Inst& inst, const Facts& f, const FactsDetail& d);
  bool finding(Wave& w, const Inst& inst, const Inst& producer, const char* what) const;

  ScalarHazards scalars_;
  const TextFacts* facts_ = nullptr;
  const Inst* first_ = nullptr;
  Arch arch_{};
  bool late_transcendentals_ = false;  // does this arch have the first rule?
  bool late_permlane_ = false;         // and the second?
  bool late_scalars_ = false;          // and those of scalar_hazards.h?
  int64_t valu_ = 0;                   // VALU instructions issued
  Transcendental recent_[2];           // the last two, the last one first
  const Inst* cmpx_ = nullptr;         // the last VALU instruction but v_nop, if it is v_cmpx
};

}  // namespace fmha::emu
