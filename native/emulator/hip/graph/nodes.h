// SPDX-License-Identifier: MIT OR Apache-2.0
// The code that the entry points for each kind of node share.
#pragma once

#include <mutex>
#include <utility>

#include "hip/graph/graph.h"

namespace fmha::emu {

int add_work(const char* function, HipGraphNode* out, HipGraph graph, HipGraphNode const* before,
             size_t count, Work work);

// Calls build(&work), which may fail, and adds what it made.
template <class T, class Build>
int add_built(const char* function, HipGraphNode* out, HipGraph graph, HipGraphNode const* before,
              size_t count, Build build) {
  return guarded([&] {
    T work;
    if (const int e = build(&work)) return e;
    return add_work(function, out, graph, before, count, std::move(work));
  });
}

// The caller holds queue_mutex(). Null with the error recorded if it is no node of that kind.
template <class T>
T* work_of(HipGraphNode node, const char* function) {
  T* work = node_is_live(node) ? std::get_if<T>(&node->work) : nullptr;
  if (!work)
    fail(hipErrorInvalidValue, "%s: %p is not a node of that kind", function, static_cast<void*>(node));
  return work;
}

template <class T, class Build>
int set_node(const char* function, HipGraphNode node, Build build) {
  return guarded([&] {
    T work;
    if (const int e = build(&work)) return e;
    std::lock_guard lock(queue_mutex());
    T* old = work_of<T>(node, function);
    if (!old) return static_cast<int>(hipErrorInvalidValue);
    *old = std::move(work);
    return static_cast<int>(hipSuccess);
  });
}

// The step of `exec` that was made of the node; launches under way keep what they have.
template <class T, class Build>
int set_exec_step(const char* function, HipGraphExec handle, HipGraphNode node, Build build) {
  return guarded([&] {
    T work;
    const std::shared_ptr<GraphExec> exec = find_exec(handle, function);
    if (!exec) return static_cast<int>(hipErrorInvalidValue);
    if (const int e = build(&work)) return e;
    std::lock_guard lock(queue_mutex());
    const auto it = exec->step_of.find(node);
    if (it == exec->step_of.end() || !std::holds_alternative<T>(exec->program->steps[it->second])) {
      return fail(hipErrorInvalidValue, "%s: %p is not a node of that kind that the graph was made of",
                  function, static_cast<void*>(node));
    }
    auto program = std::make_shared<Program>(*exec->program);
    program->steps[it->second] = std::move(work);
    exec->program = std::move(program);
    return static_cast<int>(hipSuccess);
  });
}

}  // namespace fmha::emu
