// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <cstdint>

namespace fmha::emu {

// Private memory of a lane of a kernel that does not know how much it needs: hipLimitStackSize of the device.
uint32_t stack_limit_bytes(int device);

}  // namespace fmha::emu
