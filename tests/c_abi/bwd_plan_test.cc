// SPDX-License-Identifier: MIT OR Apache-2.0
// The backward pass's choice and plan over the table in table.cc: steps, grids, arguments, workspace.
#include <cstring>

#include "args/bwd.h"
#include "bwd_planned.h"
#include "error.h"
#include "fmha_rocm.h"
#include "status.h"

namespace {

using fmha::BwdBiasParams;
using fmha::BwdDotParams;
using fmha::BwdKernelParams;
using fmha::BwdSumParams;

// The main kernel writes dk and dv itself: four steps.
TEST_CASE("direct") {
  const fmha_fwd_params f = forward();
  Planned x;
  CHECK_OK(plan_of(backward(f), x));
  const int64_t d = rounded(2 * 4 * 100 * 4), dq_acc = 2 * 4 * 100 * 64 * 4;
  CHECK(x.plan.count() == 4);
  CHECK(!x.plan.empty);
  CHECK(x.plan.needed_bytes() == d + dq_acc);
  CHECK(x.launches(0, "bwd_dot_fp16", {7, 4, 2}));
  CHECK(x.zeroes(1, at(20, static_cast<uintptr_t>(d)), static_cast<size_t>(dq_acc)));
  CHECK(x.launches(2, "bwd_fp16_d64", {3, 4, 2}));
  CHECK(x.launches(3, "bwd_sum_fp16", {4, 4, 2}));
  const auto& dot = x.args<BwdDotParams>(0);
  CHECK(dot.o == at(4));
  CHECK(dot.dout == at(6));
  CHECK(dot.d == at(20));
  CHECK(dot.rows == 100);
  CHECK(dot.hdim_v == 64);
  CHECK(dot.p_keep == 1.0F);
  CHECK(same(dot.d_strides, 400, 100, 1));
  CHECK(same(dot.o_strides, 25600, 64, 256));
  const auto& main = x.args<BwdKernelParams>(2);
  CHECK(main.q == at(1));
  CHECK(main.k == at(2));
  CHECK(main.v == at(3));
  CHECK(main.dout == at(6));
  CHECK(main.lse == at(5));
  CHECK(main.d == at(20));
  CHECK(main.dq_acc == at(20, static_cast<uintptr_t>(d)));
  CHECK(main.dq_acc_copy == 0);
  CHECK(main.dk == at(8));
  CHECK(main.dv == at(9));
  CHECK(main.float_dkv == 0);
  CHECK(same(main.dq_acc_strides, 25600, 6400, 64));
  CHECK(same(main.dk_strides, 76800, 64, 256));
  CHECK(same(main.lse_strides, 400, 100, 1));
  CHECK(same(main.q_strides, 25600, 64, 256));
  CHECK(main.cu_q == nullptr);
  CHECK(main.used_k == nullptr);
  CHECK(main.alibi == nullptr);
  CHECK(main.philox == nullptr);
  CHECK(main.seqlen_q == 100);
  CHECK(main.seqlen_k == 300);
  CHECK(main.hdim_q == 64);
  CHECK(main.hdim_v == 64);
  CHECK(main.nhead_q == 4);
  CHECK(main.nhead_ratio_qk == 1);
  CHECK(main.scale == 0.125F);
  CHECK(main.window_left == -1);
  CHECK(main.window_right == -1);
  const auto& sum = x.args<BwdSumParams>(3);
  CHECK(sum.parts == main.dq_acc);
  CHECK(sum.out == at(7));
  CHECK(sum.parts_count == 1);
  CHECK(sum.rows == 100);
  CHECK(sum.hdim == 64);
  CHECK(sum.beta == 0);
  CHECK(same(sum.parts_strides, 25600, 6400, 64));
  // Float32 gradients may be written directly as well.
  fmha_bwd_params p = backward(f);
  p.grad_dtype = FMHA_FP32;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 4);
  CHECK(x.launches(3, "bwd_sum_fp32", {4, 4, 2}));
  CHECK(x.args<BwdKernelParams>(2).float_dkv == 1);
  CHECK(x.args<BwdKernelParams>(2).dk == at(8));
}

