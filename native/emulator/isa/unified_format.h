// SPDX-License-Identifier: MIT OR Apache-2.0
// The formats of typed buffers on RDNA: one number for what gfx9 has two of, the data's format and the
// numbers'. It counts the pairs that exist, by data format and then by number format, from 1 on; 0 is no
// format. gfx11 has fewer of the packed ones. Source: the RDNA guides, "Buffer image format" tables.
#pragma once

#include <cstdint>

#include "archs.h"

namespace fmha::emu {

struct BufferFormat {
  uint8_t data = 0, number = 0;  // data = 0: there is no such format
};

namespace unified {

constexpr uint8_t kUnorm = 0, kSnorm = 1, kUint = 4, kSint = 5, kReserved = 6, kFloat = 7;
constexpr uint8_t kData16 = 2, kData32 = 4, kData16_16 = 5, kData10_11_11 = 6, kData11_11_10 = 7;
constexpr uint8_t kData10_10_10_2 = 8, kData32_32 = 11, kData16x4 = 12, kData32x3 = 13, kLastData = 14;

constexpr bool exists(uint8_t data, uint8_t number) {
  const bool small = data == kData10_11_11 || data == kData11_11_10;
  if (number == kReserved) return false;
  if (data == kData32 || data == kData32_32 || data >= kData32x3) return number >= kUint;
  return number != kFloat || small || data == kData16 || data == kData16_16 || data == kData16x4;
}
constexpr bool exists_from_rdna3_on(uint8_t data, uint8_t number) {
  if (data == kData10_11_11 || data == kData11_11_10) return number == kFloat;
  if (data != kData10_10_10_2) return true;
  return number == kUnorm || number == kSnorm || number == kUint || number == kSint;
}

constexpr int kNumbers = 128;
struct Table {
  BufferFormat of[kNumbers] = {};
};
constexpr Table table(bool all) {
  Table t;
  int next = 1;
  for (uint8_t data = 1; data <= kLastData; ++data) {
    for (uint8_t number = 0; number <= kFloat; ++number) {
      if (exists(data, number) && (all || exists_from_rdna3_on(data, number))) t.of[next++] = {data, number};
    }
  }
  return t;
}
inline constexpr Table kOfRdna2 = table(true), kFromRdna3On = table(false);

}  // namespace unified

// Of a number of 7 bits.
constexpr BufferFormat unified_format(Isa isa, uint32_t number) {
  const auto& t = isa == Isa::kRdna2 ? unified::kOfRdna2 : unified::kFromRdna3On;
  return t.of[number % unified::kNumbers];
}

}  // namespace fmha::emu
