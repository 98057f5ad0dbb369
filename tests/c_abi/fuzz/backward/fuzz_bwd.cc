// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of the backward pass under any arguments: libFuzzer's entry, and that of replay.cc.
#include "backward/bwd_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fmha::fuzz::Counts counts;
  fmha::fuzz::print_counts_at_exit(counts);
  fmha::fuzz::Device& device = fmha::fuzz::Device::get();
  fmha::fuzz::Bytes bytes(data, size);
  const fmha::fuzz::BwdCase c = fmha::fuzz::make_bwd_case(bytes, device);
  fmha::fuzz::judge(c, device, counts);
  return 0;
}
