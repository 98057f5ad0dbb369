// SPDX-License-Identifier: MIT OR Apache-2.0
// The fuzzer's input, read from the front; zeros when it is used up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fmha::fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : next_(data), end_(data + size) {}

  template <typename Number>
  Number take() {
    Number value{};
    const size_t left = static_cast<size_t>(end_ - next_);
    const size_t bytes = left < sizeof value ? left : sizeof value;
    if (bytes > 0) std::memcpy(&value, next_, bytes);
    next_ += bytes;
    return value;
  }

  uint32_t below(uint32_t n) { return n <= 256 ? take<uint8_t>() % n : take<uint32_t>() % n; }
  int64_t from_to(int64_t least, int64_t most) {
    return least + below(static_cast<uint32_t>(most - least + 1));
  }
  bool chance(uint32_t one_in) { return below(one_in) == one_in - 1; }  // zeros: no

  template <typename T, size_t N>
  T one_of(const T (&values)[N]) {
    return values[below(N)];
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
};

}  // namespace fmha::fuzz
