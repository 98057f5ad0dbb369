// SPDX-License-Identifier: MIT OR Apache-2.0
// What the two files of DS instructions share.
#pragma once

#include "core/wave.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

// GDS is gone from everything we know to be compiled for these GPUs.
inline bool ds_refused(Wave& w, const Inst& inst) {
  if (!inst.gds) [[likely]]
    return false;
  w.fault(inst, 719, "global data share (gds) is not implemented");
  return true;
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
