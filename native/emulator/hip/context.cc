// SPDX-License-Identifier: MIT OR Apache-2.0
// Contexts, as ROCm has them: each device has one, its primary context, whichever call asks for it. A thread
// has a stack of them, and its current device is that of the top.
#include <vector>

#include "base/per_thread.h"
#include "hip/graph/graph.h"

namespace fmha::emu {
namespace {

using HipContext = Device*;

std::vector<HipContext>& stack() { return per_thread<std::vector<HipContext>>(); }

int check_context(HipContext context, const char* function) {
  for (int i = 0; i < device_count(); ++i) {
    if (context == &device(i)) return hipSuccess;
  }
  return fail(hipErrorInvalidContext, "%s: %p is not a context", function, static_cast<void*>(context));
}

int push(HipContext context, const char* function) {
  if (const int e = check_context(context, function)) return e;
  stack().push_back(context);
  set_current_device(context->index);
  return hipSuccess;
}

int pop(HipContext* out, const char* function) {
  if (stack().empty()) return fail(hipErrorInvalidContext, "%s: this thread has pushed no context", function);
  if (out) *out = stack().back();
  stack().pop_back();
  if (!stack().empty()) set_current_device(stack().back()->index);
  return hipSuccess;
}

int synchronize(const char* function) {
  const int index = current_device();
  if (const int e = end_captures(hipErrorStreamCaptureUnsupported, function)) return e;
  if (const int e = wait_for_device(index, function)) return e;
  forget_dropped(index);
  return device_fault(index);
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;
extern "C" int hipDeviceReset();
extern "C" int hipDeviceEnablePeerAccess(int peer, unsigned flags);
extern "C" int hipDeviceDisablePeerAccess(int peer);

HIP_API int hipCtxCreate(HipContext* out, unsigned, int index) {
  return guarded([&] {
    if (!out) return null_argument("hipCtxCreate", "ctx");
    if (const int e = check_device(index, "hipCtxCreate")) return e;
    *out = &device(index);
    return push(*out, "hipCtxCreate");
  });
}
// The device goes on: the context is its primary one.
HIP_API int hipCtxDestroy(HipContext context) {
  return guarded([&] {
    if (const int e = check_context(context, "hipCtxDestroy")) return e;
    return !stack().empty() && stack().back() == context ? pop(nullptr, "hipCtxDestroy") : hipSuccess;
  });
}
HIP_API int hipCtxPushCurrent(HipContext context) {
  return guarded([&] { return push(context, "hipCtxPushCurrent"); });
}
HIP_API int hipCtxPopCurrent(HipContext* out) {
  return guarded([&] { return pop(out, "hipCtxPopCurrent"); });
}
// Replaces the top; null: takes it away.
HIP_API int hipCtxSetCurrent(HipContext context) {
  return guarded([&] {
    if (!context) return stack().empty() ? hipSuccess : pop(nullptr, "hipCtxSetCurrent");
    if (const int e = check_context(context, "hipCtxSetCurrent")) return e;
    if (!stack().empty()) stack().pop_back();
    return push(context, "hipCtxSetCurrent");
  });
}
HIP_API int hipCtxGetCurrent(HipContext* out) {
  return guarded([&] {
    if (!out) return null_argument("hipCtxGetCurrent", "ctx");
    *out = stack().empty() ? &device(current_device()) : stack().back();
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipCtxGetDevice(int* index) {
  return guarded([&] {
    if (!index) return null_argument("hipCtxGetDevice", "device");
    *index = current_device();
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipCtxGetApiVersion(HipContext context, unsigned* version) {
  return guarded([&] {
    if (!version) return null_argument("hipCtxGetApiVersion", "apiVersion");
    if (const int e = context ? check_context(context, "hipCtxGetApiVersion") : hipSuccess) return e;
    *version = 4;
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipCtxGetFlags(unsigned* flags) {
  return guarded([&] {
    if (!flags) return null_argument("hipCtxGetFlags", "flags");
    *flags = 0;
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipCtxSynchronize() {
  return guarded([] { return synchronize("hipCtxSynchronize"); });
}
HIP_API int hipDeviceSynchronize() {
  return guarded([] { return synchronize("hipDeviceSynchronize"); });
}
HIP_API int hipCtxEnablePeerAccess(HipContext peer, unsigned flags) {
  return guarded([&] {
    if (const int e = check_context(peer, "hipCtxEnablePeerAccess")) return e;
    return hipDeviceEnablePeerAccess(peer->index, flags);
  });
}
HIP_API int hipCtxDisablePeerAccess(HipContext peer) {
  return guarded([&] {
    if (const int e = check_context(peer, "hipCtxDisablePeerAccess")) return e;
    return hipDeviceDisablePeerAccess(peer->index);
  });
}
// This hardware has neither caches nor banks to configure.
HIP_API int hipCtxSetCacheConfig(int) {
  return guarded([] { return static_cast<int>(hipSuccess); });
}
HIP_API int hipCtxSetSharedMemConfig(int) {
  return guarded([] { return static_cast<int>(hipSuccess); });
}
HIP_API int hipCtxGetCacheConfig(int* config) {
  return guarded([&] {
    if (!config) return null_argument("hipCtxGetCacheConfig", "cacheConfig");
    *config = 0;  // none preferred
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipCtxGetSharedMemConfig(int* config) {
  return guarded([&] {
    if (!config) return null_argument("hipCtxGetSharedMemConfig", "pConfig");
    *config = 1;  // banks of four bytes
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipDevicePrimaryCtxRetain(HipContext* out, int index) {
  return guarded([&] {
    if (!out) return null_argument("hipDevicePrimaryCtxRetain", "pctx");
    if (const int e = check_device(index, "hipDevicePrimaryCtxRetain")) return e;
    ++device(index).retained;
    *out = &device(index);
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipDevicePrimaryCtxRelease(int index) {
  return guarded([&] {
    if (const int e = check_device(index, "hipDevicePrimaryCtxRelease")) return e;
    std::atomic<int>& retained = device(index).retained;
    int count = retained;
    while (count > 0 && !retained.compare_exchange_weak(count, count - 1)) {
    }
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipDevicePrimaryCtxGetState(int index, unsigned* flags, int* active) {
  return guarded([&] {
    if (!flags || !active) return null_argument("hipDevicePrimaryCtxGetState", "flags or active");
    if (const int e = check_device(index, "hipDevicePrimaryCtxGetState")) return e;
    *flags = 0;
    *active = index == current_device() || device(index).retained > 0;
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipDevicePrimaryCtxReset(int index) {
  return guarded([&] {
    if (const int e = check_device(index, "hipDevicePrimaryCtxReset")) return e;
    const int before = current_device();
    set_current_device(index);
    const int code = hipDeviceReset();
    set_current_device(before);
    return code;
  });
}
// Like ROCm's: the context is always active, and an active one keeps its flags.
HIP_API int hipDevicePrimaryCtxSetFlags(int index, unsigned) {
  return guarded([&] {
    if (const int e = check_device(index, "hipDevicePrimaryCtxSetFlags")) return e;
    return fail(hipErrorContextAlreadyInUse, "hipDevicePrimaryCtxSetFlags: the context is in use");
  });
}
