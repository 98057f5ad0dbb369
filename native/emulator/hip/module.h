// SPDX-License-Identifier: MIT OR Apache-2.0
// Modules, as module.cc, launch.cc and stub.cc share them.
#pragma once

#include <atomic>
#include <vector>

#include "hip/state.h"

namespace fmha::emu {

struct Module {
  int device = 0;
  std::unique_ptr<CodeObject> code;
  std::vector<Function> functions;    // never resized once filled: handles point into it
  std::atomic<bool> unloaded{false};  // no handle any more, but of work that was queued or recorded before
};

int load_module(HipModule* out, const void* image, size_t bytes, int device, const char* function);
int unload_module(HipModule module, const char* function);
bool module_is_valid(HipModule module);
// Null if there is none of that name. `module` is valid.
HipFunction module_function(HipModule module, const char* name);
bool function_is_live(HipFunction function);
void function_attributes(const KernelCode& kernel, HipFuncAttributes* out);

// The module of a function, kept alive; null with the error recorded if `function` is not a live handle.
std::shared_ptr<Module> module_of(HipFunction function, const char* caller);

}  // namespace fmha::emu
