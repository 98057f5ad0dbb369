// SPDX-License-Identifier: MIT OR Apache-2.0
// Where managed memory should lie. There is one place; the arguments are checked, and a prefetch keeps its
// place in the stream.
#include "core/memory.h"
#include "hip/state.h"
#include "hip/stream/work.h"

namespace fmha::emu {
namespace {

constexpr int kCpu = -1;  // hipCpuDeviceId
constexpr int kFirstAdvice = 1, kLastAdvice = 6, kCoarseGrain = 100, kFineGrain = 101;

int check_managed(const void* p, size_t bytes, int place, const char* function) {
  Allocation a;
  const auto address = reinterpret_cast<uint64_t>(p);
  if (place != kCpu && (place < 0 || place >= device_count())) {
    return fail(hipErrorInvalidDevice, "%s: device is %d, expected -1 (the host) to %d", function, place,
                device_count() - 1);
  }
  if (p && bytes && memory_find(address, &a) && a.kind == MemoryKind::kManaged &&
      bytes <= a.bytes - (address - a.base))
    return hipSuccess;
  return fail(hipErrorInvalidValue, "%s: %p, %zu bytes are not managed memory (hipMallocManaged); it is %s",
              function, p, bytes, memory_describe_nearest(address).c_str());
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipMemAdvise(const void* p, size_t bytes, int advice, int place) {
  return guarded([&] {
    const bool known =
        (advice >= kFirstAdvice && advice <= kLastAdvice) || advice == kCoarseGrain || advice == kFineGrain;
    if (!known) return fail(hipErrorInvalidValue, "hipMemAdvise: there is no advice %d", advice);
    return check_managed(p, bytes, place, "hipMemAdvise");
  });
}

HIP_API int hipMemPrefetchAsync(const void* p, size_t bytes, int place, HipStream stream) {
  return guarded([&] {
    if (const int e = check_managed(p, bytes, place, "hipMemPrefetchAsync")) return e;
    return enqueue("hipMemPrefetchAsync", stream, EmptyWork{});
  });
}
