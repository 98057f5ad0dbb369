// SPDX-License-Identifier: MIT OR Apache-2.0
// A node of a graph, as far as it is known before it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/api.h"

namespace fmha::onnxruntime {

// A dimension of a value. One that only a run knows has size -1, and perhaps a name.
struct Dimension {
  int64_t size = -1;
  std::string name;
  bool operator==(const Dimension& other) const {
    return size == other.size && name == other.name && (size >= 0 || !name.empty());
  }
};

struct Value {
  std::string name;  // "": the node leaves it out
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  bool has_shape = false;
  std::vector<Dimension> dims;

  bool given() const { return !name.empty(); }
  size_t rank() const { return dims.size(); }
};

class Node {
 public:
  explicit Node(const OrtNode& node);

  const std::string& domain() const { return domain_; }
  const std::string& type() const { return type_; }
  int version() const { return version_; }
  const std::string& name() const { return name_; }

  // Inputs and outputs by their place in the operator's schema; one that is left out is not given().
  const Value& input(size_t slot) const { return slot < inputs_.size() ? inputs_[slot] : kNone; }
  const Value& output(size_t slot) const { return slot < outputs_.size() ? outputs_[slot] : kNone; }
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }

  // The attribute, or this value if the node does not set it.
  int64_t integer(const char* name, int64_t otherwise) const;
  float number(const char* name, float otherwise) const;
  std::string text(const char* name, const char* otherwise) const;

  // The elements of an input that the model fixes; throws if it does not.
  std::vector<float> constant_floats(size_t slot) const;

 private:
  static const Value kNone;
  const OrtOpAttr* attribute(const char* name) const;

  const OrtNode& node_;
  std::string domain_, type_, name_;
  int version_ = 0;
  std::vector<const OrtValueInfo*> infos_;  // of the inputs
  std::vector<Value> inputs_, outputs_;
};

std::vector<const OrtNode*> nodes_of(const OrtGraph& graph);

}  // namespace fmha::onnxruntime
