// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace fmha::emu {

inline constexpr size_t kPage = 4096;
// Allocations of so many bytes use no memory before they are written.
inline constexpr size_t kUntouched = 1 << 20;

// Addresses for so many bytes that nothing else will ever get. 0: there are none left.
uint64_t reserve_addresses(size_t bytes);
// Memory that reads as poison, at an address from reserve_addresses() or anywhere (0); null: the host has
// none.
void* map_pages(size_t bytes, uint64_t at);
void unmap_pages(void* p, size_t bytes);

}  // namespace fmha::emu
