// SPDX-License-Identifier: MIT OR Apache-2.0
// Modules and functions: handles over CodeObject.
#include "hip/module.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "hip/graph/graph.h"

namespace fmha::emu {
namespace {

uint32_t lds_of_unit() { return static_cast<uint32_t>(device_card().lds_bytes_per_cu.value); }

struct ModuleTable {
  std::shared_mutex mutex;
  std::unordered_map<HipModule, std::shared_ptr<Module>> modules;
  std::unordered_map<const Function*, HipModule> functions;
};

ModuleTable& table() {
  static auto* t = new ModuleTable;
  return *t;
}

int read_file(const char* path, std::vector<uint8_t>* out) {
  if (!path) return fail(hipErrorInvalidValue, "hipModuleLoad: fname is null");
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(hipErrorFileNotFound, "hipModuleLoad: cannot open %s", path);
  char chunk[65536];
  while (file.read(chunk, sizeof chunk), file.gcount() > 0) {
    out->insert(out->end(), chunk, chunk + file.gcount());
  }
  if (file.bad()) return fail(hipErrorFileNotFound, "hipModuleLoad: cannot read %s", path);  // a folder, say
  return hipSuccess;
}

int load_image(HipModule* out, const void* image, const char* function) {
  return guarded([&] {
    if (!out || !image) return fail(hipErrorInvalidValue, "%s: module or image is null", function);
    if (const int e = check_unsafe(function)) return e;
    const size_t bytes = code_object_bytes(image);
    if (!bytes)
      return fail(hipErrorInvalidImage, "%s: neither a code object nor an offload bundle", function);
    return load_module(out, image, bytes, current_device(), function);
  });
}

// Function attributes of hipFuncGetAttribute.
enum FunctionAttribute : int {
  kMaxThreads,
  kSharedBytes,
  kConstBytes,
  kLocalBytes,
  kRegisters,
  kPtxVersion,
  kBinaryVersion,
  kCacheMode,
  kMaxDynamicShared,
  kCarveout,
};

// ROCm 6.2 asserts it.
void check_current_device(const Module& module, const char* name) {
  if (!function_needs_current_device() || module.device == current_device()) return;
  std::fprintf(
      stderr,
      "amdhip64 software device: hipModuleGetFunction: %s is of a module of device %d, the current device is "
      "%d: ROCm 6.2 ends the process\n",
      name, module.device, current_device());
  std::abort();
}

}  // namespace

int load_module(HipModule* out, const void* image, size_t bytes, int device_index, const char* function) {
  int error = hipSuccess;
  std::string message;
  auto code = CodeObject::load(image, bytes, device_arch().arch, device_index, &error, &message);
  if (!code) return fail(error, "%s: %s", function, message.c_str());
  auto module = std::make_shared<Module>();
  module->device = device_index;
  module->code = std::move(code);
  for (const KernelCode& k : module->code->kernels()) module->functions.push_back({module.get(), &k});
  HipModule handle = module.get();
  ModuleTable& t = table();
  std::lock_guard lock(t.mutex);
  for (const Function& f : module->functions) t.functions[&f] = handle;
  t.modules[handle] = std::move(module);
  *out = handle;
  return hipSuccess;
}

bool module_is_valid(HipModule module) {
  ModuleTable& t = table();
  std::shared_lock lock(t.mutex);
  return t.modules.contains(module);
}

// Waits for the device, which may be running the module's kernels.
int unload_module(HipModule module, const char* function) {
  if (!module_is_valid(module))
    return fail(hipErrorInvalidHandle, "%s: %p is not a module", function, static_cast<void*>(module));
  if (const int e = wait_for_device(module->device, function)) return e;
  std::shared_ptr<Module> removed;  // goes when the lock is released
  ModuleTable& t = table();
  std::lock_guard lock(t.mutex);
  const auto it = t.modules.find(module);
  if (it == t.modules.end()) return hipSuccess;  // another thread was faster
  removed = std::move(it->second);
  removed->unloaded = true;
  for (const Function& f : removed->functions) t.functions.erase(&f);
  t.modules.erase(it);
  return hipSuccess;
}

HipFunction module_function(HipModule module, const char* name) {
  for (Function& f : module->functions) {
    if (f.kernel->name == name) return &f;
  }
  return nullptr;
}

bool function_is_live(HipFunction function) {
  ModuleTable& t = table();
  std::shared_lock lock(t.mutex);
  return t.functions.contains(function);
}

const Function* find_function(HipFunction function, const char* caller) {
  if (function_is_live(function)) return function;
  fail(hipErrorInvalidHandle, "%s: %p is not a function of a loaded module", caller,
       static_cast<void*>(function));
  return nullptr;
}

std::shared_ptr<Module> module_of(HipFunction function, const char* caller) {
  ModuleTable& t = table();
  {
    std::shared_lock lock(t.mutex);
    const auto it = function ? t.functions.find(function) : t.functions.end();
    if (it != t.functions.end()) return t.modules.at(it->second);
  }
  fail(hipErrorInvalidHandle, "%s: %p is not a function of a loaded module", caller,
       static_cast<void*>(function));
  return nullptr;
}

void function_attributes(const KernelCode& k, HipFuncAttributes* out) {
  *out = HipFuncAttributes{};
  out->local_bytes = k.private_bytes;
  out->max_dynamic_shared_bytes = static_cast<int>(lds_of_unit() - std::min(k.lds_bytes, lds_of_unit()));
  out->max_threads = static_cast<int>(k.max_workgroup_size);
  out->registers = static_cast<int>(k.vgpr_count);
  out->shared_bytes = k.lds_bytes;
  out->binary_version = out->ptx_version =
      device_arch().capability_major * 10 + device_arch().capability_minor;
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipModuleLoadData(HipModule* out, const void* image) {
  return load_image(out, image, "hipModuleLoadData");
}
// JIT options do not apply to machine code.
HIP_API int hipModuleLoadDataEx(HipModule* out, const void* image, unsigned, int*, void**) {
  return load_image(out, image, "hipModuleLoadDataEx");
}
HIP_API int hipModuleLoadFatBinary(HipModule* out, const void* image) {
  return load_image(out, image, "hipModuleLoadFatBinary");
}

HIP_API int hipModuleLoad(HipModule* out, const char* path) {
  return guarded([&] {
    std::vector<uint8_t> file;
    if (!out) return fail(hipErrorInvalidValue, "hipModuleLoad: module is null");
    if (const int e = check_unsafe("hipModuleLoad")) return e;
    if (const int e = read_file(path, &file)) return e;
    return load_module(out, file.data(), file.size(), current_device(), "hipModuleLoad");
  });
}

HIP_API int hipModuleUnload(HipModule module) {
  return guarded([&] {
    if (const int e = check_unsafe("hipModuleUnload")) return e;
    return unload_module(module, "hipModuleUnload");
  });
}

HIP_API int hipModuleGetFunction(HipFunction* out, HipModule module, const char* name) {
  return guarded([&] {
    if (!out || !name || !*name)
      return fail(hipErrorInvalidValue, "hipModuleGetFunction: function or name is null");
    if (!module_is_valid(module)) {
      return fail(hipErrorInvalidHandle, "hipModuleGetFunction: %p is not a module",
                  static_cast<void*>(module));
    }
    check_current_device(*module, name);
    *out = module_function(module, name);
    if (*out) return static_cast<int>(hipSuccess);
    return fail(hipErrorNotFound, "hipModuleGetFunction: the module has no kernel \"%s\"", name);
  });
}

HIP_API int hipModuleGetFunctionCount(unsigned* count, HipModule module) {
  return answered([&]() -> int {
    if (!count) return fail(hipErrorInvalidValue, "hipModuleGetFunctionCount: count is null");
    if (!module_is_valid(module))
      return fail(hipErrorInvalidHandle, "hipModuleGetFunctionCount: not a module");
    *count = static_cast<unsigned>(module->functions.size());
    return hipSuccess;
  });
}

HIP_API int hipModuleGetGlobal(void** address, size_t* bytes, HipModule module, const char* name) {
  return guarded([&] {
    if (!name) return fail(hipErrorInvalidValue, "hipModuleGetGlobal: name is null");
    if (!module_is_valid(module)) return fail(hipErrorInvalidHandle, "hipModuleGetGlobal: not a module");
    uint64_t at = 0, size = 0;
    if (!module->code->global(name, &at, &size)) {
      return fail(hipErrorNotFound, "hipModuleGetGlobal: the module has no variable \"%s\"", name);
    }
    if (address) *address = reinterpret_cast<void*>(at);
    if (bytes) *bytes = size;
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipFuncGetAttribute(int* value, int attribute, HipFunction function) {
  return guarded([&] {
    if (!value) return fail(hipErrorInvalidValue, "hipFuncGetAttribute: value is null");
    const Function* f = find_function(function, "hipFuncGetAttribute");
    if (!f) return static_cast<int>(hipErrorInvalidHandle);
    HipFuncAttributes a;
    function_attributes(*f->kernel, &a);
    switch (attribute) {
      case kMaxThreads:
        *value = a.max_threads;
        break;
      case kSharedBytes:
        *value = static_cast<int>(a.shared_bytes);
        break;
      case kConstBytes:
      case kCacheMode:
      case kCarveout:
        *value = 0;
        break;
      case kLocalBytes:
        *value = static_cast<int>(a.local_bytes);
        break;
      case kRegisters:
        *value = a.registers;
        break;
      case kPtxVersion:
        *value = a.ptx_version;
        break;
      case kBinaryVersion:
        *value = a.binary_version;
        break;
      case kMaxDynamicShared:
        *value = a.max_dynamic_shared_bytes;
        break;
      default:
        return fail(hipErrorInvalidValue, "hipFuncGetAttribute: there is no attribute %d", attribute);
    }
    return static_cast<int>(hipSuccess);
  });
}

// Hints about LDS and caches: this hardware has nothing to configure.
HIP_API int hipFuncSetAttribute(const void*, int, int) {
  return answered([&]() -> int { return hipSuccess; });
}
HIP_API int hipFuncSetCacheConfig(const void*, int) {
  return answered([&]() -> int { return hipSuccess; });
}
