// SPDX-License-Identifier: MIT OR Apache-2.0
// Forward problems without a device: what is refused and how it is worded, and what a kernel is handed.

#include <cfloat>
#include <cstring>
#include <limits>
#include <string>

#include "checked.h"
#include "divide.h"
#include "error.h"
#include "params.h"
#include "status.h"

namespace {

using fmha::Pointers;

// Nothing reads these addresses. They are far apart, and k and v are big enough for every problem here.
void* at(uintptr_t tebibytes) { return reinterpret_cast<void*>(tebibytes << 40); }

fmha_fwd_params good() {
  fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 2, 100, 150, 4, 2, 64);
  p.q.data = at(1);
  p.k.data = at(2);
  p.v.data = at(3);
  p.o.data = at(4);
  p.lse.data = static_cast<float*>(at(5));
  return p;
}

fmha_status make(const fmha_fwd_params* p, Pointers pointers = Pointers::kRequired, Checked* out = nullptr) {
  return check_problem(p, pointers, out);
}

const char* fmha_last_error() { return fmha::last_error(); }

// Applies a change to a good problem and expects a status and a text.
#define CHECK_BAD(change, status, text)   \
  do {                                    \
    fmha_fwd_params p = good();           \
    change;                               \
    CHECK_STATUS(make(&p), status, text); \
  } while (0)

#define CHECK_GOOD(...)         \
  do {                          \
    fmha_fwd_params p = good(); \
    __VA_ARGS__;                \
    CHECK_OK(make(&p));         \
  } while (0)

TEST_CASE("divisions of the largest numbers") {
  CHECK(fmha::ceil_div(INT64_MAX, INT64_MAX) == 1);
  CHECK(fmha::ceil_div(INT64_MAX, 2) == int64_t{1} << 62);
  CHECK(fmha::ceil_div(0, INT64_MAX) == 0);
  CHECK(fmha::ceil_div((int64_t{1} << 32) - 1, 2) == int64_t{1} << 31);
  CHECK(fmha::ceil_div(7, 4) == 2);
}

TEST_CASE("sizes") {
  CHECK_GOOD((void)p);
  CHECK_BAD(p.dtype = 0, FMHA_INVALID_ARGUMENT,
            "dtype = 0: expected FMHA_FP16 (1), FMHA_BF16 (2), FMHA_FP32 (3)");
  CHECK_BAD(p.dtype = 6, FMHA_INVALID_ARGUMENT, "dtype = 6");
  CHECK_BAD(p.batch = -1, FMHA_INVALID_ARGUMENT, "batch = -1: expected 0 or more");
  CHECK_BAD(p.seqlen_q = -1, FMHA_INVALID_ARGUMENT, "seqlen_q = -1");
  CHECK_BAD(p.seqlen_k = -5, FMHA_INVALID_ARGUMENT, "seqlen_k = -5");
  CHECK_BAD(p.nhead_q = -2, FMHA_INVALID_ARGUMENT, "nhead_q = -2");
  CHECK_BAD(p.nhead_k = 0, FMHA_INVALID_ARGUMENT, "nhead_k = 0: expected 1 or more");
  CHECK_BAD(p.hdim_q = 0, FMHA_INVALID_ARGUMENT, "hdim_q = 0");
  CHECK_BAD(p.hdim_v = 0, FMHA_INVALID_ARGUMENT, "hdim_v = 0");
  CHECK_BAD(p.nhead_q = 5, FMHA_INVALID_ARGUMENT, "nhead_q = 5: expected a multiple of nhead_k = 2");
  CHECK_BAD(p.nhead_q = 1, FMHA_INVALID_ARGUMENT, "nhead_q = 1");
  CHECK_BAD(p.seqlen_k = INT64_MAX, FMHA_UNSUPPORTED, "seqlen_k = 9223372036854775807: kernels take at most");
  CHECK_BAD(p.seqlen_q = int64_t{1} << 29, FMHA_UNSUPPORTED, "at most 536870656");
  CHECK_BAD(p.batch = int64_t{1} << 31, FMHA_UNSUPPORTED, "batch = 2147483648");
}

