// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of the kernels before and after a backward kernel, and their grids.
#include "origins/parts.h"

#include <cinttypes>
#include <new>

#include "args/bwd.h"
#include "divide.h"
#include "error.h"
#include "plan/grid.h"

namespace fmha::bwd_parts {
namespace {

// One of these is what a sum kernel's per_block counts.
constexpr int64_t kVector = 8;

// Blocks of so many rows, heads, batches; the latter two are within the limits already. A row is `row_work`
// of what per_block counts.
Grid grid_of(const Kernel& kernel, const View& v, int64_t rows, int64_t row_work, int64_t batch) {
  const int64_t per_block = kernel.bwd_parts.per_block;
  const int64_t most = most_tiles(batch, kernel.block_size);
  const int64_t blocks = ceil_div(rows * row_work, per_block);
  if (blocks > most) {
    raise(FMHA_UNSUPPORTED, "%s of %" PRId64 " rows: one launch does at most %" PRId64, v.name, rows,
          most * per_block / row_work);
  }
  return grid_of_tiles(blocks, v.size[kHead], batch);
}

}  // namespace

void add_dot(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const View& o = p.fwd.o;
  new (plan.add_launch<BwdDotParams>(kernel, grid_of(kernel, o, o.sequence, 1, p.fwd.batch))) BwdDotParams{
      .o = o.address(),
      .dout = p.dout.address(),
      .d = w.d.data,
      .cu_q = p.fwd.cu_seqlens_q,
      .used_q = p.fwd.seqused_q,
      .cu_k = p.fwd.cu_seqlens_k,
      .starts = w.starts,
      .o_strides = strides(o),
      .dout_strides = strides(p.dout),
      .d_strides = w.d.strides,
      .rows = o.sequence,
      .total_q = static_cast<int32_t>(p.fwd.total_q),
      .total_k = static_cast<int32_t>(p.fwd.total_k),
      .hdim_v = static_cast<int32_t>(p.fwd.hdim_v),
      .p_keep = p.fwd.dropout.p_keep(),
      .turned = grid_is_turned(p.fwd.batch) ? 1 : 0,
      .reserved = 0,
  };
}

void add_sum(const Kernel& kernel, const View& out, const Parts& parts, bool accumulate, Plan& plan) {
  const Grid grid = grid_of(kernel, out, out.size[kSeqlen], out.row / kVector, out.size[kBatch]);
  new (plan.add_launch<BwdSumParams>(kernel, grid)) BwdSumParams{
      .parts = parts.data,
      .out = out.address(),
      .parts_strides = parts.strides,
      .out_strides = strides(out),
      .part = parts.step,
      .rows = out.size[kSeqlen],
      .parts_count = parts.count,
      .hdim = static_cast<int32_t>(out.row),
      .beta = accumulate ? 1.0F : 0.0F,
      .turned = grid_is_turned(out.size[kBatch]) ? 1 : 0,
      .in_blocks = parts.in_blocks ? 1 : 0,
      .reserved = 0,
  };
}

namespace {

// The rest of the arguments means that there are no parts.
BwdBiasParams* add_bias(const Kernel& kernel, const View& out, bool accumulate, Plan& plan) {
  const int64_t per_block = kernel.bwd_parts.per_block, row_blocks = ceil_div(out.row, per_block);
  const Grid grid = grid_of(kernel, out, out.size[kSeqlen], row_blocks * per_block, out.size[kBatch]);
  auto* const args = new (plan.add_launch<BwdBiasParams>(kernel, grid)) BwdBiasParams{};
  args->out = out.address();
  args->out_strides = strides(out);
  args->columns = static_cast<int32_t>(out.row);
  args->row_blocks = static_cast<int32_t>(row_blocks);
  args->beta = accumulate ? 1.0F : 0.0F;
  args->turned = grid_is_turned(out.size[kBatch]) ? 1 : 0;
  return args;
}

}  // namespace

void add_bias_zeros(const Kernel& kernel, const View& dbias, Plan& plan) {
  add_bias(kernel, dbias, false, plan);
}

void add_bias_sum(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const FwdProblem& f = p.fwd;
  BwdBiasParams* const args = add_bias(kernel, p.dbias, p.accumulate, plan);
  // Sums of the bias's shape have only one part of each element.
  const auto count = [&](Dimension i, int64_t whole) {
    return static_cast<int32_t>(w.dbias_whole && p.dbias.size[i] == 1 ? whole : 1);
  };
  args->parts = w.dbias.data;
  args->parts_strides = w.dbias.strides;
  args->batches = count(kBatch, f.group ? 1 : f.batch);
  args->heads = count(kHead, f.nhead_q);
  args->rows = count(kSeqlen, f.group ? f.total_q : f.seqlen_q);
}

}  // namespace fmha::bwd_parts
