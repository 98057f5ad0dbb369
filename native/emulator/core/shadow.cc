// SPDX-License-Identifier: MIT OR Apache-2.0
#include "core/shadow.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "base/environment.h"
#include "base/immortal.h"
#include "base/per_thread.h"
#include "core/bounds.h"

namespace fmha::emu {
namespace {

struct Tracked {
  std::shared_mutex mutex;
  std::map<uint64_t, std::shared_ptr<UnwrittenBits>> by_base;
  std::atomic<size_t> count{0};
};

// Built in place, not allocated: whoever frees memory asks it first, and must not fail.
Tracked& tracked() {
  static Immortal<Tracked> t;
  return t.get();
}

// The allocation that holds the range, and its bits; null bits if it is not tracked.
std::shared_ptr<UnwrittenBits> bits_at(uint64_t address, uint64_t bytes) {
  Allocation a;
  if (!tracked().count || !memory_find(address, &a) || bytes > a.bytes - (address - a.base)) return nullptr;
  return unwritten_of(a.base);
}

}  // namespace

// calloc leaves the pages of a large array to the kernel until they are touched.
UnwrittenBits::UnwrittenBits(uint64_t base, uint64_t bytes)
    : base_(base), words_(static_cast<uint64_t*>(std::calloc(bytes / 64 + 1, sizeof(uint64_t)))) {
  if (!words_) throw std::bad_alloc();
}
UnwrittenBits::~UnwrittenBits() { std::free(words_); }

// f(index, mask) for the words that hold the bits; stops when it returns true, and says so.
template <class F>
bool UnwrittenBits::for_words(uint64_t bit, uint64_t bits, F f) {
  while (bits) {
    const uint64_t shift = bit % 64, n = std::min(bits, 64 - shift);
    const uint64_t mask = (n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1) << shift;
    if (f(bit / 64, mask)) return true;
    bit += n;
    bits -= n;
  }
  return false;
}

void UnwrittenBits::set(uint64_t address, uint64_t bytes) {
  for_words(address - base_, bytes, [&](uint64_t i, uint64_t mask) {
    __atomic_fetch_or(&words_[i], mask, __ATOMIC_RELAXED);
    return false;
  });
}

void UnwrittenBits::clear(uint64_t address, uint64_t bytes) {
  for_words(address - base_, bytes, [&](uint64_t i, uint64_t mask) {
    if (__atomic_load_n(&words_[i], __ATOMIC_RELAXED) & mask)
      __atomic_fetch_and(&words_[i], ~mask, __ATOMIC_RELAXED);
    return false;
  });
}

uint64_t UnwrittenBits::first(uint64_t address, uint64_t bytes) const {
  const uint64_t start = address - base_;
  uint64_t found = bytes;
  for_words(start, bytes, [&](uint64_t i, uint64_t mask) {
    const uint64_t bad = __atomic_load_n(&words_[i], __ATOMIC_RELAXED) & mask;
    if (bad) found = i * 64 + static_cast<uint64_t>(__builtin_ctzll(bad)) - start;
    return bad != 0;
  });
  return found;
}

bool unwritten_track(uint64_t address, uint64_t bytes) {
  Allocation a;
  if (!memory_find(address, &a) || bytes > a.bytes - (address - a.base)) return false;
  Tracked& t = tracked();
  std::unique_lock lock(t.mutex);
  auto& bits = t.by_base[a.base];
  memory_within_reach(a.base, &a);  // kernels may write as far
  if (!bits) bits = std::make_shared<UnwrittenBits>(a.base, a.bytes);
  t.count = t.by_base.size();
  bits->set(address, bytes);
  return true;
}

bool unwritten_any() { return tracked().count != 0; }

bool unwritten_track_all() { return environment_number("FMHA_EMU_TRACK_INITIALIZED", 0, 1, 0) != 0; }

void unwritten_note_write(const void* p, size_t bytes) {
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  if (const auto bits = bits_at(address, bytes)) bits->clear(address, bytes);
}

void unwritten_note_copy(const void* dst, const void* src, size_t bytes) {
  const uint64_t to = reinterpret_cast<uint64_t>(dst), from = reinterpret_cast<uint64_t>(src);
  const auto to_bits = bits_at(to, bytes);
  if (!to_bits) return;
  to_bits->clear(to, bytes);
  const auto from_bits = bits_at(from, bytes);
  if (!from_bits) return;
  // Unwritten bytes stay unwritten at their new place.
  for (uint64_t at = 0; (at += from_bits->first(from + at, bytes - at)) < bytes; ++at)
    to_bits->set(to + at, 1);
}

uint64_t unwritten_first(uint64_t address, uint64_t bytes) {
  const auto bits = bits_at(address, bytes);
  return bits ? bits->first(address, bytes) : bytes;
}

std::shared_ptr<UnwrittenBits> unwritten_of(uint64_t base) {
  Tracked& t = tracked();
  if (!t.count) return nullptr;
  std::shared_lock lock(t.mutex);
  const auto it = t.by_base.find(base);
  return it == t.by_base.end() ? nullptr : it->second;
}

void unwritten_forget(uint64_t base) {
  Tracked& t = tracked();
  if (!t.count) return;
  std::unique_lock lock(t.mutex);
  t.by_base.erase(base);
  t.count = t.by_base.size();
}

std::vector<Range>& read_only_ranges() {
  struct Ranges {
    std::vector<Range> all;
  };
  return per_thread<Ranges>().all;
}

}  // namespace fmha::emu
