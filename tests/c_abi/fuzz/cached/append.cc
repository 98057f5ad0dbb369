// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of appending to a cache under any arguments: libFuzzer's entry, and that of replay.cc.
#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "cached/cache.h"
#include "mutate.h"
#include "problem.h"

namespace fmha::fuzz {
namespace {

constexpr int64_t kHeadDims[] = {64, 128, 32, 40, 8, 72, 256, 16};
constexpr int64_t kMostPositions = 90;

struct AppendCase {
  using Params = fmha_kv_append_params;

  Params params;
  CacheCase cache;
  std::vector<uint8_t> raw;
  Puts puts;
  int mutations = 0;

  const Params* pointer() const { return reinterpret_cast<const Params*>(raw.data()); }
  static void* workspace() { return nullptr; }
  static int64_t workspace_bytes() { return 0; }
};

void print(const AppendCase& c) {
  print(fields_of(c.params), &c.params);
  std::fprintf(stderr, "cache:\n");
  print(fields_of(c.cache.params), &c.cache.params);
  for (const Put& put : c.puts) {
    std::fprintf(stderr, "*%s:", name_of(put.region));
    for (const int32_t value : put.values) std::fprintf(stderr, " %d", value);
    std::fprintf(stderr, "\n");
  }
}

bool is_below(int64_t x, int64_t count) { return x >= 0 && x < count; }

int64_t number(const void* data, bool wide, int64_t at) {
  return wide ? static_cast<const int64_t*>(data)[at] : static_cast<const int32_t*>(data)[at];
}

// The places in the cache where an append writes, as fmha_rocm.h defines them.
class Places {
 public:
  // If `written` is null, places are only compared with each other.
  Places(const AppendCase& c, const Written* written) : p_(c.params), c_(c.cache.params), written_(written) {}

  // Marks every place. Returns whether each is written once.
  bool mark() {
    for (int64_t b = 0; b < p_.batch; ++b) {
      for (int64_t i = 0; i < p_.seqlen; ++i) token(b, i);
    }
    return distinct_;
  }

 private:
  void token(int64_t b, int64_t i) {
    int64_t row = i, index = b * p_.seqlen + i;
    if (p_.cu_seqlens != nullptr) {
      row = index = p_.cu_seqlens[b] + i;
      if (row >= p_.cu_seqlens[b + 1] || !is_below(row, p_.total)) return;
    }
    const int64_t place = (p_.seqused_k != nullptr ? p_.seqused_k[b] : 0) + i;
    const bool rotates = p_.rotary.cos != nullptr && (p_.q.data != nullptr || p_.k.data != nullptr);
    const int64_t position =
        p_.positions == nullptr ? place : number(p_.positions, p_.positions_int64 != 0, index);
    if (rotates && !is_below(position, p_.rotary.positions)) return;
    if (p_.q.data != nullptr) query(b, row);
    int64_t page = 0, slot = 0;
    if ((p_.k.data != nullptr || p_.v.data != nullptr) && find(b, index, place, page, slot))
      store(page, slot);
  }

  void query(int64_t b, int64_t row) {
    const fmha_tensor& t = p_.q_out.data != nullptr ? p_.q_out : p_.q;
    const bool packed = p_.cu_seqlens != nullptr;
    const int64_t rows = packed ? p_.total : p_.seqlen;
    distinct_ &= rows_.insert({packed ? 0 : b, row}).second;
    if (written_ == nullptr) return;
    for (int64_t head = 0; head < p_.nhead_q; ++head) {
      const int64_t at = (packed || p_.batch == 1 ? 0 : b * t.stride_batch) +
                         (rows == 1 ? 0 : row * t.stride_seqlen) +
                         (p_.nhead_q == 1 ? 0 : head * t.stride_head);
      written_->take(t.data, 2 * at, 2 * p_.hdim_q);
    }
  }

