// SPDX-License-Identifier: MIT OR Apache-2.0
// The forward family's choice over the table in table.cc: each rule, each refusal.
#include <cstring>
#include <set>
#include <string>

#include "error.h"
#include "params.h"
#include "plan/plan.h"
#include "problem/fwd.h"
#include "select/fwd.h"
#include "select/key.h"
#include "status.h"

namespace {

using fmha::Arch;

constexpr fmha::Target kDevice = {Arch::kGfx942, 304};

const char* fmha_last_error() { return fmha::last_error(); }

// Features that a pointer asks for: nothing here reads them.
void* const kSomewhere = reinterpret_cast<void*>(uintptr_t{1} << 40);

struct Selected {
  const fmha::Kernel* kernel = nullptr;
  fmha::Grid grid{};
  int number = 0, count = 0;
};

fmha_status select(const fmha_fwd_params& p, const fmha::Target& target, Selected* out) {
  return fmha::guard([&] {
    fmha::FwdProblem problem;
    fmha::make_fwd_problem(&p, fmha::Pointers::kOptional, problem);
    fmha::FwdOffers offers;
    fmha::ask_fwd_origins(problem, offers);
    const fmha::Chosen all = fmha::choose_fwd(problem, offers, target, true);
    out->kernel = fmha::choose_fwd(problem, offers, target, false).kernel;
    out->number = all.number;
    out->count = all.count;
    fmha::Plan plan;
    fmha::plan_fwd(*out->kernel, problem, target, plan);
    if (plan.count() != 1 || plan[0].kernel != out->kernel || plan.needed_bytes() != 0) {
      fmha::raise(FMHA_INTERNAL, "another plan than one launch of the kernel");
    }
    out->grid = plan[0].grid;
    if (out->kernel != all.kernel) fmha::raise(FMHA_INTERNAL, "two answers");
  });
}

// The name of the kernel, or why there is none.
std::string name_of(const fmha_fwd_params& p, const fmha::Target& target = kDevice) {
  Selected selected;
  return select(p, target, &selected) == FMHA_OK ? selected.kernel->name : fmha_last_error();
}
#define CHECK_SELECTED(p, expected) CHECK(name_of(p) == (expected))

fmha_status refusal(const fmha_fwd_params& p, Arch arch = Arch::kGfx942) {
  Selected selected;
  return select(p, {arch, 304}, &selected);
}
#define CHECK_REFUSED(p, text) CHECK_STATUS(refusal(p), FMHA_UNSUPPORTED, text)

fmha_fwd_params problem(fmha_dtype dtype, int64_t seqlen_q, int64_t seqlen_k, int64_t hdim,
                        fmha_mask mask = FMHA_MASK_NONE) {
  fmha_fwd_params p = test_params(dtype, TEST_BSHD, 2, seqlen_q, seqlen_k, 4, 2, hdim);
  p.mask = mask;
  return p;
}

fmha_fwd_params varlen(int64_t seqlen_q, int64_t seqlen_k, fmha_mask mask = FMHA_MASK_NONE) {
  fmha_fwd_params p = problem(FMHA_FP16, seqlen_q, seqlen_k, 64, mask);
  p.cu_seqlens_q = p.cu_seqlens_k = static_cast<const int32_t*>(kSomewhere);
  p.total_q = 2 * seqlen_q;
  p.total_k = 2 * seqlen_k;
  return p;
}

fmha_fwd_params two_head_dims(int64_t hdim_q, int64_t hdim_v) {
  fmha_fwd_params p = problem(FMHA_FP16, 8192, 8192, hdim_q);
  const fmha_fwd_params other = problem(FMHA_FP16, 8192, 8192, hdim_v);
  p.hdim_v = hdim_v;
  p.v = other.v;
  p.o = other.o;
  return p;
}

fmha_fwd_params with_bias(int64_t seqlen_k) {
  fmha_fwd_params p = problem(FMHA_FP16, 128, seqlen_k, 64);
  p.bias = {kSomewhere, 4 * 128 * seqlen_k, 128 * seqlen_k, seqlen_k};
  return p;
}

TEST_CASE("lengths and masks") {
  // Whole tiles of keys: no padding. The queries do not matter.
  CHECK_SELECTED(problem(FMHA_FP16, 128, 128, 64), "fp16_d64");
  CHECK_SELECTED(problem(FMHA_FP16, 77, 192, 64), "fp16_d64");
  CHECK_SELECTED(problem(FMHA_FP16, 77, 193, 64), "fp16_d64_pad");
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
  CHECK_SELECTED(problem(FMHA_BF16, 128, 128, 64, FMHA_MASK_CAUSAL), "bf16_d128_mask_pad");
}

TEST_CASE("head dims") {
  // The smallest tile that holds both, whatever the other rules say.
  CHECK_SELECTED(problem(FMHA_FP16, 128, 128, 8), "fp16_d64");
  CHECK_SELECTED(problem(FMHA_FP16, 128, 128, 56, FMHA_MASK_CAUSAL), "fp16_d64_mask_pad");
  CHECK_SELECTED(two_head_dims(64, 72), "fp16_d128");
  CHECK_SELECTED(two_head_dims(192, 128), "fp16_d192v128_mask_pad");
  CHECK_SELECTED(two_head_dims(136, 8), "fp16_d192v128_mask_pad");
  // Its own head dim before one that is padded.
  CHECK_SELECTED(problem(FMHA_FP16, 8192, 8192, 128), "fp16_d128_exact");
  CHECK_SELECTED(problem(FMHA_FP16, 8192, 8192, 120), "fp16_d128");
}

// Rounds times time of a wave: 65 for the tall tile, 49 for 64 rows by four waves, 58 for 16 rows by one.
// Rounds are of 304 workgroups of four waves, or of 1216 of one.
TEST_CASE("tiles") {
  // Few workgroups: whatever is done soonest.
  CHECK_SELECTED(problem(FMHA_FP16, 1, 128, 128), "fp16_d128_pad_m64");
  CHECK_SELECTED(problem(FMHA_FP16, 2, 128, 128, FMHA_MASK_CAUSAL), "fp16_d128_mask_pad_m16");
  CHECK_SELECTED(problem(FMHA_FP16, 2432, 256, 128), "fp16_d128_pad_m64");  // 8 * 38 of them, one round
  CHECK_SELECTED(problem(FMHA_FP16, 2496, 256, 128), "fp16_d128_exact");    // 8 * 39, two
  // Enough of them: the less of K and V is read the better.
  CHECK_SELECTED(problem(FMHA_FP16, 8192, 8192, 128), "fp16_d128_exact");
  // Few queries of many heads: 1200 workgroups are four rounds of tall tiles, of which a row is used.
  fmha_fwd_params decode = test_params(FMHA_FP16, TEST_BSHD, 30, 1, 128, 40, 8, 128);
  CHECK_SELECTED(decode, "fp16_d128_mask_pad_m16");
  decode.batch = 1;
  CHECK_SELECTED(decode, "fp16_d128_pad_m64");
  // The same problem on a device of few units.
  CHECK(name_of(problem(FMHA_FP16, 256, 256, 128), fmha::Target{Arch::kGfx942, 16}) == "fp16_d128_exact");
  // A tile that does not divide kTileRows is as if it were not there.
  fmha_fwd_params p = problem(FMHA_FP16, 90, 100, 64);
  Selected selected;
  for (p.kernel = 1; p.kernel <= 7; ++p.kernel) {
    CHECK_OK(select(p, kDevice, &selected));
    CHECK(selected.count == 7);
    CHECK(selected.kernel->fwd.tile_m != 96);
  }
}

TEST_CASE("features") {
  CHECK_SELECTED(with_bias(128), "fp16_d64_bias");
  CHECK_SELECTED(with_bias(100), "fp16_d64_mask_pad_bias");
  // An unpadded kernel loads its bias by vectors.
  for (int field = 0; field < 4; ++field) {
    fmha_fwd_params p = with_bias(128);
    if (field == 0) p.bias.data = static_cast<char*>(kSomewhere) + 2;
    if (field == 1) p.bias.stride_seqlen = 130;
    if (field == 2) p.bias.stride_head += 2;
    if (field == 3) p.bias.stride_batch += 1;
    CHECK_SELECTED(p, "fp16_d64_mask_pad_bias");
  }
  fmha_fwd_params p = with_bias(128);
  p.bias.stride_batch = p.bias.stride_head = p.bias.stride_seqlen = 0;
  CHECK_SELECTED(p, "fp16_d64_bias");

  p = problem(FMHA_FP16, 100, 150, 64);
  p.alibi_slopes = static_cast<const float*>(kSomewhere);
  CHECK_SELECTED(p, "fp16_d64_pad_alibi");
  p.mask = FMHA_MASK_CAUSAL;
  CHECK_SELECTED(p, "fp16_d64_mask_pad_alibi");
  // A mask that hides nothing but says where ALiBi counts from.
  p.mask = FMHA_MASK_WINDOW_TOP_LEFT;
  p.window_left = p.window_right = 1000;
  CHECK_SELECTED(p, "fp16_d64_mask_pad_alibi");
  p.seqlen_k = p.seqlen_q;
  CHECK_SELECTED(p, "fp16_d64_pad_alibi");

  p = problem(FMHA_FP16, 100, 128, 64);
  p.softcap = 30;
  CHECK_SELECTED(p, "fp16_d64_mask_pad_softcap");
  p.softcap = 0;
  p.p_drop = 0.1F;
  CHECK_SELECTED(p, "fp16_d64_mask_pad_dropout");
  // A chance that nothing drops by takes the kernel without dropout.
  p.p_drop = 0;
  Selected plain;
  CHECK(select(p, {Arch::kGfx942, 304}, &plain) == FMHA_OK);
  p.p_drop = 1e-30F;
  CHECK_SELECTED(p, plain.kernel->name);
}

TEST_CASE("varlen") {
  CHECK_SELECTED(varlen(100, 128), "fp16_d64_group_pad");
  CHECK_SELECTED(varlen(100, 128, FMHA_MASK_CAUSAL), "fp16_d64_group_mask_pad");
  // Only the device knows that every sequence has one query.
  CHECK_SELECTED(varlen(1, 128, FMHA_MASK_CAUSAL), "fp16_d64_group_mask_pad");
  fmha_fwd_params p = varlen(257, 128);
  p.alibi_slopes = static_cast<const float*>(kSomewhere);
  CHECK_SELECTED(p, "fp16_d64_group_mask_pad_alibi");

  p = varlen(257, 128);
  Selected selected;
  CHECK_OK(select(p, kDevice, &selected));
  CHECK(selected.grid.x == 4);
  CHECK(selected.grid.y == 3);
  CHECK(selected.grid.z == 2);
  p.seqused_q = static_cast<const int32_t*>(kSomewhere);
  p.seqused_k = static_cast<const int32_t*>(kSomewhere);
  CHECK_OK(select(p, kDevice, &selected));
  CHECK(selected.grid.x == 4);
  CHECK(selected.grid.y == 3);
  CHECK(selected.grid.z == 2);
}

TEST_CASE("fp8") {
  fmha_fwd_params p = problem(FMHA_FP8_E4M3_FNUZ, 128, 100, 128);
  p.o_dtype = FMHA_BF16;
  CHECK_SELECTED(p, "fp8_bf16_d128_pad");
  fmha_fwd_params q = p;
  q.o_dtype = 0;
  CHECK_REFUSED(q, "the nearest, fp8_bf16_d128_pad, takes o_dtype = bf16");
  q = p;
  q.p_drop = 0.5F;
  CHECK_REFUSED(q, "takes p_drop = 0");
  q = p;
  q.dtype = FMHA_FP8_E4M3_FN;
  CHECK_REFUSED(q, "; fp8fn is float8_e4m3fn, and gfx942 has fp8, float8_e4m3fnuz");
  q = p;
  q.softcap = 1;
  CHECK_REFUSED(q, "takes softcap = 0");
  q = p;
  q.mask = FMHA_MASK_CAUSAL;
  CHECK_REFUSED(q, "takes no mask");
}

// Every candidate by its number, best first, each once.
TEST_CASE("candidates") {
  fmha_fwd_params p = problem(FMHA_FP16, 8192, 8192, 128);
  const char* const expected[] = {"fp16_d128_exact",       "fp16_d128",         "fp16_d128_pad",
                                  "fp16_d128_mask_pad",    "fp16_d128_pad_m64", "fp16_d128_mask_pad_m16",
                                  "fp16_d192v128_mask_pad"};
  Selected selected;
  for (int n = 1; n <= 7; ++n) {
    p.kernel = n;
    CHECK_OK(select(p, kDevice, &selected));
    CHECK(selected.number == n);
    CHECK(selected.count == 7);
    CHECK(std::string(selected.kernel->name) == expected[n - 1]);
  }
  p.kernel = 8;
  CHECK_STATUS(select(p, kDevice, &selected), FMHA_UNSUPPORTED,
               "kernel = 8: expected 0 (the library's choice) to 7, the candidates for this problem");
}

TEST_CASE("refusals") {
  CHECK_REFUSED(
      problem(FMHA_FP16, 128, 128, 30),
      "hdim_q = 30, hdim_v = 30, seqlen_k = 128: no fp16 kernel of this build for gfx942 does that; "
      "the nearest, fp16_d64_mask_pad, takes hdim_q up to 64 and hdim_v up to 64, multiples of 8 "
      "(columns of zeros make the tensors fit)");
  CHECK_REFUSED(problem(FMHA_FP16, 128, 128, 256),
                "takes hdim_q up to 192 and hdim_v up to 128, multiples of 8");
  CHECK_REFUSED(problem(FMHA_BF16, 128, 128, 136, FMHA_MASK_CAUSAL),
                "a mask, seqlen_k = 128: no bf16 kernel");
  CHECK_STATUS(refusal(problem(FMHA_BF16, 128, 128, 64), Arch::kGfx90a), FMHA_UNSUPPORTED,
               "dtype = bf16: this build has no such kernel for gfx90a; it has: fp16");
  CHECK_REFUSED(problem(FMHA_FP32, 128, 128, 64), "dtype = fp32: this build has no such kernel");
  CHECK_STATUS(refusal(problem(FMHA_FP16, 128, 128, 64, FMHA_MASK_CAUSAL), Arch::kGfx90a), FMHA_UNSUPPORTED,
               "takes no mask");
  fmha_fwd_params p = varlen(100, 100);
  p.p_drop = 0.1F;
  CHECK_REFUSED(p, "cu_seqlens, dropout: no fp16 kernel of this build for gfx942 does that; the nearest, ");
  p = problem(FMHA_FP16, 128, 128, 128);
  p.softcap = 1;
  CHECK_REFUSED(p, "the nearest, fp16_d128_mask_pad, takes softcap = 0");
  p = problem(FMHA_FP16, 128, 128, 64);
  p.o_dtype = FMHA_FP32;
  CHECK_REFUSED(p,
                "o_dtype = fp32, seqlen_k = 128: no fp16 kernel of this build for gfx942 does that; the "
                "nearest, fp16_d64_mask_pad, takes o_dtype = fp16");
}

// If the catalogue has a kernel that this build lacks, the message says how to build it.
TEST_CASE("kernels of other builds") {
  fmha_fwd_params p = varlen(100, 100);
  p.p_drop = 0.1F;
  CHECK_REFUSED(p, "; the kernel set default has one: build with FMHA_KERNEL_SET=default");
  p.hdim_q = p.hdim_v = 128;  // the next larger, of a larger set
  for (fmha_tensor* t : {&p.q, &p.k, &p.v, &p.o}) t->stride_head = 128, t->stride_seqlen *= 2;
  CHECK_REFUSED(p, "; the kernel set full has one: build with FMHA_KERNEL_SET=full");
  CHECK_REFUSED(problem(FMHA_FP32, 128, 128, 64),
                "; the kernel set full has one: build with FMHA_KERNEL_SET=full");
  CHECK_STATUS(refusal(problem(FMHA_BF16, 128, 128, 64), Arch::kGfx90a), FMHA_UNSUPPORTED,
               "it has: fp16; the kernel set ci has one: build with FMHA_GPU_TARGETS=all");
  Selected selected;
  CHECK_STATUS(select(problem(FMHA_FP16, 128, 128, 256), kDevice, &selected), FMHA_UNSUPPORTED,
               "takes hdim_q");
  CHECK(std::strstr(fmha_last_error(), "kernel set") == nullptr);  // none has it: nothing is said
}

TEST_CASE("launch limits") {
  fmha_fwd_params wide = problem(FMHA_FP16, 128, 128, 64);
  wide.batch = 65536;
  CHECK_REFUSED(wide,
                "batch = 65536: Composable Kernel's and AITER's kernels, which this takes, have at most "
                "65535; split the batch");
  wide.batch = 1;
  wide.seqlen_q = int64_t{65535} * 128 + 1;
  wide.q.stride_seqlen = wide.o.stride_seqlen = 64;
  wide.q.stride_head = wide.o.stride_head = wide.seqlen_q * 64;
  CHECK_REFUSED(wide, "seqlen_q = 8388481: one launch does at most 8388480 rows");
  fmha_fwd_params heads = problem(FMHA_FP16, 1, 128, 64);
  heads.batch = 1;
  heads.nhead_q = heads.nhead_k = 16777216;
  CHECK_SELECTED(heads, "fp16_d128_mask_pad_m16");  // a wave a workgroup, so that there may be more of them
  heads.nhead_q = heads.nhead_k = 67108864;
  CHECK_REFUSED(heads, "nhead_q = 67108864: one launch does at most 67108863");
}

// Two heads of 8192 rows leave most units idle: workgroups would share keys, could this build merge their
// parts.
TEST_CASE("no merge") {
  const fmha::Target device = {Arch::kGfx950, 256};
  CHECK(name_of(test_params(FMHA_BF16, TEST_BSHD, 1, 8192, 8192, 2, 2, 128), device) ==
        "bf16_d128_pad_pingpong");
}

// Every combination of values has a number of its own, below the count: an arch, dtype or family more makes
// the range larger, not ambiguous.
TEST_CASE("keys") {
  using Key = fmha::Key<fmha::Family, fmha::Arch, fmha::DType, bool, fmha::Bias, bool>;
  std::set<size_t> seen;
  for (size_t f = 0; f < fmha::kFamilyCount; ++f) {
    for (size_t a = 0; a < fmha::kArchCount; ++a) {
      for (size_t d = 0; d < fmha::kDTypeCount; ++d) {
        for (size_t b = 0; b < fmha::kBiasCount; ++b) {
          for (int flags = 0; flags < 4; ++flags) {
            const size_t key =
                Key::of(static_cast<fmha::Family>(f), static_cast<Arch>(a), static_cast<fmha::DType>(d),
                        (flags & 1) != 0, static_cast<fmha::Bias>(b), (flags & 2) != 0);
            CHECK(key < Key::kCount);
            CHECK(seen.insert(key).second);
          }
        }
      }
    }
  }
  CHECK(seen.size() == Key::kCount);
  // A row of another build may hold a value that is no key.
  using Pair = fmha::Key<Arch, fmha::DType>;
  CHECK(Pair::holds(Arch::kGfx942, fmha::DType::kFp8));
  CHECK(!Pair::holds(static_cast<Arch>(fmha::kArchCount), fmha::DType::kFp8));
  CHECK(!Pair::holds(Arch::kGfx942, static_cast<fmha::DType>(fmha::kDTypeCount)));
}

// The table begins with rows that nothing may choose although they look best: see table.cc.
TEST_CASE("foreign rows") {
  const auto is_foreign = [](const fmha::Kernel& k) {
    return k.family != fmha::Family::kFwd || static_cast<size_t>(k.origin) >= fmha::kOriginCount ||
           static_cast<size_t>(k.arch) >= fmha::kArchCount;
  };
  CHECK(is_foreign(fmha::kKernels[0]));
  CHECK(is_foreign(fmha::kKernels[1]));
  CHECK(is_foreign(fmha::kKernels[2]));
  fmha_fwd_params p = problem(FMHA_FP16, 128, 128, 64);
  Selected selected;
  CHECK_OK(select(p, kDevice, &selected));
  const int count = selected.count;
  for (p.kernel = 1; p.kernel <= count; ++p.kernel) {
    CHECK_OK(select(p, kDevice, &selected));
    CHECK(!is_foreign(*selected.kernel));
  }
  // Nor does a refusal name one as the nearest.
  CHECK_REFUSED(problem(FMHA_FP16, 128, 128, 30), "the nearest, fp16_d64_mask_pad, takes");
}

TEST_CASE("grid") {
  Selected selected;
  const fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 3, 257, 100, 6, 2, 64);
  CHECK_OK(select(p, kDevice, &selected));
  CHECK(selected.grid.x == 6);
  CHECK(selected.grid.y == 3);
  CHECK(selected.grid.z == 3);
  const fmha_fwd_params empty = test_params(FMHA_FP16, TEST_BSHD, 3, 0, 100, 6, 2, 128);
  CHECK_OK(select(empty, kDevice, &selected));
  CHECK(selected.grid.x == 0);
  CHECK(selected.grid.y == 0);
  CHECK(selected.grid.z == 0);
}

}  // namespace
