// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/hazards.h"

#include <algorithm>

#include "base/errors.h"
#include "check/per_isa.h"
#include "core/dialect.h"

namespace fmha::emu {

enum HazardChecks::Rule : int {
  kVmemScalar,
  kLaneSelect,
  kDivFmasVcc,
  kVectorScalar,
  kDppExec,
  kMatrixExec,
  kLaneExec,
  kDppVector,
  kMatrixVector,
  kReadLaneVector,
  kTransVector,
  kHalfVector,
  kStoreData,
  kStoreDataScalar,
  kDotResult,
  kF64MatrixFma,
  kF64MatrixMemory,
  kZeroFlag,
  kScalarM0,
  kGetReg,
  kSetReg,
  kSwapExec,
  kSwapVector,
  kRules,
};

namespace {

constexpr int kInterlocked = 0;  // the hardware waits by itself

// Rows stand in the order of the rules, RDNA's last.
static_assert(static_cast<int>(Isa::kCdna2) == 0 && static_cast<int>(Isa::kCdna3) == 1 &&
              static_cast<int>(Isa::kCdna4) == 2 && is_rdna(Isa::kRdna2) && is_rdna(Isa::kRdna4));

struct RuleText {
  int states[3];  // of CDNA's manuals. RDNA waits by itself for all of this
  const char* what;
};

// Sources: the CDNA2 and CDNA3 ISA guides, "Manually Inserted Wait States (NOPs)", and for each row the
// function of LLVM's GCNHazardRecognizer.cpp that makes the compiler keep the rule. By Rule.
constexpr RuleText kRuleTexts[] = {
    // checkVMEMHazards
    {{5, 5, 5}, "a VALU instruction writes %s, a vector memory instruction reads it"},
    // checkRWLaneHazards
    {{4, 4, 4}, "a VALU instruction writes %s, it selects the lane of v_readlane or v_writelane"},
    // checkDivFMasHazards
    {{4, 4, 4}, "a VALU instruction writes %s, v_div_fmas reads it"},
    // checkVALUHazards, hasVDecCoExecHazard
    {{kInterlocked, 2, 2}, "a VALU instruction writes %s, a VALU instruction reads it"},
    // checkDPPHazards
    {{5, 5, 5}, "a VALU instruction writes %s, then a DPP instruction"},
    // checkMAIHazards90A
    {{4, 4, 4}, "a VALU instruction writes %s, then an MFMA"},
    // checkVALUHazards, hasVDecCoExecHazard
    {{kInterlocked, 4, 4}, "a VALU instruction writes %s, then v_readlane, v_readfirstlane or v_writelane"},
    // checkDPPHazards
    {{2, 2, 2}, "%s is written, a DPP instruction reads it"},
    // checkMAIHazards90A
    {{2, 2, 2}, "a VALU instruction writes %s, an MFMA reads it"},
    // checkVALUHazards, hasVDecCoExecHazard
    {{kInterlocked, 1, 1}, "a VALU instruction writes %s, v_readlane or v_readfirstlane reads it"},
    // checkVALUHazards, hasTransForwardingHazard
    {{kInterlocked, 1, 1}, "a transcendental instruction writes %s, another VALU instruction reads it"},
    // checkVALUHazards, hasDstSelForwardingHazard and hasCvtScaleForwardingHazard
    {{kInterlocked, 1, 1}, "part of %s is written (SDWA or op_sel), a VALU instruction uses it"},
    // checkVALUHazardsHelper
    {{1, 2, 2}, "%s is stored with others, more than 8 bytes a lane; a VALU instruction overwrites it"},
    // LLVM 22, createsVALUHazard: https://github.com/llvm/llvm-project/pull/197267
    {{kInterlocked, 1, 1}, "%s is stored with others at an SGPR offset; a VALU instruction overwrites it"},
    // checkMAIVALUHazards
    {{3, 3, 3}, "v_dot writes %s, another instruction uses it"},
    // checkMAIVALUHazards
    {{2, 2, 2}, "an f64 MFMA that writes %s, then v_fma_f64 or v_fmac_f64"},
    // checkMAIVALUHazards, a bug of CDNA2: an f64 MFMA makes the hardware forget the two wait states that it
    // inserts by itself
    {{2, kInterlocked, kInterlocked},
     "a VALU instruction writes %s, then an f64 MFMA, a memory instruction reads it"},
    // Only in the ISA guides: LLVM never reads these flags as data
    {{5, 5, 5}, "a VALU instruction writes %s, a VALU instruction reads its zero flag as data"},
    // checkReadM0Hazards
    {{1, 1, 1}, "an SALU instruction writes %s, LDS add-TID, a load to LDS or s_movrel reads it"},
    // checkGetRegHazards
    {{2, 2, 2}, "s_setreg, then s_getreg of the same register%s"},
    // checkSetRegHazards
    {{2, 2, 2}, "s_setreg, then s_setreg of the same register%s"},
    // checkPermlaneHazards
    {{4, 4, 4}, "a VALU instruction writes %s, then v_permlane16_swap or v_permlane32_swap"},
    // checkPermlaneHazards
    {{2, 2, 2}, "a VALU instruction writes %s, v_permlane16_swap or v_permlane32_swap reads it"},
};

bool is_vector_memory(const Facts& f) { return f.unit == Unit::kVectorMemory || f.unit == Unit::kFlat; }
uint32_t hardware_register(const Inst& inst) { return static_cast<uint32_t>(inst.imm) & 63; }

// A bit for each register of `r` that is one of `other` too, from its first.
uint64_t shared_registers(const RegisterRange& r, const RegisterRange& other) {
  const int from = std::max(0, other.first - r.first),
            to = std::min<int>(r.count, other.first + other.count - r.first);
  return from < to ? (uint64_t{1} << to) - (uint64_t{1} << from) : 0;
}

// Wait states between an MFMA and who uses its result, from the same sources: checkMAIHazards90A for MFMA
// consumers, checkMAIVALUHazards for the others. `same`: C is exactly the registers written.
struct MatrixUse {
  const Facts &producer, &consumer;
  bool is_c, same, writes, small_f64_pair;
};

// The consumer reads the result as C.
int states_for_c_cdna2(const MatrixUse& u) {
  const bool from_f64 = u.producer.traits & kF64MatrixTrait, to_f64 = u.consumer.traits & kF64MatrixTrait;
  const int passes = u.producer.passes;
  if (!to_f64 && from_f64) return 0;
  if (u.same) return u.small_f64_pair ? 4 : 0;
  if (from_f64) return u.consumer.traits & kXdlTrait ? 0 : passes == 4 ? 4 : 9;
  return passes + (to_f64 ? 1 : 0);
}

int states_for_c_cdna3(const MatrixUse& u) {
  const bool from_f64 = u.producer.traits & kF64MatrixTrait;
  const bool from_xdl = u.producer.traits & kXdlTrait, to_xdl = u.consumer.traits & kXdlTrait;
  const int passes = u.producer.passes;
  if (u.same) return u.small_f64_pair ? 4 : passes == 2 ? 2 : 0;
  if (from_f64) return to_xdl ? 0 : passes == 4 ? 4 : passes + 1;
  if (from_xdl) return passes + 1;
  return to_xdl ? 0 : passes;
}

// One state more for all but the shortest of the XDL unit's, and of those too where the XDL unit reads C
// (LLVM's GFX940_XDL_N_PassWrite... for gfx950; every pair of kinds was compared with what llc of LLVM 22
// inserts).
int more_on_cdna4(const Facts& producer) { return producer.traits & kXdlTrait && producer.passes != 2; }

int states_for_c_cdna4(const MatrixUse& u) {
  const bool within_xdl = u.producer.traits & u.consumer.traits & kXdlTrait;
  return states_for_c_cdna3(u) + (u.same ? 0 : within_xdl ? 1 : more_on_cdna4(u.producer));
}

// The rules of matrix instructions that differ between the manuals.
struct MatrixRules {
  int (*states_for_c)(const MatrixUse&);
  int more_than_passes;      // wait states beyond the passes before others than MFMA use a result
  int more_than_passes_xdl;  // the same of the XDL unit's
  bool only_xdl_reads_c_late;
  int after_long_f64;                  // before others read what an f64 MFMA of more than four passes writes
  int (*more)(const Facts& producer);  // beyond what others than f64 need
};
constexpr PerIsa<MatrixRules> kMatrixRules{
    MatrixRules{states_for_c_cdna2, 3, 3, false, 11, [](const Facts&) { return 0; }},
    MatrixRules{states_for_c_cdna3, 2, 3, true, 11, [](const Facts&) { return 0; }},
    MatrixRules{states_for_c_cdna4, 2, 3, true, 19, more_on_cdna4},
    MatrixRules{},  // RDNA: states_for says it; its first one has none
    MatrixRules{},
    MatrixRules{},
};

int states_for(const MatrixUse& u, Isa isa) {
  const MatrixRules& rules = kMatrixRules[isa];
  const bool from_f64 = u.producer.traits & kF64MatrixTrait, from_xdl = u.producer.traits & kXdlTrait;
  const bool to_matrix = u.consumer.unit == Unit::kMatrix;
  const int passes = u.producer.passes;
  // fixWMMAHazards: a WMMA's result as A or B of the next; all else is interlocked.
  if (is_rdna(isa)) return to_matrix && !u.is_c && !u.writes ? 1 : 0;
  if (to_matrix && u.is_c) return rules.states_for_c(u);
  if (to_matrix && u.writes) return 0;  // in order
  if (from_f64) {
    const bool memory = !is_vector_alu(u.consumer) && !u.writes;
    if (passes == 4) return memory ? 9 : 6;
    return memory ? 18 : u.writes ? 11 : rules.after_long_f64;
  }
  const int more = from_xdl ? rules.more_than_passes_xdl : rules.more_than_passes;
  return passes + more + rules.more(u.producer);
}

// Does it read C until it ends, so that nothing may overwrite C before?
bool reads_c_late(const Facts& f, Isa isa) {
  if (f.traits & kF64MatrixTrait || is_rdna(isa)) return false;
  return !kMatrixRules[isa].only_xdl_reads_c_late || f.traits & kXdlTrait;
}

}  // namespace

void HazardChecks::reset(const TextFacts* facts, const Inst* first, Arch arch, int wave_size,
                         uint32_t checks) {
  *this = HazardChecks();
  facts_ = facts;
  first_ = first;
  arch_ = arch;
  rdna_.reset(facts, first, arch, wave_size, checks);
}

bool HazardChecks::need(Wave& w, const Inst& inst, const char* what, int states, const Issued& producer,
                        const RegisterRange& r) {
  const int64_t got = clock_ - producer.end;
  if (got >= states) return true;
  char text[160];
  std::snprintf(text, sizeof text, what, r.count ? to_string(r).c_str() : "");
  const Inst& p = first_[producer.inst];
  w.fault(inst, hipErrorLaunchFailure, "hazard: %s: needs %d wait states after pc 0x%llx `%s`, got %d", text,
          states, static_cast<unsigned long long>(p.pc), disassemble(p, arch_).c_str(),
          static_cast<int>(got));
  return false;
}

bool HazardChecks::need(Wave& w, const Inst& inst, Rule rule, const Issued& producer,
                        const RegisterRange& r) {
  static_assert(std::size(kRuleTexts) == kRules);
  const RuleText& t = kRuleTexts[rule];
  const Isa isa = arch_info(arch_).isa;
  return need(w, inst, t.what, is_rdna(isa) ? kInterlocked : t.states[static_cast<int>(isa)], producer, r);
}

bool HazardChecks::step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  if (is_rdna(arch_info(arch_).isa) && !rdna_.step(w, inst, f, d)) return false;
  constexpr uint32_t kZeroFlags = kReadsVcczTrait | kReadsExeczTrait;
  constexpr uint32_t kScalarRules = kReadsScalarTrait | kLaneTrait | kDppTrait | kSwapTrait | kZeroFlags;
  constexpr uint32_t kProducers =
      kTransTrait | kHalfTrait | kBigStoreTrait | kBigStoreScalarTrait | kDotTrait | kF64MatrixTrait;
  constexpr uint32_t kConsumers = kDppTrait | kReadLaneTrait | kSwapTrait;
  const uint32_t recent = recent_[0].traits | recent_[1].traits | recent_[2].traits | recent_[3].traits;
  const bool matrix = f.unit == Unit::kMatrix;
  if ((f.traits & kScalarRules || matrix) && !scalars(w, inst, f, d)) return false;
  if ((recent & kProducers || f.traits & kConsumers || matrix) && !neighbours(w, inst, f, d)) return false;
  if (f.traits & (kNeedsM0Trait | kSetRegTrait | kGetRegTrait | kFma64Trait) && !control(w, inst, f))
    return false;
  record(inst, f, d);
  return true;
}

