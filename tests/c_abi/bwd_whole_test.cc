// SPDX-License-Identifier: MIT OR Apache-2.0
// The plans of backward kernels that write the gradients themselves, over the table in table.cc.
#include "args/bwd_fp32.h"
#include "args/bwd_one_pass.h"
#include "args/bwd_pingpong.h"
#include "bwd_planned.h"
#include "status.h"

namespace {

using fmha::BwdFp32Params;
using fmha::BwdOnePassParams;
using fmha::BwdPingpongParams;
using fmha::BwdSumParams;

// A kernel that writes the gradients itself follows D's, whatever is asked, and takes no other workspace.
TEST_CASE("whole") {
  fmha_fwd_params f = forward(6, 2, 64, FMHA_FP32);
  fmha_bwd_params p = backward(f);
  p.accumulate = p.deterministic = 1;
  Planned x;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 2);
  CHECK(x.plan.needed_bytes() == rounded(2 * 6 * 100 * 4));
  CHECK(x.launches(0, "bwd_dot_fp32", {7, 6, 2}));
  // Five tiles of 300 keys, and two of 100 queries.
  CHECK(x.launches(1, "bwd_fp32_d64", {7, 6, 2}));
  CHECK(x.plan[1].rounds == 1);
  const auto& main = x.args<BwdFp32Params>(1);
  CHECK(main.q == at(1));
  CHECK(main.k == at(2));
  CHECK(main.v == at(3));
  CHECK(main.dout == at(6));
  CHECK(main.lse == at(5));
  CHECK(main.d == at(20));
  CHECK(main.dq == at(7));
  CHECK(main.dk == at(8));
  CHECK(main.dv == at(9));
  CHECK(same(main.q_strides, 38400, 64, 384));
  CHECK(same(main.dk_strides, 38400, 64, 128));
  CHECK(same(main.lse_strides, 600, 100, 1));
  CHECK(same(main.d_strides, 600, 100, 1));
  CHECK(main.key_tiles == 5);
  CHECK(main.nhead_q == 6);
  CHECK(main.nhead_ratio_qk == 3);
  CHECK(main.accumulate == 1);
  CHECK(main.window_left == BwdFp32Params::kUnlimited);
  CHECK(main.window_right == BwdFp32Params::kUnlimited);
  CHECK(main.keep_at_most == -1);
  CHECK(main.rp_keep == 1);
  CHECK(main.alibi == nullptr);
  CHECK(main.top_left == 0);
  // The same kernel has all features.
  f.alibi_slopes = at<float>(14);
  f.p_drop = 0.25F;
  f.mask = FMHA_MASK_WINDOW_TOP_LEFT;
  f.window_left = 7, f.window_right = 9;
  p.accumulate = 0;
  CHECK_OK(plan_of(p, x));
  const auto& all = x.args<BwdFp32Params>(1);
  CHECK(all.keep_at_most == 191);
  CHECK(all.rp_keep == 1 / 0.75F);
  CHECK(all.alibi == at(14));
  CHECK(all.accumulate == 0);
  CHECK(all.window_left == 7);
  CHECK(all.window_right == 9);
  CHECK(all.top_left == 1);
  f = forward(4, 4, 72, FMHA_FP32);
  CHECK_STATUS(plan_of(p, x), FMHA_UNSUPPORTED, "the nearest, bwd_fp32_d64, takes fwd->hdim_q up to 64");
  // Unused rows of packed sequences are zeroed first, unless gradients are added.
  f = packed();
  f.dtype = FMHA_FP32;
  f.seqused_q = at<int32_t>(12);
  f.seqused_k = at<int32_t>(13);
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 5);
  CHECK(x.launches(4, "bwd_fp32_d64", {7, 4, 3}));
  CHECK(x.args<BwdSumParams>(1).out == at(7));
  CHECK(x.args<BwdSumParams>(1).parts_count == 0);
  CHECK(x.args<BwdSumParams>(2).out == at(8));
  CHECK(x.args<BwdSumParams>(3).rows == 500);
  CHECK(x.args<BwdFp32Params>(4).used_k == at(13));
  CHECK(x.args<BwdFp32Params>(4).cu_q == at(10));
  p.accumulate = 1;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 2);
}

