// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "mutate.h"

namespace fmha::fuzz {
namespace {

constexpr int64_t kHeadDims[] = {64, 128, 32, 96, 256, 192, 40, 8, 72, 128, 160, 248};
constexpr fmha_dtype kDTypes[] = {FMHA_FP16, FMHA_BF16,          FMHA_FP16,       FMHA_BF16,
                                  FMHA_FP32, FMHA_FP8_E4M3_FNUZ, FMHA_FP8_E4M3_FN};
constexpr int64_t kLengths[] = {16, 1, 33, 64, 100, 128, 7, 256};
constexpr uint32_t kLargestSizeGiven = 4096 + 64;

// Elements that fit a tensor's region, whatever its type.
constexpr int64_t kMostElements = static_cast<int64_t>(kTensorBytes / 4);

void make_sizes(Bytes& bytes, fmha_fwd_params& p) {
  p.dtype = bytes.one_of(kDTypes);
  p.hdim_q = bytes.one_of(kHeadDims);
  p.hdim_v = bytes.chance(4) ? bytes.one_of(kHeadDims) : p.hdim_q;
  if (is_fp8(p.dtype) && p.hdim_q % 16 != 0) p.hdim_q = p.hdim_v = 128;
  p.batch = bytes.from_to(1, 3);
  p.nhead_k = bytes.from_to(1, 2);
  p.nhead_q = p.nhead_k * bytes.from_to(1, 2);
  p.seqlen_q = bytes.chance(3) ? bytes.from_to(0, 80) : bytes.one_of(kLengths);
  p.seqlen_k = bytes.chance(3) ? bytes.from_to(0, 150) : bytes.one_of(kLengths);
  // Smaller until every tensor fits its region, with the room between rows.
  const auto too_large = [&p] {
    const int64_t row = std::max(p.hdim_q, p.hdim_v) + 16;
    const int64_t rows = std::max(p.seqlen_q * p.nhead_q, p.seqlen_k * p.nhead_k);
    return p.batch * rows * row > kMostElements ||
           p.batch * p.nhead_q * p.seqlen_q * (p.seqlen_k + 8) > kMostElements;
  };
  if (too_large()) p.batch = 1;
  if (too_large()) p.nhead_k = p.nhead_q = 1;
  while (too_large()) p.seqlen_q /= 2, p.seqlen_k /= 2;
}

void make_mask(Bytes& bytes, fmha_fwd_params& p) {
  p.mask = static_cast<fmha_mask>(bytes.below(5));
  p.window_left = bytes.from_to(0, 90);
  p.window_right = bytes.from_to(0, 90);
  if (bytes.chance(4)) p.window_left = INT64_MAX;
}

// Cumulative lengths of `batch` sequences of at most `most` rows, and lengths in use.
void make_lengths(Bytes& bytes, int64_t batch, int64_t most, std::vector<int32_t>& cu,
                  std::vector<int32_t>& used) {
  cu = {0};
  used.clear();
  for (int64_t b = 0; b < batch; ++b) {
    const auto length = static_cast<int32_t>(bytes.from_to(0, most));
    cu.push_back(cu.back() + length);
    used.push_back(static_cast<int32_t>(bytes.from_to(0, length)));
  }
}

void make_group(Bytes& bytes, const Device& device, Case& c) {
  fmha_fwd_params& p = c.params;
  make_lengths(bytes, p.batch, p.seqlen_q, c.cu_q, c.used_q);
  make_lengths(bytes, p.batch, p.seqlen_k, c.cu_k, c.used_k);
  p.cu_seqlens_q = reinterpret_cast<const int32_t*>(device.start(kCuQ));
  p.cu_seqlens_k = reinterpret_cast<const int32_t*>(device.start(kCuK));
  p.total_q = p.batch * p.seqlen_q;
  p.total_k = p.batch * p.seqlen_k;
  if (bytes.chance(2)) {
    p.seqused_q = reinterpret_cast<const int32_t*>(device.start(kUsedQ));
  } else {
    c.used_q.clear();
  }
  if (bytes.chance(2)) {
    p.seqused_k = reinterpret_cast<const int32_t*>(device.start(kUsedK));
  } else {
    c.used_k.clear();
  }
}

void make_tensors(Bytes& bytes, const Device& device, fmha_fwd_params& p) {
  const bool group = p.cu_seqlens_q != nullptr;
  p.q = make_tensor(bytes, device.start(kQ), group ? p.total_q : p.seqlen_q, p.nhead_q, p.hdim_q);
  p.k = make_tensor(bytes, device.start(kK), group ? p.total_k : p.seqlen_k, p.nhead_k, p.hdim_q);
  p.v = make_tensor(bytes, device.start(kV), group ? p.total_k : p.seqlen_k, p.nhead_k, p.hdim_v);
  p.o = make_tensor(bytes, device.start(kO), group ? p.total_q : p.seqlen_q, p.nhead_q, p.hdim_v);
  if (bytes.chance(6)) p.k.stride_batch = p.v.stride_batch = 0;
  if (bytes.chance(6)) p.k.stride_head = p.v.stride_head = 0;
  if (bytes.chance(2)) {
    p.lse.data = reinterpret_cast<float*>(device.start(kLse));
    p.lse.stride_head = group ? p.total_q : p.seqlen_q;
    p.lse.stride_batch = p.nhead_q * p.lse.stride_head;
  }
}

void make_bias(Bytes& bytes, const Device& device, fmha_fwd_params& p) {
  const int64_t rows = p.cu_seqlens_q != nullptr ? p.total_q : p.seqlen_q;
  p.bias.data = device.start(kBias);
  p.bias.stride_seqlen = (p.seqlen_k + 7) / 8 * 8;
  p.bias.stride_head = rows * p.bias.stride_seqlen;
  p.bias.stride_batch = p.nhead_q * p.bias.stride_head;
  if (bytes.chance(3)) p.bias.stride_batch = 0;
  if (bytes.chance(3)) p.bias.stride_head = 0;
  if (bytes.chance(4)) p.bias.stride_seqlen = 0;
}

void make_dropout(Bytes& bytes, const Device& device, fmha_fwd_params& p) {
  const int64_t rows = p.cu_seqlens_q != nullptr ? p.total_q : p.seqlen_q;
  constexpr float kChances[] = {0.125F, 0.5F, 0.9F, 0.001F};
  p.p_drop = bytes.one_of(kChances);
  p.philox_seed = bytes.take<uint64_t>();
  p.philox_offset = bytes.take<uint32_t>();
  if (bytes.chance(2)) p.philox_seed_offset = reinterpret_cast<const uint64_t*>(device.start(kPhilox));
  if (bytes.chance(2)) {
    p.randval.data = device.start(kRandval);
    p.randval.stride_seqlen = p.seqlen_k;
    p.randval.stride_head = rows * p.seqlen_k;
    p.randval.stride_batch = p.nhead_q * p.randval.stride_head;
  }
}

void make_features(Bytes& bytes, const Device& device, fmha_fwd_params& p) {
  switch (bytes.below(8)) {
    case 1:
      make_bias(bytes, device, p);
      break;
    case 2:
      p.alibi_slopes = reinterpret_cast<const float*>(device.start(kSlopes));
      p.alibi_stride_batch = bytes.chance(2) ? p.nhead_q : 0;
      break;
    case 3:
      p.softcap = 30.0F;
      break;
    default:
      break;
  }
  if (bytes.chance(4)) make_dropout(bytes, device, p);
  if (bytes.chance(4)) p.sinks = reinterpret_cast<const float*>(device.start(kSlopes));
  if (is_fp8(p.dtype)) {
    constexpr fmha_dtype kOut[] = {FMHA_BF16, FMHA_FP16, FMHA_FP32};
    p.o_dtype = bytes.one_of(kOut);
    p.q_descale = 0.5F;
    p.v_descale = 2.0F;
  }
}

}  // namespace

fmha_tensor make_tensor(Bytes& bytes, uint8_t* data, int64_t rows, int64_t heads, int64_t hdim) {
  const int64_t gap = bytes.chance(4) ? 16 : 0;
  fmha_tensor t{};
  t.data = data;
  if (bytes.chance(3)) {  // (batch, head, seqlen, hdim)
    t.stride_seqlen = hdim + gap;
    t.stride_head = rows * t.stride_seqlen;
  } else {
    t.stride_head = hdim + gap;
    t.stride_seqlen = heads * t.stride_head;
  }
  t.stride_batch = rows * heads * (hdim + gap);
  return t;
}

template <typename Params>
std::vector<uint8_t> make_raw(Bytes& bytes, Params& params, int& mutations) {
  params.struct_size = sizeof params;
  uint32_t size = sizeof params;
  if (bytes.chance(8)) {
    constexpr uint32_t kSizes[] = {
        0,   4,   8,    184,  200,  240,        sizeof params - 1, sizeof params + 1, sizeof params + 8,
        239, 241, 4095, 4096, 4097, UINT32_MAX, 0x80000000U};
    size = bytes.one_of(kSizes);
    ++mutations;
  }
  params.struct_size = size;
  std::vector<uint8_t> raw(size > kLargestSizeGiven ? sizeof params : std::max<size_t>(size, sizeof size), 0);
  std::memcpy(raw.data(), &params, std::min(raw.size(), sizeof params));
  if (size > sizeof params && size <= kLargestSizeGiven && bytes.chance(2)) {
    raw[sizeof params + bytes.below(size - sizeof params)] = 1;
  }
  raw.shrink_to_fit();
  if (size < sizeof params) {
    const size_t kept = std::max<size_t>(size, sizeof size);
    std::memset(reinterpret_cast<char*>(&params) + kept, 0, sizeof params - kept);
  }
  return raw;
}

template std::vector<uint8_t> make_raw(Bytes&, fmha_fwd_params&, int&);
template std::vector<uint8_t> make_raw(Bytes&, fmha_bwd_params&, int&);
template std::vector<uint8_t> make_raw(Bytes&, fmha_cache&, int&);
template std::vector<uint8_t> make_raw(Bytes&, fmha_decode_params&, int&);
template std::vector<uint8_t> make_raw(Bytes&, fmha_kv_append_params&, int&);
template std::vector<uint8_t> make_raw(Bytes&, fmha_merge_params&, int&);
template std::vector<uint8_t> make_raw(Bytes&, fmha_quantize_params&, int&);

void print(const Case& c) {
  std::fprintf(stderr, "struct_size = %" PRIu32 "\n", c.params.struct_size);
  print(fields_of(c.params), &c.params);
  const auto list = [](const char* name, const std::vector<int32_t>& values) {
    if (values.empty()) return;
    std::fprintf(stderr, "%s:", name);
    for (const int32_t value : values) std::fprintf(stderr, " %" PRId32, value);
    std::fprintf(stderr, "\n");
  };
  list("*cu_seqlens_q", c.cu_q);
  list("*cu_seqlens_k", c.cu_k);
  list("*seqused_q", c.used_q);
  list("*seqused_k", c.used_k);
}

int64_t element_bytes(fmha_dtype dtype) {
  switch (dtype) {
    case FMHA_FP32:
      return 4;
    case FMHA_FP8_E4M3_FNUZ:
    case FMHA_FP8_E4M3_FN:
      return 1;
    default:
      return 2;
  }
}

Case make_sound(Bytes& bytes, const Device& device) {
  Case c{};
  c.mutations = static_cast<int>(bytes.below(5)) - 1;  // none as often as each other number
  c.mutations = std::max(c.mutations, 0);
  make_sizes(bytes, c.params);
  make_mask(bytes, c.params);
  c.params.softmax_scale = 0.125F;
  if (bytes.chance(3)) make_group(bytes, device, c);
  make_tensors(bytes, device, c.params);
  make_features(bytes, device, c.params);
  return c;
}

void make_wrong(Bytes& bytes, const Device& device, Case& c) {
  for (int i = 0; i < c.mutations; ++i) mutate(bytes, device, fields_of(c.params), &c.params);
  if (bytes.chance(3)) {
    c.params.kernel = static_cast<int32_t>(bytes.below(5));
    if (c.params.kernel > 1) ++c.mutations;  // there may be no such candidate
  }
  c.raw = make_raw(bytes, c.params, c.mutations);
}

Case make_case(Bytes& bytes, const Device& device) {
  Case c = make_sound(bytes, device);
  make_wrong(bytes, device, c);
  return c;
}

}  // namespace fmha::fuzz
