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

#include "check/facts.h"

namespace fmha::emu {

class PartialForwarding {
 public:
  // The instruction that wrote the older VGPR, if `inst` comes too early. Else null, and it counts as issued.
  const Inst* step(const Inst& inst, const Facts& f, const FactsDetail& d);

 private:
  static constexpr int kKept = 8;  // no more VALU instructions than these can matter
  struct Writer {
    const Inst* inst = nullptr;
    const FactsDetail* detail = nullptr;
  };
  // The VALU instructions between the last one that wrote some of `r` and the next; -1: none is near.
  int distance(const RegisterRange& r) const;

  Writer recent_[kKept];   // VALU instructions, in a ring
  int64_t valu_ = 0;       // issued
  int64_t exec_at_ = -99;  // how many were when the scalar unit wrote EXEC last
};

}  // namespace fmha::emu
