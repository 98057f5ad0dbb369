// SPDX-License-Identifier: MIT OR Apache-2.0
#include "image/md5.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace fmha::emu {
namespace {

constexpr int kSteps = 64;
constexpr int kRotate[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

// The RFC defines its constants by the sine.
std::array<uint32_t, kSteps> make_sines() {
  std::array<uint32_t, kSteps> out;
  for (int i = 0; i < kSteps; ++i) out[i] = static_cast<uint32_t>(std::fabs(std::sin(i + 1.0)) * 0x1p32);
  return out;
}

// The function of a round, and which word of the block a step of it takes.
uint32_t mix(int round, uint32_t x, uint32_t y, uint32_t z) {
  switch (round) {
    case 0:
      return (x & y) | (~x & z);
    case 1:
      return (x & z) | (y & ~z);
    case 2:
      return x ^ y ^ z;
    default:
      return y ^ (x | ~z);
  }
}

int word_of_step(int round, int step) {
  constexpr int kFactor[4] = {1, 5, 3, 7}, kStart[4] = {0, 1, 5, 0};
  return (kFactor[round] * step + kStart[round]) % 16;
}

}  // namespace

void Md5::add_block(const uint8_t* block) {
  static const auto sines = make_sines();
  uint32_t words[16];
  std::memcpy(words, block, sizeof words);  // little-endian, as this host is
  auto [a, b, c, d] = state_;
#pragma GCC unroll 64
  for (int i = 0; i < kSteps; ++i) {
    const int round = i / 16;
    const uint32_t sum = a + mix(round, b, c, d) + words[word_of_step(round, i)] + sines[i];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kRotate[round][i % 4]);
  }
  state_ = {state_[0] + a, state_[1] + b, state_[2] + c, state_[3] + d};
}

void Md5::add(std::span<const uint8_t> bytes) {
  const size_t held = total_ % kBlock;
  total_ += bytes.size();
  if (held) {
    const size_t n = std::min(kBlock - held, bytes.size());
    std::copy_n(bytes.data(), n, rest_.data() + held);
    bytes = bytes.subspan(n);
    if (held + n < kBlock) return;
    add_block(rest_.data());
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) add_block(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

uint64_t Md5::low_half() {
  const uint64_t bits = total_ * 8;
  std::array<uint8_t, kBlock> padding{0x80};
  const size_t held = total_ % kBlock, room = kBlock - sizeof bits;
  add(std::span(padding).first(held < room ? room - held : kBlock + room - held));
  uint8_t length[sizeof bits];
  std::memcpy(length, &bits, sizeof bits);
  add(length);
  return state_[0] | uint64_t{state_[1]} << 32;
}

}  // namespace fmha::emu
