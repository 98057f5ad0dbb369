// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread's last choices, by the params of their calls, so that a call like one before chooses nothing:
// the estimates that tell kernels apart, and the limits of their origins, take longer than all other checks.
//
// A choice depends on nothing but the params, the kind of entry and the device, and of addresses on no more
// than whether they are there and how they are aligned. So the structs of two calls are compared as a whole,
// but for the rest of their addresses and what only a launch reads. A field that a later header adds is
// compared without a word here. Only calls that succeeded are remembered.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fmha_rocm.h"
#include "memory/workspace.h"

namespace fmha {

// Where a struct has addresses, and numbers that decide nothing: bytes from its beginning.
template <typename Params>
struct Places;

template <>
struct Places<fmha_fwd_params> {
  static constexpr size_t kAddresses[] = {
      offsetof(fmha_fwd_params, q.data),       offsetof(fmha_fwd_params, k.data),
      offsetof(fmha_fwd_params, v.data),       offsetof(fmha_fwd_params, o.data),
      offsetof(fmha_fwd_params, lse.data),     offsetof(fmha_fwd_params, bias.data),
      offsetof(fmha_fwd_params, alibi_slopes), offsetof(fmha_fwd_params, cu_seqlens_q),
      offsetof(fmha_fwd_params, cu_seqlens_k), offsetof(fmha_fwd_params, seqused_q),
      offsetof(fmha_fwd_params, seqused_k),    offsetof(fmha_fwd_params, philox_seed_offset),
      offsetof(fmha_fwd_params, randval.data), offsetof(fmha_fwd_params, workspace)};
  static constexpr size_t kIdle[] = {offsetof(fmha_fwd_params, philox_seed),
                                     offsetof(fmha_fwd_params, philox_offset),
                                     offsetof(fmha_fwd_params, workspace_bytes)};
  // A kernel of AITER's is chosen by whether both arrays of lengths are one.
  static bool extra(const fmha_fwd_params& p) { return p.cu_seqlens_q == p.cu_seqlens_k; }
};

// True if two structs ask for the same choice. Compares sixteen bytes at a time, as every x86-64 can.
template <typename Params>
bool are_alike(const Params& a, const Params& b) {
  using P = Places<Params>;
  using Pair = uint64_t __attribute__((vector_size(16)));
  constexpr size_t kPairs = sizeof(Params) / sizeof(Pair), kWord = sizeof(uint64_t);
  static_assert(sizeof(Params) % sizeof(Pair) == 0);
  alignas(16) static constexpr auto kMasks = [] {
    std::array<uint64_t, 2 * kPairs> masks{};
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
  uint64_t left_out = 0;  // by one of them
  for (const size_t place : P::kAddresses) {
    uint64_t x = 0, y = 0;
    load(&a, place, x), load(&b, place, y);
    left_out |= (x == 0) != (y == 0) ? 1 : 0;
  }
  return (different[0] | different[1] | left_out) == 0;
}

// The last few calls of a thread, and what was chosen for them. Call and Choice are plain structs; a Call
// says whether another one is alike(). In memory of the thread itself, which is zero at first: no lock, and
// nothing is allocated.
template <typename Call, typename Choice>
class Remembered {
 public:
  struct Entry {
    Call call;
    Choice choice;
    bool used;
  };

  // Where such a call is, or would be.
  static Entry& at(uint64_t mixed) {
    static thread_local std::array<Entry, kEntries> entries;
    return entries[(mixed >> 32) % kEntries];
  }

 private:
  static constexpr size_t kEntries = 8;  // a model's layers are of few shapes
};

// A number of what calls of different shapes differ in.
inline uint64_t mixed(const fmha_fwd_params& p) {
  const auto sum = static_cast<uint64_t>(p.seqlen_q) + 3 * static_cast<uint64_t>(p.seqlen_k) +
                   5 * static_cast<uint64_t>(p.batch) + 7 * static_cast<uint64_t>(p.nhead_q) +
                   11 * static_cast<uint64_t>(p.hdim_q) + static_cast<uint64_t>(p.mask);
  return sum * 0x9e3779b97f4a7c15;
}

}  // namespace fmha
