// SPDX-License-Identifier: MIT OR Apache-2.0
// Hazards of RDNA that its hardware leaves to software. Where CDNA counts wait states, RDNA counts VALU
// instructions, or wants s_waitcnt_depctr.
//
// Checked are the rules of LLVM's GCNHazardRecognizer.cpp (19) that concern what this device runs:
// - fixVALUTransUseHazard, gfx11.0 only: v_rcp and the like write a VGPR, a VALU instruction reads it with at
//   most five VALU instructions between them, of which at most one is transcendental. An LDS or vector memory
//   instruction between them ends it, and so does s_waitcnt_depctr depctr_va_vdst(0).
// - fixVcmpxPermlaneHazards, from gfx11 on: v_cmpx writes EXEC, and the next VALU instruction, v_nop aside,
// is v_permlane.
// - fixVALUPartialForwardingHazard, gfx11, waves of 64: a VALU instruction writes one VGPR, a scalar one
// EXEC, a VALU instruction another VGPR, and the next reads both, with at most two VALU instructions between
// the first two writes of VGPRs and at most four before the read. What ends the first rule ends this.
// - fixVALUMaskWriteHazard, the same waves: a VALU instruction reads SGPRs as a mask of lanes, a scalar one
// writes them, a scalar one reads them, without depctr_sa_sdst(0) behind the write. A VALU instruction that
// reads other SGPRs or a literal before the write ends it. LLVM wants the wait behind the write whether or
// not a read follows. It looks at one function: here a jump by register ends this.
// - fixWMMAHazards is one of hazards.h, beside the matrix instructions of CDNA.
// Not checked: fixLdsDirect (the device has no LDS_DIRECT), fixVcmpxExecWARHazard and others of gfx10. Nor
// AMDGPUWaitSGPRHazards.cpp of later versions (gfx12: a VALU instruction read an SGPR, a scalar one rewrites
// it, the next reads it): clang 20, which compiles our kernels of gfx12 for its sake, inserts s_wait_alu
// there, but this device asks for none, so that programs of clang 19 run. s_delay_alu is only a hint.
#pragma once

#include <cstdint>

#include "check/facts.h"
#include "core/wave.h"

namespace fmha::emu {

class RdnaHazards {
 public:
  void reset(const TextFacts* facts, const Inst* first, Arch arch, int wave_size);
  // `inst` comes next, and then counts as issued. False after a finding.
  bool step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);

 private:
  struct Transcendental {
    const Inst* inst = nullptr;  // null: none, or its result is there
    int64_t valu = 0;            // VALU instructions issued before it
  };

  // A VALU instruction, or one that writes EXEC.
  struct Step {
    const Inst* inst = nullptr;  // null: there is none
    bool is_valu = false;
  };
  static constexpr int kMostSteps = 16;

  bool scalar(Wave& w, const Inst& inst, const FactsDetail& d);
  bool forwarding(Wave& w, const Inst& inst) const;
  void drained();
  void remember(const Inst& inst, bool is_valu);
  void remember_mask(const Inst& inst, const FactsDetail& d);
  const FactsDetail& detail_of(const Inst& inst) const {
    return facts_->detail(static_cast<size_t>(&inst - first_));
  }
  bool transcendental(Wave& w, const Inst& inst, const FactsDetail& d) const;
  void record(const Inst& inst, const Facts& f, const FactsDetail& d);
  bool finding(Wave& w, const Inst& inst, const Inst& producer, const char* what) const;

  const TextFacts* facts_ = nullptr;
  const Inst* first_ = nullptr;
  Arch arch_{};
  bool late_transcendentals_ = false;  // does this arch have the first rule?
  bool late_permlane_ = false;         // and the second?
  int64_t valu_ = 0;                   // VALU instructions issued
  Transcendental recent_[2];           // the last two, the last one first
  bool wide_ = false;                  // has it those of waves of 64?
  Step steps_[kMostSteps];             // a ring: the next one comes to next_step_
  int next_step_ = 0;
  RegisterRange mask_;                 // that the last VALU instruction with scalar sources reads lanes by
  RegisterRange rewritten_;            // such a mask, which a scalar instruction has written since
  const Inst* mask_writer_ = nullptr;  // that one
  const Inst* cmpx_ = nullptr;         // the last VALU instruction but v_nop, if it is v_cmpx
};

}  // namespace fmha::emu