// The gradient of a bias: tiles behind those of keys and queries, which sum up what the bias repeats.
TEST_CASE("bias gradient") {
  fmha_fwd_params f = forward(4, 4, 64, FMHA_FP32);
  f.bias = {at(14), 0, 30000, 300};
  fmha_bwd_params p = backward(f);
  p.dbias = {at(15), 0, 30000, 300};
  Planned x;
  CHECK_OK(plan_of(p, x));
  // Four row tiles of five key tiles.
  CHECK(x.plan.count() == 2);
  CHECK(x.launches(1, "bwd_fp32_d64", {7 + 20, 4, 2}));
  const auto& main = x.args<BwdFp32Params>(1);
  CHECK(main.bias == at(14));
  CHECK(main.dbias == at(15));
  CHECK(same(main.dbias_strides, 0, 30000, 300));
  CHECK(main.key_tiles == 5);
  CHECK(main.query_tiles == 2);
  CHECK(main.dbias_key_tiles == 5);
  CHECK(main.dbias_row_tiles == 4);
  CHECK(main.dbias_sums == BwdFp32Params::kSequences);
  f.bias = {at(14), 0, 0, 0};
  p.dbias = {at(15), 0, 0, 0};
  CHECK_OK(plan_of(p, x));
  CHECK(x.launches(1, "bwd_fp32_d64", {7 + 5, 4, 2}));
  CHECK(x.args<BwdFp32Params>(1).dbias_sums == 7);
  // Without queries it is 0.
  f.seqlen_q = 0;
  CHECK_OK(plan_of(p, x));
  CHECK(x.plan.count() == 3);
  CHECK(x.launches(2, "bwd_fp32_d64", {5, 1, 1}));
  CHECK(x.args<BwdFp32Params>(2).dbias_sums == BwdFp32Params::kNothing);
  CHECK(x.plan.needed_bytes() == 0);
  f = forward(4, 4, 64, FMHA_FP32);
  f.bias = {at(14), 0, 30000, 300};
  p.dbias = {};
  f.alibi_slopes = at<float>(16);
  CHECK_STATUS(plan_of(p, x), FMHA_UNSUPPORTED, "fwd->bias and fwd->alibi_slopes are both set");
  f.bias = {};
  f.softcap = 30;
  CHECK_STATUS(plan_of(p, x), FMHA_UNSUPPORTED, "fwd->softcap = 30 and fwd->alibi_slopes");
}

// Workgroups divide a group's query heads, and leave parts of dK and dV, if keys alone are too few for them.
TEST_CASE("groups") {
  constexpr fmha::Target kFew = {fmha::Arch::kGfx950, 8}, kMany = {fmha::Arch::kGfx950, 256};
  fmha_fwd_params f = forward(12, 2, 72, FMHA_BF16);
  fmha_bwd_params p = backward(f);
  p.accumulate = 1;
  Planned x;
  CHECK_OK(plan_of(p, x, kFew));
  // Two tiles of 300 keys, of four key heads, which no eight XCDs share; then six query heads of a group.
  const int64_t d = rounded(2 * 12 * 100 * 4);
  CHECK(x.plan.count() == 2);
  CHECK(x.plan.needed_bytes() == d);
  CHECK(x.launches(1, "bwd_bf16_d128_pingpong", {1, 8, 1 + 6}));
  const auto& whole = x.args<BwdPingpongParams>(1);
  CHECK(whole.tiles == 2);
  CHECK(whole.key_parts == 1);
  CHECK(whole.heads_first == 0);
  CHECK(whole.problem.accumulate == 1);
  CHECK(whole.problem.dk == at(8));
  CHECK(whole.problem.dv == at(9));
  CHECK(whole.problem.nhead_ratio_qk == 6);
  CHECK_OK(plan_of(p, x, kMany));
  const int64_t part = int64_t{2} * 12 * 300 * 72 * 4;
  CHECK(x.plan.count() == 4);
  CHECK(x.plan.needed_bytes() == d + 2 * rounded(part));
  CHECK(x.launches(1, "bwd_bf16_d128_pingpong", {1, 8, 6 + 6}));
  const auto& divided = x.args<BwdPingpongParams>(1);
  CHECK(divided.key_parts == 6);
  CHECK(divided.problem.dk == at(20, d));
  CHECK(divided.problem.dq == at(7));
  CHECK(same(divided.problem.dk_strides, int64_t{12} * 300 * 72, int64_t{300} * 72, 72));
  const auto& sum = x.args<BwdSumParams>(2);
  CHECK(sum.parts == at(20, d));
  CHECK(sum.out == at(8));
  CHECK(sum.parts_count == 6);
  CHECK(sum.part == 300 * 72);
  CHECK(sum.parts_strides.nhead == 6 * 300 * 72);
  CHECK(sum.beta == 1);
  CHECK(x.args<BwdSumParams>(3).out == at(9));
  // A causal mask halves the work that hides a tile's time.
  f.mask = FMHA_MASK_CAUSAL;
  CHECK_OK(plan_of(p, x, {fmha::Arch::kGfx950, 12}));
  CHECK(x.args<BwdPingpongParams>(1).key_parts == 3);
  CHECK(x.args<BwdPingpongParams>(1).heads_first == 1);
  f.softmax_scale = 1e-31F;
  CHECK_STATUS(plan_of(p, x, kFew), FMHA_UNSUPPORTED, "fwd->softmax_scale = 1e-31");
  f.softmax_scale = 1;
  f.batch = 65535;  // two tiles of two heads each: more than y takes
  CHECK_OK(plan_of(p, x, kFew));
  CHECK(x.launches(1, "bwd_bf16_d128_pingpong", {2 * 65535, 2, 1 + 6}));
  f.batch = 1 << 22;
  CHECK_STATUS(plan_of(p, x, kFew), FMHA_UNSUPPORTED,
               "fwd->batch * fwd->nhead_k = 8388608: kernels take at most 8388607");
  f.batch = 32768;  // eight XCDs share these heads
  CHECK_OK(plan_of(p, x, kFew));
  CHECK(x.launches(1, "bwd_bf16_d128_pingpong", {8, 16384, 1 + 6}));
  f.softcap = 1e-38F;
  CHECK_STATUS(plan_of(p, x, kFew), FMHA_UNSUPPORTED, "fwd->softcap = 1e-38");
  f.softcap = 0;
  f.seqlen_k = 256, f.k.stride_seqlen = 1 << 22;
  CHECK_STATUS(plan_of(p, x, kFew), FMHA_UNSUPPORTED, "k.stride_seqlen = 4194304: our kernels");
  f.k.stride_seqlen = 128;
  f.nhead_q = 65534, f.nhead_k = 1, f.batch = 1;
  CHECK_STATUS(plan_of(p, x, kFew), FMHA_UNSUPPORTED, "fwd->nhead_q / fwd->nhead_k = 65534");
}

