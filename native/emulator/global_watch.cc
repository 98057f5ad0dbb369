// SPDX-License-Identifier: MIT OR Apache-2.0
#include "global_watch.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "check_config.h"
#include "dispatch.h"
#include "profile.h"
#include "wave.h"

namespace fmha::emu {
namespace {

constexpr int kLaunchFailure = 719;      // hipErrorLaunchFailure
constexpr int kMisalignedAddress = 716;  // hipErrorMisalignedAddress
constexpr int kOutOfMemory = 2;          // hipErrorOutOfMemory

const char* verb(const Inst& inst) {
  if (inst.row->flags & kAtomic) return "atomic";
  return inst.row->flags & kStore ? "store" : "load";
}

// Loads that are told to get past the caches to what other workgroups wrote.
bool is_device_scope(const Wave& w, const Inst& inst) {
  return w.group->launch->code->arch() == Arch::kGfx90a ? inst.sc0 : inst.sc1;
}

// Four tags at once.
constexpr uint64_t spread(uint16_t tag) { return tag * uint64_t{0x0001000100010001}; }

// Offset of the first tag in [0, n) that is neither 0 nor `mine`; n if there is none.
uint64_t first_foreign(const uint16_t* tags, uint64_t n, uint16_t mine) {
  const auto at = [&](uint64_t i) { return __atomic_load_n(tags + i, __ATOMIC_RELAXED); };
  uint64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    uint64_t four;
    std::memcpy(&four, tags + i, sizeof four);
    if (four != 0 && four != spread(mine)) break;
  }
  while (i < n && (at(i) == 0 || at(i) == mine)) ++i;
  return i;
}

// Sets n tags and returns the offset of the first that was another's, n if there was none. Exchanges, so that
// of two threads at least one sees the other.
uint64_t exchange_tags(uint16_t* tags, uint64_t n, uint16_t mine, uint16_t* other) {
  const auto differs = [&](uint16_t old) { return old != 0 && old != mine; };
  const auto one = [&](uint64_t i) {
    const uint16_t old = __atomic_exchange_n(tags + i, mine, __ATOMIC_RELAXED);
    if (differs(old)) *other = old;
    return differs(old);
  };
  uint64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(tags + i) % 8; ++i) {
    if (one(i)) return i;
  }
  for (; i + 4 <= n; i += 4) {
    auto* four = reinterpret_cast<uint64_t*>(tags + i);
    if (__atomic_load_n(four, __ATOMIC_RELAXED) == spread(mine)) continue;
    const uint64_t old = __atomic_exchange_n(four, spread(mine), __ATOMIC_RELAXED);
    if (old == 0) continue;
    for (int j = 0; j < 4; ++j) {
      *other = static_cast<uint16_t>(old >> 16 * j);
      if (differs(*other)) return i + j;
    }
  }
  for (; i < n; ++i) {
    if (one(i)) return i;
  }
  return n;
}

}  // namespace

WatchedAllocation::WatchedAllocation(const Allocation& a)
    : of(a),
      shared(a.kind != MemoryKind::kKernarg && a.kind != MemoryKind::kCode),
      unwritten(unwritten_of(a.base)) {}

WatchedAllocation::~WatchedAllocation() {
  if (writers) munmap(writers, writers_bytes());
}

size_t WatchedAllocation::writers_bytes() const { return of.bytes * sizeof(uint16_t); }

