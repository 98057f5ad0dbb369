// SPDX-License-Identifier: MIT OR Apache-2.0
// hipStreamWriteValue and hipStreamWaitValue: a number in memory that a stream writes, or goes on at.
#include <chrono>
#include <thread>

#include "base/cancel.h"
#include "core/memory.h"
#include "hip/graph/graph.h"
#include "hip/stream/work.h"

namespace fmha::emu {
namespace {

enum Condition : unsigned { kAtLeast, kEqual, kAnd, kNor };

struct Wait {
  const void* address;
  uint64_t value, mask;
  Condition condition;
  unsigned bytes;
};

bool holds(const Wait& w, uint64_t there) {
  const uint64_t all = ~uint64_t{0} >> (64 - 8 * w.bytes);
  switch (w.condition) {
    case kAtLeast:
      return (there & w.mask) >= w.value;
    case kEqual:
      return (there & w.mask) == w.value;
    case kAnd:
      return (there & w.mask & w.value) != 0;
    case kNor:
      return (~((there & w.mask) | (w.value & w.mask)) & all) != 0;
  }
  return false;
}

uint64_t load(const Wait& w) {
  return w.bytes == 8 ? __atomic_load_n(static_cast<const uint64_t*>(w.address), __ATOMIC_ACQUIRE)
                      : __atomic_load_n(static_cast<const uint32_t*>(w.address), __ATOMIC_ACQUIRE);
}

// Runs on the stream's thread. A kernel, another stream or the host may write the number.
void wait_until(const Wait& w, int device_index) {
  constexpr auto kBetweenLooks = std::chrono::microseconds(50);
  for (const uint64_t since = asked_at();;) {
    if (is_cancelled(since)) return note_cancelled();
    {
      std::shared_lock gate(launch_gate());
      Allocation a;
      const auto address = reinterpret_cast<uint64_t>(w.address);
      if (!memory_find(address, &a)) {
        tell_fault(
            device_index, hipErrorIllegalAddress,
            "a stream waits for a value in memory that was freed: " + memory_describe_nearest(address));
        return;
      }
      if (holds(w, load(w))) return;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

int check_place(const char* function, const void* p, unsigned bytes) {
  const auto address = reinterpret_cast<uint64_t>(p);
  Allocation a;
  if (!p || address % bytes || !memory_find(address, &a) || bytes > a.bytes - (address - a.base)) {
    return fail(hipErrorInvalidValue,
                "%s: ptr is %p, expected a multiple of %u in memory of this runtime; it is %s", function, p,
                bytes, memory_describe_nearest(address).c_str());
  }
  return hipSuccess;
}

int wait_value(const char* function, HipStream handle, const Wait& w, unsigned flags) {
  return guarded([&] {
    if (flags > kNor) return fail(hipErrorInvalidValue, "%s: flags is %u, expected 0 to 3", function, flags);
    if (const int e = check_place(function, w.address, w.bytes)) return e;
    const StreamRef stream = find_stream(handle, function);
    if (!stream) return static_cast<int>(hipErrorContextIsDestroyed);
    if (const int e = device_fault(stream->device)) return e;
    wait_for_room(stream);
    std::lock_guard lock(queue_mutex());
    if (stream->capture)
      return invalidate(*stream->capture, hipErrorStreamCaptureUnsupported, function,
                        "a graph has no such node");
    if (const int e = check_legacy(*stream, function)) return e;
    OpBody body = [w, index = stream->device](bool alive) {
      if (alive) wait_until(w, index);
    };
    submit(stream, std::move(body), {}, {0, true});
    return static_cast<int>(hipSuccess);
  });
}

template <class T>
int write_value(const char* function, HipStream handle, void* p, T value) {
  return guarded([&] {
    if (const int e = check_place(function, p, sizeof value)) return e;
    return enqueue(function, handle, FillWork{p, 0, value, sizeof value, 1, 1});
  });
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipStreamWaitValue32(HipStream stream, void* p, uint32_t value, unsigned flags, uint32_t mask) {
  return wait_value("hipStreamWaitValue32", stream, {p, value, mask, static_cast<Condition>(flags), 4},
                    flags);
}
HIP_API int hipStreamWaitValue64(HipStream stream, void* p, uint64_t value, unsigned flags, uint64_t mask) {
  return wait_value("hipStreamWaitValue64", stream, {p, value, mask, static_cast<Condition>(flags), 8},
                    flags);
}
HIP_API int hipStreamWriteValue32(HipStream stream, void* p, uint32_t value, unsigned) {
  return write_value("hipStreamWriteValue32", stream, p, value);
}
HIP_API int hipStreamWriteValue64(HipStream stream, void* p, uint64_t value, unsigned) {
  return write_value("hipStreamWriteValue64", stream, p, value);
}
