// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/fault_injection.h"

#include <atomic>
#include <cstdint>

#include "base/environment.h"
#include "hip/state.h"

namespace fmha::emu {
namespace {

constexpr const char* kAllocation = "FMHA_EMU_FAIL_ALLOC";
constexpr const char* kLaunch = "FMHA_EMU_FAIL_LAUNCH";
constexpr const char* kLost = "FMHA_EMU_DEVICE_LOST";

std::atomic<uint64_t> allocations{0}, launches{0};
std::atomic<uint64_t> lost_devices{0};  // bit n: device n

// True if the variable names this number.
bool ordered(const char* variable, uint64_t number) {
  return environment_number(variable, 0, UINT64_MAX, 0) == number;
}

uint64_t bit_of(int device) { return uint64_t{1} << (device & 63); }

}  // namespace

void check_injection_variables() {
  for (const char* variable : {kAllocation, kLaunch, kLost}) ordered(variable, 0);
}

int inject_allocation_failure(int device, const char* function) {
  const uint64_t number = ++allocations;
  if (const int e = lost_device_error(device)) return fail(e, "%s: device %d is lost", function, device);
  if (!ordered(kAllocation, number)) return hipSuccess;
  return fail(hipErrorOutOfMemory, "%s: allocation %llu fails as FMHA_EMU_FAIL_ALLOC orders", function,
              static_cast<unsigned long long>(number));
}

int inject_launch_failure(int device, const char* kernel) {
  const uint64_t number = ++launches;
  if (ordered(kLost, number)) {
    lost_devices |= bit_of(device);
    ++emu::device(device).faults;  // what was queued does not run
    return fail(hipErrorLaunchFailure,
                "launch of %s: device %d is lost at launch %llu as FMHA_EMU_DEVICE_LOST orders", kernel,
                device, static_cast<unsigned long long>(number));
  }
  if (!ordered(kLaunch, number)) return hipSuccess;
  return fail(hipErrorLaunchOutOfResources, "launch of %s: launch %llu fails as FMHA_EMU_FAIL_LAUNCH orders",
              kernel, static_cast<unsigned long long>(number));
}

int lost_device_error(int device) {
  return lost_devices & bit_of(device) ? hipErrorLaunchFailure : hipSuccess;
}

void find_lost_device(int device) { lost_devices &= ~bit_of(device); }

}  // namespace fmha::emu
