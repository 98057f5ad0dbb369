// SPDX-License-Identifier: MIT OR Apache-2.0
// One run of a node: its tensors, its stream, and memory for as long as it runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/api.h"
#include "engine/hip.h"
#include "engine/place.h"

namespace fmha::onnxruntime {

struct Tensor {
  char* data = nullptr;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  std::vector<int64_t> dims;

  int64_t dim(size_t i) const { return dims[i]; }
  size_t rank() const { return dims.size(); }
  int64_t count() const;
};

// Memory of the device, of the pool that ONNX Runtime's tensors are of. The work that uses it may go on.
class Scratch {
 public:
  Scratch(Pool& pool, size_t bytes, HipStream stream);
  ~Scratch();
  Scratch(Scratch&& other) noexcept;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  Pool& pool_;
  void* data_;
};

// Where the values of a node are among those of the node that ONNX Runtime runs in its place; -1: nowhere.
struct Slots {
  std::vector<int> inputs, outputs;
};

class Call {
 public:
  Call(OrtKernelContext& context, const Place& place, const Slots& slots);

  bool has_input(size_t slot) const;
  bool has_output(size_t slot) const;
  Tensor input(size_t slot) const;
  Tensor output(size_t slot, std::span<const int64_t> dims) const;
  Scratch scratch(size_t bytes) const;
  HipStream stream() const { return stream_; }

  // Waits for the stream.
  void read(const void* from, void* to, size_t bytes) const;
  // `from` may change when this returns.
  void write(const void* from, void* to, size_t bytes) const;

 private:
  OrtKernelContext& context_;
  const Slots& slots_;
  CurrentDevice current_;
  Pool& pool_;
  HipStream stream_ = nullptr;
};

}  // namespace fmha::onnxruntime
