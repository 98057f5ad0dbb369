// SPDX-License-Identifier: MIT OR Apache-2.0
// Nodes of graphs: added, looked at, changed.
#include "hip/graph/nodes.h"

#include <algorithm>

#include "hip/graph/memory_nodes.h"
#include "hip/module.h"

namespace fmha::emu {
namespace {

int linear_copy(const char* function, void* dst, const void* src, size_t bytes, int kind, CopyWork* out) {
  bool empty = false;
  out->dst = dst;
  out->src = src;
  out->width = bytes;
  out->kind = kind;
  return check_copy(function, out, &empty);
}

int host_work_of(const HipHostNodeParams* params, const char* function, HostWork* out) {
  if (!params || !params->fn) return fail(hipErrorInvalidValue, "%s: the function is null", function);
  *out = {params->fn, params->user_data};
  return hipSuccess;
}

// Gives at most *count of them, and how many there are; sets entries beyond to null.
int give_nodes(const std::vector<GraphNode*>& from, HipGraphNode* out, size_t* count) {
  if (out) {
    for (size_t i = 0; i < *count; ++i) out[i] = i < from.size() ? from[i] : nullptr;
    *count = std::min(*count, from.size());
  } else {
    *count = from.size();
  }
  return hipSuccess;
}

int graph_nodes(const char* function, HipGraph handle, HipGraphNode* out, size_t* count, bool roots_only) {
  return guarded([&] {
    const std::shared_ptr<Graph> graph = find_graph(handle, function);
    if (!graph || !count)
      return fail(hipErrorInvalidValue, "%s: count is null, or the graph is none", function);
    std::lock_guard lock(queue_mutex());
    std::vector<GraphNode*> nodes;
    for (const auto& n : graph->nodes) {
      if (!roots_only || n->before.empty()) nodes.push_back(n.get());
    }
    return give_nodes(nodes, out, count);
  });
}

int neighbours(const char* function, HipGraphNode node, HipGraphNode* out, size_t* count,
               std::vector<GraphNode*> GraphNode::* which) {
  return guarded([&] {
    if (!count) return fail(hipErrorInvalidValue, "%s: count is null", function);
    std::lock_guard lock(queue_mutex());
    if (const int e = check_nodes(&node, 1, nullptr, function)) return e;
    return give_nodes(node->*which, out, count);
  });
}

int change_edges(const char* function, HipGraph handle, HipGraphNode const* from, HipGraphNode const* to,
                 size_t count, bool add) {
  return guarded([&] {
    const std::shared_ptr<Graph> graph = find_graph(handle, function);
    if (!graph) return static_cast<int>(hipErrorInvalidValue);
    std::lock_guard lock(queue_mutex());
    if (const int e = check_nodes(from, count, graph.get(), function)) return e;
    if (const int e = check_nodes(to, count, graph.get(), function)) return e;
    for (size_t i = 0; i < count; ++i) {
      if (from[i] == to[i]) return fail(hipErrorInvalidValue, "%s: a node cannot wait for itself", function);
      if (add) {
        add_edge(from[i], to[i]);
      } else {
        std::erase(to[i]->before, from[i]);
        std::erase(from[i]->after, to[i]);
      }
    }
    return static_cast<int>(hipSuccess);
  });
}

int get_kernel_params(HipGraphNode node, HipKernelNodeParams* out) {
  const char* const function = "hipGraphKernelNodeGetParams";
  if (!out) return fail(hipErrorInvalidValue, "%s: pNodeParams is null", function);
  std::lock_guard lock(queue_mutex());
  KernelWork* w = work_of<KernelWork>(node, function);
  if (!w) return hipErrorInvalidValue;
  node->param_pointers.clear();
  for (const auto& arg : w->function->kernel->explicit_args)
    node->param_pointers.push_back(w->args.data() + arg.first);
  *out = {w->block,      nullptr, const_cast<Function*>(w->function), w->grid, node->param_pointers.data(),
          w->dynamic_lds};
  return hipSuccess;
}

int child_program(HipGraph child, const char* function, GraphWork* out) {
  const std::shared_ptr<Graph> graph = find_graph(child, function);
  if (!graph) return hipErrorInvalidValue;
  std::lock_guard lock(queue_mutex());
  auto program = program_of(*graph, nullptr);
  if (!program)
    return fail(hipErrorInvalidValue, "%s: the child's dependencies go round in a circle", function);
  if (has_graph_memory(*program))
    return fail(hipErrorNotSupported, "%s: a child graph must not allocate or free memory", function);
  out->program = std::move(program);
  return hipSuccess;
}

}  // namespace

int add_work(const char* function, HipGraphNode* out, HipGraph handle, HipGraphNode const* before,
             size_t count, Work work) {
  const std::shared_ptr<Graph> graph = find_graph(handle, function);
  if (!graph || !out) return fail(hipErrorInvalidValue, "%s: node is null, or the graph is none", function);
  std::lock_guard lock(queue_mutex());
  if (const int e = check_nodes(before, count, graph.get(), function)) return e;
  *out = add_node(*graph, std::move(work), {before, before + count});
  return hipSuccess;
}

int kernel_work_of(const HipKernelNodeParams* p, const char* function, KernelWork* out) {
  if (!p || !p->function) return fail(hipErrorInvalidValue, "%s: the kernel is null", function);
  auto* handle = static_cast<HipFunction>(p->function);
  if (!function_is_live(handle)) handle = stub_function(p->function, current_device(), function);
  if (!handle) return hipErrorInvalidDeviceFunction;
  return make_kernel_work(handle, p->grid, p->block, p->dynamic_lds, p->params, p->extra, function, out);
}

int fill_work_of(const HipMemsetParams* p, const char* function, FillWork* out) {
  if (!p) return fail(hipErrorInvalidValue, "%s: the parameters are null", function);
  if (p->element_bytes != 1 && p->element_bytes != 2 && p->element_bytes != 4)
    return fail(hipErrorInvalidValue, "%s: elementSize is %u, expected 1, 2 or 4", function,
                p->element_bytes);
  bool empty = false;
  *out = {p->dst, p->pitch, p->value, p->element_bytes, p->width, p->height};
  return check_fill(function, *out, &empty);
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipGraphAddKernelNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                  size_t count, const HipKernelNodeParams* params) {
  const char* const f = "hipGraphAddKernelNode";
  return add_built<KernelWork>(f, node, graph, before, count,
                               [&](KernelWork* w) { return kernel_work_of(params, f, w); });
}
HIP_API int hipGraphAddMemcpyNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                  size_t count, const HipMemcpy3D* params) {
  const char* const f = "hipGraphAddMemcpyNode";
  return add_built<CopyWork>(f, node, graph, before, count,
                             [&](CopyWork* w) { return copy_work_of(params, f, w); });
}
HIP_API int hipDrvGraphAddMemcpyNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                     size_t count, const HipDrvMemcpy3D* params, void*) {
  const char* const f = "hipDrvGraphAddMemcpyNode";
  return add_built<CopyWork>(f, node, graph, before, count,
                             [&](CopyWork* w) { return copy_work_of(params, f, w); });
}
HIP_API int hipDrvGraphAddMemsetNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                     size_t count, const HipMemsetParams* params, void*) {
  const char* const f = "hipDrvGraphAddMemsetNode";
  return add_built<FillWork>(f, node, graph, before, count,
                             [&](FillWork* w) { return fill_work_of(params, f, w); });
}
HIP_API int hipGraphAddMemcpyNode1D(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                    size_t count, void* dst, const void* src, size_t bytes, int kind) {
  const char* const f = "hipGraphAddMemcpyNode1D";
  return add_built<CopyWork>(f, node, graph, before, count,
                             [&](CopyWork* w) { return linear_copy(f, dst, src, bytes, kind, w); });
}
HIP_API int hipGraphAddMemsetNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                  size_t count, const HipMemsetParams* params) {
  const char* const f = "hipGraphAddMemsetNode";
  return add_built<FillWork>(f, node, graph, before, count,
                             [&](FillWork* w) { return fill_work_of(params, f, w); });
}
HIP_API int hipGraphAddHostNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before, size_t count,
                                const HipHostNodeParams* params) {
  const char* const f = "hipGraphAddHostNode";
  return add_built<HostWork>(f, node, graph, before, count,
                             [&](HostWork* w) { return host_work_of(params, f, w); });
}
HIP_API int hipGraphAddEmptyNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                 size_t count) {
  return add_built<EmptyWork>("hipGraphAddEmptyNode", node, graph, before, count,
                              [](EmptyWork*) { return 0; });
}
HIP_API int hipGraphAddChildGraphNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                      size_t count, HipGraph child) {
  const char* const f = "hipGraphAddChildGraphNode";
  return add_built<GraphWork>(f, node, graph, before, count,
                              [&](GraphWork* w) { return child_program(child, f, w); });
}

