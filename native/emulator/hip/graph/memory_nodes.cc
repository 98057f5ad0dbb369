// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/graph/memory_nodes.h"

#include <map>
#include <mutex>
#include <set>

#include "hip/graph/nodes.h"
#include "hip/memory/memory.h"
#include "hip/memory/pages.h"

namespace fmha::emu {
namespace {

// Keyed by address. Guarded by its mutex, as are the `owned` of what is in it.
std::mutex registry_mutex;
std::map<uint64_t, std::weak_ptr<GraphMemory>>& registry() {
  static auto* all = new std::map<uint64_t, std::weak_ptr<GraphMemory>>;
  return *all;
}

// f(memory, whether it is freed) for every memory node, in children too.
template <class F>
void for_memory(const Program& program, const F& f) {
  for (const Work& step : program.steps) {
    if (const auto* a = std::get_if<AllocWork>(&step)) f(a->memory, false);
    if (const auto* x = std::get_if<FreeWork>(&step)) f(x->memory, true);
    if (const auto* g = std::get_if<GraphWork>(&step)) for_memory(*g->program, f);
  }
}

void tell(const GraphMemory& memory, int error, const char* what) {
  char text[160];
  std::snprintf(text, sizeof text, "graph: %s of %llu bytes at 0x%llx: ", what,
                static_cast<unsigned long long>(memory.range.bytes),
                static_cast<unsigned long long>(memory.range.base));
  tell_fault(memory.range.device, error, text + memory_describe_nearest(memory.range.base));
}

}  // namespace

GraphMemory::~GraphMemory() {
  std::lock_guard lock(registry_mutex);
  registry().erase(range.base);
}

GraphMemoryRef reserve_graph_memory(size_t bytes, int device_index, const char* function) {
  const uint64_t address = bytes && bytes <= device_memory_bytes() ? reserve_addresses(bytes) : 0;
  if (!address) {
    fail(bytes ? hipErrorOutOfMemory : hipErrorInvalidValue, "%s: %zu bytes asked for, the device has %llu",
         function, bytes, static_cast<unsigned long long>(device_memory_bytes()));
    return nullptr;
  }
  auto memory = std::make_shared<GraphMemory>();
  memory->range = {address, bytes, MemoryKind::kDevice, device_index};
  std::lock_guard lock(registry_mutex);
  registry()[address] = memory;
  return memory;
}

GraphMemoryRef graph_memory_at(uint64_t address) {
  std::lock_guard lock(registry_mutex);
  const auto it = registry().find(address);
  return it == registry().end() ? nullptr : it->second.lock();
}

bool find_memory(uint64_t address, Allocation* out) {
  if (memory_find(address, out)) return true;
  GraphMemoryRef memory;  // outlives the lock, which its end may take
  std::lock_guard lock(registry_mutex);
  auto it = registry().upper_bound(address);
  if (it == registry().begin()) return false;
  memory = std::prev(it)->second.lock();
  if (!memory || address - memory->range.base >= memory->range.bytes) return false;
  *out = memory->range;
  return true;
}

bool disown_graph_memory(uint64_t address) {
  const GraphMemoryRef memory = graph_memory_at(address);
  if (!memory) return true;
  std::lock_guard lock(registry_mutex);
  return std::exchange(memory->owned, false);
}

int own_graph_memory(const Program& program, bool automatic, const char* function,
                     std::vector<Allocation>* stale) {
  std::set<GraphMemoryRef> allocated, freed;
  for_memory(program, [&](const GraphMemoryRef& m, bool free) { (free ? freed : allocated).insert(m); });
  std::lock_guard lock(registry_mutex);
  for (const GraphMemoryRef& m : allocated) {
    if (!m->owned) continue;
    if (!automatic) {
      return fail(hipErrorInvalidValue,
                  "%s: 0x%llx, %llu bytes that the launch before allocated, were not freed", function,
                  static_cast<unsigned long long>(m->range.base),
                  static_cast<unsigned long long>(m->range.bytes));
    }
    stale->push_back(m->range);
  }
  for (const GraphMemoryRef& m : freed) {
    if (m->owned || allocated.contains(m)) continue;
    return fail(hipErrorInvalidValue, "%s: a node frees 0x%llx, which no launch has allocated", function,
                static_cast<unsigned long long>(m->range.base));
  }
  for (const GraphMemoryRef& m : allocated) m->owned = true;
  for (const GraphMemoryRef& m : freed) m->owned = false;
  return hipSuccess;
}

bool has_graph_memory(const Program& program) {
  bool any = false;
  for_memory(program, [&](const GraphMemoryRef&, bool) { any = true; });
  return any;
}

bool execute_alloc(const GraphMemory& memory) {
  const Allocation& a = memory.range;
  void* p = nullptr;
  Allocation there;
  const bool is_there = memory_find(a.base, &there);
  const int e = is_there ? static_cast<int>(hipErrorInvalidValue)
                         : allocate(&p, a.bytes, MemoryKind::kDevice, a.device, "graph allocation", a.base);
  if (e) tell(memory, e, is_there ? "allocation of what is allocated" : "allocation");
  return !e;
}

bool execute_free(const GraphMemory& memory) {
  Allocation there;
  if (memory_find(memory.range.base, &there)) return release(there), true;
  tell(memory, hipErrorInvalidValue, "free of what is not allocated");
  return false;
}

}  // namespace fmha::emu

