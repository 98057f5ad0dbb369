// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/partial_forwarding.h"

#include <algorithm>
#include <iterator>

namespace fmha::emu {
namespace {

constexpr int kMostBehind = 4;  // between the younger VGPR's writer and who reads both
constexpr int kMostAround = 2;  // around the write of EXEC

}  // namespace

int PartialForwarding::distance(const RegisterRange& r) const {
  for (int k = 0; k < kKept; ++k) {
    const Writer& writer = before(k);
    if (!writer.inst) break;
    for (int i = 0; i < writer.detail->n_writes; ++i) {
      if (writer.detail->writes[i].overlaps(r)) return k;
    }
  }
  return kNone;
}

const Inst* PartialForwarding::step(const Inst& inst, const Facts& f, const FactsDetail& d) {
  if (f.unit == Unit::kScalar) {
    if (writes_exec(d)) ++execs_;
    if (waits_for_vgprs(inst)) std::fill(std::begin(recent_), std::end(recent_), Writer());
    return nullptr;
  }
  if (!is_vector_alu(f)) {
    if (f.unit != Unit::kScalarMemory) std::fill(std::begin(recent_), std::end(recent_), Writer());
    return nullptr;
  }
  int at[std::size(FactsDetail().reads)], younger = kNone;
  for (int i = 0; i < d.n_reads; ++i) {
    at[i] = is_vector_register(d.reads[i]) ? distance(d.reads[i]) : kNone;
    younger = std::min(younger, at[i]);
  }
  for (int i = 0; i < d.n_reads && younger <= kMostBehind; ++i) {
    const bool across = at[i] != kNone && before(at[i]).execs < before(younger).execs;
    if (across && at[i] - younger - 1 <= kMostAround) return before(at[i]).inst;
  }
  recent_[valu_++ % kKept] = {&inst, &d, execs_};
  return nullptr;
}

}  // namespace fmha::emu
