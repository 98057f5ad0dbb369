// SPDX-License-Identifier: MIT OR Apache-2.0
// A table of kernels for tests without a device: the shape of the shipped one, with one row left out here and
// there so that the selector has something to refuse. Names say what a kernel is, as the shipped ones do.
#include "catalogue/catalogue.h"

namespace fmha {
namespace {

// "\177ELF" as one raw block.
constexpr unsigned char kPacked[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 4, 0x21, 0, 0, 0x7f, 'E', 'L', 'F'};
constexpr char kHash[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

constexpr Kernel base(const char* name, DType dtype, int16_t hdim, bool mask, bool pad) {
  return {.name = name,
          .symbol = name,
          .arch = Arch::kGfx942,
          .family = Family::kFwd,
          .origin = Origin::kCk,
          .dtype = dtype,
          .block_size = 256,
          .vgpr_count = 200,
          .sgpr_count = 80,
          .lds_bytes = 16384,
          .scratch_bytes = 0,
          .code = kCodeObjects,
          .fwd = {.o_dtype = dtype,
                  .hdim_q = hdim,
                  .hdim_v = hdim,
                  .hdim_step = 8,
                  .group = false,
                  .mask = mask,
                  .pad = pad,
                  .bias = Bias::kNone,
                  .softcap = false,
                  .dropout = false,
                  .pipeline = "qr_async",
                  .tile_m = 128,
                  .tile_n = hdim,
                  .tile_nv = hdim,
                  .causal = false,
                  .compute_units = {0, 0}}};
}

constexpr Kernel fp16(const char* name, int16_t hdim, bool mask, bool pad) {
  return base(name, DType::kFp16, hdim, mask, pad);
}

constexpr Kernel with(Kernel kernel, Bias bias, bool softcap, bool dropout) {
  kernel.fwd.bias = bias;
  kernel.fwd.softcap = softcap;
  kernel.fwd.dropout = dropout;
  return kernel;
}

constexpr Kernel group(Kernel kernel) {
  kernel.fwd.group = true;
  return kernel;
}

constexpr Kernel exact(Kernel kernel) {
  kernel.fwd.hdim_step = 0;
  return kernel;
}

constexpr Kernel short_tile(Kernel kernel, int16_t rows, int16_t waves) {
  kernel.fwd.tile_m = rows;
  kernel.block_size = static_cast<int16_t>(64 * waves);
  return kernel;
}

constexpr Kernel wide_q(Kernel kernel, int16_t hdim_q) {
  kernel.fwd.hdim_q = hdim_q;
  return kernel;
}

constexpr Kernel pingpong(const char* name) {
  Kernel kernel = short_tile(base(name, DType::kBf16, 128, false, true), 256, 8);
  kernel.origin = Origin::kHip;
  kernel.fwd.pipeline = "pingpong";
  return kernel;
}

constexpr Kernel fp8(const char* name, DType o_dtype) {
  Kernel kernel = base(name, DType::kFp8, 128, false, true);
  kernel.fwd.o_dtype = o_dtype;
  kernel.fwd.hdim_step = 16;
  kernel.fwd.pipeline = "qr";
  return kernel;
}

constexpr Kernel fp8_pingpong(const char* name, DType o_dtype) {
  Kernel kernel = pingpong(name);
  kernel.arch = Arch::kGfx950;
  kernel.dtype = DType::kFp8fn;
  kernel.fwd.o_dtype = o_dtype;
  kernel.fwd.hdim_step = 16;
  return kernel;
}

constexpr Kernel of_code(const char* name, Family family, Origin origin, DType dtype) {
  Kernel kernel = base(name, dtype, 64, true, true);
  kernel.family = family;
  kernel.origin = origin;
  return kernel;
}

constexpr Kernel bwd(const char* name, DType dtype, int16_t hdim, bool alibi, bool dropout) {
  Kernel kernel = of_code(name, Family::kBwd, Origin::kCk, dtype);
  kernel.bwd = {.hdim_q = hdim,
                .hdim_v = hdim,
                .hdim_step = 8,
                .hdim_least = 0,
                .equal_hdims = false,
                .mask = BwdMask::kAny,
                .layout = BwdLayout::kAny,
                .alibi = alibi,
                .bias = false,
                .softcap = false,
                .dbias = false,
                .dropout = dropout,
                .optional = false,
                .whole = false,
                .divides_groups = false,
                .pipeline = "kr_ktr_vr_iglp",
                .tile_m = static_cast<int16_t>(hdim > 64 ? 16 : 32),
                .tile_n = static_cast<int16_t>(hdim > 128 ? 64 : 128),
                .slot_bytes = 0};
  return kernel;
}

constexpr Kernel bwd_bias(const char* name, DType dtype, int16_t hdim, bool dbias) {
  Kernel kernel = bwd(name, dtype, hdim, false, false);
  kernel.bwd.bias = true;
  kernel.bwd.dbias = dbias;
  return kernel;
}

constexpr Kernel bwd_whole(const char* name, int16_t hdim) {
  Kernel kernel = of_code(name, Family::kBwd, Origin::kHip, DType::kFp32);
  kernel.block_size = 256;
  kernel.bwd = {.hdim_q = hdim,
                .hdim_v = hdim,
                .hdim_step = 8,
                .hdim_least = 0,
                .equal_hdims = false,
                .mask = BwdMask::kAny,
                .layout = BwdLayout::kAny,
                .alibi = true,
                .bias = true,
                .softcap = true,
                .dbias = true,
                .dropout = true,
                .optional = true,
                .whole = true,
                .divides_groups = false,
                .pipeline = "two_sided",
                .tile_m = 32,
                .tile_n = 64,
                .slot_bytes = 0};
  return kernel;
}

constexpr Kernel bwd_sides(const char* name, int16_t hdim, const char* pipeline, int16_t tile) {
  Kernel kernel = bwd(name, DType::kBf16, hdim, false, false);
  kernel.origin = Origin::kHip;
  kernel.block_size = static_cast<int16_t>(2 * tile);
  kernel.bwd.whole = kernel.bwd.divides_groups = true;
  kernel.bwd.pipeline = pipeline;
  kernel.bwd.tile_m = 32;
  kernel.bwd.tile_n = tile;
  return kernel;
}

constexpr Kernel bwd_one_pass(const char* name) {
  Kernel kernel = bwd_sides(name, 128, "one_pass", 256);
  kernel.bwd.whole = false;
  kernel.bwd.layout = BwdLayout::kBatch;
  return kernel;
}

constexpr int16_t kPerBlock[] = {16, 256, 2048};  // by PartKind

constexpr Kernel part(const char* name, PartKind kind, DType dtype) {
  Kernel kernel = of_code(name, Family::kBwdParts, Origin::kHip, dtype);
  kernel.bwd_parts = {.kind = kind, .per_block = kPerBlock[static_cast<size_t>(kind)]};
  return kernel;
}

constexpr Kernel of_family(Family family, Kernel kernel) {
  kernel.family = family;
  return kernel;
}

constexpr Kernel of_origin(Origin origin, Kernel kernel) {
  kernel.origin = origin;
  return kernel;
}

constexpr Kernel of_arch(Arch arch, Kernel kernel) {
  kernel.arch = arch;
  return kernel;
}

}  // namespace

extern const CodeObject kCodeObjects[] = {
    {.packed = kPacked, .packed_bytes = sizeof kPacked, .bytes = 4, .sha256 = kHash, .base = nullptr}};
extern const size_t kCodeObjectCount = 1;

extern const Kernel kKernels[] = {
    // The library does not know the family, the origin or the arch of these: it never chooses them.
    of_family(static_cast<Family>(kFamilyCount), fp16("other_d64", 64, false, false)),
    of_origin(static_cast<Origin>(kOriginCount), fp16("foreign_d64", 64, false, false)),
    of_arch(static_cast<Arch>(kArchCount), fp16("fp16_d64_gfx", 64, false, false)),
    fp16("fp16_d64_mask_pad", 64, true, true),
    fp16("fp16_d64_pad", 64, false, true),
    fp16("fp16_d64", 64, false, false),
    fp16("fp16_d128_mask_pad", 128, true, true),
    fp16("fp16_d128_pad", 128, false, true),
    fp16("fp16_d128", 128, false, false),
    // The same tile for only its own head dim, and shorter ones.
    exact(fp16("fp16_d128_exact", 128, false, false)),
    short_tile(fp16("fp16_d128_pad_m64", 128, false, true), 64, 4),
    short_tile(fp16("fp16_d128_mask_pad_m16", 128, true, true), 16, 1),
    wide_q(fp16("fp16_d192v128_mask_pad", 128, true, true), 192),
    group(fp16("fp16_d64_group_mask_pad", 64, true, true)),
    group(fp16("fp16_d64_group_pad", 64, false, true)),
    with(fp16("fp16_d64_bias", 64, false, false), Bias::kElementwise, false, false),
    with(fp16("fp16_d64_mask_pad_bias", 64, true, true), Bias::kElementwise, false, false),
    with(fp16("fp16_d64_pad_alibi", 64, false, true), Bias::kAlibi, false, false),
    with(fp16("fp16_d64_mask_pad_alibi", 64, true, true), Bias::kAlibi, false, false),
    with(fp16("fp16_d64_mask_pad_softcap", 64, true, true), Bias::kNone, true, false),
    with(fp16("fp16_d64_mask_pad_dropout", 64, true, true), Bias::kNone, false, true),
    group(with(fp16("fp16_d64_group_mask_pad_alibi", 64, true, true), Bias::kAlibi, false, false)),
    // bf16: no masked kernel at 64, nothing but a masked one at 128.
    base("bf16_d64_pad", DType::kBf16, 64, false, true),
    base("bf16_d64", DType::kBf16, 64, false, false),
    base("bf16_d128_mask_pad", DType::kBf16, 128, true, true),
    // fp8: one output type.
    fp8("fp8_bf16_d128_pad", DType::kBf16),
    // A tile of rows that CK's limits do not allow for: never chosen.
    short_tile(exact(fp16("fp16_d64_m96", 64, false, true)), 96, 4),
    // gfx90a: only fp16.
    of_arch(Arch::kGfx90a, fp16("fp16_d64_pad_90a", 64, false, true)),
    // gfx950: one whose keys can be divided, without what merges the parts.
    of_arch(Arch::kGfx950, pingpong("bf16_d128_pad_pingpong")),
    of_arch(Arch::kGfx950, with(pingpong("bf16_d128_pad_alibi_pingpong"), Bias::kAlibi, false, false)),
    of_arch(Arch::kGfx950, with(pingpong("bf16_d128_pad_softcap_pingpong"), Bias::kNone, true, false)),
    fp8_pingpong("fp8fn_bf16_d128_pad_pingpong", DType::kBf16),
    // Backward, out of order.
    bwd("bwd_fp16_d128", DType::kFp16, 128, false, false),
    bwd("bwd_fp16_d64", DType::kFp16, 64, false, false),
    bwd("bwd_fp16_d64_alibi", DType::kFp16, 64, true, false),
    bwd("bwd_fp16_d128_dropout", DType::kFp16, 128, false, true),
    bwd_bias("bwd_fp16_d64_bias_dbias", DType::kFp16, 64, true),
    bwd_bias("bwd_fp16_d64_bias", DType::kFp16, 64, false),
    bwd_bias("bwd_bf16_d256_bias", DType::kBf16, 256, false),
    bwd("bwd_bf16_d256", DType::kBf16, 256, false, false),
    bwd_whole("bwd_fp32_d64", 64),
    part("bwd_dot_fp16", PartKind::kDot, DType::kFp16),
    part("bwd_dot_bf16", PartKind::kDot, DType::kBf16),
    part("bwd_dot_fp32", PartKind::kDot, DType::kFp32),
    part("bwd_sum_fp16", PartKind::kSum, DType::kFp16),
    part("bwd_sum_fp32", PartKind::kSum, DType::kFp32),
    part("bwd_bias_fp16", PartKind::kBias, DType::kFp16),
    part("bwd_bias_fp32", PartKind::kBias, DType::kFp32),
    of_arch(Arch::kGfx90a, bwd("bwd_fp16_d64_90a", DType::kFp16, 64, false, false)),
    // gfx950: only one that comes prebuilt.
    of_arch(Arch::kGfx950,
            of_origin(Origin::kAiter, bwd("bwd_fp16_d128_950", DType::kFp16, 128, false, false))),
    of_arch(Arch::kGfx950, bwd_sides("bwd_bf16_d128_pingpong", 128, "pingpong", 256)),
    of_arch(Arch::kGfx950, bwd_one_pass("bwd_bf16_d128_one_pass")),
    of_arch(Arch::kGfx950, bwd_sides("bwd_bf16_d256_wide", 256, "wide", 128)),
    of_arch(Arch::kGfx950, part("bwd_dot_bf16_950", PartKind::kDot, DType::kBf16)),
    of_arch(Arch::kGfx950, part("bwd_sum_bf16_950", PartKind::kSum, DType::kBf16)),
};
extern const size_t kKernelCount = sizeof kKernels / sizeof kKernels[0];
extern const AbsentKernel kAbsentKernels[] = {
    {"default", "FMHA_KERNEL_SET=default", group(with(fp16("", 64, true, true), Bias::kNone, false, true))},
    {"full", "FMHA_KERNEL_SET=full", group(with(fp16("", 128, true, true), Bias::kNone, false, true))},
    {"full", "FMHA_KERNEL_SET=full", base("", DType::kFp32, 64, true, true)},
    {"default", "FMHA_KERNEL_SET=default", bwd("", DType::kFp16, 64, true, true)},
    {"default", "FMHA_KERNEL_SET=default", of_arch(Arch::kGfx950, bwd("", DType::kFp16, 128, false, false))},
    {"ci", "FMHA_GPU_TARGETS=all", of_arch(Arch::kGfx90a, base("", DType::kBf16, 64, false, true))},
};
extern const size_t kAbsentKernelCount = sizeof kAbsentKernels / sizeof kAbsentKernels[0];
extern const char* const kBuildInfoJson = "{}";

}  // namespace fmha