  bool find(int64_t b, int64_t index, int64_t place, int64_t& page, int64_t& slot) const {
    if (p_.slots != nullptr) {
      const int64_t at = number(p_.slots, p_.slots_int64 != 0, index);
      page = at / c_.page_size, slot = at % c_.page_size;
      return at >= 0 && page < c_.pages;
    }
    if (place < 0) return false;
    page = b, slot = place;
    const int64_t n = place / c_.page_size;
    if (c_.block_table != nullptr) {
      if (n >= c_.max_pages) return false;
      page = c_.block_table[(p_.batch > 1 ? b * c_.stride_block_table : 0) + n];
      slot = place % c_.page_size;
    } else if (c_.kv_indptr != nullptr) {
      const int64_t at = c_.kv_indptr[b] + n;
      if (at >= c_.kv_indptr[b + 1] || !is_below(at, c_.indices)) return false;
      page = c_.kv_indices[at];
      slot = place % c_.page_size;
    } else if (c_.cache_batch_idx != nullptr) {
      page = c_.cache_batch_idx[b];
    }
    return is_below(page, c_.pages) && slot < c_.page_size;
  }

  void store(int64_t page, int64_t slot) {
    const int64_t size = element_bytes(c_.dtype);
    distinct_ &= places_.insert({page, slot}).second;
    if (written_ == nullptr) return;
    for (int64_t head = 0; head < p_.nhead_k; ++head) {
      for (int64_t dim = 0; p_.k.data != nullptr && dim < p_.hdim_q; ++dim) {
        written_->take(c_.k.data, size * key_offset(c_, page, slot, head, p_.nhead_k, dim), size);
      }
      for (int64_t dim = 0; p_.v.data != nullptr && dim < p_.hdim_v; ++dim) {
        written_->take(c_.v.data, size * value_offset(c_, page, slot, head, p_.nhead_k, p_.hdim_v, dim),
                       size);
      }
    }
  }

  const fmha_kv_append_params& p_;
  const fmha_cache& c_;
  const Written* const written_;
  std::set<std::pair<int64_t, int64_t>> rows_, places_;
  bool distinct_ = true;
};

void mark_written(const AppendCase& c, bool /*needs_workspace*/, const Written& written) {
  (void)Places(c, &written).mark();
}

// Two tokens of one place are the caller's fault, which the device finds.
bool is_small(const AppendCase& c, const fmha_kernel_info& info) {
  const fmha_kv_append_params& p = c.params;
  const uint64_t groups = uint64_t{info.grid[0]} * info.grid[1] * info.grid[2];
  return groups <= 64 && p.batch * p.seqlen * (p.nhead_q + 2 * p.nhead_k) <= 2048 && p.hdim_q <= 4096 &&
         p.hdim_v <= 4096 && (info.step_count == 0 || Places(c, nullptr).mark());
}

void put_numbers(Bytes& bytes, Region region, int64_t count, int64_t most, bool wide, Puts& puts) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(number_below(bytes, most));
    if (wide) values.push_back(values.back() < 0 ? -1 : 0);
  }
  puts.push_back({region, values});
}

void make_rotary(Bytes& bytes, const Device& device, AppendCase& c) {
  fmha_kv_append_params& p = c.params;
  fmha_rotary& r = p.rotary;
  r.interleaved = bytes.chance(2) ? 1 : 0;
  const int64_t step = r.interleaved != 0 ? 8 : 16;
  if (p.hdim_q < step) return;
  r.dim = step * bytes.from_to(1, p.hdim_q / step);
  r.dtype = bytes.chance(2) ? FMHA_FP32 : 0;
  r.positions = bytes.from_to(30, kMostPositions);
  r.stride_position = r.dim / 2;
  r.cos = device.start(kBias);
  r.sin = device.start(kRandval);
}

