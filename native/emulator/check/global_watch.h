// SPDX-License-Identifier: MIT OR Apache-2.0
// A checked launch asks this of accesses to global memory that are inside an allocation:
// - a load reads nothing that nobody wrote (kCheckGlobalUnwritten, for memory that emu_tools.h tracks);
// - a store or atomic writes nothing that the launch declared read-only (kCheckReadOnly);
// - no two workgroups store to the same byte, and none stores what another loads in this launch, unless by
//   atomics or with loads at device scope (kCheckGlobalRace);
// - a scalar load is aligned (kCheckMisaligned);
// - a buffer access stays in the allocation that its resource's base address lies in (kCheckResource).
//
// Alignment, by class. Linux runs these GPUs with SH_MEM_CONFIG.alignment_mode = unaligned. In that mode
// - loads and stores of MUBUF, FLAT, GLOBAL, SCRATCH and DS (b64, b96, b128, read2 and write2 too) work at
//   any byte address: nothing to report;
// - atomics of MUBUF, FLAT, GLOBAL and DS fault unless naturally aligned: always reported, checks or not;
// - scalar loads do not fault, but drop the two low bits of the address: that reads something else than was
//   asked for, so it is reported.
//
// The race check sees a race whichever access ran first. An atomic that returns a value, or a load at device
// scope, is taken to order all that its workgroup does next: a lock, or "the last one adds it all up".
// Workgroups that stored are known by their number modulo 65535 and those that loaded by theirs modulo 254,
// so that one pair in so many goes unseen, as may accesses that two threads of the host make at the same
// instant. Memory, while the launch runs: the pages of 2 bytes for each stored and 1 for each loaded.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "check/config.h"
#include "core/memory.h"
#include "core/shadow.h"

namespace fmha::emu {

class GlobalOrder;  // global.h
struct Inst;
struct Wave;

constexpr uint64_t kChunk = 16;  // bytes: what a lane loads at most

// An array of tags for an allocation, all 0 at first. Pages that nobody touches cost nothing.
template <class Tag>
class Tags {
 public:
  explicit Tags(uint64_t count) : count_(count) {}
  ~Tags();
  Tags(const Tags&) = delete;
  Tags& operator=(const Tags&) = delete;
  Tag* get() const { return tags_.load(std::memory_order_acquire); }  // null: none made yet
  Tag* make();                                                        // null: no host memory

 private:
  const uint64_t count_;
  std::atomic<Tag*> tags_{nullptr};
};

// An allocation in the course of one launch.
struct WatchedAllocation {
  explicit WatchedAllocation(const Allocation& a);
  bool holds(uint64_t address) const { return address - of.base < of.bytes; }

  const Allocation of;
  const bool shared;  // memory that several workgroups may reach, not a wave's own
  const std::shared_ptr<UnwrittenBits> unwritten;  // null: not tracked
  Tags<uint16_t> writers;                          // the workgroup that stored last
  // The workgroup that loaded, or kSeveral: of chunks that were loaded whole, as most are, and of other
  // bytes.
  Tags<uint8_t> chunk_readers, byte_readers;
};

// The watch of one launch, which the threads that run it share.
class LaunchWatch {
 public:
  LaunchWatch(uint32_t checks, std::vector<Range> read_only);
  WatchedAllocation* find(uint64_t address);  // null: in no allocation
  // Tells whether waves need a watch: for checks, or to note what they write.
  bool needed() const { return checks_ & kGlobalChecks || unwritten_any(); }
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

// The watch of one workgroup. Its functions fault the wave and return false at the first finding.
class GlobalWatch {
 public:
  // `order`: of the accesses of its waves among each other; null: not checked.
  GlobalWatch(LaunchWatch& launch, uint64_t workgroup, GlobalOrder* order)
      : launch_(launch),
        order_(order),
        writer_(static_cast<uint16_t>(workgroup % 65535 + 1)),
        reader_(static_cast<uint8_t>(workgroup % (kSeveral - 1) + 1)) {}

  bool check(Wave& w, const Inst& inst, const Run& run);
  bool wants(uint32_t check) const { return launch_.checks() & check; }

 private:
  static constexpr uint8_t kSeveral = 255;
  WatchedAllocation* find(uint64_t address);
  bool check_resource(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a);
  bool check_unwritten(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a);
  bool check_read_only(Wave& w, const Inst& inst, const Run& run);
  bool check_load_race(Wave& w, const Inst& inst, const Run& run, WatchedAllocation& a);
  bool check_store_race(Wave& w, const Inst& inst, const Run& run, WatchedAllocation& a);
  bool note_load(WatchedAllocation& a, uint64_t start, uint64_t bytes);  // false: no host memory
  uint64_t first_loaded(const WatchedAllocation& a, uint64_t start, uint64_t bytes) const;
  bool no_memory(Wave& w, const Inst& inst);

  LaunchWatch& launch_;
  GlobalOrder* const order_;
  const uint16_t writer_;  // this workgroup's tags
  const uint8_t reader_;
  bool synchronized_ = false;  // it may have learnt what other workgroups did
  WatchedAllocation* recent_[8] = {};
  uint32_t next_ = 0;
};

}  // namespace fmha::emu
