// SPDX-License-Identifier: MIT OR Apache-2.0
// The checks that run: all but kOffByDefault, unless $FMHA_EMU_CHECKS says otherwise.
#pragma once

#include <cstdint>
#include <string>

namespace fmha::emu {

// A bit a check. Adding one is an enumerator here and its name in check/config.cc.
enum Check : uint32_t {
  kCheckLdsUnwritten = 1u << 0,  // reads of LDS bytes that nobody wrote
  kCheckLdsRace = 1u << 1,       // waves that touch the same LDS bytes with no barrier between
  kCheckWaits = 1u << 2,         // registers and LDS used before an s_waitcnt covers their load
  kCheckHazards = 1u << 3,       // wait states that the manual leaves to software
  // Races in LDS in which a second wave writes the value that the first has written: both orders leave the
  // same bytes. Compilers do so where threads hold copies of a value, so it is off by default.
  kCheckLdsRaceEqual = 1u << 4,
  // The hazards of AITER's hand-written kernels, which AMD ships and which work on its cards: their authors
  // count on less than LLVM's tables ask for. Off by default; of all other kernels `hazards` finds them.
  kCheckHazardsShipped = 1u << 5,
  // gfx12's late scalar registers that the vector unit has written: scalar_hazards.h. Off by default, since
  // clang knows of them from 21 on.
  kCheckHazardsVectorScalar = 1u << 6,
  // Checks of global memory, in global_watch.h. Bounds are always checked.
  kCheckGlobalUnwritten = 1u << 8,  // reads of bytes that nobody wrote, if tracked (emu_tools.h)
  kCheckReadOnly = 1u << 9,         // writes to what the launch declared read-only
  kCheckGlobalRace = 1u << 10,      // waves, of one workgroup or of two, that touch the same bytes unordered
  kCheckMisaligned = 1u << 11,      // scalar loads whose low address bits the hardware drops
  kCheckGlobalDrain = 1u << 13,     // stores that a barrier publishes before they have completed
  kCheckResource = 1u << 12,        // buffer accesses outside the allocation that their resource starts in
};

constexpr uint32_t kOffByDefault = kCheckLdsRaceEqual | kCheckHazardsShipped | kCheckHazardsVectorScalar;

// The checks of accesses to global memory.
constexpr uint32_t kGlobalChecks = kCheckGlobalUnwritten | kCheckReadOnly | kCheckGlobalRace |
                                   kCheckGlobalDrain | kCheckMisaligned | kCheckResource;

// The checks that follow each wave, instruction by instruction.
constexpr uint32_t kWaveChecks = kCheckLdsUnwritten | kCheckLdsRace | kCheckLdsRaceEqual | kCheckWaits |
                                 kCheckHazards | kCheckGlobalRace | kCheckGlobalDrain;

// Reads a list such as "-lds-race,-waits" or "none,hazards": starting from the default, from left to right,
// "none" and "all" mean what they say, "-name" takes one away and "name" adds one. Null and "": the default.
// False, and *error set, if a word is no check.
bool parse_checks(const char* list, uint32_t* checks, std::string* error);
// The same of $FMHA_EMU_CHECKS, read anew each time: tests switch checks between launches.
bool checks_from_environment(uint32_t* checks, std::string* error);
void check_checks_variable();  // ends the process if a word is no check

}  // namespace fmha::emu
