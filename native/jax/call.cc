// SPDX-License-Identifier: MIT OR Apache-2.0
#include "call.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace fmha::jax {
namespace {

constexpr auto kInvalid = XLA_FFI_Error_Code_INVALID_ARGUMENT;
constexpr uintptr_t kWorkspaceAlign = 256;

// The prefix of names in passes that have the forward call's fields as a struct of their own.
constexpr const char kPrefix[] = "fwd->";

// Stands for a buffer of no bytes: its address may be NULL, which would say that there is none.
alignas(16) char g_no_bytes[16];

template <typename Struct>
void write_address(Struct& to, size_t offset, uintptr_t address) {
  std::memcpy(reinterpret_cast<char*>(&to) + offset, &address, sizeof address);
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

template <typename Struct>
Struct read_struct(const XLA_FFI_CallFrame& frame, const char* name) {
  const std::span<const int64_t> words = attribute(frame, name);
  Struct read{};
  const size_t known = std::min(words.size_bytes(), sizeof read);
  std::memcpy(&read, words.data(), known);
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  if (words.empty() ||
      std::any_of(bytes + known, bytes + words.size_bytes(), [](char c) { return c != 0; })) {
    raise(XLA_FFI_Error_Code_FAILED_PRECONDITION,
          "attribute %s: got %zu bytes with fields of a newer version, expected those of version %d.%d", name,
          words.size_bytes(), FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR);
  }
  read.struct_size = sizeof read;
  return read;
}

}  // namespace

// The pointers of the parameters that may name a buffer.
#define FMHA_FWD(name) {"fwd->" #name, offsetof(Params, fwd.name)}
#define FMHA_BWD(name) {#name, offsetof(Params, bwd.name)}
#define FMHA_CACHE(name) {"cache->" #name, offsetof(Params, cache.name)}
#define FMHA_DECODE(name) {#name, offsetof(Params, decode.name)}
#define FMHA_APPEND(name) {#name, offsetof(Params, append.name)}
#define FMHA_MERGE(name) {#name, offsetof(Params, merge.name)}
const Call::Field Call::kForwardFields[] = {
    FMHA_FWD(q.data),       FMHA_FWD(k.data),    FMHA_FWD(v.data),       FMHA_FWD(o.data),
    FMHA_FWD(lse.data),     FMHA_FWD(bias.data), FMHA_FWD(alibi_slopes), FMHA_FWD(cu_seqlens_q),
    FMHA_FWD(cu_seqlens_k), FMHA_FWD(seqused_q), FMHA_FWD(seqused_k),    FMHA_FWD(philox_seed_offset),
    FMHA_FWD(workspace),    FMHA_FWD(sinks),
};
const Call::Field Call::kBackwardFields[] = {
    FMHA_BWD(dout.data), FMHA_BWD(dq.data),    FMHA_BWD(dk.data),
    FMHA_BWD(dv.data),   FMHA_BWD(dbias.data), FMHA_BWD(workspace),
};
const Call::Field Call::kCacheFields[] = {
    FMHA_CACHE(k.data),     FMHA_CACHE(v.data),          FMHA_CACHE(block_table),  FMHA_CACHE(kv_indptr),
    FMHA_CACHE(kv_indices), FMHA_CACHE(cache_batch_idx), FMHA_CACHE(k_scale.data), FMHA_CACHE(v_scale.data),
};
const Call::Field Call::kDecodeFields[] = {
    FMHA_DECODE(leftpad_k),
    FMHA_DECODE(sinks),
    FMHA_DECODE(workspace),
};
const Call::Field Call::kAppendFields[] = {
    FMHA_APPEND(q.data),     FMHA_APPEND(q_out.data), FMHA_APPEND(k.data), FMHA_APPEND(v.data),
    FMHA_APPEND(cu_seqlens), FMHA_APPEND(seqused_k),  FMHA_APPEND(slots),  FMHA_APPEND(positions),
    FMHA_APPEND(rotary.cos), FMHA_APPEND(rotary.sin),
};
const Call::Field Call::kMergeFields[] = {
    FMHA_MERGE(o_parts.data),
    FMHA_MERGE(lse_parts.data),
    FMHA_MERGE(o.data),
    FMHA_MERGE(lse.data),
};
#undef FMHA_FWD
#undef FMHA_BWD
#undef FMHA_CACHE
#undef FMHA_DECODE
#undef FMHA_APPEND
#undef FMHA_MERGE

Call::Call(const XLA_FFI_CallFrame& frame, const fmha_jax_library& library, Pass pass)
    : library_(library), pass_(pass), buffers_(buffers_of(frame)) {
  read_repeats(frame);
  read_params(frame);
  check_buffers();
}

const char* Call::name_of(const Field& field) const {
  const size_t prefix = sizeof kPrefix - 1;
  const bool own = pass_ == Pass::kForward && std::strncmp(field.name, kPrefix, prefix) == 0;
  return own ? field.name + prefix : field.name;
}

// Raises what the library says of a call that it refuses.
void Call::check(fmha_status status) const {
  if (status != FMHA_OK) raise(code_of(status), "%s", library_.last_error());
}

// A number becomes the buffer that it stands for.
void Call::read_pointers(std::span<const Field> fields) {
  for (const Field& field : fields) {
    uintptr_t number = 0;
    std::memcpy(&number, reinterpret_cast<const char*>(&params_) + field.offset, sizeof number);
    if (number == 0) continue;
    if (number > buffers_.size()) {
      raise(kInvalid, "attribute params: %s is buffer %zu, expected at most %zu", name_of(field),
            static_cast<size_t>(number), buffers_.size());
    }
    pointers_.push_back({field, number - 1});
    if (buffers_[number - 1].bytes > 0) used_.push_back(buffers_[number - 1]);
  }
}

// Each buffer must hold all that a launch may touch, in every repetition. The library looks at the size of
// the workspace when it launches.
void Call::check_buffers() const {
  Params params = params_;
  for (const Pointer& pointer : pointers_) {
    const char* data = buffers_[pointer.buffer].data;
    const auto address = reinterpret_cast<uintptr_t>(data != nullptr ? data : g_no_bytes);
    write_address(params, pointer.field.offset, address);
  }
  link(params);
  fmha_extent extents[24];
  int32_t count = 0;
  check(list_extents(params, extents, &count));
  for (const fmha_extent& extent : std::span(extents, static_cast<size_t>(count))) {
    const auto named = [&](const Pointer& pointer) {
      return std::strcmp(name_of(pointer.field), extent.name) == 0;
    };
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
    raise(kInvalid, "%s: got a buffer of %lld bytes, expected %lld, as attribute params says",
          name_of(pointer.field), static_cast<long long>(buffer.bytes), static_cast<long long>(bytes));
  }
}

// The attributes of a pass, and the pointers in them.
void Call::read_params(const XLA_FFI_CallFrame& frame) {
  if (pass_ != Pass::kAppend && pass_ != Pass::kMerge) {
    params_.fwd = read_struct<fmha_fwd_params>(frame, "params");
    if (params_.fwd.randval.data != nullptr) {
      raise(kInvalid, "attribute params: got randval, which has no buffer here");
    }
    read_pointers(kForwardFields);
  }
  switch (pass_) {
    case Pass::kForward:
      return;
    case Pass::kBackward:
      params_.bwd = read_struct<fmha_bwd_params>(frame, "bwd_params");
      return read_pointers(kBackwardFields);
    case Pass::kDecode:
      params_.decode = read_struct<fmha_decode_params>(frame, "decode_params");
      read_pointers(kDecodeFields);
      params_.has_cache = true;
      break;
    case Pass::kAppend:
      params_.append = read_struct<fmha_kv_append_params>(frame, "append_params");
      read_pointers(kAppendFields);
      params_.has_cache = params_.append.cache != nullptr;
      break;
    case Pass::kMerge:
      params_.merge = read_struct<fmha_merge_params>(frame, "merge_params");
      return read_pointers(kMergeFields);
  }
  if (!params_.has_cache) return;
  params_.cache = read_struct<fmha_cache>(frame, "cache");
  read_pointers(kCacheFields);
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

Call::Params Call::params(int64_t repeat) const {
  Params params = params_;
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
    write_address(params, pointer.field.offset, addresses[pointer.buffer]);
  }
  place_workspace(params);
  return params;
}

// XLA aligns buffers to less than the library wants, so the buffer is the larger for it. All launches share
// it, one after the other.
void Call::place_workspace(Params& params) const {
  struct Workspace {
    size_t offset;  // in Params
    void*& address;
    int64_t& bytes;
  };
  const Workspace workspaces[] = {
      {offsetof(Params, fwd.workspace), params.fwd.workspace, params.fwd.workspace_bytes},
      {offsetof(Params, bwd.workspace), params.bwd.workspace, params.bwd.workspace_bytes},
      {offsetof(Params, decode.workspace), params.decode.workspace, params.decode.workspace_bytes},
  };
  for (const Pointer& pointer : pointers_) {
    for (const Workspace& workspace : workspaces) {
      if (workspace.offset != pointer.field.offset) continue;
      const Buffer& buffer = buffers_[pointer.buffer];
      const auto begin = reinterpret_cast<uintptr_t>(buffer.data);
      const uintptr_t skipped = (kWorkspaceAlign - begin % kWorkspaceAlign) % kWorkspaceAlign;
      workspace.address = reinterpret_cast<void*>(begin + skipped);
      workspace.bytes = buffer.bytes - static_cast<int64_t>(skipped);
    }
  }
}

// The forward pass also does without. Another device than that which was asked when the program was made may
// want more than there is.
void Call::drop_small_workspace(fmha_fwd_params& fwd) const {
  if (fwd.workspace == nullptr) return;
  int64_t wanted = 0;
  check(library_.fwd_workspace_bytes(&fwd, &wanted));
  if (wanted <= fwd.workspace_bytes) return;
  fwd.workspace = nullptr;
  fwd.workspace_bytes = 0;
}

void Call::link(Params& params) {
  params.bwd.fwd = params.decode.fwd = &params.fwd;
  params.decode.cache = params.append.cache = params.has_cache ? &params.cache : nullptr;
}

fmha_status Call::list_extents(const Params& params, std::span<fmha_extent> extents, int32_t* count) const {
  const auto capacity = static_cast<int32_t>(extents.size());
  switch (pass_) {
    case Pass::kForward:
      return library_.fwd_extents(&params.fwd, extents.data(), capacity, count);
    case Pass::kBackward:
      return library_.bwd_extents(&params.bwd, extents.data(), capacity, count);
    case Pass::kDecode:
      return library_.decode_extents(&params.decode, extents.data(), capacity, count);
    case Pass::kAppend:
      return library_.kv_append_extents(&params.append, extents.data(), capacity, count);
    case Pass::kMerge:
      return library_.merge_extents(&params.merge, extents.data(), capacity, count);
  }
  return FMHA_INTERNAL;  // no other pass is made
}

fmha_status Call::run(const Params& params, void* stream) const {
  switch (pass_) {
    case Pass::kForward:
      return library_.fwd(&params.fwd, stream);
    case Pass::kBackward:
      return library_.bwd(&params.bwd, stream);
    case Pass::kDecode:
      return library_.decode(&params.decode, stream);
    case Pass::kAppend:
      return library_.kv_append(&params.append, stream);
    case Pass::kMerge:
      return library_.merge(&params.merge, stream);
  }
  return FMHA_INTERNAL;  // no other pass is made
}

void Call::launch(void* stream) const {
  for (int64_t i = 0; i < repeats_; ++i) {
    Params params = this->params(i);
    link(params);
    if (pass_ == Pass::kForward) drop_small_workspace(params.fwd);
    check(run(params, stream));
  }
}

void Call::prepare() const {
  if (repeats_ == 0) return;
  Params params = this->params(0);
  link(params);
  prepare_linked(params);
}

// Pointers that ask for something, such as an append's q, k and v, stay.
void Call::prepare_linked(Params& params) const {
  fmha_fwd_params& fwd = params.fwd;
  fwd.q.data = fwd.k.data = fwd.v.data = fwd.o.data = nullptr;
  params.cache.k.data = params.cache.v.data = nullptr;
  switch (pass_) {
    case Pass::kForward:
      return check(library_.fwd_prepare(&fwd));
    case Pass::kBackward:
      fwd.lse.data = nullptr;
      params.bwd.dout.data = params.bwd.dq.data = params.bwd.dk.data = params.bwd.dv.data = nullptr;
      return check(library_.bwd_prepare(&params.bwd));
    case Pass::kDecode:
      return check(library_.decode_prepare(&params.decode));
    case Pass::kAppend:
      return check(library_.kv_append_prepare(&params.append));
    case Pass::kMerge:
      params.merge.o_parts.data = params.merge.o.data = nullptr;
      params.merge.lse_parts.data = nullptr;
      return check(library_.merge_prepare(&params.merge));
  }
}

}  // namespace fmha::jax
