// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "hip_state.h"

namespace fmha::emu {

int record_event(HipEvent event, HipStream stream, const char* function);

}  // namespace fmha::emu
