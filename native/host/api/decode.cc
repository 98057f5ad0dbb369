// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of attention over a KV cache, and nothing else: each runs its body under the guard.
#include "problem/decode.h"

#include "api/answers.h"
#include "catalogue/catalogue.h"
#include "error.h"
#include "fmha_rocm.h"
#include "launch/device.h"
#include "plan/plan.h"
#include "select/decode.h"

namespace fmha {
namespace {

constexpr const char* kWorkspaceQuery = "fmha_decode_workspace_bytes";

struct Call {
  DecodeProblem problem;
  Device* device;
  MemoryCheck memory;
  Chosen chosen;
  Plan plan;
};

// As make_call of api/fwd.cc.
void make_call(const fmha_decode_params* params, Pointers pointers, bool counted, void* stream, Call& call) {
  make_decode_problem(params, pointers, call.problem);
  check_overlaps(call.problem);
  call.device = &Device::current();
  call.memory = {call.problem.checks_memory, stream};
  call.device->check_memory(call.problem.fwd.extents, call.memory);
  const Target& target = call.device->target();
  call.chosen = choose_decode(call.problem, target, counted);
  plan_decode(*call.chosen.kernel, call.problem, target, call.plan);
}

void list_extents(const fmha_decode_params* params, fmha_extent* extents, int32_t capacity, int32_t* count) {
  check_extents_room(extents, capacity, count);
  DecodeProblem problem;
  make_decode_problem(params, Pointers::kOptional, problem);
  write_extents(problem.fwd.extents, extents, capacity, count);
}

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_decode_supported(const fmha_decode_params* params) {
  return fmha::guard([&] {
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, false, nullptr, call);
  });
}

fmha_status fmha_decode_kernel(const fmha_decode_params* params, fmha_kernel_info* info) {
  return fmha::guard([&] {
    fmha::check_info(info);
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, true, nullptr, call);
    const fmha::DecodeRow& row = call.chosen.kernel->decode;
    fmha::describe(call.chosen, {row.tile_m, row.tile_n, "waves"}, call.plan, info);
  });
}

fmha_status fmha_decode_workspace_bytes(const fmha_decode_params* params, int64_t* bytes) {
  return fmha::guard([&] {
    fmha::check_bytes(bytes);
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, false, nullptr, call);
    *bytes = call.plan.needed_bytes();
  });
}

fmha_status fmha_decode_extents(const fmha_decode_params* params, fmha_extent* extents, int32_t capacity,
                                int32_t* count) {
  return fmha::guard([&] { fmha::list_extents(params, extents, capacity, count); });
}

fmha_status fmha_decode_prepare(const fmha_decode_params* params) {
  return fmha::guard([&] {
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kOptional, false, nullptr, call);
    call.device->prepare(call.plan);
  });
}

fmha_status fmha_decode(const fmha_decode_params* params, void* stream) {
  return fmha::guard([&] {
    if (stream == fmha::kHipStreamLegacy) stream = nullptr;
    fmha::Call call;
    fmha::make_call(params, fmha::Pointers::kRequired, false, stream, call);
    call.device->check_plan_workspace(call.plan, call.problem.workspace, call.problem.fwd.extents,
                                      fmha::kWorkspaceQuery, call.memory);
    call.device->run(call.plan, stream);
  });
}

}  // extern "C"
