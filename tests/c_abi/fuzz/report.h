// SPDX-License-Identifier: MIT OR Apache-2.0
// Properties of every function's calls, and the report of violations.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device.h"
#include "fmha_rocm.h"
#include "problem.h"

namespace fmha::fuzz {

struct Counts {
  uint64_t cases, refused, accepted, launched, empty;
};

// Prints them at the end of the process.
void print_counts_at_exit(const Counts& counts);

// Prints the case under judgement.
extern std::function<void()> print_case;

// Ends the process.
[[noreturn, gnu::format(printf, 1, 2)]] void report(const char* format, ...);

// A call may refuse with these statuses, and a message that names an argument.
void check_refusal(const char* call, fmha_status status, const Device& device);

// Call it after a call that must not touch memory.
void check_untouched(const char* call, const Device& device);

// Writes the case's lengths to the device.
void put_lengths(const Case& c, Device& device);

// The name of a region that differs; nullptr if none does.
const char* difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b);

}  // namespace fmha::fuzz
