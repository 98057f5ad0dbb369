// SPDX-License-Identifier: MIT OR Apache-2.0
// How long a card takes over a launch whose sampled workgroups have been timed on a compute unit.
//
// Workgroups go to the XCDs in turn, and on an XCD to the compute unit that has room first, so rounds and the
// tail come out by themselves. No launch is faster than what it moves through L2, Infinity Cache and HBM at
// their bandwidths, or than its atomics at theirs. The clock falls with the use of the matrix and vector
// ports.
#pragma once

#include <cstdint>
#include <map>

#include "model/sample.h"
#include "model/time_cu.h"

namespace fmha::emu {

// The bytes that a launch moves, over the whole grid.
struct Traffic {
  double l2_bytes = 0;      // that L1s ask the L2s for
  double memory_bytes = 0;  // that cross the fabric at least: each byte of the arrays once
  double atomic_bytes = 0;  // of the lanes of atomics on global memory
};

// A launch at one end of the constants.
struct CardTime {
  double cycles = 0, seconds = 0, clock_hz = 0;
  // Busy shares of a compute unit that has work: of ports and pipes; and of time in which neither matrix nor
  // vector port ran because of a wait or a barrier. memory: the share of the launch that its traffic
  // or its atomics need.
  double matrix = 0, vector = 0, lds = 0, l1 = 0, memory = 0, latency = 0, barriers = 0;
};

class CardModel {
 public:
  CardModel(const Sample& sample, uint64_t workgroups, uint32_t copies, const TimingValues& values,
            const UnitShape& shape)
      : sample_(sample), workgroups_(workgroups), copies_(copies), values_(values), shape_(shape) {}
  // `times`: by workgroup, of `copies` of it on one compute unit.
  CardTime run(const std::map<uint64_t, CuTime>& times, const Traffic& traffic) const;

 private:
  template <class Get>
  Sample::Fit fit(const std::map<uint64_t, CuTime>& times, Get get) const;
  double makespan(const Sample::Fit& cycles) const;

  const Sample& sample_;
  const uint64_t workgroups_;
  const uint32_t copies_;
  const TimingValues& values_;
  const UnitShape& shape_;
};

}  // namespace fmha::emu
