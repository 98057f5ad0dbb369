// SPDX-License-Identifier: MIT OR Apache-2.0
// The code that the memory instructions share: it moves the values of 64 lanes between registers and host
// memory that has been checked already.
#pragma once

#include <emmintrin.h>

#include <cstdint>
#include <cstring>

#include "isa/lanes.h"

namespace fmha::emu::FMHA_EMU_LEVEL {

// The data that a lane moves. Loads of bytes and words extend them; the D16 kinds keep the register's other
// half.
enum class Width : uint8_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU8D16,
  kU8D16Hi,
  kI8D16,
  kI8D16Hi,
  kD16,
  kD16Hi,
  kB32,
  kB64,
  kB96,
  kB128,
};

constexpr uint32_t bytes_of(Width w) {
  switch (w) {
    case Width::kU8:
    case Width::kI8:
    case Width::kU8D16:
    case Width::kU8D16Hi:
    case Width::kI8D16:
    case Width::kI8D16Hi:
      return 1;
    case Width::kU16:
    case Width::kI16:
    case Width::kD16:
    case Width::kD16Hi:
      return 2;
    case Width::kB32:
      return 4;
    case Width::kB64:
      return 8;
    case Width::kB96:
      return 12;
    default:
      return 16;
  }
}
constexpr Type type_of(Width w) {
  switch (w) {
    case Width::kB64:
      return Type::kI64;
    case Width::kB96:
      return Type::kB96;
    case Width::kB128:
      return Type::kB128;
    default:
      return Type::kI32;
  }
}
constexpr bool keeps_half(Width w) { return w >= Width::kU8D16 && w <= Width::kD16Hi; }