// Pages that nobody stores to cost nothing.
uint16_t* WatchedAllocation::make_writers() {
  if (uint16_t* made = writers.load(std::memory_order_acquire)) return made;
  void* p = mmap(nullptr, writers_bytes(), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  uint16_t* expected = nullptr;
  if (writers.compare_exchange_strong(expected, static_cast<uint16_t*>(p))) return writers;
  munmap(p, writers_bytes());  // another thread was faster
  return expected;
}

LaunchWatch::LaunchWatch(uint32_t checks, std::vector<Range> read_only)
    : checks_(checks), read_only_(std::move(read_only)) {}

WatchedAllocation* LaunchWatch::find(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto it = by_base_.upper_bound(address);
  if (it != by_base_.begin() && std::prev(it)->second->holds(address)) return std::prev(it)->second.get();
  Allocation a;
  if (!memory_find(address, &a)) return nullptr;
  return by_base_.emplace(a.base, std::make_unique<WatchedAllocation>(a)).first->second.get();
}

WatchedAllocation* GlobalWatch::find(uint64_t address) {
  for (WatchedAllocation* a : recent_) {
    if (a && a->holds(address)) return a;
  }
  WatchedAllocation* a = launch_.find(address);
  if (a) recent_[next_++ % 8] = a;
  return a;
}

bool GlobalWatch::check(Wave& w, const Inst& inst, const Run& run) {
  WatchedAllocation* a = find(run.address);
  if (!a || !a->shared) return true;
  const uint32_t flags = inst.row->flags;
  if (!(flags & kStore)) {  // an atomic reads too
    if (!check_unwritten(w, inst, run, *a)) return false;
    if (!(flags & kAtomic)) return check_load_race(w, inst, run, *a);
  }
  if (!check_read_only(w, inst, run)) return false;
  if ((flags & kStore) && !claim(w, inst, run, *a)) return false;
  if (a->unwritten) a->unwritten->clear(run.address, run.bytes);
  return true;
}

bool GlobalWatch::check_unwritten(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a) {
  if (!a.unwritten || !wants(kCheckGlobalUnwritten)) return true;
  const uint64_t at = a.unwritten->first(run.address, run.bytes);
  if (at == run.bytes) return true;
  w.fault(inst, kLaunchFailure,
          "lane %d: %s of %u bytes reads 0x%" PRIx64 ", which nobody has written; it is %s", run.lane_at(at),
          verb(inst), run.lane_bytes, run.address + at, memory_describe_nearest(run.address + at).c_str());
  return false;
}

bool GlobalWatch::check_read_only(Wave& w, const Inst& inst, const Run& run) {
  if (!wants(kCheckReadOnly)) return true;
  for (const Range& r : launch_.read_only()) {
    const uint64_t from = std::max(r.address, run.address);
    if (from >= std::min(r.address + r.bytes, run.address + run.bytes)) continue;
    w.fault(inst, kLaunchFailure,
            "lane %d: %s of %u bytes writes 0x%" PRIx64 ", which the launch declared read-only (%" PRIu64
            " bytes at 0x%" PRIx64 "); it is %s",
            run.lane_at(from - run.address), verb(inst), run.lane_bytes, from, r.bytes, r.address,
            memory_describe_nearest(from).c_str());
    return false;
  }
  return true;
}

bool GlobalWatch::check_load_race(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a) {
  const uint16_t* tags = a.writers.load(std::memory_order_acquire);
  if (!tags || !wants(kCheckGlobalRace) || is_device_scope(w, inst)) return true;
  tags += run.address - a.of.base;
  const uint64_t at = first_foreign(tags, run.bytes, tag_);
  return at == run.bytes || race(w, inst, run, at, tags[at]);
}

bool GlobalWatch::claim(Wave& w, const Inst& inst, const Run& run, WatchedAllocation& a) {
  if (!wants(kCheckGlobalRace)) return true;
  uint16_t* tags = a.make_writers();
  if (!tags) {
    w.fault(inst, kOutOfMemory, "no host memory to check for races between workgroups (-global-race)");
    return false;
  }
  uint16_t other = 0;
  const uint64_t at = exchange_tags(tags + (run.address - a.of.base), run.bytes, tag_, &other);
  return at == run.bytes || race(w, inst, run, at, other);
}

bool GlobalWatch::race(Wave& w, const Inst& inst, const Run& run, uint64_t offset, uint16_t other) {
  const uint32_t* grid = w.group->launch->grid;
  const uint32_t index = other - 1u;  // the smallest that has this tag
  w.fault(inst, kLaunchFailure,
          "lane %d: %s of %u bytes touches 0x%" PRIx64
          ", which workgroup (%u, %u, %u) stored in this launch, and neither is atomic; it is %s",
          run.lane_at(offset), verb(inst), run.lane_bytes, run.address + offset, index % grid[0],
          index / grid[0] % grid[1], index / grid[0] / grid[1],
          memory_describe_nearest(run.address + offset).c_str());
  return false;
}

bool Wave::watch_global(const Inst& inst, uint64_t address, uint32_t bytes, int lane) {
  if (profile) profile->global(*this, inst, address, bytes);
  return watch->check(*this, inst, {address, bytes, lane, bytes});
}

bool Wave::watch_lanes(const Inst& inst, uint64_t base, const uint32_t* offset, uint64_t lanes,
                       uint32_t bytes) {
  if (profile) profile->global_lanes(*this, inst, base, offset, lanes, bytes);
  while (lanes) {
    const int first = __builtin_ctzll(lanes);
    int end = first + 1;
    while (end < kLanes && (lanes >> end & 1) && offset[end] == offset[end - 1] + bytes) ++end;
    const uint64_t count = static_cast<uint64_t>(end - first);
    if (!watch->check(*this, inst, {base + offset[first], count * bytes, first, bytes})) return false;
    lanes = end == kLanes ? 0 : lanes >> end << end;
  }
  return true;
}

bool Wave::watch_scalar(const Inst& inst, uint64_t address) {
  if (address % 4 == 0 || !watch->wants(kCheckMisaligned)) return true;
  fault(inst, kMisalignedAddress,
        "scalar load of 0x%" PRIx64
        ", which is not a multiple of 4: the hardware drops the low bits; it is %s",
        address, memory_describe_nearest(address).c_str());
  return false;
}

}  // namespace fmha::emu
