// SPDX-License-Identifier: MIT OR Apache-2.0
// The slow paths of a wave: what it says when it must stop, and what it tells observers.
#include "core/wave.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "core/events.h"

namespace fmha::emu {

void Wave::fault(const Inst& inst, int hip_error, const char* format, ...) {
  state = WaveState::kFaulted;
  if (group->hip_error) return;  // only the first is told
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  group->hip_error = hip_error;
  group->fault = group->where(*this, inst) + ": " + text;
}

uint8_t* Wave::global_slow(const Inst& inst, uint64_t address, uint32_t bytes, int lane) {
  const bool store = inst.row && (inst.row->flags & kStore);
  const bool atomic = inst.row && (inst.row->flags & kAtomic);
  const int device = group->device;
  if (Allocation a; memory_find(address, &a) && !memory_reachable(a, device)) {
    fault(inst, hipErrorIllegalAddress,
          "lane %d: 0x%" PRIx64 " is memory of device %d, to which device %d has no peer access; it is %s",
          lane, address, a.device, device, memory_describe_nearest(address).c_str());
    return nullptr;
  }
  fault(inst, hipErrorIllegalAddress, "lane %d: %s of %u bytes at 0x%" PRIx64 " is %s; it is %s", lane,
        atomic  ? "atomic"
        : store ? "store"
                : "load",
        bytes, address, memory_was_freed(address) ? "a use after free" : "not inside one allocation",
        memory_describe_nearest(address).c_str());
  return nullptr;
}

bool Wave::tell_global(const Inst& inst, uint64_t address, uint32_t bytes, int lane) {
  return listeners->all(kEventGlobal,
                        [&](GroupObserver& o) { return o.global(*this, inst, address, bytes, lane); });
}

bool Wave::tell_global_lanes(const Inst& inst, uint64_t base, const uint32_t* offset, uint64_t lanes,
                             uint32_t bytes) {
  return listeners->all(kEventGlobal, [&](GroupObserver& o) {
    return o.global_lanes(*this, inst, base, offset, lanes, bytes);
  });
}

bool Wave::tell_scalar(const Inst& inst, uint64_t address) {
  return listeners->all(kEventScalar, [&](GroupObserver& o) { return o.scalar(*this, inst, address); });
}

void Wave::tell_scratch(const Inst& inst, uint32_t bytes, int lane) {
  listeners->all(kEventScratch, [&](GroupObserver& o) { return o.scratch(*this, inst, bytes, lane), true; });
}

void Wave::tell_lds(const Inst& inst, const uint32_t* address, uint64_t lanes, uint32_t bytes) {
  if (!lanes) return;
  listeners->all(kEventLds,
                 [&](GroupObserver& o) { return o.lds(*this, inst, address, lanes, bytes), true; });
}

}  // namespace fmha::emu
