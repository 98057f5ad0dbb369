// SPDX-License-Identifier: MIT OR Apache-2.0
// The way of a score through the backward pipeline, by the hook that CK has for ALiBi: after the product of Q
// and K, and the factor `scale`, CK calls update(score, row, column), masks, and takes P = exp2(score - lse).
//
// CK's backward pipeline has no softcap, and its own elementwise bias goes through LDS, at the price of two
// barriers a step, though each lane can load what it needs: 16 neighbouring keys of four rows.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha.hpp"

namespace fmha {

using ck_tile::index_t;

// -slope * |column - the row's own column|, for base-2 exponentials. CK's is wrong from a distance of 65536
// on (see ck/fixes.h).
struct BwdAlibi {
  float slope;    // negative of the caller's, times log2(e)
  index_t shift;  // the own column of row 0

  CK_TILE_DEVICE void update(float& score, index_t row, index_t column) const {
    score += slope * __builtin_fabsf(static_cast<float>(row + shift - column));
  }
};

// An elementwise bias. Outside of the sequence it is 0, which the hardware reads from the buffer's end on: P
// of a row that is not there is multiplied by zeros, and must be finite.
template <typename T>
struct BwdBias {
  const T* data;
  index_t stride;
  index_t rows, columns;

  CK_TILE_DEVICE void update(float& score, index_t row, index_t column) const {
    const auto bytes = static_cast<uint32_t>(((rows - 1) * stride + columns) * sizeof(T));
    const auto resource = ck_tile::make_wave_buffer_resource(data, bytes);
    const bool there = row < rows && column < columns;
    const auto offset =
        there ? static_cast<index_t>((row * stride + column) * sizeof(T)) : static_cast<index_t>(bytes);
    const auto element =
        ck_tile::amd_buffer_load_impl<T, 1, ck_tile::amd_buffer_coherence_enum::coherence_default>(resource,
                                                                                                   offset, 0);
    score += ck_tile::log2e_v<float> * ck_tile::type_convert<float>(element[0]);
  }
};

// A score or P under softcap, with what CK's pipeline has no place for: the factor 1 - tanh^2 of dS. The
// pipeline keeps both in tiles of the type that the product of Q and K has. It multiplies P once, by dP - D,
// to make dS: there the factor comes in. A masked score has P 0 and factor 0.
struct CappedScore {
  float value, slope = 1.0F;

  CK_TILE_DEVICE operator float() const { return value; }
  CK_TILE_DEVICE CappedScore& operator*=(float scale) { return value *= scale, *this; }
  CK_TILE_DEVICE friend CappedScore operator-(CappedScore score, float lse) {
    return {score.value - lse, score.slope};
  }
  CK_TILE_DEVICE friend CappedScore operator-(CappedScore p) { return {-p.value, p.slope}; }
  CK_TILE_DEVICE friend float operator*(CappedScore p, float x) { return p.value * x * p.slope; }
  CK_TILE_DEVICE friend CappedScore exp2(CappedScore score) {
    return {ck_tile::exp2(score.value), score.slope};
  }
};

// tanh(y) = 1 - 2 / (exp(2 y) + 1), as forward has it, of scores times 2 log2(e) / softcap.
struct BwdSoftcap {
  float cap;  // the caller's, times log2(e)

  CK_TILE_DEVICE void update(CappedScore& score, index_t /*row*/, index_t /*column*/) const {
    const float tanh = 1.0F - 2.0F * __builtin_amdgcn_rcpf(ck_tile::exp2(score.value) + 1.0F);
    score = {tanh * cap, 1.0F - tanh * tanh};
  }
};

// These two CK finds by the type of their argument.
template <typename Distribution, typename Predicate>
CK_TILE_DEVICE void set_tile_if(ck_tile::static_distributed_tensor<CappedScore, Distribution>& scores,
                                float value, Predicate predicate) {
  ck_tile::set_tile_if(scores, CappedScore{value, 0.0F}, predicate);
}

// The numbers of a tile of scores, or of P.
template <typename Score, typename Distribution>
CK_TILE_DEVICE auto values_of(const ck_tile::static_distributed_tensor<Score, Distribution>& scores) {
  auto values = ck_tile::make_static_distributed_tensor<float>(Distribution{});
  ck_tile::static_for<0, decltype(values)::get_thread_buffer_size(), 1>{}(
      [&](auto i) { values.get_thread_buffer()(i) = scores.get_thread_buffer()[i].value; });
  return values;
}

template <typename Out, typename Distribution>
CK_TILE_DEVICE auto cast_tile(const ck_tile::static_distributed_tensor<CappedScore, Distribution>& p) {
  return ck_tile::cast_tile<Out>(values_of(p));
}

// A product, as a tile of such scores.
template <typename Gemm, typename Score>
struct ScoreGemm : Gemm {
  CK_TILE_DEVICE static constexpr auto MakeCBlockTile() {
    return ck_tile::make_static_distributed_tensor<Score>(
        decltype(Gemm::MakeCBlockTile())::get_tile_distribution());
  }

  template <typename A, typename B>
  CK_TILE_DEVICE auto operator()(const A& a, const B& b) const {
    const auto product = Gemm::operator()(a, b);
    auto scores = MakeCBlockTile();
    ck_tile::static_for<0, decltype(scores)::get_thread_buffer_size(), 1>{}(
        [&](auto i) { scores.get_thread_buffer()(i) = Score{product.get_thread_buffer()[i]}; });
    return scores;
  }
};

struct CappedPolicy : ck_tile::BlockFmhaBwdPipelineDefaultPolicy {
  template <typename Problem>
  CK_TILE_HOST_DEVICE static constexpr auto GetQKBlockGemm() {
    using Base = ck_tile::BlockFmhaBwdPipelineDefaultPolicy;
    return ScoreGemm<decltype(Base::template GetQKBlockGemm<Problem>()), CappedScore>{};
  }
};

}  // namespace fmha
