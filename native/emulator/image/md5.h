// SPDX-License-Identifier: MIT OR Apache-2.0
// MD5 (RFC 1321) of bytes that come piece by piece: clang guards a compressed bundle with half of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fmha::emu {

class Md5 {
 public:
  void add(std::span<const uint8_t> bytes);
  // The first eight bytes of the digest, as a little-endian number. Nothing can be added afterwards.
  uint64_t low_half();

 private:
  static constexpr size_t kBlock = 64;
  void add_block(const uint8_t* block);

  std::array<uint32_t, 4> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<uint8_t, kBlock> rest_{};  // of a block that is not whole
  uint64_t total_ = 0;
};

}  // namespace fmha::emu
