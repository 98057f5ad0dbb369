// SPDX-License-Identifier: MIT OR Apache-2.0
// The work of streams' operations and graphs' nodes: one description of each kind. A stream's thread runs it,
// now or at every launch of a graph.
#pragma once

#include <variant>
#include <vector>

#include "core/shadow.h"
#include "hip/stream/queue.h"

namespace fmha::emu {

struct KernelWork {
  std::shared_ptr<Module> module;  // outlives its handle while work needs it
  const Function* function = nullptr;
  HipDim3 grid, block;
  uint32_t dynamic_lds = 0;
  uint32_t stack_bytes = 0;  // hipLimitStackSize when it was launched
  std::vector<uint8_t> args;
  std::vector<Range> read_only;  // what the launching thread declared so
};

// Rows and slices; one row is a plain copy.
struct CopyWork {
  void* dst = nullptr;
  size_t dst_pitch = 0;
  const void* src = nullptr;
  size_t src_pitch = 0;
  size_t width = 0, height = 1, depth = 1;
  size_t dst_slice = 0, src_slice = 0;  // bytes from one slice to the next
  int kind = 0;
  bool dst_known = false, src_known = false;     // memory of this runtime when the copy was queued
  std::shared_ptr<std::vector<uint8_t>> staged;  // a pageable source, as it was when the copy was queued

  size_t dst_bytes() const { return dst_slice * (depth - 1) + dst_pitch * (height - 1) + width; }
  size_t src_bytes() const { return src_slice * (depth - 1) + src_pitch * (height - 1) + width; }
};

struct FillWork {
  void* dst = nullptr;
  size_t pitch = 0;
  uint64_t value = 0;
  unsigned element_bytes = 1;
  size_t width = 0, height = 1;  // in elements, rows

  size_t bytes() const { return pitch * (height - 1) + width * element_bytes; }
};

struct HostWork {
  HipHostFn fn = nullptr;
  void* user_data = nullptr;
};

struct EmptyWork {};

struct Event;
struct RecordWork {
  std::shared_ptr<Event> event;
};
struct WaitWork {
  std::shared_ptr<Event> event;
};

struct GraphMemory;  // hip_graph_memory.h
struct AllocWork {
  std::shared_ptr<GraphMemory> memory;
};
struct FreeWork {
  std::shared_ptr<GraphMemory> memory;
};

struct Program;
struct GraphWork {
  std::shared_ptr<const Program> program;
};

using Work = std::variant<KernelWork, CopyWork, FillWork, HostWork, EmptyWork, GraphWork, RecordWork,
                          WaitWork, AllocWork, FreeWork>;

// A graph made ready: its work in an order that its dependencies allow.
struct Program {
  std::vector<Work> steps;
  std::vector<std::vector<size_t>> before;  // the steps that each comes after
};

// Tells whether the work calls the program, or waits for it: see Load.
bool runs_program(const Work& work);

// Gives work to a stream, or to the graph if the stream is being captured: then *op stays null.
int enqueue(const char* function, const StreamRef& stream, Work work, OpRef* op = nullptr);
// The same, on a stream's handle, where the capture rules of a call on a stream apply.
int enqueue(const char* function, HipStream stream, Work work);

// Runs on a stream's thread, but for what only a launch of a graph does: graphs and events. False: the device
// faulted, which has been recorded.
bool execute(const Work& work, int device);
bool execute_kernel(const KernelWork& work);

// A launch with its sizes and arguments checked.
int make_kernel_work(HipFunction function, HipDim3 grid, HipDim3 block, uint32_t dynamic_lds, void** params,
                     void** extra, const char* caller, KernelWork* out);
// Copies and fills with their ranges checked. Sets *empty if there is nothing to do.
int check_copy(const char* function, CopyWork* c, bool* empty);
int check_fill(const char* function, const FillWork& f, bool* empty);

// Records what stopped the device: for fmha_emu_last_fault and the terminal.
void tell_fault(int device, int error, const std::string& message);

}  // namespace fmha::emu
