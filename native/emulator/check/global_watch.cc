// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/global_watch.h"

#include <emmintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "check/config.h"
#include "check/global.h"
#include "code/launch.h"
#include "core/bounds.h"
#include "core/wave.h"

namespace fmha::emu {
namespace {

const char* verb(const Inst& inst) {
  if (inst.row->flags & kAtomic) return "atomic";
  return inst.row->flags & kStore ? "store" : "load";
}

// Loads that are told to get past the caches to what other workgroups wrote.
bool is_device_scope(const Wave& w, const Inst& inst) {
  switch (arch_info(w.group->launch->code->arch()).isa) {
    case Isa::kCdna2:
      return inst.sc0;
    case Isa::kCdna3:
    case Isa::kCdna4:
      return inst.sc1;
    case Isa::kRdna2:
    case Isa::kRdna3:
      return inst.sc0;
    case Isa::kRdna4:
      return inst.sc1;
  }
  __builtin_unreachable();
}

// Four tags at once.
constexpr uint64_t spread(uint16_t tag) { return tag * uint64_t{0x0001000100010001}; }

// Offset of the first of n tags that is neither 0 nor `mine`; n if there is none.
template <class Tag>
uint64_t first_other(const Tag* tags, uint64_t n, Tag mine) {
  constexpr uint64_t kStep = 8 / sizeof(Tag);
  uint64_t all_mine = 0;
  for (uint64_t j = 0; j < kStep; ++j) all_mine |= uint64_t{mine} << 8 * sizeof(Tag) * j;
  uint64_t i = 0;
  for (uint64_t word; i + kStep <= n; i += kStep) {
    std::memcpy(&word, tags + i, sizeof word);
    if (word != 0 && word != all_mine) break;
  }
  while (i < n && (tags[i] == 0 || tags[i] == mine)) ++i;
  return i;
}

// Notes that `mine` loaded n bytes. Another thread may do the same: then one note may be lost, or both kept,
// which the thread sanitizer need not tell.
[[gnu::no_sanitize("thread")]] void add_reader(uint8_t* tags, uint64_t n, uint8_t mine, uint8_t several) {
  const __m128i all_mine = _mm_set1_epi8(static_cast<char>(mine)), zero = _mm_setzero_si128();
  uint64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    auto* p = reinterpret_cast<__m128i*>(tags + i);
    const __m128i old = _mm_loadu_si128(p);
    const __m128i same = _mm_or_si128(_mm_cmpeq_epi8(old, zero), _mm_cmpeq_epi8(old, all_mine));
    // All bits are set in the tag that stands for several.
    const __m128i now = _mm_or_si128(_mm_andnot_si128(same, _mm_set1_epi8(-1)), all_mine);
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(old, now)) != 0xffff) _mm_storeu_si128(p, now);
  }
  for (; i < n; ++i) tags[i] = tags[i] == 0 || tags[i] == mine ? mine : several;
}

// The four SGPRs of the buffer resource that the instruction goes through; null: it uses none.
const uint32_t* resource_of(const Wave& w, const Inst& inst) {
  if (inst.row->format == Format::kMubuf || inst.row->format == Format::kMtbuf)
    return &w.sgpr[inst.src[1].index];
  const bool scalar_buffer = inst.row->format == Format::kSmem && inst.row->src[0] == Type::kB128;
  return scalar_buffer ? &w.sgpr[inst.src[0].index] : nullptr;
}

