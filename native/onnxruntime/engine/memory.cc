// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine/memory.h"

#include "engine/hip.h"

namespace fmha::onnxruntime {
namespace {

struct Allocator : OrtAllocator {
  Allocator(const Place& of, bool host);
  void* allocate(size_t bytes, HipStream stream) const;
  void release(void* data) const;

  const Place& place;
  const bool pinned;
};

const Allocator& self(const OrtAllocator* allocator) { return *static_cast<const Allocator*>(allocator); }

Allocator::Allocator(const Place& of, bool host) : OrtAllocator{}, place(of), pinned(host) {
  version = kApiVersion;
  Alloc = [](OrtAllocator* allocator, size_t bytes) { return self(allocator).allocate(bytes, nullptr); };
  Reserve = Alloc;
  if (!pinned) {
    AllocOnStream = [](OrtAllocator* allocator, size_t bytes, OrtSyncStream* stream) {
      return self(allocator).allocate(bytes, api().SyncStream_GetHandle(stream));
    };
  }
  Free = [](OrtAllocator* allocator, void* data) { self(allocator).release(data); };
  Info = [](const OrtAllocator* allocator) {
    const Allocator& that = self(allocator);
    return that.pinned ? that.place.pinned() : that.place.memory();
  };
}

// The interface has no other error than NULL; the log has the reason.
void* Allocator::allocate(size_t bytes, HipStream stream) const {
  try {
    if (!pinned) return place.pool().take(bytes, stream);
    void* data = nullptr;
    const CurrentDevice current(place.device());
    if (bytes > 0) check_hip(hip().host_malloc(&data, bytes, 0), "hipHostMalloc");
    return data;
  } catch (const std::exception& error) {
    log(ORT_LOGGING_LEVEL_ERROR,
        std::to_string(bytes) + " bytes of device " + std::to_string(place.device()) + ": " + error.what());
    return nullptr;
  }
}

void Allocator::release(void* data) const {
  if (data == nullptr) return;
  if (pinned) {
    (void)hip().host_free(data);
  } else {
    place.pool().give(data);
  }
}

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  CopyKind kind;
  int device;
};

Copy copy_of(const OrtValue* from, OrtValue* to) {
  Copy copy{};
  check(api().GetTensorSizeInBytes(from, &copy.bytes));
  check(api().GetTensorData(from, &copy.from));
  check(api().GetTensorMutableData(to, &copy.to));
  const int source = device_of(ep_api().Value_GetMemoryDevice(from));
  const int target = device_of(ep_api().Value_GetMemoryDevice(to));
  copy.device = target >= 0 ? target : source;
  copy.kind = target < 0   ? CopyKind::kDeviceToHost
              : source < 0 ? CopyKind::kHostToDevice
                           : CopyKind::kDeviceToDevice;
  return copy;
}

// Without a stream the copy has been made when this returns.
void run(const Copy& copy, OrtSyncStream* stream) {
  if (copy.bytes == 0) return;
  const CurrentDevice current(copy.device);
  if (stream == nullptr) {
    check_hip(hip().memcpy(copy.to, copy.from, copy.bytes, copy.kind), "hipMemcpy");
    // HIP does not wait for a copy within a device.
    check_hip(hip().stream_synchronize(nullptr), "hipStreamSynchronize");
    return;
  }
  check_hip(hip().memcpy_async(copy.to, copy.from, copy.bytes, copy.kind, api().SyncStream_GetHandle(stream)),
            "hipMemcpyAsync");
}

bool can_copy(const OrtDataTransferImpl* /*self*/, const OrtMemoryDevice* from,
              const OrtMemoryDevice* to) noexcept {
  const auto host = [](const OrtMemoryDevice* memory) {
    const OrtEpApi& ep = ep_api();
    return ep.MemoryDevice_GetDeviceType(memory) == OrtMemoryInfoDeviceType_CPU ||
           (ep.MemoryDevice_GetVendorId(memory) == kVendorAmd &&
            ep.MemoryDevice_GetMemoryType(memory) == OrtDeviceMemoryType_HOST_ACCESSIBLE);
  };
  const bool from_device = device_of(from) >= 0;
  const bool to_device = device_of(to) >= 0;
  return (from_device || host(from)) && (to_device || host(to)) && (from_device || to_device);
}

OrtStatus* copy_tensors(OrtDataTransferImpl* /*self*/, const OrtValue** from, OrtValue** to,
                        OrtSyncStream** streams, size_t count) noexcept {
  return guarded([&] {
    for (size_t i = 0; i < count; i++) {
      run(copy_of(from[i], to[i]), streams != nullptr ? streams[i] : nullptr);
    }
  });
}

}  // namespace

OrtAllocator* make_allocator(const Place& place, const OrtMemoryInfo* memory) {
  const bool pinned =
      memory != nullptr && api().MemoryInfoGetDeviceMemType(memory) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
  return new Allocator(place, pinned);
}

void release_allocator(OrtAllocator* allocator) { delete static_cast<Allocator*>(allocator); }

OrtDataTransferImpl* make_data_transfer() {
  auto* transfer = new OrtDataTransferImpl{};
  transfer->ort_version_supported = kApiVersion;
  transfer->Release = [](OrtDataTransferImpl* self) noexcept { delete self; };
  transfer->CanCopy = can_copy;
  transfer->CopyTensors = copy_tensors;
  return transfer;
}

}  // namespace fmha::onnxruntime