// Rules about scalar registers that VALU instructions write.
bool HazardChecks::scalars(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  const Issued &low = scalar_by_vector_[kExecLo], &high = scalar_by_vector_[kExecLo + 1];
  const Issued& exec = low.end > high.end ? low : high;  // the scalar unit may have rewritten one half
  const RegisterRange exec_range{kFirstScalar + kExecLo, 2};
  if (f.traits & kDppTrait && !need(w, inst, kDppExec, exec, exec_range)) return false;
  if (f.unit == Unit::kMatrix && !need(w, inst, kMatrixExec, exec, exec_range)) return false;
  if (f.traits & kLaneTrait && !need(w, inst, kLaneExec, exec, exec_range)) return false;
  if (f.traits & kSwapTrait && !need(w, inst, kSwapExec, exec, exec_range)) return false;
  if (f.traits & kReadsExeczTrait && !need(w, inst, kZeroFlag, exec, exec_range)) return false;
  const RegisterRange vcc_range{kFirstScalar + kVccLo, 2};
  for (int s = kVccLo; s <= kVccHi && f.traits & (kReadsVcczTrait | kDivFmasTrait); ++s) {
    const Rule rule = f.traits & kDivFmasTrait ? kDivFmasVcc : kZeroFlag;
    if (!need(w, inst, rule, scalar_by_vector_[s], vcc_range)) return false;
  }
  const Rule rule = is_vector_memory(f) ? kVmemScalar : f.unit == Unit::kVector ? kVectorScalar : kRules;
  if (rule == kRules) return true;
  for (int i = 0; i < d.n_reads; ++i) {
    const RegisterRange& r = d.reads[i];
    if (r.first < kFirstScalar) continue;
    const bool select = f.traits & kLaneTrait && inst.src[1].kind == OperandKind::kSgpr &&
                        r.first == kFirstScalar + inst.src[1].index;
    for (int s = r.first; s < r.first + r.count; ++s) {
      if (!need(w, inst, select ? kLaneSelect : rule, scalar_by_vector_[s - kFirstScalar], r)) return false;
    }
  }
  return true;
}

