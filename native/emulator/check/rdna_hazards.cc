// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/rdna_hazards.h"

#include "base/errors.h"
#include "check/config.h"

namespace fmha::emu {
namespace {

constexpr int kMostBetween = 5;                      // VALU instructions between the two of the first rule
constexpr int kBeforeDenorms = 3;                    // wait states between a float atomic and s_denorm_mode
constexpr int kMessageMask = 0xff, kDeallocate = 3;  // MSG_DEALLOC_VGPRS

bool deallocates(const Inst& inst) {
  const bool sends = inst.row->format == Format::kSopp && inst.row->immediate == Immediate::kMessage;
  return sends && (inst.imm & kMessageMask) == kDeallocate;
}

// v_cmpx, or v_cmp with EXEC as its destination.
bool compares_into_exec(const Inst& inst, const FactsDetail& d) {
  return inst.row->format == Format::kVopc && writes_exec(d);
}

}  // namespace

void RdnaHazards::reset(const TextFacts* facts, const Inst* first, Arch arch, int wave_size,
                        uint32_t checks) {
  *this = RdnaHazards();
  facts_ = facts;
  first_ = first;
  arch_ = arch;
  const ArchInfo& info = arch_info(arch);
  late_permlane_ = info.isa != Isa::kRdna2;
  late_transcendentals_ = info.late_transcendentals;
  early_mad64_ = info.early_mad64;
  late_scalars_ = info.isa == Isa::kRdna4;
  of_waves_of_64_ = info.isa == Isa::kRdna3 && wave_size == 64;
  late_denorms_ = info.isa == Isa::kRdna2;
  scalars_ = ScalarHazards(late_scalars_ ? ScalarHazards::Of::kAll : ScalarHazards::Of::kMasks,
                           checks & kCheckHazardsVectorScalar);
}

bool RdnaHazards::finding(Wave& w, const Inst& inst, const Inst& producer, const char* what) const {
  w.fault(inst, hipErrorLaunchFailure, "hazard: %s, after pc 0x%llx `%s`", what,
          static_cast<unsigned long long>(producer.pc), disassemble(producer, arch_).c_str());
  return false;
}

bool RdnaHazards::step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  if (early_mad64_ && !products(w, inst, d)) return false;
  if (!scalars(w, inst, f, d) || !neighbours(w, inst, f)) return false;
  if (f.unit == Unit::kScalar) {
    if (waits_for_vgprs(inst)) forget_recent();
    return true;
  }
  if (!is_vector_alu(f)) {
    if (f.unit != Unit::kScalarMemory) forget_recent();
    return true;
  }
  if (recent_[0].inst && !transcendental(w, inst, d)) return false;
  if (late_permlane_ && cmpx_ && inst.row->is(kPermlane))
    return finding(w, inst, *cmpx_, "v_permlane needs another VALU instruction, not v_nop, behind v_cmpx");
  record(inst, f, d);
  return true;
}

bool RdnaHazards::products(Wave& w, const Inst& inst, const FactsDetail& d) {
  const Mad64Hazard::Finding found = mad64_.step(inst, d);
  if (!found.product) return true;
  const std::string what = "reads " + to_string(found.source) + ", which may be " +
                           (found.product == &inst ? "its own result already"
                                                   : "wrong, as it is half of a "
                                                     "result whose other half the addend overlaps");
  return finding(w, inst, *found.product, what.c_str());
}

bool RdnaHazards::scalars(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  const Inst* older = of_waves_of_64_ ? forwarding_.step(inst, f, d) : nullptr;
  if (older)
    return finding(
        w, inst, *older,
        "a VALU instruction writes a VGPR, a scalar one EXEC, a VALU instruction another VGPR, and "
        "this one reads both: needs depctr_va_vdst(0)");
  if (!of_waves_of_64_ && !late_scalars_) return true;
  const ScalarHazards::Finding found = scalars_.step(inst, f, d);
  if (!found.writer) return true;
  const RegisterRange r{static_cast<uint16_t>(kFirstScalar + found.scalar), 1};
  const std::string what = "reads " + to_string(r) + ", which a VALU instruction has read" +
                           (late_scalars_ ? "" : " as a mask") +
                           " and another instruction has rewritten since: needs s_wait_alu " + found.mend;
  return finding(w, inst, *found.writer, what.c_str());
}

// Rules about what is near, whatever its unit.
bool RdnaHazards::neighbours(Wave& w, const Inst& inst, const Facts& f) {
  const Inst* before = last_;
  last_ = &inst;
  if (late_permlane_ && deallocates(inst) && (!before || before->row->immediate != Immediate::kWaitStates))
    return finding(w, inst, before ? *before : inst, "MSG_DEALLOC_VGPRS must come directly behind s_nop");
  if (!late_denorms_) return true;
  if (float_atomic_ && inst.row->is(kSetsDenorms) && since_atomic_ < kBeforeDenorms)
    return finding(w, inst, *float_atomic_, "a float atomic, then s_denorm_mode: needs 3 wait states");
  since_atomic_ += f.wait_states;
  if (is_vector_alu(f) || f.traits & kWaitTrait) float_atomic_ = nullptr;
  const bool memory = f.unit == Unit::kVectorMemory || f.unit == Unit::kFlat;
  if (memory && inst.row->is(kOfFloats)) {
    float_atomic_ = &inst;
    since_atomic_ = 0;
  }
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
  if (!inst.row->is(kVectorNop)) cmpx_ = compares_into_exec(inst, d) ? &inst : nullptr;
}

}  // namespace fmha::emu
