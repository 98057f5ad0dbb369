// SPDX-License-Identifier: MIT OR Apache-2.0
// Backward problems out of the fuzzer's bytes: see problem.h.
#pragma once

#include <cstdint>
#include <vector>

#include "bytes.h"
#include "device.h"
#include "problem.h"

namespace fmha::fuzz {

struct BwdCase {
  Case forward;
  fmha_bwd_params params;
  std::vector<uint8_t> raw;
  int mutations = 0;  // of either struct

  const fmha_bwd_params* pointer() const { return reinterpret_cast<const fmha_bwd_params*>(raw.data()); }
};

BwdCase make_bwd_case(Bytes& bytes, const Device& device);

void print(const BwdCase& c);

// The type of the gradients.
inline fmha_dtype grad_dtype(const BwdCase& c) {
  return c.params.grad_dtype != 0 ? c.params.grad_dtype : c.forward.params.dtype;
}

}  // namespace fmha::fuzz
