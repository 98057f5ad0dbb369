// SPDX-License-Identifier: MIT OR Apache-2.0
// gfx11.0: v_mad_u64_u32 and v_mad_i64_i32 work in two parts, and the second may read what the first has
// written. So the result must not overlap a source.
//
// The third source may be the same registers as the result, say LLVM's tests. Its upper register may also be
// the result's lower one: then only the upper half of the result is wrong. LLVM makes such instructions of
// sums of 32 bits, whose upper half nobody needs. So that is a finding where somebody reads it, and where the
// reader is such an instruction that takes it for the upper half of its third source, its own upper half is
// wrong too.
//
// Source: LLVM's FeatureMADIntraFwdBug, by which its register allocator keeps results and sources apart.
#pragma once

#include "code/facts.h"

namespace fmha::emu {

class Mad64Hazard {
 public:
  struct Finding {
    const Inst* product = nullptr;  // null: none
    RegisterRange source;           // what is wrong when it is read
  };
  // `inst` comes next, and then counts as issued.
  Finding step(const Inst& inst, const FactsDetail& d);

 private:
  static constexpr int kVectorRegisters = 256;

  Finding read(const Inst& inst, const RegisterRange& r, bool* spreads) const;
  void written(const RegisterRange& r);

  const Inst* wrong_[kVectorRegisters] = {};  // by register: whose upper half it is, if it is wrong
  int count_ = 0;                             // of those
};

}  // namespace fmha::emu