template <class T>
[[gnu::always_inline]] inline T load_as(const uint8_t* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

inline uint32_t low_half(uint32_t old, uint32_t x) { return (old & 0xffff0000) | (x & 0xffff); }
inline uint32_t high_half(uint32_t old, uint32_t x) { return (old & 0xffff) | x << 16; }

// Lane l of the registers at `d` gets what is at `p`.
template <Width kWidth>
[[gnu::always_inline]] inline void load_lane(uint32_t* d, int l, const uint8_t* p) {
  switch (kWidth) {
    case Width::kU8:
      d[l] = *p;
      break;
    case Width::kI8:
      d[l] = static_cast<uint32_t>(load_as<int8_t>(p));
      break;
    case Width::kU16:
      d[l] = load_as<uint16_t>(p);
      break;
    case Width::kI16:
      d[l] = static_cast<uint32_t>(load_as<int16_t>(p));
      break;
    case Width::kU8D16:
      d[l] = low_half(d[l], *p);
      break;
    case Width::kU8D16Hi:
      d[l] = high_half(d[l], *p);
      break;
    case Width::kI8D16:
      d[l] = low_half(d[l], static_cast<uint32_t>(load_as<int8_t>(p)));
      break;
    case Width::kI8D16Hi:
      d[l] = high_half(d[l], static_cast<uint32_t>(load_as<int8_t>(p)));
      break;
    case Width::kD16:
      d[l] = low_half(d[l], load_as<uint16_t>(p));
      break;
    case Width::kD16Hi:
      d[l] = high_half(d[l], load_as<uint16_t>(p));
      break;
    default:
      for (uint32_t j = 0; j < bytes_of(kWidth) / 4; ++j)
        d[j * kMostLanes + l] = load_as<uint32_t>(p + 4 * j);
  }
}

// The bits of lane l go to `p`. A Hi kind stores from bit 16 up.
template <Width kWidth>
[[gnu::always_inline]] inline void store_lane(const uint32_t* s, int l, uint8_t* p) {
  constexpr int kShift = kWidth == Width::kU8D16Hi || kWidth == Width::kD16Hi ? 16 : 0;
  if constexpr (bytes_of(kWidth) < 4) {
    const uint32_t x = s[l] >> kShift;
    std::memcpy(p, &x, bytes_of(kWidth));
  } else {
    for (uint32_t j = 0; j < bytes_of(kWidth) / 4; ++j) std::memcpy(p + 4 * j, &s[j * kMostLanes + l], 4);
  }
}

template <class Body>
[[gnu::always_inline]] inline void for_lanes(uint64_t lanes, Body body) {
  for (; lanes; lanes &= lanes - 1) body(__builtin_ctzll(lanes));
}

// Transposes four lanes of two or four dwords: from one vector a lane to one vector a dword, or back.
inline void transpose4(__m128i r[4]) {
  const __m128i a = _mm_unpacklo_epi32(r[0], r[1]), b = _mm_unpacklo_epi32(r[2], r[3]);
  const __m128i c = _mm_unpackhi_epi32(r[0], r[1]), d = _mm_unpackhi_epi32(r[2], r[3]);
  r[0] = _mm_unpacklo_epi64(a, b);
  r[1] = _mm_unpackhi_epi64(a, b);
  r[2] = _mm_unpacklo_epi64(c, d);
  r[3] = _mm_unpackhi_epi64(c, d);
}
inline __m128i* as_vector(uint8_t* p) { return reinterpret_cast<__m128i*>(p); }
inline const __m128i* as_vector(const uint8_t* p) { return reinterpret_cast<const __m128i*>(p); }
inline __m128i* as_vector(uint32_t* p) { return reinterpret_cast<__m128i*>(p); }
inline const __m128i* as_vector(const uint32_t* p) { return reinterpret_cast<const __m128i*>(p); }

template <Width kWidth>
inline void gather_all(uint32_t* d, const uint8_t* base, const uint32_t* offset) {
  if constexpr (kWidth == Width::kB128 || kWidth == Width::kB64) {
    for (int l = 0; l < kLanes; l += 4) {
      __m128i r[4];
      for (int i = 0; i < 4; ++i) {
        const __m128i* p = as_vector(base + offset[l + i]);
        r[i] = kWidth == Width::kB128 ? _mm_loadu_si128(p) : _mm_loadl_epi64(p);
      }
      transpose4(r);
      for (uint32_t j = 0; j < bytes_of(kWidth) / 4; ++j)
        _mm_store_si128(as_vector(d + j * kMostLanes + l), r[j]);
    }
  } else {
    for (int l = 0; l < kLanes; ++l) load_lane<kWidth>(d, l, base + offset[l]);
  }
}

template <Width kWidth>
inline void scatter_all(const uint32_t* s, uint8_t* base, const uint32_t* offset) {
  if constexpr (kWidth == Width::kB128) {
    for (int l = 0; l < kLanes; l += 4) {
      __m128i r[4];
      for (int j = 0; j < 4; ++j) r[j] = _mm_load_si128(as_vector(s + j * kMostLanes + l));
      transpose4(r);
      for (int i = 0; i < 4; ++i) _mm_storeu_si128(as_vector(base + offset[l + i]), r[i]);
    }
  } else {
    for (int l = 0; l < kLanes; ++l) store_lane<kWidth>(s, l, base + offset[l]);
  }
}

template <Width kWidth>
inline void gather(uint32_t* d, uint64_t lanes, const uint8_t* base, const uint32_t* offset) {
  if (lanes == kAllLanes) [[likely]]
    return gather_all<kWidth>(d, base, offset);
  for_lanes(lanes, [&](int l) { load_lane<kWidth>(d, l, base + offset[l]); });
}

template <Width kWidth>
inline void scatter(const uint32_t* s, uint64_t lanes, uint8_t* base, const uint32_t* offset) {
  if (lanes == kAllLanes) [[likely]]
    return scatter_all<kWidth>(s, base, offset);
  for_lanes(lanes, [&](int l) { store_lane<kWidth>(s, l, base + offset[l]); });
}

// The loads and stores MUBUF, FLAT, GLOBAL and SCRATCH have in common: ROW(name, width).
#define FMHA_EMU_LOADS(ROW)                 \
  ROW("load_ubyte", Width::kU8)             \
  ROW("load_sbyte", Width::kI8)             \
  ROW("load_ushort", Width::kU16)           \
  ROW("load_sshort", Width::kI16)           \
  ROW("load_dword", Width::kB32)            \
  ROW("load_dwordx2", Width::kB64)          \
  ROW("load_dwordx3", Width::kB96)          \
  ROW("load_dwordx4", Width::kB128)         \
  ROW("load_ubyte_d16", Width::kU8D16)      \
  ROW("load_ubyte_d16_hi", Width::kU8D16Hi) \
  ROW("load_sbyte_d16", Width::kI8D16)      \
  ROW("load_sbyte_d16_hi", Width::kI8D16Hi) \
  ROW("load_short_d16", Width::kD16)        \
  ROW("load_short_d16_hi", Width::kD16Hi)
#define FMHA_EMU_STORES(ROW)                \
  ROW("store_byte", Width::kU8)             \
  ROW("store_byte_d16_hi", Width::kU8D16Hi) \
  ROW("store_short", Width::kU16)           \
  ROW("store_short_d16_hi", Width::kD16Hi)  \
  ROW("store_dword", Width::kB32)           \
  ROW("store_dwordx2", Width::kB64)         \
  ROW("store_dwordx3", Width::kB96)         \
  ROW("store_dwordx4", Width::kB128)

constexpr bool high_half_only(Width w) {
  return w == Width::kU8D16Hi || w == Width::kI8D16Hi || w == Width::kD16Hi;
}
constexpr RowFlags load_flags(Width w) {
  return kLoad | (keeps_half(w) ? RowFlags{kReadsDst} : 0) | (high_half_only(w) ? RowFlags{kHighHalf} : 0);
}
constexpr RowFlags store_flags(Width w) { return kStore | (high_half_only(w) ? RowFlags{kHighHalf} : 0); }

// Smallest and largest offset over some lanes.
struct Span {
  uint32_t low, high;
};
inline Span span_of(const uint32_t* offset, uint64_t lanes) {
  Span s{~0u, 0};
  if (lanes == kAllLanes) [[likely]] {
    for (int l = 0; l < kLanes; ++l) {
      s.low = offset[l] < s.low ? offset[l] : s.low;
      s.high = offset[l] > s.high ? offset[l] : s.high;
    }
  } else {
    for_lanes(lanes, [&](int l) {
      s.low = offset[l] < s.low ? offset[l] : s.low;
      s.high = offset[l] > s.high ? offset[l] : s.high;
    });
  }
  return s;
}

// Tells observers that lanes access consecutive places of LDS, by lane from `base`.
inline void tell_lds_run(Wave& w, const Inst& inst, uint32_t base, uint64_t lanes, uint32_t bytes = 4) {
  if (!w.hears(kEventLds)) [[likely]]
    return;
  uint32_t address[kLanes];
  for (int l = 0; l < kLanes; ++l) address[l] = base + bytes * l;
  w.tell_lds(inst, address, lanes, bytes);
}

// The destination of loads to LDS: M0 + the instruction's offset + a dword a lane.
inline void store_to_lds(Wave& w, const Inst& inst, uint64_t lanes, const uint32_t* values) {
  const uint32_t base = w.m0_in_lds() + static_cast<uint32_t>(inst.imm);
  tell_lds_run(w, inst, base, lanes);
  if (lanes == kAllLanes) [[likely]] {
    if (uint8_t* p = w.lds(inst, base, 4 * kLanes, 0)) std::memcpy(p, values, 4 * kLanes);
    return;
  }
  for_lanes(lanes, [&](int l) {
    if (uint8_t* p = w.lds(inst, base + 4 * l, 4, l)) std::memcpy(p, &values[l], 4);
  });
}

// The same of several dwords a lane, one behind the other; values: dword j of all lanes at kMostLanes * j.
inline void store_wide_to_lds(Wave& w, const Inst& inst, uint64_t lanes, const uint32_t* values,
                              uint32_t dwords) {
  const uint32_t base = w.m0_in_lds() + static_cast<uint32_t>(inst.imm);
  tell_lds_run(w, inst, base, lanes, 4 * dwords);
  for_lanes(lanes, [&](int l) {
    uint8_t* p = w.lds(inst, base + 4 * dwords * l, 4 * dwords, l);
    for (uint32_t j = 0; p && j < dwords; ++j) std::memcpy(p + 4 * j, &values[j * kMostLanes + l], 4);
  });
}

}  // namespace fmha::emu::FMHA_EMU_LEVEL
