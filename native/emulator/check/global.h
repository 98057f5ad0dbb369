// SPDX-License-Identifier: MIT OR Apache-2.0
// Tells when waves of one workgroup access the same bytes of global memory and nothing orders them.
//
// Between two barriers no wave may load or store what another one stores, nor store what another one loads. A
// barrier orders a store if its own wave has waited for it (s_waitcnt vmcnt) before: others may rely on it
// from then on, and it is forgotten. A barrier orders every load that was issued before it. Scalar loads have
// a cache of their own, so even the wave that stored must wait before one.
//
// Exempt: stores of what is there already, since tiles that several waves hold are stored by all of them;
// atomics, accesses with scope bits (sc0, sc1; glc), and whatever a wave does, up to the next barrier, after
// an atomic that returns a value or a load with scope bits: that may be a lock or a flag.
//
// LLVM's memory model lets waves of a workgroup that runs on one CU (all but tgsplit code) exchange global
// data over a bare s_barrier, since they share a vector L1 that works in order; the ISA guides promise no
// such thing. Code that was compiled on that model passes without the check called global-drain.
//
// Cost: loads are noted a run of lanes at a time, and looked at only if somebody stores to the same
// allocation before the next barrier. If more than kMostLoads come without a barrier, the older half
// is forgotten; if more than kMostStores, all of them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "check/lds.h"

namespace fmha::emu {

struct Run;                // global_watch.h
struct WatchedAllocation;  // global_watch.h

class GlobalOrder {
 public:
  // Begins a new workgroup of `waves`, whose progress the caller keeps up to date.
  void reset(std::vector<QueueProgress*> waves, uint32_t checks);
  // An access inside `a`. False after a finding.
  bool access(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a);
  // The wave has got a value that another one may have sent it as a signal.
  void signalled(uint32_t wave) { signalled_ |= 1u << wave; }
  // All waves have arrived, and their progress says how far they had come.
  void barrier();

 private:
  struct Access {
    uint64_t address = 0, bytes = 0;
    const Inst* inst = nullptr;
    uint32_t wave = 0, sequence = 0, lane_bytes = 1;
    int lane = 0;
    Queue queue = Queue::kVector;
    bool crossed = false;  // a barrier, while in flight
    bool overlaps(const Access& o) const {
      return address < o.address + o.bytes && o.address < address + bytes;
    }
  };
  using ByAddress = std::multimap<uint64_t, Access>;
  struct Log {
    const WatchedAllocation* of = nullptr;
    std::vector<Access> fresh;  // loads that nobody has had to look up
    ByAddress loads, stores;
  };
  static constexpr uint64_t kLongest = kMostLanes * 16;  // bytes of one access: 16 of each lane
  static constexpr size_t kMostLoads = 1u << 16, kMostStores = 1u << 16;

  Log& log_of(const WatchedAllocation& a);
  Access make(const Wave& w, const Inst& inst, const Run& run) const;
  bool drained(const Access& a) const;
  bool load(Wave& w, Log& log, const Access& now);
  bool store(Wave& w, const Inst& inst, Log& log, const Access& now);
  void remember_store(Log& log, const Access& now);
  template <class Conflict>
  const Access* find(const ByAddress& among, const Access& now, Conflict conflict) const;
  bool report(Wave& w, const Access& now, const Access& earlier, bool stores, bool stored) const;

  std::vector<QueueProgress*> waves_;
  std::vector<Log> logs_;
  uint32_t signalled_ = 0;           // a bit a wave
  bool race_ = true, drain_ = true;  // kCheckGlobalRace, kCheckGlobalDrain
};

}  // namespace fmha::emu
