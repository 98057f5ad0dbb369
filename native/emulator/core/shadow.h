// SPDX-License-Identifier: MIT OR Apache-2.0
// Facts about memory beyond its contents: the bytes that nobody has written yet, and those that the launches
// of a thread may not write. Both are kept only if somebody asked: see emu_tools.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fmha::emu {

// A bit a byte of one allocation, set while nobody has written the byte. Any thread may use it at any time.
class UnwrittenBits {
 public:
  UnwrittenBits(uint64_t base, uint64_t bytes);  // nothing is unwritten
  ~UnwrittenBits();
  UnwrittenBits(const UnwrittenBits&) = delete;
  UnwrittenBits& operator=(const UnwrittenBits&) = delete;

  // The range lies in the allocation.
  void set(uint64_t address, uint64_t bytes);
  void clear(uint64_t address, uint64_t bytes);
  uint64_t first(uint64_t address,
                 uint64_t bytes) const;  // offset of an unwritten byte; `bytes`: there is none

 private:
  template <class F>
  static bool for_words(uint64_t bit, uint64_t bits, F f);
  const uint64_t base_;
  uint64_t* words_;
};

// Counts the bytes as unwritten from now on. False: they are not inside one allocation.
bool unwritten_track(uint64_t address, uint64_t bytes);
bool unwritten_any();  // something is tracked
// $FMHA_EMU_TRACK_INITIALIZED: do this to all device memory as it is allocated.
bool unwritten_track_all();
// Something other than a kernel wrote, or copied, these bytes. Costs next to nothing while nothing is
// tracked.
void unwritten_note_write(const void* p, size_t bytes);
void unwritten_note_copy(const void* dst, const void* src, size_t bytes);
// Offset of the first unwritten byte, `bytes` if there is none.
uint64_t unwritten_first(uint64_t address, uint64_t bytes);
// The bits of the allocation that starts at `base`; null if it is not tracked.
std::shared_ptr<UnwrittenBits> unwritten_of(uint64_t base);
// The allocation is gone.
void unwritten_forget(uint64_t base);

struct Range {
  uint64_t address, bytes;
};
// The memory that the launches of the calling thread may not write.
std::vector<Range>& read_only_ranges();

}  // namespace fmha::emu
