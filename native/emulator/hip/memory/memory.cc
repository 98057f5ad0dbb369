// SPDX-License-Identifier: MIT OR Apache-2.0
// Allocation, registration of host memory, and what is known about a pointer.
#include "hip/memory/memory.h"

#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>

#include "core/shadow.h"
#include "hip/fault_injection.h"
#include "hip/graph/graph.h"
#include "hip/graph/memory_nodes.h"
#include "hip/memory/pages.h"

namespace fmha::emu {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kLargeBytes = 64 << 20;

enum PointerAttribute : int {
  kContext = 1,
  kMemoryType,
  kDevicePointer,
  kHostPointer,
  kP2pTokens,
  kSyncMemops,
  kBufferId,
  kIsManaged,
  kDeviceOrdinal,
  kIpcCapable,
  kRangeStart,
  kRangeSize,
  kMapped,
  kHandleTypes,
  kRdmaCapable,
  kAccessFlags,
  kMempool,
};

std::mutex flags_mutex;
std::unordered_map<uint64_t, unsigned> host_flags;  // of hipHostMalloc and hipHostRegister, by base

uint64_t host_available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (uint64_t kib = 0; file >> name >> kib;) {
    if (name == "MemAvailable:") return kib << 10;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return ~uint64_t{0};  // this kernel does not say
}

const char* device_memory_name(MemoryKind kind) {
  return kind == MemoryKind::kManaged ? "managed" : "device";
}

}  // namespace

// Memory filled with poison: what nobody wrote must not read as zeros.
int allocate(void** out, size_t bytes, MemoryKind kind, int device_index, const char* function, uint64_t at) {
  if (!out) return fail(hipErrorInvalidValue, "%s: the pointer to fill is null", function);
  *out = nullptr;
  if (!bytes) return hipSuccess;
  if (const int e = inject_allocation_failure(device_index, function)) return e;
  Device& d = device(device_index);
  const bool counts = kind == MemoryKind::kDevice || kind == MemoryKind::kManaged;
  const uint64_t total = device_memory_bytes();
  if (bytes > total || (counts && d.used_bytes + bytes > total)) {
    return fail(hipErrorOutOfMemory, "%s: %zu bytes asked for, %llu of the device's %llu in use", function,
                bytes, static_cast<unsigned long long>(d.used_bytes.load()),
                static_cast<unsigned long long>(total));
  }
  if (bytes >= kLargeBytes && bytes > host_available_bytes()) {
    return fail(hipErrorOutOfMemory, "%s: this machine has no %zu bytes for %s memory", function, bytes,
                device_memory_name(kind));
  }
  void* p = map_pages(bytes, at);
  if (!p) return fail(hipErrorOutOfMemory, "%s: this machine has no %zu bytes", function, bytes);
  if (counts) d.used_bytes += bytes;
  memory_add({reinterpret_cast<uint64_t>(p), bytes, kind, device_index});
  // The CPU writes to the other kinds, which nothing here sees.
  if (kind == MemoryKind::kDevice && unwritten_track_all()) {
    unwritten_track(reinterpret_cast<uint64_t>(p), bytes);
  }
  *out = p;
  return hipSuccess;
}

void release(const Allocation& a) {
  std::unique_lock gate(launch_gate());
  if (!memory_remove(a.base)) return;  // another thread was faster
  if (a.kind == MemoryKind::kDevice || a.kind == MemoryKind::kManaged) device(a.device).used_bytes -= a.bytes;
  unmap_pages(reinterpret_cast<void*>(a.base), a.bytes);
}

