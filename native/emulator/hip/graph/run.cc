// SPDX-License-Identifier: MIT OR Apache-2.0
// Nodes run one after another on the stream's thread, in an order that their dependencies allow.
// $FMHA_EMU_SCHEDULE chooses it, as among waves, so that a missing dependency is seen. "round" takes the node
// that was made first, "reverse" the one made last of those that may run.
#include "hip/graph/run.h"

#include <algorithm>

#include "hip/fault_injection.h"
#include "hip/graph/memory_nodes.h"
#include "hip/memory/memory.h"
#include "launch/schedule.h"

namespace fmha::emu {

GraphRun::GraphRun(std::shared_ptr<const Program> program, std::vector<Allocation> stale,
                   const StreamRef& stream)
    : program_(std::move(program)), stale_(std::move(stale)), stream_(stream) {
  note(*program_);
  // The waits first: they are for what was recorded before this launch.
  for (auto& [event, op] : waits_) op = marks_.contains(event) ? nullptr : recorded(*event);
  for (auto& [event, mark] : marks_) mark.op = begin_mark(*event, stream);
}

void GraphRun::note(const Program& program) {
  for (const Work& work : program.steps) {
    if (const auto* r = std::get_if<RecordWork>(&work)) ++marks_[r->event].records;
    if (const auto* w = std::get_if<WaitWork>(&work)) waits_[w->event] = nullptr;
    if (const auto* g = std::get_if<GraphWork>(&work)) note(*g->program);
  }
}

void GraphRun::execute(bool alive) {
  for (const Allocation& a : stale_) release(a);
  const bool fine = alive && run(*program_);
  for (auto& [event, mark] : marks_) {
    if (mark.records) finish_mark(mark.op, fine ? 0 : device(stream_->device).last_fault.load());
  }
}

bool GraphRun::run(const Program& program) {
  Schedule schedule;
  std::string error;
  if (!schedule_from_environment(&schedule, &error)) return tell_fault(stream_->device, 1, error), false;
  WaveOrder order(schedule, program.steps.size());
  std::vector<size_t> missing;
  std::vector<size_t> ready;  // ascending
  for (size_t i = 0; i < program.steps.size(); ++i) {
    missing.push_back(program.before[i].size());
    if (!missing.back()) ready.push_back(i);
  }
  while (!ready.empty()) {
    const auto at = ready.begin() + static_cast<std::ptrdiff_t>(order.choose(ready.size()));
    const size_t done = *at;
    ready.erase(at);
    if (!step(program.steps[done])) return false;
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const auto waited = static_cast<size_t>(std::ranges::count(program.before[i], done));
      missing[i] -= waited;
      if (waited && !missing[i]) ready.insert(std::ranges::lower_bound(ready, i), i);
    }
  }
  return true;
}

bool GraphRun::step(const Work& work) {
  if (const auto* g = std::get_if<GraphWork>(&work)) return run(*g->program);
  if (const auto* r = std::get_if<RecordWork>(&work)) return record(r->event);
  if (const auto* w = std::get_if<WaitWork>(&work)) return wait(w->event);
  return emu::execute(work, stream_->device);
}

bool GraphRun::record(const EventRef& event) {
  Mark& mark = marks_.at(event);
  if (--mark.records == 0) finish_mark(mark.op, 0);
  return true;
}

bool GraphRun::wait(const EventRef& event) {
  if (const OpRef& op = waits_.at(event)) wait_on_stream_thread(op);
  return true;
}

int inject_graph_failure(const Program& program, int device_index) {
  for (const Work& work : program.steps) {
    int e = hipSuccess;
    if (const auto* k = std::get_if<KernelWork>(&work))
      e = inject_launch_failure(device_index, k->function->kernel->name.c_str());
    if (const auto* g = std::get_if<GraphWork>(&work)) e = inject_graph_failure(*g->program, device_index);
    if (e) return e;
  }
  return hipSuccess;
}

}  // namespace fmha::emu
