// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the forward pass, and nothing else: each runs its body under the guard.
#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstring>
#include <span>

#include "catalogue/catalogue.h"
#include "error.h"
#include "fmha_rocm.h"
#include "launch/launch.h"
#include "problem/problem.h"
#include "problem/struct_size.h"
#include "select/select.h"

namespace fmha {
namespace {

// Every version of the struct, the oldest first.
constexpr StructVersion kInfoVersions[] = {
    {72, 72}, {88, 88}, {sizeof(fmha_kernel_info), sizeof(fmha_kernel_info)}};
static_assert(offsetof(fmha_kernel_info, candidate) == 72 && offsetof(fmha_kernel_info, step_count) == 88);

// What every entry that takes fmha_fwd_params does before anything else: checks the arguments, whose memory
// the tensors are in, and chooses the kernel by `choose`.
template <typename Choose>
auto plan(const fmha_fwd_params* params, Pointers pointers, Problem& problem, Device*& device,
          Choose choose) {
  Extents extents;
  make_problem(params, pointers, problem, extents);
  device = &Device::current();
  device->check_memory(extents);
  return choose(problem, device->target());
}

void check_info(const fmha_kernel_info* info) {
  const uint32_t bytes = check_struct_size("info", info, kInfoVersions);
  if (bytes == sizeof *info) check_reserved("info->reserved", info->reserved);
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
  full.step_count = problem.empty ? 0 : 1;
  std::memcpy(info, &full, std::min<size_t>(info->struct_size, sizeof full));
}

void list_extents(const fmha_fwd_params* params, fmha_extent* extents, int32_t capacity, int32_t* count) {
  if (count == nullptr) fail(FMHA_INVALID_ARGUMENT, "count = NULL: expected an address to write to");
  if (capacity < 0) fail(FMHA_INVALID_ARGUMENT, "capacity = %" PRId32 ": expected 0 or more", capacity);
  if (extents == nullptr && capacity > 0) {
    fail(FMHA_INVALID_ARGUMENT, "extents = NULL: expected an array of capacity = %" PRId32, capacity);
  }
  Problem problem;
  Extents touched;
  make_problem(params, Pointers::kOptional, problem, touched);
  const std::span<const Extent> all = touched.all();
  for (size_t i = 0; i < std::min(all.size(), static_cast<size_t>(capacity)); ++i) {
    extents[i] = {all[i].pointer, reinterpret_cast<const void*>(all[i].begin),
                  static_cast<int64_t>(all[i].bytes), all[i].written ? 1 : 0, 0};
  }
  *count = static_cast<int32_t>(all.size());
}

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_fwd_supported(const fmha_fwd_params* params) {
  return fmha::guard([&] {
    fmha::Problem problem;
    fmha::Device* device = nullptr;
    (void)fmha::plan(params, fmha::Pointers::kOptional, problem, device, fmha::find_kernel);
  });
}

fmha_status fmha_fwd_kernel(const fmha_fwd_params* params, fmha_kernel_info* info) {
  return fmha::guard([&] {
    fmha::check_info(info);
    fmha::Problem problem;
    fmha::Device* device = nullptr;
    const fmha::Candidates chosen =
        fmha::plan(params, fmha::Pointers::kOptional, problem, device, fmha::list_candidates);
    fmha::describe(chosen, problem, info);
  });
}

fmha_status fmha_fwd_workspace_bytes(const fmha_fwd_params* params, int64_t* bytes) {
  return fmha::guard([&] {
    if (bytes == nullptr) fmha::fail(FMHA_INVALID_ARGUMENT, "bytes = NULL: expected an address to write to");
    fmha::Problem problem;
    fmha::Device* device = nullptr;
    (void)fmha::plan(params, fmha::Pointers::kOptional, problem, device, fmha::find_kernel);
    *bytes = 0;
  });
}

fmha_status fmha_fwd_extents(const fmha_fwd_params* params, fmha_extent* extents, int32_t capacity,
                             int32_t* count) {
  return fmha::guard([&] { fmha::list_extents(params, extents, capacity, count); });
}

fmha_status fmha_fwd_prepare(const fmha_fwd_params* params) {
  return fmha::guard([&] {
    fmha::Problem problem;
    fmha::Device* device = nullptr;
    const fmha::Kernel* kernel =
        fmha::plan(params, fmha::Pointers::kOptional, problem, device, fmha::find_kernel);
    (void)device->function(*kernel);
  });
}

fmha_status fmha_prepare(const fmha_fwd_params* params) { return fmha_fwd_prepare(params); }

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
