// SPDX-License-Identifier: MIT OR Apache-2.0
// Graphs as a whole: made, copied, made ready, launched. A launch is one operation of its stream.
#include "hip/graph/graph.h"

#include <algorithm>
#include <unordered_set>

#include "hip/graph/memory_nodes.h"
#include "hip/graph/run.h"
#include "hip/handles.h"
#include "hip/module.h"  // IWYU pragma: keep, by way of a shared_ptr

namespace fmha::emu {
namespace {

Handles<Graph>& graphs() {
  static auto* h = new Handles<Graph>;
  return *h;
}
Handles<GraphExec>& execs() {
  static auto* h = new Handles<GraphExec>;
  return *h;
}
// Guarded by live_mutex, which is taken last.
std::mutex live_mutex;
std::unordered_set<const GraphNode*>& live_nodes() {
  static auto* all = new std::unordered_set<const GraphNode*>;
  return *all;
}

constexpr unsigned long long kAutoFree = 1, kUpload = 2, kUseNodePriority = 8;

// A module that was unloaded takes its kernels with it.
int check_loaded(const Program& program, const char* function) {
  for (const Work& step : program.steps) {
    if (const auto* g = std::get_if<GraphWork>(&step)) {
      if (const int e = check_loaded(*g->program, function)) return e;
    }
    const auto* k = std::get_if<KernelWork>(&step);
    if (k && k->module->unloaded) {
      return fail(hipErrorInvalidHandle, "%s: the module of kernel %s was unloaded", function,
                  k->function->kernel->name.c_str());
    }
  }
  return hipSuccess;
}

int instantiate(HipGraphExec* out, HipGraph handle, unsigned long long flags) {
  const char* const function = "hipGraphInstantiate";
  if (!out) return fail(hipErrorInvalidValue, "%s: pGraphExec is null", function);
  const std::shared_ptr<Graph> graph = find_graph(handle, function);
  if (!graph) return hipErrorInvalidValue;
  if (flags & ~(kUpload | kUseNodePriority | kAutoFree))  // a device cannot launch (4)
    return fail(hipErrorNotSupported, "%s: flags %llu are not supported", function, flags);
  std::lock_guard lock(queue_mutex());
  auto exec = std::make_shared<GraphExec>();
  exec->program = program_of(*graph, &exec->step_of);
  if (!exec->program)
    return fail(hipErrorInvalidValue, "%s: the dependencies go round in a circle", function);
  exec->frees_on_launch = flags & kAutoFree;
  *out = execs().add(std::move(exec));
  return hipSuccess;
}

int launch_graph(HipGraphExec handle, HipStream stream_handle) {
  const char* const function = "hipGraphLaunch";
  const std::shared_ptr<GraphExec> exec = find_exec(handle, function);
  if (!exec) return hipErrorInvalidValue;
  const StreamRef stream = find_stream(stream_handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  if (const int e = device_fault(stream->device)) return e;
  wait_for_room(stream);
  std::lock_guard lock(queue_mutex());
  if (const int e = check_loaded(*exec->program, function)) return e;
  if (stream->capture) {
    if (!has_graph_memory(*exec->program)) return capture_work(*stream, GraphWork{exec->program}, function);
    return invalidate(*stream->capture, hipErrorStreamCaptureUnsupported, function,
                      "a graph that allocates or frees memory cannot be a part of another");
  }
  if (const int e = check_legacy(*stream, function)) return e;
  if (const int e = inject_graph_failure(*exec->program, stream->device)) return e;
  std::vector<Allocation> stale;
  if (const int e = own_graph_memory(*exec->program, exec->frees_on_launch, function, &stale)) return e;
  std::vector<OpRef> after;
  if (exec->last) after.push_back(exec->last);
  auto run = std::make_shared<GraphRun>(exec->program, std::move(stale), stream);
  const Load load = {.runs_program = runs_program(GraphWork{exec->program})};
  exec->last = submit(stream, [run = std::move(run)](bool alive) { run->execute(alive); }, after, load);
  return hipSuccess;
}

// 0 if `graph` can take the place of what the exec was made of, else a hipGraphExecUpdateResult.
int update_exec(GraphExec& exec, const Graph& graph, HipGraphNode* culprit) {
  constexpr int kTopologyChanged = 2, kTypeChanged = 3, kNotSupported = 6;
  const std::vector<GraphNode*> nodes = in_order(graph);
  const Program& old = *exec.program;
  std::unordered_map<const GraphNode*, size_t> step_of;
  auto program = program_of(graph, &step_of);
  if (!program || program->steps.size() != old.steps.size()) return kTopologyChanged;
  if (has_graph_memory(*program) || has_graph_memory(old)) return kNotSupported;
  for (size_t i = 0; i < nodes.size(); ++i) {
    *culprit = nodes[i];
    if (node_type(program->steps[i]) != node_type(old.steps[i])) return kTypeChanged;
    if (program->before[i] != old.before[i]) return kTopologyChanged;
  }
  *culprit = nullptr;
  exec.program = std::move(program);
  for (const auto& [node, i] : step_of) exec.step_of[node] = i;
  return hipSuccess;
}

}  // namespace

Graph::~Graph() {
  std::lock_guard lock(live_mutex);
  for (const auto& n : nodes) live_nodes().erase(n.get());
}

int node_type(const Work& work) {
  constexpr int kTypes[] = {kKernelNode, kCopyNode,   kFillNode, kHostNode,  kEmptyNode,
                            kGraphNode,  kRecordNode, kWaitNode, kAllocNode, kFreeNode};
  return kTypes[work.index()];
}

GraphNode* add_node(Graph& graph, Work work, const std::vector<GraphNode*>& before) {
  auto owned = std::make_unique<GraphNode>();
  GraphNode* node = owned.get();
  node->graph = &graph;
  node->work = std::move(work);
  graph.nodes.push_back(std::move(owned));
  for (GraphNode* b : before) add_edge(b, node);
  std::lock_guard lock(live_mutex);
  live_nodes().insert(node);
  return node;
}

void add_edge(GraphNode* from, GraphNode* to) {
  if (std::ranges::count(to->before, from)) return;
  to->before.push_back(from);
  from->after.push_back(to);
}

bool node_is_live(const GraphNode* node) {
  std::lock_guard lock(live_mutex);
  return live_nodes().contains(node);
}

std::vector<GraphNode*> in_order(const Graph& graph) {
  std::unordered_map<const GraphNode*, size_t> missing;
  std::vector<GraphNode*> order;
  for (const auto& n : graph.nodes) {
    missing[n.get()] = n->before.size();
    if (n->before.empty()) order.push_back(n.get());
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (GraphNode* next : order[i]->after) {
      if (--missing[next] == 0) order.push_back(next);
    }
  }
  return order;
}

std::shared_ptr<Program> program_of(const Graph& graph,
                                    std::unordered_map<const GraphNode*, size_t>* step_of) {
  std::unordered_map<const GraphNode*, size_t> own;
  if (!step_of) step_of = &own;
  const std::vector<GraphNode*> nodes = in_order(graph);
  if (nodes.size() != graph.nodes.size()) return nullptr;
  auto program = std::make_shared<Program>();
  for (const GraphNode* n : nodes) {
    (*step_of)[n] = program->steps.size();
    program->steps.push_back(n->work);
    program->before.emplace_back();
    for (const GraphNode* b : n->before) program->before.back().push_back(step_of->at(b));
  }
  return program;
}

std::shared_ptr<Graph> clone(const Graph& graph, std::unordered_map<const GraphNode*, GraphNode*>* copies) {
  std::unordered_map<const GraphNode*, GraphNode*> own;
  if (!copies) copies = &own;
  auto copy = std::make_shared<Graph>();
  for (const auto& n : graph.nodes) (*copies)[n.get()] = add_node(*copy, n->work, {});
  for (const auto& n : graph.nodes) {
    for (const GraphNode* b : n->before) add_edge(copies->at(b), copies->at(n.get()));
  }
  return copy;
}

HipGraph publish_graph(std::shared_ptr<Graph> graph) { return graphs().add(std::move(graph)); }

std::shared_ptr<Graph> find_graph(HipGraph handle, const char* function) {
  std::shared_ptr<Graph> graph = graphs().find(handle);
  if (!graph) fail(hipErrorInvalidValue, "%s: %p is not a graph", function, static_cast<void*>(handle));
  return graph;
}

std::shared_ptr<GraphExec> find_exec(HipGraphExec handle, const char* function) {
  std::shared_ptr<GraphExec> exec = execs().find(handle);
  if (!exec)
    fail(hipErrorInvalidValue, "%s: %p is not an executable graph", function, static_cast<void*>(handle));
  return exec;
}

int check_nodes(HipGraphNode const* nodes, size_t count, const Graph* graph, const char* function) {
  if (count && !nodes) return fail(hipErrorInvalidValue, "%s: %zu nodes at null", function, count);
  for (size_t i = 0; i < count; ++i) {
    if (!node_is_live(nodes[i]) || (graph && nodes[i]->graph != graph)) {
      return fail(hipErrorInvalidValue, "%s: node %zu, %p, is not one of the graph", function, i,
                  static_cast<void*>(nodes[i]));
    }
  }
  return hipSuccess;
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipGraphCreate(HipGraph* out, unsigned flags) {
  return guarded([&] {
    if (!out || flags) return fail(hipErrorInvalidValue, "hipGraphCreate: pGraph is null, or flags is not 0");
    *out = publish_graph(std::make_shared<Graph>());
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipGraphDestroy(HipGraph handle) {
  return guarded([&] {
    if (graphs().remove(handle)) return static_cast<int>(hipSuccess);
    return fail(hipErrorInvalidValue, "hipGraphDestroy: %p is not a graph", static_cast<void*>(handle));
  });
}

HIP_API int hipGraphClone(HipGraph* out, HipGraph original) {
  return guarded([&] {
    const std::shared_ptr<Graph> graph = find_graph(original, "hipGraphClone");
    if (!graph || !out) return fail(hipErrorInvalidValue, "hipGraphClone: a graph is null or none");
    std::lock_guard lock(queue_mutex());
    const bool has_memory = std::ranges::any_of(graph->nodes, [](const auto& n) {
      return std::holds_alternative<AllocWork>(n->work) || std::holds_alternative<FreeWork>(n->work);
    });
    if (has_memory)
      return fail(hipErrorNotSupported, "hipGraphClone: the graph allocates memory, which has one owner");
    *out = publish_graph(clone(*graph, nullptr));
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipGraphInstantiate(HipGraphExec* out, HipGraph graph, HipGraphNode* culprit, char* log,
                                size_t log_bytes) {
  if (culprit) *culprit = nullptr;
  if (log && log_bytes) *log = 0;
  return guarded([&] { return instantiate(out, graph, 0); });
}
HIP_API int hipGraphInstantiateWithFlags(HipGraphExec* out, HipGraph graph, unsigned long long flags) {
  return guarded([&] { return instantiate(out, graph, flags); });
}

HIP_API int hipGraphLaunch(HipGraphExec exec, HipStream stream) {
  return guarded([&] { return launch_graph(exec, stream); });
}

// There is nothing to bring to the device beforehand.
HIP_API int hipGraphUpload(HipGraphExec exec, HipStream stream) {
  return guarded([&] {
    if (!find_exec(exec, "hipGraphUpload")) return static_cast<int>(hipErrorInvalidValue);
    return check_stream(stream, "hipGraphUpload");
  });
}

// Launches under way go on.
HIP_API int hipGraphExecDestroy(HipGraphExec handle) {
  return guarded([&] {
    if (execs().remove(handle)) return static_cast<int>(hipSuccess);
    return fail(hipErrorInvalidValue, "hipGraphExecDestroy: %p is not an executable graph",
                static_cast<void*>(handle));
  });
}

HIP_API int hipGraphExecUpdate(HipGraphExec handle, HipGraph graph_handle, HipGraphNode* culprit,
                               int* result) {
  return guarded([&] {
    const char* const function = "hipGraphExecUpdate";
    if (!culprit || !result) return fail(hipErrorInvalidValue, "%s: a result pointer is null", function);
    const std::shared_ptr<GraphExec> exec = find_exec(handle, function);
    const std::shared_ptr<Graph> graph = find_graph(graph_handle, function);
    if (!exec || !graph) return static_cast<int>(hipErrorInvalidValue);
    std::lock_guard lock(queue_mutex());
    *culprit = nullptr;
    *result = update_exec(*exec, *graph, culprit);
    if (!*result) return static_cast<int>(hipSuccess);
    return fail(hipErrorGraphExecUpdateFailure, "%s: the graph has other nodes or dependencies (%d)",
                function, *result);
  });
}
