// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/profile_lds.h"

#include <algorithm>
#include <array>

#include "base/per_thread.h"
#include "core/dialect.h"
#include "model/profile_constants.h"

namespace fmha::emu {
namespace {

constexpr uint32_t kMostBanks = 64;

// MI355X: what is read in 8 or 16 bytes comes from 64 banks, all else goes through 32.
bool is_wide(uint32_t bytes, LdsKind access, Isa isa) {
  return isa == Isa::kCdna4 && access == LdsKind::kRead && (bytes == 8 || bytes == 16);
}

// The lanes of group g.
uint64_t group_lanes(int g, uint32_t bytes, LdsKind access, bool wide) {
  if (wide) {
    constexpr uint64_t kWideGroups[2] = {0x0ff0f00f, 0xf00f0ff0};
    return bytes == 8 ? uint64_t{0xffffffff} << 32 * g : kWideGroups[g % 2] << 32 * (g / 2);
  }
  if (bytes <= 4) return uint64_t{0xffffffff} << 32 * g;
  if (bytes <= 8) return uint64_t{0xffff} << 16 * g;
  if (access != LdsKind::kRead) return uint64_t{0xff} << 8 * g;
  constexpr uint64_t kReadGroups[4] = {0x00f0000f, 0x000f00f0, 0xf0000f00, 0x0f00f000};
  return kReadGroups[g % 4] << 32 * (g / 4);
}

// Dwords that a group wants from each bank.
class Banks {
 public:
  explicit Banks(uint32_t banks) : banks_(banks) {}
  // At most 16 lanes of 4 + 1 dwords or 32 of 2 + 1 (an unaligned access straddles one more).
  void want(uint32_t dword, bool merge) {
    const uint32_t bank = dword % banks_;
    uint32_t* const wanted = wanted_[bank];
    uint32_t& n = count_[bank];
    if (merge && std::find(wanted, wanted + n, dword) != wanted + n) return;
    wanted[n++] = dword;
  }
  uint32_t most() const { return *std::max_element(count_, count_ + banks_); }

 private:
  const uint32_t banks_;
  uint32_t wanted_[kMostBanks][2 * kMostLanes];
  uint32_t count_[kMostBanks] = {};
};

// Counts by groups; `lanes_of` gives the lanes of one.
template <class Lanes>
LdsCycles cycles_of_groups(const uint32_t* address, uint64_t lanes, uint32_t bytes, bool merge, int groups,
                           uint32_t banks_of_lds, Lanes lanes_of) {
  LdsCycles total{0, 0};
  for (int g = 0; g < groups; ++g) {
    uint64_t active = lanes & lanes_of(g);
    if (!active) continue;
    Banks banks(banks_of_lds);
    for (; active; active &= active - 1) {
      const uint32_t at = address[__builtin_ctzll(active)];
      for (uint32_t d = at / kLdsBankBytes; d <= (at + bytes - 1) / kLdsBankBytes; ++d) banks.want(d, merge);
    }
    ++total.groups;
    total.cycles += banks.most();
  }
  return total;
}

LdsCycles count_cycles(const uint32_t* address, uint64_t lanes, uint32_t bytes, LdsKind access, Isa isa) {
  const bool merge = access != LdsKind::kAtomic;
  if (is_rdna(isa)) {
    const int wide = bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8;
    const uint64_t first = (uint64_t{1} << wide) - 1;
    return cycles_of_groups(address, lanes, bytes, merge, 64 / wide, 32,
                            [=](int g) { return first << wide * g; });
  }
  const bool wide = is_wide(bytes, access, isa);
  const int groups = (bytes <= 4 ? 2 : bytes <= 8 ? 4 : 8) / (wide ? 2 : 1);
  return cycles_of_groups(address, lanes, bytes, merge, groups, wide ? 64 : 32,
                          [=](int g) { return group_lanes(g, bytes, access, wide); });
}

// The arguments of lds_cycles. Addresses count from the first lane's row of banks: whole rows change nothing.
struct Access {
  Access() = default;
  Access(const uint32_t* from, uint64_t active, uint32_t size, LdsKind what, Isa of)
      : lanes(active), bytes(size), kind(static_cast<uint32_t>(what)), isa(static_cast<uint64_t>(of)) {
    constexpr auto kRowBytes = static_cast<uint32_t>(kMostBanks * kLdsBankBytes);
    const uint32_t row = from[__builtin_ctzll(lanes)] / kRowBytes * kRowBytes;
    for (uint32_t l = 0; l < kMostLanes; ++l) address[l] = lanes >> l & 1 ? from[l] - row : 0;
  }
  bool operator==(const Access& other) const = default;
  uint32_t hash() const {
    uint32_t sum = bytes + kind;
    for (uint32_t l = 0; l < kMostLanes; ++l) sum += address[l] * (2 * l + 0x9e3779b1);
    return sum ^ sum >> 16;
  }

  uint64_t lanes;  // 0: the entry is empty
  uint32_t bytes, kind;
  uint64_t isa;
  uint32_t address[kMostLanes];
};

// A thread keeps its last answers, since loops repeat a few accesses.
struct Known {
  Access access;
  LdsCycles cycles;
};
constexpr size_t kMostKnown = 256;
PerThread<std::array<Known, kMostKnown>> known_accesses;

}  // namespace

LdsCycles lds_cycles(const uint32_t* address, uint64_t lanes, uint32_t bytes, LdsKind access,
                     const UnitShape& shape) {
  if (!lanes) return {0, 0};
  const Access asked(address, lanes, bytes, access, shape.isa);
  Known& known = known_accesses.get()[asked.hash() % kMostKnown];
  if (known.access != asked) known = {asked, count_cycles(address, lanes, bytes, access, shape.isa)};
  return known.cycles;
}

}  // namespace fmha::emu
