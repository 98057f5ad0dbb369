// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the forward pass under any arguments: libFuzzer's entry, and that of replay.cc.
#include <cstdio>
#include <cstdlib>

#include "oracle.h"

namespace {

fmha::fuzz::Counts g_counts;

void print_counts() {
  std::fprintf(
      stderr, "fuzz: %llu cases: %llu refused, %llu accepted, of them %llu launched and %llu empty\n",
      static_cast<unsigned long long>(g_counts.cases), static_cast<unsigned long long>(g_counts.refused),
      static_cast<unsigned long long>(g_counts.accepted), static_cast<unsigned long long>(g_counts.launched),
      static_cast<unsigned long long>(g_counts.empty));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool registered = std::atexit(print_counts) == 0;
  (void)registered;
  fmha::fuzz::Device& device = fmha::fuzz::Device::get();
  fmha::fuzz::Bytes bytes(data, size);
  const fmha::fuzz::Case c = fmha::fuzz::make_case(bytes, device);
  fmha::fuzz::judge(c, bytes, device, g_counts);
  return 0;
}
