// SPDX-License-Identifier: MIT OR Apache-2.0
// Like problem_test.cc, for features: bias, ALiBi, softcap, packed sequences, dropout,
// fp32 and fp8.
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "checked.h"
#include "error.h"
#include "params.h"
#include "status.h"

namespace {

using fmha::Pointers;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kMebi = int64_t{1} << 20;

// Nothing reads these addresses; they are far apart.
template <typename T = void>
T* at(uintptr_t tebibytes, uintptr_t bytes = 0) {
  return reinterpret_cast<T*>((tebibytes << 40) + bytes);
}

fmha_fwd_params good(fmha_dtype dtype = FMHA_FP16) {
  fmha_fwd_params p = test_params(dtype, TEST_BSHD, 2, 100, 150, 4, 2, 64);
  p.q.data = at(1);
  p.k.data = at(2);
  p.v.data = at(3);
  p.o.data = at(4);
  p.lse.data = at<float>(5);
  return p;
}

fmha_fwd_params with_bias() {
  fmha_fwd_params p = good();
  p.bias = {at(6), 4 * 100 * 150, 100 * 150, 150};
  return p;
}

fmha_fwd_params with_alibi() {
  fmha_fwd_params p = good();
  p.alibi_slopes = at<float>(6);
  p.alibi_stride_batch = 4;
  return p;
}

// Three sequences of up to 100 queries and 150 keys.
fmha_fwd_params varlen() {
  fmha_fwd_params p = good();
  p.batch = 3;
  p.total_q = 170;
  p.total_k = 260;
  p.cu_seqlens_q = at<int32_t>(7);
  p.cu_seqlens_k = at<int32_t>(8);
  p.q.stride_batch = p.k.stride_batch = p.v.stride_batch = p.o.stride_batch = -1;  // not read
  p.lse.stride_batch = -1;
  p.lse.stride_head = 170;
  return p;
}

fmha_fwd_params with_dropout() {
  fmha_fwd_params p = good();
  p.p_drop = 0.2F;
  p.philox_seed = 11;
  p.philox_offset = 22;
  p.randval = {at<uint8_t>(9), 4 * 100 * 150, 100 * 150, 150};
  return p;
}

fmha_fwd_params fp8() {
  fmha_fwd_params p = good(FMHA_FP8_E4M3_FNUZ);
  p.o_dtype = FMHA_BF16;
  p.lse.data = nullptr;
  return p;
}

fmha_status make(const fmha_fwd_params& p, Checked* out = nullptr, Pointers pointers = Pointers::kRequired) {
  return check_problem(&p, pointers, out);
}

const char* fmha_last_error() { return fmha::last_error(); }

// Applies a change to a good problem and expects a status and a text.
#define CHECK_BAD(from, change, status, text) \
  do {                                        \
    fmha_fwd_params p = from;                 \
    change;                                   \
    CHECK_STATUS(make(p), status, text);      \
  } while (0)

#define CHECK_GOOD(from, ...) \
  do {                        \
    fmha_fwd_params p = from; \
    __VA_ARGS__;              \
    CHECK_OK(make(p));        \
  } while (0)

TEST_CASE("bias") {
  Checked problem;
  CHECK_OK(make(with_bias(), &problem));
  const fmha::FwdKernelParams& a = problem.args;
  CHECK(problem.bias == fmha::Bias::kElementwise);
  CHECK(!problem.vector_bias);
  CHECK(a.bias == at(6));
  CHECK(a.stride_bias == 150);
  CHECK(a.nhead_stride_bias == 15000);
  CHECK(a.batch_stride_bias == 60000);
  // Any of its dims may be broadcast, and any element may begin a row.
  CHECK_GOOD(with_bias(), p.bias.stride_batch = p.bias.stride_head = p.bias.stride_seqlen = 0);
  CHECK_GOOD(with_bias(), p.bias.data = at(6, 2), p.bias.stride_seqlen = 151);
  // Read by the vector: whole vectors of rows.
  fmha_fwd_params p = with_bias();
  p.bias.stride_seqlen = 152;
  CHECK_OK(make(p, &problem));
  CHECK(problem.vector_bias);
  p.bias.data = at(6, 4);
  CHECK_OK(make(p, &problem));
  CHECK(!problem.vector_bias);

  CHECK_BAD(with_bias(), p.bias.data = at(6, 1), FMHA_INVALID_ARGUMENT,
            "bias.data = 0x60000000001: expected an address aligned to 2 bytes");
  CHECK_BAD(with_bias(), p.bias.stride_batch = -1, FMHA_INVALID_ARGUMENT,
            "bias.stride_batch = -1: expected 0");
  CHECK_BAD(with_bias(), p.bias.stride_head = -1, FMHA_INVALID_ARGUMENT, "bias.stride_head = -1");
  CHECK_BAD(with_bias(), p.bias.stride_seqlen = -1, FMHA_INVALID_ARGUMENT, "bias.stride_seqlen = -1");
  CHECK_BAD(with_bias(), p.bias.stride_head = int64_t{1} << 31, FMHA_UNSUPPORTED, "bias.stride_head");
  CHECK_BAD(with_bias(), p.bias.stride_seqlen = 8 * kMebi, FMHA_UNSUPPORTED,
            "bias.stride_seqlen = 8388608 over 100 rows: one head spans 4294967596 bytes");
  CHECK_BAD(with_bias(), p.bias.data = p.o.data, FMHA_INVALID_ARGUMENT, "o is written but overlaps bias");
  CHECK_BAD(with_bias(), p.lse.data = at<float>(6, 2 * (2 * 4 * 100 * 150 - 4)), FMHA_INVALID_ARGUMENT,
            "lse is written but overlaps bias");
  CHECK_GOOD(with_bias(), p.lse.data = at<float>(6, 2 * 2 * 4 * 100 * 150));
  CHECK_GOOD(with_bias(), p.bias.data = p.q.data);
  // Nobody reads it without keys, nor its strides where there is one of a kind.
  CHECK_GOOD(with_bias(), p.seqlen_k = 0, p.bias.stride_batch = -1);
  CHECK_GOOD(with_bias(), p.batch = 1, p.bias.stride_batch = -1);
}

TEST_CASE("alibi") {
  Checked problem;
  CHECK_OK(make(with_alibi(), &problem));
  CHECK(problem.bias == fmha::Bias::kAlibi);
  CHECK(problem.args.alibi == at(6));
  CHECK(problem.args.batch_stride_alibi == 4);
  // It counts from a diagonal, bottom-right unless a mask says otherwise.
  CHECK(problem.args.mask_type == 2);
  CHECK(!problem.masked);
  fmha_fwd_params p = with_alibi();
  p.mask = FMHA_MASK_CAUSAL_TOP_LEFT;
  CHECK_OK(make(p, &problem));
  CHECK(problem.args.mask_type == 1);
  CHECK(problem.masked);
  CHECK(problem.args.window_right == 0);
  p.mask = FMHA_MASK_WINDOW_TOP_LEFT;  // hides nothing, but moves the diagonal
  p.window_left = p.window_right = INT64_MAX;
  CHECK_OK(make(p, &problem));
  CHECK(problem.args.mask_type == 1);
  CHECK(problem.masked);
  CHECK(problem.args.window_right == -1);
  p.seqlen_q = 150;
  p.lse.data = nullptr;
  p.o.stride_batch = 150 * 4 * 64;
  CHECK_OK(make(p, &problem));
  CHECK(problem.args.mask_type == 2);
  CHECK(!problem.masked);  // the two diagonals are one

  CHECK_GOOD(with_alibi(), p.alibi_stride_batch = 0);
  CHECK_GOOD(with_alibi(), p.batch = 1, p.alibi_stride_batch = -9);
  CHECK_BAD(with_alibi(), p.alibi_slopes = at<float>(6, 2), FMHA_INVALID_ARGUMENT,
            "alibi_slopes = 0x60000000002: expected an address aligned to 4 bytes");
  CHECK_BAD(with_alibi(), p.alibi_stride_batch = -4, FMHA_INVALID_ARGUMENT,
            "alibi_stride_batch = -4: expected 0");
  CHECK_BAD(with_alibi(), (p.alibi_stride_batch = int64_t{1} << 31, p.p_drop = 0.5F), FMHA_UNSUPPORTED,
            "alibi_stride_batch");
  CHECK_GOOD(with_alibi(), p.alibi_stride_batch = int64_t{1} << 31);  // our own kernel counts in 64 bits
  CHECK_GOOD(with_alibi(), p.alibi_stride_batch = (INT32_MAX - 4) / 2, p.p_drop = 0.5F);
  CHECK_BAD(with_alibi(), (p.alibi_stride_batch = (INT32_MAX - 4) / 2 + 1, p.p_drop = 0.5F), FMHA_UNSUPPORTED,
            "alibi_stride_batch = 1073741822: for this batch kernels take at most 1073741821");
  CHECK_BAD(with_alibi(), p.lse.data = at<float>(6, 28), FMHA_INVALID_ARGUMENT,
            "lse is written but overlaps alibi_slopes");
  CHECK_GOOD(with_alibi(), p.lse.data = at<float>(6, 32));
  CHECK_BAD(with_alibi(), p.bias = with_bias().bias, FMHA_UNSUPPORTED, "bias and alibi_slopes are both set");
}

TEST_CASE("sinks") {
  const auto with_sinks = [] {
    fmha_fwd_params p = good();
    p.sinks = at<float>(6);
    return p;
  };
  CHECK_GOOD(with_sinks());
  CHECK_GOOD(with_sinks(), p.softcap = 30.0F);
  CHECK_GOOD(with_sinks(), p.seqlen_k = 0, p.k.data = p.v.data = nullptr);
  CHECK_BAD(with_sinks(), p.sinks = at<float>(6, 2), FMHA_INVALID_ARGUMENT,
            "sinks = 0x60000000002: expected an address aligned to 4 bytes");
  CHECK_BAD(with_sinks(), p.lse.data = at<float>(6, 12), FMHA_INVALID_ARGUMENT,
            "lse is written but overlaps sinks");
  CHECK_GOOD(with_sinks(), p.lse.data = at<float>(6, 16));
}

TEST_CASE("softcap") {
  Checked problem;
  fmha_fwd_params p = good();
  p.softcap = 30.0F;
  CHECK_OK(make(p, &problem));
  CHECK(problem.softcap);
  CHECK(problem.args.softcap == 30.0F);
  CHECK_BAD(good(), p.softcap = -1, FMHA_INVALID_ARGUMENT, "softcap = -1: expected a finite number above 0");
  CHECK_BAD(good(), p.softcap = kNan, FMHA_INVALID_ARGUMENT, "softcap = ");
  CHECK_BAD(good(), p.softcap = kInfinity, FMHA_INVALID_ARGUMENT, "softcap = inf");
  CHECK_BAD(good(), p.softcap = 1e-40F, FMHA_UNSUPPORTED, "softcap = 9.99995e-41");
  CHECK_BAD(good(), p.softcap = FLT_MAX, FMHA_UNSUPPORTED, "softcap = 3.40282e+38");
  CHECK_BAD(good(), p.softcap = 820, FMHA_UNSUPPORTED, "softcap = 820: kernels take 1e-38 to 819.2");
  CHECK_BAD(good(), (p.softcap = 800, p.softmax_scale = 1e-36F), FMHA_UNSUPPORTED, "softmax_scale / softcap");
  CHECK_BAD(with_bias(), p.softcap = 1, FMHA_UNSUPPORTED, "softcap = 1 and bias: no kernel does both");
  CHECK_BAD(with_alibi(), p.softcap = 1, FMHA_UNSUPPORTED,
            "softcap = 1 and alibi_slopes: no kernel does both");
}

TEST_CASE("varlen arguments") {
  fmha_fwd_params p = varlen();
  p.seqused_q = at<int32_t>(10);
  p.seqused_k = at<int32_t>(11);
  p.mask = FMHA_MASK_WINDOW;
  p.window_left = 149;  // hides nothing of 150 keys, but sequences may be longer: the caller's word is kept
  p.window_right = 150;
  Checked problem;
  CHECK_OK(make(p, &problem));
  const fmha::FwdKernelParams& a = problem.args;
  CHECK(problem.group);
  CHECK(problem.masked);
  CHECK(!problem.empty);
  CHECK(problem.batch == 3);
  CHECK(a.cu_q == at(7));
  CHECK(a.cu_k == at(8));
  CHECK(a.used_q == at(10));
  CHECK(a.used_k == at(11));
  CHECK(a.seqlen_q == 100);
  CHECK(a.seqlen_k == 150);
  CHECK(a.stride_q == 256);
  CHECK(a.nhead_stride_lse == 170);
  CHECK(a.mask_type == 2);
  CHECK(a.window_left == 149);
  CHECK(a.window_right == -1);
  // A bias and random bytes have the rows of q.
  p = varlen();
  p.bias = {at(6), -1, 170 * 150, 150};
  p.p_drop = 0.5F;
  p.randval = {at<uint8_t>(9), -1, 170 * 150, 150};
  CHECK_OK(make(p, &problem));
  CHECK(problem.args.stride_bias == 150);
  CHECK(problem.args.nhead_stride_bias == 170 * 150);
  CHECK(problem.args.stride_randval == 150);
  CHECK(problem.args.nhead_stride_randval == 170 * 150);
  p.randval.stride_head = 170 * 150 - 1;
  CHECK_STATUS(make(p), FMHA_INVALID_ARGUMENT, "randval.stride_head = 25499: its elements overlap");
}

TEST_CASE("varlen errors") {
  CHECK_BAD(varlen(), p.cu_seqlens_q = nullptr, FMHA_INVALID_ARGUMENT,
            "cu_seqlens_q = NULL, but cu_seqlens_k is set: expected both or neither");
  CHECK_BAD(varlen(), p.cu_seqlens_k = nullptr, FMHA_INVALID_ARGUMENT, "cu_seqlens_k = NULL");
  CHECK_BAD(good(), p.seqused_q = at<int32_t>(10), FMHA_INVALID_ARGUMENT,
            "seqused_q = 0xa0000000000: expected NULL without cu_seqlens_q");
  CHECK_BAD(good(), p.seqused_k = at<int32_t>(10), FMHA_INVALID_ARGUMENT, "seqused_k = 0xa0000000000");
  CHECK_BAD(varlen(), p.total_q = 0, FMHA_INVALID_ARGUMENT, "total_q = 0: expected 1 or more");
  CHECK_BAD(varlen(), p.total_k = 0, FMHA_INVALID_ARGUMENT, "total_k = 0: expected 1 or more");
  CHECK_BAD(varlen(), p.total_q = -5, FMHA_INVALID_ARGUMENT, "total_q = -5");
  CHECK_BAD(varlen(), p.total_k = int64_t{1} << 31, FMHA_UNSUPPORTED, "total_k = 2147483648");
  CHECK_BAD(varlen(), p.cu_seqlens_q = at<int32_t>(7, 2), FMHA_INVALID_ARGUMENT,
            "cu_seqlens_q = 0x70000000002");
  CHECK_BAD(varlen(), p.seqused_k = at<int32_t>(7, 1), FMHA_INVALID_ARGUMENT, "seqused_k = 0x70000000001");
  CHECK_BAD(varlen(), p.lse.stride_head = 169, FMHA_INVALID_ARGUMENT,
            "lse.stride_head = 169: its elements overlap one another; expected 170 or more");
  CHECK_BAD(varlen(), p.o.stride_seqlen = 248, FMHA_INVALID_ARGUMENT, "o.stride_seqlen = 248: its elements");
  CHECK_BAD(varlen(), p.cu_seqlens_k = at<int32_t>(4, 16), FMHA_INVALID_ARGUMENT,
            "o is written but overlaps cu_seqlens_k");
  CHECK_BAD(varlen(), p.seqused_q = at<int32_t>(5, 8), FMHA_INVALID_ARGUMENT,
            "lse is written but overlaps seqused_q");
  // 170 rows of 4 heads are written: what comes after them is free.
  CHECK_BAD(varlen(), p.q.data = at(4, 170 * 512 - 16), FMHA_INVALID_ARGUMENT, "o is written but overlaps q");
  CHECK_GOOD(varlen(), p.q.data = at(4, 170 * 512));
  // No rows, as the upper bound says too.
  CHECK_GOOD(varlen(), p.seqlen_q = p.total_q = 0, p.q.data = p.o.data = nullptr);
  CHECK_GOOD(varlen(), p.seqlen_k = p.total_k = 0, p.k.data = p.v.data = nullptr);
  CHECK_GOOD(varlen(), p.batch = 0, p.total_q = p.total_k = 0);
  // A span is that of the longest sequence there can be; its last tile is never known to be whole.
  CHECK_GOOD(varlen(), p.k.stride_seqlen = 8 * kMebi - 8);
  CHECK_BAD(varlen(), p.k.stride_seqlen = 8 * kMebi, FMHA_UNSUPPORTED,
            "k.stride_seqlen = 8388608 over 150 rows");
  CHECK_BAD(varlen(), (p.seqlen_q = 256, p.o.stride_seqlen = 6 * kMebi), FMHA_UNSUPPORTED,
            "o.stride_seqlen = 6291456 over 170 rows");
}

TEST_CASE("dropout") {
  Checked problem;
  fmha_fwd_params p = with_dropout();
  CHECK_OK(make(p, &problem));
  const fmha::FwdKernelParams& a = problem.args;
  CHECK(problem.dropout);
  CHECK(a.philox_seed == 11);
  CHECK(a.philox_offset == 22);
  CHECK(a.philox == nullptr);
  // In float32, as CK has it: in double this would be 203.
  CHECK(a.keep_at_most == 204);
  CHECK(a.rp_keep == 1.25F);
  CHECK(a.randval == at(9));
  CHECK(a.stride_randval == 150);
  CHECK(a.nhead_stride_randval == 15000);
  CHECK(a.batch_stride_randval == 60000);
  p.philox_seed_offset = at<uint64_t>(10);
  p.randval.data = nullptr;
  CHECK_OK(make(p, &problem));
  CHECK(a.philox == at(10));
  CHECK(a.randval == nullptr);
  p.p_drop = 0.999F;
  CHECK_OK(make(p, &problem));
  CHECK(a.keep_at_most == 0);
  CHECK(std::fabs(a.rp_keep - 1000.0F) < 0.1F);
  // A chance that nothing drops by is none, unless the random bytes are wanted.
  p.p_drop = 0x1p-25F;
  CHECK_OK(make(p, &problem));
  CHECK(!problem.dropout);
  CHECK(a.philox == nullptr);
  p.p_drop = std::nextafter(0x1p-25F, 1.0F);
  CHECK_OK(make(p, &problem));
  CHECK(problem.dropout);
  CHECK(a.keep_at_most == 254);
  CHECK(a.rp_keep > 1.0F);
  p = with_dropout();
  p.p_drop = 1e-9F;
  CHECK_OK(make(p, &problem));
  CHECK(problem.dropout);
  CHECK(a.keep_at_most == 255);
  CHECK(a.rp_keep == 1.0F);
  CHECK(a.randval == at(9));
  p.p_drop = 0;
  p.randval.data = nullptr;
  CHECK_OK(make(p, &problem));
  CHECK(!problem.dropout);
  CHECK(a.philox == nullptr);

  CHECK_BAD(with_dropout(), p.p_drop = 1, FMHA_INVALID_ARGUMENT,
            "p_drop = 1: expected a chance from 0 to below 1");
  CHECK_BAD(with_dropout(), p.p_drop = -0.1F, FMHA_INVALID_ARGUMENT, "p_drop = -0.1");
  CHECK_BAD(with_dropout(), (p.batch = 1 << 15, p.nhead_q = 1 << 11, p.randval.data = nullptr),
            FMHA_UNSUPPORTED, "batch * nhead_q = 67108864: kernels with dropout take at most 33554431");
  CHECK_BAD(with_dropout(), p.p_drop = kNan, FMHA_INVALID_ARGUMENT, "p_drop = ");
  CHECK_BAD(with_dropout(), p.p_drop = 0, FMHA_INVALID_ARGUMENT,
            "randval.data = 0x90000000000: expected NULL");
  CHECK_BAD(with_dropout(), p.philox_seed_offset = at<uint64_t>(10, 4), FMHA_INVALID_ARGUMENT,
            "philox_seed_offset = 0xa0000000004: expected an address aligned to 8 bytes");
  CHECK_BAD(with_dropout(), p.philox_seed_offset = at<uint64_t>(9), FMHA_INVALID_ARGUMENT,
            "randval is written but overlaps philox_seed_offset");
}

TEST_CASE("randval") {
  for (const char* name : {"stride_batch", "stride_head", "stride_seqlen"}) {
    fmha_fwd_params p = with_dropout();
    int64_t& stride = name[7] == 'b'   ? p.randval.stride_batch
                      : name[7] == 'h' ? p.randval.stride_head
                                       : p.randval.stride_seqlen;
    stride = 0;
    CHECK_STATUS(make(p), FMHA_INVALID_ARGUMENT, name);
    CHECK(fmha_last_error() == doctest::Contains("its elements overlap one another"));
    stride = -1;
    CHECK_STATUS(make(p), FMHA_INVALID_ARGUMENT, name);
    stride = int64_t{1} << 31;
    CHECK_STATUS(make(p), FMHA_UNSUPPORTED, name);
  }
  CHECK_GOOD(with_dropout(), p.randval.data = at<uint8_t>(9, 1));  // bytes begin anywhere
  CHECK_BAD(with_dropout(), (p.batch = 1, p.nhead_q = 2, p.randval.stride_seqlen = 8 * kMebi),
            FMHA_UNSUPPORTED,
            "randval.stride_seqlen = 8388608 over 100 rows: one head spans 2147483798 bytes");
  CHECK_BAD(with_dropout(), p.randval.data = at<uint8_t>(4), FMHA_INVALID_ARGUMENT,
            "randval is written but overlaps o");
  CHECK_BAD(with_dropout(), p.randval.data = at<uint8_t>(5), FMHA_INVALID_ARGUMENT,
            "randval is written but overlaps lse");
  CHECK_BAD(with_dropout(), p.randval.data = at<uint8_t>(2), FMHA_INVALID_ARGUMENT,
            "randval is written but overlaps k");
}

TEST_CASE("fp32") {
  Checked problem;
  CHECK_OK(make(good(FMHA_FP32), &problem));
  CHECK(problem.dtype == fmha::DType::kFp32);
  CHECK(problem.o_dtype == fmha::DType::kFp32);
  // Vectors of 16 bytes are 4 elements, and 4 GiB are 2^30.
  CHECK_GOOD(good(FMHA_FP32), p.k.stride_seqlen = 132);
  CHECK_BAD(good(FMHA_FP32), p.k.stride_seqlen = 130, FMHA_INVALID_ARGUMENT,
            "k.stride_seqlen = 130: expected a multiple of 4");
  CHECK_GOOD(good(FMHA_FP32), p.k.stride_seqlen = 4 * kMebi - 4);
  CHECK_BAD(good(FMHA_FP32), p.k.stride_seqlen = 4 * kMebi, FMHA_UNSUPPORTED, "spans 4294967552 bytes");
  CHECK_BAD(good(FMHA_FP32), (p.batch = 1, p.o.stride_seqlen = 2 * kMebi), FMHA_UNSUPPORTED,
            "o.stride_seqlen = 2097152 over 100 rows: one head spans 2147483904 bytes");
}

TEST_CASE("fp8") {
  Checked problem;
  fmha_fwd_params p = fp8();
  p.q_descale = 2;
  p.k_descale = 0.25F;
  p.v_descale = 3;
  CHECK_OK(make(p, &problem));
  CHECK(problem.dtype == fmha::DType::kFp8);
  CHECK(problem.o_dtype == fmha::DType::kBf16);
  CHECK(problem.args.scale_log2e == p.softmax_scale * 0.5F * 1.44269504F);
  CHECK(problem.args.scale_p == 240.0F);
  CHECK(problem.args.scale_o == 3.0F / 240.0F);
  CHECK_OK(make(fp8(), &problem));
  CHECK(problem.args.scale_o == 1.0F / 240.0F);
  p.dtype = FMHA_FP8_E4M3_FN;
  CHECK_OK(make(p, &problem));
  CHECK(problem.dtype == fmha::DType::kFp8fn);
  CHECK(problem.o_dtype == fmha::DType::kBf16);
  CHECK(problem.args.scale_p == 448.0F);
  CHECK(problem.args.scale_o == 3.0F / 448.0F);
  // 16 elements a vector in, 8 out; 2^31 elements a head, since their number is an int32.
  CHECK_BAD(fp8(), p.q.stride_seqlen = 264, FMHA_INVALID_ARGUMENT,
            "q.stride_seqlen = 264: expected a multiple of 16");
  CHECK_GOOD(fp8(), p.batch = 1, p.o.stride_seqlen = 264);
  CHECK_BAD(fp8(), p.o.stride_seqlen = 260, FMHA_INVALID_ARGUMENT,
            "o.stride_seqlen = 260: expected a multiple of 8");
  CHECK_BAD(fp8(), p.k.stride_seqlen = 8 * kMebi, FMHA_UNSUPPORTED, "spans 2147483712 bytes");
  CHECK_BAD(fp8(), p.o_dtype = 7, FMHA_INVALID_ARGUMENT, "o_dtype = 7: expected FMHA_FP16 (1)");
  CHECK_BAD(fp8(), p.q_descale = -1, FMHA_INVALID_ARGUMENT,
            "q_descale = -1: expected a finite number above 0");
  CHECK_BAD(fp8(), p.k_descale = kNan, FMHA_INVALID_ARGUMENT, "k_descale");
  CHECK_BAD(fp8(), p.v_descale = kInfinity, FMHA_INVALID_ARGUMENT, "v_descale = inf");
  CHECK_BAD(fp8(), p.v_descale = 1e-36F, FMHA_UNSUPPORTED, "v_descale = 1e-36");
  CHECK_BAD(fp8(), (p.q_descale = 1e-20F, p.k_descale = 1e-20F), FMHA_UNSUPPORTED,
            "softmax_scale = 0.125, times q_descale and k_descale");
  CHECK_BAD(good(), p.q_descale = 2, FMHA_INVALID_ARGUMENT,
            "q_descale = 2: expected 0 (none): only FP8 inputs");
  CHECK_BAD(good(FMHA_FP32), p.v_descale = 2, FMHA_INVALID_ARGUMENT, "v_descale = 2");
  CHECK_GOOD(good(), p.q_descale = p.k_descale = p.v_descale = 1);
}

TEST_CASE("kernel number") {
  Checked problem;
  fmha_fwd_params p = good();
  p.kernel = 3;
  CHECK_OK(make(p, &problem));
  CHECK(problem.kernel == 3);
  CHECK_BAD(good(), p.kernel = -1, FMHA_INVALID_ARGUMENT,
            "kernel = -1: expected 0, or the number of a candidate");
}

}  // namespace
