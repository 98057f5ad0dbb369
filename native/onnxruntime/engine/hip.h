// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions of HIP that the provider calls, of the runtime that libfmha_rocm uses.
#pragma once

#include <cstddef>

namespace fmha::onnxruntime {

using HipStream = void*;
using HipEvent = void*;

enum class CopyKind { kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3 };  // HIP's hipMemcpyKind

struct Hip {
  int (*get_device_count)(int* count);
  int (*get_device)(int* device);
  int (*set_device)(int device);
  int (*device_get_by_pci_bus_id)(int* device, const char* id);
  int (*malloc)(void** data, size_t bytes);
  int (*free)(void* data);
  int (*host_malloc)(void** data, size_t bytes, unsigned flags);
  int (*host_free)(void* data);
  int (*memcpy)(void* to, const void* from, size_t bytes, CopyKind kind);
  int (*memcpy_async)(void* to, const void* from, size_t bytes, CopyKind kind, HipStream stream);
  int (*memcpy_2d_async)(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                         size_t height, CopyKind kind, HipStream stream);
  int (*memset_async)(void* data, int value, size_t bytes, HipStream stream);
  int (*stream_create)(HipStream* stream, unsigned flags);
  int (*stream_destroy)(HipStream stream);
  int (*stream_synchronize)(HipStream stream);
  int (*stream_wait_event)(HipStream stream, HipEvent event, unsigned flags);
  int (*event_create)(HipEvent* event, unsigned flags);
  int (*event_destroy)(HipEvent event);
  int (*event_record)(HipEvent event, HipStream stream);
  int (*event_synchronize)(HipEvent event);
  int (*get_last_error)();
  const char* (*get_error_name)(int error);
};

// Loads the runtime when first called; throws if there is none.
const Hip& hip();

// Throws the name of an error that `what` returned.
void check_hip(int error, const char* what);

// Makes a device the thread's current one, and the one before it at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

}  // namespace fmha::onnxruntime
