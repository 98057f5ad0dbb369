// SPDX-License-Identifier: MIT OR Apache-2.0
// The instructions that this machine's CPU has.
#pragma once

namespace fmha::emu {

// The highest N of x86-64-vN, with the operating system's support for its registers; 1 for any x86-64.
int x86_64_level();

}  // namespace fmha::emu
