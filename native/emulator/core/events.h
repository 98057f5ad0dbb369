// SPDX-License-Identifier: MIT OR Apache-2.0
// The events of a launch, and who hears of them.
//
// The device runs instructions. It neither judges nor counts them: it tells observers. A LaunchObserver
// watches one launch and gives a GroupObserver for each of its workgroups; which events those hear of, it
// says once.
//
//   event                        told by                        when
//   LaunchObserver::begin, end   dispatch.cc                    a workgroup starts; the launch is over
//   before, after                the run loop in dispatch.cc    around each instruction, not around what is
//                                                               none
//   global, scalar,              the instruction's body,        before memory is touched, with every check
//   scratch, lds                 through the Wave               of bounds passed
//   barrier                      dispatch.cc                    each wave of a workgroup has arrived or ended
//
// Who observes a launch is decided in observers.cc, and nowhere else: the profile (model/profile.h), the
// trace (launch/trace.cc) and the checks (check/launch_checks.h) today. A new observer is a class and a line
// there.
//
// Events of one workgroup come from one thread, in program order of each wave. Those of several workgroups
// come from several threads, unless an observer asks for workgroups in order.
//
// Cost: a launch that nobody observes runs a loop that is compiled without events (NoObservers), and its
// memory instructions test one word of the wave. In an observed launch an event costs one virtual call for
// each observer that asked for it, and nothing for the others.
#pragma once

#include <cstdint>

#include "core/wave.h"

namespace fmha::emu {

struct LaunchResult;  // code/launch.h

// Hears of one workgroup. Where a function returns bool, false stops the wave, which the observer must have
// told why (Wave::fault).
class GroupObserver {
 public:
  virtual ~GroupObserver() = default;

  // Around an instruction as it stands in the text, even if VGPR indexing runs another in its place.
  virtual bool before(Wave&, const Inst&) { return true; }
  virtual void after(Wave&, const Inst&) {}

  // Global memory: a lane accesses `bytes` at `address`; lane -1: a scalar instruction does.
  virtual bool global(Wave&, const Inst&, uint64_t /*address*/, uint32_t /*bytes*/, int /*lane*/) {
    return true;
  }
  // Each of `lanes` accesses `bytes` at base + offset[lane].
  virtual bool global_lanes(Wave& w, const Inst& inst, uint64_t base, const uint32_t* offset, uint64_t lanes,
                            uint32_t bytes) {
    for (; lanes; lanes &= lanes - 1) {
      const int l = __builtin_ctzll(lanes);
      if (!global(w, inst, base + offset[l], bytes, l)) return false;
    }
    return true;
  }
  // The address of a scalar access as the program gives it, before its low bits are dropped. The access
  // itself comes as global().
  virtual bool scalar(Wave&, const Inst&, uint64_t /*address*/) { return true; }
  // A lane accesses `bytes` of its private memory through an instruction that knows it is private. Private
  // memory that is reached through a buffer resource comes as global().
  virtual void scratch(Wave&, const Inst&, uint32_t /*bytes*/, int /*lane*/) {}
  // Each of `lanes` accesses `bytes` of LDS at address[lane]; ds_read2 and the like do so twice.
  // ds_append and ds_consume, which access LDS once for the whole wave, are not told.
  virtual void lds(Wave&, const Inst&, const uint32_t* /*address*/, uint64_t /*lanes*/, uint32_t /*bytes*/) {}

  // All waves have arrived; `ended` has a bit for each that has ended. A workgroup that ends arrives too.
  virtual void barrier(uint32_t /*ended*/) {}
};

// Hears of one launch.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // A set of Event: what its group observers hear of.
  virtual uint32_t events() const = 0;
  // True: workgroups must run one after the other, by number.
  virtual bool in_order() const { return false; }
  // False: this workgroup is left out. Asked only with in_order().
  virtual bool runs(uint64_t /*workgroup*/) const { return true; }
  // A workgroup starts on this thread. The observer that it returns lives at least until the thread
  // starts another one.
  virtual GroupObserver* begin(const Workgroup& group) = 0;
  // No workgroup runs any more; `result` is what the launch returns.
  virtual void end(const LaunchResult&) {}
};

// Observers of one workgroup, by event.
class Listeners {
 public:
  static constexpr uint32_t kMost = 8;  // observers of a launch
  void add(GroupObserver* observer, uint32_t events) {
    for (uint32_t e = 0; e < kEventCount; ++e) {
      if (events >> e & 1) lists_[e].observer[lists_[e].count++] = observer;
    }
    events_ |= events;
  }
  uint32_t events() const { return events_; }

  // A word that is no instruction has no row, and nobody is told of it: its body stops the wave.
  bool before(Wave& w, const Inst& inst) const {
    return !inst.row || all(kEventBefore, [&](GroupObserver& o) { return o.before(w, inst); });
  }
  void after(Wave& w, const Inst& inst) const {
    if (inst.row) all(kEventAfter, [&](GroupObserver& o) { return o.after(w, inst), true; });
  }
  // Runs f for those who hear of `event`, and stops at the first that returns false.
  template <class F>
  bool all(EventKind event, F f) const {
    const List& list = lists_[__builtin_ctz(event)];
    for (uint32_t i = 0; i < list.count; ++i) {
      if (!f(*list.observer[i])) return false;
    }
    return true;
  }

 private:
  struct List {
    GroupObserver* observer[kMost];
    uint32_t count = 0;
  };
  List lists_[kEventCount];
  uint32_t events_ = 0;
};

// Replaces Listeners in the run loop of a launch that nobody observes.
struct NoObservers {
  static bool before(Wave&, const Inst&) { return true; }
  static void after(Wave&, const Inst&) {}
};

}  // namespace fmha::emu
