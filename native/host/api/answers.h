// SPDX-License-Identifier: MIT OR Apache-2.0
// The answers of the entries of all families: kernel info, extents, sizes.
#pragma once

#include <cstdint>

#include "fmha_rocm.h"
#include "memory/view.h"
#include "plan/plan.h"
#include "select/choose.h"

namespace fmha {

// A family's answer about its kernel.
struct TileInfo {
  int32_t tile_m, tile_n;
  const char* pipeline;
};

// Fails with INVALID_ARGUMENT or ABI_MISMATCH unless there is a struct that can be filled.
void check_info(const fmha_kernel_info* info);

// Fills it with the kernel that was chosen. Its grid is that of its launch; zeros if there is none.
void describe(const Chosen& chosen, const TileInfo& tile, const Plan& plan, fmha_kernel_info* info);

// Fails with INVALID_ARGUMENT unless there is room for the answer.
void check_extents_room(const fmha_extent* extents, int32_t capacity, const int32_t* count);

void write_extents(const Extents& all, fmha_extent* extents, int32_t capacity, int32_t* count);

// Fails with INVALID_ARGUMENT unless there is an address to write the number to.
void check_bytes(const int64_t* bytes);

}  // namespace fmha