// Rules about the last few instructions.
bool HazardChecks::neighbours(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  for (const Issued& p : recent_) {
    if (clock_ - p.end < 3 && !neighbour(w, inst, f, d, p)) return false;
  }
  return true;
}

bool HazardChecks::neighbour(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d,
                             const Issued& p) {
  const Facts& pf = facts_->hot(p.inst);
  const FactsDetail& pd = facts_->detail(p.inst);
  const bool vector_alu = is_vector_alu(f),
             uses_vgprs = vector_alu || f.unit == Unit::kLds || is_vector_memory(f);
  const bool same_dot = first_[p.inst].row == inst.row;
  for (int j = 0; j < pd.n_writes; ++j) {
    const RegisterRange& out = pd.writes[j];
    if (out.first >= kFirstScalar) continue;
    for (int i = 0; i < d.n_reads; ++i) {
      if (!d.reads[i].overlaps(out)) continue;
      if (f.traits & kDppTrait && !need(w, inst, kDppVector, p, out)) return false;
      const bool plain = pf.unit == Unit::kVector;
      if (plain && f.traits & kReadLaneTrait && !need(w, inst, kReadLaneVector, p, out)) return false;
      if (plain && f.unit == Unit::kMatrix && !(pf.traits & kDotTrait) &&
          !need(w, inst, kMatrixVector, p, out))
        return false;
      if (plain && f.traits & kSwapTrait && !need(w, inst, kSwapVector, p, out)) return false;
      const bool trans = pf.traits & kTransTrait && !(f.traits & kTransTrait);
      if (trans && vector_alu && !need(w, inst, kTransVector, p, out)) return false;
      if (pf.traits & kHalfTrait && vector_alu && !need(w, inst, kHalfVector, p, out)) return false;
      const bool memory = uses_vgprs && !vector_alu, before_f64 = f64_matrix_.end > p.end;
      if (memory && before_f64 && is_vector_alu(pf) && !need(w, inst, kF64MatrixMemory, p, out)) return false;
      const bool dot = pf.traits & kDotTrait && f.unit != Unit::kMatrix && uses_vgprs;
      // The accumulator of the same v_dot is forwarded: it is the last source, or the destination.
      const bool forwarded =
          same_dot && (d.reads[i] == out) && (i == 2 || (i == d.n_reads - 1 && inst.row->flags & kReadsDst));
      if (dot && !forwarded && !need(w, inst, kDotResult, p, out)) return false;
    }
    for (int i = 0; i < d.n_writes; ++i) {
      if (!d.writes[i].overlaps(out)) continue;
      if (pf.traits & kHalfTrait && vector_alu && !need(w, inst, kHalfVector, p, out)) return false;
      const bool dot = pf.traits & kDotTrait && f.unit != Unit::kMatrix && uses_vgprs && !same_dot;
      if (dot && !need(w, inst, kDotResult, p, out)) return false;
    }
  }
  if (!(pf.traits & (kBigStoreTrait | kBigStoreScalarTrait)) || !vector_alu) return true;
  const Rule rule = pf.traits & kBigStoreTrait ? kStoreData : kStoreDataScalar;
  const Operand& data = first_[p.inst].data;
  const RegisterRange stored{data.index, data.dwords};
  for (int i = 0; i < d.n_writes; ++i) {
    if (d.writes[i].overlaps(stored) && !need(w, inst, rule, p, d.writes[i])) return false;
  }
  return true;
}

