// SPDX-License-Identifier: MIT OR Apache-2.0
// Properties of every call, whatever its arguments.
#pragma once

#include "bytes.h"
#include "device.h"
#include "problem.h"
#include "report.h"

namespace fmha::fuzz {

// Makes all calls on a case; ends the process with a report if one did what it may not.
void judge(const Case& c, Bytes& bytes, Device& device, Counts& counts);

}  // namespace fmha::fuzz
