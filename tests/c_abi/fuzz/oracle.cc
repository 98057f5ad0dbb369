// SPDX-License-Identifier: MIT OR Apache-2.0
#include "oracle.h"

#include <cinttypes>
#include <cstring>
#include <vector>

#include "extent.h"
#include "report.h"
#include "rows.h"
#include "run.h"

namespace fmha::fuzz {
namespace {

// A launch may take so many steps of a workgroup over a tile of keys: a few tens of milliseconds at most.
constexpr uint64_t kMostSteps = 8;

// fmha_fwd_kernel, sometimes with another struct_size.
fmha_kernel_info ask_kernel(const Case& c, Bytes& bytes, fmha_status expected, const Device& device) {
  constexpr uint32_t kSizes[] = {0, 4, 72, 88, 95, sizeof(fmha_kernel_info) - 8, 4096, UINT32_MAX};
  if (bytes.chance(6)) {
    const uint32_t size = bytes.one_of(kSizes);
    std::vector<uint8_t> info(size > 4096 ? sizeof(fmha_kernel_info) : std::max<size_t>(size, 4));
    std::memcpy(info.data(), &size, sizeof size);
    const fmha_status status = fmha_fwd_kernel(c.pointer(), reinterpret_cast<fmha_kernel_info*>(info.data()));
    if (status != FMHA_OK) check_refusal("fmha_fwd_kernel", status, device);
  }
  fmha_kernel_info info{};
  info.struct_size = sizeof info;
  const fmha_status status = fmha_fwd_kernel(c.pointer(), &info);
  if (status != expected)
    report("fmha_fwd_kernel gave %" PRId32 ", supported gave %" PRId32, status, expected);
  if (status != FMHA_OK) {
    check_refusal("fmha_fwd_kernel", status, device);
    return info;
  }
  if (info.name == nullptr || info.arch == nullptr || info.pipeline == nullptr || info.sha256 == nullptr ||
      std::strlen(info.sha256) != 64 || info.tile_m <= 0 || info.tile_n <= 0 || info.block_size <= 0) {
    report("fmha_fwd_kernel left fields out");
  }
  const int32_t wanted = c.params.kernel == 0 ? 1 : c.params.kernel;
  if (info.candidate != wanted || info.candidate > info.candidate_count) {
    report("candidate %" PRId32 " of %" PRId32 ", asked for %" PRId32, info.candidate, info.candidate_count,
           wanted);
  }
  return info;
}

// The two queries that need no kernel's name: what fmha_fwd would use of memory.
void ask_memory(const Case& c, fmha_status expected, const Device& device) {
  int64_t bytes = -1;
  const fmha_status workspace = fmha_fwd_workspace_bytes(c.pointer(), &bytes);
  if (workspace != expected) {
    report("fmha_fwd_workspace_bytes gave %" PRId32 ", supported gave %" PRId32, workspace, expected);
  }
  if (workspace == FMHA_OK ? bytes < 0 : bytes != -1) report("a workspace of %" PRId64 " bytes", bytes);
  fmha_extent extents[16] = {};
  int32_t count = -1;
  const fmha_status status = fmha_fwd_extents(c.pointer(), extents, 16, &count);
  if (status != FMHA_OK) {
    if (expected == FMHA_OK) report("fmha_fwd_extents gave %" PRId32 " for what is supported", status);
    return check_refusal("fmha_fwd_extents", status, device);
  }
  if (count < 0 || count > 16) report("%" PRId32 " extents", count);
  for (int32_t i = 0; i < count; ++i) {
    const fmha_extent& e = extents[i];
    if (e.name == nullptr || e.bytes <= 0 || e.bytes > int64_t{1} << 57 || e.written < 0 || e.written > 1 ||
        e.reserved != 0) {
      report("extent %" PRId32 " makes no sense", i);
    }
  }
}

bool needs_pointer(const fmha_fwd_params& p) {
  if (is_empty(p)) return false;
  const bool keys = p.seqlen_k > 0 && (p.cu_seqlens_q == nullptr || p.total_k > 0);
  const bool queries = p.cu_seqlens_q == nullptr || p.total_q > 0;
  return queries && (p.q.data == nullptr || p.o.data == nullptr ||
                     (keys && (p.k.data == nullptr || p.v.data == nullptr)));
}

// A workspace that the call would look at may be anything.
bool looks_at_workspace(const Case& c) {
  int64_t needed = 0;
  return c.params.workspace != nullptr &&
         (fmha_fwd_workspace_bytes(c.pointer(), &needed) != FMHA_OK || needed > 0);
}

uint64_t steps(const fmha_kernel_info& info, const fmha_fwd_params& p) {
  const uint64_t groups = uint64_t{info.grid[0]} * info.grid[1] * info.grid[2];
  const uint64_t loops = 1 + static_cast<uint64_t>(p.seqlen_k) / static_cast<uint64_t>(info.tile_n);
  return groups > kMostSteps || loops > kMostSteps ? kMostSteps + 1 : groups * loops;
}

void run(const Case& c, Device& device, Counts& counts) {
  run_supported(c, "fmha_fwd", fmha_fwd, device);
  ++counts.launched;
}

// A problem that is accepted: prepared always, run if it lies in memory and is small.
void judge_accepted(const Case& c, const fmha_kernel_info& info, Device& device, Counts& counts) {
  ++counts.accepted;
  if (fmha_fwd_prepare(c.pointer()) != FMHA_OK) report("fmha_fwd_prepare refused what is supported");
  check_untouched("fmha_fwd_prepare", device);
  if (needs_pointer(c.params)) {
    const fmha_status status = fmha_fwd(c.pointer(), nullptr);
    if (status != FMHA_INVALID_ARGUMENT) report("fmha_fwd gave %" PRId32 " for a NULL tensor", status);
    check_refusal("fmha_fwd", status, device);
    check_untouched("fmha_fwd", device);
  } else if (is_empty(c.params)) {
    ++counts.empty;
    if (fmha_fwd(c.pointer(), nullptr) != FMHA_OK) report("fmha_fwd refused an empty problem");
    check_untouched("fmha_fwd", device);
  } else if (!looks_at_workspace(c) && steps(info, c.params) <= kMostSteps && lies_in_memory(c, device)) {
    run(c, device, counts);
  }
}

}  // namespace

void judge(const Case& c, Bytes& bytes, Device& device, Counts& counts) {
  ++counts.cases;
  print_case = [&c] { print(c); };
  put_lengths(c, device);
  const fmha_status status = fmha_fwd_supported(c.pointer());
  if (c.mutations == 0 && status != FMHA_OK && status != FMHA_UNSUPPORTED) {
    report("a problem that makes sense got status %" PRId32, status);
  }
  if (status != FMHA_OK) check_refusal("fmha_fwd_supported", status, device);
  const fmha_kernel_info info = ask_kernel(c, bytes, status, device);
  ask_memory(c, status, device);
  if (status == FMHA_OK) {
    judge_accepted(c, info, device, counts);
    return;
  }
  ++counts.refused;
  if (fmha_fwd_prepare(c.pointer()) != status) report("fmha_fwd_prepare did not give %" PRId32, status);
  check_refusal("fmha_fwd_prepare", status, device);
  const fmha_status forward = fmha_fwd(c.pointer(), nullptr);
  // Only fmha_fwd looks at a NULL tensor, which may come before what the others found.
  if (forward != status && forward != FMHA_INVALID_ARGUMENT) {
    report("fmha_fwd gave %" PRId32 ", supported gave %" PRId32, forward, status);
  }
  check_refusal("fmha_fwd", forward, device);
  check_untouched("the calls", device);
}

}  // namespace fmha::fuzz
