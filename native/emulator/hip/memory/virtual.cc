// SPDX-License-Identifier: MIT OR Apache-2.0
// Virtual memory as a program manages it: addresses that it reserves, memory that it creates, and which of it
// is where. Memory is a file without a name, so that it can be at several addresses. Mappings that touch and
// that the same devices may access are one allocation to kernels and copies, as they are one array to the
// program.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "hip/handles.h"
#include "hip/memory/memory.h"
#include "hip/memory/pages.h"
#include "hip/stream/queue.h"
#include "launch/launch_state.h"

namespace fmha::emu {
namespace {

constexpr uint64_t kRecommended = 2 << 20;
// Memory up to this reads as poison when it is new, larger as zeros: filling it would use it.
constexpr size_t kFilled = 64 << 20;

// The memory that hipMemCreate gives.
struct Physical {
  int file = -1;
  size_t bytes = 0;
  int device_index = 0;
  int uses = 1;  // of its handle: hipMemRelease takes one away
  ~Physical() {
    if (file < 0) return;
    close(file);
    device(device_index).used_bytes -= bytes;
  }
};

struct Mapping {
  uint64_t bytes = 0;
  std::shared_ptr<Physical> memory;
  uint32_t devices = 0;  // bit n: device n may read and write it
};

struct Reservation {
  uint64_t bytes = 0;
  std::map<uint64_t, Mapping> mappings;  // by address
  std::vector<uint64_t> known;           // the starts of what kernels may access
};

std::mutex mutex;
std::map<uint64_t, Reservation>& reservations() {
  static auto* all = new std::map<uint64_t, Reservation>;
  return *all;
}
Handles<Physical>& handles() {
  static auto* all = new Handles<Physical>;
  return *all;
}

// The reservation that holds all of a range; null if none does.
Reservation* reservation_of(uint64_t address, uint64_t bytes) {
  auto it = reservations().upper_bound(address);
  if (it == reservations().begin()) return nullptr;
  --it;
  const uint64_t inside = address - it->first;
  return inside < it->second.bytes && bytes <= it->second.bytes - inside ? &it->second : nullptr;
}

// The mappings that make up a range, or nothing if it has a hole or cuts one.
std::vector<std::map<uint64_t, Mapping>::iterator> mappings_of(Reservation& r, uint64_t address,
                                                               uint64_t bytes) {
  std::vector<std::map<uint64_t, Mapping>::iterator> found;
  const uint64_t end = address + bytes;
  for (auto it = r.mappings.find(address); address < end; ++it) {
    if (it == r.mappings.end() || it->first != address || it->second.bytes > end - address) return {};
    address += it->second.bytes;
    found.push_back(it);
  }
  return found;
}

// Tells kernels and copies anew what they may access.
void publish(Reservation& r) {
  std::unique_lock gate(launch_gate());
  for (const uint64_t base : r.known) memory_remove(base);
  r.known.clear();
  for (auto it = r.mappings.begin(); it != r.mappings.end();) {
    const uint64_t base = it->first;
    const uint32_t devices = it->second.devices;
    uint64_t end = base;
    for (; it != r.mappings.end() && it->first == end && it->second.devices == devices; ++it)
      end += it->second.bytes;
    if (!devices) continue;
    memory_add({base, end - base, MemoryKind::kDevice, __builtin_ctz(devices), devices});
    r.known.push_back(base);
  }
}

int make_file(size_t bytes) {
  const int file = memfd_create("device memory", MFD_CLOEXEC);
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(bytes))) return close(file), -1;
  if (bytes > kFilled) return file;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) return close(file), -1;
  fill_poison(p, bytes);
  munmap(p, bytes);
  return file;
}

