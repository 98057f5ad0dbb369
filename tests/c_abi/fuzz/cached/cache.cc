// SPDX-License-Identifier: MIT OR Apache-2.0
#include "cached/cache.h"

#include <algorithm>

#include "problem.h"

namespace fmha::fuzz {
namespace {

constexpr int64_t kMostPages = 12;

const int32_t* integers(const Device& device, Region region) {
  return reinterpret_cast<const int32_t*>(device.start(region));
}

void make_layout(Bytes& bytes, const Device& device, const CacheSizes& sizes, fmha_cache& c) {
  const int64_t gap = bytes.chance(4) ? 16 : 0;
  const auto rows = [&](int64_t hdim) {
    fmha_cache_tensor t{};
    t.stride_head = hdim + gap;
    t.stride_token = sizes.nhead_k * t.stride_head;
    t.stride_page = c.page_size * t.stride_token;
    return t;
  };
  const auto vectors = [&](int64_t hdim) {
    fmha_cache_tensor t{};
    t.stride_head = hdim * c.page_size;
    t.stride_page = sizes.nhead_k * t.stride_head;
    return t;
  };
  c.k = c.k_vector != 0 ? vectors(sizes.hdim_q) : rows(sizes.hdim_q);
  c.v = c.k_vector != 0 ? vectors(sizes.hdim_v) : rows(sizes.hdim_v);
  c.k.data = device.start(kK);
  c.v.data = device.start(kV);
}

void make_table(Bytes& bytes, const Device& device, int64_t batch, fmha_cache& c, Puts& puts) {
  c.max_pages = bytes.from_to(1, kMostPages);
  c.stride_block_table = c.max_pages + (bytes.chance(4) ? 3 : 0);
  c.block_table = integers(device, kDout);
  std::vector<int32_t> table(static_cast<size_t>(batch * c.stride_block_table));
  for (int32_t& entry : table) entry = number_below(bytes, c.pages);
  puts.push_back({kDout, table});
}

void make_list(Bytes& bytes, const Device& device, int64_t batch, fmha_cache& c, Puts& puts) {
  puts.push_back({kUsedQ, make_starts(bytes, batch, 4)});
  c.indices = batch * 4;
  c.kv_indptr = integers(device, kUsedQ);
  c.kv_indices = integers(device, kDq);
  std::vector<int32_t> list(static_cast<size_t>(c.indices));
  for (int32_t& entry : list) entry = number_below(bytes, c.pages);
  puts.push_back({kDq, list});
}

void make_scales(Bytes& bytes, const Device& device, int64_t nhead, fmha_cache& c) {
  const auto* at = reinterpret_cast<const float*>(device.start(kSlopes));
  c.scale_per_page = bytes.chance(2) ? 1 : 0;
  c.k_scale = {at, nhead, 1};
  c.v_scale = {at + 1, bytes.chance(2) ? nhead : 0, 1};
}

}  // namespace

void make_enormous(Bytes& bytes, fmha_cache& c, int& mutations) {
  constexpr int64_t kSizes[] = {(1L << 62) + 1, 1L << 62,  (1L << 61) + 1,
                                1L << 60,       INT64_MAX, (1L << 32) + 1};
  if (!bytes.chance(16)) return;
  (bytes.chance(3) ? c.page_size : c.pages) = bytes.one_of(kSizes);
  ++mutations;
}

int32_t number_below(Bytes& bytes, int64_t most) {
  constexpr int32_t kWrong[] = {-1, INT32_MIN, INT32_MAX, -17, 1 << 20};
  if (!bytes.chance(12)) return static_cast<int32_t>(bytes.from_to(0, std::max<int64_t>(most, 1) - 1));
  return bytes.chance(3) ? static_cast<int32_t>(most) : bytes.one_of(kWrong);
}

std::vector<int32_t> make_starts(Bytes& bytes, int64_t batch, int64_t longest) {
  std::vector<int32_t> starts = {0};
  for (int64_t b = 0; b < batch; ++b) {
    starts.push_back(starts.back() + static_cast<int32_t>(bytes.from_to(0, longest)));
  }
  if (bytes.chance(4)) {
    starts[bytes.below(static_cast<uint32_t>(starts.size()))] = number_below(bytes, batch * longest);
  }
  return starts;
}

int64_t make_cache(Bytes& bytes, const Device& device, const CacheSizes& sizes, fmha_cache& c, Puts& puts,
                   int& mutations) {
  c.struct_size = sizeof c;
  c.dtype = sizes.dtype;
  const int64_t size = element_bytes(c.dtype);
  const uint32_t kind = bytes.below(3);
  const bool paged = sizes.slots || kind != 2;
  c.page_size =
      paged && !(sizes.slots && bytes.chance(3)) ? int64_t{1} << bytes.below(7) : bytes.from_to(1, 90);
  c.pages = paged ? bytes.from_to(1, kMostPages) : std::max(sizes.batch, bytes.from_to(1, 4));
  const int64_t row = sizes.nhead_k * (std::max(sizes.hdim_q, sizes.hdim_v) + 16) * size;
  while (c.page_size > 1 && c.pages * c.page_size * row > static_cast<int64_t>(kTensorBytes))
    c.page_size /= 2;
  while (c.pages > 1 && c.pages * c.page_size * row > static_cast<int64_t>(kTensorBytes)) --c.pages;
  if (paged && bytes.chance(2)) {
    c.k_vector = static_cast<int32_t>(16 / size);
    c.v_vector = bytes.chance(3) ? 16 : 8;
    if (c.page_size % c.v_vector != 0 || sizes.hdim_q % c.k_vector != 0) ++mutations;
  }
  make_layout(bytes, device, sizes, c);
  if (size == 1 && bytes.chance(2)) make_scales(bytes, device, sizes.nhead_k, c);
  if (sizes.slots) return c.pages * c.page_size;
  if (kind == 0) {
    make_table(bytes, device, sizes.batch, c, puts);
    return c.max_pages * c.page_size;
  }
  if (kind == 1) {
    make_list(bytes, device, sizes.batch, c, puts);
    return c.indices * c.page_size;
  }
  if (c.pages < sizes.batch || bytes.chance(2)) {
    std::vector<int32_t> elements(static_cast<size_t>(sizes.batch));
    for (int32_t& element : elements) element = number_below(bytes, c.pages);
    c.cache_batch_idx = integers(device, kPhilox);
    puts.push_back({kPhilox, elements});
  }
  return c.page_size;
}

int64_t key_offset(const fmha_cache& c, int64_t page, int64_t token, int64_t head, int64_t nhead,
                   int64_t dim) {
  const int64_t begin = (c.pages > 1 ? page * c.k.stride_page : 0) + (nhead > 1 ? head * c.k.stride_head : 0);
  if (c.k_vector == 0) return begin + (c.page_size > 1 ? token * c.k.stride_token : 0) + dim;
  return begin + (dim / c.k_vector * c.page_size + token) * c.k_vector + dim % c.k_vector;
}

int64_t value_offset(const fmha_cache& c, int64_t page, int64_t token, int64_t head, int64_t nhead,
                     int64_t hdim_v, int64_t dim) {
  const int64_t begin = (c.pages > 1 ? page * c.v.stride_page : 0) + (nhead > 1 ? head * c.v.stride_head : 0);
  if (c.k_vector == 0) return begin + (c.page_size > 1 ? token * c.v.stride_token : 0) + dim;
  return begin + (token / c.v_vector * hdim_v + dim) * c.v_vector + token % c.v_vector;
}

}  // namespace fmha::fuzz
