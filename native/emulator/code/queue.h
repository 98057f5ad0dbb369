// SPDX-License-Identifier: MIT OR Apache-2.0
// The queues of memory operations that a wave has, as far as waits tell them apart.
#pragma once

#include <cstddef>
#include <cstdint>

#include "archs.h"
#include "core/inst.h"

namespace fmha::emu {

// kVector: vmcnt; kLds: lgkmcnt; kScalar: lgkmcnt, in no order; kFlat: two counters (wave_checks.h). kStore:
// stores and atomics that return nothing, where they have a counter of their own (vscnt, from gfx10 on).
enum class Queue : uint8_t { kVector, kLds, kScalar, kFlat, kStore };
constexpr size_t kQueues = 5;

// Do operations of the queue complete in the order in which they were issued?
constexpr bool is_in_order(Queue q) { return q == Queue::kVector || q == Queue::kLds || q == Queue::kStore; }

Queue queue_of(const Inst& inst, Isa isa);

// How many operations a wait leaves in flight of each kind that it waits for.
struct Waits {
  static constexpr uint32_t kAny = ~0u;
  uint32_t vector = kAny, stores = kAny, lds = kAny, scalars = kAny;
};
Waits waits_of(const Inst& inst, Isa isa);

// How far a wave's operations have come, by queue: numbers issued, completed, and published by a barrier.
struct QueueProgress {
  uint32_t issued[kQueues] = {}, done[kQueues] = {};
  uint32_t published[kQueues] = {}, arrived[kQueues] = {};  // done and issued at the last barrier
};

}  // namespace fmha::emu