// Takes what was mapped there away, and keeps the addresses. They can be read: the host loads whole vectors
// at the end of what a kernel may access.
bool withhold(uint64_t address, uint64_t bytes) {
  return mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

int check_whole(const char* function, const char* name, uint64_t value) {
  if (value && value % kPage == 0) return hipSuccess;
  return fail(hipErrorInvalidValue, "%s: %s is %llu, expected a multiple of %llu", function, name,
              static_cast<unsigned long long>(value), static_cast<unsigned long long>(kPage));
}

int check_properties(const char* function, const HipMemAllocationProp* p) {
  if (!p) return null_argument(function, "prop");
  if (p->allocation_type != kPinned || p->location_type != kOnDevice || p->handle_types)
    return fail(hipErrorInvalidValue, "%s: expected pinned memory on a device, not shared", function);
  return check_device(p->location_id, function);
}

int reserve(void** out, size_t bytes, size_t alignment, uint64_t flags) {
  const char* const f = "hipMemAddressReserve";
  if (!out) return null_argument(f, "ptr");
  if (flags)
    return fail(hipErrorInvalidValue, "%s: flags is %llu, expected 0", f,
                static_cast<unsigned long long>(flags));
  if (const int e = check_whole(f, "size", bytes)) return e;
  if (alignment & (alignment - 1))
    return fail(hipErrorInvalidValue, "%s: alignment is %zu, expected a power of 2", f, alignment);
  const size_t room = alignment > kPage ? alignment : kPage;  // a page is behind it, too
  const bool sane = bytes <= uint64_t{1} << 46 && room <= uint64_t{1} << 46;
  const uint64_t somewhere = sane ? reserve_addresses(bytes + room + kPage) : 0;
  const uint64_t address = (somewhere + room - 1) / room * room;
  if (!somewhere || !withhold(address, bytes + kPage))
    return fail(hipErrorOutOfMemory, "%s: there are no %zu bytes of addresses left", f, bytes);
  std::lock_guard lock(mutex);
  reservations()[address].bytes = bytes;
  *out = reinterpret_cast<void*>(address);
  return hipSuccess;
}

int free_addresses(void* p, size_t bytes) {
  const char* const f = "hipMemAddressFree";
  std::lock_guard lock(mutex);
  const auto it = reservations().find(reinterpret_cast<uint64_t>(p));
  if (it == reservations().end() || it->second.bytes != bytes)
    return fail(hipErrorInvalidValue, "%s: %p, %zu bytes, is no range that was reserved", f, p, bytes);
  if (!it->second.mappings.empty()) return fail(hipErrorInvalidValue, "%s: memory is mapped in %p", f, p);
  munmap(p, bytes + kPage);
  reservations().erase(it);
  return hipSuccess;
}

int create(void** out, size_t bytes, const HipMemAllocationProp* p, uint64_t flags) {
  const char* const f = "hipMemCreate";
  if (!out) return null_argument(f, "handle");
  if (flags)
    return fail(hipErrorInvalidValue, "%s: flags is %llu, expected 0", f,
                static_cast<unsigned long long>(flags));
  if (const int e = check_properties(f, p)) return e;
  if (const int e = check_whole(f, "size", bytes)) return e;
  Device& d = device(p->location_id);
  const uint64_t total = device_memory_bytes();
  if (bytes > total || d.used_bytes + bytes > total)
    return fail(hipErrorOutOfMemory, "%s: %zu bytes asked for, %llu of the device's %llu in use", f, bytes,
                static_cast<unsigned long long>(d.used_bytes.load()), static_cast<unsigned long long>(total));
  auto memory = std::make_shared<Physical>();
  const int file = make_file(bytes);
  if (file < 0) return fail(hipErrorOutOfMemory, "%s: this machine has no %zu bytes", f, bytes);
  memory->file = file;
  memory->bytes = bytes;
  memory->device_index = p->location_id;
  d.used_bytes += bytes;
  *out = handles().add(std::move(memory));
  return hipSuccess;
}

std::shared_ptr<Physical> find_handle(void* handle, const char* function) {
  auto memory = handles().find(static_cast<Physical*>(handle));
  if (!memory) fail(hipErrorInvalidValue, "%s: %p is no handle of memory", function, handle);
  return memory;
}

int map(void* p, size_t bytes, size_t offset, void* handle, uint64_t flags) {
  const char* const f = "hipMemMap";
  const auto address = reinterpret_cast<uint64_t>(p);
  if (flags)
    return fail(hipErrorInvalidValue, "%s: flags is %llu, expected 0", f,
                static_cast<unsigned long long>(flags));
  const auto memory = find_handle(handle, f);
  if (!memory) return hipErrorInvalidValue;
  if (const int e = check_whole(f, "size", bytes)) return e;
  if (offset % kPage || offset > memory->bytes || bytes > memory->bytes - offset)
    return fail(hipErrorInvalidValue, "%s: %zu bytes at %zu, the memory has %zu", f, bytes, offset,
                memory->bytes);
  std::lock_guard lock(mutex);
  Reservation* r = reservation_of(address, bytes);
  if (!r || address % kPage)
    return fail(hipErrorInvalidValue, "%s: %p, %zu bytes, are not reserved", f, p, bytes);
  const auto next = r->mappings.lower_bound(address);
  const bool meets_next = next != r->mappings.end() && next->first - address < bytes;
  const bool meets_last =
      next != r->mappings.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes;
  if (meets_next || meets_last) return fail(hipErrorInvalidValue, "%s: memory is mapped in %p already", f, p);
  if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->file,
           static_cast<off_t>(offset)) == MAP_FAILED)
    return fail(hipErrorOutOfMemory, "%s: this machine cannot map %zu bytes", f, bytes);
  r->mappings[address] = {bytes, memory, 0};
  return hipSuccess;
}

