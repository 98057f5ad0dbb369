// SPDX-License-Identifier: MIT OR Apache-2.0
// Data formats of typed buffers: an element of memory of up to four components, and the registers it becomes.
// Formats and meaning: CDNA3 ISA, "Memory Buffer Instructions", data and number format tables. The
// device guesses nothing that the manual leaves open: see stores_defined().
#pragma once

#include "isa/vector/valu_float.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

enum class NumberFormat : u8 { kUnorm, kSnorm, kUscaled, kSscaled, kUint, kSint, kReserved, kFloat };

// Components lie from the lowest bits up; the names of the packed formats count from the highest down.
struct DataFormat {
  u8 components;  // 0: no such format
  u8 bits[4];
  u8 bytes;
};
inline constexpr DataFormat kDataFormats[16] = {
    {0, {0, 0, 0, 0}, 0},     {1, {8, 0, 0, 0}, 1},     {1, {16, 0, 0, 0}, 2},     {2, {8, 8, 0, 0}, 2},
    {1, {32, 0, 0, 0}, 4},    {2, {16, 16, 0, 0}, 4},   {3, {11, 11, 10, 0}, 4},   {3, {10, 11, 11, 0}, 4},
    {4, {2, 10, 10, 10}, 4},  {4, {10, 10, 10, 2}, 4},  {4, {8, 8, 8, 8}, 4},      {2, {32, 32, 0, 0}, 8},
    {4, {16, 16, 16, 16}, 8}, {3, {32, 32, 32, 0}, 12}, {4, {32, 32, 32, 32}, 16}, {0, {0, 0, 0, 0}, 0},
};
// Formats whose components straddle bytes.
constexpr bool is_packed(const DataFormat& f) { return f.components > 2 && f.bits[0] % 8 != 0; }

// Tells whether a pair exists: 32 bits only as integers and floats, floats of 8 bits and of 10_10_10_2 never.
constexpr bool format_exists(u32 data, u32 number) {
  const DataFormat& f = kDataFormats[data & 15];
  const auto n = static_cast<NumberFormat>(number & 7);
  if (f.components == 0 || n == NumberFormat::kReserved) return false;
  if (f.bits[0] == 32) return n >= NumberFormat::kUint;
  return n != NumberFormat::kFloat || f.bits[0] == 16 || (is_packed(f) && f.components == 3);
}
// Stores whose conversion the manual gives: not those that round to scaled integers and packed floats, nor
// those of some components of a packed element.
constexpr bool stores_defined(u32 data, u32 number, u32 components) {
  const DataFormat& f = kDataFormats[data & 15];
  const auto n = static_cast<NumberFormat>(number & 7);
  if (n == NumberFormat::kUscaled || n == NumberFormat::kSscaled) return false;
  return !is_packed(f) || (n != NumberFormat::kFloat && components >= f.components);
}
constexpr bool is_integer(NumberFormat n) { return n == NumberFormat::kUint || n == NumberFormat::kSint; }

inline u64 low_bits(u32 count) { return (u64{1} << count) - 1; }
inline u32 take_bits(const u8* element, u32 first, u32 count) {
  u64 word = 0;
  const u32 byte = first / 8, end = (first + count + 7) / 8;
  std::memcpy(&word, element + byte, end - byte);
  return static_cast<u32>(word >> first % 8 & low_bits(count));
}
inline void put_bits(u8* element, u32 first, u32 count, u32 value) {
  u64 word = 0;
  const u32 byte = first / 8, end = (first + count + 7) / 8;
  std::memcpy(&word, element + byte, end - byte);
  const u64 mask = low_bits(count) << first % 8;
  word = (word & ~mask) | (u64{value} << first % 8 & mask);
  std::memcpy(element + byte, &word, end - byte);
}

// A float without a sign, of five bits of exponent.
inline float small_float(u32 value, u32 bits_total) {
  const u32 fraction = bits_total - 5;
  const u32 as_half = value << (10 - fraction);  // the exponent of f16 has the same bias
  return to_f32(f16{static_cast<u16>(as_half)});
}

// A component as a register holds it: an integer, or the bits of an f32. Quotients round to nearest.
inline u32 from_memory(u32 value, u32 count, NumberFormat n) {
  const i32 extended = static_cast<i32>(value << (32 - count)) >> (32 - count);
  switch (n) {
    case NumberFormat::kUnorm:
      return raw(static_cast<float>(static_cast<double>(value) / static_cast<double>(low_bits(count))));
    case NumberFormat::kSnorm: {
      const double x = static_cast<double>(extended) / static_cast<double>(low_bits(count - 1));
      return raw(static_cast<float>(x < -1.0 ? -1.0 : x));
    }
    case NumberFormat::kUscaled:
      return raw(static_cast<float>(value));
    case NumberFormat::kSscaled:
      return raw(static_cast<float>(extended));
    case NumberFormat::kSint:
      return static_cast<u32>(extended);
    case NumberFormat::kFloat:
      if (count == 16) return raw(to_f32(f16{static_cast<u16>(value)}));
      return count == 32 ? value : raw(small_float(value, count));
    default:
      return value;
  }
}

// The reverse; false if an integer does not fit. Normalised values saturate, NaN is 0; all round to nearest
// even.
inline bool to_memory(u32 reg, u32 count, NumberFormat n, const Env& env, u32* out) {
  const float x = bits<float>(reg);
  const i32 s = static_cast<i32>(reg);
  switch (n) {
    case NumberFormat::kUnorm: {
      const double limited = x > 1.0f ? 1.0 : x > 0.0f ? static_cast<double>(x) : 0.0;
      *out = static_cast<u32>(__builtin_rint(limited * static_cast<double>(low_bits(count))));
      return true;
    }
    case NumberFormat::kSnorm: {
      const double limited = x > 1.0f ? 1.0 : x < -1.0f ? -1.0 : is_nan(x) ? 0.0 : static_cast<double>(x);
      *out = static_cast<u32>(
          static_cast<i32>(__builtin_rint(limited * static_cast<double>(low_bits(count - 1)))));
      return true;
    }
    case NumberFormat::kFloat:
      *out = count == 16 ? to_f16(x, env).raw : reg;
      return true;
    case NumberFormat::kSint:
      *out = reg;
      return s >> (count - 1) == 0 || s >> (count - 1) == -1;
    default:
      *out = reg;
      return u64{reg} <= low_bits(count);
  }
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
