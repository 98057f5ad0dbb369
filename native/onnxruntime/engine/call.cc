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

Scratch::Scratch(Pool& pool, size_t bytes, HipStream stream) : pool_(pool), data_(pool.take(bytes, stream)) {}

Scratch::Scratch(Scratch&& other) noexcept : pool_(other.pool_), data_(std::exchange(other.data_, nullptr)) {}

Scratch::~Scratch() {
  if (data_ != nullptr) pool_.give(data_);
}

Call::Call(OrtKernelContext& context, const Place& place, const Slots& slots)
    : context_(context), slots_(slots), current_(place.device()), pool_(place.pool()) {
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

Scratch Call::scratch(size_t bytes) const { return {pool_, bytes, stream_}; }

void Call::read(const void* from, void* to, size_t bytes) const {
  check_hip(hip().memcpy_async(to, from, bytes, CopyKind::kDeviceToHost, stream_), "hipMemcpyAsync");
  check_hip(hip().stream_synchronize(stream_), "hipStreamSynchronize");
}

// HIP has taken its copy of pageable memory when it returns.
void Call::write(const void* from, void* to, size_t bytes) const {
  check_hip(hip().memcpy_async(to, from, bytes, CopyKind::kHostToDevice, stream_), "hipMemcpyAsync");
}

}  // namespace fmha::onnxruntime
