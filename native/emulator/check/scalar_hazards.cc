// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/scalar_hazards.h"

#include <algorithm>

namespace fmha::emu {
namespace {

constexpr uint16_t kLiteral = 255;  // as an operand
// Scalar instructions behind which a write of the scalar unit is there, for those that read it.
constexpr int64_t kBeforeScalar = 10, kBeforeVector = 11, kNever = INT64_MAX;

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

bool has_literal(const Inst& inst) {
  if (inst.row->is(kLiteralK)) return true;
  return std::any_of(std::begin(inst.src), std::end(inst.src),
                     [](const Operand& o) { return o.kind == OperandKind::kConst && o.encoded == kLiteral; });
}

// The pair of registers that is read as a mask of lanes: a bit of ScalarHazards::seen_, or 0.
uint64_t mask_read(const Inst& inst) {
  if (inst.row->is(kLateVcc)) return uint64_t{1} << kVccLo / 2;
  const Operand& mask = inst.src[2];
  const bool named = names_mask(*inst.row) && mask.kind == OperandKind::kSgpr && mask.index < kM0;
  return named ? uint64_t{1} << mask.index / 2 : 0;
}

}  // namespace

ScalarHazards::Finding ScalarHazards::step(const Inst& inst, const Facts& f, const FactsDetail& d) {
  const bool scalar = f.unit == Unit::kScalar;
  if (!scalar && !is_vector_alu(f)) {
    const bool buffer = inst.row->format == Format::kMubuf || inst.row->format == Format::kMtbuf;
    if (of_ == Of::kAll && (f.unit == Unit::kScalarMemory || buffer)) wait(0);
    return {};
  }
  if (inst.row->immediate == Immediate::kDependency) {
    const auto fields = static_cast<uint32_t>(inst.imm);
    wait(fields);
    if (of_ == Of::kMasks && waits_sa_sdst(fields)) seen_ = 0;
    return {};
  }
  const bool branch = inst.row->is(kBranch), jump = inst.row->is(kJump);
  if (jump && of_ == Of::kMasks) {
    seen_ = 0;
    wait(0);
  }
  uint64_t pairs = 0;  // that it reads
  for (int i = 0; i < d.n_reads && !branch; ++i) {
    const Scalars r = scalars_of(d.reads[i]);
    for (int s = r.from; s < r.to; ++s) {
      pairs |= uint64_t{1} << s / 2;
      const Finding found = read(scalar, s);
      if (found.writer) return found;
    }
  }
  if (!scalar) see(inst, pairs);
  if (scalar && inst.row->format != Format::kSopp) ++scalars_;
  for (int i = 0; i < d.n_writes && !branch && !jump; ++i) {
    const Scalars r = scalars_of(d.writes[i]);
    for (int s = r.from; s < r.to; ++s) write(inst, scalar, s);
  }
  return {};
}

// A VALU instruction reads these pairs.
void ScalarHazards::see(const Inst& inst, uint64_t pairs) {
  if (of_ == Of::kAll) {
    seen_ |= pairs;
  } else if (pairs || has_literal(inst)) {
    seen_ = mask_read(inst);
  }
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

ScalarHazards::Finding ScalarHazards::read(bool scalar, int s) {
  const Late &late = by_scalar_unit_[s], &vector = by_vector_unit_[s];
  const int64_t enough = of_ == Of::kMasks ? kNever : scalar ? kBeforeScalar : kBeforeVector;
  if (late.inst && scalars_ - late.scalars < enough) return {late.inst, s, "depctr_sa_sdst(0)"};
  if (scalar && of_ == Of::kAll) {
    if (seen(s)) forget_vector(is_vcc(s));
    return {};
  }
  if (!vector.inst) return {};
  return {vector.inst, s, is_vcc(s) ? "depctr_va_vcc(0)" : "depctr_va_sdst(0)"};
}

void ScalarHazards::write(const Inst& inst, bool scalar, int s) {
  if (!scalar) by_scalar_unit_[s] = Late();
  if (scalar && is_vcc(s)) by_vector_unit_[s] = Late();
  if (!seen(s) || (!scalar && !by_vector_)) return;
  (scalar ? by_scalar_unit_ : by_vector_unit_)[s] = {&inst, scalars_};
  late_ = true;
}

}  // namespace fmha::emu
