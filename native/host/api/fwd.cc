// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the forward pass, and nothing else: each runs its body under the guard.
#include "problem/fwd.h"

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstring>
#include <span>

#include "catalogue/catalogue.h"
#include "error.h"
#include "fmha_rocm.h"
#include "launch/device.h"
#include "problem/struct_size.h"
#include "select/fwd.h"
#include "select/plan.h"

namespace fmha {
namespace {

// Every version of the struct, the oldest first.
constexpr StructVersion kInfoVersions[] = {
    {72, 72}, {88, 88}, {sizeof(fmha_kernel_info), sizeof(fmha_kernel_info)}};
static_assert(offsetof(fmha_kernel_info, candidate) == 72 && offsetof(fmha_kernel_info, step_count) == 88);

constexpr const char* kWorkspaceQuery = "fmha_fwd_workspace_bytes";

struct Call {
  FwdProblem problem;
  Device* device;
  MemoryCheck memory;
  Chosen chosen;
  Plan plan;
};

// What every entry that runs, or could, does first: checks the arguments, then whose memory the tensors are
// in, chooses the kernel and plans the call. Whether candidates are counted matters only to who tells of
// them.
void make_call(const fmha_fwd_params* params, Pointers pointers, bool counted, void* stream, Call& call) {
  make_fwd_problem(params, pointers, call.problem);
  FwdOffers offers;
  ask_fwd_origins(call.problem, offers);
  check_overlaps(call.problem);
  call.device = &Device::current();
  call.memory = {call.problem.checks_memory, stream};
  call.device->check_memory(call.problem.extents, call.memory);
  call.chosen = choose_fwd(call.problem, offers, call.device->target(), counted);
  plan_fwd(*call.chosen.kernel, call.problem, call.plan);
}

void check_info(const fmha_kernel_info* info) {
  const uint32_t bytes = check_struct_size("info", info, kInfoVersions);
  if (bytes == sizeof *info) check_reserved("info->reserved", info->reserved);
}

const Step& first_launch(const Plan& plan) {
  for (size_t i = 0; i < plan.count(); ++i) {
    if (plan[i].kind == Step::Kind::kLaunch) return plan[i];
  }
  raise(FMHA_INTERNAL, "a plan without a launch");
}

void describe(const Call& call, fmha_kernel_info* info) {
  const Step& step = first_launch(call.plan);
  const Kernel& k = *step.kernel;
  fmha_kernel_info full{};
  full.struct_size = info->struct_size;
  full.vgpr_count = k.vgpr_count;
  full.sgpr_count = k.sgpr_count;
  full.scratch_bytes = k.scratch_bytes;
  full.lds_bytes = k.lds_bytes;
  full.block_size = k.block_size;
  full.tile_m = k.fwd.tile_m;
  full.tile_n = k.fwd.tile_n;
  full.grid[0] = step.grid.x;
  full.grid[1] = step.grid.y;
  full.grid[2] = step.grid.z;
  full.name = k.name;
  full.arch = arch_name(k.arch);
  full.sha256 = k.code->sha256;
  full.candidate = call.chosen.number;
  full.candidate_count = call.chosen.count;
  full.pipeline = k.fwd.pipeline;
  full.step_count = call.plan.empty ? 0 : static_cast<int32_t>(call.plan.count());
  std::memcpy(info, &full, std::min<size_t>(info->struct_size, sizeof full));
}

void prepare(const fmha_fwd_params* params) {
  Call call;
  make_call(params, Pointers::kOptional, false, nullptr, call);
  call.device->prepare(call.plan);
}

void list_extents(const fmha_fwd_params* params, fmha_extent* extents, int32_t capacity, int32_t* count) {
  if (count == nullptr) raise(FMHA_INVALID_ARGUMENT, "count = NULL: expected an address to write to");
  if (capacity < 0) raise(FMHA_INVALID_ARGUMENT, "capacity = %" PRId32 ": expected 0 or more", capacity);
  if (extents == nullptr && capacity > 0) {
    raise(FMHA_INVALID_ARGUMENT, "extents = NULL: expected an array of capacity = %" PRId32, capacity);
  }
  FwdProblem problem;
  make_fwd_problem(params, Pointers::kOptional, problem);
  const std::span<const Extent> all = problem.extents.all();
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
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, false, nullptr, call);
  });
}

fmha_status fmha_fwd_kernel(const fmha_fwd_params* params, fmha_kernel_info* info) {
  return fmha::guard([&] {
    fmha::check_info(info);
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, true, nullptr, call);
    fmha::describe(call, info);
  });
}

fmha_status fmha_fwd_workspace_bytes(const fmha_fwd_params* params, int64_t* bytes) {
  return fmha::guard([&] {
    if (bytes == nullptr) fmha::raise(FMHA_INVALID_ARGUMENT, "bytes = NULL: expected an address to write to");
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, false, nullptr, call);
    *bytes = call.plan.needed_bytes();
  });
}

fmha_status fmha_fwd_extents(const fmha_fwd_params* params, fmha_extent* extents, int32_t capacity,
                             int32_t* count) {
  return fmha::guard([&] { fmha::list_extents(params, extents, capacity, count); });
}

fmha_status fmha_fwd_prepare(const fmha_fwd_params* params) {
  return fmha::guard([&] { fmha::prepare(params); });
}

fmha_status fmha_prepare(const fmha_fwd_params* params) {
  return fmha::guard([&] { fmha::prepare(params); });
}

fmha_status fmha_fwd(const fmha_fwd_params* params, void* stream) {
  return fmha::guard([&] {
    if (stream == fmha::kHipStreamLegacy) stream = nullptr;
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kRequired, false, stream, call);
    call.device->check_plan_workspace(call.plan, call.problem.workspace, call.problem.extents,
                                      fmha::kWorkspaceQuery, call.memory);
    call.device->run(call.plan, stream);
  });
}

}  // extern "C"
