// SPDX-License-Identifier: MIT OR Apache-2.0
// Prints the arguments of the pingpong kernels with ff for each byte that counts and 00 for each that pads:
// the library leaves the latter as they are.
#include <cstdio>
#include <cstring>

#include "args/fwd_pingpong.h"

int main() {
  fmha::PingpongParams params;
  unsigned char bytes[sizeof params];
  std::memset(&params, 0xff, sizeof params);
  __builtin_clear_padding(&params);
  std::memcpy(bytes, &params, sizeof bytes);
  for (const unsigned char byte : bytes) std::printf("%02x", byte);
  std::puts("");
}
