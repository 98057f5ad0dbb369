// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine/hip.h"

#include <dlfcn.h>

#include "engine/api.h"
#include "fmha_rocm.hpp"

namespace fmha::onnxruntime {
namespace {

template <typename Function>
void bind(void* library, const char* path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) fail(ORT_EP_FAIL, "the HIP runtime %s has no %s", path, name);
}

Hip load() {
  const std::string path(fmha::hip_runtime_path());
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(ORT_EP_FAIL, "cannot open the HIP runtime %s: %s", path.c_str(), ::dlerror());
  Hip hip{};
  const auto take = [&](const char* name, auto& function) { bind(library, path.c_str(), name, function); };
  take("hipGetDeviceCount", hip.get_device_count);
  take("hipGetDevice", hip.get_device);
  take("hipSetDevice", hip.set_device);
  take("hipDeviceGetByPCIBusId", hip.device_get_by_pci_bus_id);
  take("hipMalloc", hip.malloc);
  take("hipFree", hip.free);
  take("hipHostMalloc", hip.host_malloc);
  take("hipHostFree", hip.host_free);
  take("hipMemcpy", hip.memcpy);
  take("hipMemcpyAsync", hip.memcpy_async);
  take("hipMemcpy2DAsync", hip.memcpy_2d_async);
  take("hipMemsetAsync", hip.memset_async);
  take("hipStreamCreateWithFlags", hip.stream_create);
  take("hipStreamDestroy", hip.stream_destroy);
  take("hipStreamSynchronize", hip.stream_synchronize);
  take("hipStreamWaitEvent", hip.stream_wait_event);
  take("hipEventCreateWithFlags", hip.event_create);
  take("hipEventDestroy", hip.event_destroy);
  take("hipEventRecord", hip.event_record);
  take("hipEventSynchronize", hip.event_synchronize);
  take("hipGetLastError", hip.get_last_error);
  take("hipGetErrorName", hip.get_error_name);
  return hip;
}

}  // namespace

const Hip& hip() {
  static const Hip bound = load();
  return bound;
}

void check_hip(int error, const char* what) {
  if (error == 0) return;
  (void)hip().get_last_error();
  fail(ORT_EP_FAIL, "%s: got %s, expected hipSuccess", what, hip().get_error_name(error));
}

CurrentDevice::CurrentDevice(int device) {
  check_hip(hip().get_device(&before_), "hipGetDevice");
  if (device == before_) return;
  check_hip(hip().set_device(device), "hipSetDevice");
}

CurrentDevice::~CurrentDevice() { (void)hip().set_device(before_); }

}  // namespace fmha::onnxruntime
