// SPDX-License-Identifier: MIT OR Apache-2.0
// The order of a workgroup's waves between barriers: $FMHA_EMU_SCHEDULE is "round" (the default:
// each in turn to its next barrier), "reverse" (the last first), or "random:<seed>" (now this one, now that
// one, a few instructions at a time), so that a kernel that is right by luck of the order is not.
#pragma once

#include <cstdint>
#include <string>

namespace fmha::emu {

struct Schedule {
  enum Kind : uint8_t { kRound, kReverse, kRandom } kind = kRound;
  uint64_t seed = 0;
};

// False, and *error set, if $FMHA_EMU_SCHEDULE is none of these.
bool schedule_from_environment(Schedule* schedule, std::string* error);
void check_schedule_variable();  // ends the process then

// The choices for one workgroup: the same for the same seed and workgroup, on whatever thread it runs.
class WaveOrder {
 public:
  WaveOrder(const Schedule& schedule, uint64_t workgroup);
  // One of the waves whose bits are set in `running`, of which there is one.
  uint32_t next(uint32_t running);
  // One of n things to do next, of which the first is 0.
  uint64_t choose(uint64_t n);
  // How many instructions it may run before the next choice.
  uint64_t slice();

 private:
  uint64_t random();
  const Schedule::Kind kind_;
  uint64_t state_;
};

}  // namespace fmha::emu