// Sums over the heads of a group, or onto what is there: dk and dv by query head in the workspace.
TEST_CASE("parts") {
  const fmha_fwd_params f = forward(6, 2);
  fmha_bwd_params p = backward(f);
  Planned x;
  CHECK_OK(plan_of(p, x));
  const int64_t d = rounded(2 * 6 * 100 * 4), dq_acc = 2 * 6 * 100 * 64 * 4, dk = 2 * 6 * 300 * 64 * 4;
  CHECK(x.plan.count() == 6);
  CHECK(x.plan.needed_bytes() == d + dq_acc + 2 * dk);
  const auto& main = x.args<BwdKernelParams>(2);
  CHECK(main.nhead_ratio_qk == 3);
  CHECK(main.float_dkv == 1);
  CHECK(main.dk == at(20, static_cast<uintptr_t>(d + dq_acc)));
  CHECK(main.dv == at(20, static_cast<uintptr_t>(d + dq_acc + dk)));
  CHECK(same(main.dk_strides, 6 * 300 * 64, 300 * 64, 64));
  CHECK(x.launches(4, "bwd_sum_fp16", {10, 2, 2}));
  CHECK(x.launches(5, "bwd_sum_fp16", {10, 2, 2}));
  const auto& sum = x.args<BwdSumParams>(4);
  CHECK(sum.parts == main.dk);
  CHECK(sum.out == at(8));
  CHECK(sum.parts_count == 3);
  CHECK(sum.part == 300 * 64);
  CHECK(same(sum.parts_strides, 6 * 300 * 64, 3 * 300 * 64, 64));
  CHECK(sum.rows == 300);
  CHECK(sum.beta == 0);
  CHECK(same(sum.out_strides, 300 * 2 * 64, 64, 128));
  CHECK(x.args<BwdSumParams>(5).parts == main.dv);
  CHECK(x.args<BwdSumParams>(5).out == at(9));
  const fmha_fwd_params even = forward();
  p = backward(even);
  p.accumulate = 1;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 6);
  for (size_t i = 3; i < 6; ++i) {
    CHECK(x.args<BwdSumParams>(i).beta == 1);
    CHECK(x.args<BwdSumParams>(i).parts_count == 1);
  }
}

TEST_CASE("packed") {
  fmha_fwd_params f = packed();
  Planned x;
  CHECK_OK(plan_of(backward(f), x));
  const int64_t d = rounded(4 * 170 * 4), dq_acc = 4 * 170 * 64 * 4, dk = 4 * 500 * 64 * 4;
  CHECK(x.plan.count() == 4);
  CHECK(x.plan.needed_bytes() == d + dq_acc);
  CHECK(x.launches(0, "bwd_dot_fp16", {7, 4, 3}));
  CHECK(x.launches(2, "bwd_fp16_d64", {3, 4, 3}));
  CHECK(x.launches(3, "bwd_sum_fp16", {6, 4, 1}));
  CHECK(x.args<BwdDotParams>(0).rows == 100);
  CHECK(x.args<BwdSumParams>(3).rows == 170);
  CHECK(x.args<BwdDotParams>(0).cu_q == at(10));
  CHECK(x.args<BwdDotParams>(0).used_q == nullptr);
  const auto& main = x.args<BwdKernelParams>(2);
  CHECK(main.cu_q == at(10));
  CHECK(main.cu_k == at(11));
  CHECK(main.dk == at(8));
  CHECK(main.d_strides.nhead == 170);
  CHECK(main.dq_acc_strides.nhead == 170 * 64);
  // Rows beyond the lengths in use are zeroed, by sums of zeros.
  f.seqused_q = at<int32_t>(12);
  f.seqused_k = at<int32_t>(13);
  CHECK_OK(plan_of(backward(f), x));
  CHECK(x.plan.count() == 7);
  CHECK(x.plan.needed_bytes() == d + dq_acc + 2 * dk);
  CHECK(x.zeroes(2, at(20, static_cast<uintptr_t>(d + dq_acc)), static_cast<size_t>(2 * dk)));
  CHECK(x.args<BwdDotParams>(0).used_q == at(12));
  CHECK(x.args<BwdKernelParams>(3).used_q == at(12));
  CHECK(x.args<BwdKernelParams>(3).used_k == at(13));
  CHECK(x.args<BwdSumParams>(5).rows == 500);
  CHECK(x.args<BwdSumParams>(6).out == at(9));
}

