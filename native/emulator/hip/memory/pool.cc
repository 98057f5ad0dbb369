// SPDX-License-Identifier: MIT OR Apache-2.0
// Stream-ordered allocation: hipMallocAsync, hipFreeAsync and memory pools. Memory can be used from the
// moment it is asked for, and is given back when the stream comes to the free. A pool keeps nothing back for
// later allocations, so that a use after the free always meets no allocation: its reserved memory is its used
// one.
#include <map>
#include <unordered_map>

#include "hip/graph/graph.h"
#include "hip/graph/memory_nodes.h"
#include "hip/handles.h"
#include "hip/memory/memory.h"

namespace fmha::emu {

struct MemPool {
  int device = 0;
  bool is_default = false;
  // Guarded by pools_mutex.
  int reuse[3] = {1, 1, 1};  // accepted and told; nothing is ever reused
  uint64_t release_threshold = 0;
  uint64_t used = 0, high[2] = {0, 0};  // high: of reserved, of used
  uint32_t shared_with = 0;
};

namespace {

using PoolRef = std::shared_ptr<MemPool>;

enum PoolAttribute : int {
  kFollowEvents = 1,
  kOpportunistic,
  kInternalDependencies,
  kReleaseThreshold,
  kReservedCurrent,
  kReservedHigh,
  kUsedCurrent,
  kUsedHigh,
};

struct Block {
  PoolRef pool;
  uint64_t bytes = 0;
  bool freeing = false;
};

std::mutex pools_mutex;
struct Pools {
  std::map<int, PoolRef> defaults, current;  // by device
  std::unordered_map<uint64_t, Block> blocks;
};
Pools& pools() {
  static auto* p = new Pools;
  return *p;
}
Handles<MemPool>& pool_handles() {
  static auto* h = new Handles<MemPool>;
  return *h;
}

PoolRef default_pool(int index) {
  std::lock_guard lock(pools_mutex);
  PoolRef& pool = pools().defaults[index];
  if (!pool) {
    pool = std::make_shared<MemPool>();
    pool->device = index;
    pool->is_default = true;
    pool_handles().add(pool);
  }
  return pool;
}

PoolRef current_pool(int index) {
  {
    std::lock_guard lock(pools_mutex);
    const auto it = pools().current.find(index);
    if (it != pools().current.end()) return it->second;
  }
  return default_pool(index);
}

PoolRef find_pool(HipMemPool handle, const char* function) {
  PoolRef pool = pool_handles().find(handle);
  if (!pool) fail(hipErrorInvalidValue, "%s: %p is not a memory pool", function, static_cast<void*>(handle));
  return pool;
}

// True: allocations and frees become nodes. False: *error says whether they may be made.
bool is_captured(Stream& stream, const char* function, int* error) {
  std::lock_guard lock(queue_mutex());
  if (!stream.capture) *error = check_legacy(stream, function);
  return stream.capture != nullptr;
}

int capture_alloc(Stream& stream, void** out, size_t bytes, int device_index, uint32_t shared_with,
                  const char* function) {
  if (!out) return fail(hipErrorInvalidValue, "%s: the pointer to fill is null", function);
  const GraphMemoryRef memory = reserve_graph_memory(bytes, device_index, function);
  if (!memory) return hipErrorOutOfMemory;
  memory->range.shared_with = shared_with;
  *out = reinterpret_cast<void*>(memory->range.base);
  std::lock_guard lock(queue_mutex());
  return capture_work(stream, AllocWork{memory}, function);
}

int capture_free(Stream& stream, void* p, const char* function) {
  const GraphMemoryRef memory = graph_memory_at(reinterpret_cast<uint64_t>(p));
  std::lock_guard lock(queue_mutex());
  if (memory) return capture_work(stream, FreeWork{memory}, function);
  return invalidate(*stream.capture, hipErrorInvalidValue, function,
                    "a graph frees only what a graph allocates; the capture is invalid now");
}

void count(MemPool& pool, uint64_t bytes) {
  pool.used += bytes;
  for (uint64_t& high : pool.high) high = std::max(high, pool.used);
}

int allocate_from(const PoolRef& pool, void** out, size_t bytes, const char* function) {
  if (const int e = allocate(out, bytes, MemoryKind::kDevice, pool->device, function)) return e;
  if (!*out) return hipSuccess;
  std::lock_guard lock(pools_mutex);
  count(*pool, bytes);
  const auto base = reinterpret_cast<uint64_t>(*out);
  pools().blocks[base] = {pool, bytes, false};
  if (pool->shared_with) memory_add({base, bytes, MemoryKind::kDevice, pool->device, pool->shared_with});
  return hipSuccess;
}

int allocate_async(void** out, size_t bytes, HipMemPool handle, HipStream stream_handle,
                   const char* function) {
  const StreamRef stream = find_stream(stream_handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  if (const int e = device_fault(stream->device)) return e;
  const PoolRef pool = handle ? find_pool(handle, function) : current_pool(stream->device);
  if (!pool) return hipErrorInvalidValue;
  int error = hipSuccess;
  if (is_captured(*stream, function, &error))
    return capture_alloc(*stream, out, bytes, pool->device, pool->shared_with, function);
  if (error) return error;
  return allocate_from(pool, out, bytes, function);
}

// Marks a block as one that a stream frees; memory of hipMalloc may be freed that way too.
int begin_free(uint64_t address, const Allocation& a, const char* function) {
  std::lock_guard lock(pools_mutex);
  const auto [it, is_new] = pools().blocks.try_emplace(address);
  if (it->second.freeing) {
    return fail(hipErrorInvalidValue, "%s: 0x%llx was given to hipFreeAsync before", function,
                static_cast<unsigned long long>(address));
  }
  it->second.freeing = true;
  if (is_new) it->second.bytes = a.bytes;
  return hipSuccess;
}

void forget(uint64_t address) {
  std::lock_guard lock(pools_mutex);
  const auto it = pools().blocks.find(address);
  if (it == pools().blocks.end()) return;
  if (it->second.pool) it->second.pool->used -= it->second.bytes;
  pools().blocks.erase(it);
}

int free_async(void* p, HipStream handle) {
  const char* const function = "hipFreeAsync";
  if (!p) return hipSuccess;
  const StreamRef stream = find_stream(handle, function);
  if (!stream) return hipErrorContextIsDestroyed;
  wait_for_room(stream);
  int error = hipSuccess;
  if (is_captured(*stream, function, &error)) return capture_free(*stream, p, function);
  if (error) return error;
  Allocation a;
  const auto address = reinterpret_cast<uint64_t>(p);
  if (!find_memory(address, &a) || a.base != address || a.kind != MemoryKind::kDevice ||
      !disown_graph_memory(address)) {
    return fail(hipErrorInvalidValue, "%s: %p is not the start of device memory; it is %s", function, p,
                memory_describe_nearest(address).c_str());
  }
  if (is_virtual_memory(address))
    return fail(hipErrorInvalidValue, "%s: %p was mapped by hipMemMap, expected hipMemUnmap", function, p);
  if (const int e = begin_free(address, a, function)) return e;
  std::lock_guard lock(queue_mutex());
  OpBody body = [a](bool) {  // also after a fault: the memory is the caller's no more
    forget(a.base);
    release(a);
  };
  submit(stream, std::move(body), {}, {.bytes = a.bytes});
  return hipSuccess;
}

int get_attribute(HipMemPool handle, int attribute, void* value) {
  const char* const function = "hipMemPoolGetAttribute";
  const PoolRef pool = find_pool(handle, function);
  if (!pool || !value) return fail(hipErrorInvalidValue, "%s: not a pool, or value is null", function);
  std::lock_guard lock(pools_mutex);
  switch (attribute) {
    case kFollowEvents:
    case kOpportunistic:
    case kInternalDependencies:
      *static_cast<int*>(value) = pool->reuse[attribute - kFollowEvents];
      return hipSuccess;
    case kReleaseThreshold:
      return *static_cast<uint64_t*>(value) = pool->release_threshold, hipSuccess;
    case kReservedCurrent:
    case kUsedCurrent:
      return *static_cast<uint64_t*>(value) = pool->used, hipSuccess;
    case kReservedHigh:
    case kUsedHigh:
      return *static_cast<uint64_t*>(value) = pool->high[attribute == kUsedHigh], hipSuccess;
    default:
      return fail(hipErrorInvalidValue, "%s: there is no attribute %d", function, attribute);
  }
}

int set_attribute(HipMemPool handle, int attribute, const void* value) {
  const char* const function = "hipMemPoolSetAttribute";
  const PoolRef pool = find_pool(handle, function);
  if (!pool || !value) return fail(hipErrorInvalidValue, "%s: not a pool, or value is null", function);
  std::lock_guard lock(pools_mutex);
  switch (attribute) {
    case kFollowEvents:
    case kOpportunistic:
    case kInternalDependencies:
      pool->reuse[attribute - kFollowEvents] = *static_cast<const int*>(value) != 0;
      return hipSuccess;
    case kReleaseThreshold:
      pool->release_threshold = *static_cast<const uint64_t*>(value);
      return hipSuccess;
    case kReservedHigh:
    case kUsedHigh:
      if (*static_cast<const uint64_t*>(value))
        return fail(hipErrorInvalidValue, "%s: a high watermark can only be set to 0", function);
      pool->high[attribute == kUsedHigh] = pool->used;
      return hipSuccess;
    default:
      return fail(hipErrorInvalidValue, "%s: attribute %d cannot be set", function, attribute);
  }
}

int create_pool(HipMemPool* out, const HipMemPoolProps* props) {
  const char* const function = "hipMemPoolCreate";
  if (!out || !props) return fail(hipErrorInvalidValue, "%s: null argument", function);
  if (props->allocation_type != kPinned || props->location_type != kOnDevice)
    return fail(hipErrorInvalidValue, "%s: expected pinned memory on a device", function);
  if (props->handle_types)
    return fail(hipErrorNotSupported, "%s: pools cannot be shared between processes", function);
  if (const int e = check_device(props->location_id, function)) return e;
  auto pool = std::make_shared<MemPool>();
  pool->device = props->location_id;
  *out = pool_handles().add(std::move(pool));
  return hipSuccess;
}

// Memory that is in use stays, until it is freed.
int destroy_pool(HipMemPool handle) {
  const char* const function = "hipMemPoolDestroy";
  const PoolRef pool = find_pool(handle, function);
  if (!pool) return hipErrorInvalidValue;
  if (pool->is_default) return fail(hipErrorInvalidValue, "%s: a device's default pool stays", function);
  pool_handles().remove(handle);
  std::lock_guard lock(pools_mutex);
  std::erase_if(pools().current, [&](const auto& e) { return e.second == pool; });
  return hipSuccess;
}

// Holds for earlier allocations too.
int set_access(HipMemPool handle, const HipMemAccess* access, size_t n) {
  const char* const function = "hipMemPoolSetAccess";
  const PoolRef pool = find_pool(handle, function);
  if (!pool || (n && !access)) return fail(hipErrorInvalidValue, "%s: not a pool, or null", function);
  std::lock_guard lock(pools_mutex);
  for (size_t i = 0; i < n; ++i) {
    if (access[i].location_type != kOnDevice || (access[i].flags && access[i].flags != kReadWrite))
      return fail(hipErrorInvalidValue, "%s: expected a device, and none or both of read and write",
                  function);
    if (const int e = check_device(access[i].location_id, function)) return e;
    const uint32_t bit = 1u << access[i].location_id;
    pool->shared_with = access[i].flags ? pool->shared_with | bit : pool->shared_with & ~bit;
  }
  for (const auto& [base, block] : pools().blocks) {
    if (block.pool == pool)
      memory_add({base, block.bytes, MemoryKind::kDevice, pool->device, pool->shared_with});
  }
  return hipSuccess;
}

}  // namespace

Pooled forget_pooled(uint64_t address) {
  {
    std::lock_guard lock(pools_mutex);
    const auto it = pools().blocks.find(address);
    if (it == pools().blocks.end()) return Pooled::kNot;
    if (it->second.freeing) return Pooled::kFreeing;
  }
  forget(address);
  return Pooled::kLive;
}

HipMemPool pool_of(uint64_t address) {
  std::lock_guard lock(pools_mutex);
  const auto it = pools().blocks.find(address);
  return it == pools().blocks.end() ? nullptr : it->second.pool.get();
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipMallocAsync(void** p, size_t bytes, HipStream stream) {
  return guarded([&] { return allocate_async(p, bytes, nullptr, stream, "hipMallocAsync"); });
}
HIP_API int hipMallocFromPoolAsync(void** p, size_t bytes, HipMemPool pool, HipStream stream) {
  return guarded([&] {
    if (!pool) return fail(hipErrorInvalidValue, "hipMallocFromPoolAsync: mem_pool is null");
    return allocate_async(p, bytes, pool, stream, "hipMallocFromPoolAsync");
  });
}
HIP_API int hipFreeAsync(void* p, HipStream stream) {
  return guarded([&] { return free_async(p, stream); });
}

HIP_API int hipMemPoolCreate(HipMemPool* pool, const HipMemPoolProps* props) {
  return guarded([&] { return create_pool(pool, props); });
}
HIP_API int hipMemPoolDestroy(HipMemPool pool) {
  return guarded([&] { return destroy_pool(pool); });
}
HIP_API int hipMemPoolGetAttribute(HipMemPool pool, int attribute, void* value) {
  return guarded([&] { return get_attribute(pool, attribute, value); });
}
HIP_API int hipMemPoolSetAttribute(HipMemPool pool, int attribute, void* value) {
  return guarded([&] { return set_attribute(pool, attribute, value); });
}
// Nothing is held that could be trimmed.
HIP_API int hipMemPoolTrimTo(HipMemPool pool, size_t) {
  return guarded([&] { return find_pool(pool, "hipMemPoolTrimTo") ? hipSuccess : hipErrorInvalidValue; });
}
HIP_API int hipMemPoolSetAccess(HipMemPool pool, const HipMemAccess* access, size_t count) {
  return guarded([&] { return set_access(pool, access, count); });
}
HIP_API int hipMemPoolGetAccess(int* flags, HipMemPool handle, HipMemAccess* location) {
  return guarded([&] {
    const PoolRef pool = find_pool(handle, "hipMemPoolGetAccess");
    if (!pool || !flags || !location) return fail(hipErrorInvalidValue, "hipMemPoolGetAccess: null argument");
    if (const int e = check_device(location->location_id, "hipMemPoolGetAccess")) return e;
    std::lock_guard lock(pools_mutex);
    const int index = location->location_id;
    *flags = index == pool->device || (pool->shared_with >> index & 1) ? kReadWrite : 0;
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipDeviceGetDefaultMemPool(HipMemPool* pool, int index) {
  return guarded([&] {
    if (!pool) return fail(hipErrorInvalidValue, "hipDeviceGetDefaultMemPool: mem_pool is null");
    if (const int e = check_device(index, "hipDeviceGetDefaultMemPool")) return e;
    *pool = default_pool(index).get();
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipDeviceGetMemPool(HipMemPool* pool, int index) {
  return guarded([&] {
    if (!pool) return fail(hipErrorInvalidValue, "hipDeviceGetMemPool: mem_pool is null");
    if (const int e = check_device(index, "hipDeviceGetMemPool")) return e;
    *pool = current_pool(index).get();
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipDeviceSetMemPool(int index, HipMemPool handle) {
  return guarded([&] {
    const PoolRef pool = find_pool(handle, "hipDeviceSetMemPool");
    if (!pool) return static_cast<int>(hipErrorInvalidValue);
    if (const int e = check_device(index, "hipDeviceSetMemPool")) return e;
    if (pool->device != index)
      return fail(hipErrorInvalidDevice, "hipDeviceSetMemPool: the pool is of device %d", pool->device);
    std::lock_guard lock(pools_mutex);
    pools().current[index] = pool;
    return static_cast<int>(hipSuccess);
  });
}
