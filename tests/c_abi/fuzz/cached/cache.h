// SPDX-License-Identifier: MIT OR Apache-2.0
// Caches out of the fuzzer's bytes, and where a token of one is.
#pragma once

#include <cstdint>
#include <vector>

#include "bytes.h"
#include "cached/judge.h"
#include "device.h"
#include "fmha_rocm.h"

namespace fmha::fuzz {

struct CacheCase {
  fmha_cache params;
  std::vector<uint8_t> raw;

  const fmha_cache* pointer() const { return reinterpret_cast<const fmha_cache*>(raw.data()); }
};

struct CacheSizes {
  fmha_dtype dtype;
  int64_t batch, nhead_k, hdim_q, hdim_v;
  bool slots;  // tokens are found by them, not by a list
};

// One that makes sense, or whose vectors do not fit, which is a mutation more. Returns the tokens that a
// sequence may have. Entries of its lists may be out of range.
int64_t make_cache(Bytes& bytes, const Device& device, const CacheSizes& sizes, fmha_cache& cache, Puts& puts,
                   int& mutations);

// Sizes whose products with the bytes of an element wrap around, now and then.
void make_enormous(Bytes& bytes, fmha_cache& cache, int& mutations);

// A number of an array, from 0 to below `most`; or, now and then, any.
int32_t number_below(Bytes& bytes, int64_t most);

// Packed sequences of up to `longest` rows; starts may be any, now and then.
std::vector<int32_t> make_starts(Bytes& bytes, int64_t batch, int64_t longest);

// Elements from a cache's first key or value to element `dim` of a token's head.
int64_t key_offset(const fmha_cache& c, int64_t page, int64_t token, int64_t head, int64_t nhead,
                   int64_t dim);
int64_t value_offset(const fmha_cache& c, int64_t page, int64_t token, int64_t head, int64_t nhead,
                     int64_t hdim_v, int64_t dim);

}  // namespace fmha::fuzz