HIP_API int hipGraphAddDependencies(HipGraph graph, HipGraphNode const* from, HipGraphNode const* to,
                                    size_t count) {
  return change_edges("hipGraphAddDependencies", graph, from, to, count, true);
}
HIP_API int hipGraphRemoveDependencies(HipGraph graph, HipGraphNode const* from, HipGraphNode const* to,
                                       size_t count) {
  return change_edges("hipGraphRemoveDependencies", graph, from, to, count, false);
}

HIP_API int hipGraphGetNodes(HipGraph graph, HipGraphNode* nodes, size_t* count) {
  return graph_nodes("hipGraphGetNodes", graph, nodes, count, false);
}
HIP_API int hipGraphGetRootNodes(HipGraph graph, HipGraphNode* nodes, size_t* count) {
  return graph_nodes("hipGraphGetRootNodes", graph, nodes, count, true);
}
HIP_API int hipGraphNodeGetDependencies(HipGraphNode node, HipGraphNode* nodes, size_t* count) {
  return neighbours("hipGraphNodeGetDependencies", node, nodes, count, &GraphNode::before);
}
HIP_API int hipGraphNodeGetDependentNodes(HipGraphNode node, HipGraphNode* nodes, size_t* count) {
  return neighbours("hipGraphNodeGetDependentNodes", node, nodes, count, &GraphNode::after);
}

