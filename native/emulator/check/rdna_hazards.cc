// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/rdna_hazards.h"

#include "check/config.h"
#include "core/dispatch.h"

namespace fmha::emu {
namespace {

constexpr int kLaunchFailure = 719;  // hipErrorLaunchFailure
constexpr int kMostBetween = 5;      // VALU instructions between the two of the first rule

// Does it wait until no VALU instruction has a VGPR to write: the field va_vdst of s_waitcnt_depctr?
bool waits_for_vgprs(const Inst& inst) {
  return inst.row->immediate == Immediate::kDependency && (inst.imm >> 12 & 15) == 0;
}

bool writes_exec(const FactsDetail& d) {
  for (int i = 0; i < d.n_writes; ++i) {
    if (d.writes[i].first == kFirstScalar + kExecLo) return true;
  }
  return false;
}

}  // namespace

void RdnaHazards::reset(const TextFacts* facts, const Inst* first, Arch arch, uint32_t checks) {
  *this = RdnaHazards();
  scalars_ = ScalarHazards(checks & kCheckHazardsVectorScalar);
  facts_ = facts;
  first_ = first;
  arch_ = arch;
  const ArchInfo& info = arch_info(arch);
  late_permlane_ = info.isa != Isa::kRdna2;
  late_transcendentals_ = info.late_transcendentals;
  late_scalars_ = info.isa == Isa::kRdna4;
}

bool RdnaHazards::finding(Wave& w, const Inst& inst, const Inst& producer, const char* what) const {
  w.fault(inst, kLaunchFailure, "hazard: %s, after pc 0x%llx `%s`", what,
          static_cast<unsigned long long>(producer.pc), disassemble(producer, arch_).c_str());
  return false;
}

bool RdnaHazards::step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  if (late_scalars_ && !scalars_.step(w, inst, f, d)) return false;
  if (f.unit == Unit::kScalar) {
    if (waits_for_vgprs(inst)) recent_[0] = recent_[1] = {};
    return true;
  }
  if (f.unit != Unit::kVector && f.unit != Unit::kMatrix) {
    if (f.unit != Unit::kScalarMemory) recent_[0] = recent_[1] = {};
    return true;
  }
  if (recent_[0].inst && !transcendental(w, inst, d)) return false;
  if (late_permlane_ && cmpx_ && inst.row->is(kPermlane))
    return finding(w, inst, *cmpx_, "v_permlane needs another VALU instruction, not v_nop, behind v_cmpx");
  record(inst, f, d);
  return true;
}

bool RdnaHazards::transcendental(Wave& w, const Inst& inst, const FactsDetail& d) const {
  for (const Transcendental& t : recent_) {
    if (!t.inst || valu_ - t.valu - 1 > kMostBetween) continue;
    const RegisterRange& out = facts_->detail(static_cast<size_t>(t.inst - first_)).writes[0];
    for (int i = 0; i < d.n_reads; ++i) {
      if (!d.reads[i].overlaps(out)) continue;
      const std::string what = "a transcendental instruction writes " + to_string(out) +
                               ", a VALU instruction reads it: needs depctr_va_vdst(0) or more than five "
                               "VALU instructions between them";
      return finding(w, inst, *t.inst, what.c_str());
    }
  }
  return true;
}

void RdnaHazards::record(const Inst& inst, const Facts& f, const FactsDetail& d) {
  if (f.traits & kTransTrait && late_transcendentals_) {
    recent_[1] = recent_[0];
    recent_[0] = {&inst, valu_};
  }
  ++valu_;
  if (!inst.row->is(kVectorNop)) cmpx_ = writes_exec(d) ? &inst : nullptr;
}

}  // namespace fmha::emu
