// SPDX-License-Identifier: MIT OR Apache-2.0
// The workspace of a backward call: float32 arrays, one after another, each aligned to 256 bytes.
//
//   d        (batch, nhead_q, seqlen_q)
//   starts   int32 (2, batch + 1): cu_seqlens_q and cu_seqlens_k in order, for a kernel that believes them
//   dq_acc   copies of (batch, nhead_q, seqlen_q, hdim_q), zeroed; of a kernel that sums_in_blocks
//            (batch, nhead_q, ceil(seqlen_q / 32), 32 * 128)
//   dbias    as the bias's gradient, with size 1 where its stride is 0; or (batch, nhead_q, seqlen_q,
//            seqlen_k), if it is the sum of several scores' and has the same bits each time; zeroed
//   turned_k 64 KB a workgroup of such a kernel
//   dk       (batch, nhead_k * key_parts, seqlen_k, hdim_q)
//   dv       (batch, nhead_k * key_parts, seqlen_k, hdim_v)
//
// A kernel that writes the gradients itself has no dq_acc and no dbias. A main kernel that can write the
// caller's arrays needs no dbias, dk or dv of its own. With packed sequences the batch is 1 and the lengths
// are total_q and total_k; dk and dv are then zeroed, for no kernel writes rows beyond seqused_k. All but
// dbias is proportional to the lengths, not to their product.
#pragma once

#include <cstdint>

#include "args/bwd.h"
#include "catalogue/catalogue.h"
#include "problem/bwd.h"

namespace fmha {

struct BwdWorkspace {
  struct Array {
    float* data;
    BwdStrides strides;
    int64_t bytes;
  };

  Array d;
  int32_t* starts;    // nullptr: the main kernel takes the caller's
  bool direct;        // the main kernel writes the caller's dk and dv
  Array dk, dv;       // not set if direct
  int64_t key_parts;  // of a key head's gradients: each is the sum over as many query heads; 1 if direct
  // The rest is not set if the kernel writes the gradients itself.
  Array dq_acc;       // `bytes` of all copies
  Array dbias;        // no `bytes`: the main kernel makes the caller's
  bool dbias_whole;   // it has an element for each score
  int64_t groups;     // workgroups of a launch of the main kernel for one (batch, head)
  int64_t rounds;     // launches
  int64_t copies;     // of dq_acc
  int64_t copy;       // elements from one copy to the next
  uint8_t* turned_k;  // of a kernel that sums_in_blocks
  int64_t bytes;      // of all; kAddressSpace or more: no process can have it
};

// Tells whether a kernel adds up dQ in blocks (args/bwd_one_pass.h), and writes dK and dV as one that writes
// all gradients itself.
inline bool sums_in_blocks(const Kernel& main) { return !main.bwd.whole && main.bwd.divides_groups; }

// Returns how many workgroups divide the query heads of a key tile's group.
int64_t bwd_key_parts(const Kernel& main, const BwdProblem& problem, int units);

// The problem has queries and keys. `units` is how many compute units the device has; 0: nobody knows.
BwdWorkspace bwd_workspace(const Kernel& main, const BwdProblem& problem, int units);

}  // namespace fmha
