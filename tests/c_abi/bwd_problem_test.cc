// SPDX-License-Identifier: MIT OR Apache-2.0
// A backward call's arguments give a problem and its memory, or a message that names the wrong one.
#include <cstring>
#include <limits>
#include <string>

#include "bwd_params.h"
#include "error.h"
#include "problem/bwd.h"
#include "select/bwd.h"
#include "status.h"

namespace {

using fmha::DType;
using fmha::Pointers;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Nothing reads these addresses; they are far apart.
template <typename T = void>
T* at(uintptr_t tebibytes, uintptr_t bytes = 0) {
  return reinterpret_cast<T*>((tebibytes << 40) + bytes);
}

// A problem that a change can be made to.
struct Good {
  Good() : Good(plain()) {}
  explicit Good(const fmha_fwd_params& forward) : f(forward), p(test_bwd_params(&f)) {
    p.dout.data = at(6);
    p.dq.data = at(7);
    p.dk.data = at(8);
    p.dv.data = at(9);
  }
  Good(const Good&) = delete;

  static fmha_fwd_params plain(fmha_dtype dtype = FMHA_FP16) {
    fmha_fwd_params f = test_params(dtype, TEST_BSHD, 2, 100, 150, 4, 2, 64);
    f.q.data = at(1);
    f.k.data = at(2);
    f.v.data = at(3);
    f.o.data = at(4);
    f.lse.data = at<float>(5);
    return f;
  }

  fmha_status make(fmha::BwdProblem* out = nullptr, Pointers pointers = Pointers::kRequired) const {
    return fmha::guard([&] {
      fmha::BwdProblem problem;
      fmha::make_bwd_problem(&p, pointers, problem);
      fmha::BwdOffers offers;
      fmha::ask_bwd_origins(problem, offers);
      fmha::check_overlaps(problem);
      if (out != nullptr) *out = problem;
    });
  }