int unmap(void* p, size_t bytes) {
  const char* const f = "hipMemUnmap";
  const auto address = reinterpret_cast<uint64_t>(p);
  if (const int e = wait_for_device(-1, f)) return e;
  std::lock_guard lock(mutex);
  Reservation* r = reservation_of(address, bytes);
  const auto found =
      r ? mappings_of(*r, address, bytes) : std::vector<std::map<uint64_t, Mapping>::iterator>();
  if (found.empty())
    return fail(hipErrorInvalidValue, "%s: %p, %zu bytes, are not what was mapped", f, p, bytes);
  for (const auto& it : found) it->second.devices = 0;
  publish(*r);  // before it is gone
  if (!withhold(address, bytes)) return fail(hipErrorOutOfMemory, "%s: this machine cannot unmap %p", f, p);
  for (const auto& it : found) r->mappings.erase(it);
  return hipSuccess;
}

int set_access(void* p, size_t bytes, const HipMemAccess* access, size_t count) {
  const char* const f = "hipMemSetAccess";
  const auto address = reinterpret_cast<uint64_t>(p);
  if (!access || !count) return fail(hipErrorInvalidValue, "%s: desc is null, or count 0", f);
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location_type != kOnDevice) return fail(hipErrorInvalidValue, "%s: expected devices", f);
    if (const int e = check_device(access[i].location_id, f)) return e;
    if (access[i].flags != kNoAccess && access[i].flags != kReadWrite)
      return fail(hipErrorNotSupported, "%s: flags is %d, expected 0 (none) or 3 (read and write)", f,
                  access[i].flags);
  }
  std::lock_guard lock(mutex);
  Reservation* r = reservation_of(address, bytes);
  const auto found =
      r ? mappings_of(*r, address, bytes) : std::vector<std::map<uint64_t, Mapping>::iterator>();
  if (found.empty())
    return fail(hipErrorInvalidValue, "%s: %p, %zu bytes, are not what was mapped", f, p, bytes);
  for (const auto& it : found) {
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bit = 1u << access[i].location_id;
      it->second.devices = access[i].flags ? it->second.devices | bit : it->second.devices & ~bit;
    }
  }
  publish(*r);
  return hipSuccess;
}

// The mapping that holds an address; null if none does.
const Mapping* mapping_at(uint64_t address) {
  Reservation* r = reservation_of(address, 1);
  if (!r) return nullptr;
  const auto it = r->mappings.upper_bound(address);
  if (it == r->mappings.begin()) return nullptr;
  const auto& [base, mapping] = *std::prev(it);
  return address - base < mapping.bytes ? &mapping : nullptr;
}

}  // namespace

