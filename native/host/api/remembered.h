// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread's last calls, so that one like a call before makes no problem and chooses no kernel: it takes over
// that call's, checked as it is, and puts its own addresses in. Checks that depend on addresses are made
// anew: overlaps, and whose memory it is. Only calls that succeeded are remembered.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "launch/device.h"
#include "memory/view.h"

namespace fmha {

// A call of a family, F as api/call.h has it.
template <typename F>
struct Remembered {
  Remembered() {}  // nothing is read before it is written, but for `used`

  bool used = false;
  Pointers pointers;
  typename F::Structs structs;
  const Device* device;
  typename F::Choice choice;
  typename F::Problem problem;
};

// Calls of all families, by a number of the call. They are in memory of the thread itself, zero at first:
// there is no lock, and nothing is allocated.
class Memory {
 public:
  template <typename F>
  static Remembered<F>& at(uint64_t number) {
    using Entry = Remembered<F>;
    static_assert(sizeof(Entry) <= kBytes && alignof(Entry) <= alignof(Slot));
    static_assert(std::is_trivially_destructible_v<Entry>);
    static thread_local std::array<Slot, kSlots> slots;
    constexpr uint64_t kOwner = static_cast<uint64_t>(F::kFamily) + 1;
    Slot& slot = slots[((number + kOwner) * 0x9e3779b97f4a7c15 >> 32) % kSlots];
    if (slot.owner == kOwner) return *std::launder(reinterpret_cast<Entry*>(slot.bytes));
    slot.owner = kOwner;
    return *new (slot.bytes) Entry;
  }

 private:
  static constexpr size_t kSlots = 8;  // a model's layers are of few shapes
  static constexpr size_t kBytes = 3584;

  struct Slot {
    uint64_t owner;  // 0: nobody's
    alignas(16) std::byte bytes[kBytes];
  };
};

}  // namespace fmha
