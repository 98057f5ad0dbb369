// SPDX-License-Identifier: MIT OR Apache-2.0
// Nodes of graphs that record events and wait for them.
#include "hip/graph/nodes.h"
#include "hip/stream/event.h"

namespace fmha::emu {
namespace {

template <class T>
int event_work_of(HipEvent event, const char* function, T* out) {
  out->event = find_event(event, function);
  return out->event ? hipSuccess : hipErrorInvalidHandle;
}

template <class T>
int add(const char* f, HipGraphNode* node, HipGraph graph, HipGraphNode const* before, size_t count,
        HipEvent event) {
  return add_built<T>(f, node, graph, before, count, [&](T* w) { return event_work_of(event, f, w); });
}

template <class T>
int get(const char* f, HipGraphNode node, HipEvent* out) {
  return guarded([&] {
    if (!out) return fail(hipErrorInvalidValue, "%s: event_out is null", f);
    std::lock_guard lock(queue_mutex());
    const T* w = work_of<T>(node, f);
    if (!w) return static_cast<int>(hipErrorInvalidValue);
    *out = w->event.get();
    return static_cast<int>(hipSuccess);
  });
}

template <class T>
int set(const char* f, HipGraphNode node, HipEvent event) {
  return set_node<T>(f, node, [&](T* w) { return event_work_of(event, f, w); });
}

template <class T>
int set_exec(const char* f, HipGraphExec exec, HipGraphNode node, HipEvent event) {
  return set_exec_step<T>(f, exec, node, [&](T* w) { return event_work_of(event, f, w); });
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipGraphAddEventRecordNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                       size_t count, HipEvent event) {
  return add<RecordWork>("hipGraphAddEventRecordNode", node, graph, before, count, event);
}
HIP_API int hipGraphAddEventWaitNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                     size_t count, HipEvent event) {
  return add<WaitWork>("hipGraphAddEventWaitNode", node, graph, before, count, event);
}
HIP_API int hipGraphEventRecordNodeGetEvent(HipGraphNode node, HipEvent* event) {
  return get<RecordWork>("hipGraphEventRecordNodeGetEvent", node, event);
}
HIP_API int hipGraphEventWaitNodeGetEvent(HipGraphNode node, HipEvent* event) {
  return get<WaitWork>("hipGraphEventWaitNodeGetEvent", node, event);
}
HIP_API int hipGraphEventRecordNodeSetEvent(HipGraphNode node, HipEvent event) {
  return set<RecordWork>("hipGraphEventRecordNodeSetEvent", node, event);
}
HIP_API int hipGraphEventWaitNodeSetEvent(HipGraphNode node, HipEvent event) {
  return set<WaitWork>("hipGraphEventWaitNodeSetEvent", node, event);
}
HIP_API int hipGraphExecEventRecordNodeSetEvent(HipGraphExec exec, HipGraphNode node, HipEvent event) {
  return set_exec<RecordWork>("hipGraphExecEventRecordNodeSetEvent", exec, node, event);
}
HIP_API int hipGraphExecEventWaitNodeSetEvent(HipGraphExec exec, HipGraphNode node, HipEvent event) {
  return set_exec<WaitWork>("hipGraphExecEventWaitNodeSetEvent", exec, node, event);
}
