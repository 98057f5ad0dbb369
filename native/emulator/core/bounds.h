// SPDX-License-Identifier: MIT OR Apache-2.0
// Where an allocation ends for a device that accesses it. $FMHA_EMU_BOUNDS is "byte" (default), its last
// byte, or "page", the end of the page of 4 KiB that this lies in: a card finds no less, and programs read an
// element behind an array.
#pragma once

#include "core/memory.h"

namespace fmha::emu {

// Ends the process if the variable is neither. Read once.
bool bounds_are_pages();
// The allocation that a device which accesses `address` touches; its bytes are those up to where it ends so.
bool memory_within_reach(uint64_t address, Allocation* out);

}  // namespace fmha::emu
