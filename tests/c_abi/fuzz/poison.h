// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "backward/bwd_problem.h"
#include "device.h"
#include "problem.h"

namespace fmha::fuzz {

// Makes NaNs of all that the problem's q, k, v and bias do not hold: rows of other sequences, columns between
// rows. A kernel that lets any of it into a result shows.
void poison(const Case& c, Device& device);
void poison(const BwdCase& c, Device& device);  // of o, lse and dout, too

}  // namespace fmha::fuzz
