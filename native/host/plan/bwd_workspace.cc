// SPDX-License-Identifier: MIT OR Apache-2.0
#include "plan/bwd_workspace.h"

#include <algorithm>

#include "args/bwd_one_pass.h"
#include "divide.h"
#include "memory/tensors.h"

namespace fmha {
namespace {

// A copy of dQ's sum for each workgroup that a launch has for a head, so that each adds to its own, and
// launch after launch, in a fixed order. More of them would fill a device better that has few (batch, head),
// but each is as large as a float32 dQ, and is zeroed, written and read once more. With eight, 16 heads of
// one sequence make 128 workgroups, and the copies are at most sixteen times a 16-bit Q.
constexpr int64_t kMostCopies = 8;

// Hands out the workspace, from its beginning. The addresses mean nothing until it is there.
class Room {
 public:
  explicit Room(void* begin) : begin_(reinterpret_cast<uintptr_t>(begin)) {}

  int64_t bytes() const { return bytes_; }

  // (batch, nhead, count, row)
  BwdWorkspace::Array take(const Rows& rows, int64_t nhead, int64_t row, int64_t copies) {
    const int64_t head = workspace_product(rows.count, row);
    const int64_t batch = workspace_product(head, nhead);
    const int64_t copy =
        workspace_aligned(workspace_product(workspace_product(batch, rows.batch), sizeof(float)));
    auto* const data = reinterpret_cast<float*>(begin_ + static_cast<uintptr_t>(bytes_));
    const int64_t all = workspace_product(copy, copies);
    bytes_ = std::min(bytes_ + all, kMostWorkspaceBytes);
    return {data, {batch, head, row}, all};
  }

  int32_t* take_integers(int64_t count) {
    return reinterpret_cast<int32_t*>(take({1, count, count, false}, 1, 1, 1).data);
  }

