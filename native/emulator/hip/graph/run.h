// SPDX-License-Identifier: MIT OR Apache-2.0
// A launch of a graph: what it does to events, and in which order its nodes run.
#pragma once

#include <map>
#include <vector>

#include "core/memory.h"
#include "hip/stream/event.h"
#include "hip/stream/work.h"

namespace fmha::emu {

// The arguments of a launch as it was asked for. Made with queue_mutex() held.
class GraphRun {
 public:
  GraphRun(std::shared_ptr<const Program> program, std::vector<Allocation> stale, const StreamRef& stream);
  // Runs on the stream's thread. Marks of events are done then, even if the launch failed.
  void execute(bool alive);

 private:
  struct Mark {
    OpRef op;
    int records = 0;  // nodes that have to run before it is done
  };
  void note(const Program& program);
  bool run(const Program& program);
  bool step(const Work& work);
  bool record(const EventRef& event);
  bool wait(const EventRef& event);

  const std::shared_ptr<const Program> program_;
  const std::vector<Allocation> stale_;  // freed before anything else
  const StreamRef stream_;
  std::map<EventRef, Mark> marks_;
  std::map<EventRef, OpRef> waits_;  // what each event stood for when the launch was asked for
};

// The launches of all kernels of the program: hipSuccess, or the failure ordered (fault_injection.h).
int inject_graph_failure(const Program& program, int device);

}  // namespace fmha::emu
