// SPDX-License-Identifier: MIT OR Apache-2.0
#include "launch/device.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "error.h"
#include "text.h"

namespace fmha {
namespace {

// A node has 64 at most today: eight MI300X, each split into eight.
constexpr int kMaxDevices = 256;

// Devices are made when first used and live until the process ends: nothing of HIP may be called while it is
// being torn down, and other threads may still be launching.
std::mutex g_devices_mutex;
std::array<std::atomic<Device*>, kMaxDevices> g_devices{};

int attribute(const HipApi& api, const char* what, int attribute, int device) {
  int value = 0;
  if (const int error = api.hipDeviceGetAttribute(&value, attribute, device); error != kHipSuccess) {
    raise_hip(api, "hipDeviceGetAttribute", error, "%s of device %d", what, device);
  }
  return value;
}

[[noreturn]] void raise_unknown_arch(int device, const char* what) {
  ItemList archs;
  for (const ArchInfo& info : kArchs) archs.add(info.name);
  raise(FMHA_UNSUPPORTED, "device %d %s: this library knows only %s", device, what, archs.c_str());
}

// gcnArchName of hipDeviceProp_tR0600: the arch, and behind a colon its target's features. That struct has
// kept its layout since HIP 6.0; what newer ones append goes into the spare bytes.
Arch arch_by_name(const HipApi& api, int device) {
  constexpr size_t kBytes = 1472, kName = 1160, kNameBytes = 256, kSpare = 2624;
  if (api.hipGetDevicePropertiesR0600 == nullptr) {
    raise(
        FMHA_UNSUPPORTED,
        "device %d shares its compute capability with other archs, and the HIP runtime %s does not tell them "
        "apart: it has no hipGetDevicePropertiesR0600, expected HIP 6.0 or later",
        device, api.path.c_str());
  }
  alignas(16) char properties[kBytes + kSpare] = {};
  if (const int error = api.hipGetDevicePropertiesR0600(properties, device); error != kHipSuccess)
    raise_hip(api, "hipGetDevicePropertiesR0600", error, "arch of device %d", device);
  const char* name = properties + kName;
  const size_t length = std::strcspn(name, ":");
  for (const ArchInfo& info : kArchs) {
    if (std::strlen(info.name) == length && std::strncmp(info.name, name, length) == 0) return info.arch;
  }
  char what[64];
  std::snprintf(what, sizeof what, "is %.*s", static_cast<int>(std::min(length, kNameBytes - 1)), name);
  raise_unknown_arch(device, what);
}

// An arch's predecessors share its compute capability (gfx908 has gfx90a's); their runtime refuses the code
// object, which load() reports. Where several of ours share one, the name decides.
Arch arch_of(const HipApi& api, int device) {
  const int major = attribute(api, "compute capability", kHipAttributeComputeCapabilityMajor, device);
  const int minor = attribute(api, "compute capability", kHipAttributeComputeCapabilityMinor, device);
  const ArchInfo* found = nullptr;
  for (const ArchInfo& info : kArchs) {
    if (info.capability_major != major || info.capability_minor != minor) continue;
    if (found != nullptr) return arch_by_name(api, device);
    found = &info;
  }
  if (found != nullptr) return found->arch;
  char what[64];
  std::snprintf(what, sizeof what, "has compute capability %d.%d", major, minor);
  raise_unknown_arch(device, what);
}

Target target_of(const HipApi& api, int device) {
  const Arch arch = arch_of(api, device);
  const int processors = attribute(api, "compute units", kHipAttributeMultiprocessorCount, device);
  return {arch, std::max(processors, 1) * arch_info(arch).cus_per_multiprocessor};
}

Device& open_device(const HipApi& api, int ordinal) {
  const std::lock_guard lock(g_devices_mutex);
  std::atomic<Device*>& slot = g_devices[static_cast<size_t>(ordinal)];
  if (Device* device = slot.load(std::memory_order_relaxed)) return *device;
  auto device = std::make_unique<Device>(api, ordinal, target_of(api, ordinal));
  slot.store(device.get(), std::memory_order_release);
  return *device.release();
}

}  // namespace

Device& Device::current() {
  const HipApi& api = hip();
  int ordinal = -1;
  if (const int error = api.hipGetDevice(&ordinal); error != kHipSuccess) {
    raise_hip(api, "hipGetDevice", error, "current device of this thread");
  }
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    raise(FMHA_UNSUPPORTED, "current device is %d: this library keeps devices 0 to %d", ordinal,
          kMaxDevices - 1);
  }
  if (Device* device = g_devices[static_cast<size_t>(ordinal)].load(std::memory_order_acquire))
    return *device;
  return open_device(api, ordinal);
}

