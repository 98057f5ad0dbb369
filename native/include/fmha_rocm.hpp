/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * fmha_rocm.hpp: fmha_rocm.h for C++17 and later; this header is all of it.
 *
 * fmha_fwd is fmha::fwd here, fmha_fwd_params is fmha::fwd_params, and so on: the same names, fields and
 * constants (FMHA_FP16, ...), with the meaning that fmha_rocm.h gives them. These things differ:
 *
 *  - Structs are derived from those of C and come zeroed, struct_size set. They are plain values; like the
 *    C ones they point to device memory and never own, allocate or free any.
 *  - Errors. Each function that can fail has two forms:
 *
 *        fmha::fwd(params, stream);                                // throws fmha::error
 *        fmha::result<void> r = fmha::fwd(std::nothrow, params, stream);  // returns it
 *
 *    A result is like C++23's std::expected<T, fmha::failure>. It copies the message, so it stays right
 * whatever the thread calls next. Without exceptions (-fno-exceptions) only the second form is there.
 */
#ifndef FMHA_ROCM_HPP
#define FMHA_ROCM_HPP

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fmha_rocm.h"

#if defined(__cpp_exceptions)
#include <stdexcept>
#define FMHA_ROCM_EXCEPTIONS 1
#else
#include <cstdlib>
#endif

namespace fmha {

using status = ::fmha_status;
using dtype = ::fmha_dtype;
using mask = ::fmha_mask;

/* ---- Values ---- */

/* Strides are in elements, as in C. The named forms are of contiguous tensors. */
struct tensor : ::fmha_tensor {
  constexpr tensor() noexcept : ::fmha_tensor{} {}
  constexpr tensor(void* data_, std::int64_t stride_batch_, std::int64_t stride_seqlen_,
                   std::int64_t stride_head_) noexcept
      : ::fmha_tensor{data_, stride_batch_, stride_seqlen_, stride_head_} {}

  /* (batch, seqlen, nhead, hdim) */
  static constexpr tensor bshd(void* data, std::int64_t seqlen, std::int64_t nhead,
                               std::int64_t hdim) noexcept {
    return {data, seqlen * nhead * hdim, nhead * hdim, hdim};
  }
  /* (batch, nhead, seqlen, hdim) */
  static constexpr tensor bhsd(void* data, std::int64_t seqlen, std::int64_t nhead,
                               std::int64_t hdim) noexcept {
    return {data, nhead * seqlen * hdim, hdim, seqlen * hdim};
  }
  /* (total, nhead, hdim): packed sequences, with cu_seqlens */
  static constexpr tensor packed(void* data, std::int64_t nhead, std::int64_t hdim) noexcept {
    return {data, 0, nhead * hdim, hdim};
  }
};

struct lse : ::fmha_lse {
  constexpr lse() noexcept : ::fmha_lse{} {}
  constexpr lse(float* data_, std::int64_t stride_batch_, std::int64_t stride_head_) noexcept
      : ::fmha_lse{data_, stride_batch_, stride_head_} {}

  /* (batch, nhead, seqlen) */
  static constexpr lse bhs(float* data, std::int64_t nhead, std::int64_t seqlen) noexcept {
    return {data, nhead * seqlen, seqlen};
  }
  /* (nhead, total): packed sequences */
  static constexpr lse packed(float* data, std::int64_t total) noexcept { return {data, 0, total}; }
};

struct bias : ::fmha_bias {
  constexpr bias() noexcept : ::fmha_bias{} {}
  constexpr bias(const void* data_, std::int64_t stride_batch_, std::int64_t stride_head_,
                 std::int64_t stride_seqlen_) noexcept
      : ::fmha_bias{data_, stride_batch_, stride_head_, stride_seqlen_} {}
};

struct bias_grad : ::fmha_bias_grad {
  constexpr bias_grad() noexcept : ::fmha_bias_grad{} {}
  constexpr bias_grad(void* data_, std::int64_t stride_batch_, std::int64_t stride_head_,
                      std::int64_t stride_seqlen_) noexcept
      : ::fmha_bias_grad{data_, stride_batch_, stride_head_, stride_seqlen_} {}
};

struct randval : ::fmha_randval {
  constexpr randval() noexcept : ::fmha_randval{} {}
  constexpr randval(std::uint8_t* data_, std::int64_t stride_batch_, std::int64_t stride_head_,
                    std::int64_t stride_seqlen_) noexcept
      : ::fmha_randval{data_, stride_batch_, stride_head_, stride_seqlen_} {}
};

struct fwd_params : ::fmha_fwd_params {
  constexpr fwd_params() noexcept : ::fmha_fwd_params{} { struct_size = sizeof(::fmha_fwd_params); }
};

/* The forward call is referred to, not copied: it must outlive this. */
struct bwd_params : ::fmha_bwd_params {
  constexpr bwd_params() noexcept : ::fmha_bwd_params{} { struct_size = sizeof(::fmha_bwd_params); }
};

/* The named forms are of contiguous pages, or batch elements, of so many tokens. */
struct cache_tensor : ::fmha_cache_tensor {
  constexpr cache_tensor() noexcept : ::fmha_cache_tensor{} {}
  constexpr cache_tensor(void* data_, std::int64_t stride_page_, std::int64_t stride_token_,
                         std::int64_t stride_head_) noexcept
      : ::fmha_cache_tensor{data_, stride_page_, stride_token_, stride_head_} {}