 private:
  uintptr_t begin_;
  int64_t bytes_ = 0;
};

// One that adds to what is there, sums over heads, or has rows to zero that no kernel writes, cannot be
// written as the main kernel goes.
bool is_direct(const BwdProblem& p) {
  return p.fwd.nhead_q == p.fwd.nhead_k && !p.accumulate && p.fwd.seqused_k == nullptr;
}

// The main kernel writes one element a score in 16 bits, or adds it to float32.
bool sums_elsewhere(const BwdProblem& p) {
  if (!p.dbias.touched) return false;
  const bool is_float = p.grad_dtype == DType::kFp32;
  return p.sums_dbias() ? p.deterministic || p.accumulate || !is_float : p.accumulate && !is_float;
}

BwdWorkspace::Array take_dbias(const BwdProblem& p, const Rows& rows, bool whole, Room& room) {
  if (whole) return room.take(rows, p.fwd.nhead_q, p.dbias.row, 1);
  const View& v = p.dbias;
  BwdWorkspace::Array array =
      room.take({v.size[kBatch], v.size[kSeqlen], v.sequence, v.varlen}, v.size[kHead], v.row, 1);
  if (v.size[kBatch] == 1) array.strides.batch = 0;
  if (v.size[kHead] == 1) array.strides.nhead = 0;
  if (v.size[kSeqlen] == 1) array.strides.row = 0;
  return array;
}

// Takes what a kernel adds to that does not write the gradients itself, for so many tiles of keys.
void take_sums(const BwdProblem& p, const Rows& q_rows, int64_t tiles, Room& room, BwdWorkspace& w) {
  const FwdProblem& f = p.fwd;
  // No more copies than that many launches need: nine tiles are five and four.
  w.rounds = p.deterministic ? ceil_div(tiles, kMostCopies) : 1;
  w.groups = ceil_div(tiles, w.rounds);
  w.copies = p.deterministic ? w.groups : 1;
  w.dq_acc = room.take(q_rows, f.nhead_q, f.hdim_q, w.copies);
  w.copy = w.dq_acc.bytes / w.copies / static_cast<int64_t>(sizeof(float));
  if (sums_elsewhere(p)) {
    w.dbias_whole = p.deterministic && p.sums_dbias();
    w.dbias = take_dbias(p, q_rows, w.dbias_whole, room);
  }
}

// dQ's sums in blocks of 32 rows, and room for a tile of K for each workgroup.
void take_blocks(const Kernel& main, const BwdProblem& p, Room& room, BwdWorkspace& w) {
  const FwdProblem& f = p.fwd;
  constexpr int64_t kTurnedFloats = BwdOnePassParams::kTurnedBytes / sizeof(float);
  const int64_t rows = ceil_div(f.seqlen_q, int64_t{main.bwd.tile_m}) * main.bwd.tile_m;
  const int64_t workgroups = std::max(ceil_div(f.seqlen_q, int64_t{main.bwd.tile_n}),
                                      ceil_div(f.seqlen_k, int64_t{main.bwd.tile_n})) *
                             f.nhead_k * f.batch * w.key_parts;
  w.groups = w.rounds = w.copies = 1;
  w.dq_acc = room.take({f.batch, rows, rows, false}, f.nhead_q, main.bwd.hdim_q, 1);
  w.turned_k =
      reinterpret_cast<uint8_t*>(room.take({1, workgroups, workgroups, false}, 1, kTurnedFloats, 1).data);
}

}  // namespace

// The fewest with which one of them takes at most four fifths of the launch's time, if no unit ever waits. A
// tile of keys takes four products a score, a tile of queries three; of a kernel that adds up dQ in blocks
// there are none of queries.
int64_t bwd_key_parts(const Kernel& main, const BwdProblem& p, int units) {
  const FwdProblem& f = p.fwd;
  const int64_t ratio = f.nhead_q / f.nhead_k;
  if (!main.bwd.divides_groups || ratio == 1) return 1;
  const int64_t of_keys = 4, of_queries = sums_in_blocks(main) ? 0 : 3;
  const int64_t tile = main.bwd.tile_n, causal = f.mask.right == Mask::kUnlimited ? 1 : 2;
  const int64_t a_group = of_keys * ceil_div(f.seqlen_k, tile) + of_queries * ceil_div(f.seqlen_q, tile);
  const int64_t least = ceil_div(5 * causal * units, a_group * f.nhead_k * f.batch);
  int64_t parts = 1;
  while (parts < ratio && (parts < least || !is_multiple(ratio, parts))) ++parts;
  return parts;
}

BwdWorkspace bwd_workspace(const Kernel& main, const BwdProblem& p, int units) {
  const FwdProblem& f = p.fwd;
  const Rows q_rows = rows_of(f.group, f.batch, f.seqlen_q, f.total_q);
  const Rows k_rows = rows_of(f.group, f.batch, f.seqlen_k, f.total_k);
  BwdWorkspace w{};
  Room room(p.workspace.data);
  w.d = room.take(q_rows, f.nhead_q, 1, 1);
  if (main.bwd.layout == BwdLayout::kGroup) w.starts = room.take_integers(2 * (f.batch + 1));
  const bool blocks = sums_in_blocks(main);
  w.key_parts = main.bwd.whole || blocks ? bwd_key_parts(main, p, units) : f.nhead_q / f.nhead_k;
  w.direct = main.bwd.whole || blocks ? w.key_parts == 1 : is_direct(p);
  if (blocks) take_blocks(main, p, room, w);
  if (!main.bwd.whole && !blocks) take_sums(p, q_rows, ceil_div(k_rows.sequence, main.bwd.tile_n), room, w);
  if (!w.direct) {
    w.dk = room.take(k_rows, f.nhead_k * w.key_parts, f.hdim_q, 1);
    w.dv = room.take(k_rows, f.nhead_k * w.key_parts, f.hdim_v, 1);
  }
  w.bytes = room.bytes();
  return w;
}

}  // namespace fmha
