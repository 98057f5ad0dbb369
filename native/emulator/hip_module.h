// SPDX-License-Identifier: MIT OR Apache-2.0
// Modules, as hip_module.cc, hip_launch.cc and hip_stub.cc share them.
#pragma once

#include <vector>

#include "hip_state.h"

namespace fmha::emu {

struct Module {
  int device = 0;
  std::unique_ptr<CodeObject> code;
  std::vector<Function> functions;  // never resized once filled: handles point into it
};

int load_module(HipModule* out, const void* image, size_t bytes, int device, const char* function);
int unload_module(HipModule module, const char* function);
bool module_is_valid(HipModule module);
// Null if there is none of that name. `module` is valid.
HipFunction module_function(HipModule module, const char* name);
void function_attributes(const KernelCode& kernel, HipFuncAttributes* out);

// Launch with an array of pointers to the arguments, as kernelParams and <<<>>> give them.
int launch_with_params(const Function& function, HipDim3 grid, HipDim3 block, uint32_t dynamic_lds,
                       HipStream stream, void** params, const char* caller);

}  // namespace fmha::emu
