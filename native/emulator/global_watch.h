// SPDX-License-Identifier: MIT OR Apache-2.0
// What a checked launch asks of accesses to global memory that are inside an allocation:
// - a load reads nothing that nobody wrote (kCheckGlobalUnwritten, where emu_tools.h turned tracking on);
// - a store or atomic writes nothing that the launch declared read-only (kCheckReadOnly);
// - no two workgroups store to the same byte, and none loads what another stored in this launch, unless by
//   atomics or at device scope (kCheckGlobalRace);
// - a scalar load is aligned (kCheckMisaligned).
//
// Alignment, by class. Linux runs these GPUs with SH_MEM_CONFIG.alignment_mode = unaligned, where
// - loads and stores of MUBUF, FLAT, GLOBAL, SCRATCH and DS (b64, b96, b128, read2 and write2 too) work at
// any
//   byte address: nothing to report;
// - atomics of MUBUF, FLAT, GLOBAL and DS fault unless naturally aligned: always reported, checks or not;
// - scalar loads do not fault, but drop the two low bits of the address: that reads something else than was
//   asked for, so it is reported.
//
// The race check sees a store after a store and a load after a store, in the order in which the workgroups
// ran; a load that ran before the store it races with is seen when the workgroups run in another order. It
// knows a workgroup by its number modulo 65535, so that one pair in 65535 goes unseen.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "memory.h"
#include "shadow.h"

namespace fmha::emu {

struct Inst;
struct Wave;

// An allocation in the course of one launch.
struct WatchedAllocation {
  explicit WatchedAllocation(const Allocation& a);
  ~WatchedAllocation();
  WatchedAllocation(const WatchedAllocation&) = delete;
  WatchedAllocation& operator=(const WatchedAllocation&) = delete;

  bool holds(uint64_t address) const { return address - of.base < of.bytes; }
  // The tag of the workgroup that stored there last, one a byte, 0 for none. Made at the first store; null:
  // no host memory.
  uint16_t* make_writers();

  const Allocation of;
  const bool shared;  // memory that several workgroups may reach, not a wave's own
  const std::shared_ptr<UnwrittenBits> unwritten;  // null: not tracked
  std::atomic<uint16_t*> writers{nullptr};

 private:
  size_t writers_bytes() const;
};

// Of one launch, shared by the threads that run it.
class LaunchWatch {
 public:
  LaunchWatch(uint32_t checks, std::vector<Range> read_only);
  WatchedAllocation* find(uint64_t address);  // null: in no allocation
  uint32_t checks() const { return checks_; }
  const std::vector<Range>& read_only() const { return read_only_; }

 private:
  const uint32_t checks_;
  const std::vector<Range> read_only_;
  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<WatchedAllocation>> by_base_;
};

// Consecutive lanes that access consecutive bytes.
struct Run {
  uint64_t address, bytes;
  int lane;             // the first
  uint32_t lane_bytes;  // of each
  int lane_at(uint64_t offset) const {
    return lane < 0 ? lane : lane + static_cast<int>(offset / lane_bytes);
  }
};

// Of one workgroup. Faults the wave and returns false at the first finding.
class GlobalWatch {
 public:
  GlobalWatch(LaunchWatch& launch, uint64_t workgroup)
      : launch_(launch), tag_(static_cast<uint16_t>(workgroup % 65535 + 1)) {}

  bool check(Wave& w, const Inst& inst, const Run& run);
  bool wants(uint32_t check) const { return launch_.checks() & check; }

 private:
  WatchedAllocation* find(uint64_t address);
  bool check_unwritten(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a);
  bool check_read_only(Wave& w, const Inst& inst, const Run& run);
  bool check_load_race(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a);
  bool claim(Wave& w, const Inst& inst, const Run& run, WatchedAllocation& a);
  bool race(Wave& w, const Inst& inst, const Run& run, uint64_t offset, uint16_t other);

  LaunchWatch& launch_;
  const uint16_t tag_;
  WatchedAllocation* recent_[8] = {};
  uint32_t next_ = 0;
};

}  // namespace fmha::emu
