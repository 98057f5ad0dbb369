// SPDX-License-Identifier: MIT OR Apache-2.0
// Logits of the heads that take part in the softmax and have no value: float32, whatever the operator's type.
#pragma once

#include <vector>

#include "engine/call.h"
#include "engine/node.h"

namespace fmha::onnxruntime {

class Sinks {
 public:
  Sinks() = default;
  // Those of the input, which the model must fix; or if it is left out, zeros if `zeros` says so.
  Sinks(const Node& node, size_t slot, int64_t heads, bool zeros);

  bool given() const { return !logits_.empty(); }
  // A copy for one run.
  Scratch on_device(const Call& call) const;

 private:
  std::vector<float> logits_;
};

}  // namespace fmha::onnxruntime
