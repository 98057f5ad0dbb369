// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the merge under any arguments: libFuzzer's entry, and that of replay.cc.
#include <algorithm>

#include "cached/judge.h"
#include "mutate.h"
#include "problem.h"

namespace fmha::fuzz {
namespace {

struct MergeCase {
  using Params = fmha_merge_params;

  Params params;
  std::vector<uint8_t> raw;
  Puts puts;
  int mutations = 0;

  const Params* pointer() const { return reinterpret_cast<const Params*>(raw.data()); }
  static void* workspace() { return nullptr; }
  static int64_t workspace_bytes() { return 0; }
};

void print(const MergeCase& c) { print(fields_of(c.params), &c.params); }

bool is_small(const MergeCase& c, const fmha_kernel_info& info) {
  const fmha_merge_params& p = c.params;
  const uint64_t groups = uint64_t{info.grid[0]} * info.grid[1] * info.grid[2];
  return groups <= 64 && p.parts <= 64 && p.hdim <= 4096;
}

void mark_written(const MergeCase& c, bool /*needs_workspace*/, const Written& written) {
  const fmha_merge_params& p = c.params;
  const int64_t size = element_bytes(p.o_dtype != 0 ? p.o_dtype : p.dtype);
  const auto step = [](int64_t n, int64_t i, int64_t stride) { return n > 1 ? i * stride : 0; };
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.nhead; ++h) {
      for (int64_t s = 0; s < p.seqlen; ++s) {
        const int64_t at = step(p.batch, b, p.o.stride_batch) + step(p.nhead, h, p.o.stride_head) +
                           step(p.seqlen, s, p.o.stride_seqlen);
        written.take(p.o.data, size * at, size * p.hdim);
      }
      if (p.lse.data == nullptr) continue;
      const int64_t at = step(p.batch, b, p.lse.stride_batch) + step(p.nhead, h, p.lse.stride_head);
      written.take(p.lse.data, 4 * at, 4 * p.seqlen);
    }
  }
}

MergeCase make_merge(Bytes& bytes, const Device& device) {
  MergeCase c{};
  fmha_merge_params& p = c.params;
  constexpr fmha_dtype kTypes[] = {FMHA_FP32, FMHA_FP16, FMHA_BF16};
  p.struct_size = sizeof p;
  p.dtype = bytes.one_of(kTypes);
  p.o_dtype = bytes.chance(2) ? FMHA_FP32 : 0;
  p.lse_base = bytes.chance(2) ? FMHA_LSE_BASE2 : FMHA_LSE_NATURAL;
  p.parts = bytes.chance(3) ? bytes.from_to(1, 40) : bytes.from_to(1, 5);
  p.batch = bytes.from_to(1, 2);
  p.seqlen = bytes.from_to(1, 9);
  p.nhead = bytes.from_to(1, 3);
  p.hdim = 8 * bytes.from_to(1, 32);
  const auto bytes_of_part = [&p] { return p.batch * p.seqlen * p.nhead * (p.hdim + 16) * 4; };
  while (p.parts > 1 && p.parts * bytes_of_part() > static_cast<int64_t>(kTensorBytes)) p.parts /= 2;
  const fmha_tensor part = make_tensor(bytes, device.start(kQ), p.seqlen, p.nhead, p.hdim);
  p.o_parts = {part.data, p.batch * part.stride_batch, part.stride_batch, part.stride_seqlen,
               part.stride_head};
  const int64_t of_lse = p.nhead * p.seqlen;
  p.lse_parts = {reinterpret_cast<const float*>(device.start(kLse)), p.batch * of_lse, of_lse, p.seqlen};
  p.o = make_tensor(bytes, device.start(kO), p.seqlen, p.nhead, p.hdim);
  p.accumulate = bytes.chance(3) ? 1 : 0;
  if (p.accumulate != 0 || bytes.chance(2)) {
    p.lse = {reinterpret_cast<float*>(device.start(kDq)), of_lse, p.seqlen};
  }
  c.mutations = std::max(static_cast<int>(bytes.below(6)) - 2, 0);
  for (int i = 0; i < c.mutations; ++i) mutate(bytes, device, fields_of(p), &p);
  c.raw = make_raw(bytes, p, c.mutations);
  return c;
}

}  // namespace
}  // namespace fmha::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fmha::fuzz;
  static constexpr Entries<fmha_merge_params> kEntries = {
      "fmha_merge",       fmha_merge_supported, fmha_merge_kernel, nullptr,
      fmha_merge_extents, fmha_merge_prepare,   fmha_merge};
  judge_input(data, size, make_merge, kEntries);
  return 0;
}
