// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of backward kernels of two kinds of workgroups, their grid, and the limits of those of
// float32.
#include "origins/two_sided.h"

#include <cinttypes>
#include <new>

#include "args/bwd_fp32.h"
#include "divide.h"
#include "origins/bwd_inputs.h"
#include "origins/dropout.h"
#include "origins/limits.h"
#include "origins/parts.h"
#include "plan/grid.h"

namespace fmha::two_sided {
namespace {

int32_t side(int64_t keys) {
  return keys == Mask::kUnlimited ? BwdFp32Params::kUnlimited : static_cast<int32_t>(keys);
}

BwdStrides optional_strides(const View& v) { return v.touched ? bwd_parts::strides(v) : BwdStrides{}; }

// Kernels reckon with rows beyond the last one: of a single row the caller's stride means nothing.
BwdStrides row_strides(const View& v) {
  BwdStrides s = bwd_parts::strides(v);
  if (v.touched && v.size[kSeqlen] <= 1) s.row = v.row;
  return s;
}

// The tiles of a launch of the kernel for one (batch, query head).
struct Tiles {
  int64_t keys, queries;
  int64_t bias_keys, bias_rows;  // of the bias's gradient: 0 if it is not wanted

  int64_t all() const { return keys + queries + bias_keys * bias_rows; }
};

// Dimensions of the bias's gradient that are summed up. Packed sequences are, if their rows are.
int32_t bias_sums(const BwdProblem& p) {
  const FwdProblem& f = p.fwd;
  const View& v = p.dbias;
  const bool rows = v.size[kSeqlen] < (f.group ? f.total_q : f.seqlen_q);
  const bool sequences = f.group ? rows : v.size[kBatch] < f.batch;
  return (sequences ? BwdFp32Params::kSequences : 0) |
         (v.size[kHead] < f.nhead_q ? BwdFp32Params::kHeads : 0) | (rows ? BwdFp32Params::kRows : 0);
}

Tiles tiles_of(const Kernel& kernel, const BwdProblem& p) {
  const int64_t own = kernel.bwd.tile_n;
  Tiles tiles = {ceil_div(p.dk.sequence, own), ceil_div(p.dq.sequence, own), 0, 0};
  if (!p.dbias.touched) return tiles;
  tiles.bias_keys = ceil_div(p.dbias.row, own);
  const bool rows = (bias_sums(p) & BwdFp32Params::kRows) != 0;
  tiles.bias_rows = rows ? 1 : ceil_div(p.dbias.sequence, int64_t{kernel.bwd.tile_m});
  return tiles;
}

// The grid for so many heads and batches.
Grid grid_of(const Kernel& kernel, const FwdProblem& f, const Tiles& tiles, int64_t nhead, int64_t batch) {
  const int64_t most = most_tiles(batch, kernel.block_size);
  if (tiles.all() > most) {
    raise(FMHA_UNSUPPORTED,
          "fwd->seqlen_q = %" PRId64 ", fwd->seqlen_k = %" PRId64 "%s: %" PRId64
          " tiles of %d by %d, and one launch does at most %" PRId64,
          f.seqlen_q, f.seqlen_k, tiles.bias_keys > 0 ? " with dbias" : "", tiles.all(), kernel.bwd.tile_m,
          kernel.bwd.tile_n, most);
  }
  return grid_of_tiles(tiles.all(), nhead, batch);
}

bool softcap_fits(const FwdProblem& f, Refusal& why) {
  if (f.softcap == 0.0F) return true;
  if (f.has_bias || f.has_alibi) {
    return why.because(FMHA_UNSUPPORTED,
                       "fwd->softcap = %g and %s: no kernel does both; expected one of them",
                       double{f.softcap}, f.has_bias ? "fwd->bias" : "fwd->alibi_slopes");
  }
  return true;
}

bool features_fit(const FwdProblem& f, Refusal& why) {
  if (!f.has_bias || !f.has_alibi) return softcap_fits(f, why);
  return why.because(FMHA_UNSUPPORTED,
                     "fwd->bias and fwd->alibi_slopes are both set: no kernel adds two biases; expected one "
                     "of them (an ALiBi can be written into an elementwise bias)");
}

}  // namespace

bool is_within_limits(const BwdProblem& p, Refusal& why) {
  return origins::bwd_is_countable(p, why) && features_fit(p.fwd, why);
}

void set_problem(const BwdProblem& p, const BwdWorkspace& w, BwdFp32Params& args) {
  const FwdProblem& f = p.fwd;
  const origins::KernelDropout dropout = origins::kernel_dropout(f.dropout);
  const bool random = f.dropout.is_on();
  origins::set_bwd_inputs(p, w, row_strides, args);
  args.dq = p.dq.address();
  args.dk = p.dk.address();
  args.dv = p.dv.address();
  args.dq_strides = row_strides(p.dq);
  args.dk_strides = row_strides(p.dk);
  args.dv_strides = row_strides(p.dv);
  args.bias_strides = optional_strides(f.bias);
  args.rp_keep = random ? dropout.rp_keep : 1.0F;
  args.keep_at_most = random ? dropout.keep_at_most : -1;
  args.top_left = f.mask.top_left ? 1 : 0;
  args.window_left = side(f.mask.left);
  args.window_right = side(f.mask.right);
  args.accumulate = p.accumulate ? 1 : 0;
  args.float_gradients = p.grad_dtype == DType::kFp32 ? 1 : 0;
  args.turned = grid_is_turned(f.batch) ? 1 : 0;
}

void add_main(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const Tiles tiles = tiles_of(kernel, p);
  const Grid grid = grid_of(kernel, p.fwd, tiles, p.fwd.nhead_q, p.fwd.batch);
  auto& args = *new (plan.add_launch<BwdFp32Params>(kernel, grid)) BwdFp32Params;
  set_problem(p, w, args);
  args.dbias = p.dbias.address();
  args.dbias_strides = optional_strides(p.dbias);
  args.key_tiles = static_cast<int32_t>(tiles.keys);
  args.query_tiles = static_cast<int32_t>(tiles.queries);
  args.dbias_key_tiles = static_cast<int32_t>(tiles.bias_keys);
  args.dbias_row_tiles = static_cast<int32_t>(tiles.bias_rows);
  args.dbias_sums = p.dbias.touched ? bias_sums(p) : 0;
}

// All of the array as one that is not packed and has no dimension to sum over.
void add_bias_zeros(const Kernel& kernel, const BwdProblem& p, Plan& plan) {
  const View& v = p.dbias;
  const int64_t keys = ceil_div(v.row, kernel.bwd.tile_n),
                rows = ceil_div(v.size[kSeqlen], kernel.bwd.tile_m);
  const Grid grid = grid_of(kernel, p.fwd, {0, 0, keys, rows}, v.size[kHead], v.size[kBatch]);
  auto* const args = new (plan.add_launch<BwdFp32Params>(kernel, grid)) BwdFp32Params{};
  args->dbias = v.address();
  args->dbias_strides = bwd_parts::strides(v);
  args->seqlen_q = static_cast<int32_t>(v.size[kSeqlen]);
  args->seqlen_k = static_cast<int32_t>(v.row);
  args->dbias_key_tiles = static_cast<int32_t>(keys);
  args->dbias_row_tiles = static_cast<int32_t>(rows);
  args->dbias_sums = BwdFp32Params::kNothing;
  args->float_gradients = p.grad_dtype == DType::kFp32 ? 1 : 0;
  args->turned = grid_is_turned(v.size[kBatch]) ? 1 : 0;
}

}  // namespace fmha::two_sided
