// SPDX-License-Identifier: MIT OR Apache-2.0
// The gradient of an elementwise bias, which is dS: the pipeline has it in registers, between the product of
// dO and V and those that make dK and dQ of it. Tiles of scores, P and dS carry where each element goes (see
// ck/bwd_scores.h for how they get in), and the cast of dS to the type of the products writes it.
//
// CK's own way rounds dS to 16 bits and brings it through LDS, at the price of three barriers a step: it
// cannot add up what the heads of a broadcast bias have in common. Here four rows of 16 neighbouring keys are
// one store of 2 bytes a lane, or one atomic addition of a float.
#pragma once

#include "ck/bwd_scores.h"
#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha.hpp"

namespace fmha {

// Where a (batch, head) has its gradient, in less than 2 GiB: the hardware writes nothing from there on.
struct DbiasTarget {
  static constexpr uint32_t kEnd = 1U << 31;

  void* data;
  bool adds;     // elements are float32, and added to; else of the bias's type, and written
  float factor;  // of dS: 1 / (1 - p_drop)
};

// A score or P.
struct BiasedScore {
  float value;
  index_t offset = 0;  // in bytes
  DbiasTarget target = {};

  CK_TILE_DEVICE operator float() const { return value; }
  CK_TILE_DEVICE BiasedScore& operator*=(float scale) { return value *= scale, *this; }
  CK_TILE_DEVICE friend BiasedScore operator-(BiasedScore score, float lse) {
    return {score.value - lse, score.offset, score.target};
  }
  CK_TILE_DEVICE friend BiasedScore operator-(BiasedScore p) { return {-p.value, p.offset, p.target}; }
  CK_TILE_DEVICE friend BiasedScore exp2(BiasedScore score) {
    return {ck_tile::exp2(score.value), score.offset, score.target};
  }
};

// dP, and what becomes of it: dS.
struct BiasedGradient {
  float value;
  index_t offset = 0;
  DbiasTarget target = {};

  CK_TILE_DEVICE operator float() const { return value; }
};

CK_TILE_DEVICE BiasedGradient operator*(BiasedScore p, float x) { return {p.value * x, p.offset, p.target}; }

template <typename T>
struct BwdBiasAndGrad {
  BwdBias<T> bias;
  DbiasTarget target;
  index_t row_bytes;  // of the gradient

  CK_TILE_DEVICE void update(BiasedScore& score, index_t row, index_t column) const {
    bias.update(score.value, row, column);
    const bool there = row < bias.rows && column < bias.columns;
    const index_t offset = row * row_bytes + (target.adds ? column * 4 : column * 2);
    score.offset = there ? offset : static_cast<index_t>(DbiasTarget::kEnd);
    score.target = target;
  }
};

// These CK finds by the type of their argument.
template <typename Distribution, typename Predicate>
CK_TILE_DEVICE void set_tile_if(ck_tile::static_distributed_tensor<BiasedScore, Distribution>& scores,
                                float value, Predicate predicate) {
  auto values = values_of(scores);
  ck_tile::set_tile_if(values, value, predicate);
  ck_tile::static_for<0, decltype(values)::get_thread_buffer_size(), 1>{}(
      [&](auto i) { scores.get_thread_buffer()(i).value = values.get_thread_buffer()[i]; });
}

template <typename Out, typename Distribution>
CK_TILE_DEVICE auto cast_tile(const ck_tile::static_distributed_tensor<BiasedScore, Distribution>& p) {
  return ck_tile::cast_tile<Out>(values_of(p));
}

template <typename Out, typename Distribution>
CK_TILE_DEVICE auto cast_tile(const ck_tile::static_distributed_tensor<BiasedGradient, Distribution>& ds) {
  const auto& elements = ds.get_thread_buffer();
  constexpr index_t kElements = ck_tile::remove_cvref_t<decltype(ds)>::get_thread_buffer_size();
  const DbiasTarget& target = elements[ck_tile::number<0>{}].target;
  const auto resource = ck_tile::make_wave_buffer_resource(target.data, DbiasTarget::kEnd);
  const auto for_each = [&](auto write) {
    ck_tile::static_for<0, kElements, 1>{}(
        [&](auto i) { write(elements[i].value * target.factor, elements[i].offset); });
  };
  if (target.adds) {
    for_each([&](float x, index_t offset) {
      ck_tile::amd_buffer_atomic_add_impl<float, 1>({x}, resource, offset, 0);
    });
  } else {
    for_each([&](float x, index_t offset) {
      ck_tile::amd_buffer_store_impl<Out, 1>({ck_tile::type_convert<Out>(x)}, resource, offset, 0);
    });
  }
  return ck_tile::cast_tile<Out>(values_of(ds));
}

struct BiasedPolicy : ck_tile::BlockFmhaBwdPipelineDefaultPolicy {
  using Base = ck_tile::BlockFmhaBwdPipelineDefaultPolicy;

  template <typename Problem>
  CK_TILE_HOST_DEVICE static constexpr auto GetQKBlockGemm() {
    return ScoreGemm<decltype(Base::template GetQKBlockGemm<Problem>()), BiasedScore>{};
  }

  template <typename Problem>
  CK_TILE_HOST_DEVICE static constexpr auto GetOGradVBlockGemm() {
    return ScoreGemm<decltype(Base::template GetOGradVBlockGemm<Problem>()), BiasedGradient>{};
  }
};

}  // namespace fmha