  /* (pages, page_size, nhead, hdim) */
  static constexpr cache_tensor bshd(void* data, std::int64_t page_size, std::int64_t nhead,
                                     std::int64_t hdim) noexcept {
    return {data, page_size * nhead * hdim, nhead * hdim, hdim};
  }
  /* (pages, nhead, page_size, hdim) */
  static constexpr cache_tensor bhsd(void* data, std::int64_t page_size, std::int64_t nhead,
                                     std::int64_t hdim) noexcept {
    return {data, nhead * page_size * hdim, hdim, page_size * hdim};
  }
};
using cache_scale = ::fmha_cache_scale;

struct cache : ::fmha_cache {
  constexpr cache() noexcept : ::fmha_cache{} { struct_size = sizeof(::fmha_cache); }
};

/* The forward call and the cache are referred to, not copied: they must outlive this. */
struct decode_params : ::fmha_decode_params {
  constexpr decode_params() noexcept : ::fmha_decode_params{} { struct_size = sizeof(::fmha_decode_params); }
};

/* The cache is referred to, not copied: it must outlive this. */
struct kv_append_params : ::fmha_kv_append_params {
  constexpr kv_append_params() noexcept : ::fmha_kv_append_params{} {
    struct_size = sizeof(::fmha_kv_append_params);
  }
};

struct parts : ::fmha_parts {
  constexpr parts() noexcept : ::fmha_parts{} {}
  constexpr parts(const void* data_, std::int64_t stride_part_, std::int64_t stride_batch_,
                  std::int64_t stride_seqlen_, std::int64_t stride_head_) noexcept
      : ::fmha_parts{data_, stride_part_, stride_batch_, stride_seqlen_, stride_head_} {}
};

struct lse_parts : ::fmha_lse_parts {
  constexpr lse_parts() noexcept : ::fmha_lse_parts{} {}
  constexpr lse_parts(const float* data_, std::int64_t stride_part_, std::int64_t stride_batch_,
                      std::int64_t stride_head_) noexcept
      : ::fmha_lse_parts{data_, stride_part_, stride_batch_, stride_head_} {}
};

struct merge_params : ::fmha_merge_params {
  constexpr merge_params() noexcept : ::fmha_merge_params{} { struct_size = sizeof(::fmha_merge_params); }
};

struct quantize_params : ::fmha_quantize_params {
  constexpr quantize_params() noexcept : ::fmha_quantize_params{} {
    struct_size = sizeof(::fmha_quantize_params);
  }
};
using rotary = ::fmha_rotary;
using extent = ::fmha_extent;

struct kernel_info : ::fmha_kernel_info {
  constexpr kernel_info() noexcept : ::fmha_kernel_info{} { struct_size = sizeof(::fmha_kernel_info); }
};

/* ---- Errors ---- */

/* A call that failed: status is not FMHA_OK, and message is what fmha_last_error() said. */
struct failure {
  fmha::status status = FMHA_INTERNAL;
  std::string message;
};

#ifdef FMHA_ROCM_EXCEPTIONS
/* The exceptions of the throwing forms: one class a status, so that a caller may catch the ones it knows. */
class error : public std::runtime_error {
 public:
  explicit error(const failure& f) : std::runtime_error(f.message), status_(f.status) {}
  fmha::status status() const noexcept { return status_; }