  fmha_fwd_params f;
  fmha_bwd_params p;
};

// Three sequences of up to 100 queries and 150 keys.
fmha_fwd_params varlen() {
  fmha_fwd_params f = Good::plain();
  f.batch = 3;
  f.total_q = 170;
  f.total_k = 260;
  f.cu_seqlens_q = at<int32_t>(10);
  f.cu_seqlens_k = at<int32_t>(11);
  f.lse.stride_head = 170;
  return f;
}

const char* fmha_last_error() { return fmha::last_error(); }

// Applies a change to a good problem and expects a status and a text that the message begins with.
#define CHECK_BAD(from, change, status, text)              \
  do {                                                     \
    Good g(from);                                          \
    fmha_fwd_params& f = g.f;                              \
    fmha_bwd_params& p = g.p;                              \
    (void)f, (void)p;                                      \
    change;                                                \
    CHECK_STATUS(g.make(), status, text);                  \
    CHECK(std::string(fmha_last_error()).find(text) == 0); \
  } while (0)

#define CHECK_GOOD(from, ...) \
  do {                        \
    Good g(from);             \
    fmha_fwd_params& f = g.f; \
    fmha_bwd_params& p = g.p; \
    (void)f, (void)p;         \
    __VA_ARGS__;              \
    CHECK_OK(g.make());       \
  } while (0)

TEST_CASE("meaning") {
  fmha::BwdProblem problem;
  Good g;
  CHECK_OK(g.make(&problem));
  CHECK(problem.fwd.dtype == DType::kFp16);
  CHECK(problem.grad_dtype == DType::kFp16);
  CHECK(!problem.accumulate);
  CHECK(!problem.deterministic);
  CHECK(problem.checks_memory);
  CHECK(problem.candidate == 0);
  CHECK(problem.dq.data == at(7));
  CHECK(problem.dk.data == at(8));
  CHECK(problem.dv.data == at(9));
  CHECK(problem.dk.size[fmha::kHead] == 2);
  CHECK(problem.dq.size[fmha::kHead] == 4);
  g.p.grad_dtype = FMHA_FP32;
  g.p.accumulate = g.p.deterministic = 1;
  g.p.kernel = 3;
  g.p.flags = FMHA_NO_MEMORY_CHECK;
  CHECK_OK(g.make(&problem));
  CHECK(problem.grad_dtype == DType::kFp32);
  CHECK(problem.dq.element_bytes == 4);
  CHECK(problem.dout.element_bytes == 2);
  CHECK(problem.accumulate);
  CHECK(problem.deterministic);
  CHECK(!problem.checks_memory);
  CHECK(problem.candidate == 3);
  CHECK_GOOD(Good::plain(), p.grad_dtype = FMHA_FP16);
}

// A backward call ignores the fields that only the forward call uses.
TEST_CASE("forward call") {
  CHECK_GOOD(Good::plain(), f.kernel = -1, f.flags = ~uint64_t{0}, f.workspace = at(1, 3),
             f.workspace_bytes = -1, f.randval = {at<uint8_t>(7), -1, -1, -1}, f.sinks = at<float>(1, 3));
  // An older header's struct is good for it too.
  Good g;
  g.f.struct_size = 440;
  CHECK_OK(g.make());
}

struct Expected {
  const char* name;
  int64_t bytes;
  bool written;
};

void check_extents(const char* of, const Good& g, std::initializer_list<Expected> expected) {
  CAPTURE(of);
  fmha::BwdProblem problem;
  CHECK_OK(fmha::guard([&] { fmha::make_bwd_problem(&g.p, Pointers::kRequired, problem); }));
  const auto all = problem.fwd.extents.all();
  REQUIRE(all.size() == expected.size());
  size_t i = 0;
  for (const Expected& e : expected) {
    const fmha::Extent& x = all[i++];
    CHECK(std::string(x.pointer) == e.name);
    CAPTURE(e.name);
    CHECK(static_cast<int64_t>(x.bytes) == e.bytes);
    CHECK(x.written == e.written);
  }
}

TEST_CASE("extents") {
  constexpr int64_t q = int64_t{2} * 100 * 4 * 64 * 2, k = int64_t{2} * 150 * 2 * 64 * 2;
  constexpr int64_t lse = int64_t{2} * 4 * 100 * 4;
  check_extents("all", Good(),
                {{"fwd->q.data", q, false},
                 {"fwd->k.data", k, false},
                 {"fwd->v.data", k, false},
                 {"fwd->o.data", q, false},
                 {"fwd->lse.data", lse, false},
                 {"dout.data", q, false},
                 {"dq.data", q, true},
                 {"dk.data", k, true},
                 {"dv.data", k, true}});
  // Without queries only the gradients of keys are touched, as zeros; without keys those of queries, whose
  // forward tensors are still asked for.
  Good no_queries;
  no_queries.f.seqlen_q = 0;
  check_extents("no queries", no_queries, {{"dk.data", k, true}, {"dv.data", k, true}});
  Good no_keys;
  no_keys.f.seqlen_k = 0;
  check_extents("no keys", no_keys,
                {{"fwd->q.data", q, false},
                 {"fwd->o.data", q, false},
                 {"fwd->lse.data", lse, false},
                 {"dout.data", q, false},
                 {"dq.data", q, true}});
  Good no_heads;
  no_heads.f.nhead_q = 0;
  check_extents("no heads", no_heads, {{"dk.data", k, true}, {"dv.data", k, true}});
  Good none;
  none.f.batch = 0;
  check_extents("no batch", none, {});
  // The most there can be.
  Good all(varlen());
  all.f.bias = {at(14), 0, 0, 150};
  all.f.alibi_slopes = at<float>(15);
  all.f.seqused_q = at<int32_t>(12);
  all.f.seqused_k = at<int32_t>(13);
  all.f.p_drop = 0.5F;
  all.f.philox_seed_offset = at<uint64_t>(16);
  all.p.dbias = {at(17), 0, 0, 150};
  fmha::BwdProblem problem;
  CHECK_OK(fmha::guard([&] { fmha::make_bwd_problem(&all.p, Pointers::kRequired, problem); }));
  CHECK(problem.fwd.extents.all().size() == 17);
  // One head's, and of all rows.
  CHECK(problem.dbias.size[fmha::kHead] == 1);
  CHECK(problem.dbias.size[fmha::kSeqlen] == 170);
  CHECK(problem.fwd.extents.all().back().bytes == 170 * 150 * 2);
}

// A stride of 0 sums over its dimension, which is one element even if nothing is summed.
TEST_CASE("dbias") {
  fmha_fwd_params f = Good::plain();
  f.bias = {at(14), 4 * 100 * 150, 100 * 150, 150};
  const auto made = [](const fmha_fwd_params& forward, const fmha_bias_grad& dbias) {
    fmha::BwdProblem problem;
    Good g(forward);
    g.p.dbias = dbias;
    CHECK_OK(fmha::guard([&] { fmha::make_bwd_problem(&g.p, Pointers::kRequired, problem); }));
    return problem;
  };
  const fmha_bias_grad whole = {at(17), 4 * 100 * 150, 100 * 150, 150};
  CHECK(!made(f, {nullptr, 1, 2, 3}).has_dbias);
  fmha::BwdProblem problem = made(f, whole);
  CHECK(problem.has_dbias);
  CHECK(problem.dbias.touched);
  CHECK(problem.dbias.size[fmha::kBatch] == 2);
  f.bias = {at(14), 0, 0, 0};
  problem = made(f, {at(17), 0, 0, 0});
  CHECK(problem.dbias.size == (std::array<int64_t, 3>{1, 1, 1}));
  CHECK(problem.dbias.row == 150);
  // The bias may be broadcast without a sum of its gradient.
  CHECK(made(f, whole).dbias.size == (std::array<int64_t, 3>{2, 100, 4}));
  f.batch = 0;
  CHECK(made(f, {at(17), 0, 0, 0}).dbias.touched);
  CHECK(!made(f, whole).dbias.touched);
  CHECK(!made(f, {at(17), 0, 0, 0}).is_empty());
  CHECK(made(f, whole).is_empty());
  f.seqlen_k = 0;
  CHECK(!made(f, {at(17), 0, 0, 0}).dbias.touched);

  const auto bad = FMHA_INVALID_ARGUMENT;
  f = Good::plain();
  CHECK_BAD(f, p.dbias = whole, bad,
            "dbias.data = 0x110000000000: expected NULL, since fwd->bias.data is NULL");
  f.bias = {at(14), 0, 100 * 150, 150};
  CHECK_BAD(f, (p.dbias = {at(17), 0, 0, 150}), bad,
            "dbias.stride_head = 0: expected above 0, since fwd->bias.stride_head = 15000");
  CHECK_BAD(f, (p.dbias = {at(17), 0, 100 * 150, -1}), bad, "dbias.stride_seqlen = -1: expected 0 or more");
  CHECK_BAD(f, (p.dbias = {at(17, 1), 0, 100 * 150, 150}), bad,
            "dbias.data = 0x110000000001: expected an address aligned to 2 bytes");
}

TEST_CASE("struct") {
  CHECK_STATUS(fmha::guard([] {
                 fmha::BwdProblem problem;
                 fmha::make_bwd_problem(nullptr, Pointers::kRequired, problem);
               }),
               FMHA_INVALID_ARGUMENT, "params = NULL");
  const auto bad = FMHA_INVALID_ARGUMENT;
  CHECK_BAD(Good::plain(), p.struct_size = 8, FMHA_ABI_MISMATCH, "params->struct_size = 8: expected 216");
  CHECK_GOOD(Good::plain(), p.struct_size = 184);  // without dbias
  CHECK_BAD(Good::plain(), f.struct_size = 8, FMHA_ABI_MISMATCH, "fwd->struct_size = 8: expected 456");
  CHECK_BAD(Good::plain(), p.fwd = nullptr, bad, "fwd = NULL: expected a struct");
  CHECK_BAD(Good::plain(), p.reserved = 1, bad, "reserved = 1: expected 0");
  CHECK_BAD(Good::plain(), f.reserved = 1, bad, "fwd->reserved = 1: expected 0");
  CHECK_BAD(Good::plain(), p.kernel = -1, bad, "kernel = -1: expected 0, or the number");
  CHECK_BAD(Good::plain(), p.flags = 2, bad, "flags = 0x2: expected 0 or FMHA_NO_MEMORY_CHECK");
  CHECK_BAD(Good::plain(), p.accumulate = 2, bad, "accumulate = 2: expected 0 or 1");
  CHECK_BAD(Good::plain(), p.deterministic = -1, bad, "deterministic = -1: expected 0 or 1");
  CHECK_BAD(Good::plain(), p.grad_dtype = 9, bad, "grad_dtype = 9: expected FMHA_FP16 (1)");
  CHECK_BAD(Good::plain(), p.grad_dtype = FMHA_BF16, bad,
            "grad_dtype = bf16: expected 0, fwd->dtype = fp16, or FMHA_FP32");
}

// Names of what is in `fwd` say so.
TEST_CASE("forward arguments") {
  const auto bad = FMHA_INVALID_ARGUMENT;
  CHECK_BAD(Good::plain(), f.dtype = 0, bad, "fwd->dtype = 0: expected");
  CHECK_BAD(Good::plain(), f.batch = -1, bad, "fwd->batch = -1");
  CHECK_BAD(Good::plain(), f.nhead_q = 5, bad, "fwd->nhead_q = 5: expected a multiple of nhead_k");
  CHECK_BAD(Good::plain(), f.hdim_v = 0, bad, "fwd->hdim_v = 0");
  CHECK_BAD(Good::plain(), f.softmax_scale = kNan, bad, "fwd->softmax_scale = ");
  CHECK_BAD(Good::plain(), f.mask = 9, bad, "fwd->mask = 9");
  CHECK_BAD(Good::plain(), f.p_drop = 1, bad, "fwd->p_drop = 1");
  CHECK_BAD(Good::plain(), f.cu_seqlens_q = at<int32_t>(10), bad, "fwd->cu_seqlens_k = NULL");
  CHECK_BAD(varlen(), f.total_k = 0, bad, "fwd->total_k = 0: expected 1 or more");
  CHECK_BAD(varlen(), f.cu_seqlens_q = at<int32_t>(10, 2), bad,
            "fwd->cu_seqlens_q = 0xa0000000002: expected");
  CHECK_BAD(Good::plain(), f.q.stride_head = -1, bad, "fwd->q.stride_head = -1: expected 0 or more");
  CHECK_BAD(Good::plain(), f.alibi_slopes = at<float>(10);
            f.alibi_stride_batch = -1, bad, "fwd->alibi_stride_batch = -1");
  CHECK_BAD(Good::plain(), f.v.data = nullptr, bad, "fwd->v.data = NULL: expected a device pointer");
  CHECK_BAD(Good::plain(), f.o.data = nullptr, bad, "fwd->o.data = NULL: expected a device pointer");
  CHECK_BAD(Good::plain(), f.lse.data = nullptr, bad, "fwd->lse.data = NULL: expected a device pointer");
  CHECK_BAD(Good::plain(), f.lse.data = at<float>(5, 2), bad, "fwd->lse.data = 0x50000000002: expected");
  CHECK_BAD(Good::plain(), f.lse.stride_head = -1, bad, "fwd->lse.stride_head = -1");
}

TEST_CASE("tensors") {
  const auto bad = FMHA_INVALID_ARGUMENT;
  struct {
    const char* name;
    fmha_tensor fmha_bwd_params::* tensor;
  } const tensors[] = {{"dout", &fmha_bwd_params::dout},
                       {"dq", &fmha_bwd_params::dq},
                       {"dk", &fmha_bwd_params::dk},
                       {"dv", &fmha_bwd_params::dv}};
  for (const auto& [name, tensor] : tensors) {
    const std::string text = name;
    CHECK_BAD(Good::plain(), (p.*tensor).data = nullptr, bad,
              (text + ".data = NULL: expected a device").c_str());
    CHECK_BAD(Good::plain(), (p.*tensor).data = at(20, 8), bad,
              (text + ".data = 0x140000000008: expected").c_str());
    CHECK_BAD(Good::plain(), (p.*tensor).stride_batch = -8, bad,
              (text + ".stride_batch = -8: expected 0").c_str());
    CHECK_BAD(Good::plain(), (p.*tensor).stride_seqlen += 4, bad, (text + ".stride_seqlen = ").c_str());
    CHECK_BAD(Good::plain(), (p.*tensor).stride_seqlen = int64_t{1} << 31, FMHA_UNSUPPORTED,
              (text + ".stride_seqlen = 2147483648: kernels take strides").c_str());
    CHECK_BAD(Good::plain(), (p.*tensor).stride_seqlen = int64_t{1} << 24, FMHA_UNSUPPORTED,
              (text + ".stride_seqlen = 16777216 over ").c_str());
  }
  // Only what is written may not be repeated; float32 gradients are aligned by four elements.
  CHECK_GOOD(Good::plain(), p.dout.stride_head = 0);
  CHECK_BAD(Good::plain(), p.dk.stride_head = 0, bad, "dk.stride_head = 0: its elements overlap");
  CHECK_GOOD(Good::plain(), p.grad_dtype = FMHA_FP32, p.dq.stride_seqlen += 4, p.dq.stride_batch += 400);
  CHECK_GOOD(varlen(), p.dq.stride_batch = p.dk.stride_batch = -1);
  // NULL where it may be.
  Good none;
  none.f.q.data = none.f.k.data = none.f.v.data = none.f.o.data = nullptr;
  none.f.lse.data = nullptr;
  none.p.dout.data = none.p.dq.data = none.p.dk.data = none.p.dv.data = nullptr;
  CHECK_OK(none.make(nullptr, Pointers::kOptional));
}

TEST_CASE("overlaps") {
  const auto bad = FMHA_INVALID_ARGUMENT;
  // Everything that is read may be the same memory; nothing of it may be written.
  CHECK_GOOD(Good::plain(), f.k.data = f.v.data = f.q.data, p.dout.data = f.o.data = f.q.data);
  CHECK_BAD(Good::plain(), p.dq.data = f.q.data, bad, "dq is written but overlaps fwd->q");
  CHECK_BAD(Good::plain(), p.dk.data = f.lse.data, bad, "dk is written but overlaps fwd->lse");
  CHECK_BAD(Good::plain(), p.dv.data = p.dout.data, bad, "dv is written but overlaps dout");
  CHECK_BAD(Good::plain(), p.dv.data = p.dk.data, bad, "dv is written but overlaps dk");
}

TEST_CASE("unsupported") {
  const auto no = FMHA_UNSUPPORTED;
  CHECK_GOOD(Good::plain(FMHA_FP32), );
  CHECK_BAD(Good::plain(FMHA_FP32), f.softmax_scale = -1, no, "fwd->softmax_scale = -1: kernels take");
  CHECK_BAD(Good::plain(FMHA_FP32), p.dk.stride_head = int64_t{1} << 31, no, "dk.stride_head = 2147483648");
  CHECK_BAD(Good::plain(FMHA_FP8_E4M3_FNUZ), f.o_dtype = FMHA_BF16, no,
            "fwd->dtype = fp8: backward kernels take fp16, bf16 and fp32");
  CHECK_BAD(Good::plain(), f.o_dtype = FMHA_FP32, no,
            "fwd->o_dtype = fp32: backward kernels take fwd->dtype");
  CHECK_BAD(Good::plain(), f.softcap = 1000, no, "fwd->softcap = 1000: kernels take 1e-38 to ");
  CHECK_BAD(Good::plain(), (f.bias = {at(14), 0, 0, 150}, f.softcap = 30), no,
            "fwd->softcap = 30 and bias: no kernel");
  CHECK_BAD(Good::plain(), (f.bias = {at(14), 0, 0, 150}, p.dbias = {at(17), 0, 0, int64_t{1} << 31}), no,
            "dbias.stride_seqlen = 2147483648: kernels take strides below 2^31");
  CHECK_BAD(Good::plain(), (f.bias = {at(14), 0, 0, 150}, p.dbias = {at(17), 0, 0, int64_t{1} << 24}), no,
            "dbias.stride_seqlen = 16777216 over 100 rows: one head spans");
  CHECK_BAD(Good::plain(), f.softmax_scale = 1e-39F, no, "fwd->softmax_scale = 1e-39: kernels take scales");
  CHECK_BAD(Good::plain(), f.softmax_scale = -1, no, "fwd->softmax_scale = -1");
  CHECK_BAD(Good::plain(), f.batch = 1 << 23, no, "fwd->batch = 8388608: ");
  CHECK_BAD(Good::plain(), f.nhead_q = 65536, no, "fwd->nhead_q = 65536: kernels take at most 65535");
  CHECK_BAD(Good::plain(), f.seqlen_k = int64_t{1} << 29, no, "fwd->seqlen_k = 536870912");
  CHECK_BAD(Good::plain(), f.q.stride_head = int64_t{1} << 31, no, "fwd->q.stride_head = 2147483648");
  CHECK_BAD(Good::plain(), f.batch = 60000; f.nhead_q = 600;
            f.p_drop = 0.5F, no, "fwd->batch * fwd->nhead_q = 36000000: kernels with dropout take at most");
  CHECK_BAD(Good::plain(), f.alibi_slopes = at<float>(15);
            f.alibi_stride_batch = int64_t{1} << 31, no, "fwd->alibi_stride_batch = 2147483648");
  // Gradients are added up in float32, of which 2^23 rows of 64 are 2 GiB: q of 16 bits may be as long.
  fmha_fwd_params f = test_params(FMHA_FP16, TEST_BHSD, 1, (int64_t{1} << 23) - 256, 150, 1, 1, 64);
  f.q.data = at(1), f.k.data = at(2), f.v.data = at(3), f.o.data = at(4), f.lse.data = at<float>(5);
  CHECK_GOOD(f, );
  f.seqlen_q += 256;
  CHECK_BAD(f, , no, "fwd->seqlen_q = 8388608 rows of fwd->hdim_q = 64: kernels add up gradients in float32");
}

}  // namespace
