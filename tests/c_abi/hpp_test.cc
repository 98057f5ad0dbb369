// SPDX-License-Identifier: MIT OR Apache-2.0
// fmha_rocm.hpp as C++17, built with exceptions and without: values, and each kind of error in both
// forms. No device is needed, and no HIP runtime.
#include <doctest/doctest.h>

#include <cstring>
#include <type_traits>

#include "fmha_rocm.hpp"

namespace {

bool same_bytes(const fmha_fwd_params& a, const fmha_fwd_params& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST_CASE("values") {
  // A C function takes what C++ made, and reads the same bytes.
  static_assert(sizeof(fmha::fwd_params) == sizeof(fmha_fwd_params));
  static_assert(sizeof(fmha::bwd_params) == sizeof(fmha_bwd_params));
  static_assert(sizeof(fmha::merge_params) == sizeof(fmha_merge_params));
  static_assert(sizeof(fmha::quantize_params) == sizeof(fmha_quantize_params));
  static_assert(sizeof(fmha::kernel_info) == sizeof(fmha_kernel_info));
  static_assert(sizeof(fmha::tensor) == sizeof(fmha_tensor) && sizeof(fmha::lse) == sizeof(fmha_lse));
  static_assert(std::is_trivially_copyable_v<fmha::fwd_params> && std::is_trivially_copyable_v<fmha::tensor>);
  static_assert(std::is_convertible_v<fmha::fwd_params*, const fmha_fwd_params*>);

  fmha_fwd_params c{};
  c.struct_size = sizeof c;
  fmha::fwd_params p;
  CHECK(same_bytes(p, c));
  int data[1];
  c.q = {data, 7 * 3 * 64, 3 * 64, 64};
  p.q = fmha::tensor::bshd(data, 7, 3, 64);
  c.k = {data, 3 * 7 * 64, 64, 7 * 64};
  p.k = fmha::tensor::bhsd(data, 7, 3, 64);
  c.v = {data, 0, 3 * 64, 64};
  p.v = fmha::tensor::packed(data, 3, 64);
  float* rows = nullptr;
  c.lse = {rows, 3 * 7, 7};
  p.lse = fmha::lse::bhs(rows, 3, 7);
  CHECK(same_bytes(p, c));
  c.lse = {rows, 0, 21};
  p.lse = fmha::lse::packed(rows, 21);
  c.bias = {data, 1, 2, 3};
  p.bias = fmha::bias(data, 1, 2, 3);
  CHECK(same_bytes(p, c));
  const fmha::fwd_params copy = p;
  CHECK(same_bytes(copy, c));
  CHECK(fmha::version() == fmha_version());
  CHECK(fmha::build_info().front() == '{');
}

TEST_CASE("results") {
  fmha::fwd_params p;
  fmha::result<void> r = fmha::fwd(std::nothrow, p, nullptr);
  CHECK(!r);
  CHECK(!r.has_value());
  CHECK(r.status() == FMHA_INVALID_ARGUMENT);
  CHECK(r.error().message == fmha::last_error());
  CHECK(!r.error().message.empty());
  const std::string message = r.error().message;
  p.struct_size = 1;
  CHECK(fmha::fwd_supported(std::nothrow, p).status() == FMHA_ABI_MISMATCH);
  CHECK(fmha::prepare(std::nothrow, p).status() == FMHA_ABI_MISMATCH);
  CHECK(r.error().message == message);
  CHECK(fmha::last_error() != message);  // a copy, which stays
  const fmha::result<fmha::kernel_info> info = fmha::fwd_kernel(std::nothrow, p);
  CHECK(!info);
  CHECK(info.error().status == FMHA_ABI_MISMATCH);
  r = fmha::set_hip_runtime(std::nothrow, "/no/such/libamdhip64.so");
  CHECK(r.status() == FMHA_HIP_ERROR);
  CHECK(r.error().message.find("/no/such/") != std::string::npos);

  const fmha::result<int> value = 5;
  CHECK(value);
  CHECK(*value == 5);
  CHECK(value.value() == 5);
  CHECK(value.status() == FMHA_OK);
  CHECK(fmha::result<void>().status() == FMHA_OK);
  CHECK(fmha::result<void>());
  const fmha::result<std::string> text = fmha::failure{FMHA_UNSUPPORTED, "why"};
  CHECK(!text);
  CHECK(text.error().message == "why");
  CHECK(text.status() == FMHA_UNSUPPORTED);
}

// A problem whose tensors are not allocated yet: no device is needed.
TEST_CASE("extents") {
  fmha::fwd_params p;
  p.dtype = FMHA_FP16;
  p.batch = 2;
  p.seqlen_q = p.seqlen_k = 7;
  p.nhead_q = p.nhead_k = 3;
  p.hdim_q = p.hdim_v = 64;
  p.softmax_scale = 0.125F;
  p.q = p.k = p.v = p.o = fmha::tensor::bshd(nullptr, 7, 3, 64);
  const fmha::result<std::vector<fmha::extent>> found = fmha::fwd_extents(std::nothrow, p);
  REQUIRE(found);
  REQUIRE(found->size() == 4);
  const fmha::extent& o = (*found)[3];
  CHECK(std::string(o.name) == "o.data");
  CHECK(o.data == nullptr);
  CHECK(o.bytes == 2 * 7 * 3 * 64 * 2);
  CHECK(o.written == 1);
  p.batch = -1;
  CHECK(fmha::fwd_extents(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::fwd_workspace_bytes(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::fwd_prepare(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::prepare(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
}

// The same of a backward problem.
TEST_CASE("backward") {
  fmha::fwd_params f;
  f.dtype = FMHA_FP16;
  f.batch = 2;
  f.seqlen_q = f.seqlen_k = 7;
  f.nhead_q = f.nhead_k = 3;
  f.hdim_q = f.hdim_v = 64;
  f.softmax_scale = 0.125F;
  fmha::bwd_params p;
  CHECK(fmha::bwd_supported(std::nothrow, p).error().message == "fwd = NULL: expected a struct");
  p.fwd = &f;
  f.q = f.k = f.v = f.o = p.dout = p.dq = p.dk = p.dv = fmha::tensor::bshd(nullptr, 7, 3, 64);
  const fmha::result<std::vector<fmha::extent>> found = fmha::bwd_extents(std::nothrow, p);
  REQUIRE(found);
  REQUIRE(found->size() == 9);
  CHECK(std::string((*found)[8].name) == "dv.data");
  CHECK((*found)[8].written == 1);
  f.batch = -1;
  CHECK(fmha::bwd_extents(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::bwd_workspace_bytes(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::bwd_prepare(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::bwd_kernel(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::bwd(std::nothrow, p, nullptr).error().message == "fwd->batch = -1: expected 0 or more");
}

TEST_CASE("kv append") {
  fmha::cache cache;
  fmha::kv_append_params p;
  CHECK(fmha::kv_append_supported(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  p.dtype = cache.dtype = FMHA_BF16;
  p.batch = p.seqlen = p.nhead_k = 2;
  p.hdim_q = p.hdim_v = 64;
  cache.pages = 2;
  cache.page_size = 16;
  cache.v = fmha::cache_tensor{nullptr, 2048, 128, 64};
  cache.k = fmha::cache_tensor::bhsd(nullptr, 16, 2, 64);
  CHECK(cache.k.stride_page == 2048);
  CHECK(cache.k.stride_token == 64);
  CHECK(cache.k.stride_head == 1024);
  cache.k = fmha::cache_tensor::bshd(nullptr, 16, 2, 64);
  CHECK(std::memcmp(&cache.k, &cache.v, sizeof cache.k) == 0);
  alignas(16) static char data[16];
  p.k = p.v = fmha::tensor::bshd(data, 2, 2, 64);
  p.cache = &cache;
  const fmha::result<std::vector<fmha::extent>> found = fmha::kv_append_extents(std::nothrow, p);
  REQUIRE(found);
  REQUIRE(found->size() == 4);
  CHECK(std::string((*found)[3].name) == "cache->v.data");
  CHECK((*found)[3].bytes == 2 * 2048 * 2);
  CHECK((*found)[3].written == 1);
  CHECK((*found)[0].written == 0);
  cache.pages = 0;
  CHECK(fmha::kv_append_extents(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::kv_append_prepare(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::kv_append_kernel(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::kv_append(std::nothrow, p, nullptr).error().message == "cache->pages = 0: expected 1 or more");
}

TEST_CASE("merge") {
  fmha::merge_params p;
  CHECK(fmha::merge_supported(std::nothrow, p).error().message ==
        "dtype = 0: expected FMHA_FP16 (1), FMHA_BF16 (2), FMHA_FP32 (3), FMHA_FP8_E4M3_FNUZ (4) or "
        "FMHA_FP8_E4M3_FN (5)");
  p.dtype = FMHA_FP16;
  p.o_dtype = FMHA_FP32;
  p.parts = p.batch = p.seqlen = p.nhead = 2;
  p.hdim = 64;
  p.o_parts = fmha::parts(nullptr, 512, 256, 128, 64);
  p.lse_parts = fmha::lse_parts(nullptr, 8, 4, 2);
  p.o = fmha::tensor::bshd(nullptr, 2, 2, 64);
  const fmha::result<std::vector<fmha::extent>> found = fmha::merge_extents(std::nothrow, p);
  REQUIRE(found);
  REQUIRE(found->size() == 3);
  CHECK((*found)[0].bytes == 2 * 512 * 2);
  CHECK((*found)[1].bytes == 2 * 8 * 4);
  CHECK((*found)[2].bytes == 512 * 4);
  CHECK((*found)[2].written == 1);
  p.accumulate = 1;
  CHECK(fmha::merge_extents(std::nothrow, p)->size() == 4);
  p.parts = 0;
  CHECK(fmha::merge_extents(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::merge_prepare(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::merge_kernel(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::merge(std::nothrow, p, nullptr).error().message == "parts = 0: expected 1 or more");
}

TEST_CASE("quantize") {
  fmha::quantize_params p;
  CHECK(fmha::quantize_supported(std::nothrow, p).error().message ==
        "dtype = 0: expected FMHA_FP16 (1), FMHA_BF16 (2), FMHA_FP32 (3), FMHA_FP8_E4M3_FNUZ (4) or "
        "FMHA_FP8_E4M3_FN (5)");
  p.dtype = p.out_dtype = FMHA_FP16;
  p.batch = p.seqlen = p.nhead = 2;
  p.hdim = 64;
  p.hadamard = 1;
  p.x = p.out = fmha::tensor::bshd(nullptr, 2, 2, 64);
  const fmha::result<std::vector<fmha::extent>> found = fmha::quantize_extents(std::nothrow, p);
  REQUIRE(found);
  REQUIRE(found->size() == 2);
  CHECK((*found)[1].bytes == 512 * 2);
  CHECK((*found)[1].written == 1);
  p.hadamard = 0;
  CHECK(fmha::quantize_prepare(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::quantize_kernel(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::quantize_workspace_bytes(std::nothrow, p).status() == FMHA_INVALID_ARGUMENT);
  CHECK(fmha::quantize(std::nothrow, p, nullptr).error().message ==
        "hadamard = 0: expected 1 with out_dtype = dtype, or there is nothing to do");
}

#ifdef __cpp_exceptions
template <typename Error, typename Call>
void throws(fmha::status status, Call call) {
  bool thrown = false;
  try {
    call();
  } catch (const Error& e) {
    thrown = true;
    CHECK(e.status() == status);
    CHECK(fmha::last_error() == e.what());
  }
  CHECK(thrown);
}

TEST_CASE("exceptions") {
  fmha::fwd_params p;
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { fmha::fwd(p, nullptr); });
  throws<fmha::error>(FMHA_INVALID_ARGUMENT, [&] { fmha::prepare(p); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::fwd_supported(p); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::fwd_workspace_bytes(p); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::fwd_extents(p); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { fmha::fwd_prepare(p); });
  fmha::bwd_params b;
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { fmha::bwd(b, nullptr); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::bwd_supported(b); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::bwd_workspace_bytes(b); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::bwd_extents(b); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::bwd_kernel(b); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { fmha::bwd_prepare(b); });
  fmha::kv_append_params a;
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { fmha::kv_append(a, nullptr); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::kv_append_supported(a); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::kv_append_extents(a); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::kv_append_kernel(a); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { fmha::kv_append_prepare(a); });
  fmha::merge_params m;
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { fmha::merge(m, nullptr); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::merge_supported(m); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::merge_extents(m); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { (void)fmha::merge_kernel(m); });
  throws<fmha::invalid_argument>(FMHA_INVALID_ARGUMENT, [&] { fmha::merge_prepare(m); });
  p.struct_size = 1;
  throws<fmha::abi_mismatch>(FMHA_ABI_MISMATCH, [&] { (void)fmha::fwd_kernel(p); });
  throws<fmha::hip_error>(FMHA_HIP_ERROR, [] { fmha::set_hip_runtime("/no/such/libamdhip64.so"); });
  const fmha::failure unsupported{FMHA_UNSUPPORTED, "why"};
  bool thrown = false;
  try {
    fmha::result<int>(unsupported).value();
  } catch (const fmha::unsupported& e) {
    thrown = e.status() == FMHA_UNSUPPORTED && e.what() == unsupported.message;
  }
  CHECK(thrown);
}
#endif

}  // namespace
