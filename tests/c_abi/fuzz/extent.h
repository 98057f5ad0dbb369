// SPDX-License-Identifier: MIT OR Apache-2.0
// A duty of the caller that the library cannot check: every tensor lies in memory as a whole.
#pragma once

#include "device.h"
#include "problem.h"

namespace fmha::fuzz {

// Returns whether every element that an accepted problem may touch is in one of the device's regions, and the
// arrays of lengths are where the case put them.
bool lies_in_memory(const Case& c, const Device& device);

// Copies what the problem may write from `now` to `before` (both Device::contents), so that whatever else
// differs between them was written without leave. False if a value written is not one it may be.
bool take_results(const Case& c, const Device& device, std::vector<uint8_t>& before,
                  const std::vector<uint8_t>& now);

}  // namespace fmha::fuzz
