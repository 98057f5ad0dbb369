// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/mad64_hazard.h"

namespace fmha::emu {
namespace {

int end_of(const RegisterRange& r) { return is_vector_register(r) ? r.first + r.count : r.first; }

}  // namespace

// `spreads` becomes true where only the upper half of a sum is wrong for it.
Mad64Hazard::Finding Mad64Hazard::read(const Inst& inst, const RegisterRange& r, bool* spreads) const {
  const bool is_sum = inst.row->is(kMad64) && r.count == 2;
  for (int n = r.first; count_ && n < end_of(r); ++n) {
    if (!wrong_[n]) continue;
    if (!is_sum || n == r.first) return {wrong_[n], {static_cast<uint16_t>(n), 1}};
    *spreads = true;
  }
  return {};
}

void Mad64Hazard::written(const RegisterRange& r) {
  for (int n = r.first; count_ && n < end_of(r); ++n) {
    if (wrong_[n]) --count_;
    wrong_[n] = nullptr;
  }
}

Mad64Hazard::Finding Mad64Hazard::step(const Inst& inst, const FactsDetail& d) {
  if (!count_ && !inst.row->is(kMad64)) return {};
  bool wrong = false;
  for (int i = 0; i < d.n_reads; ++i) {
    if (const Finding found = read(inst, d.reads[i], &wrong); found.product) return found;
  }
  const RegisterRange out = d.writes[0];
  for (int i = 0; inst.row->is(kMad64) && i < d.n_reads; ++i) {
    const RegisterRange& r = d.reads[i];
    if (r == out || !r.overlaps(out)) continue;
    if (r.count != 2 || r.first + 1 != out.first) return {&inst, r};
    wrong = true;
  }
  for (int i = 0; i < d.n_writes; ++i) written(d.writes[i]);
  if (wrong) {
    wrong_[out.first + 1] = &inst;
    ++count_;
  }
  return {};
}

}  // namespace fmha::emu
