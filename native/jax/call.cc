// SPDX-License-Identifier: MIT OR Apache-2.0
#include "call.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>

namespace fmha::jax {
namespace {

constexpr auto kInvalid = XLA_FFI_Error_Code_INVALID_ARGUMENT;

// The pointers of the parameters that may name a buffer.
struct Field {
  const char* name;
  size_t offset;
};
#define FMHA_FIELD(name) {#name, offsetof(fmha_fwd_params, name)}
constexpr Field kPointers[] = {
    FMHA_FIELD(q.data),       FMHA_FIELD(k.data),    FMHA_FIELD(v.data),       FMHA_FIELD(o.data),
    FMHA_FIELD(lse.data),     FMHA_FIELD(bias.data), FMHA_FIELD(alibi_slopes), FMHA_FIELD(cu_seqlens_q),
    FMHA_FIELD(cu_seqlens_k), FMHA_FIELD(seqused_q), FMHA_FIELD(seqused_k),    FMHA_FIELD(philox_seed_offset),
};
#undef FMHA_FIELD

// For a buffer of no bytes, whose address may be NULL, which would say that there is none.
alignas(16) char g_no_bytes[16];

void write_address(fmha_fwd_params& params, size_t offset, uintptr_t address) {
  std::memcpy(reinterpret_cast<char*>(&params) + offset, &address, sizeof address);
}

XLA_FFI_Error_Code code_of(fmha_status status) {
  switch (status) {
    case FMHA_INVALID_ARGUMENT:
      return XLA_FFI_Error_Code_INVALID_ARGUMENT;
    case FMHA_UNSUPPORTED:
      return XLA_FFI_Error_Code_UNIMPLEMENTED;
    case FMHA_ABI_MISMATCH:
      return XLA_FFI_Error_Code_FAILED_PRECONDITION;
    default:
      return XLA_FFI_Error_Code_INTERNAL;
  }
}

}  // namespace

void check(const fmha_jax_library& library, fmha_status status) {
  if (status != FMHA_OK) raise(code_of(status), "%s", library.last_error());
}

Call::Call(const XLA_FFI_CallFrame& frame, const fmha_jax_library& library) : buffers_(buffers_of(frame)) {
  read_repeats(frame);
  read_params(attribute(frame, "params"));
  if (params_.randval.data != nullptr) {
    raise(kInvalid, "attribute params: got randval, which has no buffer here");
  }
  for (const Field& field : kPointers) read_pointer(field.name, field.offset);
  check_buffers(library);
}

// A number becomes the buffer that it stands for.
void Call::read_pointer(const char* name, size_t offset) {
  uintptr_t number = 0;
  std::memcpy(&number, reinterpret_cast<const char*>(&params_) + offset, sizeof number);
  if (number == 0) return;
  if (number > buffers_.size()) {
    raise(kInvalid, "attribute params: %s is buffer %zu, expected at most %zu", name,
          static_cast<size_t>(number), buffers_.size());
  }
  pointers_.push_back({name, offset, number - 1});
  if (buffers_[number - 1].bytes > 0) used_.push_back(buffers_[number - 1]);
}

// Each buffer must hold all that a launch may touch, in every repetition.
void Call::check_buffers(const fmha_jax_library& library) const {
  fmha_fwd_params params = params_;
  for (const Pointer& pointer : pointers_) {
    const char* data = buffers_[pointer.buffer].data;
    write_address(params, pointer.offset, reinterpret_cast<uintptr_t>(data != nullptr ? data : g_no_bytes));
  }
  fmha_extent extents[16];
  int32_t count = 0;
  check(library, library.extents(&params, extents, static_cast<int32_t>(std::size(extents)), &count));
  for (const fmha_extent& extent : std::span(extents, static_cast<size_t>(count))) {
    const auto named = [&](const Pointer& pointer) { return std::strcmp(pointer.name, extent.name) == 0; };
    const auto pointer = std::find_if(pointers_.begin(), pointers_.end(), named);
    if (pointer != pointers_.end()) check_buffer(*pointer, extent.bytes);
  }
}

// `bytes` is what a launch may use from the address on.
void Call::check_buffer(const Pointer& pointer, int64_t bytes) const {
  bool fits = true;
  for (size_t d = 0; d < counts_.size() && repeats_ > 0; ++d) {
    int64_t all = 0;
    fits = fits &&
           !__builtin_mul_overflow(counts_[d] - 1, steps_[d * buffers_.size() + pointer.buffer], &all) &&
           !__builtin_add_overflow(bytes, all, &bytes);
  }
  const Buffer& buffer = buffers_[pointer.buffer];
  if (!fits || bytes > buffer.bytes) {
    raise(kInvalid, "%s: got a buffer of %lld bytes, expected %lld, as attribute params says", pointer.name,
          static_cast<long long>(buffer.bytes), static_cast<long long>(bytes));
  }
}

void Call::read_params(std::span<const int64_t> words) {
  const size_t known = std::min(words.size_bytes(), sizeof params_);
  std::memcpy(&params_, words.data(), known);
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  if (words.empty() ||
      std::any_of(bytes + known, bytes + words.size_bytes(), [](char c) { return c != 0; })) {
    raise(XLA_FFI_Error_Code_FAILED_PRECONDITION,
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
    raise(kInvalid,
          "attributes repeat_counts and repeat_steps: got %zu and %zu numbers for %zu buffers, "
          "expected one step "
          "for each count and buffer, none of them negative",
          counts_.size(), steps_.size(), buffers_.size());
  }
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
  for (const Pointer& pointer : pointers_) write_address(params, pointer.offset, addresses[pointer.buffer]);
  return params;
}

fmha_fwd_params Call::prepared() const {
  fmha_fwd_params params = this->params(0);
  params.q.data = params.k.data = params.v.data = params.o.data = nullptr;
  return params;
}

}  // namespace fmha::jax
