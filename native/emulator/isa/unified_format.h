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
// Data formats, as gfx9 counts them.
constexpr uint8_t kOne16 = 2, kOne32 = 4, kTwo16 = 5, kPacked10First = 6, kPacked10Last = 7;
constexpr uint8_t kPacked2Last = 8, kTwo32 = 11, kFour16 = 12, kThree32 = 13, kFour32 = 14;

constexpr bool exists(uint8_t data, uint8_t number) {
  const bool small = data == kPacked10First || data == kPacked10Last;
  if (number == kReserved) return false;
  if (data == kOne32 || data == kTwo32 || data >= kThree32) return number >= kUint;
  return number != kFloat || small || data == kOne16 || data == kTwo16 || data == kFour16;
}
constexpr bool exists_from_rdna3_on(uint8_t data, uint8_t number) {
  if (data == kPacked10First || data == kPacked10Last) return number == kFloat;
  if (data != kPacked2Last) return true;
  return number == kUnorm || number == kSnorm || number == kUint || number == kSint;
}

constexpr int kNumbers = 128;
struct Table {
  BufferFormat of[kNumbers] = {};
};
constexpr Table table(bool all) {
  Table t;
  int next = 1;
  for (uint8_t data = 1; data <= kFour32; ++data) {
    for (uint8_t number = 0; number <= kFloat; ++number) {
      if (exists(data, number) && (all || exists_from_rdna3_on(data, number))) t.of[next++] = {data, number};
    }
  }
  return t;
}
inline constexpr Table kOfRdna2 = table(true), kFromRdna3On = table(false);

}  // namespace unified

// The format of a number of 7 bits.
constexpr BufferFormat unified_format(Isa isa, uint32_t number) {
  const auto& t = isa == Isa::kRdna2 ? unified::kOfRdna2 : unified::kFromRdna3On;
  return t.of[number % unified::kNumbers];
}

}  // namespace fmha::emu
