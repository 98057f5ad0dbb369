// SPDX-License-Identifier: MIT OR Apache-2.0
// Like oracle.h, for the backward pass.
#pragma once

#include "backward/bwd_problem.h"
#include "device.h"
#include "report.h"

namespace fmha::fuzz {

void judge(const BwdCase& c, Device& device, Counts& counts);

}  // namespace fmha::fuzz
