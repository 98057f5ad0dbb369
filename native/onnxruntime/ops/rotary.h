// SPDX-License-Identifier: MIT OR Apache-2.0
// The rotary embedding of an operator: two tables, and perhaps the position of each token.
#pragma once

#include "engine/call.h"
#include "engine/node.h"
#include "fmha_rocm.hpp"

namespace fmha::onnxruntime {

class Rotary {
 public:
  struct Slots {
    size_t cos, sin, positions;
  };

  Rotary() = default;
  Rotary(const Node& node, const Slots& slots, fmha_dtype dtype);

  bool given() const { return given_; }
  fmha_rotary table(const void* cos, const void* sin) const;

  // The tables of this run, and the positions of its tokens if it has them.
  void fill(const Call& call, int64_t tokens, fmha::kv_append_params& params) const;

 private:
  Slots slots_{};
  bool given_ = false, interleaved_ = false;
  int64_t positions_ = 1, half_ = 0;
};

}  // namespace fmha::onnxruntime
