// SPDX-License-Identifier: MIT OR Apache-2.0
// A graph as a picture for Graphviz.
#include <cstdio>
#include <fstream>
#include <unordered_map>

#include "hip/graph/graph.h"

namespace fmha::emu {
namespace {

std::string label_of(const GraphNode& node) {
  constexpr const char* kNames[] = {"kernel",      "copy",         "fill",       "host function", "empty",
                                    "child graph", "event record", "event wait", "allocation",    "free"};
  static_assert(std::size(kNames) == std::variant_size_v<Work>);
  const auto* kernel = std::get_if<KernelWork>(&node.work);
  if (!kernel) return kNames[node.work.index()];
  char sizes[96];
  std::snprintf(sizes, sizeof sizes, "\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>", kernel->grid.x, kernel->grid.y,
                kernel->grid.z, kernel->block.x, kernel->block.y, kernel->block.z, kernel->dynamic_lds);
  return kernel->function->kernel->name + sizes;
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

// The flags choose between details; all that there are here are written.
HIP_API int hipGraphDebugDotPrint(HipGraph handle, const char* path, unsigned) {
  return guarded([&] {
    const char* const function = "hipGraphDebugDotPrint";
    const std::shared_ptr<Graph> graph = find_graph(handle, function);
    if (!graph || !path)
      return fail(hipErrorInvalidValue, "%s: path is null, or the graph is none", function);
    std::ofstream out(path);
    std::lock_guard lock(queue_mutex());
    std::unordered_map<const GraphNode*, size_t> number;
    out << "digraph graph_0 {\n";
    for (const auto& n : graph->nodes) {
      number.emplace(n.get(), number.size());
      out << "  n" << number.at(n.get()) << " [shape=box, label=\"" << label_of(*n) << "\"];\n";
    }
    for (const auto& n : graph->nodes) {
      for (const GraphNode* next : n->after)
        out << "  n" << number.at(n.get()) << " -> n" << number.at(next) << ";\n";
    }
    out << "}\n";
    out.close();
    if (out) return static_cast<int>(hipSuccess);
    return fail(hipErrorOperatingSystem, "%s: cannot write %s", function, path);
  });
}