// A kernel that adds up dQ in blocks has a memset before it, and dQ's sum after it; dK and dV are as if it
// wrote all gradients. It is chosen if there is work enough.
TEST_CASE("one pass") {
  constexpr fmha::Target kFew = {fmha::Arch::kGfx950, 8};
  fmha_fwd_params f = forward(12, 2, 128, FMHA_BF16);
  f.seqlen_q = 4090, f.seqlen_k = 4096;
  fmha_bwd_params p = backward(f);
  Planned x;
  CHECK_OK(plan_of(p, x, kFew));
  const int64_t d = rounded(2 * 12 * 4090 * 4), dq = int64_t{2} * 12 * 4096 * 128 * 4;
  CHECK(x.plan.count() == 4);
  CHECK(x.plan.needed_bytes() == d + dq + 64 * 65536);
  CHECK(x.zeroes(1, at(20, d), dq));
  // Sixteen tiles of keys of four key heads.
  CHECK(x.launches(2, "bwd_bf16_d128_one_pass", {1, 64, 1}));
  const auto& main = x.args<BwdOnePassParams>(2);
  CHECK(main.dq_sums == at(20, d));
  CHECK(main.turned_k == at(20, d + dq));
  CHECK(main.row_blocks == 128);
  CHECK(main.both.tiles == 16);
  CHECK(main.both.key_parts == 1);
  CHECK(main.both.problem.dk == at(8));
  const auto& sum = x.args<BwdSumParams>(3);
  CHECK(sum.parts == at(20, d));
  CHECK(sum.out == at(7));
  CHECK(sum.in_blocks == 1);
  CHECK(sum.rows == 4090);
  CHECK(same(sum.parts_strides, int64_t{12} * 4096 * 128, int64_t{4096} * 128, 128));
  const auto leaves_it = [&] {
    CHECK_OK(plan_of(p, x, kFew));
    CHECK(x.launches(1, "bwd_bf16_d128_pingpong", {1, 64, 1 + 6}));
  };
  p.deterministic = 1;
  leaves_it();
  p.deterministic = 0;
  f.mask = FMHA_MASK_WINDOW, f.window_left = 100, f.window_right = 0;
  leaves_it();
  f.mask = FMHA_MASK_NONE;
  CHECK_OK(plan_of(p, x, kFew));
  CHECK(x.plan.count() == 4);
  CHECK_OK(plan_of(p, x, {fmha::Arch::kGfx950, 0}));  // nobody knows of how many units
  CHECK(x.launches(1, "bwd_bf16_d128_pingpong", {1, 64, 1 + 6}));
}

// Larger head dims have tiles of 128 rows.
TEST_CASE("wide") {
  fmha_fwd_params f = forward(4, 4, 136, FMHA_BF16);
  const fmha_bwd_params p = backward(f);
  Planned x;
  CHECK_OK(plan_of(p, x, {fmha::Arch::kGfx950, 8}));
  CHECK(x.launches(1, "bwd_bf16_d256_wide", {8, 3, 1 + 1}));
  CHECK(x.args<BwdPingpongParams>(1).tiles == 3);
}

}  // namespace

const char* fmha_last_error() { return fmha::last_error(); }
