// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of our own forward kernels with ALiBi, with a softcap and with 8-bit floats, over the table
// in table.cc.
#include "args/fwd_pingpong.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <new>

#include "error.h"
#include "params.h"
#include "plan/plan.h"
#include "problem/fwd.h"
#include "select/fwd.h"
#include "status.h"

namespace {

using fmha::PingpongCap;
using fmha::PingpongFp8Params;
using fmha::PingpongParams;
using fmha::PingpongScoreParams;

constexpr fmha::Target kDevice = {fmha::Arch::kGfx950, 256};

// Nothing reads these addresses; they are far apart.
template <typename T = void>
T* at(uintptr_t tebibytes) {
  return reinterpret_cast<T*>(tebibytes << 40);
}

fmha_fwd_params forward() {
  fmha_fwd_params p = test_params(FMHA_BF16, TEST_BSHD, 2, 100, 150, 4, 2, 128);
  p.q.data = at(1), p.k.data = at(2), p.v.data = at(3), p.o.data = at(4), p.lse.data = at<float>(5);
  return p;
}

fmha_status plan_of(const fmha_fwd_params& p, fmha::Plan& plan) {
  return fmha::guard([&] {
    fmha::FwdProblem problem;
    fmha::make_fwd_problem(&p, fmha::Pointers::kOptional, problem);
    fmha::FwdOffers offers;
    fmha::ask_fwd_origins(problem, offers);
    new (&plan) fmha::Plan;
    fmha::plan_fwd(*fmha::choose_fwd(problem, offers, kDevice, true).kernel, problem, {0, 1}, kDevice, plan);
  });
}

template <typename Args>
const Args& args(const fmha::Plan& plan) {
  return *std::launder(reinterpret_cast<const Args*>(plan[0].arguments.data()));
}

bool runs(const fmha::Plan& plan, const char* name, size_t bytes) {
  return plan.count() == 1 && std::strcmp(plan[0].kernel->name, name) == 0 && plan[0].bytes == bytes;
}

TEST_CASE("plain") {
  fmha::Plan plan;
  CHECK_OK(plan_of(forward(), plan));
  CHECK(runs(plan, "bf16_d128_pad_pingpong", sizeof(PingpongParams)));
}

TEST_CASE("sinks") {
  fmha_fwd_params p = forward();
  p.sinks = at<float>(6);
  fmha::Plan plan;
  CHECK_OK(plan_of(p, plan));
  CHECK(runs(plan, "bf16_d128_pad_pingpong", sizeof(PingpongParams)));
  CHECK(args<PingpongParams>(plan).sinks == at(6));
  p.p_drop = 0.5F;
  CHECK_STATUS(plan_of(p, plan), FMHA_UNSUPPORTED, "dropout, sinks");
}

TEST_CASE("alibi") {
  fmha_fwd_params p = forward();
  p.alibi_slopes = at<float>(6);
  p.alibi_stride_batch = int64_t{1} << 33;
  p.softmax_scale = 0.25F;
  fmha::Plan plan;
  CHECK_OK(plan_of(p, plan));
  CHECK(runs(plan, "bf16_d128_pad_alibi_pingpong", sizeof(PingpongScoreParams)));
  const auto& all = args<PingpongScoreParams>(plan);
  CHECK(all.alibi == at(6));
  CHECK(all.alibi_batch == int64_t{1} << 33);
  CHECK(all.per_scale == 4);
  CHECK(all.plain.q == at(1));
  CHECK(all.plain.seqlen_k == 150);
  CHECK(all.plain.parts.count == 1);
  p.softmax_scale = 1e-31F, p.alibi_stride_batch = 4;
  CHECK_STATUS(plan_of(p, plan), FMHA_UNSUPPORTED, "softmax_scale = 1e-31 with alibi_slopes");
}

PingpongCap cap_of(float scale, float softcap) {
  fmha_fwd_params p = forward();
  p.softmax_scale = scale;
  p.softcap = softcap;
  fmha::Plan plan;
  CHECK_OK(plan_of(p, plan));
  CHECK(runs(plan, "bf16_d128_pad_softcap_pingpong", sizeof(PingpongScoreParams)));
  return args<PingpongScoreParams>(plan).cap;
}

constexpr double kLog2e = 1.4426950408889634, kUlp = 0x1p-24;

// Up to where it may be taken, the line is as exact as the exponential.
void check_line(float scale, float softcap) {
  const PingpongCap cap = cap_of(scale, softcap);
  CHECK(cap.nearly_line > 0);
  CHECK(cap.c2 >= FLT_MIN);
  for (int i = -1000; i <= 1000; ++i) {
    const double s = cap.nearly_line * i / 1000, w = s * s;
    const double line = s * (double{cap.c0} + w * (double{cap.c1} + w * double{cap.c2}));
    const double right = softcap * std::tanh(s * scale / softcap);
    CAPTURE(s);
    CHECK(std::fabs(line / kLog2e - right) <= 4 * kUlp * softcap);
    CHECK(std::fabs(cap.outer * std::tanh(cap.inner / kLog2e * s / 2) / kLog2e - right) <=
          2 * kUlp * softcap);
  }
}

TEST_CASE("softcap") {
  check_line(0.088F, 50);
  check_line(1, 0.5F);
  check_line(1e-4F, 800);
  check_line(300, 1e-4F);
  // The powers of the quotient of scale and cap are no float32: the exponential does all.
  CHECK(cap_of(1e-12F, 1).nearly_line < 0);
  CHECK(cap_of(1, 1e-20F).nearly_line < 0);
  fmha_fwd_params p = forward();
  fmha::Plan plan;
  p.softmax_scale = 3e37F, p.softcap = 0.25F;
  CHECK_STATUS(plan_of(p, plan), FMHA_UNSUPPORTED, "softcap = 0.25: kernels of \"pingpong\"");
  p.softmax_scale = 1, p.softcap = 820;
  CHECK_STATUS(plan_of(p, plan), FMHA_UNSUPPORTED, "softcap = 820: kernels take 1e-38 to 819.2");
}

TEST_CASE("fp8") {
  fmha_fwd_params p = test_params(FMHA_FP8_E4M3_FN, TEST_BSHD, 2, 100, 150, 4, 2, 128);
  p.o_dtype = FMHA_BF16;
  p.q.data = at(1), p.k.data = at(2), p.v.data = at(3), p.o.data = at(4), p.lse.data = at<float>(5);
  p.softmax_scale = 0.5F, p.q_descale = 0.25F, p.k_descale = 2, p.v_descale = 3;
  fmha::Plan plan;
  CHECK_OK(plan_of(p, plan));
  CHECK(runs(plan, "fp8fn_bf16_d128_pad_pingpong", sizeof(PingpongFp8Params)));
  const auto& all = args<PingpongFp8Params>(plan);
  CHECK(all.v_descale == 3);
  CHECK(std::fabs(double{all.plain.scale} - 0.25 * kLog2e) < kUlp);
  CHECK(all.plain.q_strides.row == 4 * 128);
  CHECK(all.plain.o_strides.row == 4 * 128 * 2);
  p.o_dtype = FMHA_FP16;
  CHECK_STATUS(plan_of(p, plan), FMHA_UNSUPPORTED, "fp8fn_bf16_d128_pad_pingpong, takes o_dtype = bf16");
  p.o_dtype = FMHA_BF16, p.softcap = 1;
  CHECK_STATUS(plan_of(p, plan), FMHA_UNSUPPORTED, "takes softcap = 0");
  p.softcap = 0, p.v_descale = 1e-36F;
  CHECK_STATUS(plan_of(p, plan), FMHA_UNSUPPORTED, "v_descale = 1e-36: kernels take 5.26621e-36 or more");
}

}  // namespace

const char* fmha_last_error() { return fmha::last_error(); }
