// SPDX-License-Identifier: MIT OR Apache-2.0
// The code that the two files of DS instructions share.
#pragma once

#include "isa/lanes.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

// No compiler emits GDS instructions for these GPUs.
inline bool ds_refused(Wave& w, const Inst& inst) {
  if (!inst.gds) [[likely]]
    return false;
  w.fault(inst, hipErrorLaunchFailure, "global data share (gds) is not implemented");
  return true;
}

// Two places, at offsets in units of a value, or of 64 values.
constexpr RowFlags two_offsets(uint32_t unit) { return kTwoOffsets | (unit == 64 ? RowFlags{kStride64} : 0); }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
