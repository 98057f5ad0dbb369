// SPDX-License-Identifier: MIT OR Apache-2.0
// gfx11, waves of 64: a VALU instruction reads two VGPRs of which one was written before the scalar unit
// wrote EXEC and one after that, all within a few VALU instructions. It may get a mixture of old and new
// values.
//
//   v_a written         [up to two VALU instructions in the two gaps together]
//   EXEC written
//   v_b written         [up to four]
//   v_a and v_b read
//
// s_waitcnt_depctr depctr_va_vdst(0) mends it, and so does an instruction of LDS or vector memory. Source:
// LLVM's fixVALUPartialForwardingHazard.
#pragma once

#include <cstdint>

#include "code/facts.h"

namespace fmha::emu {

class PartialForwarding {
 public:
  // The instruction that wrote the older VGPR, if `inst` comes too early. Else null, and it counts as issued.
  const Inst* step(const Inst& inst, const Facts& f, const FactsDetail& d);

 private:
  static constexpr int kKept = 8;      // no more VALU instructions than these can matter
  static constexpr int kNone = kKept;  // none of them
  struct Writer {
    const Inst* inst = nullptr;
    const FactsDetail* detail = nullptr;
    int64_t execs = 0;  // the scalar unit's writes of EXEC before it
  };
  // The VALU instruction that has `k` others between itself and the next one.
  const Writer& before(int k) const { return recent_[(valu_ + kKept - 1 - k) % kKept]; }
  // How many there are between the last one that wrote some of `r` and the next.
  int distance(const RegisterRange& r) const;

  Writer recent_[kKept];  // VALU instructions, in a ring
  int64_t valu_ = 0;      // issued
  int64_t execs_ = 0;     // the scalar unit's writes of EXEC
};

}  // namespace fmha::emu
