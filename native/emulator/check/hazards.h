// SPDX-License-Identifier: MIT OR Apache-2.0
// Wait states that the ISA manuals leave to software: so many instructions (or s_nop counts) must lie between
// two that depend on each other in ways the hardware does not interlock.
//
// All rules of LLVM's GCNHazardRecognizer.cpp (19, and what later versions added) that apply to CDNA2
// (gfx90a) or CDNA3 (gfx942) are checked, and those that only the ISA guides have. hazards.cc has the wait
// states. test_check_rules.py holds them against what llc inserts, test_check_hazards.py against the guides.
// - checkVMEMHazards: VALU writes SGPR, VMEM reads it. Not EXEC: CK's assembly counts on the hardware there.
// - checkRWLaneHazards: VALU writes SGPR, v_readlane or v_writelane selects the lane with it.
// - checkDivFMasHazards: VALU writes VCC, v_div_fmas reads it.
// - checkDPPHazards: VGPR is written, DPP reads it. VALU writes EXEC, DPP.
// - checkGetRegHazards, checkSetRegHazards: s_setreg, s_getreg or s_setreg of the same register.
// - checkReadM0Hazards: SALU writes M0; LDS add-TID, load to LDS, s_movrel, s_sendmsg, GDS.
// - checkVALUHazards, all but the last on CDNA3 only: result of v_exp and the like, read by other VALU. Part
//   of a VGPR is written (SDWA, op_sel), VALU uses it. VALU writes SGPR or VCC, VALU reads it. VALU writes
//   EXEC, v_readlane or v_writelane. VALU writes VGPR, v_readlane reads it. Data of a store or atomic of more
//   than 8 bytes a lane, overwritten by VALU (on CDNA3 of buffer stores with an SGPR offset too: LLVM 22).
// - checkMAIHazards90A: VALU writes EXEC, MFMA. VALU writes VGPR, MFMA reads it. MFMA writes VGPRs, MFMA
//   reads them as A, B or C: by passes, and by f64, XDL or neither.
// - checkMAIVALUHazards: MFMA writes VGPRs, others than MFMA read or overwrite them. MFMA reads C, others
//   overwrite it. The same of v_dot. f64 MFMA, v_fma_f64. The bug of CDNA2: VALU writes VGPR, f64 MFMA,
//   memory instruction reads it.
// - The ISA guides: VALU writes VCC or EXEC, VALU reads VCCZ or EXECZ as data.
// Not checked, as they cannot happen here: checkSMRDHazards (before gfx7), checkSoftClauseHazards (XNACK is
// off on this device), checkRFEHazards (trap handlers), checkMAIHazards908 and checkMAILdStHazards (gfx908),
// LDS_DIRECT, s_setvskip, and what is of gfx10 and later but for WMMA: rdna_hazards.h.
#pragma once

#include <cstdint>

#include "check/rdna_hazards.h"
#include "code/facts.h"
#include "core/wave.h"

namespace fmha::emu {

class HazardChecks {
 public:
  void reset(const TextFacts* facts, const Inst* first, Arch arch, int wave_size, uint32_t checks);
  // Registers that a recent matrix instruction writes or reads as C: who touches them must ask matrix().
  const uint64_t* busy() const { return busy_; }
  // The instruction at `index` comes next.
  //
  // A compiled block may end in s_cbranch and s_branch. LLVM counts the wait states of both, whichever of
  // them is taken, so that behind a taken s_cbranch one less is there than it counts. The hardware does wait
  // as long: a taken branch throws away what was fetched behind it, which costs more than the s_branch would
  // have (8 slots in the scheduling model of LLVM's SISchedule.td). So it is counted here too.
  void arrive(uint32_t index) {
    if (!passed_) [[likely]]
      return;
    if (index != passed_) ++clock_;
    passed_ = 0;
  }
  // Checks what matrix instructions ask of `inst`. False after a finding.
  bool matrix(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);
  // All other rules; then the instruction counts as issued. False after a finding.
  bool step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);

 private:
  struct Issued {
    uint32_t inst = 0, traits = 0;
    int64_t end = kLongAgo;  // the clock behind it
  };
  static constexpr int64_t kLongAgo = -1000;
  static constexpr int kRecent = 4, kMatrix = 32, kHardwareRegisters = 64;
  enum Rule : int;

  bool scalars(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);
  bool neighbours(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);
  bool neighbour(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d, const Issued& producer);
  bool control(Wave& w, const Inst& inst, const Facts& f);
  bool matrix_operand(Wave& w, const Inst& inst, const Facts& f, const RegisterRange& r, bool is_c,
                      bool writes);
  void record(const Inst& inst, const Facts& f, const FactsDetail& d);
  void record_matrix(const FactsDetail& d);
  bool need(Wave& w, const Inst& inst, Rule rule, const Issued& producer, const RegisterRange& r);
  bool need(Wave& w, const Inst& inst, const char* what, int states, const Issued& producer,
            const RegisterRange& r);

  const TextFacts* facts_ = nullptr;
  const Inst* first_ = nullptr;
  Arch arch_{};
  int64_t clock_ = 0;       // wait states since the start
  Issued recent_[kRecent];  // the last instructions, in a ring
  Issued matrix_[kMatrix];  // the last matrix instructions, in a ring
  uint32_t recent_at_ = 0, matrix_at_ = 0;
  uint32_t passed_ = 0;           // the branch behind the branch that was last; 0: it was none, or has none
  Issued scalar_by_vector_[128];  // the VALU instruction that wrote a scalar register last
  Issued m0_by_scalar_, f64_matrix_;
  Issued set_[kHardwareRegisters];  // s_setreg, by hardware register
  uint64_t busy_[kRegisterWords] = {};
  RdnaHazards rdna_;
};

}  // namespace fmha::emu
