// SPDX-License-Identifier: MIT OR Apache-2.0
// Launching: arguments and sizes checked, the grid run, what stopped it told.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "environment.h"
#include "hip_module.h"
#include "hip_state.h"

extern "C" {
// Counts of the launch that ended last in this process.
struct fmha_emu_launch_stats {
  uint64_t workgroups, waves, instructions, mfma_macs, nanoseconds;
};
}

namespace fmha::emu {
namespace {

constexpr uint32_t kLdsBytes = 65536;
constexpr uint32_t kMostThreads = 1024;

// HIP_LAUNCH_PARAM_…
void* const kBufferPointer = reinterpret_cast<void*>(1);
void* const kBufferSize = reinterpret_cast<void*>(2);
void* const kEnd = reinterpret_cast<void*>(3);

std::mutex last_mutex;
LaunchStats last_stats;
std::string last_fault;

const char* check_sizes(const KernelCode& k, const HipDim3& grid, const HipDim3& block, uint32_t dynamic_lds,
                        int* error) {
  *error = hipErrorInvalidConfiguration;
  if (!grid.x || !grid.y || !grid.z) return "a grid dimension is 0";
  if (!block.x || !block.y || !block.z) return "a block dimension is 0";
  if (block.x > kMostThreads || block.y > kMostThreads || block.z > kMostThreads ||
      uint64_t{block.x} * block.y * block.z > kMostThreads) {
    return "the block has more than 1024 threads";
  }
  if (block.x * block.y * block.z > k.max_workgroup_size) {
    *error = hipErrorLaunchFailure;
    return "the block is larger than the kernel's launch bounds";
  }
  if (uint64_t{grid.x} * block.x > ~0u || uint64_t{grid.y} * block.y > ~0u ||
      uint64_t{grid.z} * block.z > ~0u) {
    return "a dimension has more than 2^32 - 1 threads";
  }
  if (uint64_t{k.lds_bytes} + dynamic_lds > kLdsBytes) {
    *error = hipErrorLaunchOutOfResources;
    return "the workgroup needs more than 65536 bytes of LDS";
  }
  return nullptr;
}

void tell(const std::string& message) {
  {
    std::lock_guard lock(last_mutex);
    last_fault = message;
  }
  if (!environment_number("FMHA_EMU_QUIET", 0, 1, 0)) {
    std::fprintf(stderr, "amdhip64 software device: %s\n", message.c_str());
  }
}

// The buffer that `extra` describes.
int read_extra(void** extra, const void** args, size_t* bytes) {
  bool has_pointer = false, has_size = false;
  for (int i = 0; extra[i] != kEnd; i += 2) {
    if (i >= 8 || !extra[i + 1])
      return fail(hipErrorInvalidValue, "hipModuleLaunchKernel: extra has no end, or a null");
    if (extra[i] == kBufferPointer) {
      *args = extra[i + 1];
      has_pointer = true;
    } else if (extra[i] == kBufferSize) {
      *bytes = *static_cast<size_t*>(extra[i + 1]);
      has_size = true;
    } else {
      return fail(hipErrorInvalidValue, "hipModuleLaunchKernel: extra[%d] is %p, expected HIP_LAUNCH_PARAM_…",
                  i, extra[i]);
    }
  }
  if (has_pointer && has_size) return hipSuccess;
  return fail(hipErrorInvalidValue, "hipModuleLaunchKernel: extra lacks the buffer or its size");
}

int launch_module_kernel(HipFunction function, HipDim3 grid, HipDim3 block, unsigned dynamic_lds,
                         HipStream stream, void** params, void** extra) {
  return guarded([&] {
    const Function* f = find_function(function, "hipModuleLaunchKernel");
    if (!f) return static_cast<int>(hipErrorInvalidHandle);
    if (!extra)
      return launch_with_params(*f, grid, block, dynamic_lds, stream, params, "hipModuleLaunchKernel");
    if (params)
      return fail(hipErrorInvalidValue, "hipModuleLaunchKernel: both kernelParams and extra are given");
    const void* args = nullptr;
    size_t bytes = 0;
    if (const int e = read_extra(extra, &args, &bytes)) return e;
    return launch(*f, grid, block, dynamic_lds, stream, args, bytes);
  });
}

}  // namespace

int launch_with_params(const Function& f, HipDim3 grid, HipDim3 block, uint32_t dynamic_lds, HipStream stream,
                       void** params, const char* caller) {
  const KernelCode& k = *f.kernel;
  if (k.explicit_args.empty() && k.explicit_bytes) {
    return fail(hipErrorInvalidValue, "%s: kernel %s has no metadata that places its arguments; use extra",
                caller, k.name.c_str());
  }
  if (!params && !k.explicit_args.empty()) {
    return fail(hipErrorInvalidValue, "%s: kernel %s takes %zu arguments, none are given", caller,
                k.name.c_str(), k.explicit_args.size());
  }
  std::vector<uint8_t> args(k.explicit_bytes);
  for (size_t i = 0; i < k.explicit_args.size(); ++i) {
    const auto [offset, bytes] = k.explicit_args[i];
    if (!params[i]) return fail(hipErrorInvalidValue, "%s: argument %zu is null", caller, i);
    std::memcpy(args.data() + offset, params[i], bytes);
  }
  return launch(f, grid, block, dynamic_lds, stream, args.data(), args.size());
}

int launch(const Function& f, HipDim3 grid, HipDim3 block, uint32_t dynamic_lds, HipStream stream,
           const void* args, size_t args_bytes) {
  const KernelCode& k = *f.kernel;
  if (const int e = check_stream(stream, "launch")) return e;
  if (stream_device(stream) != f.module->device) {
    return fail(hipErrorInvalidHandle,
                "launch: kernel %s was loaded on device %d, the stream is of device %d", k.name.c_str(),
                f.module->device, stream_device(stream));
  }
  int error = hipSuccess;
  if (const char* why = check_sizes(k, grid, block, dynamic_lds, &error)) {
    return fail(error, "launch of %s: grid %u x %u x %u, block %u x %u x %u, dynamic LDS %u: %s",
                k.name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, dynamic_lds, why);
  }
  // Trailing padding may be left out or given; an argument may not.
  if (args_bytes < k.explicit_bytes || (args_bytes && !args)) {
    return fail(hipErrorInvalidValue, "launch of %s: %zu bytes of arguments, expected %u", k.name.c_str(),
                args_bytes, k.explicit_bytes);
  }
  Launch l;
  l.code = f.module->code.get();
  l.kernel = &k;
  l.device = f.module->device;
  std::copy_n(&grid.x, 3, l.grid);
  std::copy_n(&block.x, 3, l.block);
  l.dynamic_lds = dynamic_lds;
  l.args = args;
  l.args_bytes = std::min<size_t>(args_bytes, k.explicit_bytes);
  LaunchResult result;
  {
    std::shared_lock gate(launch_gate());
    result = run(l);
  }
  {
    std::lock_guard lock(last_mutex);
    last_stats = result.stats;
  }
  if (!result.hip_error) return hipSuccess;
  device(l.device).fault = result.hip_error;
  tell(result.message);
  fail(result.hip_error, "%s", result.message.c_str());
  set_told_of_fault(l.device);
  return result.hip_error;
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipModuleLaunchKernel(HipFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_lds,
                                  HipStream stream, void** params, void** extra) {
  return launch_module_kernel(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_lds,
                              stream, params, extra);
}

// Like hipModuleLaunchKernel, but the grid is given in threads, and events time it.
HIP_API int hipExtModuleLaunchKernel(HipFunction function, unsigned threads_x, unsigned threads_y,
                                     unsigned threads_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                     size_t dynamic_lds, HipStream stream, void** params, void** extra,
                                     HipEvent start, HipEvent stop, unsigned) {
  if (start || stop) return fail(hipErrorNotSupported, "hipExtModuleLaunchKernel: events are not supported");
  if (!block_x || !block_y || !block_z || threads_x % block_x || threads_y % block_y || threads_z % block_z) {
    return fail(hipErrorInvalidConfiguration,
                "hipExtModuleLaunchKernel: the grid is not made of whole blocks");
  }
  return launch_module_kernel(
      function, {threads_x / block_x, threads_y / block_y, threads_z / block_z}, {block_x, block_y, block_z},
      static_cast<unsigned>(std::min<size_t>(dynamic_lds, ~0u)), stream, params, extra);
}

HIP_API int fmha_emu_last_launch_stats(fmha_emu_launch_stats* out) {
  if (!out) return fail(hipErrorInvalidValue, "fmha_emu_last_launch_stats: out is null");
  std::lock_guard lock(last_mutex);
  *out = {last_stats.workgroups, last_stats.waves, last_stats.instructions, last_stats.mfma_macs,
          last_stats.nanoseconds};
  return hipSuccess;
}

// What stopped the last launch that stopped, in any thread; empty if none did. Valid until this thread asks
// again.
HIP_API const char* fmha_emu_last_fault() {
  thread_local std::string copy;
  std::lock_guard lock(last_mutex);
  copy = last_fault;
  return copy.c_str();
}
