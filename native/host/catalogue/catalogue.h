// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels embedded in this library, one row each. The table itself is generated into the build tree from
// native/kernels/catalogue/fwd.toml and from what the compiler said of each code object.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fmha {

enum class Arch : uint8_t { kGfx90a, kGfx942 };
enum class Family : uint8_t { kFwd };
enum class DType : uint8_t { kFp16, kBf16, kFp32, kFp8 };
enum class Bias : uint8_t { kNone, kElementwise, kAlibi };

// One ELF, with the kernels of one translation unit.
struct CodeObject {
  const unsigned char* packed;  // a zstd frame
  size_t packed_bytes;
  size_t bytes;        // unpacked
  const char* sha256;  // of the ELF
};

struct Kernel {
  const char* name;  // symbol of the entry, unique within an arch
  Arch arch;
  Family family;
  DType dtype;  // of q, k and v
  DType o_dtype;
  int16_t hdim_q;  // of its tile: the problem's are these or, if hdim_step is not 0, less
  int16_t hdim_v;
  int16_t hdim_step;  // 0: head dims exactly those; n: any multiple of n up to those
  bool group;         // varlen: packed sequences
  bool mask;          // CK's generic mask: causal and windows are run-time values of it
  bool pad;           // any seqlen_k; without, a positive multiple of tile_n. Any seqlen_q either way
  Bias bias;
  bool softcap;
  bool dropout;
  bool lse;              // can store it; whether it does is a run-time choice
  const char* pipeline;  // CK's name of it: "qr_async", ...
  int16_t tile_m;        // kM0: query rows a workgroup
  int16_t tile_n;        // kN0: keys a main-loop step
  int16_t tile_nv;       // kN1: columns of V a workgroup
  int16_t block_size;
  int16_t vgpr_count;
  int16_t sgpr_count;
  int32_t lds_bytes;
  int32_t scratch_bytes;
  const CodeObject* code;
};

extern const Kernel kKernels[];
extern const size_t kKernelCount;
extern const CodeObject kCodeObjects[];
extern const size_t kCodeObjectCount;
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
    {DType::kFp32, "fp32"},
    {DType::kFp8, "fp8"},
};

const char* arch_name(Arch arch);
const char* dtype_name(DType dtype);

}  // namespace fmha