bool HazardChecks::control(Wave& w, const Inst& inst, const Facts& f) {
  if (f.traits & kNeedsM0Trait && !need(w, inst, kScalarM0, m0_by_scalar_, {kFirstScalar + kM0, 1}))
    return false;
  if (f.traits & kFma64Trait &&
      !need(w, inst, kF64MatrixFma, f64_matrix_, facts_->detail(f64_matrix_.inst).writes[0]))
    return false;
  if (!(f.traits & (kSetRegTrait | kGetRegTrait))) return true;
  return need(w, inst, f.traits & kGetRegTrait ? kGetReg : kSetReg, set_[hardware_register(inst)], {});
}

bool HazardChecks::matrix(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  const bool to_matrix = f.unit == Unit::kMatrix;
  if (!to_matrix && f.unit != Unit::kVector && f.unit != Unit::kLds && !is_vector_memory(f)) return true;
  for (int i = 0; i < d.n_reads; ++i) {
    const RegisterRange& r = d.reads[i];
    if (r.first < kFirstScalar && !matrix_operand(w, inst, f, r, i == d.accumulator_read, false))
      return false;
  }
  for (int i = 0; i < d.n_writes && !to_matrix; ++i) {
    const RegisterRange& r = d.writes[i];
    if (r.first < kFirstScalar && !matrix_operand(w, inst, f, r, false, true)) return false;
  }
  return true;
}

