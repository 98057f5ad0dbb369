// SPDX-License-Identifier: MIT OR Apache-2.0
// How many workgroups of a kernel a compute unit holds, for functions of modules and for host stubs.
#include <algorithm>

#include "hip/graph/graph.h"
#include "model/unit_shape.h"

namespace fmha::emu {
namespace {

// Workgroups of a kernel that fit a compute unit: by registers, waves and LDS.
int groups_per_unit(const KernelCode& k, int block_size, size_t dynamic_lds) {
  const auto lanes = static_cast<uint32_t>(k.wave_size);
  const uint32_t waves = (static_cast<uint32_t>(block_size) + lanes - 1) / lanes;
  const Card& card = device_card();
  const auto [file, granule] = vgpr_file(card, device_arch(), k.wave_size);
  const uint64_t registers =
      std::max<uint64_t>(1, (k.vgpr_count + k.agpr_count + granule - 1) / granule * granule);
  const uint64_t waves_of_unit =
      std::min(card.most_waves_per_simd.value, file / std::min(registers, file)) * card.simds_per_cu.value;
  const uint64_t lds = k.lds_bytes + dynamic_lds;
  if (lds > card.lds_bytes_per_cu.value) return 0;
  const uint64_t by_lds = lds ? card.lds_bytes_per_cu.value / lds : ~uint64_t{0};
  return static_cast<int>(std::min<uint64_t>(waves_of_unit / waves, by_lds));
}

// A kernel by either kind of handle; null with the error recorded.
const KernelCode* kernel_of(HipFunction function, const char* caller) {
  const Function* f = find_function(function, caller);
  return f ? f->kernel : nullptr;
}
const KernelCode* kernel_of(const void* stub, const char* caller) {
  const HipFunction f = stub_function(stub, current_device(), caller);
  return f ? f->kernel : nullptr;
}

template <class Kernel>
int most_groups(int* count, Kernel kernel, int block_size, size_t dynamic_lds, const char* caller,
                int missing) {
  return guarded([&] {
    if (!count || block_size <= 0)
      return fail(hipErrorInvalidValue, "%s: numBlocks is null, or blockSize is %d", caller, block_size);
    const KernelCode* k = kernel_of(kernel, caller);
    if (!k) return missing;
    *count = groups_per_unit(*k, block_size, dynamic_lds);
    return static_cast<int>(hipSuccess);
  });
}

// The block size that fills a compute unit best, and the grid that fills all.
template <class Kernel>
int best_block(int* grid, int* block, Kernel kernel, size_t dynamic_lds, int limit, const char* caller,
               int missing) {
  return guarded([&] {
    if (!grid || !block) return fail(hipErrorInvalidValue, "%s: gridSize or blockSize is null", caller);
    const KernelCode* k = kernel_of(kernel, caller);
    if (!k) return missing;
    int best = 0;
    const int most = std::min(limit > 0 ? limit : 1024, static_cast<int>(k->max_workgroup_size));
    const int lanes = k->wave_size;
    for (int size = lanes; size <= most; size += lanes) {
      const int threads = size * groups_per_unit(*k, size, dynamic_lds);
      if (threads < best) continue;
      best = threads;
      *block = size;
    }
    if (!best) return fail(hipErrorInvalidConfiguration, "%s: no block size fits", caller);
    *grid = static_cast<int>(device_card().compute_units.value) * best / *block;
    return static_cast<int>(hipSuccess);
  });
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

// The flags say what becomes of caches, of which there is nothing to say.
HIP_API int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* count, HipFunction function,
                                                               int block_size, size_t dynamic_lds) {
  return most_groups(count, function, block_size, dynamic_lds,
                     "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", hipErrorInvalidHandle);
}
HIP_API int hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, HipFunction function,
                                                                        int block_size, size_t dynamic_lds,
                                                                        unsigned) {
  return most_groups(count, function, block_size, dynamic_lds,
                     "hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", hipErrorInvalidHandle);
}
HIP_API int hipModuleOccupancyMaxPotentialBlockSize(int* grid, int* block, HipFunction function,
                                                    size_t dynamic_lds, int limit) {
  return best_block(grid, block, function, dynamic_lds, limit, "hipModuleOccupancyMaxPotentialBlockSize",
                    hipErrorInvalidHandle);
}
HIP_API int hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, HipFunction function,
                                                             size_t dynamic_lds, int limit, unsigned) {
  return best_block(grid, block, function, dynamic_lds, limit,
                    "hipModuleOccupancyMaxPotentialBlockSizeWithFlags", hipErrorInvalidHandle);
}
HIP_API int hipOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void* function, int block_size,
                                                         size_t dynamic_lds) {
  return most_groups(count, function, block_size, dynamic_lds, "hipOccupancyMaxActiveBlocksPerMultiprocessor",
                     hipErrorInvalidDeviceFunction);
}
HIP_API int hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void* function,
                                                                  int block_size, size_t dynamic_lds,
                                                                  unsigned) {
  return most_groups(count, function, block_size, dynamic_lds,
                     "hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", hipErrorInvalidDeviceFunction);
}
HIP_API int hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* function, size_t dynamic_lds,
                                              int limit) {
  return best_block(grid, block, function, dynamic_lds, limit, "hipOccupancyMaxPotentialBlockSize",
                    hipErrorInvalidDeviceFunction);
}