TEST_CASE("scale") {
  CHECK_BAD(p.softmax_scale = 0, FMHA_INVALID_ARGUMENT,
            "softmax_scale = 0: expected a finite number above 0");
  CHECK_BAD(p.softmax_scale = std::numeric_limits<float>::quiet_NaN(), FMHA_INVALID_ARGUMENT, "nan");
  CHECK_BAD(p.softmax_scale = std::numeric_limits<float>::infinity(), FMHA_INVALID_ARGUMENT, "inf");
  CHECK_BAD(p.softmax_scale = -0.125F, FMHA_UNSUPPORTED, "softmax_scale = -0.125");
  CHECK_BAD(p.softmax_scale = 1e-39F, FMHA_UNSUPPORTED, "softmax_scale = 1e-39");
  CHECK_BAD(p.softmax_scale = FLT_MAX, FMHA_UNSUPPORTED, "softmax_scale = 3.40282e+38");
  fmha_fwd_params p = good();
  p.softmax_scale = 0.125F;
  Checked problem{};
  CHECK_OK(make(&p, Pointers::kRequired, &problem));
  CHECK(problem.args.scale_log2e == 0.125F * 1.44269504F);
}

TEST_CASE("strides") {
  CHECK_BAD(p.q.stride_seqlen = -256, FMHA_INVALID_ARGUMENT, "q.stride_seqlen = -256: expected 0 or more");
  CHECK_BAD(p.k.stride_head = -64, FMHA_INVALID_ARGUMENT, "k.stride_head = -64");
  CHECK_BAD(p.v.stride_batch = -8, FMHA_INVALID_ARGUMENT, "v.stride_batch = -8");
  CHECK_BAD(p.o.stride_batch = -8, FMHA_INVALID_ARGUMENT, "o.stride_batch = -8");
  CHECK_BAD(p.k.stride_seqlen = 132, FMHA_INVALID_ARGUMENT,
            "k.stride_seqlen = 132: expected a multiple of 8");
  CHECK_BAD(p.k.stride_seqlen = int64_t{1} << 31, FMHA_UNSUPPORTED, "k.stride_seqlen = 2147483648");
  CHECK_BAD((p.k.stride_batch = int64_t{1} << 31, p.p_drop = 0.5F), FMHA_UNSUPPORTED,
            "k.stride_batch = 2147483648");
  CHECK_GOOD(p.k.stride_batch = int64_t{1} << 31, p.softcap = 1);  // our own kernel counts in 64 bits
  CHECK_BAD(p.lse.stride_head = -1, FMHA_INVALID_ARGUMENT, "lse.stride_head = -1");
  CHECK_BAD((p.lse.stride_batch = int64_t{1} << 31, p.p_drop = 0.5F), FMHA_UNSUPPORTED, "lse.stride_batch");
  CHECK_GOOD(p.lse.stride_head = 101, p.lse.stride_batch = 1001);
  CHECK_GOOD(p.k.stride_batch = 0, p.k.stride_head = 0,
             p.k.stride_seqlen = 0);  // repeated elements are fine to read
  // A stride of a dimension of size one is not read.
  CHECK_GOOD(p.batch = 1, p.q.stride_batch = -3, p.o.stride_batch = int64_t{1} << 40,
             p.lse.stride_batch = -1);
  CHECK_GOOD(p.seqlen_q = 1, p.q.stride_seqlen = -3, p.o.stride_seqlen = 1);
  CHECK_GOOD(p.nhead_k = 1, p.k.stride_head = 3, p.v.stride_head = INT64_MIN);
  CHECK_GOOD(p.lse.data = nullptr, p.lse.stride_head = -1);
  // A head dim that no kernel has is the selector's to name: the strides it brings are not blamed.
  CHECK_GOOD(p = test_params(FMHA_FP16, TEST_BSHD, 2, 100, 150, 4, 2, 60), p.q.data = at(1), p.k.data = at(2),
             p.v.data = at(3), p.o.data = at(4));
}

