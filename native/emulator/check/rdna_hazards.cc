// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/rdna_hazards.h"

#include <algorithm>

#include "check/config.h"
#include "core/dispatch.h"

namespace fmha::emu {
namespace {

constexpr int kLaunchFailure = 719;  // hipErrorLaunchFailure
constexpr uint16_t kLiteralOperand = 255;
constexpr int kMostBetween = 5;  // VALU instructions between the two of the first rule

// Does it wait until no VALU instruction has a VGPR to write: the field va_vdst of s_waitcnt_depctr?
bool waits_for_vgprs(const Inst& inst) {
  return inst.row->immediate == Immediate::kDependency && (inst.imm >> 12 & 15) == 0;
}

// And until no scalar instruction has an SGPR to write: the field sa_sdst?
bool waits_for_sgprs(const Inst& inst) {
  return inst.row->immediate == Immediate::kDependency && (inst.imm & 1) == 0;
}

constexpr RegisterRange kExec = {kFirstScalar + kExecLo, 2};

bool writes(const FactsDetail& d, const RegisterRange& what) {
  return std::any_of(d.writes, d.writes + d.n_writes,
                     [&](const RegisterRange& r) { return r.overlaps(what); });
}

// The SGPRs by which it reads a bit a lane; none: count is 0.
RegisterRange mask_of(const Inst& inst) {
  if (!inst.row->is(kReadsVcc)) return {};
  const Operand& o = inst.src[2];
  if (!names_mask(*inst.row)) return {kFirstScalar + kVccLo, 2};  // v_div_fmas
  if (o.kind != OperandKind::kSgpr) return {};
  return {static_cast<uint16_t>(kFirstScalar + o.index), o.dwords};
}

// Distinct VGPR operands, at most three.
int vgpr_sources(const Inst& inst, RegisterRange* out) {
  int count = 0;
  for (const Operand& o : inst.src) {
    if (o.kind != OperandKind::kVgpr) continue;
    const RegisterRange r = {o.index, o.dwords};
    const bool known =
        std::any_of(out, out + count, [&](const RegisterRange& other) { return other.first == r.first; });
    if (!known) out[count++] = r;
  }
  return count;
}

}  // namespace

void RdnaHazards::reset(const TextFacts* facts, const Inst* first, Arch arch, int wave_size) {
  *this = RdnaHazards();
  facts_ = facts;
  first_ = first;
  arch_ = arch;
  const ArchInfo& info = arch_info(arch);
  wide_ = info.generation == Generation::kGfx11 && wave_size == 64;
  late_permlane_ = info.isa != Isa::kRdna2;
  late_transcendentals_ = info.capability_major == 11 && info.capability_minor == 0;
}

bool RdnaHazards::finding(Wave& w, const Inst& inst, const Inst& producer, const char* what) const {
  w.fault(inst, kLaunchFailure, "hazard: %s, after pc 0x%llx `%s`", what,
          static_cast<unsigned long long>(producer.pc), disassemble(producer, arch_).c_str());
  return false;
}

bool RdnaHazards::step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  if (f.unit == Unit::kScalar) {
    if (waits_for_vgprs(inst)) drained();
    return !wide_ || scalar(w, inst, d);
  }
  if (f.unit != Unit::kVector && f.unit != Unit::kMatrix) {
    if (f.unit != Unit::kScalarMemory) drained();
    return true;
  }
  if (wide_ && !forwarding(w, inst)) return false;
  if (recent_[0].inst && !transcendental(w, inst, d)) return false;
  if (late_permlane_ && cmpx_ && inst.row->is(kPermlane))
    return finding(w, inst, *cmpx_, "v_permlane needs another VALU instruction, not v_nop, behind v_cmpx");
  record(inst, f, d);
  return true;
}

// All VALU instructions have written their VGPRs.
void RdnaHazards::drained() {
  recent_[0] = recent_[1] = {};
  std::fill(std::begin(steps_), std::end(steps_), Step());
}

