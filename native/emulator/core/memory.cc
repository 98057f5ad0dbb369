// SPDX-License-Identifier: MIT OR Apache-2.0
#include "core/memory.h"

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "base/environment.h"
#include "core/bounds.h"
#include "core/shadow.h"

namespace fmha::emu {
namespace {

struct Registry {
  std::shared_mutex mutex;
  std::map<uint64_t, Allocation> by_base;  // disjoint
  std::map<uint64_t, Allocation> freed;    // by base; none overlaps a live one
  std::deque<uint64_t> freed_order;        // their bases, oldest first; may name some that are gone already
};

// Never destroyed: threads may still run while the process ends.
Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}

// The allocation that starts at or before `address`; end() if there is none.
std::map<uint64_t, Allocation>::const_iterator at_or_before(const std::map<uint64_t, Allocation>& by_base,
                                                            uint64_t address) {
  auto it = by_base.upper_bound(address);
  return it == by_base.begin() ? by_base.end() : std::prev(it);
}

// The host's allocator gives the addresses of the other kinds out again at once.
bool is_remembered(MemoryKind kind) {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kHost || kind == MemoryKind::kManaged;
}

// Remembers as much as the host has memory for.
void remember_freed(Registry& r, const Allocation& a) {
  try {
    r.freed_order.push_back(a.base);
    r.freed[a.base] = a;
  } catch (const std::bad_alloc&) {
    return;
  }
  if (r.freed_order.size() <= kFreedKept) return;
  r.freed.erase(r.freed_order.front());
  r.freed_order.pop_front();
}

// Forgets freed memory that is now part of `a`, as the system chose its place.
void forget_freed(Registry& r, const Allocation& a) {
  auto it = r.freed.lower_bound(a.base);
  if (it != r.freed.begin()) {
    const auto below = std::prev(it);
    if (a.base - below->first < below->second.bytes) r.freed.erase(below);
  }
  while (it != r.freed.end() && it->first - a.base < a.bytes) it = r.freed.erase(it);
}

const char* kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "device memory";
    case MemoryKind::kHost:
      return "host memory";
    case MemoryKind::kRegistered:
      return "registered host memory";
    case MemoryKind::kManaged:
      return "managed memory";
    case MemoryKind::kCode:
      return "a code object";
    case MemoryKind::kKernarg:
      return "the launch's own block";
  }
  return "memory";
}

std::string describe(const char* position, uint64_t distance, const Allocation& a) {
  char text[192];
  std::snprintf(text, sizeof text, "%" PRIu64 " bytes %s 0x%" PRIx64 " (%" PRIu64 " bytes of %s, device %d)",
                distance, position, a.base, a.bytes, kind_name(a.kind), a.device);
  return text;
}

}  // namespace

void memory_add(const Allocation& a) {
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  forget_freed(r, a);
  r.by_base[a.base] = a;
}

bool memory_remove(uint64_t base) {
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  const auto it = r.by_base.find(base);
  if (it == r.by_base.end()) return false;
  if (is_remembered(it->second.kind)) remember_freed(r, it->second);
  unwritten_forget(base);
  r.by_base.erase(it);
  return true;
}

bool memory_find(uint64_t address, Allocation* out) {
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  const auto it = at_or_before(r.by_base, address);
  if (it == r.by_base.end() || address - it->first >= it->second.bytes) return false;
  *out = it->second;
  return true;
}

bool bounds_are_pages() {
  static const bool pages = [] {
    constexpr const char* kVariable = "FMHA_EMU_BOUNDS";
    const char* text = environment_text(kVariable);
    const std::string wish = text ? text : "byte";
    if (wish != "byte" && wish != "page") reject_environment(kVariable, "byte or page");
    return wish == "page";
  }();
  return pages;
}

bool memory_within_reach(uint64_t address, Allocation* out) {
  if (!bounds_are_pages()) return memory_find(address, out);
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  const auto it = at_or_before(r.by_base, address);
  if (it == r.by_base.end()) return false;
  *out = it->second;
  // Code and arguments are not the program's to allocate.
  if (out->kind != MemoryKind::kCode && out->kind != MemoryKind::kKernarg) {
    constexpr uint64_t kPage = 4096;
    out->bytes = (out->base + out->bytes + kPage - 1) / kPage * kPage - out->base;
  }
  return address - out->base < out->bytes;
}

bool memory_overlaps(uint64_t address, uint64_t bytes) {
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  const auto it = at_or_before(r.by_base, address);
  if (it != r.by_base.end() && address - it->first < it->second.bytes) return true;
  const auto next = r.by_base.lower_bound(address);
  return next != r.by_base.end() && next->first - address < bytes;
}

std::vector<Allocation> memory_all() {
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  std::vector<Allocation> all;
  for (const auto& [base, a] : r.by_base) all.push_back(a);
  return all;
}

bool memory_was_freed(uint64_t address) {
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  const auto it = at_or_before(r.freed, address);
  return it != r.freed.end() && address - it->first < it->second.bytes;
}

std::string memory_describe_nearest(uint64_t address) {
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  if (const auto it = at_or_before(r.freed, address);
      it != r.freed.end() && address - it->first < it->second.bytes) {
    return "freed: " + describe("into", address - it->first, it->second);
  }
  if (r.by_base.empty()) return "nowhere near any allocation: there is none";
  const auto below = at_or_before(r.by_base, address);
  const auto above = r.by_base.upper_bound(address);
  const bool has_below = below != r.by_base.end(), has_above = above != r.by_base.end();
  const uint64_t inside = has_below ? address - below->first : 0;
  if (has_below && inside < below->second.bytes) return describe("into", inside, below->second);
  const uint64_t past = has_below ? inside - below->second.bytes : 0;
  const uint64_t before = has_above ? above->first - address : 0;
  if (!has_above || (has_below && past <= before)) return describe("past the end of", past, below->second);
  return describe("before the start of", before, above->second);
}

namespace {
std::atomic<uint32_t> peers_of[kMostDevices];
}  // namespace

void memory_set_peers(int device, uint32_t peers) { peers_of[device] = peers; }
uint32_t memory_peers(int device) { return peers_of[device]; }

bool memory_reachable(const Allocation& a, int device) {
  // Host and managed memory is every device's; a launch's own block never leaves it.
  if (a.device == device || (a.kind != MemoryKind::kDevice && a.kind != MemoryKind::kCode)) return true;
  return (memory_peers(device) >> a.device & 1) || (a.shared_with >> device & 1);
}

uint8_t* MemoryCache::fill(uint64_t address, uint64_t bytes) {
  Allocation a;
  if (!memory_within_reach(address, &a) || bytes > a.bytes - (address - a.base)) return nullptr;
  if (!memory_reachable(a, device_)) return nullptr;
  entries_[next_++ % 8] = a;
  return reinterpret_cast<uint8_t*>(address);
}

}  // namespace fmha::emu
