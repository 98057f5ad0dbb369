// SPDX-License-Identifier: MIT OR Apache-2.0
// How the exports of emu_tools.h hand text to a caller's buffer.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

namespace fmha::emu {

// Writes as much as fits of the text and a NUL, and returns the bytes needed for all of it, NUL included.
inline int copy_out(const std::string& s, char* out, size_t out_bytes) {
  if (out && out_bytes) {
    const size_t n = s.size() < out_bytes ? s.size() : out_bytes - 1;
    std::memcpy(out, s.data(), n);
    out[n] = 0;
  }
  return static_cast<int>(s.size() + 1);
}

}  // namespace fmha::emu
