// SPDX-License-Identifier: MIT OR Apache-2.0
#include "ops/sinks.h"

namespace fmha::onnxruntime {

Sinks::Sinks(const Node& node, size_t slot, int64_t heads, bool zeros) {
  if (node.input(slot).given()) {
    logits_ = node.constant_floats(slot);
    if (logits_.size() != static_cast<size_t>(heads)) {
      fail(ORT_INVALID_ARGUMENT, "head_sink: got %zu numbers, expected %lld", logits_.size(),
           static_cast<long long>(heads));
    }
  } else if (zeros) {
    logits_.resize(static_cast<size_t>(heads));
  }
}

Scratch Sinks::on_device(const Call& call) const {
  const size_t bytes = logits_.size() * sizeof(float);
  Scratch scratch = call.scratch(bytes);
  if (bytes > 0) call.write(logits_.data(), scratch.data(), bytes);
  return scratch;
}

}  // namespace fmha::onnxruntime
