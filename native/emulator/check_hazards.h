// SPDX-License-Identifier: MIT OR Apache-2.0
// Wait states that the ISA manuals leave to software: so many instructions (or s_nop counts) must lie between
// two that depend on each other in ways the hardware does not interlock.
#pragma once

#include <cstdint>

#include "check_facts.h"
#include "wave.h"

namespace fmha::emu {

class HazardChecks {
 public:
  void reset(const TextFacts* facts, const Inst* first, Arch arch);
  // Registers that a recent matrix instruction writes or reads as C: who touches them must ask matrix().
  const uint64_t* busy() const { return busy_; }
  // What matrix instructions ask of `inst`. False after a finding.
  bool matrix(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);
  // All other rules; then the instruction counts as issued. False after a finding.
  bool step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);

 private:
  struct Issued {
    uint32_t inst = 0, traits = 0;
    int64_t end = kLongAgo;  // the clock behind it
  };
  static constexpr int64_t kLongAgo = -1000;
  static constexpr int kRecent = 4, kMatrix = 32;
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
  bool is942() const { return arch_ == Arch::kGfx942; }

  const TextFacts* facts_ = nullptr;
  const Inst* first_ = nullptr;
  Arch arch_ = Arch::kGfx942;
  int64_t clock_ = 0;       // wait states since the start
  Issued recent_[kRecent];  // the last instructions, in a ring
  Issued matrix_[kMatrix];  // the last matrix instructions, in a ring
  uint32_t recent_at_ = 0, matrix_at_ = 0;
  Issued scalar_by_vector_[128];  // the VALU instruction that wrote a scalar register last
  Issued m0_by_scalar_, mode_set_, f64_matrix_;
  uint64_t busy_[kRegisterWords] = {};
};

}  // namespace fmha::emu