 private:
  fmha::status status_;
};
struct invalid_argument : error {
  using error::error;
};
struct unsupported : error {
  using error::error;
};
struct hip_error : error {
  using error::error;
};
struct internal_error : error {
  using error::error;
};
struct abi_mismatch : error {
  using error::error;
};

[[noreturn]] inline void raise(const failure& f) {
  switch (f.status) {
    case FMHA_INVALID_ARGUMENT:
      throw invalid_argument(f);
    case FMHA_UNSUPPORTED:
      throw unsupported(f);
    case FMHA_HIP_ERROR:
      throw hip_error(f);
    case FMHA_ABI_MISMATCH:
      throw abi_mismatch(f);
    case FMHA_INTERNAL:
      throw internal_error(f);
    default:  // of a library newer than this header
      throw error(f);
  }
}
#else
/* value() of a failed result, where nothing can be thrown. */
[[noreturn]] inline void raise(const failure&) { std::abort(); }
#endif

/* A value or a failure. operator*, operator-> and error() need the one or the other to be there; value()
 * throws the failure if there is no value (and aborts without exceptions). */
template <typename T>
class [[nodiscard]] result {
 public:
  result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  result(failure f) : state_(std::in_place_index<1>, std::move(f)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  const T& operator*() const noexcept { return *std::get_if<0>(&state_); }
  T& operator*() noexcept { return *std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }
  const T& value() const {
    if (!has_value()) raise(error());
    return **this;
  }
  const failure& error() const noexcept { return *std::get_if<1>(&state_); }
  /* FMHA_OK, or that of the failure */
  fmha::status status() const noexcept { return has_value() ? FMHA_OK : error().status; }

 private:
  std::variant<T, failure> state_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(failure f) : failure_(std::move(f)) {}

  bool has_value() const noexcept { return failure_.status == FMHA_OK; }
  explicit operator bool() const noexcept { return has_value(); }
  void value() const {
    if (!has_value()) raise(failure_);
  }
  const failure& error() const noexcept { return failure_; }
  fmha::status status() const noexcept { return failure_.status; }

 private:
  failure failure_{FMHA_OK, {}};
};

namespace detail {
/* Right after the call that gave `s`, on its thread. */
inline result<void> checked(fmha::status s) {
  if (s == FMHA_OK) return {};
  return failure{s, ::fmha_last_error()};
}

/* The answer of a family's query of its kernel. */
template <typename Params>
result<kernel_info> kernel_of(fmha::status (*query)(const Params*, ::fmha_kernel_info*),
                              const Params& params) {
  kernel_info info;
  if (const result<void> r = checked(query(&params, &info)); !r) return r.error();
  return info;
}

/* The answer of a family's query of its memory. */
template <typename Params>
result<std::vector<extent>> extents_of(fmha::status (*query)(const Params*, ::fmha_extent*, std::int32_t,
                                                             std::int32_t*),
                                       const Params& params) {
  std::vector<extent> extents(17); /* the most there are */
  std::int32_t count = 0;
  const auto capacity = static_cast<std::int32_t>(extents.size());
  if (const result<void> r = checked(query(&params, extents.data(), capacity, &count)); !r) return r.error();
  extents.resize(static_cast<std::size_t>(count));
  return extents;
}
}  // namespace detail

/* ---- Functions that cannot fail ---- */

inline std::string_view version() noexcept { return ::fmha_version(); }
inline std::string_view build_info() noexcept { return ::fmha_build_info(); }
inline std::string_view last_error() noexcept { return ::fmha_last_error(); }

/* ---- Results. They allocate only on failure, for the message. ---- */

inline result<void> set_hip_runtime(std::nothrow_t, const std::string& path) {
  return detail::checked(::fmha_set_hip_runtime(path.c_str()));
}

inline result<std::string_view> hip_runtime_path(std::nothrow_t) {
  const char* path = ::fmha_hip_runtime_path();
  if (path == nullptr) return failure{FMHA_HIP_ERROR, ::fmha_last_error()};
  return std::string_view(path);
}

inline result<void> fwd_supported(std::nothrow_t, const ::fmha_fwd_params& params) {
  return detail::checked(::fmha_fwd_supported(&params));
}

inline result<kernel_info> fwd_kernel(std::nothrow_t, const ::fmha_fwd_params& params) {
  return detail::kernel_of(::fmha_fwd_kernel, params);
}

inline result<std::int64_t> fwd_workspace_bytes(std::nothrow_t, const ::fmha_fwd_params& params) {
  std::int64_t bytes = 0;
  if (const result<void> r = detail::checked(::fmha_fwd_workspace_bytes(&params, &bytes)); !r)
    return r.error();
  return bytes;
}

inline result<std::vector<extent>> fwd_extents(std::nothrow_t, const ::fmha_fwd_params& params) {
  return detail::extents_of(::fmha_fwd_extents, params);
}

inline result<void> fwd_prepare(std::nothrow_t, const ::fmha_fwd_params& params) {
  return detail::checked(::fmha_fwd_prepare(&params));
}

/* The older name of fwd_prepare. */
inline result<void> prepare(std::nothrow_t, const ::fmha_fwd_params& params) {
  return fwd_prepare(std::nothrow, params);
}

/* stream: a hipStream_t */
inline result<void> fwd(std::nothrow_t, const ::fmha_fwd_params& params, void* stream) {
  return detail::checked(::fmha_fwd(&params, stream));
}

inline result<void> bwd_supported(std::nothrow_t, const ::fmha_bwd_params& params) {
  return detail::checked(::fmha_bwd_supported(&params));
}

inline result<kernel_info> bwd_kernel(std::nothrow_t, const ::fmha_bwd_params& params) {
  return detail::kernel_of(::fmha_bwd_kernel, params);
}

inline result<std::int64_t> bwd_workspace_bytes(std::nothrow_t, const ::fmha_bwd_params& params) {
  std::int64_t bytes = 0;
  if (const result<void> r = detail::checked(::fmha_bwd_workspace_bytes(&params, &bytes)); !r)
    return r.error();
  return bytes;
}

inline result<std::vector<extent>> bwd_extents(std::nothrow_t, const ::fmha_bwd_params& params) {
  return detail::extents_of(::fmha_bwd_extents, params);
}

inline result<void> bwd_prepare(std::nothrow_t, const ::fmha_bwd_params& params) {
  return detail::checked(::fmha_bwd_prepare(&params));
}

/* stream: a hipStream_t */
inline result<void> bwd(std::nothrow_t, const ::fmha_bwd_params& params, void* stream) {
  return detail::checked(::fmha_bwd(&params, stream));
}

inline result<void> decode_supported(std::nothrow_t, const ::fmha_decode_params& params) {
  return detail::checked(::fmha_decode_supported(&params));
}

inline result<kernel_info> decode_kernel(std::nothrow_t, const ::fmha_decode_params& params) {
  return detail::kernel_of(::fmha_decode_kernel, params);
}

inline result<std::int64_t> decode_workspace_bytes(std::nothrow_t, const ::fmha_decode_params& params) {
  std::int64_t bytes = 0;
  if (const result<void> r = detail::checked(::fmha_decode_workspace_bytes(&params, &bytes)); !r)
    return r.error();
  return bytes;
}

inline result<std::vector<extent>> decode_extents(std::nothrow_t, const ::fmha_decode_params& params) {
  return detail::extents_of(::fmha_decode_extents, params);
}

inline result<void> decode_prepare(std::nothrow_t, const ::fmha_decode_params& params) {
  return detail::checked(::fmha_decode_prepare(&params));
}

/* stream: a hipStream_t */
inline result<void> decode(std::nothrow_t, const ::fmha_decode_params& params, void* stream) {
  return detail::checked(::fmha_decode(&params, stream));
}

inline result<void> kv_append_supported(std::nothrow_t, const ::fmha_kv_append_params& params) {
  return detail::checked(::fmha_kv_append_supported(&params));
}

inline result<kernel_info> kv_append_kernel(std::nothrow_t, const ::fmha_kv_append_params& params) {
  return detail::kernel_of(::fmha_kv_append_kernel, params);
}

inline result<std::vector<extent>> kv_append_extents(std::nothrow_t, const ::fmha_kv_append_params& params) {
  return detail::extents_of(::fmha_kv_append_extents, params);
}

inline result<void> kv_append_prepare(std::nothrow_t, const ::fmha_kv_append_params& params) {
  return detail::checked(::fmha_kv_append_prepare(&params));
}

/* stream: a hipStream_t */
inline result<void> kv_append(std::nothrow_t, const ::fmha_kv_append_params& params, void* stream) {
  return detail::checked(::fmha_kv_append(&params, stream));
}

inline result<void> merge_supported(std::nothrow_t, const ::fmha_merge_params& params) {
  return detail::checked(::fmha_merge_supported(&params));
}

inline result<kernel_info> merge_kernel(std::nothrow_t, const ::fmha_merge_params& params) {
  return detail::kernel_of(::fmha_merge_kernel, params);
}

inline result<std::vector<extent>> merge_extents(std::nothrow_t, const ::fmha_merge_params& params) {
  return detail::extents_of(::fmha_merge_extents, params);
}

inline result<void> merge_prepare(std::nothrow_t, const ::fmha_merge_params& params) {
  return detail::checked(::fmha_merge_prepare(&params));
}

/* stream: a hipStream_t */
inline result<void> merge(std::nothrow_t, const ::fmha_merge_params& params, void* stream) {
  return detail::checked(::fmha_merge(&params, stream));
}

inline result<void> quantize_supported(std::nothrow_t, const ::fmha_quantize_params& params) {
  return detail::checked(::fmha_quantize_supported(&params));
}

inline result<kernel_info> quantize_kernel(std::nothrow_t, const ::fmha_quantize_params& params) {
  return detail::kernel_of(::fmha_quantize_kernel, params);
}

inline result<std::int64_t> quantize_workspace_bytes(std::nothrow_t, const ::fmha_quantize_params& params) {
  std::int64_t bytes = 0;
  if (const result<void> r = detail::checked(::fmha_quantize_workspace_bytes(&params, &bytes)); !r)
    return r.error();
  return bytes;
}

inline result<std::vector<extent>> quantize_extents(std::nothrow_t, const ::fmha_quantize_params& params) {
  return detail::extents_of(::fmha_quantize_extents, params);
}

inline result<void> quantize_prepare(std::nothrow_t, const ::fmha_quantize_params& params) {
  return detail::checked(::fmha_quantize_prepare(&params));
}

/* stream: a hipStream_t */
inline result<void> quantize(std::nothrow_t, const ::fmha_quantize_params& params, void* stream) {
  return detail::checked(::fmha_quantize(&params, stream));
}

/* ---- Exceptions ---- */

#ifdef FMHA_ROCM_EXCEPTIONS
inline void set_hip_runtime(const std::string& path) { set_hip_runtime(std::nothrow, path).value(); }

inline std::string_view hip_runtime_path() { return hip_runtime_path(std::nothrow).value(); }

/* False where fwd would throw `unsupported`; any other error is thrown. */
inline bool fwd_supported(const ::fmha_fwd_params& params) {
  const result<void> r = fwd_supported(std::nothrow, params);
  if (r.status() == FMHA_UNSUPPORTED) return false;
  r.value();
  return true;
}

inline kernel_info fwd_kernel(const ::fmha_fwd_params& params) {
  return fwd_kernel(std::nothrow, params).value();
}

inline std::int64_t fwd_workspace_bytes(const ::fmha_fwd_params& params) {
  return fwd_workspace_bytes(std::nothrow, params).value();
}

inline std::vector<extent> fwd_extents(const ::fmha_fwd_params& params) {
  return fwd_extents(std::nothrow, params).value();
}

inline void fwd_prepare(const ::fmha_fwd_params& params) { fwd_prepare(std::nothrow, params).value(); }

inline void prepare(const ::fmha_fwd_params& params) { fwd_prepare(params); }

inline void fwd(const ::fmha_fwd_params& params, void* stream) { fwd(std::nothrow, params, stream).value(); }

/* False where bwd would throw `unsupported`; any other error is thrown. */
inline bool bwd_supported(const ::fmha_bwd_params& params) {
  const result<void> r = bwd_supported(std::nothrow, params);
  if (r.status() == FMHA_UNSUPPORTED) return false;
  r.value();
  return true;
}

inline kernel_info bwd_kernel(const ::fmha_bwd_params& params) {
  return bwd_kernel(std::nothrow, params).value();
}

inline std::int64_t bwd_workspace_bytes(const ::fmha_bwd_params& params) {
  return bwd_workspace_bytes(std::nothrow, params).value();
}

inline std::vector<extent> bwd_extents(const ::fmha_bwd_params& params) {
  return bwd_extents(std::nothrow, params).value();
}

inline void bwd_prepare(const ::fmha_bwd_params& params) { bwd_prepare(std::nothrow, params).value(); }

inline void bwd(const ::fmha_bwd_params& params, void* stream) { bwd(std::nothrow, params, stream).value(); }

/* False where decode would throw `unsupported`; any other error is thrown. */
inline bool decode_supported(const ::fmha_decode_params& params) {
  const result<void> r = decode_supported(std::nothrow, params);
  if (r.status() == FMHA_UNSUPPORTED) return false;
  r.value();
  return true;
}

inline kernel_info decode_kernel(const ::fmha_decode_params& params) {
  return decode_kernel(std::nothrow, params).value();
}

inline std::int64_t decode_workspace_bytes(const ::fmha_decode_params& params) {
  return decode_workspace_bytes(std::nothrow, params).value();
}

inline std::vector<extent> decode_extents(const ::fmha_decode_params& params) {
  return decode_extents(std::nothrow, params).value();
}

inline void decode_prepare(const ::fmha_decode_params& params) {
  decode_prepare(std::nothrow, params).value();
}

inline void decode(const ::fmha_decode_params& params, void* stream) {
  decode(std::nothrow, params, stream).value();
}

/* As fwd_supported. */
inline bool kv_append_supported(const ::fmha_kv_append_params& params) {
  const result<void> r = kv_append_supported(std::nothrow, params);
  if (r.status() == FMHA_UNSUPPORTED) return false;
  r.value();
  return true;
}

inline kernel_info kv_append_kernel(const ::fmha_kv_append_params& params) {
  return kv_append_kernel(std::nothrow, params).value();
}

inline std::vector<extent> kv_append_extents(const ::fmha_kv_append_params& params) {
  return kv_append_extents(std::nothrow, params).value();
}

inline void kv_append_prepare(const ::fmha_kv_append_params& params) {
  kv_append_prepare(std::nothrow, params).value();
}

inline void kv_append(const ::fmha_kv_append_params& params, void* stream) {
  kv_append(std::nothrow, params, stream).value();
}

/* False where merge would throw `unsupported`; any other error is thrown. */
inline bool merge_supported(const ::fmha_merge_params& params) {
  const result<void> r = merge_supported(std::nothrow, params);
  if (r.status() == FMHA_UNSUPPORTED) return false;
  r.value();
  return true;
}

inline kernel_info merge_kernel(const ::fmha_merge_params& params) {
  return merge_kernel(std::nothrow, params).value();
}

inline std::vector<extent> merge_extents(const ::fmha_merge_params& params) {
  return merge_extents(std::nothrow, params).value();
}

inline void merge_prepare(const ::fmha_merge_params& params) { merge_prepare(std::nothrow, params).value(); }

inline void merge(const ::fmha_merge_params& params, void* stream) {
  merge(std::nothrow, params, stream).value();
}

/* False where quantize would throw `unsupported`; any other error is thrown. */
inline bool quantize_supported(const ::fmha_quantize_params& params) {
  const result<void> r = quantize_supported(std::nothrow, params);
  if (r.status() == FMHA_UNSUPPORTED) return false;
  r.value();
  return true;
}

inline kernel_info quantize_kernel(const ::fmha_quantize_params& params) {
  return quantize_kernel(std::nothrow, params).value();
}

inline std::int64_t quantize_workspace_bytes(const ::fmha_quantize_params& params) {
  return quantize_workspace_bytes(std::nothrow, params).value();
}

inline std::vector<extent> quantize_extents(const ::fmha_quantize_params& params) {
  return quantize_extents(std::nothrow, params).value();
}

inline void quantize_prepare(const ::fmha_quantize_params& params) {
  quantize_prepare(std::nothrow, params).value();
}

inline void quantize(const ::fmha_quantize_params& params, void* stream) {
  quantize(std::nothrow, params, stream).value();
}
#endif

}  // namespace fmha

#undef FMHA_ROCM_EXCEPTIONS
#endif  // FMHA_ROCM_HPP
