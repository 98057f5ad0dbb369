// SPDX-License-Identifier: MIT OR Apache-2.0
// The values of constant operands, by the operand's type.
#include "code/decode_internal.h"

namespace fmha::emu {
namespace {

// 0.5, -0.5, 1, -1, 2, -2, 4, -4, 1/(2 pi).
constexpr uint16_t kHalf[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
constexpr uint32_t kSingle[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
constexpr uint64_t kDouble[] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
                                0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
                                0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};

bool is_64bit(Type t) { return t == Type::kI64 || t == Type::kF64 || t == Type::kMask; }

}  // namespace

uint64_t inline_constant(uint32_t code, Type type) {
  if (code < kOpFloat) {
    const int64_t v = code < kOpIntNegative ? int64_t{code} - kOpInt : int64_t{kOpIntNegative} - 1 - code;
    if (is_64bit(type)) return static_cast<uint64_t>(v);
    if (is_half(type)) return static_cast<uint16_t>(v);
    return static_cast<uint32_t>(v);  // packed types too: GFX9 sign-extends to 32 bits
  }
  const uint32_t i = code - kOpFloat;
  switch (type) {
    case Type::kI64:
    case Type::kF64:
    case Type::kMask:
      return kDouble[i];
    // Packed f16 has the constant in the low half only; op_sel_hi = 0 is how code uses it for both.
    case Type::kF16:
    case Type::kPkF16:
      return kHalf[i];
    case Type::kBf16:
    case Type::kPkBf16:
      return kSingle[i] >> 16;
    // 16-bit integers get the single-precision value, says LLVM's getInlineEncodingV216.
    case Type::kI16:
      return kSingle[i] & 0xffff;
    default:
      return kSingle[i];
  }
}

// ISA guides, "literal expansion to 64 bits".
uint64_t literal_constant(uint32_t literal, Type type, bool is_signed) {
  switch (type) {
    case Type::kF64:
      return static_cast<uint64_t>(literal) << 32;
    case Type::kF16:
    case Type::kBf16:
    case Type::kI16:
      return literal & 0xffff;
    case Type::kI64:
      return is_signed ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(literal)}) : literal;
    default:
      return literal;
  }
}

const uint32_t* Decoder::lanes_of(uint32_t low, uint32_t high, int dwords) {
  auto [it, is_new] = pool_.try_emplace({low, high, dwords}, nullptr);
  if (is_new) {
    constexpr int kAlignDwords = 16;
    auto memory = std::make_unique<uint32_t[]>(dwords * kMostLanes + kAlignDwords);
    uint32_t* p = memory.get();
    while (reinterpret_cast<uintptr_t>(p) % (kAlignDwords * sizeof(uint32_t))) ++p;
    for (int d = 0; d < dwords; ++d) {
      for (int l = 0; l < kMostLanes; ++l) p[d * kMostLanes + l] = d % 2 ? high : low;
    }
    it->second = p;
    out_->constants.push_back(std::move(memory));
  }
  return it->second;
}

}  // namespace fmha::emu
