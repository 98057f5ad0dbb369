// SPDX-License-Identifier: MIT OR Apache-2.0
#include "backward/bwd_oracle.h"

#include <cinttypes>
#include <cstring>
#include <vector>

#include "backward/bwd_extent.h"
#include "rows.h"
#include "run.h"

namespace fmha::fuzz {
namespace {

// Steps of a workgroup over a tile, of all launches: some tens of milliseconds.
constexpr uint64_t kMostSteps = 16;
// Scores are below 9: with this LSE every P is below 1.
constexpr float kLseAtRest = 16;

void ask_kernel(const BwdCase& c, fmha_status expected, const Device& device, fmha_kernel_info& info) {
  info = {};
  info.struct_size = sizeof info;
  const fmha_status status = fmha_bwd_kernel(c.pointer(), &info);
  if (status != expected) {
    report("fmha_bwd_kernel gave %" PRId32 ", supported gave %" PRId32, status, expected);
  }
  if (status != FMHA_OK) return check_refusal("fmha_bwd_kernel", status, device);
  if (info.name == nullptr || std::strstr(info.name, "_bwd_") == nullptr || info.tile_m <= 0 ||
      info.tile_n <= 0 || info.block_size <= 0 || info.step_count < 0) {
    report("fmha_bwd_kernel left fields out");
  }
  const int32_t wanted = c.params.kernel == 0 ? 1 : c.params.kernel;
  if (info.candidate != wanted || info.candidate > info.candidate_count) {
    report("candidate %" PRId32 " of %" PRId32 ", asked for %" PRId32, info.candidate, info.candidate_count,
           wanted);
  }
}

int64_t ask_memory(const BwdCase& c, fmha_status expected, const Device& device) {
  int64_t bytes = -1;
  const fmha_status workspace = fmha_bwd_workspace_bytes(c.pointer(), &bytes);
  if (workspace != expected) {
    report("fmha_bwd_workspace_bytes gave %" PRId32 ", supported gave %" PRId32, workspace, expected);
  }
  if (workspace == FMHA_OK ? bytes < 0 : bytes != -1) report("a workspace of %" PRId64 " bytes", bytes);
  fmha_extent extents[17] = {};
  int32_t count = -1;
  const fmha_status status = fmha_bwd_extents(c.pointer(), extents, 17, &count);
  if (status != FMHA_OK) {
    if (expected == FMHA_OK) report("fmha_bwd_extents gave %" PRId32 " for what is supported", status);
    check_refusal("fmha_bwd_extents", status, device);
    return bytes;
  }
  if (count < 0 || count > 17) report("%" PRId32 " extents", count);
  for (int32_t i = 0; i < count; ++i) {
    const fmha_extent& e = extents[i];
    const bool gradient = e.name != nullptr && e.name[0] == 'd' && std::strcmp(e.name, "dout.data") != 0;
    if (e.name == nullptr || e.bytes <= 0 || e.written != (gradient ? 1 : 0) || e.reserved != 0) {
      report("extent %" PRId32 " makes no sense", i);
    }
  }
  return bytes;
}

bool is_null(const fmha_tensor& t) { return t.data == nullptr; }

// Both sides have rows, and something that is needed for them is missing.
bool lacks_pointer(const BwdCase& c) {
  const fmha_fwd_params& f = c.forward.params;
  const bool packed = is_group(f);
  if (is_empty(f) || f.seqlen_k == 0 || (packed && (f.total_q == 0 || f.total_k == 0))) return false;
  return is_null(f.q) || is_null(f.k) || is_null(f.v) || is_null(f.o) || f.lse.data == nullptr ||
         is_null(c.params.dout) || is_null(c.params.dq) || is_null(c.params.dk) || is_null(c.params.dv);
}

void expect_refusal(const BwdCase& c, const char* what, Device& device) {
  const fmha_status status = fmha_bwd(c.pointer(), nullptr);
  if (status != FMHA_INVALID_ARGUMENT) report("fmha_bwd gave %" PRId32 " for %s", status, what);
  check_refusal("fmha_bwd", status, device);
  check_untouched("fmha_bwd", device);
}

uint64_t steps(const fmha_kernel_info& info, const fmha_fwd_params& f) {
  const uint64_t groups = uint64_t{info.grid[0]} * info.grid[1] * info.grid[2];
  const uint64_t loops = 1 + static_cast<uint64_t>(f.seqlen_q) / 32;
  return groups > kMostSteps || loops > kMostSteps ? kMostSteps + 1 : groups * loops;
}

void run(const BwdCase& c, Device& device, Counts& counts) {
  run_supported(c, "fmha_bwd", fmha_bwd, device);
  ++(is_empty(c.forward.params) ? counts.empty : counts.launched);
}

void judge_accepted(const BwdCase& c, const fmha_kernel_info& info, int64_t needed, Device& device,
                    Counts& counts) {
  ++counts.accepted;
  if (fmha_bwd_prepare(c.pointer()) != FMHA_OK) report("fmha_bwd_prepare refused what is supported");
  check_untouched("fmha_bwd_prepare", device);
  const fmha_bwd_params& p = c.params;
  if (lacks_pointer(c)) return expect_refusal(c, "a NULL tensor", device);
  if (needed > 0 && (p.workspace == nullptr || p.workspace_bytes < needed)) {
    return expect_refusal(c, "a workspace that is too small", device);
  }
  const bool has_workspace = needed == 0 || device.is_workspace(p.workspace, static_cast<size_t>(needed));
  const bool aligned = reinterpret_cast<uintptr_t>(p.workspace) % 256 == 0;
  if (has_workspace && needed > 0 && !aligned) return expect_refusal(c, "a workspace not aligned", device);
  if (has_workspace && steps(info, c.forward.params) <= kMostSteps && lies_in_memory(c, device)) {
    run(c, device, counts);
  }
}

void put_lse(Device& device) {
  const std::vector<float> lse(Device::bytes(kLse) / sizeof(float), kLseAtRest);
  device.put(kLse, lse.data(), lse.size() * sizeof lse[0]);
}

}  // namespace

void judge(const BwdCase& c, Device& device, Counts& counts) {
  ++counts.cases;
  print_case = [&c] { print(c); };
  put_lse(device);
  put_lengths(c.forward, device);
  const fmha_status status = fmha_bwd_supported(c.pointer());
  if (c.mutations == 0 && status != FMHA_OK && status != FMHA_UNSUPPORTED) {
    report("a problem that makes sense got status %" PRId32, status);
  }
  if (status != FMHA_OK) check_refusal("fmha_bwd_supported", status, device);
  fmha_kernel_info info;
  ask_kernel(c, status, device, info);
  const int64_t needed = ask_memory(c, status, device);
  if (status == FMHA_OK) return judge_accepted(c, info, needed, device, counts);
  ++counts.refused;
  if (fmha_bwd_prepare(c.pointer()) != status) report("fmha_bwd_prepare did not give %" PRId32, status);
  check_refusal("fmha_bwd_prepare", status, device);
  const fmha_status backward = fmha_bwd(c.pointer(), nullptr);
  // Only fmha_bwd looks at a NULL tensor, which may come before what the others found.
  if (backward != status && backward != FMHA_INVALID_ARGUMENT) {
    report("fmha_bwd gave %" PRId32 ", supported gave %" PRId32, backward, status);
  }
  check_refusal("fmha_bwd", backward, device);
  check_untouched("the calls", device);
}

}  // namespace fmha::fuzz
