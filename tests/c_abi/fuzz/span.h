// SPDX-License-Identifier: MIT OR Apache-2.0
// Where tensors lie in the device's memory, and what was written to them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "device.h"
#include "rows.h"

namespace fmha::fuzz {

using Wide = __int128;  // products of mutated sizes and strides

// Elements from the first to the last of `n` indices, each with its stride, and a row behind.
struct Span {
  Wide last = 0;
  bool empty = false;

  Span& step(int64_t n, int64_t stride) {
    if (n <= 0) {
      empty = true;
    } else {
      last += (Wide{n} - 1) * stride;
    }
    return *this;
  }
  bool inside(const Device& device, const void* data, int64_t row, int64_t size) const {
    const Wide bytes = (last + row) * size;
    return empty || row <= 0 ||
           (bytes <= (Wide{1} << 40) && device.holds(data, static_cast<uint64_t>(bytes)));
  }
};

inline bool tensor_inside(const Case& c, const Device& device, const fmha_tensor& t, int64_t rows,
                          int64_t heads, int64_t hdim, fmha_dtype dtype) {
  Span span;
  span.step(is_group(c.params) ? 1 : c.params.batch, t.stride_batch).step(rows, t.stride_seqlen);
  return span.step(heads, t.stride_head).inside(device, t.data, hdim, element_bytes(dtype));
}

inline bool is_finite(const uint8_t* at, fmha_dtype dtype) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(element_bytes(dtype)));
  switch (dtype) {
    case FMHA_FP16:
      return (bits & 0x7c00) != 0x7c00;
    case FMHA_BF16:
      return (bits & 0x7f80) != 0x7f80;
    case FMHA_FP32:
      return (bits & 0x7f800000) != 0x7f800000;
    default:
      return bits != 0x80;
  }
}

struct Result {
  std::vector<uint8_t>& before;
  const std::vector<uint8_t>& now;
  bool good = true;

  template <typename Check>
  void take(size_t at, size_t count, size_t size, const char* name, Check check) {
    for (size_t i = 0; i < count; ++i, at += size) {
      std::memcpy(before.data() + at, now.data() + at, size);
      if (!check(now.data() + at) && good) {
        std::fprintf(stderr, "fuzz: %s has a value it may not have at byte %zu of the memory\n", name, at);
        good = false;
      }
    }
  }
};

}  // namespace fmha::fuzz