// For each register of `r` the last matrix instruction that writes it decides; and for what writes `r`, the
// last that reads it as C.
bool HazardChecks::matrix_operand(Wave& w, const Inst& inst, const Facts& f, const RegisterRange& r,
                                  bool is_c, bool writes) {
  constexpr int64_t kMost = 20;
  if (!any_bits(busy_, r)) return true;
  // The registers of `r` for which no later instruction has been found.
  uint64_t written = (uint64_t{1} << r.count) - 1, read = writes ? written : 0;
  for (uint32_t k = 1; k <= kMatrix && (written | read); ++k) {
    const Issued& p = matrix_[(matrix_at_ - k) % kMatrix];
    if (clock_ - p.end >= kMost) break;
    const Facts& pf = facts_->hot(p.inst);
    const FactsDetail& pd = facts_->detail(p.inst);
    if (const uint64_t some = shared_registers(r, pd.writes[0]) & written) {
      written &= ~some;
      const bool pair = pf.passes == 4 && f.passes == 4 && pf.traits & f.traits & kF64MatrixTrait;
      const MatrixUse use{pf, f, is_c, pd.writes[0] == r, writes, pair};
      const char* what = writes ? "an MFMA writes %s, another instruction overwrites it"
                         : is_c ? "an MFMA writes %s, an MFMA reads other registers and some of it as C"
                                : "an MFMA writes %s, another instruction reads it";
      if (!need(w, inst, what, states_for(use, arch_info(arch_).isa), p, pd.writes[0])) return false;
    }
    const bool late_c = reads_c_late(pf, arch_info(arch_).isa);
    const uint64_t overwritten = late_c ? shared_registers(r, pd.accumulator) & read : 0;
    if (overwritten) {
      read &= ~overwritten;
      const int states = pf.passes - 1;
      if (!need(w, inst, "an MFMA reads %s as C, another instruction overwrites it", states, p,
                pd.accumulator))
        return false;
    }
  }
  return true;
}

