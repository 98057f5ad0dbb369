// SPDX-License-Identifier: MIT OR Apache-2.0
#include "provider.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/hip.h"
#include "engine/node.h"
#include "ops/operator.h"

namespace fmha::onnxruntime {
namespace {

struct Provider : OrtEp {
  explicit Provider(const Place& of);

  const Place& place;
};

// A node that runs.
struct Computation : OrtNodeComputeInfo {
  Computation(const Place& of, std::string called, std::unique_ptr<Operator> by, Slots where);
  void compute(OrtKernelContext& context) const;

  const Place& place;
  const std::string name;
  const std::unique_ptr<Operator> attention;
  const Slots slots;
};

Computation::Computation(const Place& of, std::string called, std::unique_ptr<Operator> by, Slots where)
    : OrtNodeComputeInfo{},
      place(of),
      name(std::move(called)),
      attention(std::move(by)),
      slots(std::move(where)) {
  ort_version_supported = kApiVersion;
  CreateState = [](OrtNodeComputeInfo*, OrtNodeComputeContext*, void** state) -> OrtStatus* {
    *state = nullptr;
    return nullptr;
  };
  ReleaseState = [](OrtNodeComputeInfo*, void*) {};
  Compute = [](OrtNodeComputeInfo* self, void*, OrtKernelContext* context) {
    return guarded([&] { static_cast<Computation*>(self)->compute(*context); });
  };
}

// A failure names the node.
void Computation::compute(OrtKernelContext& context) const {
  OrtStatus* status = guarded([&] { attention->run(Call(context, place, slots)); });
  if (status == nullptr) return;
  const OrtErrorCode code = api().GetErrorCode(status);
  const std::string message = api().GetErrorMessage(status);
  api().ReleaseStatus(status);
  throw Failure(code, std::string(kProvider) + ", node " + name + ": " + message);
}

// The reason is for those who wonder why a node runs elsewhere.
bool takes(const Node& node) noexcept {
  try {
    return make_operator(node) != nullptr;
  } catch (const std::exception& error) {
    log(ORT_LOGGING_LEVEL_INFO,
        node.type() + " " + node.name() + " is left to other providers: " + error.what());
    return false;
  }
}

OrtStatus* get_capability(OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* support) noexcept {
  return guarded([&] {
    const CurrentDevice current(static_cast<Provider*>(self)->place.device());
    for (const OrtNode* node : nodes_of(*graph)) {
      if (!takes(Node(*node))) continue;
      OrtNodeFusionOptions options{};
      options.ort_version_supported = kApiVersion;
      check(ep_api().EpGraphSupportInfo_AddNodesToFuse(support, &node, 1, &options));
    }
  });
}

// Finds a value by its name: ONNX Runtime gives each value once, and leaves out what nothing reads.
int index_of(const Value& value, const Node& fused, bool output) {
  const size_t count = output ? fused.output_count() : fused.input_count();
  for (size_t i = 0; i < count && value.given(); i++) {
    if ((output ? fused.output(i) : fused.input(i)).name == value.name) return static_cast<int>(i);
  }
  return -1;
}

Slots slots_of(const Node& node, const Node& fused) {
  Slots slots;
  for (size_t i = 0; i < node.input_count(); i++) {
    slots.inputs.push_back(index_of(node.input(i), fused, false));
  }
  for (size_t i = 0; i < node.output_count(); i++) {
    slots.outputs.push_back(index_of(node.output(i), fused, true));
  }
  return slots;
}

std::unique_ptr<Computation> compile_node(const Place& place, const OrtGraph& graph, const OrtNode& fused) {
  const std::vector<const OrtNode*> nodes = nodes_of(graph);
  if (nodes.size() != 1) fail(ORT_EP_FAIL, "a graph to compile: got %zu nodes, expected 1", nodes.size());
  const Node node(*nodes[0]);
  std::unique_ptr<Operator> attention = make_operator(node);
  if (attention == nullptr) {
    fail(ORT_EP_FAIL, "a node to compile: got %s, expected attention", node.type().c_str());
  }
  return std::make_unique<Computation>(place, node.name(), std::move(attention), slots_of(node, Node(fused)));
}

void release_computations(OrtEp* /*self*/, OrtNodeComputeInfo** infos, size_t count) noexcept {
  for (size_t i = 0; i < count; i++) delete static_cast<Computation*>(infos[i]);
}

OrtStatus* compile(OrtEp* self, const OrtGraph** graphs, const OrtNode** fused, size_t count,
                   OrtNodeComputeInfo** infos, OrtNode** /*contexts*/) noexcept {
  return guarded([&] {
    const Place& place = static_cast<Provider*>(self)->place;
    const CurrentDevice current(place.device());
    std::vector<std::unique_ptr<Computation>> made;
    for (size_t i = 0; i < count; i++) made.push_back(compile_node(place, *graphs[i], *fused[i]));
    for (size_t i = 0; i < count; i++) infos[i] = made[i].release();
  });
}

Provider::Provider(const Place& of) : OrtEp{}, place(of) {
  ort_version_supported = kApiVersion;
  GetName = [](const OrtEp*) noexcept { return kProvider; };
  GetCapability = get_capability;
  Compile = compile;
  ReleaseNodeComputeInfos = release_computations;
}

}  // namespace

OrtEp* make_provider(const Place& place) { return new Provider(place); }
void release_provider(OrtEp* provider) { delete static_cast<Provider*>(provider); }

}  // namespace fmha::onnxruntime