// 32-bit offsets: 4 GiB a head for what is read; 2 GiB for o where its last tile is a partial one. The 150
// rows of k and the 100 of q and o count as 256.
TEST_CASE("spans") {
  constexpr int64_t kMebi = int64_t{1} << 20;
  CHECK_GOOD(p.k.stride_seqlen = 8 * kMebi - 8);
  CHECK_BAD(p.k.stride_seqlen = 8 * kMebi, FMHA_UNSUPPORTED,
            "k.stride_seqlen = 8388608 over 150 rows: one head spans 4294967424 bytes");
  CHECK_GOOD(p.q.stride_seqlen = 8 * kMebi - 8);
  CHECK_BAD(p.q.stride_seqlen = 8 * kMebi, FMHA_UNSUPPORTED, "q.stride_seqlen");
  CHECK_BAD(p.v.stride_seqlen = 16 * kMebi, FMHA_UNSUPPORTED, "(batch, head, seqlen, ...)");
  CHECK_GOOD(p.batch = 1, p.o.stride_seqlen = 4 * kMebi - 8);
  CHECK_BAD((p.batch = 1, p.o.stride_seqlen = 4 * kMebi), FMHA_UNSUPPORTED,
            "o.stride_seqlen = 4194304 over 100 rows");
  CHECK_GOOD(p.batch = 1, p.seqlen_q = 256, p.lse.stride_head = 256, p.o.stride_seqlen = 8 * kMebi - 8);
}

TEST_CASE("pointers") {
  CHECK_BAD(p.q.data = nullptr, FMHA_INVALID_ARGUMENT, "q.data = NULL");
  CHECK_BAD(p.k.data = nullptr, FMHA_INVALID_ARGUMENT, "k.data = NULL");
  CHECK_BAD(p.v.data = nullptr, FMHA_INVALID_ARGUMENT, "v.data = NULL");
  CHECK_BAD(p.o.data = nullptr, FMHA_INVALID_ARGUMENT, "o.data = NULL");
  CHECK_BAD(p.q.data = static_cast<char*>(p.q.data) + 8, FMHA_INVALID_ARGUMENT,
            "q.data = 0x10000000008: expected an address aligned to 16 bytes");
  CHECK_BAD(p.o.data = static_cast<char*>(p.o.data) + 2, FMHA_INVALID_ARGUMENT, "o.data");
  CHECK_BAD(p.lse.data = reinterpret_cast<float*>((uintptr_t{5} << 40) + 2), FMHA_INVALID_ARGUMENT,
            "lse.data = 0x50000000002: expected an address aligned to 4 bytes");
  // Nobody reads k and v without keys, nor anything without queries.
  CHECK_GOOD(p.seqlen_k = 0, p.k.data = p.v.data = nullptr);
  CHECK_GOOD(p.batch = 0, p.q.data = p.k.data = p.v.data = p.o.data = nullptr);
  CHECK_GOOD(p.seqlen_q = 0, p.q.data = p.k.data = p.v.data = p.o.data = nullptr);
  CHECK_GOOD(p.nhead_q = 0, p.q.data = p.k.data = p.v.data = p.o.data = nullptr);

  fmha_fwd_params p = good();
  p.q.data = p.k.data = p.v.data = p.o.data = p.lse.data = nullptr;
  CHECK_OK(make(&p, Pointers::kOptional));
  p.k.data = reinterpret_cast<void*>(8);
  CHECK_STATUS(make(&p, Pointers::kOptional), FMHA_INVALID_ARGUMENT, "k.data = 0x8");
}

