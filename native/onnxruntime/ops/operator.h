// SPDX-License-Identifier: MIT OR Apache-2.0
// An operator of ONNX by calls of fmha_rocm.h.
#pragma once

#include <memory>

#include "engine/call.h"
#include "engine/node.h"

namespace fmha::onnxruntime {

// Made of a node before it runs. The constructors of operators throw what no kernel does.
class Operator {
 public:
  Operator() = default;
  virtual ~Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  // Queues the work on the call's stream.
  virtual void run(const Call& call) const = 0;
};

// NULL if it is no operator of attention. Throws if it is one that no kernel does on the current device.
std::unique_ptr<Operator> make_operator(const Node& node);

std::unique_ptr<Operator> make_multi_head(const Node& node);
std::unique_ptr<Operator> make_group_query(const Node& node);
std::unique_ptr<Operator> make_attention(const Node& node);
std::unique_ptr<Operator> make_paged(const Node& node);

}  // namespace fmha::onnxruntime