namespace {

int allocate(void** out, size_t bytes, MemoryKind kind, const char* function) {
  if (const int e = check_unsafe(function)) return e;
  return allocate(out, bytes, kind, current_device(), function);
}

// Waits for the device, which may be using the memory; all of them may host memory.
int release(void* p, bool host, const char* function) {
  if (!p) return hipSuccess;
  if (const int e = check_unsafe(function)) return e;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  Allocation a;
  if (!find_memory(address, &a) || a.base != address || !disown_graph_memory(address)) {
    return fail(hipErrorInvalidValue, "%s: %p is not the start of an allocation; it is %s", function, p,
                memory_describe_nearest(address).c_str());
  }
  if (is_virtual_memory(address))
    return fail(hipErrorInvalidValue, "%s: %p was mapped by hipMemMap, expected hipMemUnmap", function, p);
  const bool fits =
      host ? a.kind == MemoryKind::kHost : a.kind == MemoryKind::kDevice || a.kind == MemoryKind::kManaged;
  if (!fits) return fail(hipErrorInvalidValue, "%s: %p is another kind of memory", function, p);
  if (!host && forget_pooled(address) == Pooled::kFreeing) {
    return fail(hipErrorInvalidValue, "%s: %p was given to hipFreeAsync before", function, p);
  }
  const bool everywhere = host || a.kind == MemoryKind::kManaged;
  if (const int e = wait_for_device(everywhere ? -1 : a.device, function)) return e;
  if (host) {
    std::lock_guard lock(flags_mutex);
    host_flags.erase(address);
  }
  release(a);
  return hipSuccess;
}

int allocate_host(void** out, size_t bytes, unsigned flags, const char* function) {
  if (const int e = allocate(out, bytes, MemoryKind::kHost, function)) return e;
  std::lock_guard lock(flags_mutex);
  if (*out) host_flags[reinterpret_cast<uint64_t>(*out)] = flags;
  return hipSuccess;
}

int memory_type(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost:
    case MemoryKind::kRegistered:
      return hipMemoryTypeHost;
    case MemoryKind::kManaged:
      return hipMemoryTypeManaged;
    default:
      return hipMemoryTypeDevice;
  }
}

bool on_host(MemoryKind kind) {
  return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered || kind == MemoryKind::kManaged;
}

// HIP's answer about a pointer. Memory that a graph allocates counts as device 0's.
bool is_known(const void* p, Allocation* a) {
  if (!p || !find_memory(reinterpret_cast<uint64_t>(p), a)) return false;
  if (graph_memory_at(a->base)) a->device = 0;
  return true;
}

int find_pointer(const void* p, Allocation* a, const char* function) {
  if (is_known(p, a)) return hipSuccess;
  return fail(hipErrorInvalidValue, "%s: %p is not memory of this runtime; it is %s", function, p,
              memory_describe_nearest(reinterpret_cast<uint64_t>(p)).c_str());
}

unsigned flags_of(uint64_t base) {
  std::lock_guard lock(flags_mutex);
  const auto it = host_flags.find(base);
  return it == host_flags.end() ? 0 : it->second;
}

// 0: there is no such attribute.
size_t pointer_attribute_bytes(int attribute) {
  switch (attribute) {
    case kDevicePointer:
    case kHostPointer:
    case kBufferId:
    case kRangeStart:
    case kRangeSize:
    case kHandleTypes:
    case kMempool:
      return 8;
    case kMemoryType:
    case kSyncMemops:
    case kIsManaged:
    case kDeviceOrdinal:
    case kIpcCapable:
    case kMapped:
    case kRdmaCapable:
    case kAccessFlags:
      return 4;
    default:
      return 0;
  }
}

int pointer_attribute(void* data, int attribute, void* p) {
  Allocation a;
  if (const int e = find_pointer(p, &a, "hipPointerGetAttribute")) return e;
  switch (attribute) {
    case kMemoryType:
      *static_cast<int*>(data) = memory_type(a.kind);
      break;
    case kDevicePointer:
      *static_cast<void**>(data) = p;
      break;
    case kHostPointer:
      if (!on_host(a.kind))
        return fail(hipErrorInvalidValue, "hipPointerGetAttribute: %p has no host pointer", p);
      *static_cast<void**>(data) = p;
      break;
    case kSyncMemops:
      *static_cast<unsigned*>(data) = 0;
      break;
    case kBufferId:
      *static_cast<uint64_t*>(data) = a.base;
      break;
    case kIsManaged:
      *static_cast<unsigned*>(data) = a.kind == MemoryKind::kManaged;
      break;
    case kDeviceOrdinal:
      *static_cast<int*>(data) = a.device;
      break;
    case kIpcCapable:
    case kRdmaCapable:
      *static_cast<int*>(data) = 0;
      break;
    case kRangeStart:
      *static_cast<uint64_t*>(data) = a.base;
      break;
    case kRangeSize:
      *static_cast<uint64_t*>(data) = a.bytes;
      break;
    case kMapped:
      *static_cast<int*>(data) = 1;
      break;
    case kHandleTypes:
      *static_cast<uint64_t*>(data) = 0;
      break;
    case kAccessFlags:
      *static_cast<int*>(data) = 3;
      break;  // read and write
    case kMempool:
      *static_cast<HipMemPool*>(data) = pool_of(a.base);
      break;
    default:
      return fail(hipErrorInvalidValue, "hipPointerGetAttribute: attribute %d is not supported", attribute);
  }
  return hipSuccess;
}

}  // namespace

