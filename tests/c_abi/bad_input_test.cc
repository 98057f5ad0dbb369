// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls that must fail, on a device: each gives its status and message, and no byte of device memory changes.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <vector>

#include "fmha_rocm.h"
#include "on_device.h"
#include "params.h"
#include "status.h"

namespace {

constexpr int64_t kBatch = 2, kSeqlenQ = 40, kSeqlenK = 50, kNheadQ = 4, kNheadK = 2, kHdim = 64;

// All tensors in one allocation, filled with a pattern that a stray write would break.
struct Memory {
  static constexpr size_t kBytes = size_t{1} << 20;
  static constexpr size_t kStep = kBytes / 5;

  Memory() : pattern(kBytes) {
    for (size_t i = 0; i < kBytes; ++i) pattern[i] = static_cast<uint8_t>(i * 37 + i / 251);
    CHECK(hip().malloc_(&base, kBytes) == 0);
    CHECK(hip().copy(base, pattern.data(), kBytes, HIP_TO_DEVICE) == 0);
  }

  void* tensor(size_t index) const { return static_cast<char*>(base) + index * kStep / 256 * 256; }

  bool is_unchanged() const {
    std::vector<uint8_t> now(kBytes);
    return hip().synchronize() == 0 && hip().copy(now.data(), base, kBytes, HIP_TO_HOST) == 0 &&
           now == pattern;
  }

