// SPDX-License-Identifier: MIT OR Apache-2.0
// The L2 caches of a card and its memory-side cache, as simple set-associative caches: what traffic they
// leave for HBM. A model, not a count: sets by the low bits of the line number, LRU, one access after the
// other.
//
// An L2 keeps which bytes were written: a store fetches nothing, and a later load fetches a line unless all
// it wants was written here. Dirty lines go back whole, when they are replaced and at the end of the kernel.
// The memory-side cache (MALL) takes fills and write backs, and passes every write back on to HBM. Its lines
// are modelled as the L2's, since it is never asked for less.
// Not modelled: L1 and scalar caches (they lessen requests to the L2, not what it must fetch), prefetching,
// coherence between the L2s of a running kernel, and what another kernel left behind in the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "model/profile_constants.h"

namespace fmha::emu {

using LineMask = unsigned __int128;  // a bit a byte of a line
static_assert(sizeof(LineMask) * 8 == kLineBytes);

class SetCache {
 public:
  struct Line {
    uint64_t number_plus_1;  // 0: empty
    uint64_t fetched;        // all of it is here, not only what was written
    LineMask dirty;
  };
  SetCache(uint64_t bytes, uint32_t ways);

  // The line if it is here, made the youngest of its set; else null.
  Line* find(uint64_t number);
  // Makes room for a line that is not here, and gives it, clean and not fetched. *victim is what had to go.
  Line& insert(uint64_t number, Line* victim);
  // Empties the cache; visit(line) sees what was there, in the order of the sets.
  template <class Visit>
  void clear(Visit visit) {
    for (const uint32_t set : used_) {
      Line* s = &lines_[size_t{set} * ways_];
      for (uint32_t w = 0; w < ways_ && s[w].number_plus_1; ++w) {
        visit(s[w]);
        s[w] = Line{};
      }
    }
    used_.clear();
  }

 private:
  // Neighbouring lines are in different sets, of which there need not be a power of two.
  uint64_t index_of(uint64_t number) const { return number % sets_; }
  Line* set_of(uint64_t number) { return &lines_[index_of(number) * ways_]; }
  struct Free {
    void operator()(Line* p) const { std::free(p); }
  };
  uint64_t sets_;
  uint32_t ways_;
  std::unique_ptr<Line[], Free> lines_;  // a set's youngest first; zeroed lazily by the system
  std::vector<uint32_t> used_;           // sets that hold something
};

enum class AccessKind : uint32_t { kRead, kWrite, kAtomic, kEndOfKernel };

// Where a line came from.
enum class CacheLevel : uint8_t { kNone, kL1, kL2, kMall, kHbm };

struct CacheCounts {
  uint64_t l2_requests = 0, l2_hits = 0;               // lines
  uint64_t l2_fill_bytes = 0, l2_writeback_bytes = 0;  // between the L2s and the fabric
  uint64_t mall_hits = 0, mall_misses = 0;             // of the fills, in lines
  uint64_t hbm_read_bytes = 0, hbm_write_bytes = 0;
};

class CacheModel {
 public:
  CacheModel();
  // One instruction's access to a line; `mask` says which of its bytes. Atomics are done in the L2. Gives
  // where the line was, kL2 at least.
  CacheLevel access(uint64_t workgroup, uint64_t line, LineMask mask, AccessKind kind);
  // Any range of bytes, line after line.
  void access_range(uint64_t workgroup, uint64_t address, uint64_t bytes, AccessKind kind);
  // Writes dirty lines back and empties the L2s, as the release and acquire between kernels do. The
  // memory-side cache keeps its lines.
  void end_kernel();
  const CacheCounts& counts() const { return counts_; }

 private:
  CacheLevel fill(SetCache::Line& line);
  void write_back(const SetCache::Line& line);
  std::vector<SetCache> l2_;
  std::optional<SetCache> mall_;
  CacheCounts counts_;
};

// Bits [first, first + bytes) of a mask, first + bytes <= the line.
LineMask line_mask(uint64_t first, uint64_t bytes);

}  // namespace fmha::emu
