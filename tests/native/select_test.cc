// SPDX-License-Identifier: MIT OR Apache-2.0
// select.cc over the table in table.cc: each rule, each refusal.
#include "select.h"

#include <cstring>

#include "check.h"
#include "error.h"
#include "params.h"

namespace {

using fmha::Arch;

const char* fmha_last_error() { return fmha::last_error(); }

fmha_status select(const fmha_fwd_params& p, Arch arch, const fmha::Kernel** kernel, fmha::Grid* grid) {
  return fmha::guard([&] {
    const fmha::Problem problem = fmha::make_problem(&p, fmha::Pointers::kOptional);
    *kernel = &fmha::select_kernel(problem, arch);
    *grid = fmha::grid_of(**kernel, problem);
  });
}

void check_selected(const fmha_fwd_params& p, const char* expected, int line) {
  const fmha::Kernel* kernel = nullptr;
  fmha::Grid grid{};
  ++g_check_count;
  if (select(p, Arch::kGfx942, &kernel, &grid) != FMHA_OK) {
    check_fail(__FILE__, line, "expected %s, got: %s", expected, fmha_last_error());
  } else if (std::strcmp(kernel->name, expected) != 0) {
    check_fail(__FILE__, line, "expected %s, got %s", expected, kernel->name);
  }
}
#define CHECK_SELECTED(p, expected) check_selected(p, expected, __LINE__)

void check_refused(const fmha_fwd_params& p, Arch arch, const char* text, int line) {
  const fmha::Kernel* kernel = nullptr;
  fmha::Grid grid{};
  const fmha_status status = select(p, arch, &kernel, &grid);
  ++g_check_count;
  if (status != FMHA_UNSUPPORTED) {
    check_fail(__FILE__, line, "status %d, expected UNSUPPORTED: %s", status, fmha_last_error());
  } else if (std::strstr(fmha_last_error(), text) == nullptr) {
    check_fail(__FILE__, line, "no '%s' in: %s", text, fmha_last_error());
  }
}
#define CHECK_REFUSED(p, arch, text) check_refused(p, arch, text, __LINE__)

fmha_fwd_params problem(fmha_dtype dtype, int64_t seqlen_q, int64_t seqlen_k, int64_t hdim,
                        fmha_mask mask = FMHA_MASK_NONE) {
  fmha_fwd_params p = test_params(dtype, TEST_BSHD, 2, seqlen_q, seqlen_k, 4, 2, hdim);
  p.mask = mask;
  return p;
}

void test_rules() {
  // Whole tiles of keys: no padding. The queries do not matter.
  CHECK_SELECTED(problem(FMHA_FP16, 128, 128, 64), "fp16_d64");
  CHECK_SELECTED(problem(FMHA_FP16, 77, 192, 64), "fp16_d64");
  CHECK_SELECTED(problem(FMHA_FP16, 77, 193, 64), "fp16_d64_pad");
  CHECK_SELECTED(problem(FMHA_FP16, 128, 192, 128), "fp16_d128_pad");
  CHECK_SELECTED(problem(FMHA_FP16, 128, 256, 128), "fp16_d128");
  // No key: only a padded kernel asks before it loads the first tile.
  CHECK_SELECTED(problem(FMHA_FP16, 128, 0, 64), "fp16_d64_pad");
  CHECK_SELECTED(problem(FMHA_FP16, 128, 0, 64, FMHA_MASK_CAUSAL), "fp16_d64_pad");
  // A mask that hides something, and one that does not.
  CHECK_SELECTED(problem(FMHA_FP16, 128, 128, 64, FMHA_MASK_CAUSAL), "fp16_d64_mask_pad");
  CHECK_SELECTED(problem(FMHA_FP16, 1, 128, 64, FMHA_MASK_CAUSAL), "fp16_d64");
  CHECK_SELECTED(problem(FMHA_FP16, 1, 100, 64, FMHA_MASK_CAUSAL), "fp16_d64_pad");
  CHECK_SELECTED(problem(FMHA_FP16, 1, 128, 64, FMHA_MASK_CAUSAL_TOP_LEFT), "fp16_d64_mask_pad");
  // Where there is nothing but a masked, padded kernel, it does everything.
  CHECK_SELECTED(problem(FMHA_BF16, 128, 128, 128), "bf16_d128_mask_pad");
  CHECK_SELECTED(problem(FMHA_BF16, 128, 0, 128), "bf16_d128_mask_pad");
}

void test_refusals() {
  CHECK_REFUSED(
      problem(FMHA_FP16, 128, 128, 72), Arch::kGfx942,
      "hdim_q = 72, hdim_v = 72: no fp16 kernel for gfx942; the nearest is hdim_q = 64, hdim_v = 64, and "
      "columns of zeros make the tensors fit hdim_q = 128, hdim_v = 128");
  CHECK_REFUSED(problem(FMHA_FP16, 128, 128, 30), Arch::kGfx942, "the nearest is hdim_q = 64, hdim_v = 64");
  CHECK_REFUSED(problem(FMHA_FP16, 128, 128, 256), Arch::kGfx942,
                "the largest near is hdim_q = 128, hdim_v = 128");
  fmha_fwd_params mixed = problem(FMHA_FP16, 128, 128, 128);
  mixed.hdim_v = 64;
  CHECK_REFUSED(mixed, Arch::kGfx942, "hdim_q = 128, hdim_v = 64: no fp16 kernel");
  CHECK_REFUSED(problem(FMHA_BF16, 128, 128, 64, FMHA_MASK_CAUSAL), Arch::kGfx942, "a mask");
  CHECK_REFUSED(problem(FMHA_BF16, 128, 128, 64), Arch::kGfx90a,
                "dtype = bf16: this build has no such kernel for gfx90a; it has: fp16");

  fmha_fwd_params wide = problem(FMHA_FP16, 128, 128, 64);
  wide.batch = 65536;
  CHECK_REFUSED(wide, Arch::kGfx942, "batch = 65536: one launch does at most 65535");
  wide.batch = 1;
  wide.seqlen_q = int64_t{65535} * 128 + 1;
  wide.q.stride_seqlen = wide.o.stride_seqlen = 64;
  wide.q.stride_head = wide.o.stride_head = wide.seqlen_q * 64;
  CHECK_REFUSED(wide, Arch::kGfx942, "seqlen_q = 8388481: one launch does at most 8388480 rows");
  fmha_fwd_params heads = problem(FMHA_FP16, 1, 128, 64);
  heads.batch = 1;
  heads.nhead_q = heads.nhead_k = 16777216;
  CHECK_REFUSED(heads, Arch::kGfx942, "nhead_q = 16777216: one launch does at most 16777215");
}

void test_grid() {
  const fmha::Kernel* kernel = nullptr;
  fmha::Grid grid{};
  const fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 3, 257, 100, 6, 2, 128);
  CHECK_OK(select(p, Arch::kGfx942, &kernel, &grid));
  CHECK(grid.x == 6 && grid.y == 3 && grid.z == 3);
  const fmha_fwd_params empty = test_params(FMHA_FP16, TEST_BSHD, 3, 0, 100, 6, 2, 128);
  CHECK_OK(select(empty, Arch::kGfx942, &kernel, &grid));
  CHECK(grid.x == 0 && grid.y == 0 && grid.z == 0);
}

}  // namespace

int main() {
  test_rules();
  test_refusals();
  test_grid();
  return check_result();
}