// A copy of dQ's sum for each workgroup of a launch, eight at most; further launches do the other key tiles.
TEST_CASE("deterministic") {
  struct {
    int64_t keys;
    uint32_t groups, rounds;
  } const cases[] = {{1, 1, 1},    {128, 1, 1},  {129, 2, 1}, {300, 3, 1},
                     {1024, 8, 1}, {1025, 5, 2}, {5000, 8, 5}};
  fmha_fwd_params f = forward();
  for (const auto& [keys, groups, rounds] : cases) {
    f.seqlen_k = keys;
    fmha_bwd_params p = backward(f);
    p.deterministic = 1;
    Planned x;
    CHECK_OK(plan_of(p, x));
    const int64_t copy = 2 * 4 * 100 * 64;
    CHECK(x.launches(2, "bwd_fp16_d64", {groups, 4, 2}));
    CHECK(x.plan[2].rounds == rounds);
    CHECK(x.plan[2].round_offset == offsetof(BwdKernelParams, round));
    CHECK(x.plan.operations() == 3 + rounds);
    CHECK(x.args<BwdKernelParams>(2).dq_acc_copy == (groups > 1 ? copy : 0));
    CHECK(x.args<BwdSumParams>(3).parts_count == static_cast<int32_t>(groups));
    CHECK(x.args<BwdSumParams>(3).part == copy);
    CHECK(x.plan[1].bytes == groups * copy * 4);
    CHECK(x.plan.needed_bytes() == rounded(2 * 4 * 100 * 4) + groups * copy * 4);
    p.deterministic = 0;
    CHECK_OK(plan_of(p, x));
    CHECK(x.launches(2, "bwd_fp16_d64", {static_cast<uint32_t>((keys + 127) / 128), 4, 2}));
    CHECK(x.args<BwdSumParams>(3).parts_count == 1);
    CHECK(x.plan[2].rounds == 1);
    CHECK(x.plan.operations() == 4);
  }
}

TEST_CASE("features") {
  fmha_fwd_params f = forward();
  f.alibi_slopes = at<float>(14);
  f.alibi_stride_batch = 4;
  f.mask = FMHA_MASK_CAUSAL_TOP_LEFT;
  Planned x;
  CHECK_OK(plan_of(backward(f), x));
  CHECK(x.launches(2, "bwd_fp16_d64_alibi", {3, 4, 2}));
  CHECK(x.args<BwdKernelParams>(2).alibi == at(14));
  CHECK(x.args<BwdKernelParams>(2).alibi_stride_batch == 4);
  CHECK(x.args<BwdKernelParams>(2).mask_type == 1);
  CHECK(x.args<BwdKernelParams>(2).window_right == 0);
  f = forward(4, 4, 72);
  f.p_drop = 0.25F;
  f.philox_seed = 5, f.philox_offset = 6;
  f.mask = FMHA_MASK_WINDOW;
  f.window_left = 7, f.window_right = 9;
  CHECK_OK(plan_of(backward(f), x));
  CHECK(x.launches(2, "bwd_fp16_d128_dropout", {3, 4, 2}));
  const auto& main = x.args<BwdKernelParams>(2);
  CHECK(x.args<BwdDotParams>(0).p_keep == 0.75F);
  CHECK(main.rp_keep == 1 / 0.75F);
  CHECK(main.keep_at_most == 191);
  CHECK(main.philox_seed == 5);
  CHECK(main.philox_offset == 6);
  CHECK(main.philox == nullptr);
  CHECK(main.mask_type == 2);
  CHECK(main.window_left == 7);
  CHECK(main.window_right == 9);
  CHECK(main.hdim_q == 72);
  f.philox_seed_offset = at<uint64_t>(15);
  CHECK_OK(plan_of(backward(f), x));
  CHECK(x.args<BwdKernelParams>(2).philox == at(15));
}

// The gradient of a bias: written by the main kernel, or added up in the workspace.
TEST_CASE("dbias") {
  fmha_fwd_params f = forward();
  const fmha_bias_grad whole = {at(15), 4 * 30000, 30000, 300}, of_rows = {at(15), 0, 0, 300};
  f.bias = {at(14), 4 * 30000, 30000, 300};
  fmha_bwd_params p = backward(f);
  Planned x;
  CHECK_OK(plan_of(p, x));
  CHECK(x.launches(2, "bwd_fp16_d64_bias", {3, 4, 2}));
  CHECK(x.args<BwdKernelParams>(2).dbias == nullptr);
  p.dbias = whole;
  CHECK_OK(plan_of(p, x));
  const int64_t rest = x.plan.needed_bytes(), dq_acc = 2 * 4 * 100 * 64 * 4;
  CHECK(x.plan.count() == 4);
  CHECK(x.launches(2, "bwd_fp16_d64_bias_dbias", {3, 4, 2}));
  const auto* main = &x.args<BwdKernelParams>(2);
  CHECK(main->dbias == at(15));
  CHECK(main->dbias_adds == 0);
  CHECK(same(main->dbias_strides, 120000, 30000, 300));
  // A mask hides tiles of it, float32 is added to: zeros come first.
  f.mask = FMHA_MASK_CAUSAL;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 5);
  CHECK(x.launches(2, "bwd_bias_fp16", {100, 4, 2}));
  const auto* sum = &x.args<BwdBiasParams>(2);
  CHECK(sum->out == at(15));
  CHECK(sum->batches == 0);
  CHECK(sum->columns == 300);
  CHECK(sum->beta == 0);
  CHECK(same(sum->out_strides, 120000, 30000, 300));
  CHECK(sum->row_blocks == 1);
  f.mask = FMHA_MASK_NONE;
  p.grad_dtype = FMHA_FP32;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 5);
  CHECK(x.launches(2, "bwd_bias_fp32", {100, 4, 2}));
  CHECK(x.args<BwdKernelParams>(3).dbias_adds == 1);
  CHECK(x.args<BwdKernelParams>(3).dbias == at(15));
  p.accumulate = 1;
  CHECK_OK(plan_of(p, x));
  CHECK(x.args<BwdKernelParams>(2).dbias_adds == 1);
  CHECK(x.args<BwdKernelParams>(2).dbias == at(15));
  // Sums in the workspace, behind those of dQ: of the bias's shape, and then added to the caller's.
  p.grad_dtype = 0;
  p.accumulate = 0;
  p.dbias = of_rows;
  f.bias = {at(14), 0, 0, 300};
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 5);
  CHECK(x.plan.needed_bytes() == rest + rounded(100 * 300 * 4));
  main = &x.args<BwdKernelParams>(2);
  CHECK(x.plan[1].bytes == static_cast<size_t>(dq_acc + rounded(100 * 300 * 4)));
  CHECK(main->dbias_adds == 1);
  CHECK(main->dbias == at(20, static_cast<uintptr_t>(rest)));
  CHECK(same(main->dbias_strides, 0, 0, 300));
  CHECK(x.launches(4, "bwd_bias_fp16", {100, 1, 1}));
  sum = &x.args<BwdBiasParams>(4);
  CHECK(sum->parts == main->dbias);
  CHECK(sum->batches == 1);
  CHECK(sum->heads == 1);
  CHECK(sum->rows == 1);
  // The same bits each time: an element of each score's.
  p.deterministic = 1;
  CHECK_OK(plan_of(p, x));
  main = &x.args<BwdKernelParams>(2);
  CHECK(same(main->dbias_strides, 120000, 30000, 300));
  CHECK(x.launches(4, "bwd_bias_fp16", {100, 1, 1}));
  sum = &x.args<BwdBiasParams>(4);
  CHECK(sum->batches == 2);
  CHECK(sum->heads == 4);
  CHECK(sum->rows == 1);
  CHECK(same(sum->parts_strides, 120000, 30000, 300));
  // Without queries it is 0.
  p = backward(f);
  p.dbias = of_rows;
  f.seqlen_q = 0;
  p.dbias.stride_seqlen = 0;
  f.bias.stride_seqlen = 0;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 3);
  CHECK(x.launches(2, "bwd_bias_fp16", {1, 1, 1}));
  CHECK(x.plan.needed_bytes() == 0);
  f = forward(4, 4, 256, FMHA_BF16);
  f.bias = {at(14), 0, 0, 300};
  p.dbias = of_rows;
  CHECK_STATUS(plan_of(p, x), FMHA_UNSUPPORTED, "bwd_bf16_d256_bias, takes no dbias");
}

// One side has no rows: the other side's gradients are sums of nothing.
TEST_CASE("zeros") {
  fmha_fwd_params f = forward(4, 2);
  f.seqlen_q = 0;
  fmha_bwd_params p = backward(f);
  Planned x;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 2);
  CHECK(!x.plan.empty);
  CHECK(x.plan.needed_bytes() == 0);
  CHECK(x.launches(0, "bwd_sum_fp16", {10, 2, 2}));
  CHECK(x.args<BwdSumParams>(0).out == at(8));
  CHECK(x.args<BwdSumParams>(1).out == at(9));
  CHECK(x.args<BwdSumParams>(1).parts_count == 0);
  CHECK(x.args<BwdSumParams>(1).beta == 0);
  CHECK(x.args<BwdSumParams>(1).hdim == 64);
  p.accumulate = 1;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.empty);
  CHECK(x.plan.needed_bytes() == 0);
  f = forward(4, 2);
  f.seqlen_k = 0;
  p.accumulate = 0;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 1);
  CHECK(x.args<BwdSumParams>(0).out == at(7));
  CHECK(x.args<BwdSumParams>(0).rows == 100);
  f.seqlen_q = 0;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.empty);
  f = forward(4, 2);
  f.nhead_q = 0;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 2);
  CHECK(x.args<BwdSumParams>(0).out == at(8));
  CHECK(x.plan.needed_bytes() == 0);
  f = forward(4, 2);
  f.batch = 0;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.empty);
  CHECK(x.plan.needed_bytes() == 0);
}

