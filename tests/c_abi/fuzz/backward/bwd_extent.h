// SPDX-License-Identifier: MIT OR Apache-2.0
// Like extent.h, for backward problems.
#pragma once

#include <cstdint>
#include <vector>

#include "backward/bwd_problem.h"
#include "device.h"

namespace fmha::fuzz {

bool lies_in_memory(const BwdCase& c, const Device& device);

bool take_results(const BwdCase& c, const Device& device, std::vector<uint8_t>& before,
                  const std::vector<uint8_t>& now);

}  // namespace fmha::fuzz
