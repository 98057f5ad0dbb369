// SPDX-License-Identifier: MIT OR Apache-2.0
// The devices, the one that a thread uses, and peers.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/environment.h"
#include "base/per_thread.h"
#include "check/config.h"
#include "core/bounds.h"
#include "core/card.h"
#include "core/memory.h"
#include "core/shadow.h"
#include "hip/fault_injection.h"
#include "hip/graph/graph.h"
#include "hip/rocm.h"
#include "hip/state.h"
#include "isa/table.h"
#include "launch/dispatch.h"
#include "launch/schedule.h"
#include "launch/thread_pool.h"

namespace fmha::emu {
namespace {

// Every variable is read once before anything else is done, so that none that cannot be taken comes to light
// hours later, at the first fault, say.
void check_variables() {
  check_checks_variable();
  check_schedule_variable();
  bounds_are_pages();
  check_launch_variables();
  check_injection_variables();
  instruction_budget();
  wanted_threads();
  unwritten_track_all();
  isa_level();
  rocm();
  device_memory_bytes();
}

std::vector<std::unique_ptr<Device>>& devices() {
  static auto* all = [] {
    check_variables();
    auto* v = new std::vector<std::unique_ptr<Device>>;
    const auto count = static_cast<int>(environment_number("FMHA_EMU_DEVICES", 1, kMostDevices, 1));
    for (int i = 0; i < count; ++i) {
      v->push_back(std::make_unique<Device>());
      v->back()->index = i;
    }
    return v;
  }();
  return *all;
}

FMHA_THREAD_NUMBER int this_device = 0;
std::mutex peers_mutex;

// Reads one hexadecimal number and the character behind it off the front of *text.
bool take_hex(const char** text, const char* end, char behind, unsigned* value) {
  const auto [stop, error] = std::from_chars(*text, end, *value, 16);
  if (error != std::errc() || *stop != behind) return false;  // *end is the terminating 0
  *text = stop + 1;
  return true;
}

}  // namespace

uint64_t device_memory_bytes() {
  static const uint64_t bytes =
      environment_number("FMHA_EMU_MEMORY", 1, uint64_t{1} << 48, device_card().memory_bytes.value);
  return bytes;
}

std::string device_name() {
  return std::string("Emulated ") + device_card().name + " (" + device_arch().name + ")";
}

int device_count() { return static_cast<int>(devices().size()); }
Device& device(int index) { return *devices()[static_cast<size_t>(index)]; }
int current_device() { return this_device; }
void set_current_device(int index) { this_device = index; }

int check_device(int index, const char* function) {
  if (index >= 0 && index < device_count()) return hipSuccess;
  fail(hipErrorInvalidDevice, "%s: device is %d, expected 0 to %d", function, index, device_count() - 1);
  return hipErrorInvalidDevice;  // said here, so that static analysis sees that this is not success
}

int null_argument(const char* function, const char* name) {
  return fail(hipErrorInvalidValue, "%s: %s is null", function, name);
}

int device_fault(int index) {
  if (const int e = lost_device_error(index)) return fail(e, "device %d is lost", index);
  const int fault = device(index).fault;
  if (!fault) return hipSuccess;
  fail(fault, "device %d: a launch stopped earlier: %s", index, error_name(fault));
  set_told_of_fault(index);
  return fault;
}

Gate& launch_gate() {
  static Gate* gate = new Gate;
  return *gate;
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipInit(unsigned flags) {
  return guarded([&] {
    if (flags) return fail(hipErrorInvalidValue, "hipInit: flags is %u, expected 0", flags);
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipDriverGetVersion(int* version) {
  return answered([&]() -> int {
    if (!version) return null_argument("hipDriverGetVersion", "version");
    *version = runtime_version();
    return hipSuccess;
  });
}

HIP_API int hipRuntimeGetVersion(int* version) {
  return answered([&]() -> int {
    if (!version) return null_argument("hipRuntimeGetVersion", "version");
    *version = runtime_version();
    return hipSuccess;
  });
}

HIP_API int hipGetDeviceCount(int* count) {
  return answered([&]() -> int {
    if (!count) return null_argument("hipGetDeviceCount", "count");
    *count = device_count();
    return hipSuccess;
  });
}

HIP_API int hipSetDevice(int index) {
  return answered([&]() -> int {
    if (int e = check_device(index, "hipSetDevice")) return e;
    this_device = index;
    return hipSuccess;
  });
}

HIP_API int hipGetDevice(int* index) {
  return answered([&]() -> int {
    if (!index) return null_argument("hipGetDevice", "device");
    *index = this_device;
    return hipSuccess;
  });
}

HIP_API int hipDeviceGet(int* device, int ordinal) {
  return answered([&]() -> int {
    if (!device) return null_argument("hipDeviceGet", "device");
    if (int e = check_device(ordinal, "hipDeviceGet")) return e;
    *device = ordinal;
    return hipSuccess;
  });
}

HIP_API int hipDeviceGetName(char* name, int bytes, int index) {
  return answered([&]() -> int {
    if (!name) return null_argument("hipDeviceGetName", "name");
    if (int e = check_device(index, "hipDeviceGetName")) return e;
    if (bytes <= 0)
      return fail(hipErrorInvalidValue, "hipDeviceGetName: len is %d, expected more than 0", bytes);
    std::snprintf(name, static_cast<size_t>(bytes), "%s", device_name().c_str());
    return hipSuccess;
  });
}

HIP_API int hipDeviceGetUuid(HipUuid* uuid, int index) {
  return answered([&]() -> int {
    if (!uuid) return null_argument("hipDeviceGetUuid", "uuid");
    if (int e = check_device(index, "hipDeviceGetUuid")) return e;
    char text[24];  // for any number
    std::snprintf(text, sizeof text, "GPU-emu-%08d", index);
    std::memcpy(uuid->bytes, text, sizeof uuid->bytes);
    return hipSuccess;
  });
}

HIP_API int hipDeviceTotalMem(size_t* bytes, int index) {
  return answered([&]() -> int {
    if (!bytes) return null_argument("hipDeviceTotalMem", "bytes");
    if (int e = check_device(index, "hipDeviceTotalMem")) return e;
    *bytes = device_memory_bytes();
    return hipSuccess;
  });
}

HIP_API int hipDeviceComputeCapability(int* major, int* minor, int index) {
  return answered([&]() -> int {
    if (!major || !minor) return null_argument("hipDeviceComputeCapability", "major or minor");
    if (int e = check_device(index, "hipDeviceComputeCapability")) return e;
    *major = device_arch().capability_major;
    *minor = device_arch().capability_minor;
    return hipSuccess;
  });
}

HIP_API int hipDeviceGetPCIBusId(char* text, int bytes, int index) {
  return answered([&]() -> int {
    if (!text || bytes < 13)
      return fail(hipErrorInvalidValue, "hipDeviceGetPCIBusId: needs a buffer of at least 13 bytes");
    if (int e = check_device(index, "hipDeviceGetPCIBusId")) return e;
    std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", index + 1);
    return hipSuccess;
  });
}

HIP_API int hipDeviceGetByPCIBusId(int* index, const char* text) {
  return answered([&]() -> int {
    if (!index || !text) return null_argument("hipDeviceGetByPCIBusId", "device or pciBusId");
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    const char *end = text + std::strlen(text), *rest = text;
    const bool read = take_hex(&rest, end, ':', &domain) && take_hex(&rest, end, ':', &bus) &&
                      take_hex(&rest, end, '.', &slot) && take_hex(&rest, end, '\0', &function);
    const int found = static_cast<int>(bus) - 1;
    if (!read || domain || slot || function || found < 0 || found >= device_count()) {
      return fail(hipErrorInvalidDevice, "hipDeviceGetByPCIBusId: no device at \"%s\"", text);
    }
    *index = found;
    return hipSuccess;
  });
}

HIP_API int hipDeviceReset() {
  return guarded([] {
    if (const int e = check_unsafe("hipDeviceReset")) return e;
    if (const int e = wait_for_device(this_device, "hipDeviceReset")) return e;
    free_device_memory(this_device);
    device(this_device).fault = hipSuccess;
    forget_dropped(this_device);
    find_lost_device(this_device);
    memory_set_peers(this_device, 0);
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipSetDeviceFlags(unsigned) {
  return answered([&]() -> int { return hipSuccess; });
}

HIP_API int hipGetDeviceFlags(unsigned* flags) {
  return answered([&]() -> int {
    if (!flags) return null_argument("hipGetDeviceFlags", "flags");
    *flags = 0;
    return hipSuccess;
  });
}

HIP_API int hipDeviceSetCacheConfig(int) {
  return answered([&]() -> int { return hipSuccess; });
}

HIP_API int hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return answered([&]() -> int {
    if (least) *least = 1;
    if (greatest) *greatest = -1;
    return hipSuccess;
  });
}

HIP_API int hipDeviceCanAccessPeer(int* can, int index, int peer) {
  return answered([&]() -> int {
    if (!can) return null_argument("hipDeviceCanAccessPeer", "canAccessPeer");
    if (int e = check_device(index, "hipDeviceCanAccessPeer")) return e;
    if (int e = check_device(peer, "hipDeviceCanAccessPeer")) return e;
    *can = index != peer;
    return hipSuccess;
  });
}

HIP_API int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return answered([&]() -> int {
    if (flags) return fail(hipErrorInvalidValue, "hipDeviceEnablePeerAccess: flags is %u, expected 0", flags);
    if (int e = check_device(peer, "hipDeviceEnablePeerAccess")) return e;
    if (peer == this_device)
      return fail(hipErrorInvalidDevice, "hipDeviceEnablePeerAccess: the peer is the device itself");
    const uint32_t bit = 1u << peer;
    std::lock_guard lock(peers_mutex);
    const uint32_t peers = memory_peers(this_device);
    memory_set_peers(this_device, peers | bit);
    if (peers & bit) {
      return fail(hipErrorPeerAccessAlreadyEnabled, "hipDeviceEnablePeerAccess: device %d is enabled already",
                  peer);
    }
    return hipSuccess;
  });
}

HIP_API int hipDeviceDisablePeerAccess(int peer) {
  return answered([&]() -> int {
    if (int e = check_device(peer, "hipDeviceDisablePeerAccess")) return e;
    if (const int e = wait_for_device(this_device, "hipDeviceDisablePeerAccess")) return e;
    const uint32_t bit = 1u << peer;
    std::lock_guard lock(peers_mutex);
    const uint32_t peers = memory_peers(this_device);
    memory_set_peers(this_device, peers & ~bit);
    if (!(peers & bit)) {
      return fail(hipErrorPeerAccessNotEnabled, "hipDeviceDisablePeerAccess: device %d is not enabled", peer);
    }
    return hipSuccess;
  });
}

// Lets a test go on after a launch that was meant to stop, without losing the device's memory.
HIP_API void fmha_emu_clear_fault() {
  forget_final_fault();
  for (int i = 0; i < device_count(); ++i) {
    device(i).fault = hipSuccess;
    forget_dropped(i);
  }
}

HIP_API const char* fmha_emu_isa_level() { return isa_level(); }
