// SPDX-License-Identifier: MIT OR Apache-2.0
#include "api/answers.h"

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstring>
#include <span>

#include "catalogue/catalogue.h"
#include "error.h"
#include "problem/struct_size.h"

namespace fmha {
namespace {

// Every version of the struct, the oldest first.
constexpr StructVersion kInfoVersions[] = {
    {72, 72}, {88, 88}, {96, 96}, {sizeof(fmha_kernel_info), sizeof(fmha_kernel_info)}};
static_assert(offsetof(fmha_kernel_info, candidate) == 72 && offsetof(fmha_kernel_info, step_count) == 88 &&
              offsetof(fmha_kernel_info, why) == 96);

Grid grid_of(const Kernel* kernel, const Plan& plan) {
  for (size_t i = 0; i < plan.count(); ++i) {
    if (plan[i].kind == Step::Kind::kLaunch && plan[i].kernel == kernel) return plan[i].grid;
  }
  return {0, 0, 0};
}

}  // namespace

void check_info(const fmha_kernel_info* info) {
  const uint32_t bytes = check_struct_size("info", info, kInfoVersions);
  if (bytes >= offsetof(fmha_kernel_info, why)) check_reserved("info->reserved", info->reserved);
}

void describe(const Chosen& chosen, const TileInfo& tile, const Plan& plan, fmha_kernel_info* info) {
  const Kernel& k = *chosen.kernel;
  const Grid grid = grid_of(&k, plan);
  fmha_kernel_info full{};
  full.struct_size = info->struct_size;
  full.vgpr_count = k.vgpr_count;
  full.sgpr_count = k.sgpr_count;
  full.scratch_bytes = k.scratch_bytes;
  full.lds_bytes = k.lds_bytes;
  full.block_size = k.block_size;
  full.tile_m = tile.tile_m;
  full.tile_n = tile.tile_n;
  full.grid[0] = grid.x;
  full.grid[1] = grid.y;
  full.grid[2] = grid.z;
  full.name = k.name;
  full.arch = arch_name(k.arch);
  full.sha256 = k.code->sha256;
  full.candidate = chosen.number;
  full.candidate_count = chosen.count;
  full.pipeline = tile.pipeline;
  full.why = chosen.why;
  full.step_count = plan.empty ? 0 : static_cast<int32_t>(plan.operations());
  std::memcpy(info, &full, std::min<size_t>(info->struct_size, sizeof full));
}

void check_extents_room(const fmha_extent* extents, int32_t capacity, const int32_t* count) {
  if (count == nullptr) raise(FMHA_INVALID_ARGUMENT, "count = NULL: expected an address to write to");
  if (capacity < 0) raise(FMHA_INVALID_ARGUMENT, "capacity = %" PRId32 ": expected 0 or more", capacity);
  if (extents == nullptr && capacity > 0) {
    raise(FMHA_INVALID_ARGUMENT, "extents = NULL: expected an array of capacity = %" PRId32, capacity);
  }
}

void write_extents(const Extents& extents_of_call, fmha_extent* extents, int32_t capacity, int32_t* count) {
  const std::span<const Extent> all = extents_of_call.all();
  for (size_t i = 0; i < std::min(all.size(), static_cast<size_t>(capacity)); ++i) {
    extents[i] = {all[i].pointer, reinterpret_cast<const void*>(all[i].begin),
                  static_cast<int64_t>(all[i].bytes), all[i].written ? 1 : 0, 0};
  }
  *count = static_cast<int32_t>(all.size());
}

void check_bytes(const int64_t* bytes) {
  if (bytes == nullptr) raise(FMHA_INVALID_ARGUMENT, "bytes = NULL: expected an address to write to");
}

}  // namespace fmha
