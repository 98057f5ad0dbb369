// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of attention over a cache under any arguments: libFuzzer's entry, and that of replay.cc.
#include <algorithm>
#include <cstdio>

#include "cached/cache.h"
#include "mutate.h"
#include "problem.h"
#include "rows.h"

namespace fmha::fuzz {
namespace {

constexpr int64_t kHeadDims[] = {64, 128, 32, 256, 40, 8, 72, 96, 512, 160};
constexpr int64_t kLatentHeads = 20;  // more rows than a tile of 16, so that the kernel for many is chosen

struct DecodeCase {
  using Params = fmha_decode_params;

  Case forward;
  CacheCase cache;
  Params params;
  std::vector<uint8_t> raw;
  Puts puts;
  int mutations = 0;

  const Params* pointer() const { return reinterpret_cast<const Params*>(raw.data()); }
  void* workspace() const { return params.workspace; }
  int64_t workspace_bytes() const { return params.workspace_bytes; }
};

void print(const DecodeCase& c) {
  print(fields_of(c.params), &c.params);
  std::fprintf(stderr, "fwd:\n");
  print(c.forward);
  std::fprintf(stderr, "cache:\n");
  print(fields_of(c.cache.params), &c.cache.params);
  for (const Put& put : c.puts) {
    std::fprintf(stderr, "*%s:", name_of(put.region));
    for (const int32_t value : put.values) std::fprintf(stderr, " %d", value);
    std::fprintf(stderr, "\n");
  }
}

// Rows of O that a sequence has, as fmha_rocm.h takes its starts. The merge of splits does all rows.
Rows rows_written(const fmha_fwd_params& f, int64_t b, bool merged) {
  if (!is_group(f)) return {0, f.seqlen_q};
  if (merged) return {0, f.total_q};
  const int64_t first = std::clamp<int64_t>(f.cu_seqlens_q[b], 0, f.total_q);
  const int64_t end = std::clamp<int64_t>(f.cu_seqlens_q[b + 1], first, f.total_q);
  return {first, std::min(end - first, f.seqlen_q)};
}

// Two sequences of one row are the caller's fault, which the device finds.
bool is_small(const DecodeCase& c, const fmha_kernel_info& info) {
  const fmha_fwd_params& f = c.forward.params;
  const uint64_t groups = uint64_t{info.grid[0]} * info.grid[1] * info.grid[2];
  if (groups > 48 || f.seqlen_k > 8 * int64_t{info.tile_n}) return false;
  std::vector<bool> taken(static_cast<size_t>(is_group(f) && info.step_count > 0 ? f.total_q : 0));
  for (int64_t b = 0; b < f.batch && !taken.empty(); ++b) {
    const Rows rows = rows_written(f, b, false);
    for (int64_t s = rows.first; s < rows.first + rows.count; ++s) {
      if (taken[static_cast<size_t>(s)]) return false;
      taken[static_cast<size_t>(s)] = true;
    }
  }
  return true;
}

void mark_written(const DecodeCase& c, bool merged, const Written& written) {
  const fmha_fwd_params& f = c.forward.params;
  const int64_t all = is_group(f) ? f.total_q : f.seqlen_q;
  for (int64_t b = 0; b < f.batch; ++b) {
    const Rows rows = rows_written(f, b, merged);
    const bool one = is_group(f) || f.batch == 1;
    for (int64_t h = 0; h < f.nhead_q; ++h) {
      const int64_t head = f.nhead_q > 1 ? h : 0;
      for (int64_t s = rows.first; s < rows.first + rows.count; ++s) {
        const int64_t at =
            (one ? 0 : b * f.o.stride_batch) + head * f.o.stride_head + (all > 1 ? s * f.o.stride_seqlen : 0);
        written.take(f.o.data, 2 * at, 2 * f.hdim_v);
      }
      if (f.lse.data == nullptr || rows.count == 0) continue;
      const int64_t at = (one ? 0 : b * f.lse.stride_batch) + head * f.lse.stride_head + rows.first;
      written.take(f.lse.data, 4 * at, 4 * rows.count);
    }
  }
}

void put_lengths(Bytes& bytes, Region region, int64_t count, int64_t most, Puts& puts) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(number_below(bytes, most + 1));
  puts.push_back({region, values});
}

void make_queries(Bytes& bytes, const Device& device, DecodeCase& c) {
  fmha_fwd_params& f = c.forward.params;
  const auto integers = [&](Region region) { return reinterpret_cast<const int32_t*>(device.start(region)); };
  if (bytes.chance(2)) {
    f.total_q = f.batch * f.seqlen_q;
    c.puts.push_back({kCuQ, make_starts(bytes, f.batch, f.seqlen_q)});
    f.cu_seqlens_q = integers(kCuQ);
    if (bytes.chance(3)) {
      c.puts.push_back({kCuK, make_starts(bytes, f.batch, std::max<int64_t>(f.seqlen_k, 1))});
      f.cu_seqlens_k = integers(kCuK);
    }
  }
  if (!bytes.chance(4)) {
    put_lengths(bytes, kUsedK, f.batch, f.seqlen_k, c.puts);
    f.seqused_k = integers(kUsedK);
  }
  if (bytes.chance(3)) {
    put_lengths(bytes, kDbias, f.batch, std::min<int64_t>(f.seqlen_k, 20), c.puts);
    c.params.leftpad_k = integers(kDbias);
  }
  const int64_t rows = is_group(f) ? f.total_q : f.seqlen_q;
  f.q = make_tensor(bytes, device.start(kQ), rows, f.nhead_q, f.hdim_q);
  f.o = make_tensor(bytes, device.start(kO), rows, f.nhead_q, f.hdim_v);
  if (bytes.chance(2)) f.lse = {reinterpret_cast<float*>(device.start(kLse)), f.nhead_q * rows, rows};
  if (bytes.chance(4)) {
    f.alibi_slopes = reinterpret_cast<const float*>(device.start(kSlopes));
    f.alibi_stride_batch = bytes.chance(2) ? f.nhead_q : 0;
  } else if (bytes.chance(4)) {
    f.softcap = 30.0F;
  }
}

// Its size is asked for; one that is wrong is left as it is.
void make_workspace(const Device& device, fmha_decode_params& p) {
  int64_t size = 0;
  if (p.workspace != nullptr || fmha_decode_workspace_bytes(&p, &size) != FMHA_OK || size <= 0) return;
  if (size > static_cast<int64_t>(kWorkspaceBytes)) return;
  p.workspace = device.workspace(static_cast<size_t>(size));
  p.workspace_bytes = size;
}

DecodeCase make_decode(Bytes& bytes, const Device& device) {
  DecodeCase c{};
  fmha_fwd_params& f = c.forward.params;
  fmha_decode_params& p = c.params;
  p.struct_size = sizeof p;
  f.dtype = bytes.chance(2) ? FMHA_FP16 : FMHA_BF16;
  f.batch = bytes.from_to(1, 3);
  f.nhead_k = bytes.from_to(1, 2);
  f.nhead_q = f.nhead_k * bytes.from_to(1, 3);
  f.hdim_q = bytes.one_of(kHeadDims);
  f.hdim_v = bytes.chance(5) ? bytes.one_of(kHeadDims) : f.hdim_q;
  const bool latent = bytes.chance(12);
  if (latent) {  // of few sequences, whose rows fit in the tensors
    f.batch = std::min<int64_t>(f.batch, 2);
    f.nhead_k = 1, f.nhead_q = kLatentHeads, f.hdim_q = 576, f.hdim_v = 512;
  }
  f.seqlen_q = bytes.chance(2) ? 1 : bytes.from_to(1, latent ? 2 : 7);
  f.softmax_scale = 0.125F;
  constexpr fmha_mask kMasks[] = {FMHA_MASK_NONE, FMHA_MASK_CAUSAL, FMHA_MASK_WINDOW};
  f.mask = bytes.one_of(kMasks);
  f.window_left = bytes.from_to(0, 40);
  constexpr fmha_dtype kStored[] = {FMHA_FP8_E4M3_FNUZ, FMHA_FP8_E4M3_FN};
  const bool whole = f.hdim_q % 16 == 0 && f.hdim_v % 16 == 0;  // of 16 bytes
  const fmha_dtype stored = whole && bytes.chance(4) ? bytes.one_of(kStored) : f.dtype;
  int wrong_vectors = 0;
  const int64_t capacity = make_cache(bytes, device, {stored, f.batch, f.nhead_k, f.hdim_q, f.hdim_v, false},
                                      c.cache.params, c.puts, wrong_vectors);
  if (latent && c.cache.params.k_vector == 0) c.cache.params.v = c.cache.params.k;
  f.seqlen_k = bytes.chance(3) ? bytes.from_to(0, capacity) : capacity;
  make_queries(bytes, device, c);
  if (bytes.chance(4)) p.sinks = reinterpret_cast<const float*>(device.start(kRandval));
  p.num_splits = static_cast<int32_t>(bytes.from_to(0, 4));
  p.seqlen_new =
      bytes.chance(3) ? static_cast<int32_t>(bytes.from_to(0, std::min<int64_t>(f.seqlen_k, 3))) : 0;
  c.forward.mutations = std::max(static_cast<int>(bytes.below(6)) - 3, 0);
  make_wrong(bytes, device, c.forward);
  c.mutations = std::max(static_cast<int>(bytes.below(6)) - 3, 0);
  for (int i = 0; i < c.mutations; ++i) {
    bytes.chance(2) ? mutate(bytes, device, fields_of(c.cache.params), &c.cache.params)
                    : mutate(bytes, device, fields_of(p), &p);
  }
  c.mutations += c.forward.mutations + wrong_vectors;
  make_enormous(bytes, c.cache.params, c.mutations);
  c.cache.raw = make_raw(bytes, c.cache.params, c.mutations);
  p.cache = c.cache.pointer();
  p.fwd = c.forward.pointer();
  make_workspace(device, p);
  c.raw = make_raw(bytes, p, c.mutations);
  return c;
}

}  // namespace
}  // namespace fmha::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fmha::fuzz;
  static constexpr Entries<fmha_decode_params> kEntries = {
      "fmha_decode",       fmha_decode_supported, fmha_decode_kernel, fmha_decode_workspace_bytes,
      fmha_decode_extents, fmha_decode_prepare,   fmha_decode};
  judge_input(data, size, make_decode, kEntries);
  return 0;
}
