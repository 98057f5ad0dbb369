// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine/call.h"

#include <memory>
#include <utility>

namespace fmha::onnxruntime {
namespace {

bool has(const std::vector<int>& slots, size_t slot) { return slot < slots.size() && slots[slot] >= 0; }

}  // namespace

int64_t Tensor::count() const {
  int64_t count = 1;
  for (const int64_t size : dims) count *= size;
  return count;
}

Scratch::Scratch(OrtAllocator* allocator, size_t bytes) : allocator_(allocator), data_(nullptr) {
  if (bytes == 0) return;
  data_ = allocator->Alloc(allocator, bytes);
  if (data_ == nullptr) {
    fail(ORT_EP_FAIL, "%zu bytes of workspace: got none from the allocator, whose reason is in the log",
         bytes);
  }
}

Scratch::Scratch(Scratch&& other) noexcept
    : allocator_(other.allocator_), data_(std::exchange(other.data_, nullptr)) {}

Scratch::~Scratch() {
  if (data_ != nullptr) allocator_->Free(allocator_, data_);
}

Call::Call(OrtKernelContext& context, const Place& place, const Slots& slots)
    : context_(context), slots_(slots), current_(place.device()) {
  check(api().KernelContext_GetAllocator(&context, place.memory(), &allocator_));
  check(api().KernelContext_GetGPUComputeStream(&context, &stream_));
}

bool Call::has_input(size_t slot) const { return has(slots_.inputs, slot); }
bool Call::has_output(size_t slot) const { return has(slots_.outputs, slot); }

Tensor Call::input(size_t slot) const {
  const OrtValue* value = nullptr;
  check(api().KernelContext_GetInput(&context_, static_cast<size_t>(slots_.inputs[slot]), &value));
  if (value == nullptr) fail(ORT_INVALID_ARGUMENT, "input %zu: got nothing, expected a tensor", slot);
  Tensor tensor;
  const void* data = nullptr;
  check(api().GetTensorData(value, &data));
  tensor.data = static_cast<char*>(const_cast<void*>(data));
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api().GetTensorTypeAndShape(value, &info));
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> owned(
      info, api().ReleaseTensorTypeAndShapeInfo);
  check(api().GetTensorElementType(info, &tensor.type));
  size_t rank = 0;
  check(api().GetDimensionsCount(info, &rank));
  tensor.dims.resize(rank);
  check(api().GetDimensions(info, tensor.dims.data(), rank));
  return tensor;
}

Tensor Call::output(size_t slot, std::span<const int64_t> dims) const {
  OrtValue* value = nullptr;
  check(api().KernelContext_GetOutput(&context_, static_cast<size_t>(slots_.outputs[slot]), dims.data(),
                                      dims.size(), &value));
  Tensor tensor;
  tensor.dims.assign(dims.begin(), dims.end());
  void* data = nullptr;
  check(api().GetTensorMutableData(value, &data));
  tensor.data = static_cast<char*>(data);
  return tensor;
}

Scratch Call::scratch(size_t bytes) const { return {allocator_, bytes}; }

void Call::read(const void* from, void* to, size_t bytes) const {
  check_hip(hip().memcpy_async(to, from, bytes, CopyKind::kDeviceToHost, stream_), "hipMemcpyAsync");
  check_hip(hip().stream_synchronize(stream_), "hipStreamSynchronize");
}

// HIP has taken its copy of pageable memory when it returns.
void Call::write(const void* from, void* to, size_t bytes) const {
  check_hip(hip().memcpy_async(to, from, bytes, CopyKind::kHostToDevice, stream_), "hipMemcpyAsync");
}

}  // namespace fmha::onnxruntime
