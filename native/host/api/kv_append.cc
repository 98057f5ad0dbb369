// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of appending to a cache.
#include "problem/kv_append.h"

#include <tuple>

#include "api/no_workspace.h"
#include "origins/hip/kv_append_pack.h"
#include "select/kv_append.h"

namespace fmha {
namespace {

struct KvAppend : NoWorkspace<KvAppendProblem, check_kv_append_limits, choose_kv_append, plan_kv_append,
                              hip_kv_append::rows_per_block> {
  using Params = fmha_kv_append_params;
  using Structs = std::tuple<fmha_kv_append_params, fmha_cache>;
  static constexpr Family kFamily = Family::kKvAppend;
  static constexpr auto* make_problem = make_kv_append_problem;

  static std::tuple<const fmha_kv_append_params*, const fmha_cache*> structs_of(const Params& p) {
    return {&p, p.cache};
  }
  static uint64_t number(const Params& p) {
    return number_of({p.batch, p.seqlen, p.nhead_q, p.nhead_k, p.hdim_q});
  }
};
using KvAppendEntries = Entries<KvAppend>;

}  // namespace
}  // namespace fmha

extern "C" {

fmha_status fmha_kv_append_supported(const fmha_kv_append_params* params) {
  return fmha::KvAppendEntries::supported(params);
}

fmha_status fmha_kv_append_kernel(const fmha_kv_append_params* params, fmha_kernel_info* info) {
  return fmha::KvAppendEntries::kernel(params, info);
}

fmha_status fmha_kv_append_extents(const fmha_kv_append_params* params, fmha_extent* extents,
                                   int32_t capacity, int32_t* count) {
  return fmha::KvAppendEntries::extents(params, extents, capacity, count);
}

fmha_status fmha_kv_append_prepare(const fmha_kv_append_params* params) {
  return fmha::KvAppendEntries::prepare(params);
}

fmha_status fmha_kv_append(const fmha_kv_append_params* params, void* stream) {
  return fmha::KvAppendEntries::run(params, stream);
}

}  // extern "C"