TEST_CASE("overlap") {
  CHECK_BAD(p.o.stride_head = 0, FMHA_INVALID_ARGUMENT,
            "o.stride_head = 0: its elements overlap one another");
  CHECK_BAD(p.o.stride_batch = 0, FMHA_INVALID_ARGUMENT, "o.stride_batch = 0: its elements overlap");
  CHECK_BAD(p.o.stride_seqlen = 0, FMHA_INVALID_ARGUMENT, "o.stride_seqlen = 0");
  CHECK_BAD(p.o.stride_head = 56, FMHA_INVALID_ARGUMENT,
            "o.stride_head = 56: its elements overlap one another; expected 64");
  CHECK_BAD(p.o.stride_seqlen = 248, FMHA_INVALID_ARGUMENT,
            "o.stride_seqlen = 248: its elements overlap one another; expected 256");
  CHECK_BAD(p.lse.stride_head = 99, FMHA_INVALID_ARGUMENT,
            "lse.stride_head = 99: its elements overlap one another; expected 100");
  CHECK_BAD(p.lse.stride_batch = 0, FMHA_INVALID_ARGUMENT, "lse.stride_batch = 0");
  // (batch, seqlen, nhead) in any order, and with gaps.
  CHECK_GOOD(p.o.stride_head = 64, p.o.stride_batch = 4 * 64, p.o.stride_seqlen = 2 * 4 * 64);
  CHECK_GOOD(p.o.stride_seqlen = 72, p.o.stride_head = 100 * 72 + 8, p.o.stride_batch = 4 * (100 * 72 + 8));

  CHECK_BAD(p.o.data = p.q.data, FMHA_INVALID_ARGUMENT, "o is written but overlaps q");
  CHECK_BAD(p.o.data = p.v.data, FMHA_INVALID_ARGUMENT, "o is written but overlaps v");
  CHECK_BAD(p.lse.data = static_cast<float*>(p.k.data), FMHA_INVALID_ARGUMENT,
            "lse is written but overlaps k");
  CHECK_BAD(p.lse.data = static_cast<float*>(p.o.data), FMHA_INVALID_ARGUMENT,
            "lse is written but overlaps o");
  // q spans 2 * 100 * 4 * 64 elements of 2 bytes; the byte after it is free.
  const int64_t q_bytes = 2 * 100 * 4 * 64 * 2;
  CHECK_BAD(p.o.data = static_cast<char*>(p.q.data) + q_bytes - 16, FMHA_INVALID_ARGUMENT, "overlaps q");
  CHECK_BAD(p.o.data = static_cast<char*>(p.q.data) - q_bytes + 16, FMHA_INVALID_ARGUMENT, "overlaps q");
  CHECK_GOOD(p.o.data = static_cast<char*>(p.q.data) + q_bytes);
  CHECK_GOOD(p.o.data = static_cast<char*>(p.q.data) - q_bytes);
  CHECK_GOOD(p.k.data = p.q.data, p.v.data = p.q.data);  // reading the same memory is fine
}

struct Mask {
  bool masked;
  int32_t type, left, right;
  bool operator==(const Mask&) const = default;
};

Mask mask_of(int32_t mask, int64_t seqlen_q, int64_t seqlen_k, int64_t left = 0, int64_t right = 0) {
  fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 1, seqlen_q, seqlen_k, 1, 1, 64);
  p.mask = mask;
  p.window_left = left;
  p.window_right = right;
  Checked problem{};
  CHECK_OK(make(&p, Pointers::kOptional, &problem));
  return {problem.masked, problem.args.mask_type, problem.args.window_left, problem.args.window_right};
}

