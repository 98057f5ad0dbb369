// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the merge of partial outputs, and nothing else: each runs its body under the guard.
#include "problem/merge.h"

#include "api/answers.h"
#include "catalogue/catalogue.h"
#include "error.h"
#include "fmha_rocm.h"
#include "launch/device.h"
#include "origins/hip/merge_pack.h"
#include "plan/plan.h"
#include "select/merge.h"

namespace fmha {
namespace {

struct Call {
  MergeProblem problem;
  Device* device;
  Chosen chosen;
  Plan plan;
};

// As make_call of api/fwd.cc.
void make_call(const fmha_merge_params* params, Pointers pointers, bool counted, void* stream, Call& call) {
  make_merge_problem(params, pointers, call.problem);
  check_merge_limits(call.problem);
  check_overlaps(call.problem);
  call.device = &Device::current();
  call.device->check_memory(call.problem.extents, {call.problem.checks_memory, stream});
  call.chosen = choose_merge(call.problem, call.device->target(), counted);
  plan_merge(*call.chosen.kernel, call.problem, call.plan);
}

void tell_kernel(const fmha_merge_params* params, fmha_kernel_info* info) {
  check_info(info);
  Call call;
  make_call(params, Pointers::kOptional, true, nullptr, call);
  const int64_t rows = hip_merge::rows_per_block(*call.chosen.kernel, call.problem);
  describe(call.chosen, {static_cast<int32_t>(rows), 0, ""}, call.plan, info);
}

void list_extents(const fmha_merge_params* params, fmha_extent* extents, int32_t capacity, int32_t* count) {
  check_extents_room(extents, capacity, count);
  MergeProblem problem;
  make_merge_problem(params, Pointers::kOptional, problem);
  write_extents(problem.extents, extents, capacity, count);
}

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_merge_supported(const fmha_merge_params* params) {
  return fmha::guard([&] {
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, false, nullptr, call);
  });
}

fmha_status fmha_merge_kernel(const fmha_merge_params* params, fmha_kernel_info* info) {
  return fmha::guard([&] { fmha::tell_kernel(params, info); });
}

fmha_status fmha_merge_extents(const fmha_merge_params* params, fmha_extent* extents, int32_t capacity,
                               int32_t* count) {
  return fmha::guard([&] { fmha::list_extents(params, extents, capacity, count); });
}

fmha_status fmha_merge_prepare(const fmha_merge_params* params) {
  return fmha::guard([&] {
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, false, nullptr, call);
    call.device->prepare(call.plan);
  });
}

fmha_status fmha_merge(const fmha_merge_params* params, void* stream) {
  return fmha::guard([&] {
    if (stream == fmha::kHipStreamLegacy) stream = nullptr;
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kRequired, false, stream, call);
    call.device->run(call.plan, stream);
  });
}

}  // extern "C"
