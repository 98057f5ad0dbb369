// SPDX-License-Identifier: MIT OR Apache-2.0
// Pages from the system. Large allocations must cost neither time nor memory before they are used, and still
// read as poison: they are private maps of one file full of it, again and again, of which a page is copied
// when written.
//
// The system gives a process 65530 mappings (vm.max_map_count). So small allocations beyond the first
// kMostOwn lie side by side, each in a slot of twice its size: the system makes one mapping of neighbours.
#include "hip/memory/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "launch/launch_state.h"

namespace fmha::emu {
namespace {

// Bytes behind every allocation: the host may load whole vectors at its end; the device may not.
constexpr size_t kSlack = 64;
// Bytes of the file: an allocation is made of as many maps, of which the system gives a process 65530.
constexpr size_t kPoisonFile = 16 << 20;
// Where allocations go: a part of the address space that nothing else uses by default. Slots lie behind it,
// an area for each of their sizes.
#ifdef __SANITIZE_THREAD__  // which takes most of it, and ends a process that maps a page there
constexpr uint64_t kFirstAddress = uint64_t{0x10} << 32, kLastAddress = uint64_t{0x5f} << 32;
constexpr uint64_t kAreaBytes = uint64_t{2} << 32;
#else
constexpr uint64_t kFirstAddress = uint64_t{0x20} << 40, kLastAddress = uint64_t{0x40} << 40;
constexpr uint64_t kAreaBytes = uint64_t{1} << 40;
#endif
constexpr uint64_t kGap = 16 << 20;

// Mappings that allocations have to themselves while there are slots; the rest is for large ones, and the
// program's own.
constexpr size_t kMostOwn = 16384;
// A slot has 8 KiB, 16 KiB and so on to 2 MiB.
constexpr uint64_t kFirstSlotBytes = 8 << 10, kLastSlotBytes = 2 << 20;
constexpr size_t kSlotSizes = std::countr_zero(kLastSlotBytes / kFirstSlotBytes) + 1;

constexpr int kProtection = PROT_READ | PROT_WRITE, kFlags = MAP_PRIVATE | MAP_NORESERVE;

size_t mapped_bytes(size_t bytes) { return (bytes + kSlack + kPage - 1) / kPage * kPage; }

int make_poison_file() {
  const int fd = memfd_create("poison", MFD_CLOEXEC);
  if (fd < 0) return -1;
  void* p =
      ftruncate(fd, kPoisonFile) ? MAP_FAILED : mmap(nullptr, kPoisonFile, PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) return close(fd), -1;
  fill_poison(p, kPoisonFile);
  munmap(p, kPoisonFile);
  return fd;
}

// -1: this system has none.
int poison_file() {
  static const int fd = make_poison_file();
  return fd;
}

// Replaces what is mapped at `p`.
bool map_poison(char* p, size_t bytes) {
  const int fd = poison_file();
  if (fd < 0) return false;
  for (size_t at = 0; at < bytes; at += kPoisonFile) {
    if (mmap(p + at, std::min(kPoisonFile, bytes - at), kProtection, kFlags | MAP_FIXED, fd, 0) == MAP_FAILED)
      return false;
  }
  return true;
}

void* map_at(uint64_t address, size_t size) {
  void* p = mmap(reinterpret_cast<void*>(address), size, kProtection,
                 kFlags | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (p == reinterpret_cast<void*>(address)) return p;
  if (p != MAP_FAILED) munmap(p, size);  // a kernel that does not know the flag takes the address as a hint
  return nullptr;
}

// The size of the slot at an address; 0: no slot is there.
uint64_t slot_bytes_at(uint64_t address) {
  const uint64_t area = (address - kLastAddress) / kAreaBytes;
  return address >= kLastAddress && area < kSlotSizes ? kFirstSlotBytes << area : 0;
}

// Null: there are no slots of that size, or none are left.
void* map_slot(size_t bytes) {
  static std::array<std::atomic<uint64_t>, kSlotSizes> given_out{};
  const uint64_t slot = std::max(std::bit_ceil(2 * mapped_bytes(bytes)), kFirstSlotBytes);
  if (slot > kLastSlotBytes) return nullptr;
  const auto area = static_cast<size_t>(std::countr_zero(slot / kFirstSlotBytes));
  const uint64_t at = given_out[area].fetch_add(slot);
  return at + slot <= kAreaBytes ? map_at(kLastAddress + area * kAreaBytes + at, slot) : nullptr;
}

void* map_anywhere(size_t bytes, size_t size) {
  const uint64_t address = reserve_addresses(bytes);
  if (void* p = address ? map_at(address, size) : nullptr) return p;
  // Taken (by the address sanitizer, say): wherever there is room.
  void* p = mmap(nullptr, size, kProtection, kFlags | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (!slot_bytes_at(reinterpret_cast<uint64_t>(p))) return p;
  munmap(p, size);  // it would be taken for a slot
  return nullptr;
}

std::atomic<size_t> own_mappings{0};

// Memory that the system has not unmapped yet: to take a slot out of the middle makes one mapping more, of
// which a process may have too many already. Never destroyed: threads may still run while the process ends.
struct Late {
  std::mutex mutex;
  std::vector<std::pair<void*, size_t>> ranges;
};
Late& late() {
  static auto* l = new Late;
  return *l;
}

void unmap_later(void* p, size_t size) {
  madvise(p, size, MADV_DONTNEED);  // its memory, at least
  std::lock_guard lock(late().mutex);
  try {
    late().ranges.emplace_back(p, size);
  } catch (const std::bad_alloc&) {
    return;  // it stays mapped
  }
}

void unmap_late_ones() {
  std::lock_guard lock(late().mutex);
  auto& ranges = late().ranges;
  while (!ranges.empty() && !munmap(ranges.back().first, ranges.back().second)) ranges.pop_back();
}

}  // namespace

// Each not given out before, and far from the others: then an access behind the end of an allocation, or to
// one that was freed, does not meet another by chance.
uint64_t reserve_addresses(size_t bytes) {
  static std::atomic<uint64_t> next{kFirstAddress};
  const uint64_t step = (mapped_bytes(bytes) + kGap + kGap - 1) / kGap * kGap;
  const uint64_t address = next.fetch_add(step);
  return address + step < kLastAddress ? address : 0;
}

void* map_pages(size_t bytes, uint64_t at) {
  const size_t size = mapped_bytes(bytes);
  void* p = at || own_mappings < kMostOwn ? nullptr : map_slot(bytes);
  if (!p) {
    p = at ? map_at(at, size) : map_anywhere(bytes, size);
    if (p) ++own_mappings;
  }
  if (p && (bytes < kUntouched || !map_poison(static_cast<char*>(p), size))) fill_poison(p, bytes);
  return p;
}

void unmap_pages(void* p, size_t bytes) {
  const uint64_t slot = slot_bytes_at(reinterpret_cast<uint64_t>(p));
  if (!slot) --own_mappings;
  const size_t size = slot ? slot : mapped_bytes(bytes);
  if (munmap(p, size)) return unmap_later(p, size);
  unmap_late_ones();
}

}  // namespace fmha::emu