HIP_API int hipGraphGetEdges(HipGraph handle, HipGraphNode* from, HipGraphNode* to, size_t* count) {
  return guarded([&] {
    const std::shared_ptr<Graph> graph = find_graph(handle, "hipGraphGetEdges");
    if (!graph || !count || !from != !to)
      return fail(hipErrorInvalidValue, "hipGraphGetEdges: a null argument, or no graph");
    std::lock_guard lock(queue_mutex());
    std::vector<GraphNode*> sources, targets;
    for (const auto& n : graph->nodes) {
      for (GraphNode* next : n->after) sources.push_back(n.get()), targets.push_back(next);
    }
    size_t same = *count;
    give_nodes(targets, to, &same);
    return give_nodes(sources, from, count);
  });
}

HIP_API int hipGraphNodeGetType(HipGraphNode node, int* type) {
  return guarded([&] {
    if (!type) return fail(hipErrorInvalidValue, "hipGraphNodeGetType: pType is null");
    std::lock_guard lock(queue_mutex());
    if (const int e = check_nodes(&node, 1, nullptr, "hipGraphNodeGetType")) return e;
    *type = node_type(node->work);
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipGraphKernelNodeGetParams(HipGraphNode node, HipKernelNodeParams* params) {
  return guarded([&] { return get_kernel_params(node, params); });
}
HIP_API int hipGraphKernelNodeSetParams(HipGraphNode node, const HipKernelNodeParams* params) {
  const char* const f = "hipGraphKernelNodeSetParams";
  return set_node<KernelWork>(f, node, [&](KernelWork* w) { return kernel_work_of(params, f, w); });
}
HIP_API int hipGraphExecKernelNodeSetParams(HipGraphExec exec, HipGraphNode node,
                                            const HipKernelNodeParams* params) {
  const char* const f = "hipGraphExecKernelNodeSetParams";
  return set_exec_step<KernelWork>(f, exec, node,
                                   [&](KernelWork* w) { return kernel_work_of(params, f, w); });
}
HIP_API int hipGraphMemcpyNodeSetParams1D(HipGraphNode node, void* dst, const void* src, size_t bytes,
                                          int kind) {
  const char* const f = "hipGraphMemcpyNodeSetParams1D";
  return set_node<CopyWork>(f, node, [&](CopyWork* w) { return linear_copy(f, dst, src, bytes, kind, w); });
}
HIP_API int hipGraphExecMemcpyNodeSetParams1D(HipGraphExec exec, HipGraphNode node, void* dst,
                                              const void* src, size_t bytes, int kind) {
  const char* const f = "hipGraphExecMemcpyNodeSetParams1D";
  return set_exec_step<CopyWork>(f, exec, node,
                                 [&](CopyWork* w) { return linear_copy(f, dst, src, bytes, kind, w); });
}
HIP_API int hipGraphMemsetNodeSetParams(HipGraphNode node, const HipMemsetParams* params) {
  const char* const f = "hipGraphMemsetNodeSetParams";
  return set_node<FillWork>(f, node, [&](FillWork* w) { return fill_work_of(params, f, w); });
}
HIP_API int hipGraphExecMemsetNodeSetParams(HipGraphExec exec, HipGraphNode node,
                                            const HipMemsetParams* params) {
  const char* const f = "hipGraphExecMemsetNodeSetParams";
  return set_exec_step<FillWork>(f, exec, node, [&](FillWork* w) { return fill_work_of(params, f, w); });
}
HIP_API int hipGraphHostNodeSetParams(HipGraphNode node, const HipHostNodeParams* params) {
  const char* const f = "hipGraphHostNodeSetParams";
  return set_node<HostWork>(f, node, [&](HostWork* w) { return host_work_of(params, f, w); });
}
HIP_API int hipGraphExecHostNodeSetParams(HipGraphExec exec, HipGraphNode node,
                                          const HipHostNodeParams* params) {
  const char* const f = "hipGraphExecHostNodeSetParams";
  return set_exec_step<HostWork>(f, exec, node, [&](HostWork* w) { return host_work_of(params, f, w); });
}
HIP_API int hipGraphExecChildGraphNodeSetParams(HipGraphExec exec, HipGraphNode node, HipGraph child) {
  const char* const f = "hipGraphExecChildGraphNodeSetParams";
  return set_exec_step<GraphWork>(f, exec, node, [&](GraphWork* w) { return child_program(child, f, w); });
}