AppendCase make_append(Bytes& bytes, const Device& device) {
  AppendCase c{};
  fmha_kv_append_params& p = c.params;
  p.struct_size = sizeof p;
  p.dtype = bytes.chance(2) ? FMHA_FP16 : FMHA_BF16;
  p.batch = bytes.from_to(1, 3);
  p.seqlen = bytes.from_to(1, 9);
  p.nhead_k = bytes.from_to(1, 2);
  p.nhead_q = bytes.from_to(1, 3);
  p.hdim_q = bytes.one_of(kHeadDims);
  p.hdim_v = bytes.chance(4) ? bytes.one_of(kHeadDims) : p.hdim_q;
  const bool packed = bytes.chance(3);
  p.total = p.batch * p.seqlen;
  if (packed) {
    c.puts.push_back({kCuQ, make_starts(bytes, p.batch, p.seqlen)});
    p.cu_seqlens = reinterpret_cast<const int32_t*>(device.start(kCuQ));
  }
  const int64_t rows = packed ? p.total : p.seqlen;
  p.k = make_tensor(bytes, device.start(kDk), rows, p.nhead_k, p.hdim_q);
  p.v = make_tensor(bytes, device.start(kDv), rows, p.nhead_k, p.hdim_v);
  if (bytes.chance(2)) make_rotary(bytes, device, c);
  if (p.rotary.cos != nullptr && bytes.chance(2)) {
    p.q = make_tensor(bytes, device.start(kQ), rows, p.nhead_q, p.hdim_q);
    if (bytes.chance(2)) p.q_out = make_tensor(bytes, device.start(kO), rows, p.nhead_q, p.hdim_q);
  }
  const bool slots = bytes.chance(3);
  constexpr fmha_dtype kStored[] = {FMHA_FP8_E4M3_FNUZ, FMHA_FP8_E4M3_FN, FMHA_FP8_E4M3_FNUZ, FMHA_FP32};
  const fmha_dtype stored = bytes.chance(3) ? bytes.one_of(kStored) : p.dtype;
  int wrong_vectors = 0;
  const int64_t capacity = make_cache(bytes, device, {stored, p.batch, p.nhead_k, p.hdim_q, p.hdim_v, slots},
                                      c.cache.params, c.puts, wrong_vectors);
  if (!packed && !slots && p.seqlen > capacity) p.seqlen = capacity;
  if (slots) {
    p.slots_int64 = bytes.chance(2) ? 1 : 0;
    put_numbers(bytes, kDbias, p.total, capacity, p.slots_int64 != 0, c.puts);
    p.slots = device.start(kDbias);
  }
  if (bytes.chance(4)) {
    p.positions_int64 = bytes.chance(2) ? 1 : 0;
    put_numbers(bytes, kLse, p.total, kMostPositions, p.positions_int64 != 0, c.puts);
    p.positions = device.start(kLse);
  }
  if (bytes.chance(4) || !bytes.chance(3)) {
    put_numbers(bytes, kUsedK, p.batch, capacity, false, c.puts);
    p.seqused_k = reinterpret_cast<const int32_t*>(device.start(kUsedK));
  }
  c.mutations = std::max(static_cast<int>(bytes.below(6)) - 2, 0);
  for (int i = 0; i < c.mutations; ++i) {
    bytes.chance(2) ? mutate(bytes, device, fields_of(c.cache.params), &c.cache.params)
                    : mutate(bytes, device, fields_of(p), &p);
  }
  c.mutations += wrong_vectors;
  make_enormous(bytes, c.cache.params, c.mutations);
  c.cache.raw = make_raw(bytes, c.cache.params, c.mutations);
  p.cache = c.cache.pointer();
  c.raw = make_raw(bytes, p, c.mutations);
  return c;
}

}  // namespace
}  // namespace fmha::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fmha::fuzz;
  static constexpr Entries<fmha_kv_append_params> kEntries = {
      "fmha_kv_append",       fmha_kv_append_supported, fmha_kv_append_kernel, nullptr,
      fmha_kv_append_extents, fmha_kv_append_prepare,   fmha_kv_append};
  judge_input(data, size, make_append, kEntries);
  return 0;
}
