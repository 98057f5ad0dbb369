// SPDX-License-Identifier: MIT OR Apache-2.0
// The checks that follow a wave instruction by instruction: loads in flight, LDS, hazards. launch_checks.h
// passes them the events: before each instruction, and at barriers.
//
// The device itself completes every memory operation at once. The checks track when the hardware would
// have completed it at the latest: vector memory operations complete in order, and so do LDS operations; of
// scalar loads nothing is known until their counter is 0. FLAT ones have two counters; in RDNA they complete
// in the order of either, in CDNA nothing is known until both are 0. A counter that is full stalls, so that
// no more than 63 (vmcnt) and 15 (lgkmcnt) are ever open. Stores read their data in time on this hardware
// (expcnt counts none of them).
#pragma once

#include <cstdint>
#include <vector>

#include "check/global.h"
#include "check/hazards.h"
#include "check/lds.h"
#include "code/facts.h"
#include "core/wave.h"

namespace fmha::emu {

class GroupChecks;

class WaveChecks {
 public:
  void reset(GroupChecks* group, uint32_t checks, const TextFacts* facts, const Launch& launch);
  // Checks an instruction before it runs. False: a finding has stopped the wave.
  bool before(Wave& w, const Inst& inst);
  void at_barrier(bool ended);   // the barrier of the workgroup releases
  uint32_t oldest_open() const;  // stamp of the oldest write to LDS not known complete, or 0
  QueueProgress progress;

 private:
  // An operation not known complete.
  struct Flight {
    uint32_t inst = 0, sequence = 0, stamp = 0;
    RegisterRange loaded;
    bool writes_lds = false;
    bool vector_done = false, lds_done = false;  // FLAT: by counter
    bool stores = false;                         // FLAT: its vector counter is that of stores
    uint32_t before = 0, lds_before = 0;         // what its counters had counted before it
  };
  static constexpr uint32_t kMaxVector = 63, kMaxLds = 15;  // gfx11 counts LDS to 63: the fewer the stricter

  bool in_flight(Wave& w, const Inst& inst, const Facts& f, const FactsDetail& d);
  bool memory(Wave& w, const Inst& inst, const Facts& f);
  bool lds(Wave& w, const Inst& inst, const LdsAccess& a, uint32_t stamp);
  bool lds_place(Wave& w, const Inst& inst, const LdsAccess& a, uint32_t stamp, uint32_t offset);
  bool flat(Wave& w, const Inst& inst, uint32_t stamp);
  void count(Queue queue, Flight* flight);
  void issue(Queue queue, const Flight& flight);
  void wait(const Inst& inst);
  void keep_last(Queue queue, size_t n);
  void keep_uncovered(Queue queue, uint32_t n);
  void wait_flat(const Waits& waits);
  void watch_pending();

  std::vector<Flight> open_[kQueues];      // by Queue, oldest first
  uint64_t pending_[kRegisterWords] = {};  // registers that something in flight will write
  uint32_t vector_count_ = 0, store_count_ = 0, lds_count_ = 0;  // issued, of all queues that the counter has
  Isa isa_ = Isa::kCdna3;
  HazardChecks hazards_;
  GroupChecks* group_ = nullptr;
  const TextFacts* facts_ = nullptr;
  const Inst* first_ = nullptr;
  uint32_t checks_ = 0;
};

// The state that the waves of a workgroup share.
class GroupChecks {
 public:
  void reset(const Workgroup& group, uint32_t checks);
  WaveChecks& wave(uint32_t i) { return waves_[i]; }
  LdsShadow& lds() { return lds_; }
  GlobalOrder& global() { return global_; }
  // All waves have arrived. `ended`: a bit for each wave that has ended.
  void barrier(uint32_t ended);

 private:
  std::vector<WaveChecks> waves_;
  uint32_t count_ = 0;
  LdsShadow lds_;
  GlobalOrder global_;
};

}  // namespace fmha::emu
