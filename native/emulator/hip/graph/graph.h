// SPDX-License-Identifier: MIT OR Apache-2.0
// Graphs of work, and the capture of streams into them. All fields are guarded by queue_mutex().
#pragma once

#include <thread>
#include <unordered_map>
#include <vector>

#include "hip/stream/work.h"

namespace fmha::emu {

struct GraphNode {
  Graph* graph = nullptr;
  Work work;
  std::vector<GraphNode*> before, after;
  std::vector<void*> param_pointers;  // what hipGraphKernelNodeGetParams points to
};

struct Graph {
  ~Graph();
  std::vector<std::unique_ptr<GraphNode>> nodes;
};

struct GraphExec {
  std::shared_ptr<const Program> program;  // replaced, never changed: a launch under way keeps the old one
  std::unordered_map<const GraphNode*, size_t> step_of;
  bool frees_on_launch = false;  // hipGraphInstantiateFlagAutoFreeOnLaunch
  OpRef last;                    // the launch given last: launches of one exec do not overlap
};

enum NodeType : int {
  kKernelNode,
  kCopyNode,
  kFillNode,
  kHostNode,
  kGraphNode,
  kEmptyNode,
  kWaitNode,
  kRecordNode,
  kAllocNode = 10,
  kFreeNode,
};
int node_type(const Work& work);

GraphNode* add_node(Graph& graph, Work work, const std::vector<GraphNode*>& before);
void add_edge(GraphNode* from, GraphNode* to);
bool node_is_live(const GraphNode* node);
// Nodes in an order that dependencies allow; fewer than there are if they go round in a circle.
std::vector<GraphNode*> in_order(const Graph& graph);
// Null if they do. `step_of` (may be null) gets which step a node became.
std::shared_ptr<Program> program_of(const Graph& graph,
                                    std::unordered_map<const GraphNode*, size_t>* step_of);
// A copy with nodes of its own; `copies` (may be null) gets old to new.
std::shared_ptr<Graph> clone(const Graph& graph, std::unordered_map<const GraphNode*, GraphNode*>* copies);
// The graph gets a handle, and lives until hipGraphDestroy.
HipGraph publish_graph(std::shared_ptr<Graph> graph);
// Null with the error recorded if it is not a live handle.
std::shared_ptr<Graph> find_graph(HipGraph handle, const char* function);
std::shared_ptr<GraphExec> find_exec(HipGraphExec handle, const char* function);
// hipSuccess, or an error: a node's pointer that is not one, or is one of another graph (any graph: null).
int check_nodes(HipGraphNode const* nodes, size_t count, const Graph* graph, const char* function);
// A kernel node's work as hipKernelNodeParams tells it; its function is a handle or a host stub.
int kernel_work_of(const HipKernelNodeParams* params, const char* function, KernelWork* out);
int fill_work_of(const HipMemsetParams* params, const char* function, FillWork* out);
int copy_work_of(const HipMemcpy3D* params, const char* function, CopyWork* out);
int copy_work_of(const HipDrvMemcpy3D* params, const char* function, CopyWork* out);

// The module function behind a host stub on a device; null with the error recorded.
HipFunction stub_function(const void* stub, int device, const char* caller);

struct Capture {
  uint64_t id = 0;
  int mode = 0;
  std::thread::id thread;
  StreamRef origin;
  bool invalid = false, ended = false;
  std::shared_ptr<Graph> graph;
  std::vector<StreamRef> streams;  // the origin and those that joined it through events
};

enum CaptureMode : int { kCaptureGlobal, kCaptureThreadLocal, kCaptureRelaxed };
enum CaptureStatus : int { kCaptureNone, kCaptureActive, kCaptureInvalidated };

// The caller holds queue_mutex().
int capture_work(Stream& stream, Work work, const char* function);
// An operation on the null stream would wait for a capturing blocking stream: that capture is lost.
int check_legacy(const Stream& stream, const char* function);
int join_capture(const StreamRef& stream, const std::shared_ptr<Capture>& capture,
                 const std::vector<GraphNode*>& nodes, const char* function);
// Records `error` and ends what the capture can give; returns the error.
int invalidate(Capture& capture, int error, const char* function, const char* what);

// The caller does not hold it. Returns hipSuccess, or the error of a call that loses the capture.
int check_unsafe(const char* function);  // hipMalloc and others, by the capture modes
int check_stream_waitable(Stream& stream, const char* function);
int end_captures(int code, const char* function);  // all of the process; what the call returns then is `code`
bool is_capturing(Stream& stream);

}  // namespace fmha::emu
