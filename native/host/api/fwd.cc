// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries, and nothing else: each runs its body under the guard.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "catalogue/catalogue.h"
#include "error.h"
#include "fmha_rocm.h"
#include "hip/runtime.h"
#include "launch/launch.h"
#include "problem/problem.h"
#include "problem/struct_size.h"
#include "select/select.h"

#define FMHA_TEXT_OF(x) #x
#define FMHA_TEXT(x) FMHA_TEXT_OF(x)

namespace fmha {
namespace {

// Every field of version 0.1's first header; and of this one.
constexpr uint32_t kInfoVersions[] = {offsetof(fmha_kernel_info, sha256) + sizeof(const char*),
                                      sizeof(fmha_kernel_info)};

// What every entry that takes fmha_fwd_params does before anything else: checks the arguments, whose memory
// the tensors are in, and chooses the kernel by `choose`.
template <typename Choose>
auto plan(const fmha_fwd_params* params, Pointers pointers, Problem& problem, Device*& device,
          Choose choose) {
  make_problem(params, pointers, problem);
  device = &Device::current();
  device->check_memory(problem);
  return choose(problem, device->target());
}

void describe(const Candidates& chosen, const Problem& problem, fmha_kernel_info* info) {
  const Kernel& k = *chosen.kernel;
  const Grid grid = grid_of(k, problem);
  fmha_kernel_info full{};
  full.struct_size = info->struct_size;
  full.vgpr_count = k.vgpr_count;
  full.sgpr_count = k.sgpr_count;
  full.scratch_bytes = k.scratch_bytes;
  full.lds_bytes = k.lds_bytes;
  full.block_size = k.block_size;
  full.tile_m = k.fwd.tile_m;
  full.tile_n = k.fwd.tile_n;
  full.grid[0] = grid.x;
  full.grid[1] = grid.y;
  full.grid[2] = grid.z;
  full.name = k.name;
  full.arch = arch_name(k.arch);
  full.sha256 = k.code->sha256;
  full.candidate = chosen.number;
  full.candidate_count = chosen.count;
  full.pipeline = k.fwd.pipeline;
  std::memcpy(info, &full, std::min<size_t>(info->struct_size, sizeof full));
}

}  // namespace
}  // namespace fmha

extern "C" {

const char* fmha_version(void) {
  return FMHA_TEXT(FMHA_VERSION_MAJOR) "." FMHA_TEXT(FMHA_VERSION_MINOR) "." FMHA_TEXT(FMHA_VERSION_PATCH);
}

const char* fmha_build_info(void) { return fmha::kBuildInfoJson; }

const char* fmha_last_error(void) { return fmha::last_error(); }

fmha_status fmha_set_hip_runtime(const char* path) {
  return fmha::guard([&] { fmha::choose_hip(path); });
}

const char* fmha_hip_runtime_path(void) {
  const char* path = nullptr;
  (void)fmha::guard([&] { path = fmha::bind_hip().path.c_str(); });
  return path;
}

fmha_status fmha_fwd_supported(const fmha_fwd_params* params) {
  return fmha::guard([&] {
    fmha::Problem problem;
    fmha::Device* device = nullptr;
    (void)fmha::plan(params, fmha::Pointers::kOptional, problem, device, fmha::find_kernel);
  });
}

fmha_status fmha_fwd_kernel(const fmha_fwd_params* params, fmha_kernel_info* info) {
  return fmha::guard([&] {
    fmha::check_struct_size("info", info, fmha::kInfoVersions);
    fmha::Problem problem;
    fmha::Device* device = nullptr;
    const fmha::Candidates chosen =
        fmha::plan(params, fmha::Pointers::kOptional, problem, device, fmha::list_candidates);
    fmha::describe(chosen, problem, info);
  });
}

fmha_status fmha_prepare(const fmha_fwd_params* params) {
  return fmha::guard([&] {
    fmha::Problem problem;
    fmha::Device* device = nullptr;
    const fmha::Kernel* kernel =
        fmha::plan(params, fmha::Pointers::kOptional, problem, device, fmha::find_kernel);
    (void)device->function(*kernel);
  });
}

fmha_status fmha_fwd(const fmha_fwd_params* params, void* stream) {
  return fmha::guard([&] {
    fmha::Problem problem;
    fmha::Device* device = nullptr;
    const fmha::Kernel* kernel =
        fmha::plan(params, fmha::Pointers::kRequired, problem, device, fmha::find_kernel);
    if (!problem.empty) device->launch(*kernel, problem, stream);
  });
}

}  // extern "C"