void free_device_memory(int index) {
  for (const Allocation& a : memory_all()) {
    if (is_virtual_memory(a.base) || a.device != index ||
        (a.kind != MemoryKind::kDevice && a.kind != MemoryKind::kManaged))
      continue;
    forget_pooled(a.base);
    release(a);
  }
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipMalloc(void** p, size_t bytes) {
  return guarded([&] { return allocate(p, bytes, MemoryKind::kDevice, "hipMalloc"); });
}
HIP_API int hipExtMallocWithFlags(void** p, size_t bytes, unsigned) {
  return guarded([&] { return allocate(p, bytes, MemoryKind::kDevice, "hipExtMallocWithFlags"); });
}
HIP_API int hipMallocManaged(void** p, size_t bytes, unsigned) {
  return guarded([&] { return allocate(p, bytes, MemoryKind::kManaged, "hipMallocManaged"); });
}
HIP_API int hipMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  return guarded([&] {
    if (!pitch) return fail(hipErrorInvalidValue, "hipMallocPitch: pitch is null");
    *pitch = (width + kAlignment - 1) / kAlignment * kAlignment;
    if (height && *pitch > ~size_t{0} / height) return fail(hipErrorOutOfMemory, "hipMallocPitch: too large");
    return allocate(p, *pitch * height, MemoryKind::kDevice, "hipMallocPitch");
  });
}
HIP_API int hipFree(void* p) {
  return guarded([&] { return release(p, false, "hipFree"); });
}
HIP_API int hipHostMalloc(void** p, size_t bytes, unsigned flags) {
  return guarded([&] { return allocate_host(p, bytes, flags, "hipHostMalloc"); });
}
HIP_API int hipHostAlloc(void** p, size_t bytes, unsigned flags) { return hipHostMalloc(p, bytes, flags); }
HIP_API int hipMallocHost(void** p, size_t bytes) { return hipHostMalloc(p, bytes, 0); }
HIP_API int hipMemAllocHost(void** p, size_t bytes) { return hipHostMalloc(p, bytes, 0); }
HIP_API int hipHostFree(void* p) {
  return guarded([&] { return release(p, true, "hipHostFree"); });
}
HIP_API int hipFreeHost(void* p) { return hipHostFree(p); }