Device::Device(const HipApi& api, int ordinal, const Target& target)
    : api_(api),
      ordinal_(ordinal),
      target_(target),
      functions_(std::make_unique<std::atomic<void*>[]>(kKernelCount)) {}

void Device::check_memory(const Extents& extents, const MemoryCheck& check) const {
  if (!check.wanted) return;
  // Queries and keys often have one array of lengths, and a cache's values may be a part of its keys.
  uintptr_t last = 0;
  for (const Extent& extent : extents.all()) {
    if (extent.begin == 0 || extent.begin == last) continue;
    check_owner(extent.pointer, reinterpret_cast<void*>(extent.begin), check.stream);
    last = extent.begin;
  }
}

void Device::check_needed_workspace(const Plan& plan, const Workspace& given, const Extents& extents,
                                    const char* query, const MemoryCheck& check) const {
  check_workspace(given, plan.needed_bytes(), extents, query);
  if (check.wanted) check_owner("workspace", given.data, check.stream);
}

// One query answers both questions: memory that HIP does not know has no device. Nothing is remembered from
// one call to the next: an address may have been freed since, and another's now. Any other error is not about
// the pointer: after a fault of the GPU, for one, every call gives that fault.
void Device::check_owner(const char* name, const void* pointer, void* stream) const {
  int owner = -1;
  const int error = api_.hipPointerGetAttribute(&owner, kHipPointerDeviceOrdinal, const_cast<void*>(pointer));
  if (error == kHipSuccess && owner == ordinal_) return;
  if (error == kHipErrorInvalidValue || (error == kHipSuccess && owner < 0))
    raise_unknown_memory(name, pointer);
  if (error != kHipSuccess)
    raise_hip(api_, "hipPointerGetAttribute", error, "device of %s = %p", name, pointer);
  check_reachable(name, pointer, owner, stream);
}

void Device::raise_unknown_memory(const char* name, const void* pointer) const {
  (void)api_.hipGetLastError();  // reported here; see raise_hip
  raise(FMHA_INVALID_ARGUMENT,
        "%s = %p: not device memory, as far as the HIP runtime %s knows; expected memory of hipMalloc, "
        "hipHostMalloc or hipHostRegister",
        name, pointer, api_.path.c_str());
}

// Pinned host memory and managed memory belong to the device that was current when they were made, but every
// device reaches them, so a foreign device is an error only for device memory.
void Device::check_reachable(const char* name, const void* pointer, int owner, void* stream) const {
  int version = 0;
  int type = 0;
  int error = api_.hipRuntimeGetVersion(&version);
  if (error != kHipSuccess) raise_hip(api_, "hipRuntimeGetVersion", error, "for the memory type of %s", name);
  error = api_.hipPointerGetAttribute(&type, kHipPointerMemoryType, const_cast<void*>(pointer));
  if (error != kHipSuccess) raise_hip(api_, "hipPointerGetAttribute", error, "memory type of %s", name);
  // HIP 6 renumbered hipMemoryType; versions are major * 10^7 + minor * 10^5 + patch.
  const int device_memory = version >= 60000000 ? 2 : 1;
  if (type != device_memory || (owner == 0 && is_capturing(stream))) return;
  raise(FMHA_INVALID_ARGUMENT, "%s = %p: memory of device %d; expected memory of the current device %d%s",
        name, pointer, owner, ordinal_,
        owner == 0 ? " (FMHA_NO_MEMORY_CHECK admits memory whose device HIP misstates)" : "");
}

// The result of a captured hipMallocAsync has no memory yet, and ROCm says that it is device 0's.
bool Device::is_capturing(void* stream) const {
  if (stream == nullptr) return false;
  int status = 0;
  if (const int error = api_.hipStreamIsCapturing(stream, &status); error != kHipSuccess) {
    raise_hip(api_, "hipStreamIsCapturing", error, "stream %p", stream);
  }
  return status == kHipCaptureActive;
}

