// SPDX-License-Identifier: MIT OR Apache-2.0
// Backward problems with addresses that mean nothing, and their plans over the table in table.cc.
#pragma once

#include <cstring>
#include <new>

#include "args/bwd.h"
#include "bwd_params.h"
#include "error.h"
#include "fmha_rocm.h"
#include "problem/bwd.h"
#include "select/bwd.h"

using fmha::BwdStrides;

inline constexpr fmha::Target kDevice = {fmha::Arch::kGfx942, 304};

template <typename T = void>
T* at(uintptr_t tebibytes, uintptr_t bytes = 0) {
  return reinterpret_cast<T*>((tebibytes << 40) + bytes);
}

inline fmha_fwd_params forward(int64_t nhead_q = 4, int64_t nhead_k = 4, int64_t hdim = 64,
                               fmha_dtype dtype = FMHA_FP16) {
  fmha_fwd_params f = test_params(dtype, TEST_BSHD, 2, 100, 300, nhead_q, nhead_k, hdim);
  f.q.data = at(1), f.k.data = at(2), f.v.data = at(3), f.o.data = at(4), f.lse.data = at<float>(5);
  return f;
}

// Three sequences of up to 100 queries and 300 keys.
inline fmha_fwd_params packed() {
  fmha_fwd_params f = forward();
  f.batch = 3;
  f.total_q = 170;
  f.total_k = 500;
  f.cu_seqlens_q = at<int32_t>(10);
  f.cu_seqlens_k = at<int32_t>(11);
  f.lse.stride_head = 170;
  return f;
}

inline fmha_bwd_params backward(const fmha_fwd_params& f) {
  fmha_bwd_params p = test_bwd_params(&f);
  p.dout.data = at(6), p.dq.data = at(7), p.dk.data = at(8), p.dv.data = at(9);
  p.workspace = at(20);
  return p;
}

struct Planned {
  fmha::BwdKernels kernels;
  fmha::Plan plan;

  template <typename Args>
  const Args& args(size_t step) const {
    return *std::launder(reinterpret_cast<const Args*>(plan[step].arguments.data()));
  }
  bool launches(size_t step, const char* name, fmha::Grid grid) const {
    const fmha::Step& s = plan[step];
    return step < plan.count() && s.kind == fmha::Step::Kind::kLaunch && strcmp(s.kernel->name, name) == 0 &&
           s.grid.x == grid.x && s.grid.y == grid.y && s.grid.z == grid.z;
  }
  bool zeroes(size_t step, void* memory, size_t bytes) const {
    const fmha::Step& s = plan[step];
    return step < plan.count() && s.kind == fmha::Step::Kind::kMemset && s.memory == memory &&
           s.bytes == bytes && s.value == 0;
  }
};

inline fmha_status plan_of(const fmha_bwd_params& p, Planned& out, const fmha::Target& target = kDevice) {
  return fmha::guard([&] {
    fmha::BwdProblem problem;
    fmha::make_bwd_problem(&p, fmha::Pointers::kOptional, problem);
    fmha::BwdOffers offers;
    fmha::ask_bwd_origins(problem, offers);
    out.kernels = fmha::choose_bwd(problem, offers, target, true);
    new (&out.plan) fmha::Plan;
    fmha::plan_bwd(out.kernels, problem, target, out.plan);
  });
}

inline bool same(const BwdStrides& a, int64_t batch, int64_t nhead, int64_t row) {
  return a.batch == batch && a.nhead == nhead && a.row == row;
}

inline int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }
