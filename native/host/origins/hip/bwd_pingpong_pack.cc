// SPDX-License-Identifier: MIT OR Apache-2.0
#include "origins/hip/bwd_pingpong_pack.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <new>

#include "args/bwd_one_pass.h"
#include "args/bwd_pingpong.h"
#include "divide.h"
#include "origins/hip/fwd_pingpong_pack.h"
#include "origins/limits.h"
#include "origins/two_sided.h"

namespace fmha::bwd_pingpong {
namespace {

using hip_fwd::kMostRows;
using hip_fwd::xcd_parts;

// Rows of a workgroup's own, at least and at most.
constexpr int64_t kLeastTile = 64, kMostTile = 256;
constexpr int64_t kMostWorkItems = 512;  // of a workgroup
// LSE / softmax_scale is a float32.
constexpr float kLeastScale = 1e-30F;

int64_t tiles_of(const FwdProblem& f, int64_t tile) {
  return ceil_div(std::max(f.seqlen_q, f.seqlen_k), tile);
}

// Key heads of all batches.
int64_t heads_of(const FwdProblem& f) { return f.nhead_k * f.batch; }

// Parts of them in x: those of the XCDs, or each head if y has no room for so many tiles.
int64_t parts_of(const FwdProblem& f, int64_t tiles) {
  const int64_t xcds = xcd_parts(heads_of(f));
  return heads_of(f) * tiles <= kMaxGridYZ * xcds ? xcds : heads_of(f);
}

Grid grid_of(const FwdProblem& f, int64_t tiles, int64_t key_parts) {
  const int64_t parts = parts_of(f, tiles);
  return {static_cast<uint32_t>(parts), static_cast<uint32_t>(heads_of(f) / parts * tiles),
          static_cast<uint32_t>(key_parts + f.nhead_q / f.nhead_k)};
}

bool lengths_fit(const FwdProblem& f, Refusal& why) {
  if (!origins::dim_fits("fwd->seqlen_q", f.seqlen_q, kMostRows, why) ||
      !origins::dim_fits("fwd->seqlen_k", f.seqlen_k, kMostRows, why) ||
      !origins::dim_fits("fwd->nhead_q / fwd->nhead_k", f.nhead_q / std::max<int64_t>(f.nhead_k, 1),
                         kMaxGridYZ / 2, why)) {
    return false;
  }
  return origins::dim_fits("fwd->batch * fwd->nhead_k", heads_of(f), kMaxWorkItemsX / kMostWorkItems, why) &&
         origins::dim_fits("fwd->seqlen_q", f.seqlen_q, kMaxGridYZ * kLeastTile, why) &&
         origins::dim_fits("fwd->seqlen_k", f.seqlen_k, kMaxGridYZ * kLeastTile, why);
}

bool scale_fits(const FwdProblem& f, Refusal& why) {
  if (f.softmax_scale >= kLeastScale) return true;
  return why.because(FMHA_UNSUPPORTED, "fwd->softmax_scale = %g: our kernels take 1e-30 or more",
                     double{f.softmax_scale});
}

// The kernels multiply a score by 2 log2(e) softmax_scale / softcap, which is a float32.
bool cap_fits(const FwdProblem& f, Refusal& why) {
  if (f.softcap == 0.0F || !std::isinf(4 * f.softmax_scale / f.softcap)) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "fwd->softcap = %g, fwd->softmax_scale = %g: our kernels take softmax_scale / "
                     "softcap below 8e37",
                     double{f.softcap}, double{f.softmax_scale});
}

// The kernels use addresses from 2 GiB behind a tile's first row on for what is no row.
bool tile_fits(const View& v, Refusal& why) {
  const int64_t most = (int64_t{1} << 31) / (kMostTile * v.element_bytes);
  if (!v.touched || v.size[kSeqlen] <= 1 || v.stride[kSeqlen] < most) return true;
  return why.because(FMHA_UNSUPPORTED, "%s.stride_seqlen = %" PRId64 ": our kernels take less than %" PRId64,
                     v.name, v.stride[kSeqlen], most);
}

bool tiles_fit(const BwdProblem& p, Refusal& why) {
  const View* const all[] = {&p.fwd.q, &p.fwd.k, &p.fwd.v, &p.dout, &p.dq, &p.dk, &p.dv};
  return std::ranges::all_of(all, [&](const View* v) { return tile_fits(*v, why); });
}

// With a causal mask a head's tiles take different times: the longest of all heads begin first.
bool wants_heads_first(const FwdProblem& f) { return f.mask.right != Mask::kUnlimited; }

}  // namespace

bool is_within_limits(const BwdProblem& p, Refusal& why) {
  return origins::bwd_within_limits(p, why) && lengths_fit(p.fwd, why) && scale_fits(p.fwd, why) &&
         cap_fits(p.fwd, why) && tiles_fit(p, why);
}

namespace {

void set_both(const BwdProblem& p, const BwdWorkspace& w, int64_t tiles, BwdPingpongParams& args) {
  two_sided::set_problem(p, w, args.problem);
  if (!w.direct) {
    args.problem.dk = w.dk.data;
    args.problem.dv = w.dv.data;
    args.problem.dk_strides = w.dk.strides;
    args.problem.dv_strides = w.dv.strides;
  }
  args.tiles = static_cast<int32_t>(tiles);
  args.key_parts = static_cast<int32_t>(w.key_parts);
  args.heads_first = wants_heads_first(p.fwd) ? 1 : 0;
}

}  // namespace

void add_main(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const int64_t tiles = tiles_of(p.fwd, kernel.bwd.tile_n);
  Grid grid = grid_of(p.fwd, tiles, w.key_parts);
  if (!sums_in_blocks(kernel)) {
    return set_both(p, w, tiles, *new (plan.add_launch<BwdPingpongParams>(kernel, grid)) BwdPingpongParams{});
  }
  grid.z = static_cast<uint32_t>(w.key_parts);
  auto& args = *new (plan.add_launch<BwdOnePassParams>(kernel, grid)) BwdOnePassParams{};
  set_both(p, w, tiles, args.both);
  args.dq_sums = w.dq_acc.data;
  args.turned_k = w.turned_k;
  args.row_blocks = static_cast<int32_t>(ceil_div(p.fwd.seqlen_q, int64_t{kernel.bwd.tile_m}));
}

}  // namespace fmha::bwd_pingpong
