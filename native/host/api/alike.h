// SPDX-License-Identifier: MIT OR Apache-2.0
// Compares the structs of two calls: do they ask for the same? They are compared as a whole, except addresses
// and numbers that only a launch reads. An address counts by whether it is there and how it is aligned. A
// field that a later header adds is compared without a word here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "fmha_rocm.h"
#include "memory/workspace.h"

namespace fmha {

// Where a struct has addresses, and what decides nothing: bytes from its beginning. A struct that another
// one points to is compared for itself.
template <typename Struct>
struct Places;

template <>
struct Places<fmha_fwd_params> {
  using P = fmha_fwd_params;
  static constexpr size_t kAddresses[] = {
      offsetof(P, q.data),       offsetof(P, k.data),       offsetof(P, v.data),
      offsetof(P, o.data),       offsetof(P, lse.data),     offsetof(P, bias.data),
      offsetof(P, alibi_slopes), offsetof(P, cu_seqlens_q), offsetof(P, cu_seqlens_k),
      offsetof(P, seqused_q),    offsetof(P, seqused_k),    offsetof(P, philox_seed_offset),
      offsetof(P, randval.data), offsetof(P, workspace),    offsetof(P, sinks)};
  static constexpr size_t kIdle[] = {offsetof(P, philox_seed), offsetof(P, philox_offset),
                                     offsetof(P, workspace_bytes)};
  // A kernel of AITER's is chosen by whether both arrays of lengths are one.
  static bool extra(const P& p) { return p.cu_seqlens_q == p.cu_seqlens_k; }
};

template <>
struct Places<fmha_bwd_params> {
  using P = fmha_bwd_params;
  static constexpr size_t kAddresses[] = {offsetof(P, dout.data), offsetof(P, dq.data),
                                          offsetof(P, dk.data),   offsetof(P, dv.data),
                                          offsetof(P, workspace), offsetof(P, dbias.data)};
  static constexpr size_t kIdle[] = {offsetof(P, fwd), offsetof(P, workspace_bytes)};
  static bool extra(const P& /*params*/) { return false; }
};

template <>
struct Places<fmha_decode_params> {
  using P = fmha_decode_params;
  static constexpr size_t kAddresses[] = {offsetof(P, leftpad_k), offsetof(P, sinks), offsetof(P, workspace)};
  static constexpr size_t kIdle[] = {offsetof(P, fwd), offsetof(P, cache), offsetof(P, workspace_bytes)};
  static bool extra(const P& /*params*/) { return false; }
};

template <>
struct Places<fmha_cache> {
  using P = fmha_cache;
  static constexpr size_t kAddresses[] = {offsetof(P, k.data),       offsetof(P, v.data),
                                          offsetof(P, block_table),  offsetof(P, kv_indptr),
                                          offsetof(P, kv_indices),   offsetof(P, cache_batch_idx),
                                          offsetof(P, k_scale.data), offsetof(P, v_scale.data)};
  static constexpr std::array<size_t, 0> kIdle = {};
  // One kernel is only for values that lie in the keys' memory.
  static bool extra(const P& cache) { return cache.k.data == cache.v.data; }
};

template <>
struct Places<fmha_kv_append_params> {
  using P = fmha_kv_append_params;
  static constexpr size_t kAddresses[] = {
      offsetof(P, q.data),     offsetof(P, q_out.data), offsetof(P, k.data), offsetof(P, v.data),
      offsetof(P, cu_seqlens), offsetof(P, seqused_k),  offsetof(P, slots),  offsetof(P, positions),
      offsetof(P, rotary.cos), offsetof(P, rotary.sin)};
  static constexpr size_t kIdle[] = {offsetof(P, cache)};
  // Then q is rotated in place.
  static bool extra(const P& p) { return p.q.data == p.q_out.data; }
};

template <>
struct Places<fmha_merge_params> {
  using P = fmha_merge_params;
  static constexpr size_t kAddresses[] = {offsetof(P, o_parts.data), offsetof(P, lse_parts.data),
                                          offsetof(P, o.data), offsetof(P, lse.data)};
  static constexpr std::array<size_t, 0> kIdle = {};
  static bool extra(const P& /*params*/) { return false; }
};

template <>
struct Places<fmha_quantize_params> {
  using P = fmha_quantize_params;
  static constexpr size_t kAddresses[] = {offsetof(P, x.data), offsetof(P, out.data),
                                          offsetof(P, descale.data), offsetof(P, workspace)};
  static constexpr size_t kIdle[] = {offsetof(P, workspace_bytes)};
  static bool extra(const P& /*params*/) { return false; }
};

// Compares sixteen bytes at a time, as every x86-64 can.
template <typename Struct>
bool are_alike(const Struct& a, const Struct& b) {
  using P = Places<Struct>;
  using Pair = uint64_t __attribute__((vector_size(16)));
  constexpr size_t kWord = sizeof(uint64_t), kPair = 2 * kWord, kPairs = sizeof(Struct) / kPair;
  constexpr bool kOdd = sizeof(Struct) % kPair != 0;
  static_assert(sizeof(Struct) % kWord == 0);
  alignas(16) static constexpr auto kMasks = [] {
    std::array<uint64_t, 2 * kPairs + (kOdd ? 1 : 0)> masks{};
    for (uint64_t& mask : masks) mask = UINT64_MAX;
    for (const size_t place : P::kAddresses) masks[place / kWord] = Workspace::kAlignBytes - 1;
    for (const size_t place : P::kIdle) masks[place / kWord] = 0;
    return masks;
  }();
  const auto load = [](const void* from, size_t place, auto& value) {
    std::memcpy(&value, static_cast<const char*>(from) + place, sizeof value);
  };
  Pair different = {P::extra(a) != P::extra(b) ? 1U : 0U, 0};
#pragma GCC unroll 32
  for (size_t i = 0; i < kPairs; ++i) {
    Pair x, y, mask;
    load(&a, i * sizeof x, x), load(&b, i * sizeof y, y), load(kMasks.data(), i * sizeof mask, mask);
    different |= (x ^ y) & mask;
  }
  if constexpr (kOdd) {
    uint64_t x = 0, y = 0;
    load(&a, kPairs * kPair, x), load(&b, kPairs * kPair, y);
    different[0] |= (x ^ y) & kMasks.back();
  }
  bool one_lacks = false;
#pragma GCC unroll 16
  for (const size_t place : P::kAddresses) {
    uint64_t x = 0, y = 0;
    load(&a, place, x), load(&b, place, y);
    one_lacks |= (x == 0) != (y == 0);
  }
  return (different[0] | different[1]) == 0 && !one_lacks;
}

// A struct of this header's own size: one of an older header has fewer bytes, which are not all there.
template <typename Struct>
bool is_current(const Struct* s) {
  return s != nullptr && s->struct_size == sizeof *s;
}

// A number that calls of different shapes differ in.
inline uint64_t number_of(std::initializer_list<int64_t> sizes) {
  uint64_t number = 0;
  for (const int64_t size : sizes) number = 3 * number + static_cast<uint64_t>(size);
  return number;
}

inline uint64_t number_of(const fmha_fwd_params& p) {
  return number_of({p.seqlen_q, p.seqlen_k, p.batch, p.nhead_q, p.hdim_q, p.mask});
}

}  // namespace fmha
