// SPDX-License-Identifier: MIT OR Apache-2.0
// Access to memory by instructions that check addresses, and to LDS by its own.
#pragma once

#include "common/device.h"
#include "hip/common/rdna.h"

namespace fmha {

// The bytes that are no row of any tensor: a load from there gives 0, a store to there does nothing.
inline constexpr uint32_t kNowhere = 0x80000000;

using Resource = __amdgpu_buffer_rsrc_t;

// `bytes` from `base` on, as an instruction takes them that checks addresses.
__device__ inline Resource resource(const void* base, uint32_t bytes) {
  // RDNA: of no swizzle, of 32-bit elements, raw: an offset is checked as a whole.
#if defined(__GFX10__)
  constexpr int kWord3 = 0x31014000;  // with the format's number there, and RESOURCE_LEVEL
#elif defined(FMHA_RDNA)
  constexpr int kWord3 = 0x31004000;
#else
  constexpr int kWord3 = 0x00020000;
#endif
  return __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, static_cast<int>(bytes), kWord3);
}

// Loads from an address that lies in no LDS. The compiler cannot know that of one that it has read in memory.
template <typename V>
__device__ inline V global_load(const void* from) {
  return *(const __attribute__((address_space(1))) V*)(from);  // NOLINT: changes address spaces
}

using LdsByte = __attribute__((address_space(3))) uint8_t;

template <typename V>
__device__ inline V lds_load(const LdsByte* from) {
  return *reinterpret_cast<const __attribute__((address_space(3))) V*>(from);
}

template <typename V>
__device__ inline void lds_store(LdsByte* to, V x) {
  *reinterpret_cast<__attribute__((address_space(3))) V*>(to) = x;
}

inline constexpr int kChunk = 16;  // bytes of LDS that a lane reads at once

}  // namespace fmha
