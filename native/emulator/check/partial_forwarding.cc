// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/partial_forwarding.h"

#include <algorithm>

#include "core/wave.h"

namespace fmha::emu {
namespace {

constexpr int kMostBehind = 4;  // between the younger VGPR's writer and who reads both
constexpr int kMostAround = 2;  // around the write of EXEC

bool is_vector_register(const RegisterRange& r) { return r.first < kFirstScalar; }

bool writes_exec(const FactsDetail& d) {
  return std::any_of(d.writes, d.writes + d.n_writes, [](const RegisterRange& r) {
    return r.first <= kFirstScalar + kExecLo + 1 && r.first + r.count > kFirstScalar + kExecLo;
  });
}

}  // namespace

int PartialForwarding::distance(const RegisterRange& r) const {
  for (int k = 0; k < kKept && k < valu_; ++k) {
    const Writer& writer = recent_[(valu_ - 1 - k) % kKept];
    if (!writer.inst) break;
    for (int i = 0; i < writer.detail->n_writes; ++i) {
      if (writer.detail->writes[i].overlaps(r)) return k;
    }
  }
  return -1;
}

const Inst* PartialForwarding::step(const Inst& inst, const Facts& f, const FactsDetail& d) {
  if (f.unit == Unit::kScalar) {
    if (writes_exec(d)) exec_at_ = valu_;
    const bool waits = inst.row->immediate == Immediate::kDependency && (inst.imm >> 12 & 15) == 0;
    if (waits) std::fill(std::begin(recent_), std::end(recent_), Writer());
    return nullptr;
  }
  if (f.unit != Unit::kVector && f.unit != Unit::kMatrix) {
    if (f.unit != Unit::kScalarMemory) std::fill(std::begin(recent_), std::end(recent_), Writer());
    return nullptr;
  }
  const int exec = static_cast<int>(std::min<int64_t>(valu_ - exec_at_, kKept + 1));
  int older = kKept + 1, younger = kKept + 1;
  for (int i = 0; i < d.n_reads && exec <= kKept; ++i) {
    const int at = is_vector_register(d.reads[i]) ? distance(d.reads[i]) : -1;
    if (at >= 0) (at >= exec ? older : younger) = std::min(at >= exec ? older : younger, at);
  }
  const bool both = older <= kKept && younger <= kMostBehind;
  if (both && older - younger - 1 <= kMostAround) return recent_[(valu_ - 1 - older) % kKept].inst;
  recent_[valu_++ % kKept] = {&inst, &d};
  return nullptr;
}

}  // namespace fmha::emu