// CK: type 1 top-left, 2 bottom-right; a negative side is unlimited.
TEST_CASE("masks") {
  const Mask none = {false, 0, -1, -1};
  CHECK(mask_of(FMHA_MASK_NONE, 100, 150, 1, 1) == none);
  CHECK((mask_of(FMHA_MASK_CAUSAL, 100, 150, 7, 7) == Mask{true, 2, -1, 0}));
  CHECK((mask_of(FMHA_MASK_CAUSAL_TOP_LEFT, 100, 150) == Mask{true, 1, -1, 0}));
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 150, 3, 5) == Mask{true, 2, 3, 5}));
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 150, 0, 0) == Mask{true, 2, 0, 0}));
  // One query sees every key before it; one key is before every query that is aligned top-left.
  CHECK(mask_of(FMHA_MASK_CAUSAL, 1, 150) == none);
  CHECK(mask_of(FMHA_MASK_CAUSAL_TOP_LEFT, 100, 1) == none);
  CHECK((mask_of(FMHA_MASK_CAUSAL, 2, 150) == Mask{true, 2, -1, 0}));
  CHECK((mask_of(FMHA_MASK_CAUSAL_TOP_LEFT, 1, 2) == Mask{true, 1, -1, 0}));
  // A side that reaches every key from every row.
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 150, 149, 5) == Mask{true, 2, -1, 5}));
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 150, 148, 5) == Mask{true, 2, 148, 5}));
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 150, 3, 99) == Mask{true, 2, 3, -1}));
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 150, 3, 98) == Mask{true, 2, 3, 98}));
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 150, INT64_MAX, 0) == Mask{true, 2, -1, 0}));
  CHECK(mask_of(FMHA_MASK_WINDOW, 100, 150, INT64_MAX, INT64_MAX) == none);
  CHECK(mask_of(FMHA_MASK_WINDOW, 100, 150, 149, 99) == none);
  // More queries than keys: a side of seqlen_k or more is unlimited by definition.
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 10, 3, 9) == Mask{true, 2, 3, 9}));
  CHECK((mask_of(FMHA_MASK_WINDOW, 100, 10, 3, 10) == Mask{true, 2, 3, -1}));
  // Top-left: the last row stands at column seqlen_q - 1, the first at 0.
  CHECK((mask_of(FMHA_MASK_WINDOW_TOP_LEFT, 100, 150, 3, 5) == Mask{true, 1, 3, 5}));
  CHECK((mask_of(FMHA_MASK_WINDOW_TOP_LEFT, 100, 150, 98, 149) == Mask{true, 1, 98, -1}));
  CHECK((mask_of(FMHA_MASK_WINDOW_TOP_LEFT, 100, 150, 99, 148) == Mask{true, 1, -1, 148}));
  CHECK(mask_of(FMHA_MASK_WINDOW_TOP_LEFT, 100, 150, 99, 149) == none);
  CHECK((mask_of(FMHA_MASK_WINDOW_TOP_LEFT, 100, 10, 9, 9) == Mask{true, 1, 9, -1}));
  CHECK(mask_of(FMHA_MASK_WINDOW_TOP_LEFT, 100, 10, 10, 9) == none);
  // Nothing to hide.
  CHECK(mask_of(FMHA_MASK_CAUSAL, 100, 0) == none);
  CHECK(mask_of(FMHA_MASK_WINDOW, 100, 0, 0, 0) == none);

  CHECK_BAD(p.mask = 5, FMHA_INVALID_ARGUMENT, "mask = 5: expected one of FMHA_MASK_*");
  CHECK_BAD(p.mask = -1, FMHA_INVALID_ARGUMENT, "mask = -1");
  CHECK_BAD((p.mask = FMHA_MASK_WINDOW, p.window_left = -1), FMHA_INVALID_ARGUMENT,
            "window_left = -1: expected 0");
  CHECK_BAD((p.mask = FMHA_MASK_WINDOW, p.window_right = -1), FMHA_INVALID_ARGUMENT, "window_right = -1");
}

