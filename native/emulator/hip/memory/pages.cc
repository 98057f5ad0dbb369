// SPDX-License-Identifier: MIT OR Apache-2.0
// Pages from the system. Large allocations must cost neither time nor memory before they are used, and still
// read as poison: they are private maps of one file full of it, again and again, of which a page is copied
// when written.
#include "hip/memory/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "core/launch_state.h"

namespace fmha::emu {
namespace {

// Behind every allocation, so that the host may load whole vectors at its end. Not the device's to touch.
constexpr size_t kSlack = 64;
constexpr size_t kPage = 4096;
// Bytes of the file: an allocation is made of as many maps, of which the system gives a process 65530.
constexpr size_t kPoisonFile = 16 << 20;
// Where allocations go: a part of the address space that nothing else uses by default.
#ifdef __SANITIZE_THREAD__  // which takes most of it, and ends a process that maps a page there
constexpr uint64_t kFirstAddress = uint64_t{0x10} << 32, kLastAddress = uint64_t{0x7f} << 32;
#else
constexpr uint64_t kFirstAddress = uint64_t{0x20} << 40, kLastAddress = uint64_t{0x50} << 40;
#endif
constexpr uint64_t kGap = 16 << 20;

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

// Over what is mapped at `p`.
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

void* map_anywhere(size_t bytes, size_t size) {
  const uint64_t address = reserve_addresses(bytes);
  if (void* p = address ? map_at(address, size) : nullptr) return p;
  // Taken (by the address sanitizer, say): wherever there is room.
  void* p = mmap(nullptr, size, kProtection, kFlags | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
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
  void* p = at ? map_at(at, size) : map_anywhere(bytes, size);
  if (p && (bytes < kUntouched || !map_poison(static_cast<char*>(p), size))) fill_poison(p, bytes);
  return p;
}

void unmap_pages(void* p, size_t bytes) { munmap(p, mapped_bytes(bytes)); }

}  // namespace fmha::emu
