// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the quantiser under any arguments: libFuzzer's entry, and that of replay.cc.
#include <algorithm>

#include "cached/judge.h"
#include "mutate.h"
#include "problem.h"

namespace fmha::fuzz {
namespace {

struct QuantizeCase {
  using Params = fmha_quantize_params;

  Params params;
  std::vector<uint8_t> raw;
  Puts puts;
  int mutations = 0;

  const Params* pointer() const { return reinterpret_cast<const Params*>(raw.data()); }
  void* workspace() const { return params.workspace; }
  int64_t workspace_bytes() const { return params.workspace_bytes; }
};

void print(const QuantizeCase& c) { print(fields_of(c.params), &c.params); }

bool is_small(const QuantizeCase& c, const fmha_kernel_info& info) {
  const fmha_quantize_params& p = c.params;
  const uint64_t groups = uint64_t{info.grid[0]} * info.grid[1] * info.grid[2];
  return groups <= 64 && p.seqlen <= 4096 && p.nhead <= 4096 && p.seqlen * p.nhead <= 4096;
}

int64_t step(int64_t n, int64_t i, int64_t stride) { return n > 1 ? i * stride : 0; }

void mark_scales(const fmha_quantize_params& p, const Written& written) {
  const bool one = p.scale_unit == FMHA_SCALE_TENSOR;
  const int64_t heads = one ? 1 : p.nhead / std::max<int64_t>(p.heads_per_scale, 1);
  const int64_t blocks =
      p.scale_unit == FMHA_SCALE_BLOCK ? (p.seqlen - 1) / std::min(p.block_tokens, p.seqlen) + 1 : 1;
  const int64_t batch = one ? 1 : p.batch;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t at = step(batch, b, p.descale.stride_batch) + step(heads, h, p.descale.stride_head) +
                           step(blocks, i, p.descale.stride_block);
        written.take(p.descale.data, 4 * at, 4);
      }
    }
  }
}

void mark_written(const QuantizeCase& c, bool /*needs_workspace*/, const Written& written) {
  const fmha_quantize_params& p = c.params;
  const int64_t size = element_bytes(p.out_dtype);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.nhead; ++h) {
      for (int64_t s = 0; s < p.seqlen; ++s) {
        const int64_t at = step(p.batch, b, p.out.stride_batch) + step(p.nhead, h, p.out.stride_head) +
                           step(p.seqlen, s, p.out.stride_seqlen);
        written.take(p.out.data, size * at, size * p.hdim);
      }
    }
  }
  if (p.out_dtype != p.dtype && p.given == 0 && p.batch * p.seqlen * p.nhead > 0) mark_scales(p, written);
}

void make_workspace(const Device& device, fmha_quantize_params& p) {
  int64_t size = 0;
  if (p.workspace != nullptr || fmha_quantize_workspace_bytes(&p, &size) != FMHA_OK || size <= 0) return;
  if (size > static_cast<int64_t>(kWorkspaceBytes)) return;
  p.workspace = device.workspace(static_cast<size_t>(size));
  p.workspace_bytes = size;
}

QuantizeCase make_quantize(Bytes& bytes, const Device& device) {
  QuantizeCase c{};
  fmha_quantize_params& p = c.params;
  constexpr fmha_dtype kTypes[] = {FMHA_FP16, FMHA_BF16};
  constexpr fmha_dtype kFp8[] = {FMHA_FP8_E4M3_FNUZ, FMHA_FP8_E4M3_FN};
  p.struct_size = sizeof p;
  p.dtype = bytes.one_of(kTypes);
  const bool rotates = bytes.chance(5);
  p.out_dtype = rotates ? p.dtype : bytes.one_of(kFp8);
  p.batch = bytes.from_to(1, 2);
  p.nhead = bytes.from_to(1, 3);
  p.seqlen = bytes.chance(4) ? bytes.from_to(1, 300) : bytes.from_to(1, 20);
  p.hadamard = rotates || bytes.chance(2) ? 1 : 0;
  p.hdim = p.hadamard != 0 ? int64_t{8} << bytes.below(6) : 8 * bytes.from_to(1, 32);
  if (!rotates) {
    p.scale_unit = static_cast<fmha_scale_unit>(bytes.from_to(FMHA_SCALE_TENSOR, FMHA_SCALE_BLOCK));
    if (p.scale_unit == FMHA_SCALE_BLOCK) p.block_tokens = bytes.from_to(1, 40);
    if (p.scale_unit != FMHA_SCALE_TENSOR && bytes.chance(3)) p.heads_per_scale = p.nhead;
    const int64_t blocks = p.block_tokens > 0 ? (p.seqlen - 1) / p.block_tokens + 1 : 1;
    p.descale = {reinterpret_cast<float*>(device.start(kLse)), p.nhead * blocks, blocks, 1};
    p.given = bytes.chance(4) ? 1 : 0;
  }
  p.x = make_tensor(bytes, device.start(kQ), p.seqlen, p.nhead, p.hdim);
  p.out = make_tensor(bytes, device.start(kO), p.seqlen, p.nhead, p.hdim);
  c.mutations = std::max(static_cast<int>(bytes.below(6)) - 2, 0);
  for (int i = 0; i < c.mutations; ++i) mutate(bytes, device, fields_of(p), &p);
  make_workspace(device, p);
  c.raw = make_raw(bytes, p, c.mutations);
  return c;
}

}  // namespace
}  // namespace fmha::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fmha::fuzz;
  static constexpr Entries<fmha_quantize_params> kEntries = {
      "fmha_quantize",       fmha_quantize_supported, fmha_quantize_kernel, fmha_quantize_workspace_bytes,
      fmha_quantize_extents, fmha_quantize_prepare,   fmha_quantize};
  judge_input(data, size, make_quantize, kEntries);
  return 0;
}
