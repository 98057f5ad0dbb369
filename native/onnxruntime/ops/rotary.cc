// SPDX-License-Identifier: MIT OR Apache-2.0
#include "ops/rotary.h"

#include "ops/dense.h"

namespace fmha::onnxruntime {

Rotary::Rotary(const Node& node, const Slots& slots, fmha_dtype dtype)
    : slots_(slots), given_(true), interleaved_(node.integer("rotary_interleaved", 0) != 0) {
  const Value& cos = node.input(slots.cos);
  if (!cos.given() || !node.input(slots.sin).given()) {
    fail(ORT_INVALID_ARGUMENT, "cos_cache and sin_cache: got none, expected both with do_rotary");
  }
  if (dtype_of(cos, "cos_cache") != dtype) {
    fail(ORT_NOT_IMPLEMENTED, "type of cos_cache: got another, expected that of the query");
  }
  positions_ = size_or(cos, 0, 1);
  half_ = size_of(cos, 1, "cos_cache");
}

fmha_rotary Rotary::table(const void* cos, const void* sin) const {
  fmha_rotary table{};
  table.cos = cos;
  table.sin = sin;
  table.positions = positions_;
  table.stride_position = half_;
  table.dim = 2 * half_;
  table.interleaved = interleaved_ ? 1 : 0;
  return table;
}

void Rotary::fill(const Call& call, int64_t tokens, fmha::kv_append_params& params) const {
  const Tensor cos = call.input(slots_.cos);
  const Tensor sin = call.input(slots_.sin);
  if (cos.rank() != 2 || cos.dim(1) != half_ || sin.dims != cos.dims) {
    fail(ORT_INVALID_ARGUMENT, "cos_cache and sin_cache: expected both (positions, %lld)",
         static_cast<long long>(half_));
  }
  params.rotary = table(cos.data, sin.data);
  params.rotary.positions = cos.dim(0);
  if (!call.has_input(slots_.positions)) return;
  const Tensor positions = call.input(slots_.positions);
  if (positions.count() != tokens) {
    fail(ORT_INVALID_ARGUMENT, "position_ids: got %lld numbers, expected %lld",
         static_cast<long long>(positions.count()), static_cast<long long>(tokens));
  }
  params.positions = positions.data;
  params.positions_int64 = 1;
}

}  // namespace fmha::onnxruntime
