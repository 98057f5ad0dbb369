// SPDX-License-Identifier: MIT OR Apache-2.0
// The clock's part of a profiled launch: it takes the traces of the sampled workgroups from the profiler,
// times each on a compute unit when it is over, and the launch on the card at the end.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "code/launch.h"
#include "model/sample.h"
#include "model/time_card.h"
#include "model/time_cu.h"
#include "model/wave_trace.h"

namespace fmha::emu {

// The request for launches that start now: fmha_emu_timing in emu_tools.h.
struct TimingRequest {
  bool on = false;
  bool only_sampled = false;
  uint32_t points = 3;
  uint32_t most_events = 0;
};
void set_timing_request(const TimingRequest& request);
TimingRequest timing_request();

class LaunchTiming {
 public:
  LaunchTiming(const Launch& launch, const TimingRequest& request);

  // True if the workgroup runs at all.
  bool runs(uint64_t workgroup) const { return !request_.only_sampled || sample_.has(workgroup); }
  // A workgroup starts; the one before it is over.
  void begin(uint64_t workgroup);
  // The wave has run an instruction, which did so many multiply-adds of matrices.
  void step(uint32_t wave, uint32_t inst, const PipeUse& use, uint64_t macs) {
    if (!recording_) return;
    traces_[wave].push_back({inst, use});
    macs_ += macs;
  }
  // An access to a line, before the L2 is asked: true if the L1 has it.
  bool load(uint64_t line) { return l1_.load(line); }
  bool recording() const { return recording_; }
  // The L1 asks the L2 for bytes.
  void request(uint64_t bytes) { l2_bytes_ += recording_ ? bytes : 0; }
  // Atomics on global memory: the bytes of their lanes.
  void add(uint64_t bytes) { atomic_bytes_ += recording_ ? bytes : 0; }

  // The launch is over, and nothing stopped it; `arrays` is the size of what it touched, in bytes. Returns
  // "time" of the record.
  nlohmann::ordered_json json(uint64_t arrays);

 private:
  void finish();
  nlohmann::ordered_json events() const;

  const Launch& launch_;
  const TimingRequest request_;
  const uint64_t workgroups_;
  const UnitShape shape_;
  const uint32_t copies_;
  const Sample sample_;
  const TimingValues values_[kTimingEnds];
  bool recording_ = false;
  uint64_t workgroup_ = 0;
  uint64_t l2_bytes_ = 0, atomic_bytes_ = 0, macs_ = 0;  // of the running workgroup
  std::vector<WaveTrace> traces_;
  L1Model l1_;
  std::map<uint64_t, CuTime> times_[kTimingEnds];
  std::map<uint64_t, double> requested_, added_, multiplied_;  // bytes and multiply-adds, by workgroup
  std::vector<IssueEvent> events_;                             // of the middle workgroup
};

}  // namespace fmha::emu