void HazardChecks::record(const Inst& inst, const Facts& f, const FactsDetail& d) {
  const auto index = static_cast<uint32_t>(&inst - first_);
  clock_ += f.wait_states;
  const Issued now{index, f.traits, clock_};
  recent_[recent_at_++ % kRecent] = now;
  if (f.traits & kBranchPairTrait) passed_ = index + 1;
  if (f.unit == Unit::kMatrix) {
    if (f.traits & kF64MatrixTrait) f64_matrix_ = now;
    matrix_[matrix_at_++ % kMatrix] = now;
    record_matrix(d);
  }
  if (f.traits & kSetRegTrait) set_[hardware_register(inst)] = now;
  if (!(f.traits & kWritesScalarTrait)) return;
  for (int i = 0; i < d.n_writes; ++i) {
    const RegisterRange& r = d.writes[i];
    if (r.first < kFirstScalar) continue;
    if (f.unit == Unit::kVector) {
      for (int s = r.first; s < r.first + r.count; ++s) scalar_by_vector_[s - kFirstScalar] = now;
    } else {
      // A register that the scalar unit writes later is no longer the VALU's.
      for (int s = r.first; s < r.first + r.count; ++s) scalar_by_vector_[s - kFirstScalar] = Issued();
      if (f.unit == Unit::kScalar && r.first == kFirstScalar + kM0) m0_by_scalar_ = now;
    }
  }
}

// busy_ only ever errs by bits too many: now and then it is made anew.
void HazardChecks::record_matrix(const FactsDetail& d) {
  if (matrix_at_ % kMatrix == 0) {
    std::fill(std::begin(busy_), std::end(busy_), 0);
    for (const Issued& p : matrix_) {
      if (clock_ - p.end > 20) continue;
      set_bits(busy_, facts_->detail(p.inst).writes[0]);
      set_bits(busy_, facts_->detail(p.inst).accumulator);
    }
  }
  set_bits(busy_, d.writes[0]);
  set_bits(busy_, d.accumulator);
}

}  // namespace fmha::emu
