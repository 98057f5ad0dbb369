// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory that graphs allocate. A node of it has an address of its own, which nothing else ever gets; the
// memory is there from the node's turn in a launch until it is freed: by a node, hipFreeAsync or hipFree. An
// access at any other time meets no allocation.
#pragma once

#include <cstddef>
#include <memory>

#include "core/memory.h"
#include "hip/state.h"

namespace fmha::emu {

struct Program;

struct GraphMemory {
  Allocation range;
  bool owned = false;  // launched, and nothing that was asked for since frees it
  ~GraphMemory();
};
using GraphMemoryRef = std::shared_ptr<GraphMemory>;

// Null with the error recorded.
GraphMemoryRef reserve_graph_memory(size_t bytes, int device, const char* function);
// The memory that starts at the address; null if it is no graph's.
GraphMemoryRef graph_memory_at(uint64_t address);
// Memory that is there, or may be by the time that what is queued now runs: a graph's.
bool find_memory(uint64_t address, Allocation* out);
// Something other than the graph's own nodes frees it. False: it is a graph's, and not allocated.
bool disown_graph_memory(uint64_t address);

// A launch is asked for: hipSuccess, or an error if the program would allocate what is allocated. Memory
// that it must free first (automatic: hipGraphInstantiateFlagAutoFreeOnLaunch) goes to *stale.
int own_graph_memory(const Program& program, bool automatic, const char* function,
                     std::vector<Allocation>* stale);
bool has_graph_memory(const Program& program);

// Runs on a stream's thread. False: the device faulted, which has been recorded.
bool execute_alloc(const GraphMemory& memory);
bool execute_free(const GraphMemory& memory);

}  // namespace fmha::emu
