// SPDX-License-Identifier: MIT OR Apache-2.0
// hipDeviceSetLimit and hipDeviceGetLimit: of each device, by number.
#include "hip/state.h"

namespace fmha::emu {
namespace {

enum Limit : int { kStackSize, kPrintfFifo, kMallocHeap };

// The most that hardware can give a lane: 13 bits of units of 1 KiB a wave.
constexpr size_t kLargestStack = 131056;

int check_limit(int limit, const char* function) {
  if (limit == kStackSize) return hipSuccess;
  if (limit == kPrintfFifo || limit == kMallocHeap) {
    return fail(hipErrorUnsupportedLimit, "%s: limit %d: kernels have neither printf nor malloc here",
                function, limit);
  }
  return fail(hipErrorInvalidValue, "%s: limit is %d, expected 0 (stack size)", function, limit);
}

}  // namespace

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipDeviceGetLimit(size_t* value, int limit) {
  return guarded([&] {
    if (!value) return null_argument("hipDeviceGetLimit", "pValue");
    if (const int e = check_limit(limit, "hipDeviceGetLimit")) return e;
    *value = device(current_device()).stack_bytes;
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipDeviceSetLimit(int limit, size_t value) {
  return guarded([&] {
    if (const int e = check_limit(limit, "hipDeviceSetLimit")) return e;
    if (value > kLargestStack) {
      return fail(hipErrorInvalidValue, "hipDeviceSetLimit: a stack of %zu bytes, expected at most %zu",
                  value, kLargestStack);
    }
    const auto bytes = static_cast<uint32_t>((value + 15) / 16 * 16);
    device(current_device()).stack_bytes = bytes ? bytes : kDefaultStack;
    return static_cast<int>(hipSuccess);
  });
}
