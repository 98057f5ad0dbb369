// SPDX-License-Identifier: MIT OR Apache-2.0
// The FMHA_EMU_* variables, which the README lists. Nothing runs with another setting than the one asked for:
// a value that cannot be taken ends the process with a message that names it.
#pragma once

#include <cstdint>

namespace fmha::emu {

// The variable's text; nullptr if it is unset or empty.
const char* environment_text(const char* name);

// The variable as a decimal number from `least` to `most`; `missing` if it is unset or empty.
uint64_t environment_number(const char* name, uint64_t least, uint64_t most, uint64_t missing);

// Says on stderr that `name` must be `expected`, and aborts.
[[noreturn]] void reject_environment(const char* name, const char* expected);

}  // namespace fmha::emu