void* Device::function(const Kernel& kernel) {
  const std::atomic<void*>& function = functions_[static_cast<size_t>(&kernel - kKernels)];
  if (void* known = function.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(load_mutex_);
  if (function.load(std::memory_order_relaxed) == nullptr) load(kernel);
  return function.load(std::memory_order_relaxed);
}

// The code object of a kernel, and with it all kernels of that code object: another problem of the kind,
// which may well want another of them, finds it ready.
void Device::load(const Kernel& kernel) {
  Image image = unpack(*kernel.code);
  void* module = load_module(kernel, image.get());
  std::vector<std::pair<size_t, void*>> found;
  try {
    for (size_t i = 0; i < kKernelCount; ++i) {
      if (kKernels[i].code == kernel.code) found.emplace_back(i, find_function(kKernels[i], module));
    }
    images_.push_back(std::move(image));
  } catch (...) {
    (void)api_.hipModuleUnload(module);
    throw;
  }
  for (const auto& [i, entry] : found) functions_[i].store(entry, std::memory_order_release);
}

void* Device::find_function(const Kernel& kernel, void* module) const {
  void* function = nullptr;
  if (const int error = api_.hipModuleGetFunction(&function, module, kernel.symbol); error != kHipSuccess) {
    raise_hip(api_, "hipModuleGetFunction", error, "%s for %s on device %d", kernel.name,
              arch_name(kernel.arch), ordinal_);
  }
  return function;
}

void* Device::load_module(const Kernel& kernel, const void* image) const {
  void* module = nullptr;
  const int error = api_.hipModuleLoadData(&module, image);
  if (error == kHipSuccess) return module;
  if (error == kHipErrorNoBinaryForGpu) {
    raise_hip(api_, "hipModuleLoadData", error,
              "%s for %s: device %d has that compute capability but another arch", kernel.name,
              arch_name(kernel.arch), ordinal_);
  }
  raise_hip(api_, "hipModuleLoadData", error,
            "%s for %s on device %d; under graph capture prepare the call before it", kernel.name,
            arch_name(kernel.arch), ordinal_);
}

void Device::prepare(const Plan& plan) {
  for (size_t i = 0; i < plan.count(); ++i) {
    if (plan[i].kind == Step::Kind::kLaunch) (void)function(*plan[i].kernel);
  }
}

void Device::run(Plan& plan, void* stream) {
  if (plan.empty) return;
  // Loading may fail, and then nothing must have been enqueued.
  std::array<void*, Plan::kMostSteps> functions;
  for (size_t i = 0; i < plan.count(); ++i) {
    functions[i] = plan[i].kind == Step::Kind::kLaunch ? function(*plan[i].kernel) : nullptr;
  }
  Progress progress = {0, plan.operations()};
  for (size_t i = 0; i < plan.count(); ++i) {
    switch (plan[i].kind) {
      case Step::Kind::kLaunch:
        launch(plan[i], functions[i], stream, progress);
        break;
      case Step::Kind::kMemset:
        set_memory(plan[i], stream, progress);
        ++progress.done;
        break;
    }
  }
}

// HIP copies the arguments.
void Device::launch(Step& step, void* function, void* stream, Progress& progress) const {
  for (uint32_t i = 0; i < step.rounds; ++i, ++progress.done) {
    if (step.rounds > 1) std::memcpy(&step.arguments[step.round_offset], &i, sizeof i);
    launch_once(step, function, stream, progress);
  }
}

void Device::launch_once(Step& step, void* function, void* stream, const Progress& progress) const {
  const Kernel& kernel = *step.kernel;
  size_t bytes = step.bytes;
  void* extra[] = {kHipLaunchBufferPointer, step.arguments.data(), kHipLaunchBufferSize, &bytes,
                   kHipLaunchEnd};
  const Grid& grid = step.grid;
  const int error =
      api_.hipModuleLaunchKernel(function, grid.x, grid.y, grid.z, static_cast<unsigned>(kernel.block_size),
                                 1, 1, 0, stream, nullptr, extra);
  if (error == kHipSuccess) return;
  char what[256];
  std::snprintf(what, sizeof what, "%s on device %d, grid %u x %u x %u", kernel.name, ordinal_, grid.x,
                grid.y, grid.z);
  raise_step("hipModuleLaunchKernel", error, what, stream, progress);
}

void Device::set_memory(const Step& step, void* stream, const Progress& progress) const {
  const int error = api_.hipMemsetAsync(step.memory, step.value, step.bytes, stream);
  if (error == kHipSuccess) return;
  char what[256];
  std::snprintf(what, sizeof what, "%zu bytes of workspace on device %d", step.bytes, ordinal_);
  raise_step("hipMemsetAsync", error, what, stream, progress);
}

// HIP's words for a stream of another device than the current one lead nowhere.
void Device::raise_step(const char* call, int error, const char* what, void* stream,
                        const Progress& progress) const {
  const bool is_foreign = error == kHipErrorInvalidDevice || error == kHipErrorInvalidHandle;
  char enqueued[128] = "";
  if (progress.done > 0) {
    std::snprintf(enqueued, sizeof enqueued,
                  "; %" PRId64 " of the call's %" PRId64
                  " steps are enqueued: what it writes may hold anything",
                  progress.done, progress.all);
  }
  raise_hip(
      api_, call, error, "%s, stream %p%s%s", what, stream,
      is_foreign ? ": expected a stream of that device, the thread's current one, that is not destroyed" : "",
      enqueued);
}

}  // namespace fmha
