// SPDX-License-Identifier: MIT OR Apache-2.0
// Running one grid: the workgroups on all cores, the waves of a workgroup in turn between barriers.
#pragma once

#include <cstdint>

#include "code/launch.h"

namespace fmha::emu {

// Instructions a wave may run, against endless loops: $FMHA_EMU_MAX_INSTRUCTIONS.
uint64_t instruction_budget();

// Runs the grid to its end on this machine's cores ($FMHA_EMU_THREADS limits them).
LaunchResult run(const Launch& launch);

}  // namespace fmha::emu
