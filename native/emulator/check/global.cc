// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/global.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "check/config.h"
#include "check/global_watch.h"
#include "code/launch.h"

namespace fmha::emu {
namespace {

// An access that is told to be coherent beyond its wave.
bool has_scope(const Inst& inst) {
  return inst.row->format != Format::kSmem && !(inst.row->flags & kAtomic) && (inst.sc0 || inst.sc1);
}

// True if the lanes that touch [address, address + bytes) store what that memory holds.
bool stores_the_same(const Wave& w, const Inst& inst, const Run& run, uint64_t address, uint64_t bytes) {
  if (inst.data.kind != OperandKind::kVgpr || inst.row->is(kHighHalf)) return false;
  for (uint64_t at = 0; at < run.bytes; at += run.lane_bytes) {
    const uint64_t lane_address = run.address + at;
    if (lane_address >= address + bytes || address >= lane_address + run.lane_bytes) continue;
    const auto* memory = reinterpret_cast<const uint8_t*>(lane_address);
    for (uint32_t j = 0; j < run.lane_bytes; j += 4) {
      const uint32_t* data = w.vgpr[inst.data.index + j / 4];
      if (std::memcmp(&data[run.lane_at(at)], memory + j, std::min(4u, run.lane_bytes - j)) != 0)
        return false;
    }
  }
  return true;
}

}  // namespace

void GlobalOrder::reset(std::vector<QueueProgress*> waves, uint32_t checks) {
  waves_ = std::move(waves);
  race_ = checks & kCheckGlobalRace;
  drain_ = checks & kCheckGlobalDrain;
  logs_.clear();
  signalled_ = 0;
}

GlobalOrder::Log& GlobalOrder::log_of(const WatchedAllocation& a) {
  for (Log& l : logs_) {
    if (l.of == &a) return l;
  }
  logs_.emplace_back();
  logs_.back().of = &a;
  return logs_.back();
}

GlobalOrder::Access GlobalOrder::make(const Wave& w, const Inst& inst, const Run& run) const {
  Access a;
  a.address = run.address;
  a.bytes = run.bytes;
  a.inst = w.next - 1;  // `inst` itself may be a copy
  a.wave = w.id;
  a.lane_bytes = run.lane_bytes;
  a.lane = run.lane;
  a.queue = queue_of(inst, arch_info(w.group->launch->code->arch()).isa);
  a.sequence = waves_[w.id]->issued[static_cast<size_t>(a.queue)] - 1;  // counted as issued already
  return a;
}

bool GlobalOrder::drained(const Access& a) const {
  return static_cast<int32_t>(a.sequence - waves_[a.wave]->done[static_cast<size_t>(a.queue)]) < 0;
}

bool GlobalOrder::access(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a) {
  const uint32_t flags = inst.row->flags;
  const bool atomic = flags & kAtomic, scoped = has_scope(inst);
  if (atomic ? inst.dst.kind != OperandKind::kNone : scoped && !(flags & kStore)) signalled(w.id);
  if (atomic || scoped) return true;
  if (flags & kStore) return store(w, inst, log_of(a), make(w, inst, run));
  if (logs_.empty() && waves_.size() == 1) return true;  // nobody to conflict with
  return load(w, log_of(a), make(w, inst, run));
}

template <class Conflict>
const GlobalOrder::Access* GlobalOrder::find(const ByAddress& among, const Access& now,
                                             Conflict conflict) const {
  auto it = among.lower_bound(now.address > kLongest ? now.address - kLongest : 0);
  for (; it != among.end() && it->first < now.address + now.bytes; ++it) {
    if (it->second.overlaps(now) && conflict(it->second)) return &it->second;
  }
  return nullptr;
}

bool GlobalOrder::load(Wave& w, Log& log, const Access& now) {
  const bool scalar = now.queue == Queue::kScalar;
  const auto conflict = [&](const Access& s) {
    if (s.wave == now.wave) return scalar && drain_ && !drained(s);
    return (race_ || s.crossed) && !(signalled_ >> now.wave & 1);
  };
  if (!log.stores.empty()) {
    if (const Access* s = find(log.stores, now, conflict)) return report(w, now, *s, false, true);
  }
  if (waves_.size() == 1) return true;
  if (log.fresh.size() >= kMostLoads) log.fresh.erase(log.fresh.begin(), log.fresh.begin() + kMostLoads / 2);
  log.fresh.push_back(now);
  return true;
}

bool GlobalOrder::store(Wave& w, const Inst& inst, Log& log, const Access& now) {
  const auto conflict = [&](const Access& other) {
    return other.wave != now.wave && (race_ || other.crossed) && !(signalled_ >> now.wave & 1);
  };
  for (const Access& l : log.fresh) log.loads.emplace(l.address, l);
  log.fresh.clear();
  const auto changes = [&](const Access& other) {
    return conflict(other) && !stores_the_same(w, inst, {now.address, now.bytes, now.lane, now.lane_bytes},
                                               other.address, other.bytes);
  };
  if (const Access* s = find(log.stores, now, changes)) return report(w, now, *s, true, true);
  if (const Access* l = find(log.loads, now, conflict)) return report(w, now, *l, true, false);
  remember_store(log, now);
  return true;
}

void GlobalOrder::remember_store(Log& log, const Access& now) {
  const auto [first, last] = log.stores.equal_range(now.address);
  for (auto it = first; it != last; ++it) {
    if (it->second.wave != now.wave || it->second.bytes != now.bytes) continue;
    it->second = now;  // it completes later than what was there
    return;
  }
  if (log.stores.size() >= kMostStores) log.stores.clear();
  log.stores.emplace(now.address, now);
}

void GlobalOrder::barrier() {
  signalled_ = 0;
  for (Log& log : logs_) {
    log.fresh.clear();
    log.loads.clear();
    std::erase_if(log.stores, [&](const auto& entry) { return !drain_ || drained(entry.second); });
    for (auto& [address, left] : log.stores) left.crossed = true;
  }
}

bool GlobalOrder::report(Wave& w, const Access& now, const Access& earlier, bool stores, bool stored) const {
  const uint64_t at = std::max(now.address, earlier.address);
  const auto lane_of = [&](const Access& a) {
    return a.lane < 0 ? a.lane : a.lane + static_cast<int>((at - a.address) / a.lane_bytes);
  };
  const char* missing = "no s_barrier between";
  if (earlier.crossed)
    missing = "no s_waitcnt vmcnt of that wave before the s_barrier between (-global-drain)";
  if (earlier.wave == now.wave) missing = "no s_waitcnt vmcnt between, and the scalar cache is another one";
  const char* kind = earlier.crossed || earlier.wave == now.wave ? "missing wait" : "race";
  w.fault(*now.inst, hipErrorLaunchFailure,
          "%s: lane %d: %s of %u bytes %s 0x%" PRIx64
          ", which wave %u (lane %d) %s at pc 0x%llx `%s`, with %s; "
          "it is %s",
          kind, lane_of(now), stores ? "store" : "load", now.lane_bytes, stores ? "writes" : "reads", at,
          earlier.wave, lane_of(earlier), stored ? "stores" : "loads",
          static_cast<unsigned long long>(earlier.inst->pc),
          disassemble(*earlier.inst, w.group->launch->code->arch()).c_str(), missing,
          memory_describe_nearest(at).c_str());
  return false;
}

}  // namespace fmha::emu
