// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine/node.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace fmha::onnxruntime {
namespace {

void read_shape(const OrtTensorTypeAndShapeInfo& info, Value& value) {
  size_t rank = 0;
  check(api().GetDimensionsCount(&info, &rank));
  std::vector<int64_t> sizes(rank);
  std::vector<const char*> names(rank);
  check(api().GetDimensions(&info, sizes.data(), rank));
  check(api().GetSymbolicDimensions(&info, names.data(), rank));
  value.has_shape = rank > 0;
  for (size_t i = 0; i < rank; i++) value.dims.push_back({sizes[i], names[i] != nullptr ? names[i] : ""});
}

Value value_of(const OrtValueInfo* value_info) {
  Value value;
  if (value_info == nullptr) return value;
  const char* name = nullptr;
  check(api().GetValueInfoName(value_info, &name));
  value.name = name;
  if (!value.given()) return value;
  const OrtTypeInfo* type = nullptr;
  check(api().GetValueInfoTypeInfo(value_info, &type));
  const OrtTensorTypeAndShapeInfo* info = nullptr;
  if (type != nullptr) check(api().CastTypeInfoToTensorInfo(type, &info));
  if (info == nullptr) return value;
  check(api().GetTensorElementType(info, &value.type));
  read_shape(*info, value);
  return value;
}

std::vector<Value> values_of(const std::vector<const OrtValueInfo*>& infos) {
  std::vector<Value> values;
  values.reserve(infos.size());
  for (const OrtValueInfo* info : infos) values.push_back(value_of(info));
  return values;
}

float of_bfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float of_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const auto fraction = static_cast<float>(bits & 1023);
  const float sign = bits >> 15 != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024.0F + fraction, exponent - 25);
}

}  // namespace

const Value Node::kNone;

Node::Node(const OrtNode& node) : node_(node) {
  const char* text = nullptr;
  check(api().Node_GetDomain(&node, &text));
  domain_ = text;
  check(api().Node_GetOperatorType(&node, &text));
  type_ = text;
  check(api().Node_GetName(&node, &text));
  name_ = text;
  check(api().Node_GetSinceVersion(&node, &version_));
  size_t count = 0;
  check(api().Node_GetNumInputs(&node, &count));
  infos_.resize(count);
  check(api().Node_GetInputs(&node, infos_.data(), count));
  inputs_ = values_of(infos_);
  check(api().Node_GetNumOutputs(&node, &count));
  std::vector<const OrtValueInfo*> infos(count);
  check(api().Node_GetOutputs(&node, infos.data(), count));
  outputs_ = values_of(infos);
}

const OrtOpAttr* Node::attribute(const char* name) const {
  const OrtOpAttr* attribute = nullptr;
  OrtStatus* status = api().Node_GetAttributeByName(&node_, name, &attribute);
  if (status != nullptr) api().ReleaseStatus(status);  // this version of the operator has no such attribute
  return attribute;
}

int64_t Node::integer(const char* name, int64_t otherwise) const {
  const OrtOpAttr* found = attribute(name);
  if (found == nullptr) return otherwise;
  size_t size = 0;
  check(api().ReadOpAttr(found, ORT_OP_ATTR_INT, &otherwise, sizeof otherwise, &size));
  return otherwise;
}

float Node::number(const char* name, float otherwise) const {
  const OrtOpAttr* found = attribute(name);
  if (found == nullptr) return otherwise;
  size_t size = 0;
  check(api().ReadOpAttr(found, ORT_OP_ATTR_FLOAT, &otherwise, sizeof otherwise, &size));
  return otherwise;
}

std::string Node::text(const char* name, const char* otherwise) const {
  const OrtOpAttr* found = attribute(name);
  if (found == nullptr) return otherwise;
  size_t size = 0;
  // The first call only asks for the size, which it reports as an error.
  OrtStatus* status = api().ReadOpAttr(found, ORT_OP_ATTR_STRING, nullptr, 0, &size);
  if (status != nullptr) api().ReleaseStatus(status);
  std::string text(size, '\0');
  check(api().ReadOpAttr(found, ORT_OP_ATTR_STRING, text.data(), size, &size));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

std::vector<float> Node::constant_floats(size_t slot) const {
  const Value& value = input(slot);
  const OrtValue* tensor = nullptr;
  if (value.given()) check(api().ValueInfo_GetInitializerValue(infos_[slot], &tensor));
  bool constant = false;
  if (tensor != nullptr) check(api().ValueInfo_IsConstantInitializer(infos_[slot], &constant));
  if (!constant) {
    fail(ORT_NOT_IMPLEMENTED, "%s: only a run knows it, expected a constant of the model",
         value.name.c_str());
  }
  const void* data = nullptr;
  check(api().GetTensorData(tensor, &data));
  size_t bytes = 0;
  check(api().GetTensorSizeInBytes(tensor, &bytes));
  const bool single = value.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  std::vector<float> floats(bytes / (single ? 4 : 2));
  if (single) {
    std::memcpy(floats.data(), data, bytes);
    return floats;
  }
  for (size_t i = 0; i < floats.size(); i++) {
    uint16_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(data) + 2 * i, sizeof bits);
    floats[i] = value.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 ? of_bfloat16(bits) : of_float16(bits);
  }
  return floats;
}

std::vector<const OrtNode*> nodes_of(const OrtGraph& graph) {
  size_t count = 0;
  check(api().Graph_GetNumNodes(&graph, &count));
  std::vector<const OrtNode*> nodes(count);
  check(api().Graph_GetNodes(&graph, nodes.data(), count));
  return nodes;
}

}  // namespace fmha::onnxruntime
