// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine/place.h"

namespace fmha::onnxruntime {
namespace {

constexpr size_t kAlignment = 256;  // of hipMalloc, and of a workspace

}  // namespace

Place::Place(int device) : device_(device), pool_(device) {
  check(api().CreateMemoryInfo_V2("FmhaRocm", OrtMemoryInfoDeviceType_GPU, kVendorAmd, device,
                                  OrtDeviceMemoryType_DEFAULT, kAlignment, OrtDeviceAllocator, &memory_));
  check(api().CreateMemoryInfo_V2("FmhaRocmPinned", OrtMemoryInfoDeviceType_GPU, kVendorAmd, device,
                                  OrtDeviceMemoryType_HOST_ACCESSIBLE, kAlignment, OrtDeviceAllocator,
                                  &pinned_));
}

Place::~Place() {
  api().ReleaseMemoryInfo(memory_);
  api().ReleaseMemoryInfo(pinned_);
}

int device_of(const OrtMemoryDevice* memory) {
  const OrtEpApi& ep = ep_api();
  const bool ours = ep.MemoryDevice_GetDeviceType(memory) == OrtMemoryInfoDeviceType_GPU &&
                    ep.MemoryDevice_GetVendorId(memory) == kVendorAmd &&
                    ep.MemoryDevice_GetMemoryType(memory) == OrtDeviceMemoryType_DEFAULT;
  return ours ? static_cast<int>(ep.MemoryDevice_GetDeviceId(memory)) : -1;
}

}  // namespace fmha::onnxruntime
