// SPDX-License-Identifier: MIT OR Apache-2.0
// Dropout: the chance, and what the random numbers are a function of.
#pragma once

#include <cstdint>

namespace fmha {

struct Dropout {
  float p_drop;   // 0: none
  uint64_t seed;  // read if seed_offset is nullptr
  uint64_t offset;
  const uint64_t* seed_offset;  // device memory, {seed, offset}

  bool is_on() const { return p_drop != 0.0F; }
  // The chance to keep, as kernels count with it. One of 1 drops nothing: up to a p_drop of 2^-25.
  float p_keep() const { return static_cast<float>(1.0 - double{p_drop}); }
};

// Fails with INVALID_ARGUMENT unless p_drop is a chance from 0 to below 1, and randval is NULL without
// dropout.
void check_dropout(float p_drop, const void* randval);

}  // namespace fmha