void RdnaHazards::remember(const Inst& inst, bool is_valu) {
  steps_[next_step_] = {&inst, is_valu};
  next_step_ = (next_step_ + 1) % kMostSteps;
}

void RdnaHazards::remember_mask(const Inst& inst, const FactsDetail& d) {
  const RegisterRange mask = mask_of(inst);
  const bool scalar_source = std::any_of(d.reads, d.reads + d.n_reads,
                                         [](const RegisterRange& r) { return r.first >= kFirstScalar; });
  const bool literal =
      inst.row->is(kLiteralK) || std::any_of(std::begin(inst.src), std::end(inst.src), [](auto& o) {
        return o.kind == OperandKind::kConst && o.encoded == kLiteralOperand;
      });
  if (mask.count || scalar_source || literal) mask_ = mask;
}

// EXEC and masks that a scalar instruction writes, or reads too early.
bool RdnaHazards::scalar(Wave& w, const Inst& inst, const FactsDetail& d) {
  if (waits_for_sgprs(inst) || inst.row->is(kJump)) mask_ = rewritten_ = {};
  for (int i = 0; i < d.n_reads; ++i) {
    if (!rewritten_.count || !d.reads[i].overlaps(rewritten_)) continue;
    const std::string what = "a VALU instruction reads " + to_string(rewritten_) +
                             " as a mask, a scalar one writes it, a scalar one reads it: needs "
                             "depctr_sa_sdst(0) behind the write";
    return finding(w, inst, *mask_writer_, what.c_str());
  }
  if (writes(d, kExec)) remember(inst, false);
  if (!mask_.count || mask_.overlaps(kExec)) return true;
  for (int i = 0; i < d.n_writes; ++i) {
    if (!d.writes[i].overlaps(mask_)) continue;
    const RegisterRange& now = d.writes[i];
    const bool more = rewritten_.count && mask_.overlaps(rewritten_);  // the halves of a mask one by one
    const int first = more ? std::min(now.first, rewritten_.first) : now.first;
    const int end = std::max(now.first + now.count, more ? rewritten_.first + rewritten_.count : 0);
    rewritten_ = {static_cast<uint16_t>(first), static_cast<uint8_t>(end - first)};
    mask_writer_ = &inst;
  }
  return true;
}

// Looks back from a VALU instruction as LLVM does: how many others are between it and the writes of its
// sources, and between it and the last write of EXEC before the later of these.
bool RdnaHazards::forwarding(Wave& w, const Inst& inst) const {
  constexpr int kMostBetweenWrites = 2, kMostBeforeRead = 4, kNever = 1 << 20;
  RegisterRange sources[3];
  const int count = vgpr_sources(inst, sources);
  if (count < 2) return true;
  int valus = 0, exec_at = kNever, behind = kNever, written = 0;
  for (int i = 1; i <= kMostSteps; ++i) {
    const Step& step = steps_[(next_step_ + kMostSteps - i) % kMostSteps];
    const bool too_far =
        valus > kMostBeforeRead + kMostBetweenWrites + 2 || (!written && valus > kMostBeforeRead);
    if (!step.inst || too_far) return true;
    if (!step.is_valu) {
      if (written && exec_at == kNever) exec_at = valus;
      continue;
    }
    for (int s = 0; s < count; ++s) {
      if (written >> s & 1 || !writes(detail_of(*step.inst), sources[s])) continue;
      written |= 1 << s;
      if (exec_at == kNever) {
        behind = std::min(behind, valus);
        continue;
      }
      if (behind > kMostBeforeRead || valus - behind - 1 > kMostBetweenWrites) return true;
      const std::string what = "a VALU instruction writes " + to_string(sources[s]) +
                               ", a scalar one EXEC, a VALU instruction another register, and this one reads "
                               "both: needs depctr_va_vdst(0)";
      return finding(w, inst, *step.inst, what.c_str());
    }
    ++valus;
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
  if (wide_) {
    remember(inst, true);
    remember_mask(inst, d);
  }
  if (!inst.row->is(kVectorNop)) cmpx_ = writes(d, kExec) ? &inst : nullptr;
}

}  // namespace fmha::emu
