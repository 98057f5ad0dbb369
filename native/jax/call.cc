// SPDX-License-Identifier: MIT OR Apache-2.0
#include "call.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>

namespace fmha::jax {
namespace {

constexpr auto kInvalid = XLA_FFI_Error_Code_INVALID_ARGUMENT;

struct Dim {
  int64_t size, stride;
};

// From the first byte of a tensor to behind its last: rows of `row` elements in these dimensions; 0 if it has
// none.
int64_t extent(std::initializer_list<Dim> dims, int64_t row, int64_t element_bytes) {
  int64_t elements = row, step = 0, bytes = 0;
  bool fits = row >= 0;
  for (const Dim& dim : dims) {
    if (dim.size == 0) return 0;
    fits = fits && dim.size > 0 && dim.stride >= 0 &&
           !__builtin_mul_overflow(dim.size - 1, dim.size > 1 ? dim.stride : 0, &step) &&
           !__builtin_add_overflow(elements, step, &elements);
  }
  if (!fits || __builtin_mul_overflow(elements, element_bytes, &bytes)) {
    refuse(kInvalid, "attribute params: a tensor has sizes or strides that are negative or beyond 64 bits");
  }
  return row == 0 ? 0 : bytes;
}

int64_t element_bytes(fmha_dtype dtype) {
  switch (dtype) {
    case FMHA_FP16:
    case FMHA_BF16:
      return 2;
    case FMHA_FP32:
      return 4;
    case FMHA_FP8_E4M3_FNUZ:
      return 1;
    default:
      refuse(kInvalid, "attribute params: got dtype %d, expected an fmha_dtype", dtype);
  }
}

// Sizes of the dimensions that batch and rows become: packed sequences have no batch.
struct Rows {
  int64_t batch, rows;
};

int64_t tensor_bytes(const fmha_tensor& t, Rows rows, int64_t nhead, int64_t hdim, fmha_dtype dtype) {
  return extent({{rows.batch, t.stride_batch}, {rows.rows, t.stride_seqlen}, {nhead, t.stride_head}}, hdim,
                element_bytes(dtype));
}

}  // namespace

Call::Call(const XLA_FFI_CallFrame& frame) : buffers_(buffers_of(frame)) {
  read_repeats(frame);
  read_params(attribute(frame, "params"));
  const fmha_fwd_params& p = params_;
  const bool packed = p.cu_seqlens_q != nullptr;
  const Rows q = packed ? Rows{1, p.total_q} : Rows{p.batch, p.seqlen_q};
  const Rows k = packed ? Rows{1, p.total_k} : Rows{p.batch, p.seqlen_k};
  const int64_t starts = p.batch < INT64_MAX ? p.batch + 1 : p.batch;
#define FMHA_RESOLVE(field, bytes) resolve(#field, offsetof(fmha_fwd_params, field), bytes)
  FMHA_RESOLVE(q.data, tensor_bytes(p.q, q, p.nhead_q, p.hdim_q, p.dtype));
  FMHA_RESOLVE(k.data, tensor_bytes(p.k, k, p.nhead_k, p.hdim_q, p.dtype));
  FMHA_RESOLVE(v.data, tensor_bytes(p.v, k, p.nhead_k, p.hdim_v, p.dtype));
  FMHA_RESOLVE(o.data, tensor_bytes(p.o, q, p.nhead_q, p.hdim_v, p.o_dtype ? p.o_dtype : p.dtype));
  FMHA_RESOLVE(lse.data, extent({{q.batch, p.lse.stride_batch}, {p.nhead_q, p.lse.stride_head}}, q.rows,
                                sizeof(float)));
  FMHA_RESOLVE(bias.data, extent({{q.batch, p.bias.stride_batch},
                                  {p.nhead_q, p.bias.stride_head},
                                  {q.rows, p.bias.stride_seqlen}},
                                 p.seqlen_k, element_bytes(p.dtype)));
  FMHA_RESOLVE(alibi_slopes, extent({{p.batch, p.alibi_stride_batch}}, p.nhead_q, sizeof(float)));
  FMHA_RESOLVE(cu_seqlens_q, extent({}, starts, sizeof(int32_t)));
  FMHA_RESOLVE(cu_seqlens_k, extent({}, starts, sizeof(int32_t)));
  FMHA_RESOLVE(seqused_q, extent({}, p.batch, sizeof(int32_t)));
  FMHA_RESOLVE(seqused_k, extent({}, p.batch, sizeof(int32_t)));
  FMHA_RESOLVE(philox_seed_offset, 2 * sizeof(uint64_t));
#undef FMHA_RESOLVE
  if (p.randval.data != nullptr) refuse(kInvalid, "attribute params: got randval, which has no buffer here");
}

void Call::read_params(std::span<const int64_t> words) {
  const size_t known = std::min(words.size_bytes(), sizeof params_);
  std::memcpy(&params_, words.data(), known);
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  if (words.empty() ||
      std::any_of(bytes + known, bytes + words.size_bytes(), [](char c) { return c != 0; })) {
    refuse(XLA_FFI_Error_Code_FAILED_PRECONDITION,
           "attribute params: got %zu bytes with fields of a newer version, expected those of version %d.%d",
           words.size_bytes(), FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR);
  }
  params_.struct_size = sizeof params_;
}

void Call::read_repeats(const XLA_FFI_CallFrame& frame) {
  counts_ = attribute(frame, "repeat_counts");
  steps_ = attribute(frame, "repeat_steps");
  bool fits = steps_.size() == counts_.size() * buffers_.size();
  for (const int64_t count : counts_) {
    fits = fits && count >= 0 && !__builtin_mul_overflow(repeats_, count, &repeats_);
  }
  if (!fits || std::any_of(steps_.begin(), steps_.end(), [](int64_t step) { return step < 0; })) {
    refuse(kInvalid,
           "attributes repeat_counts and repeat_steps: got %zu and %zu numbers for %zu buffers, "
           "expected one step "
           "for each count and buffer, none of them negative",
           counts_.size(), steps_.size(), buffers_.size());
  }
}

// `bytes` is what a launch may use from the address on.
void Call::resolve(const char* name, size_t offset, int64_t bytes) {
  uintptr_t number = 0;
  std::memcpy(&number, reinterpret_cast<const char*>(&params_) + offset, sizeof number);
  if (number == 0) return;
  if (number > buffers_.size()) {
    refuse(kInvalid, "attribute params: %s is buffer %zu, expected at most %zu", name,
           static_cast<size_t>(number), buffers_.size());
  }
  const size_t index = number - 1;
  bool fits = true;
  for (size_t d = 0; d < counts_.size() && bytes > 0 && repeats_ > 0; ++d) {
    int64_t all = 0;
    fits = fits && !__builtin_mul_overflow(counts_[d] - 1, steps_[d * buffers_.size() + index], &all) &&
           !__builtin_add_overflow(bytes, all, &bytes);
  }
  const Buffer& buffer = buffers_[index];
  if (!fits || bytes > buffer.bytes) {
    refuse(kInvalid, "%s: got a buffer of %lld bytes, expected %lld, as attribute params says", name,
           static_cast<long long>(buffer.bytes), static_cast<long long>(bytes));
  }
  pointers_.push_back({offset, index});
  if (buffer.bytes > 0) used_.push_back(buffer);
}

fmha_fwd_params Call::params(int64_t repeat) const {
  fmha_fwd_params params = params_;
  std::vector<uintptr_t> addresses;
  for (const Buffer& buffer : buffers_) addresses.push_back(reinterpret_cast<uintptr_t>(buffer.data));
  for (size_t d = counts_.size(); d-- > 0; repeat /= counts_[d]) {
    const auto index = static_cast<uintptr_t>(repeat % counts_[d]);
    for (size_t b = 0; b < buffers_.size(); ++b) {
      if (buffers_[b].bytes > 0)
        addresses[b] += static_cast<uintptr_t>(index * steps_[d * buffers_.size() + b]);
    }
  }
  for (const Pointer& pointer : pointers_) {
    std::memcpy(reinterpret_cast<char*>(&params) + pointer.offset, &addresses[pointer.buffer],
                sizeof(uintptr_t));
  }
  return params;
}

fmha_fwd_params Call::prepared() const {
  fmha_fwd_params params = this->params(0);
  params.q.data = params.k.data = params.v.data = params.o.data = nullptr;
  return params;
}

}  // namespace fmha::jax
