// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/scalar_hazards.h"

#include <algorithm>

#include "core/dispatch.h"

namespace fmha::emu {
namespace {

constexpr int kLaunchFailure = 719;  // hipErrorLaunchFailure
// Scalar instructions behind which a write of the scalar unit is there, for those that read it.
constexpr int64_t kBeforeScalar = 10, kBeforeVector = 11;

// Fields of s_wait_alu: 0 waits until none of its kind is on its way.
constexpr bool waits_sa_sdst(uint32_t imm) { return (imm & 1) == 0; }
constexpr bool waits_va_vcc(uint32_t imm) { return (imm >> 1 & 1) == 0; }
constexpr bool waits_va_sdst(uint32_t imm) { return (imm >> 9 & 7) == 0; }

constexpr bool is_vcc(int s) { return s == kVccLo || s == kVccHi; }

// The scalar registers of `r` that this is about, as from and to.
struct Scalars {
  int from = 0, to = 0;
};
Scalars scalars_of(const RegisterRange& r) {
  if (r.first < kFirstScalar) return {};
  const int first = r.first - kFirstScalar;
  return {first, std::min<int>(first + r.count, kM0)};
}

bool finding(Wave& w, const Inst& inst, const Inst& producer, int s, const char* mend) {
  const Arch arch = w.group->launch->code->arch();
  const RegisterRange r{static_cast<uint16_t>(kFirstScalar + s), 1};
  w.fault(inst, kLaunchFailure,
          "hazard: reads %s, which a VALU instruction has read and another instruction has rewritten since: "
          "needs s_wait_alu %s, after pc 0x%llx `%s`",
          to_string(r).c_str(), mend, static_cast<unsigned long long>(producer.pc),
          disassemble(producer, arch).c_str());
  return false;
}

}  // namespace

bool ScalarHazards::step(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d) {
  const bool scalar = f.unit == Unit::kScalar;
  if (!scalar && f.unit != Unit::kVector && f.unit != Unit::kMatrix) {
    const bool buffer = inst.row->format == Format::kMubuf || inst.row->format == Format::kMtbuf;
    if (f.unit == Unit::kScalarMemory || buffer) wait(0);
    return true;
  }
  if (!scalar && !(f.traits & (kReadsScalarTrait | kWritesScalarTrait))) return true;
  if (inst.row->immediate == Immediate::kDependency) {
    wait(static_cast<uint32_t>(inst.imm));
    return true;
  }
  const bool branch = inst.row->is(kBranch), jump = inst.row->is(kJump);
  for (int i = 0; i < d.n_reads && !branch; ++i) {
    const Scalars r = scalars_of(d.reads[i]);
    for (int s = r.from; s < r.to; ++s) {
      if (!read(w, inst, scalar, s)) return false;
    }
  }
  if (scalar && inst.row->format != Format::kSopp) ++scalars_;
  for (int i = 0; i < d.n_writes && !branch && !jump; ++i) {
    const Scalars r = scalars_of(d.writes[i]);
    for (int s = r.from; s < r.to; ++s) write(inst, scalar, s);
  }
  return true;
}

void ScalarHazards::wait(uint32_t fields) {
  if (!late_) return;
  if (waits_sa_sdst(fields)) std::fill(std::begin(by_scalar_unit_), std::end(by_scalar_unit_), Late());
  if (waits_va_sdst(fields)) forget_vector(false);
  if (waits_va_vcc(fields)) forget_vector(true);
}

void ScalarHazards::forget_vector(bool vcc) {
  for (int s = 0; s < kRegisters && late_; ++s) {
    if (is_vcc(s) == vcc) by_vector_unit_[s] = Late();
  }
}

bool ScalarHazards::read(Wave& w, const Inst& inst, bool scalar, int s) {
  const Late &late = by_scalar_unit_[s], &vector = by_vector_unit_[s];
  const int64_t enough = scalar ? kBeforeScalar : kBeforeVector;
  if (late.inst && scalars_ - late.scalars < enough)
    return finding(w, inst, *late.inst, s, "depctr_sa_sdst(0)");
  if (scalar) {
    if (seen(s)) forget_vector(is_vcc(s));
    return true;
  }
  if (vector.inst)
    return finding(w, inst, *vector.inst, s, is_vcc(s) ? "depctr_va_vcc(0)" : "depctr_va_sdst(0)");
  seen_ |= uint64_t{1} << s / 2;
  return true;
}

void ScalarHazards::write(const Inst& inst, bool scalar, int s) {
  if (!seen(s)) return;
  if (!scalar) by_scalar_unit_[s] = Late();
  if (scalar && is_vcc(s)) by_vector_unit_[s] = Late();
  if (!scalar && !by_vector_) return;
  (scalar ? by_scalar_unit_ : by_vector_unit_)[s] = {&inst, scalars_};
  late_ = true;
}

}  // namespace fmha::emu
