// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels embedded in this library, one row each. The table itself is generated into the build tree from
// native/kernels/catalogue.toml and from what the compiler said of each code object.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fmha {

enum class Arch : uint8_t { kGfx90a, kGfx942 };
enum class Family : uint8_t { kFwd };
enum class DType : uint8_t { kFp16, kBf16 };

struct Kernel {
  const char* name;  // symbol of the entry, unique within an arch
  Arch arch;
  Family family;
  DType dtype;
  int16_t hdim_q;
  int16_t hdim_v;
  bool mask;        // CK's generic mask: causal and windows are run-time values of it
  bool pad;         // any seqlen_k; without, a positive multiple of tile_n. Any seqlen_q either way
  int16_t tile_m;   // kM0: query rows a workgroup
  int16_t tile_n;   // kN0: keys a main-loop step
  int16_t tile_nv;  // kN1: columns of V a workgroup
  int16_t block_size;
  int16_t vgpr_count;
  int16_t sgpr_count;
  int32_t lds_bytes;
  int32_t scratch_bytes;
  const unsigned char* image;  // the ELF, 4096-byte aligned
  size_t image_bytes;
  const char* sha256;
};

extern const Kernel kKernels[];
extern const size_t kKernelCount;
extern const char* const kBuildInfoJson;  // what fmha_build_info returns

// What is known of an arch besides its kernels.
struct ArchInfo {
  Arch arch;
  const char* name;
  int capability_major;  // HIP's compute capability: the version in the name without its stepping
  int capability_minor;
};

inline constexpr ArchInfo kArchs[] = {
    {Arch::kGfx90a, "gfx90a", 9, 0},
    {Arch::kGfx942, "gfx942", 9, 4},
};

struct DTypeInfo {
  DType dtype;
  const char* name;
};

inline constexpr DTypeInfo kDTypes[] = {
    {DType::kFp16, "fp16"},
    {DType::kBf16, "bf16"},
};

const char* arch_name(Arch arch);
const char* dtype_name(DType dtype);

}  // namespace fmha