bool is_virtual_memory(uint64_t address) {
  std::lock_guard lock(mutex);
  return reservation_of(address, 1) != nullptr;
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipMemAddressReserve(void** p, size_t bytes, size_t alignment, void*, uint64_t flags) {
  return guarded([&] { return reserve(p, bytes, alignment, flags); });
}
HIP_API int hipMemAddressFree(void* p, size_t bytes) {
  return guarded([&] { return free_addresses(p, bytes); });
}
HIP_API int hipMemCreate(void** handle, size_t bytes, const HipMemAllocationProp* properties,
                         uint64_t flags) {
  return guarded([&] { return create(handle, bytes, properties, flags); });
}
// The memory stays until nothing of it is mapped.
HIP_API int hipMemRelease(void* handle) {
  return guarded([&] {
    const auto memory = find_handle(handle, "hipMemRelease");
    if (!memory) return static_cast<int>(hipErrorInvalidValue);
    std::lock_guard lock(mutex);
    if (--memory->uses == 0) handles().remove(memory.get());
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipMemMap(void* p, size_t bytes, size_t offset, void* handle, uint64_t flags) {
  return guarded([&] { return map(p, bytes, offset, handle, flags); });
}
HIP_API int hipMemUnmap(void* p, size_t bytes) {
  return guarded([&] { return unmap(p, bytes); });
}
HIP_API int hipMemSetAccess(void* p, size_t bytes, const HipMemAccess* access, size_t count) {
  return guarded([&] { return set_access(p, bytes, access, count); });
}
HIP_API int hipMemGetAccess(uint64_t* flags, const int* location, void* p) {
  return guarded([&] {
    const char* const f = "hipMemGetAccess";
    if (!flags || !location) return fail(hipErrorInvalidValue, "%s: flags or location is null", f);
    if (location[0] != kOnDevice) return fail(hipErrorInvalidValue, "%s: expected a device", f);
    if (const int e = check_device(location[1], f)) return e;
    std::lock_guard lock(mutex);
    const Mapping* m = mapping_at(reinterpret_cast<uint64_t>(p));
    if (!m) return fail(hipErrorInvalidValue, "%s: no memory is mapped at %p", f, p);
    *flags = m->devices >> location[1] & 1 ? kReadWrite : kNoAccess;
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipMemRetainAllocationHandle(void** handle, void* p) {
  return guarded([&] {
    const char* const f = "hipMemRetainAllocationHandle";
    if (!handle) return null_argument(f, "handle");
    std::lock_guard lock(mutex);
    const Mapping* m = mapping_at(reinterpret_cast<uint64_t>(p));
    if (!m) return fail(hipErrorInvalidValue, "%s: no memory is mapped at %p", f, p);
    ++m->memory->uses;
    *handle = handles().add(m->memory);
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipMemGetAllocationPropertiesFromHandle(HipMemAllocationProp* out, void* handle) {
  return guarded([&] {
    const char* const f = "hipMemGetAllocationPropertiesFromHandle";
    if (!out) return null_argument(f, "prop");
    const auto memory = find_handle(handle, f);
    if (!memory) return static_cast<int>(hipErrorInvalidValue);
    *out = {kPinned, 0, kOnDevice, memory->device_index, nullptr, 0, 0, 0};
    return static_cast<int>(hipSuccess);
  });
}
HIP_API int hipMemGetAllocationGranularity(size_t* out, const HipMemAllocationProp* properties, int option) {
  return guarded([&] {
    const char* const f = "hipMemGetAllocationGranularity";
    if (!out) return null_argument(f, "granularity");
    if (option != 0 && option != 1)
      return fail(hipErrorInvalidValue, "%s: option is %d, expected 0 (minimum) or 1 (recommended)", f,
                  option);
    if (const int e = check_properties(f, properties)) return e;
    *out = option ? kRecommended : kPage;
    return static_cast<int>(hipSuccess);
  });
}
