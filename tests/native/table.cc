// SPDX-License-Identifier: MIT OR Apache-2.0
// A table of kernels for tests without a device: the shape of the shipped one, with one row left out here and
// there so that the selector has something to refuse.
#include "catalogue.h"

namespace fmha {
namespace {

alignas(4096) constexpr unsigned char kImage[4096] = {0x7f, 'E', 'L', 'F'};
constexpr char kHash[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

constexpr Kernel row(const char* name, Arch arch, DType dtype, int16_t hdim, bool mask, bool pad) {
  return {.name = name,
          .arch = arch,
          .family = Family::kFwd,
          .dtype = dtype,
          .hdim_q = hdim,
          .hdim_v = hdim,
          .mask = mask,
          .pad = pad,
          .tile_m = 128,
          .tile_n = hdim,
          .tile_nv = hdim,
          .block_size = 256,
          .vgpr_count = 200,
          .sgpr_count = 80,
          .lds_bytes = 16384,
          .scratch_bytes = 0,
          .image = kImage,
          .image_bytes = sizeof kImage,
          .sha256 = kHash};
}

}  // namespace

extern const Kernel kKernels[] = {
    row("fp16_d64_mask_pad", Arch::kGfx942, DType::kFp16, 64, true, true),
    row("fp16_d64_pad", Arch::kGfx942, DType::kFp16, 64, false, true),
    row("fp16_d64", Arch::kGfx942, DType::kFp16, 64, false, false),
    row("fp16_d128_mask_pad", Arch::kGfx942, DType::kFp16, 128, true, true),
    row("fp16_d128_pad", Arch::kGfx942, DType::kFp16, 128, false, true),
    row("fp16_d128", Arch::kGfx942, DType::kFp16, 128, false, false),
    // bf16: no masked kernel at 64, nothing but a masked one at 128.
    row("bf16_d64_pad", Arch::kGfx942, DType::kBf16, 64, false, true),
    row("bf16_d64", Arch::kGfx942, DType::kBf16, 64, false, false),
    row("bf16_d128_mask_pad", Arch::kGfx942, DType::kBf16, 128, true, true),
    // gfx90a: fp16 alone.
    row("fp16_d64_pad_90a", Arch::kGfx90a, DType::kFp16, 64, false, true),
};
extern const size_t kKernelCount = sizeof kKernels / sizeof kKernels[0];
extern const char* const kBuildInfoJson = "{}";

}  // namespace fmha
