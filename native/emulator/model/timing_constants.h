// SPDX-License-Identifier: MIT OR Apache-2.0
// The constants of the software device's clock, beside the card's own numbers (profile_constants.h): each is
// a range with its source. A launch is modelled at the fast ends of all of them, and at the slow ends.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fmha::emu {

enum class TimingKey : uint8_t {
  kLdsLatency,
  kScalarLatency,
  kL1Latency,
  kL2Latency,
  kMallLatency,
  kHbmLatency,
  kStoreLatency,
  kQueueCycles,
  kTakenBranchSlots,
  kBranchSlots,
  kBarrierSlots,
  kMatrixResultSlots,
  kMatrixIssueSlots,
  kVectorResultSlots,
  kTranscendentalSlots,
  kMatrixSlots,
  kTranscendentalIssueSlots,
  kStartCycles,
  kLaunchSeconds,
  kL2Bandwidth,
  kMallBandwidth,
  kHbmBandwidth,
  kAtomicBandwidth,
  kClockMatrix,
  kClockVector,
};
constexpr size_t kTimingKeys = 25;

// A row of the table. `fast` is the end at which launches take less time: the lower latency, but the higher
// bandwidth.
struct TimingConstant {
  const char* name;
  double fast, slow;
  const char* unit;
  const char* source;
};

// All constants at one end.
class TimingValues {
 public:
  double operator[](TimingKey key) const { return value_[static_cast<size_t>(key)]; }
  uint64_t whole(TimingKey key) const { return static_cast<uint64_t>(std::llround((*this)[key])); }
  double& at(TimingKey key) { return value_[static_cast<size_t>(key)]; }

 private:
  std::array<double, kTimingKeys> value_{};
};

constexpr size_t kTimingEnds = 2;  // 0: fast, 1: slow

// Tells whether the card (profile_card()) has constants.
bool has_clock();
// The table of the card (profile_card()) as it stands: in the order of the keys.
std::array<TimingConstant, kTimingKeys> timing_constants();
TimingValues timing_values(size_t end);
std::optional<TimingKey> timing_key(std::string_view name);
// Replaces a range, until reset_timing_constants(); for calibration and tests. Any thread.
void set_timing_constant(TimingKey key, double fast, double slow);
void reset_timing_constants();

}  // namespace fmha::emu