struct Place {
  uint32_t x, y, z;
};
// Where the workgroup of a number is; if only the number modulo 65535 is known, the first such workgroup.
Place place_of(const Wave& w, uint32_t index) {
  const uint32_t* grid = w.group->launch->grid;
  return {index % grid[0], index / grid[0] % grid[1], index / grid[0] / grid[1]};
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

template <class Tag>
Tags<Tag>::~Tags() {
  if (Tag* tags = get()) munmap(tags, count_ * sizeof(Tag));
}

template <class Tag>
Tag* Tags<Tag>::make() {
  if (Tag* made = get()) return made;
  const size_t bytes = count_ * sizeof(Tag);
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  Tag* expected = nullptr;
  if (tags_.compare_exchange_strong(expected, static_cast<Tag*>(p))) return static_cast<Tag*>(p);
  munmap(p, bytes);  // another thread was faster
  return expected;
}

template class Tags<uint8_t>;
template class Tags<uint16_t>;

WatchedAllocation::WatchedAllocation(const Allocation& a)
    : of(a),
      shared(a.kind != MemoryKind::kKernarg && a.kind != MemoryKind::kCode),
      unwritten(unwritten_of(a.base)),
      writers(a.bytes),
      chunk_readers(a.bytes / kChunk + 1),
      byte_readers(a.bytes) {}

LaunchWatch::LaunchWatch(uint32_t checks, std::vector<Range> read_only)
    : checks_(checks), read_only_(std::move(read_only)) {}

WatchedAllocation* LaunchWatch::find(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto it = by_base_.upper_bound(address);
  if (it != by_base_.begin() && std::prev(it)->second->holds(address)) return std::prev(it)->second.get();
  Allocation a;
  if (!memory_within_reach(address, &a)) return nullptr;
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
  if (!check_resource(w, inst, run, *a)) return false;
  if (order_ && !order_->access(w, inst, run, *a)) return false;
  const uint32_t flags = inst.row->flags;
  if (!(flags & kStore)) {  // an atomic reads too
    if (!check_unwritten(w, inst, run, *a)) return false;
    if (!(flags & kAtomic)) return check_load_race(w, inst, run, *a);
    synchronized_ |= inst.dst.kind != OperandKind::kNone;
  }
  if (!check_read_only(w, inst, run)) return false;
  if ((flags & kStore) && !check_store_race(w, inst, run, *a)) return false;
  if (a->unwritten) a->unwritten->clear(run.address, run.bytes);
  return true;
}

bool GlobalWatch::check_resource(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a) {
  const uint32_t* s = wants(kCheckResource) ? resource_of(w, inst) : nullptr;
  if (!s) return true;
  const uint64_t base = s[0] | static_cast<uint64_t>(s[1] & 0xffff) << 32;
  if (a.holds(base) || !find(base)) return true;
  w.fault(inst, hipErrorIllegalAddress,
          "lane %d: %s of %u bytes at 0x%" PRIx64
          " through a buffer resource that starts %s reaches another: %s",
          run.lane, verb(inst), run.lane_bytes, run.address, memory_describe_nearest(base).c_str(),
          memory_describe_nearest(run.address).c_str());
  return false;
}

bool GlobalWatch::check_unwritten(Wave& w, const Inst& inst, const Run& run, const WatchedAllocation& a) {
  if (!a.unwritten || !wants(kCheckGlobalUnwritten)) return true;
  const uint64_t at = a.unwritten->first(run.address, run.bytes);
  if (at == run.bytes) return true;
  w.fault(inst, hipErrorLaunchFailure,
          "lane %d: %s of %u bytes reads 0x%" PRIx64 ", which nobody has written; it is %s", run.lane_at(at),
          verb(inst), run.lane_bytes, run.address + at, memory_describe_nearest(run.address + at).c_str());
  return false;
}

bool GlobalWatch::check_read_only(Wave& w, const Inst& inst, const Run& run) {
  if (!wants(kCheckReadOnly)) return true;
  for (const Range& r : launch_.read_only()) {
    const uint64_t from = std::max(r.address, run.address);
    if (from >= std::min(r.address + r.bytes, run.address + run.bytes)) continue;
    w.fault(inst, hipErrorLaunchFailure,
            "lane %d: %s of %u bytes writes 0x%" PRIx64 ", which the launch declared read-only (%" PRIu64
            " bytes at 0x%" PRIx64 "); it is %s",
            run.lane_at(from - run.address), verb(inst), run.lane_bytes, from, r.bytes, r.address,
            memory_describe_nearest(from).c_str());
    return false;
  }
  return true;
}

bool GlobalWatch::no_memory(Wave& w, const Inst& inst) {
  w.fault(inst, hipErrorOutOfMemory, "no host memory to check for races between workgroups (-global-race)");
  return false;
}

bool GlobalWatch::note_load(WatchedAllocation& a, uint64_t start, uint64_t bytes) {
  const uint64_t end = start + bytes, first = (start + kChunk - 1) / kChunk, last = end / kChunk;
  if (first < last) {
    uint8_t* chunks = a.chunk_readers.make();
    if (!chunks) return false;
    add_reader(chunks + first, last - first, reader_, kSeveral);
    if (first * kChunk == start && last * kChunk == end) return true;
  }
  uint8_t* tags = a.byte_readers.make();
  if (!tags) return false;
  if (first >= last) {
    add_reader(tags + start, bytes, reader_, kSeveral);
  } else {
    add_reader(tags + start, first * kChunk - start, reader_, kSeveral);
    add_reader(tags + last * kChunk, end - last * kChunk, reader_, kSeveral);
  }
  return true;
}

// Offset of the first byte that another workgroup loaded; `bytes` if there is none.
uint64_t GlobalWatch::first_loaded(const WatchedAllocation& a, uint64_t start, uint64_t bytes) const {
  uint64_t found = bytes;
  if (const uint8_t* tags = a.byte_readers.get()) found = first_other(tags + start, bytes, reader_);
  if (const uint8_t* tags = a.chunk_readers.get()) {
    const uint64_t first = start / kChunk, count = (start + bytes - 1) / kChunk + 1 - first;
    const uint64_t at = first_other(tags + first, count, reader_);
    if (at < count) found = std::min(found, std::max((first + at) * kChunk, start) - start);
  }
  return found;
}

bool GlobalWatch::check_load_race(Wave& w, const Inst& inst, const Run& run, WatchedAllocation& a) {
  synchronized_ |= is_device_scope(w, inst);
  if (!wants(kCheckGlobalRace) || synchronized_) return true;
  const uint64_t start = run.address - a.of.base;
  if (!note_load(a, start, run.bytes)) return no_memory(w, inst);
  const uint16_t* writers = a.writers.get();
  const uint64_t at = writers ? first_other(writers + start, run.bytes, writer_) : run.bytes;
  if (at == run.bytes) return true;
  const Place other = place_of(w, writers[start + at] - 1u);
  w.fault(inst, hipErrorLaunchFailure,
          "lane %d: load of %u bytes reads 0x%" PRIx64
          ", which workgroup (%u, %u, %u) stored in this launch, and nothing orders the two; it is %s",
          run.lane_at(at), run.lane_bytes, run.address + at, other.x, other.y, other.z,
          memory_describe_nearest(run.address + at).c_str());
  return false;
}

bool GlobalWatch::check_store_race(Wave& w, const Inst& inst, const Run& run, WatchedAllocation& a) {
  if (!wants(kCheckGlobalRace) || synchronized_) return true;
  const uint64_t start = run.address - a.of.base;
  uint16_t* writers = a.writers.make();
  if (!writers) return no_memory(w, inst);
  uint16_t other = 0;
  uint64_t at = exchange_tags(writers + start, run.bytes, writer_, &other);
  if (at < run.bytes) {
    const Place p = place_of(w, other - 1u);
    w.fault(inst, hipErrorLaunchFailure,
            "lane %d: store of %u bytes writes 0x%" PRIx64
            ", which workgroup (%u, %u, %u) stored in this launch too, and nothing orders the two; it is %s",
            run.lane_at(at), run.lane_bytes, run.address + at, p.x, p.y, p.z,
            memory_describe_nearest(run.address + at).c_str());
    return false;
  }
  at = first_loaded(a, start, run.bytes);
  if (at == run.bytes) return true;
  w.fault(inst, hipErrorLaunchFailure,
          "lane %d: store of %u bytes writes 0x%" PRIx64
          ", which another workgroup loaded in this launch, and nothing orders the two; it is %s",
          run.lane_at(at), run.lane_bytes, run.address + at,
          memory_describe_nearest(run.address + at).c_str());
  return false;
}

}  // namespace fmha::emu