HIP_API int hipHostRegister(void* p, size_t bytes, unsigned flags) {
  return guarded([&] {
    const uint64_t address = reinterpret_cast<uint64_t>(p);
    if (const int e = check_unsafe("hipHostRegister")) return e;
    if (!p || !bytes)
      return fail(hipErrorInvalidValue, "hipHostRegister: got %p, %zu bytes, expected memory", p, bytes);
    std::lock_guard lock(flags_mutex);
    if (memory_overlaps(address, bytes)) {
      return fail(hipErrorHostMemoryAlreadyRegistered,
                  "hipHostRegister: %p, %zu bytes overlap memory known already", p, bytes);
    }
    host_flags[address] = flags;
    memory_add({address, bytes, MemoryKind::kRegistered, current_device()});
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipHostUnregister(void* p) {
  return guarded([&] {
    Allocation a;
    const uint64_t address = reinterpret_cast<uint64_t>(p);
    if (!memory_find(address, &a) || a.base != address || a.kind != MemoryKind::kRegistered) {
      return fail(hipErrorHostMemoryNotRegistered, "hipHostUnregister: %p was not registered", p);
    }
    if (const int e = wait_for_device(-1, "hipHostUnregister")) return e;
    std::unique_lock gate(launch_gate());
    memory_remove(address);
    std::lock_guard lock(flags_mutex);
    host_flags.erase(address);
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipHostGetDevicePointer(void** device_pointer, void* p, unsigned flags) {
  return guarded([&] {
    Allocation a;
    if (!device_pointer || flags)
      return fail(hipErrorInvalidValue, "hipHostGetDevicePointer: null pointer or flags");
    if (const int e = find_pointer(p, &a, "hipHostGetDevicePointer")) return e;
    if (!on_host(a.kind))
      return fail(hipErrorInvalidValue, "hipHostGetDevicePointer: %p is device memory", p);
    *device_pointer = p;
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipHostGetFlags(unsigned* flags, void* p) {
  return guarded([&] {
    Allocation a;
    if (!flags) return fail(hipErrorInvalidValue, "hipHostGetFlags: flags is null");
    if (const int e = find_pointer(p, &a, "hipHostGetFlags")) return e;
    if (a.kind != MemoryKind::kHost && a.kind != MemoryKind::kRegistered) {
      return fail(hipErrorInvalidValue, "hipHostGetFlags: %p is not host memory of this runtime", p);
    }
    *flags = flags_of(a.base);
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipPointerGetAttributes(HipPointerAttribute* out, const void* p) {
  return guarded([&] {
    if (!out) return fail(hipErrorInvalidValue, "hipPointerGetAttributes: attributes is null");
    *out = {hipMemoryTypeUnregistered, -2, nullptr, nullptr, 0, 0};  // -2: hipInvalidDeviceId
    if (!p) return fail(hipErrorInvalidValue, "hipPointerGetAttributes: ptr is null");
    Allocation a;
    if (!is_known(p, &a)) return static_cast<int>(hipSuccess);  // so ROCm's source; its manual says an error
    void* q = const_cast<void*>(p);
    *out = {memory_type(a.kind), a.device, q, on_host(a.kind) ? q : nullptr, a.kind == MemoryKind::kManaged,
            flags_of(a.base)};
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipPointerGetAttribute(void* data, int attribute, void* p) {
  return guarded([&] {
    if (!data) return fail(hipErrorInvalidValue, "hipPointerGetAttribute: data is null");
    return pointer_attribute(data, attribute, p);
  });
}

HIP_API int hipDrvPointerGetAttributes(unsigned count, int* attributes, void** data, void* p) {
  return guarded([&] {
    if (!count || !attributes || !data)
      return fail(hipErrorInvalidValue, "hipDrvPointerGetAttributes: null or empty");
    Allocation a;
    const bool known = is_known(p, &a);
    for (unsigned i = 0; i < count; ++i) {
      if (!data[i] || !pointer_attribute_bytes(attributes[i])) {
        return fail(hipErrorInvalidValue,
                    "hipDrvPointerGetAttributes: data[%u] is null, or attribute %d is not supported", i,
                    attributes[i]);
      }
      // Attributes without an answer are 0: those of memory that HIP does not know, and the host pointer of
      // device memory.
      const bool answered = known && (attributes[i] != kHostPointer || on_host(a.kind));
      std::memset(data[i], 0, pointer_attribute_bytes(attributes[i]));
      if (const int e = answered ? pointer_attribute(data[i], attributes[i], p) : hipSuccess) return e;
    }
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipMemGetAddressRange(void** base, size_t* bytes, void* p) {
  return guarded([&] {
    Allocation a;
    if (const int e = find_pointer(p, &a, "hipMemGetAddressRange")) return e;
    if (base) *base = reinterpret_cast<void*>(a.base);
    if (bytes) *bytes = a.bytes;
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipMemPtrGetInfo(void* p, size_t* bytes) {
  return guarded([&] {
    Allocation a;
    if (!bytes) return fail(hipErrorInvalidValue, "hipMemPtrGetInfo: size is null");
    if (const int e = find_pointer(p, &a, "hipMemPtrGetInfo")) return e;
    *bytes = a.bytes;
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipMemGetInfo(size_t* free, size_t* total) {
  return answered([&]() -> int {
    const uint64_t used = device(current_device()).used_bytes;
    if (free) *free = device_memory_bytes() - used;
    if (total) *total = device_memory_bytes();
    return hipSuccess;
  });
}