TEST_CASE("choice") {
  Planned x;
  fmha_fwd_params f = forward(4, 4, 8);
  fmha_bwd_params p = backward(f);
  CHECK_OK(plan_of(p, x));
  CHECK(std::string(x.kernels.chosen.kernel->name) == "bwd_fp16_d64");
  CHECK(x.kernels.chosen.count == 2);
  p.kernel = 2;
  CHECK_OK(plan_of(p, x));
  CHECK(std::string(x.kernels.chosen.kernel->name) == "bwd_fp16_d128");
  CHECK(x.kernels.chosen.number == 2);
  p.kernel = 3;
  CHECK_STATUS(plan_of(p, x), FMHA_UNSUPPORTED, "kernel = 3: expected 0 (the library's choice) to 2");
  p.kernel = 0;
  // The smallest tile that holds both head dims.
  f.hdim_v = 72;
  p = backward(f);
  CHECK_OK(plan_of(p, x));
  CHECK(std::string(x.kernels.chosen.kernel->name) == "bwd_fp16_d128");
}

#define CHECK_REFUSED(forward_params, target, text)                              \
  do {                                                                           \
    const fmha_fwd_params refused = forward_params;                              \
    Planned x;                                                                   \
    CHECK_STATUS(plan_of(backward(refused), x, target), FMHA_UNSUPPORTED, text); \
  } while (0)

TEST_CASE("refusals") {
  CHECK_REFUSED(forward(4, 4, 264), kDevice,
                "fwd->hdim_q = 264, fwd->hdim_v = 264: no fp16 backward kernel of this build for gfx942 does "
                "that; the nearest, bwd_fp16_d128, takes fwd->hdim_q up to 128 and fwd->hdim_v up to 128, "
                "multiples of 8");
  CHECK_REFUSED(
      forward(4, 4, 68), kDevice,
      "the nearest, bwd_fp16_d128, takes fwd->hdim_q up to 128 and fwd->hdim_v up to 128, multiples "
      "of 8 (columns of zeros make the tensors fit)");
  fmha_fwd_params f = forward();
  f.alibi_slopes = at<float>(14);
  f.p_drop = 0.5F;
  CHECK_REFUSED(f, kDevice, "fwd->alibi_slopes, dropout: no fp16 backward kernel");
  CHECK_REFUSED(f, kDevice, "; the kernel set default has one: build with FMHA_KERNEL_SET=default");
  CHECK_REFUSED(forward(4, 4, 64, FMHA_BF16), (fmha::Target{fmha::Arch::kGfx90a, 104}),
                "fwd->dtype = bf16: this build has no such kernel for gfx90a; it has: fp16");
  // The table has neither of these parts.
  CHECK_REFUSED(forward(4, 4, 64, FMHA_BF16), kDevice,
                "this build has no fmha_bwd_sum_bf16 kernel for gfx942");
  CHECK_REFUSED(forward(), (fmha::Target{fmha::Arch::kGfx90a, 104}),
                "this build has no fmha_bwd_dot_fp16 kernel for gfx90a");
  // A prebuilt kernel does not take this; the message names a build that has a kernel which does.
  fmha_fwd_params square = forward(4, 4, 128);
  fmha_bwd_params p = backward(square);
  p.deterministic = 1;
  Planned planned;
  CHECK_STATUS(plan_of(p, planned, {fmha::Arch::kGfx950, 256}), FMHA_UNSUPPORTED,
               "deterministic = 1: hand-written kernels take 0; the kernel set default has one: build with "
               "FMHA_KERNEL_SET=default");
  // More rows than a launch counts.
  f = packed();
  f.total_q = INT32_MAX;
  CHECK_REFUSED(f, kDevice, "dq of 2147483647 rows: one launch does at most 536870880");
}

// A workspace that no process can have is asked for as such, and is never had.
TEST_CASE("huge workspace") {
  fmha_fwd_params f = test_params(FMHA_FP16, TEST_BSHD, 65535, 1, (int64_t{1} << 23) - 256, 65535, 1, 64);
  Planned x;
  fmha_bwd_params p = backward(f);
  p.deterministic = 1;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.needed_bytes() == int64_t{1} << 57);
}

}  // namespace

const char* fmha_last_error() { return fmha::last_error(); }
