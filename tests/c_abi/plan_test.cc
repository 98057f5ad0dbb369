// SPDX-License-Identifier: MIT OR Apache-2.0
// Plans of several steps that need a workspace: a family of this file's own, chosen by the shared code and
// run over a runtime that counts.
#include "plan/plan.h"

#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "error.h"
#include "fake_runtime.h"
#include "launch/device.h"
#include "memory/workspace.h"
#include "select/choose.h"

// The table: a kernel of another family that would be better, two that split a sum, the second of them
// faster, one that combines the parts, and two more that split: one as fast as the faster, one of more
// registers than the slower.
namespace fmha {
namespace {

constexpr auto kSum = static_cast<Family>(kFamilyCount);  // one more than there are

// "\177ELF" as one raw block.
constexpr unsigned char kPacked[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 4, 0x21, 0, 0, 0x7f, 'E', 'L', 'F'};
constexpr char kHash[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

constexpr Kernel row(const char* name, Family family, int16_t block_size, const CodeObject* code,
                     int16_t vgpr_count = 8) {
  return {.name = name,
          .symbol = name,
          .arch = Arch::kGfx942,
          .family = family,
          .origin = Origin::kCk,
          .dtype = DType::kFp32,
          .block_size = block_size,
          .vgpr_count = vgpr_count,
          .sgpr_count = 8,
          .lds_bytes = 0,
          .scratch_bytes = 0,
          .code = code,
          .fwd = {}};
}

}  // namespace

extern const CodeObject kCodeObjects[] = {
    {.packed = kPacked, .packed_bytes = sizeof kPacked, .bytes = 4, .sha256 = kHash, .base = nullptr},
    {.packed = kPacked, .packed_bytes = sizeof kPacked, .bytes = 4, .sha256 = kHash, .base = nullptr}};
extern const size_t kCodeObjectCount = 2;
extern const Kernel kKernels[] = {
    row("not_a_sum", Family::kFwd, 64, &kCodeObjects[0]),
    row("split_64", kSum, 64, &kCodeObjects[0]),
    row("split_256", kSum, 256, &kCodeObjects[0]),
    row("combine", kSum, 1, &kCodeObjects[1]),
    row("split_256_again", kSum, 256, &kCodeObjects[0]),
    row("split_64_wide", kSum, 64, &kCodeObjects[0], 16),
};
extern const size_t kKernelCount = 6;
extern const AbsentKernel kAbsentKernels[] = {{}};
extern const size_t kAbsentKernelCount = 0;
extern const char* const kBuildInfoJson = "{}";

}  // namespace fmha

namespace {

using fmha::Kernel;

struct SumProblem {
  int64_t count;
  int most_threads;
  fmha::Workspace workspace;
};

// Arguments of the family's kernels.
struct SumArgs {
  void* parts;
  int64_t count;
};

class SumFamily {
 public:
  static constexpr fmha::Family kFamily = fmha::kSum;
  static constexpr fmha::Reasons kReasons = {.second = "fewest registers"};
  using Key = fmha::Key<fmha::Arch, fmha::DType>;
  struct Entry {
    const Kernel* kernel;
    int64_t first_cost;
  };
  static Entry entry_of(const Kernel& k) { return {&k, 1024 - k.block_size}; }
  static size_t key_of(const Kernel& k) { return Key::of(k.arch, k.dtype); }
  static bool is_usable(const Kernel& k) { return Key::holds(k.arch, k.dtype); }

  SumFamily(const SumProblem& problem, fmha::Arch arch) : p_(problem), arch_(arch) {}

  size_t key() const { return Key::of(arch_, fmha::DType::kFp32); }
  static int64_t least_first_cost() { return 0; }
  bool fits(const Entry& e) const {
    return e.kernel->block_size > 1 && e.kernel->block_size <= p_.most_threads;
  }
  static fmha::Cost cost(const Entry& e) { return {e.first_cost, e.kernel->vgpr_count, 0, e.kernel}; }
  [[noreturn]] void raise_unsupported() const { fmha::raise(FMHA_UNSUPPORTED, "no kernel sums that"); }