  void* base = nullptr;
  std::vector<uint8_t> pattern;
};

fmha_fwd_params good_params(const Memory& memory) {
  fmha_fwd_params p = test_params(FMHA_BF16, TEST_BSHD, kBatch, kSeqlenQ, kSeqlenK, kNheadQ, kNheadK, kHdim);
  p.q.data = memory.tensor(0);
  p.k.data = memory.tensor(1);
  p.v.data = memory.tensor(2);
  p.o.data = memory.tensor(3);
  p.lse.data = static_cast<float*>(memory.tensor(4));
  return p;
}

// The same problem with contiguous tensors of another head dim, at the same addresses.
void set_hdim(fmha_fwd_params& p, int64_t hdim) {
  fmha_fwd_params other = test_params(p.dtype, TEST_BSHD, kBatch, kSeqlenQ, kSeqlenK, kNheadQ, kNheadK, hdim);
  other.q.data = p.q.data;
  other.k.data = p.k.data;
  other.v.data = p.v.data;
  other.o.data = p.o.data;
  p = other;
}

struct BadCase {
  std::function<void(fmha_fwd_params&)> change;
  fmha_status status;
  const char* text;
};

alignas(16) char g_host_memory[1 << 16];

template <typename T>
T* host() {
  return reinterpret_cast<T*>(g_host_memory);
}

// The same memory as packed sequences, whose lengths are somewhere in q.
void set_varlen(fmha_fwd_params& p) {
  p.total_q = kBatch * kSeqlenQ;
  p.total_k = kBatch * kSeqlenK;
  p.cu_seqlens_q = p.cu_seqlens_k = static_cast<const int32_t*>(p.q.data);
  p.lse.stride_head = p.total_q;
}

const BadCase kCases[] = {
    {[](auto& p) { p.q.data = nullptr; }, FMHA_INVALID_ARGUMENT, "q.data = NULL: expected a device pointer"},
    {[](auto& p) { p.k.data = nullptr; }, FMHA_INVALID_ARGUMENT, "k.data = NULL"},
    {[](auto& p) { p.v.data = nullptr; }, FMHA_INVALID_ARGUMENT, "v.data = NULL"},
    {[](auto& p) { p.o.data = nullptr; }, FMHA_INVALID_ARGUMENT, "o.data = NULL"},
    {[](auto& p) { p.q.data = static_cast<char*>(p.q.data) + 2; }, FMHA_INVALID_ARGUMENT,
     "aligned to 16 bytes"},
    {[](auto& p) { p.o.data = static_cast<char*>(p.o.data) + 8; }, FMHA_INVALID_ARGUMENT,
     "aligned to 16 bytes"},
    {[](auto& p) { p.dtype = 0; }, FMHA_INVALID_ARGUMENT, "dtype = 0"},
    {[](auto& p) { p.dtype = 17; }, FMHA_INVALID_ARGUMENT, "dtype = 17"},
    {[](auto& p) { p.o_dtype = 17; }, FMHA_INVALID_ARGUMENT, "o_dtype = 17"},
    {[](auto& p) { p.mask = 9; }, FMHA_INVALID_ARGUMENT, "mask = 9"},
    {[](auto& p) { p.softcap = -2; }, FMHA_INVALID_ARGUMENT, "softcap = -2"},
    {[](auto& p) { p.bias.data = g_host_memory; }, FMHA_INVALID_ARGUMENT, "bias.data"},
    {[](auto& p) { p.bias = {p.o.data, 0, 0, 0}; }, FMHA_INVALID_ARGUMENT, "o is written but overlaps bias"},
    {[](auto& p) { p.alibi_slopes = host<float>(); }, FMHA_INVALID_ARGUMENT, "alibi_slopes"},
    {[](auto& p) { p.sinks = host<float>(); }, FMHA_INVALID_ARGUMENT, "sinks"},
    {[](auto& p) { p.sinks = p.lse.data; }, FMHA_INVALID_ARGUMENT, "lse is written but overlaps sinks"},
    {[](auto& p) { set_varlen(p), p.cu_seqlens_k = nullptr; }, FMHA_INVALID_ARGUMENT, "cu_seqlens_k = NULL"},
    {[](auto& p) { set_varlen(p), p.total_q = 0; }, FMHA_INVALID_ARGUMENT, "total_q = 0"},
    {[](auto& p) { set_varlen(p), p.cu_seqlens_q = host<int32_t>(); }, FMHA_INVALID_ARGUMENT, "cu_seqlens_q"},
    {[](auto& p) { set_varlen(p), p.cu_seqlens_k = host<int32_t>(); }, FMHA_INVALID_ARGUMENT, "cu_seqlens_k"},
    {[](auto& p) { set_varlen(p), p.seqused_q = host<int32_t>(); }, FMHA_INVALID_ARGUMENT, "seqused_q"},
    {[](auto& p) { set_varlen(p), p.seqused_k = host<int32_t>(); }, FMHA_INVALID_ARGUMENT, "seqused_k"},
    {[](auto& p) { p.seqused_k = host<int32_t>(); }, FMHA_INVALID_ARGUMENT, "without cu_seqlens_q"},
    {[](auto& p) { p.p_drop = 1; }, FMHA_INVALID_ARGUMENT, "p_drop = 1"},
    {[](auto& p) { p.p_drop = 0.5F, p.philox_seed_offset = host<uint64_t>(); }, FMHA_INVALID_ARGUMENT,
     "philox_seed_offset"},
    {[](auto& p) { p.p_drop = 0.5F, p.randval = {host<uint8_t>(), 8000, 2000, 50}; }, FMHA_INVALID_ARGUMENT,
     "randval.data"},
    {[](auto& p) { p.randval.data = host<uint8_t>(); }, FMHA_INVALID_ARGUMENT, "if p_drop = 0"},
    {[](auto& p) { p.q_descale = 2; }, FMHA_INVALID_ARGUMENT, "q_descale = 2"},
    {[](auto& p) { p.kernel = -1; }, FMHA_INVALID_ARGUMENT, "kernel = -1"},
    {[](auto& p) { p.kernel = 1000; }, FMHA_UNSUPPORTED, "kernel = 1000: expected 0"},
    {[](auto& p) { set_hdim(p, 60); }, FMHA_UNSUPPORTED, "hdim_q = 60, hdim_v = 60"},
    {[](auto& p) { p.nhead_q = 3; }, FMHA_INVALID_ARGUMENT,
     "nhead_q = 3: expected a multiple of nhead_k = 2"},
    {[](auto& p) { p.k.stride_seqlen = -128; }, FMHA_INVALID_ARGUMENT, "k.stride_seqlen = -128"},
    {[](auto& p) { p.o.stride_head = 0; }, FMHA_INVALID_ARGUMENT, "o.stride_head = 0"},
    {[](auto& p) { p.o.data = p.q.data; }, FMHA_INVALID_ARGUMENT, "o is written but overlaps q"},
    {[](auto& p) { p.seqlen_k = -1; }, FMHA_INVALID_ARGUMENT, "seqlen_k = -1"},
    {[](auto& p) { p.softmax_scale = 0; }, FMHA_INVALID_ARGUMENT, "softmax_scale = 0"},
    {[](auto& p) { p.v.stride_seqlen = int64_t{1} << 33; }, FMHA_UNSUPPORTED, "v.stride_seqlen = 8589934592"},
    {[](auto& p) { p.struct_size = 16; }, FMHA_ABI_MISMATCH, "params->struct_size = 16"},
    {[](auto& p) { p.q.data = g_host_memory; }, FMHA_INVALID_ARGUMENT, "q.data"},
    {[](auto& p) { p.k.data = g_host_memory; }, FMHA_INVALID_ARGUMENT, "not device memory"},
    {[](auto& p) { p.o.data = g_host_memory; }, FMHA_INVALID_ARGUMENT, "o.data"},
    {[](auto& p) { p.lse.data = reinterpret_cast<float*>(g_host_memory); }, FMHA_INVALID_ARGUMENT,
     "lse.data"},
};

void check_future_struct(const fmha_fwd_params& good) {
  struct Future {
    fmha_fwd_params known;
    int64_t unknown;
  } future = {good, 1};
  future.known.struct_size = sizeof future;
  char text[64];
  std::snprintf(text, sizeof text, "byte %zu is set", sizeof future.known);
  CHECK_STATUS(fmha_fwd(&future.known, nullptr), FMHA_ABI_MISMATCH, text);
}

// Memory of the second device, from the first.
void check_other_device(const fmha_fwd_params& good) {
  int count = 0;
  CHECK(hip().get_device_count(&count) == 0);
  if (count < 2) return;
  fmha_fwd_params p = good;
  CHECK(hip().set_device(1) == 0);
  CHECK(hip().malloc_(&p.k.data, 1 << 16) == 0);
  CHECK(hip().set_device(0) == 0);
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_INVALID_ARGUMENT,
               "memory of device 1; expected memory of the current device 0");
  CHECK(hip().free_(p.k.data) == 0);
}

TEST_CASE("a call that must fail leaves device memory as it is") {
  const Memory memory;
  const fmha_fwd_params good = good_params(memory);
  CHECK_OK(fmha_fwd_supported(&good));
  for (const BadCase& bad : kCases) {
    CAPTURE(bad.text);
    fmha_fwd_params p = good;
    bad.change(p);
    CHECK_STATUS(fmha_fwd(&p, nullptr), bad.status, bad.text);
  }
  check_future_struct(good);
  CHECK_STATUS(fmha_fwd(nullptr, nullptr), FMHA_INVALID_ARGUMENT, "params = NULL");
  check_other_device(good);
  CHECK(std::count(std::begin(g_host_memory), std::end(g_host_memory), 0) == sizeof g_host_memory);
  CHECK(memory.is_unchanged());
  CHECK_OK(fmha_fwd(&good, nullptr));  // and the good one does write
  CHECK(!memory.is_unchanged());
  CHECK(hip().free_(memory.base) == 0);
}

}  // namespace
