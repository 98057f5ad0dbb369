// SPDX-License-Identifier: MIT OR Apache-2.0
// Devices as the library sees them: an arch, and the kernels loaded so far. Once a plan's kernels are loaded,
// running it takes no lock and allocates nothing.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "catalogue/catalogue.h"
#include "hip/runtime.h"
#include "launch/code_object.h"
#include "memory/view.h"
#include "memory/workspace.h"
#include "plan/plan.h"

namespace fmha {

// How a call wants it checked whose memory its pointers are.
struct MemoryCheck {
  bool wanted = true;
  void* stream = nullptr;  // of the call, which may be capturing; nullptr for calls without one
};

class Device {
 public:
  // The calling thread's current HIP device.
  static Device& current();

  Device(const HipApi& api, int ordinal, const Target& target);

  const Target& target() const { return target_; }

  // Fails with INVALID_ARGUMENT if a tensor is in memory that this device cannot be sure to reach.
  void check_memory(const Extents& extents, const MemoryCheck& check) const;

  // Fails with INVALID_ARGUMENT if the plan needs a workspace and this one does not do: see check_workspace.
  void check_plan_workspace(const Plan& plan, const Workspace& given, const Extents& extents,
                            const char* query, const MemoryCheck& check) const {
    if (plan.needed_bytes() != 0) check_needed_workspace(plan, given, extents, query, check);
  }

  // Loads what the plan's launches need.
  void prepare(const Plan& plan);

  // Enqueues the plan's steps, after loading what is missing. If HIP refuses a step, those before it stay
  // enqueued, and the message says so.
  void run(Plan& plan, void* stream);

 private:
  // How many of a call's launches and memsets are enqueued.
  struct Progress {
    int64_t done, all;
  };

  // The kernel's hipFunction_t, loading its module now if this is the first time.
  void* function(const Kernel& kernel);
  void launch(Step& step, void* function, void* stream, Progress& progress) const;
  void launch_once(Step& step, void* function, void* stream, const Progress& progress) const;
  void set_memory(const Step& step, void* stream, const Progress& progress) const;
  void check_needed_workspace(const Plan& plan, const Workspace& given, const Extents& extents,
                              const char* query, const MemoryCheck& check) const;
  void check_owner(const char* name, const void* pointer, void* stream) const;
  [[noreturn]] void raise_unknown_memory(const char* name, const void* pointer) const;
  void check_reachable(const char* name, const void* pointer, int owner, void* stream) const;
  bool is_capturing(void* stream) const;
  [[noreturn]] void raise_step(const char* call, int error, const char* what, void* stream,
                               const Progress& progress) const;
  void load(const Kernel& kernel);
  void* load_module(const Kernel& kernel, const void* image) const;
  void* find_function(const Kernel& kernel, void* module) const;

  const HipApi& api_;
  const int ordinal_;
  const Target target_;
  std::mutex load_mutex_;
  // The loaded images, under the mutex. A HIP runtime may go on pointing to the image (CLR does, and
  // debuggers read it there), so that it stays.
  std::vector<Image> images_;
  std::unique_ptr<std::atomic<void*>[]> functions_;  // one for each row of kKernels; nullptr: not loaded yet
};

}  // namespace fmha