 private:
  const SumProblem& p_;
  const fmha::Arch arch_;
};

constexpr int64_t kFlagBytes = 256;

// Flags at the workspace's beginning, zeroed; then a part of the sum for each workgroup.
void plan_sum(const SumProblem& problem, const fmha::Chosen& chosen, fmha::Plan& plan) {
  const auto groups = static_cast<uint32_t>((problem.count + 1023) / 1024);
  plan.empty = problem.count == 0;
  plan.workspace_bytes = kFlagBytes + int64_t{groups} * 8;
  auto* const begin = static_cast<char*>(problem.workspace.data);
  plan.add_memset(begin, 0, kFlagBytes);
  new (plan.add_launch<SumArgs>(*chosen.kernel, {groups, 1, 1})) SumArgs{begin + kFlagBytes, problem.count};
  new (plan.add_launch<SumArgs>(fmha::kKernels[3], {1, 1, 1})) SumArgs{begin + kFlagBytes, groups};
}

fmha_status run(const SumProblem& problem, void* stream, const fmha::Extents& extents = {}) {
  return fmha::guard([&] {
    fmha::Device& device = fmha::Device::current();
    fmha::Plan plan;
    plan_sum(problem, fmha::choose(SumFamily(problem, device.target().arch), 0, false), plan);
    device.check_plan_workspace(plan, problem.workspace, extents, "sum_workspace_bytes", {});
    device.run(plan, stream);
  });
}

SumProblem sum(int64_t count) {
  return {count, 256, {device_memory(4096), kFlagBytes + 8 * ((count + 1023) / 1024)}};
}

TEST_CASE("choice") {
  const SumProblem problem = {5000, 256, {nullptr, 0}};
  CHECK(fmha::choose(SumFamily(problem, fmha::Arch::kGfx942), 0, false).kernel == &fmha::kKernels[2]);
  const fmha::Chosen second = fmha::choose(SumFamily(problem, fmha::Arch::kGfx942), 2, false);
  CHECK(second.kernel == &fmha::kKernels[4]);
  CHECK(second.number == 2);
  CHECK(second.count == 4);
  const fmha::Chosen counted = fmha::choose(SumFamily(problem, fmha::Arch::kGfx942), 0, true);
  CHECK(counted.kernel == &fmha::kKernels[2]);
  CHECK(counted.number == 1);
  CHECK(counted.count == 4);
  CHECK(counted.why == std::string("the first in the catalogue of those as good"));
  const SumProblem small = {5000, 64, {nullptr, 0}};
  CHECK(fmha::choose(SumFamily(small, fmha::Arch::kGfx942), 0, false).kernel == &fmha::kKernels[1]);
  const fmha::Chosen narrow = fmha::choose(SumFamily(small, fmha::Arch::kGfx942), 0, true);
  CHECK(narrow.kernel == &fmha::kKernels[1]);
  CHECK(narrow.why == std::string("fewest registers"));
  CHECK_STATUS(fmha::guard([&] { (void)fmha::choose(SumFamily(problem, fmha::Arch::kGfx90a), 0, false); }),
               FMHA_UNSUPPORTED, "no kernel sums that");
  CHECK_STATUS(fmha::guard([&] { (void)fmha::choose(SumFamily(problem, fmha::Arch::kGfx942), 5, false); }),
               FMHA_UNSUPPORTED, "kernel = 5: expected 0 (the library's choice) to 4");
}

// Everything is loaded before anything is enqueued, and each module once.
TEST_CASE("steps") {
  void* const stream = reinterpret_cast<void*>(0x1234);
  const SumProblem problem = sum(5000);
  hip()->load_error = 209;
  CHECK_STATUS(run(problem, stream), FMHA_HIP_ERROR, "hipModuleLoadData (split_256");
  CHECK(hip()->launches == 0);
  CHECK(hip()->memsets == 0);
  hip()->load_error = 0;
  const int loads = hip()->loads;
  CHECK_OK(run(problem, stream));
  CHECK(hip()->loads == loads + 2);
  CHECK(hip()->memsets == 1);
  CHECK(hip()->launches == 2);
  CHECK(hip()->launches_before_memset == 0);
  CHECK(hip()->memset_memory == problem.workspace.data);
  CHECK(hip()->memset_bytes == kFlagBytes);
  CHECK(hip()->memset_value == 0);
  CHECK(hip()->memset_stream == stream);
  CHECK(hip()->stream == stream);
  // The last one: one workgroup of one thread, over the five parts.
  CHECK(std::string(hip()->function_name) == "combine");
  CHECK(hip()->grid[0] == 1);
  CHECK(hip()->block[0] == 1);
  SumArgs args{};
  CHECK(hip()->argument_bytes == sizeof args);
  std::memcpy(&args, hip()->arguments, sizeof args);
  CHECK(args.parts == static_cast<char*>(problem.workspace.data) + kFlagBytes);
  CHECK(args.count == 5);
  CHECK_OK(run(problem, stream));
  CHECK(hip()->loads == loads + 2);
  CHECK(hip()->memsets == 2);
  CHECK(hip()->launches == 4);
}

TEST_CASE("failures") {
  const SumProblem problem = sum(5000);
  fake_hip_state before = *hip();
  hip()->memset_error = 719;
  CHECK_STATUS(run(problem, nullptr), FMHA_HIP_ERROR, "hipMemsetAsync (256 bytes of workspace on device 0");
  CHECK(hip()->launches == before.launches);
  CHECK(hip()->last_error_reads == before.last_error_reads + 1);
  CHECK(std::strstr(fmha::last_error(), "enqueued") == nullptr);  // nothing is
  hip()->memset_error = 0;
  before = *hip();
  hip()->launch_error = 719;
  CHECK_STATUS(run(problem, nullptr), FMHA_HIP_ERROR, "hipModuleLaunchKernel (split_256");
  CHECK(hip()->memsets == before.memsets + 1);
  CHECK(hip()->launches == before.launches + 1);
  CHECK(std::strstr(fmha::last_error(),
                    "; 1 of the call's 3 steps are enqueued: what it writes may hold anything") != nullptr);
  hip()->launches_before_error = 1;
  CHECK_STATUS(run(problem, nullptr), FMHA_HIP_ERROR, "hipModuleLaunchKernel (combine");
  CHECK(fmha::last_error() == doctest::Contains("; 2 of the call's 3 steps are enqueued"));
  hip()->launch_error = 0;
}

TEST_CASE("workspace") {
  const fake_hip_state before = *hip();
  SumProblem problem = sum(5000);
  problem.workspace.bytes -= 1;
  CHECK_STATUS(run(problem, nullptr), FMHA_INVALID_ARGUMENT,
               "workspace_bytes = 295: expected 296 or more (sum_workspace_bytes)");
  problem.workspace.bytes = -1;
  CHECK_STATUS(run(problem, nullptr), FMHA_INVALID_ARGUMENT, "workspace_bytes = -1: expected 296");
  problem.workspace = {nullptr, 4096};
  CHECK_STATUS(run(problem, nullptr), FMHA_INVALID_ARGUMENT,
               "workspace = NULL: expected device memory of workspace_bytes = 296 or more");
  problem = sum(5000);
  problem.workspace.data = static_cast<char*>(problem.workspace.data) + 128;
  CHECK_STATUS(run(problem, nullptr), FMHA_INVALID_ARGUMENT, ": expected an address aligned to 256 bytes");
  alignas(256) static char host[4096];
  problem.workspace.data = host;
  CHECK_STATUS(run(problem, nullptr), FMHA_INVALID_ARGUMENT, "not device memory");
  // Something else of the call lies in it.
  problem = sum(5000);
  fmha::Extents extents;
  extents.add(fmha::array_view("q", static_cast<char*>(problem.workspace.data) + 288, 8, 1), false);
  CHECK_STATUS(run(problem, nullptr, extents), FMHA_INVALID_ARGUMENT,
               "workspace is written but overlaps q: workspace spans 296 bytes");
  CHECK(hip()->launches == before.launches);
  CHECK(hip()->memsets == before.memsets);
  extents.clear();
  extents.add(fmha::array_view("q", static_cast<char*>(problem.workspace.data) + 296, 8, 1), false);
  CHECK_OK(run(problem, nullptr, extents));
  // Nothing to do needs no workspace.
  const fake_hip_state after = *hip();
  CHECK_OK(run({0, 256, {nullptr, 0}}, nullptr));
  CHECK(hip()->launches == after.launches);
  CHECK(hip()->memsets == after.memsets);
}

// Several launches of a step: each is handed its number, and the rest of the arguments as they are.
TEST_CASE("rounds") {
  struct Args {
    int64_t value;
    int32_t round;
    int32_t other;
  };
  fmha::Plan plan;
  new (plan.add_launch<Args>(fmha::kKernels[3], {2, 1, 1})) Args{7, -1, 9};
  plan.repeat(5, offsetof(Args, round));
  plan.add_memset(nullptr, 0, 1);
  CHECK(plan.count() == 2);
  CHECK(plan.operations() == 6);
  const fake_hip_state before = *hip();
  CHECK_OK(fmha::guard([&] { fmha::Device::current().run(plan, nullptr); }));
  CHECK(hip()->launches == before.launches + 5);
  CHECK(hip()->launches_before_memset == hip()->launches);
  Args args{};
  std::memcpy(&args, hip()->arguments, sizeof args);
  CHECK(args.value == 7);
  CHECK(args.round == 4);
  CHECK(args.other == 9);
  CHECK(hip()->grid[0] == 2);
  // A launch that is repeated is as many steps.
  hip()->launch_error = 719;
  hip()->launches_before_error = 3;
  CHECK_STATUS(fmha::guard([&] { fmha::Device::current().run(plan, nullptr); }), FMHA_HIP_ERROR,
               "; 3 of the call's 6 steps are enqueued");
  hip()->launch_error = 0;
}

TEST_CASE("capacity") {
  CHECK_STATUS(fmha::guard([] {
                 fmha::Plan plan;
                 for (size_t i = 0; i <= fmha::Plan::kMostSteps; ++i) plan.add_memset(nullptr, 0, 1);
               }),
               FMHA_INTERNAL, "more steps than Plan holds");
}

}  // namespace