TEST_CASE("struct size") {
  CHECK_STATUS(make(nullptr), FMHA_INVALID_ARGUMENT, "params = NULL");
  const std::string expected = "params->struct_size = 0: expected " + std::to_string(sizeof(fmha_fwd_params));
  CHECK_BAD(p.struct_size = 0, FMHA_ABI_MISMATCH, expected.c_str());
  CHECK_BAD(p.struct_size = sizeof p - 4, FMHA_ABI_MISMATCH, "params->struct_size = ");
  CHECK_BAD(p.struct_size = 248, FMHA_ABI_MISMATCH, "params->struct_size = 248");  // of no header
  CHECK_BAD(p.struct_size = 0xcccccccc, FMHA_ABI_MISMATCH, "params->struct_size = 3435973836");
  // The first header's struct ended after lse; what lies beyond is not its caller's.
  CHECK_GOOD(p.struct_size = 240, std::memset(reinterpret_cast<char*>(&p) + 240, 0xff, sizeof p - 240));
  // The second header's had four bytes of padding at its end, which no caller has set.
  CHECK_GOOD(p.struct_size = 424, std::memset(reinterpret_cast<char*>(&p) + 420, 0xff, sizeof p - 420));
  CHECK_BAD(p.struct_size = 420, FMHA_ABI_MISMATCH, "params->struct_size = 420: expected");
  for (size_t byte = 0; byte < sizeof(uint32_t); ++byte) {
    CHECK_BAD(reinterpret_cast<unsigned char*>(&p.reserved)[byte] = 0xa5, FMHA_INVALID_ARGUMENT,
              "reserved = ");
  }
  // The third header's ended after workspace_bytes.
  CHECK_GOOD(p.struct_size = 440, std::memset(reinterpret_cast<char*>(&p) + 440, 0xff, sizeof p - 440));
  // The fourth header's ended after flags.
  CHECK_GOOD(p.struct_size = 448, std::memset(reinterpret_cast<char*>(&p) + 448, 0xff, sizeof p - 448));
  CHECK_BAD(p.flags = 3, FMHA_INVALID_ARGUMENT, "flags = 0x3: expected 0 or FMHA_NO_MEMORY_CHECK (0x1)");
  CHECK_GOOD(p.flags = FMHA_NO_MEMORY_CHECK);
  CHECK_BAD(p.reserved = 7, FMHA_INVALID_ARGUMENT, "reserved = 7: expected 0");
  struct Future {
    fmha_fwd_params known;
    int64_t unknown[2];
  } future = {good(), {0, 0}};
  future.known.struct_size = sizeof future;
  CHECK_OK(make(&future.known));
  future.unknown[1] = int64_t{1} << 56;
  const std::string last = "byte " + std::to_string(sizeof future - 1) + " is set";
  CHECK_STATUS(make(&future.known), FMHA_ABI_MISMATCH, last.c_str());
}

// Everything a kernel is handed, from a problem whose every number is different.
TEST_CASE("kernel arguments") {
  fmha_fwd_params p = test_params(FMHA_BF16, TEST_BHSD, 3, 100, 150, 6, 2, 64);
  p.q = {at(1), 100000, 64, 6400};
  p.k = {at(2), 200000, 72, 10808};
  p.v = {at(3), 300000, 80, 12008};
  p.o = {at(4), 400000, 88, 8808};
  p.lse = {static_cast<float*>(at(5)), 1000, 101};
  p.mask = FMHA_MASK_CAUSAL;
  Checked problem{};
  CHECK_OK(make(&p, Pointers::kRequired, &problem));
  CHECK(problem.dtype == fmha::DType::kBf16);
  CHECK(problem.batch == 3);
  CHECK(problem.nhead_k == 2);
  CHECK(problem.masked);
  CHECK(!problem.empty);
  const fmha::FwdKernelParams& a = problem.args;
  CHECK(a.q == at(1));
  CHECK(a.k == at(2));
  CHECK(a.v == at(3));
  CHECK(a.o == at(4));
  CHECK(a.lse == at(5));
  CHECK(a.seqlen_q == 100);
  CHECK(a.seqlen_k == 150);
  CHECK(a.hdim_q == 64);
  CHECK(a.hdim_v == 64);
  CHECK(a.nhead_q == 6);
  CHECK(a.nhead_ratio_qk == 3);
  CHECK(a.batch_stride_q == 100000);
  CHECK(a.stride_q == 64);
  CHECK(a.nhead_stride_q == 6400);
  CHECK(a.batch_stride_k == 200000);
  CHECK(a.stride_k == 72);
  CHECK(a.nhead_stride_k == 10808);
  CHECK(a.batch_stride_v == 300000);
  CHECK(a.stride_v == 80);
  CHECK(a.nhead_stride_v == 12008);
  CHECK(a.batch_stride_o == 400000);
  CHECK(a.stride_o == 88);
  CHECK(a.nhead_stride_o == 8808);
  CHECK(a.batch_stride_lse == 1000);
  CHECK(a.nhead_stride_lse == 101);
  p.lse.data = nullptr;
  CHECK_OK(make(&p, Pointers::kRequired, &problem));
  CHECK(problem.args.lse == nullptr);
  p.nhead_q = 0;
  CHECK_OK(make(&p, Pointers::kRequired, &problem));
  CHECK(problem.empty);
  CHECK(problem.args.q == nullptr);
  CHECK(problem.args.o == nullptr);
}

}  // namespace
