// SPDX-License-Identifier: MIT OR Apache-2.0
// Launches with attributes, and cooperative ones. The workgroups of a launch run one after the other on each
// core of the CPU, so those of a larger grid cannot wait for each other: a cooperative launch has one
// workgroup, or is refused. hipDeviceAttributeCooperativeLaunch says so too.

#include "hip/graph/graph.h"

namespace fmha::emu {
namespace {

// hipLaunchAttribute.
struct LaunchAttribute {
  int id;
  int padding;
  union {
    int number;
    char bytes[64];
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);

enum LaunchAttributeId : int { kAccessPolicy = 1, kCooperative, kSynchronizationPolicy, kPriority = 8 };

// hipLaunchConfig_t, and HIP_LAUNCH_CONFIG, whose dynamic LDS has four bytes less and ends in padding.
struct LaunchConfig {
  HipDim3 grid, block;
  uint64_t dynamic_lds;
  HipStream stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56);

int check_cooperative(HipDim3 grid, const char* function) {
  if (uint64_t{grid.x} * grid.y * grid.z <= 1) return hipSuccess;
  return fail(hipErrorNotSupported,
              "%s: a cooperative launch of %u x %u x %u workgroups; the software device runs one, since "
              "workgroups do not run at the same time",
              function, grid.x, grid.y, grid.z);
}

// Policies and priorities are hints, as on hardware.
int check_attributes(const LaunchConfig& c, const char* function) {
  if (c.attribute_count && !c.attributes)
    return fail(hipErrorInvalidValue, "%s: %u attributes at null", function, c.attribute_count);
  for (unsigned i = 0; i < c.attribute_count; ++i) {
    const LaunchAttribute& a = c.attributes[i];
    if (a.id == kCooperative && a.value.number) {
      if (const int e = check_cooperative(c.grid, function)) return e;
    } else if (a.id != kAccessPolicy && a.id != kCooperative && a.id != kSynchronizationPolicy &&
               a.id != kPriority) {
      return fail(hipErrorNotSupported,
                  "%s: attribute %d is not supported; those of number 1, 2, 3 and 8 are", function, a.id);
    }
  }
  return hipSuccess;
}

int launch_ex(const LaunchConfig* c, HipFunction function, void** params, void** extra, const char* caller) {
  if (!c) return fail(hipErrorInvalidValue, "%s: config is null", caller);
  if (const int e = check_attributes(*c, caller)) return e;
  return launch(function, c->grid, c->block, static_cast<uint32_t>(c->dynamic_lds), c->stream, params, extra,
                caller);
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;
extern "C" int hipLaunchKernel(const void* stub, HipDim3 grid, HipDim3 block, void** args, size_t dynamic_lds,
                               HipStream stream);

HIP_API int hipDrvLaunchKernelEx(const LaunchConfig* config, HipFunction function, void** params,
                                 void** extra) {
  return guarded([&] { return launch_ex(config, function, params, extra, "hipDrvLaunchKernelEx"); });
}
HIP_API int hipLaunchKernelExC(const LaunchConfig* config, const void* stub, void** args) {
  return guarded([&] {
    const char* const caller = "hipLaunchKernelExC";
    if (!config) return fail(hipErrorInvalidValue, "%s: config is null", caller);
    if (const int e = check_stream(config->stream, caller)) return e;
    HipFunction function = stub_function(stub, stream_device(config->stream), caller);
    if (!function) return static_cast<int>(hipErrorInvalidDeviceFunction);
    return launch_ex(config, function, args, nullptr, caller);
  });
}

HIP_API int hipModuleLaunchCooperativeKernel(HipFunction function, unsigned grid_x, unsigned grid_y,
                                             unsigned grid_z, unsigned block_x, unsigned block_y,
                                             unsigned block_z, unsigned dynamic_lds, HipStream stream,
                                             void** params) {
  return guarded([&] {
    const char* const caller = "hipModuleLaunchCooperativeKernel";
    const HipDim3 grid{grid_x, grid_y, grid_z};
    if (const int e = check_cooperative(grid, caller)) return e;
    return launch(function, grid, {block_x, block_y, block_z}, dynamic_lds, stream, params, nullptr, caller);
  });
}
HIP_API int hipLaunchCooperativeKernel(const void* stub, HipDim3 grid, HipDim3 block, void** params,
                                       unsigned dynamic_lds, HipStream stream) {
  return guarded([&] {
    if (const int e = check_cooperative(grid, "hipLaunchCooperativeKernel")) return e;
    return hipLaunchKernel(stub, grid, block, params, dynamic_lds, stream);
  });
}