using namespace fmha::emu;

namespace {

int alloc_work_of(HipMemAllocNodeParams* params, const char* function, AllocWork* out) {
  if (!params) return fail(hipErrorInvalidValue, "%s: the parameters are null", function);
  const HipMemPoolProps& pool = params->pool;
  if (pool.allocation_type != kPinned || pool.location_type != kOnDevice || pool.handle_types)
    return fail(hipErrorInvalidValue, "%s: expected pinned memory on a device, not shared", function);
  if (pool.location_id < 0 || pool.location_id >= device_count())
    return fail(hipErrorInvalidDevice, "%s: there is no device %d", function, pool.location_id);
  out->memory = reserve_graph_memory(params->bytes, pool.location_id, function);
  if (!out->memory) return hipErrorOutOfMemory;
  for (size_t i = 0; i < params->access_count; ++i)
    out->memory->range.shared_with |=
        params->access[i].flags ? 1u << (params->access[i].location_id & 31) : 0;
  params->address = reinterpret_cast<void*>(out->memory->range.base);
  return hipSuccess;
}

int free_work_of(void* p, const char* function, FreeWork* out) {
  out->memory = graph_memory_at(reinterpret_cast<uint64_t>(p));
  if (out->memory) return hipSuccess;
  return fail(hipErrorInvalidValue, "%s: %p is not the start of memory that a graph allocates", function, p);
}

}  // namespace

HIP_API int hipGraphAddMemAllocNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                    size_t count, HipMemAllocNodeParams* params) {
  const char* const f = "hipGraphAddMemAllocNode";
  return add_built<AllocWork>(f, node, graph, before, count,
                              [&](AllocWork* w) { return alloc_work_of(params, f, w); });
}
HIP_API int hipGraphAddMemFreeNode(HipGraphNode* node, HipGraph graph, HipGraphNode const* before,
                                   size_t count, void* p) {
  const char* const f = "hipGraphAddMemFreeNode";
  return add_built<FreeWork>(f, node, graph, before, count,
                             [&](FreeWork* w) { return free_work_of(p, f, w); });
}

HIP_API int hipGraphMemAllocNodeGetParams(HipGraphNode node, HipMemAllocNodeParams* out) {
  return guarded([&] {
    const char* const f = "hipGraphMemAllocNodeGetParams";
    if (!out) return fail(hipErrorInvalidValue, "%s: the parameters are null", f);
    std::lock_guard lock(queue_mutex());
    const AllocWork* w = work_of<AllocWork>(node, f);
    if (!w) return static_cast<int>(hipErrorInvalidValue);
    *out = {};
    out->pool = {kPinned, 0, kOnDevice, w->memory->range.device, nullptr, {}};
    out->bytes = w->memory->range.bytes;
    out->address = reinterpret_cast<void*>(w->memory->range.base);
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipGraphMemFreeNodeGetParams(HipGraphNode node, void* out) {
  return guarded([&] {
    const char* const f = "hipGraphMemFreeNodeGetParams";
    if (!out) return fail(hipErrorInvalidValue, "%s: dev_ptr is null", f);
    std::lock_guard lock(queue_mutex());
    const FreeWork* w = work_of<FreeWork>(node, f);
    if (!w) return static_cast<int>(hipErrorInvalidValue);
    *static_cast<void**>(out) = reinterpret_cast<void*>(w->memory->range.base);
    return static_cast<int>(hipSuccess);
  });
}

// Nothing is kept that is not allocated.
HIP_API int hipDeviceGraphMemTrim(int index) {
  return answered([&] { return check_device(index, "hipDeviceGraphMemTrim"); });
}
