// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the forward pass, and nothing else: each runs its body under the guard.
#include "problem/fwd.h"

#include "api/answers.h"
#include "api/remembered.h"
#include "catalogue/catalogue.h"
#include "error.h"
#include "fmha_rocm.h"
#include "launch/device.h"
#include "plan/plan.h"
#include "select/fwd.h"

namespace fmha {
namespace {

constexpr const char* kWorkspaceQuery = "fmha_fwd_workspace_bytes";

struct Call {
  FwdProblem problem;
  Device* device;
  MemoryCheck memory;
  Chosen chosen;
  Plan plan;
};

struct Asked {
  fmha_fwd_params params;
  Pointers pointers;  // without a workspace, only a call that runs does without
};

struct Choice {
  const Device* device;
  const Kernel* kernel;
  hip_fwd::Division division;
};
using Calls = Remembered<Asked, Choice>;

bool knows(const Calls::Entry& entry, const fmha_fwd_params& params, Pointers pointers) {
  return entry.used && entry.call.pointers == pointers && are_alike(entry.call.params, params);
}

void check_and_find_device(void* stream, Call& call) {
  check_overlaps(call.problem);
  call.device = &Device::current();
  call.memory = {call.problem.checks_memory, stream};
  call.device->check_memory(call.problem.extents, call.memory);
}

// Every entry that runs, or could, does this first: checks the arguments, then whose memory the tensors are
// in, chooses the kernel and plans the call. Candidates are counted for the entry that tells of them.
void make_new_call(bool counted, void* stream, Call& call) {
  FwdOffers offers;
  ask_fwd_origins(call.problem, offers);
  check_and_find_device(stream, call);
  call.chosen = choose_fwd(call.problem, offers, call.device->target(), counted);
}

void make_call(const fmha_fwd_params* params, Pointers pointers, bool counted, void* stream, Call& call) {
  make_fwd_problem(params, pointers, call.problem);
  // Nothing is remembered for a struct of an older header, or when a call counts candidates.
  if (counted || params->struct_size != sizeof *params) {
    make_new_call(counted, stream, call);
    return plan_fwd(*call.chosen.kernel, call.problem, call.device->target(), call.plan);
  }
  Calls::Entry& entry = Calls::at(mixed(*params));
  bool is_known = knows(entry, *params, pointers);
  if (is_known) {
    check_and_find_device(stream, call);
    is_known = entry.choice.device == call.device;
  }
  if (!is_known) {
    make_new_call(counted, stream, call);
    const Kernel& kernel = *call.chosen.kernel;
    const hip_fwd::Division division = divide_fwd(kernel, call.problem, call.device->target());
    entry = {{*params, pointers}, {call.device, &kernel, division}, true};
  }
  call.chosen = {entry.choice.kernel, 0, 0, nullptr};
  plan_fwd(*entry.choice.kernel, call.problem, entry.choice.division, call.device->target(), call.plan);
}

// A call that would use a workspace may come without one.
void prepare(const fmha_fwd_params* params) {
  Call call;
  make_call(params, Pointers::kOptional, false, nullptr, call);
  call.device->prepare(call.plan);
  if (call.plan.needed_bytes() == 0) return;
  call.problem.may_use_workspace = false;
  FwdOffers offers;
  ask_fwd_origins(call.problem, offers);
  const Target target = call.device->target();
  Plan without;
  plan_fwd(*choose_fwd(call.problem, offers, target, false).kernel, call.problem, target, without);
  call.device->prepare(without);
}

void list_extents(const fmha_fwd_params* params, fmha_extent* extents, int32_t capacity, int32_t* count) {
  check_extents_room(extents, capacity, count);
  FwdProblem problem;
  make_fwd_problem(params, Pointers::kOptional, problem);
  write_extents(problem.extents, extents, capacity, count);
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
    const fmha::FwdRow& row = call.chosen.kernel->fwd;
    fmha::describe(call.chosen, {row.tile_m, row.tile_n, row.pipeline}, call.plan, info);
  });
}

fmha_status fmha_fwd_workspace_bytes(const fmha_fwd_params* params, int64_t* bytes) {
  return fmha::guard([&] {
    fmha::check_bytes(bytes);
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
