// SPDX-License-Identifier: MIT OR Apache-2.0
// Launching: arguments and sizes checked, the grid run, what stopped it told.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/cancel.h"
#include "base/environment.h"
#include "base/per_thread.h"
#include "hip/fault_injection.h"
#include "hip/graph/graph.h"
#include "hip/module.h"
#include "hip/stream/event.h"
#include "launch/dispatch.h"

extern "C" {
// Counts of the launch that ended last in this process: wait for a launch before asking what it did.
struct fmha_emu_launch_stats {
  uint64_t workgroups, waves, instructions, mfma_macs, nanoseconds;
};
}

namespace fmha::emu {
namespace {

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
  if (uint64_t{k.lds_bytes} + dynamic_lds > device_card().lds_bytes_per_cu.value) {
    *error = hipErrorLaunchOutOfResources;
    return "the workgroup needs more LDS than a compute unit has";
  }
  return nullptr;
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

// Each launch starts so many microseconds late ($FMHA_EMU_DELAY): a caller that forgot to wait for it reads
// old data then, and not only on bad days.
std::chrono::microseconds launch_delay() {
  return std::chrono::microseconds(environment_number("FMHA_EMU_DELAY", 0, 60'000'000, 0));
}

// Tells whether a fault ends the process ($FMHA_EMU_ON_FAULT).
bool ends_process() {
  constexpr const char* kVariable = "FMHA_EMU_ON_FAULT";
  const std::string wish = environment_text(kVariable) ? environment_text(kVariable) : "error";
  if (wish != "error" && wish != "abort") reject_environment(kVariable, "error or abort");
  return wish == "abort";
}

bool is_quiet() { return environment_number("FMHA_EMU_QUIET", 0, 1, 0) != 0; }

int check_launch(const KernelWork& w) {
  const KernelCode& k = *w.function->kernel;
  int error = hipSuccess;
  if (const char* why = check_sizes(k, w.grid, w.block, w.dynamic_lds, &error)) {
    return fail(error, "launch of %s: grid %u x %u x %u, block %u x %u x %u, dynamic LDS %u: %s",
                k.name.c_str(), w.grid.x, w.grid.y, w.grid.z, w.block.x, w.block.y, w.block.z, w.dynamic_lds,
                why);
  }
  return hipSuccess;
}

int gather_params(const KernelCode& k, void** params, const char* caller, std::vector<uint8_t>* args) {
  if (k.explicit_args.empty() && k.explicit_bytes) {
    return fail(hipErrorInvalidValue, "%s: kernel %s has no metadata that places its arguments; use extra",
                caller, k.name.c_str());
  }
  if (!params && !k.explicit_args.empty()) {
    return fail(hipErrorInvalidValue, "%s: kernel %s takes %zu arguments, none are given", caller,
                k.name.c_str(), k.explicit_args.size());
  }
  args->resize(k.explicit_bytes);
  for (size_t i = 0; i < k.explicit_args.size(); ++i) {
    const auto [offset, bytes] = k.explicit_args[i];
    if (!params[i]) return fail(hipErrorInvalidValue, "%s: argument %zu is null", caller, i);
    std::memcpy(args->data() + offset, params[i], bytes);
  }
  return hipSuccess;
}

int gather_extra(const KernelCode& k, void** extra, std::vector<uint8_t>* args) {
  const void* bytes = nullptr;
  size_t count = 0;
  if (const int e = read_extra(extra, &bytes, &count)) return e;
  // Trailing padding may be left out or given; an argument may not.
  if (count < k.explicit_bytes || (count && !bytes)) {
    return fail(hipErrorInvalidValue, "launch of %s: %zu bytes of arguments, expected %u", k.name.c_str(),
                count, k.explicit_bytes);
  }
  const auto* p = static_cast<const uint8_t*>(bytes);
  args->assign(p, p + k.explicit_bytes);
  return hipSuccess;
}

}  // namespace

int make_kernel_work(HipFunction function, HipDim3 grid, HipDim3 block, uint32_t dynamic_lds, void** params,
                     void** extra, const char* caller, KernelWork* out) {
  out->module = module_of(function, caller);
  if (!out->module) return hipErrorInvalidHandle;
  out->function = function;
  out->grid = grid;
  out->block = block;
  out->dynamic_lds = dynamic_lds;
  out->stack_bytes = device(out->module->device).stack_bytes;
  out->read_only = read_only_ranges();
  if (const int e = check_launch(*out)) return e;
  if (extra && params) return fail(hipErrorInvalidValue, "%s: both kernelParams and extra are given", caller);
  if (extra) return gather_extra(*function->kernel, extra, &out->args);
  return gather_params(*function->kernel, params, caller, &out->args);
}

int launch(HipFunction function, HipDim3 grid, HipDim3 block, uint32_t dynamic_lds, HipStream handle,
           void** params, void** extra, const char* caller) {
  KernelWork work;
  if (const int e = check_stream(handle, caller)) return e;
  if (const int e = make_kernel_work(function, grid, block, dynamic_lds, params, extra, caller, &work))
    return e;
  const StreamRef stream = find_stream(handle, caller);
  if (!stream) return hipErrorContextIsDestroyed;
  if (stream->device != work.module->device) {
    return fail(hipErrorInvalidHandle, "%s: kernel %s was loaded on device %d, the stream is of device %d",
                caller, function->kernel->name.c_str(), work.module->device, stream->device);
  }
  if (!is_capturing(*stream)) {
    if (const int e = inject_launch_failure(stream->device, function->kernel->name.c_str())) return e;
  }
  return enqueue(caller, stream, std::move(work));
}

bool execute_kernel(const KernelWork& work) {
  Launch l;
  l.code = work.module->code.get();
  l.kernel = work.function->kernel;
  l.device = work.module->device;
  std::copy_n(&work.grid.x, 3, l.grid);
  std::copy_n(&work.block.x, 3, l.block);
  l.dynamic_lds = work.dynamic_lds;
  l.stack_bytes = work.stack_bytes;
  l.args = work.args.data();
  l.args_bytes = work.args.size();
  l.read_only = work.read_only;
  l.asked_at = asked_at();
  if (const auto delay = launch_delay(); delay.count()) std::this_thread::sleep_for(delay);
  LaunchResult result;
  {
    std::shared_lock gate(launch_gate());
    result = run(l);
  }
  {
    std::lock_guard lock(last_mutex);
    last_stats = result.stats;
  }
  if (result.hip_error && is_cancelled(l.asked_at))
    return note_cancelled(), false;  // the waiting call is told; it is not the device's fault
  if (result.hip_error) tell_fault(l.device, result.hip_error, result.message);
  return !result.hip_error;
}

void check_launch_variables() {
  launch_delay();
  ends_process();
  is_quiet();
}

void tell_fault(int device_index, int error, const std::string& message) {
  {
    std::lock_guard lock(last_mutex);
    last_fault = message;
  }
  const bool ends = ends_process();
  if (ends || !is_quiet()) {
    std::fprintf(stderr, "amdhip64 software device: %s\n", message.c_str());
  }
  if (ends) std::abort();
  set_device_fault(device_index, error);
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipModuleLaunchKernel(HipFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_lds,
                                  HipStream stream, void** params, void** extra) {
  return guarded([&] {
    return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_lds, stream,
                  params, extra, "hipModuleLaunchKernel");
  });
}

// Like hipModuleLaunchKernel, but the grid is given in threads, and events time it.
HIP_API int hipExtModuleLaunchKernel(HipFunction function, unsigned threads_x, unsigned threads_y,
                                     unsigned threads_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                     size_t dynamic_lds, HipStream stream, void** params, void** extra,
                                     HipEvent start, HipEvent stop, unsigned) {
  const char* const caller = "hipExtModuleLaunchKernel";
  if (!block_x || !block_y || !block_z || threads_x % block_x || threads_y % block_y || threads_z % block_z)
    return fail(hipErrorInvalidConfiguration, "%s: the grid is not made of whole blocks", caller);
  return guarded([&] {
    if (start) {
      if (const int e = record_event(start, stream, caller)) return e;
    }
    const HipDim3 grid{threads_x / block_x, threads_y / block_y, threads_z / block_z};
    const auto lds = static_cast<uint32_t>(std::min<size_t>(dynamic_lds, ~0u));
    const int e = launch(function, grid, {block_x, block_y, block_z}, lds, stream, params, extra, caller);
    return e || !stop ? e : record_event(stop, stream, caller);
  });
}

HIP_API int fmha_emu_last_launch_stats(fmha_emu_launch_stats* out) {
  if (!out) return fail(hipErrorInvalidValue, "fmha_emu_last_launch_stats: out is null");
  std::lock_guard lock(last_mutex);
  *out = {last_stats.workgroups, last_stats.waves, last_stats.instructions, last_stats.mfma_macs,
          last_stats.nanoseconds};
  return hipSuccess;
}

// The message of the last launch that stopped, in any thread; empty if none did. Valid until this thread asks
// again.
HIP_API const char* fmha_emu_last_fault() {
  auto& copy = per_thread<std::string>();
  std::lock_guard lock(last_mutex);
  copy = last_fault;
  return copy.c_str();
}
