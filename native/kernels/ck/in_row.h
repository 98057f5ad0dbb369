// SPDX-License-Identifier: MIT OR Apache-2.0
// Loads that stay in their rows, for head dims below the tile's.
#pragma once

#include "ck_tile/core.hpp"

namespace fmha {

using ck_tile::index_t;

// A buffer whose loads never go beyond the end of a row. CK does not check this for V, nor for K in the
// asynchronous pipeline, which multiplies what follows a row shorter than the tile with Q's zeros (0 * NaN is
// NaN); elsewhere it loads first and discards later. Here an element outside the row gets the address of the
// buffer's end, at which the hardware reads nothing and gives zero.
template <typename Buffer>
struct InRowBuffer : Buffer {
  using T = ck_tile::remove_cvref_t<typename Buffer::type>;
  template <typename X>
  static constexpr index_t kPerVector = ck_tile::vector_traits<ck_tile::remove_cvref_t<X>>::vector_size /
                                        ck_tile::vector_traits<T>::vector_size;

  CK_TILE_HOST_DEVICE constexpr InRowBuffer() = default;
  CK_TILE_HOST_DEVICE constexpr explicit InRowBuffer(const Buffer& buffer) : Buffer(buffer) {}

  template <typename X, bool Checked = true>
  CK_TILE_DEVICE constexpr auto get(index_t i, index_t linear_offset, bool in_row,
                                    ck_tile::bool_constant<Checked> = {}) const {
    const auto bytes = static_cast<uint32_t>(this->buffer_size_ * sizeof(T));
    const auto resource = ck_tile::make_wave_buffer_resource(this->p_data_, bytes);
    const auto offset = static_cast<index_t>((i + linear_offset) * sizeof(T));
    return ck_tile::amd_buffer_load_impl<T, kPerVector<X>,
                                         ck_tile::amd_buffer_coherence_enum::coherence_default>(
        resource, in_row ? offset : static_cast<index_t>(bytes), 0);
  }

  template <typename X, bool PreNop = false>
  CK_TILE_DEVICE constexpr void async_get_raw(T* lds, index_t i, index_t linear_offset, bool in_row,
                                              ck_tile::bool_constant<PreNop> = {}) const {
    const ck_tile::int32x4_t resource = this->cached_buf_res_;
    const auto offset = static_cast<index_t>(i * sizeof(T));
    ck_tile::amd_async_buffer_load_impl<T, kPerVector<X>,
                                        ck_tile::amd_buffer_coherence_enum::coherence_default>(
        lds, resource, in_row ? offset : resource[2], 0, static_cast<index_t>(linear_offset * sizeof(T)),
        ck_tile::bool_constant<PreNop>{});
  }
};

// The same window over memory, with such loads.
template <typename Window>
CK_TILE_DEVICE auto in_row(const Window& window) {
  const auto& view = window.get_bottom_tensor_view();
  using View = ck_tile::remove_cvref_t<decltype(view)>;
  using Buffer = InRowBuffer<typename View::buffer_view>;
  const ck_tile::tensor_view<Buffer, typename View::TensorDesc> checked{Buffer(view.get_buffer_view()),
                                                                        view.get_tensor_descriptor()};
  return ck_tile::make_tile_window(checked, window.get_window_lengths(), window.get_window_origin());
}

}  // namespace fmha
