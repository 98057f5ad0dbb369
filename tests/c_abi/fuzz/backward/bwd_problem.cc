// SPDX-License-Identifier: MIT OR Apache-2.0
#include "backward/bwd_problem.h"

#include <cinttypes>
#include <cstdio>

#include "mutate.h"
#include "rows.h"

namespace fmha::fuzz {
namespace {

void make_gradients(Bytes& bytes, const Device& device, const fmha_fwd_params& f, fmha_bwd_params& p) {
  const int64_t q_rows = is_group(f) ? f.total_q : f.seqlen_q, k_rows = is_group(f) ? f.total_k : f.seqlen_k;
  p.dout = make_tensor(bytes, device.start(kDout), q_rows, f.nhead_q, f.hdim_v);
  p.dq = make_tensor(bytes, device.start(kDq), q_rows, f.nhead_q, f.hdim_q);
  p.dk = make_tensor(bytes, device.start(kDk), k_rows, f.nhead_k, f.hdim_q);
  p.dv = make_tensor(bytes, device.start(kDv), k_rows, f.nhead_k, f.hdim_v);
  if (f.bias.data != nullptr && bytes.chance(2)) {
    p.dbias = {device.start(kDbias), f.bias.stride_batch, f.bias.stride_head, f.bias.stride_seqlen};
  }
}

// Its size is asked for; a pointer that is wrong is left as it is.
void make_workspace(const Device& device, const BwdCase& c, fmha_bwd_params& p) {
  if (p.workspace != nullptr || p.workspace_bytes != 0) return;
  int64_t size = 0;
  p.fwd = reinterpret_cast<const fmha_fwd_params*>(c.forward.raw.data());
  if (fmha_bwd_workspace_bytes(&p, &size) != FMHA_OK || size <= 0) return;
  if (size > static_cast<int64_t>(kWorkspaceBytes)) return;
  p.workspace = device.workspace(static_cast<size_t>(size));
  p.workspace_bytes = size;
}

}  // namespace

BwdCase make_bwd_case(Bytes& bytes, const Device& device) {
  BwdCase c{};
  c.forward = make_sound(bytes, device);
  fmha_fwd_params& f = c.forward.params;
  if (is_fp8(f.dtype) && !bytes.chance(4)) f.dtype = FMHA_BF16;
  if (!is_fp8(f.dtype)) f.o_dtype = 0, f.q_descale = f.v_descale = 0;
  f.lse = {reinterpret_cast<float*>(device.start(kLse)), 0, is_group(f) ? f.total_q : f.seqlen_q};
  f.lse.stride_batch = f.nhead_q * f.lse.stride_head;
  fmha_bwd_params& p = c.params;
  p.struct_size = sizeof p;
  make_gradients(bytes, device, f, p);
  if (bytes.chance(3)) p.grad_dtype = FMHA_FP32;
  p.accumulate = bytes.chance(3) ? 1 : 0;
  p.deterministic = bytes.chance(3) ? 1 : 0;
  make_wrong(bytes, device, c.forward);
  p.fwd = reinterpret_cast<const fmha_fwd_params*>(c.forward.raw.data());
  make_workspace(device, c, p);
  c.mutations = static_cast<int>(bytes.below(4));
  for (int i = 0; i < c.mutations; ++i) mutate(bytes, device, fields_of(p), &p);
  // The library reads what a struct of the size given has, and a wild pointer is the caller's fault.
  if (p.fwd != nullptr) p.fwd = reinterpret_cast<const fmha_fwd_params*>(c.forward.raw.data());
  c.mutations += c.forward.mutations;
  c.raw = make_raw(bytes, p, c.mutations);
  return c;
}

void print(const BwdCase& c) {
  std::fprintf(stderr, "struct_size = %" PRIu32 "\n", c.params.struct_size);
  print(fields_of(c.params), &c.params);
  std::fprintf(stderr, "fwd:\n");
  print(c.forward);
}

}  // namespace fmha::fuzz
