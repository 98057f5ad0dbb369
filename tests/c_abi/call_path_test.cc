// SPDX-License-Identifier: MIT OR Apache-2.0
// The way from fmha_fwd to hipModuleLaunchKernel, over a runtime that counts: what is called, what a kernel
// is handed, that nothing is allocated after the first call, and how the runtime's failures are reported.
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "allocations.h"
#include "args/fwd.h"
#include "fake_runtime.h"
#include "fmha_rocm.h"
#include "params.h"

namespace {

fmha_fwd_params made() {
  fmha_fwd_params p = test_params(FMHA_FP16, TEST_BSHD, 2, 200, 150, 4, 2, 64);
  p.q.data = device_memory(2 * 200 * 4 * 64 * 2);
  p.k.data = device_memory(2 * 150 * 2 * 64 * 2);
  p.v.data = device_memory(2 * 150 * 2 * 64 * 2);
  p.o.data = device_memory(2 * 200 * 4 * 64 * 2);
  p.lse.data = static_cast<float*>(device_memory(2 * 4 * 200 * 4));
  return p;
}

const fmha_fwd_params& problem() {
  static const fmha_fwd_params p = made();
  return p;
}

// Before anything works: each failure is reported, and is not remembered as the answer.
void check_first_call_failures(const fmha_fwd_params& p) {
  hip()->init_error = 100;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_HIP_ERROR, "hipInit");
  CHECK(hip()->last_error_reads == 1);
  CHECK(fmha_hip_runtime_path() != nullptr);  // asks for no device
  hip()->init_error = 0;

  hip()->capability_major = 11;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_UNSUPPORTED, "device 0 has compute capability 11.4");

  // Cards of one compute capability are told apart by name: one that is near another of ours is not that one.
  hip()->capability_minor = 0;
  hip()->arch_name = "gfx1109:xnack-";
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_UNSUPPORTED,
               "device 0 is gfx1109: this library knows only gfx90a,");
  hip()->arch_name = "gfx110";
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_UNSUPPORTED,
               "device 0 is gfx110: this library knows only gfx90a,");
  hip()->arch_name = "gfx942";
  hip()->capability_major = 9;
  hip()->capability_minor = 4;

  hip()->load_error = 209;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_HIP_ERROR,
               "hipErrorNoBinaryForGpu (209): the fake runtime was told");
  CHECK_STATUS(fmha_fwd_prepare(&p), FMHA_HIP_ERROR, "device 0 has that compute capability but another arch");
  hip()->load_error = 900;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_HIP_ERROR, "under graph capture prepare the call before it");
  hip()->load_error = 0;
  hip()->get_function_error = 500;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_HIP_ERROR, "hipModuleGetFunction");
  CHECK(hip()->unloads == 1);
  hip()->get_function_error = 0;
  CHECK(hip()->launches == 0);
}

TEST_CASE("the first call of the process") {
  const fmha_fwd_params& p = problem();
  check_first_call_failures(p);
  fmha_kernel_info info{};
  info.struct_size = sizeof info;
  CHECK_OK(fmha_fwd_kernel(&p, &info));
  CHECK(hip()->loads == 4);  // the failed ones: describing a kernel loads nothing
  CHECK_OK(fmha_fwd_prepare(&p));
  CHECK(hip()->loads == 5);
  CHECK(hip()->launches == 0);
  void* stream = reinterpret_cast<void*>(0x1234);
  CHECK_OK(fmha_fwd(&p, stream));
  CHECK(hip()->loads == 5);
  CHECK(hip()->launches == 1);
  CHECK(hip()->inits == 2);
  CHECK(std::string(hip()->function_name) == info.name);
  CHECK(std::string(info.arch) == "gfx942");
  CHECK(std::strlen(info.sha256) == 64);
  CHECK(hip()->stream == stream);
  CHECK(hip()->lds_bytes == 0);
  CHECK(std::memcmp(hip()->grid, info.grid, sizeof info.grid) == 0);
  CHECK(hip()->grid[0] == 4);
  CHECK(hip()->grid[2] == 2);
  CHECK(hip()->grid[1] == static_cast<unsigned>((200 + info.tile_m - 1) / info.tile_m));
  CHECK(hip()->block[0] == static_cast<unsigned>(info.block_size));
  CHECK(hip()->block[1] == 1);
  CHECK(hip()->block[2] == 1);
  fmha::FwdKernelParams args;
  CHECK(hip()->argument_bytes == sizeof args);
  std::memcpy(&args, hip()->arguments, sizeof args);
  CHECK(args.q == p.q.data);
  CHECK(args.o == p.o.data);
  CHECK(args.lse == p.lse.data);
  CHECK(args.seqlen_k == 150);
}

// After the first: one question for the device, one for each tensor's memory, one launch. All of these are
// legal while a stream is captured. No lock can be seen from here, but no allocation can.
TEST_CASE("second call") {
  const fmha_fwd_params& p = problem();
  CHECK_OK(fmha_fwd(&p, nullptr));
  const fake_hip_state before = *hip();
  const long allocated = allocations();
  fmha_status status = FMHA_OK;
  for (int i = 0; i < 10; ++i) status |= fmha_fwd(&p, nullptr);
  const long now = allocations();  // before a check allocates
  CHECK(now == allocated);
  CHECK(status == FMHA_OK);
  CHECK(hip()->launches == before.launches + 10);
  CHECK(hip()->get_devices == before.get_devices + 10);
  CHECK(hip()->pointer_queries == before.pointer_queries + 50);
  CHECK(hip()->inits == before.inits);
  CHECK(hip()->attributes == before.attributes);
  CHECK(hip()->loads == before.loads);
  CHECK(hip()->get_functions == before.get_functions);
  CHECK(hip()->last_error_reads == before.last_error_reads);
}

// Kernels of one code object come with its module: whatever is asked for, a module is loaded once.
TEST_CASE("shared modules") {
  fmha_fwd_params p = problem();
  fmha_kernel_info info{};
  info.struct_size = sizeof info;
  CHECK_OK(fmha_fwd_kernel(&p, &info));
  CHECK_OK(fmha_fwd_prepare(&p));
  std::set<std::string> loaded = {info.sha256};
  int shared = 0;
  for (const fmha_mask mask : {FMHA_MASK_CAUSAL, FMHA_MASK_NONE}) {
    p.mask = mask;
    p.kernel = 0;
    CHECK_OK(fmha_fwd_kernel(&p, &info));
    const int count = info.candidate_count;
    for (p.kernel = 1; p.kernel <= count; ++p.kernel) {
      CHECK_OK(fmha_fwd_kernel(&p, &info));
      const bool known = !loaded.insert(info.sha256).second;
      const fake_hip_state before = *hip();
      CHECK_OK(fmha_fwd_prepare(&p));
      CHECK_OK(fmha_fwd(&p, nullptr));
      CHECK(hip()->loads == before.loads + (known ? 0 : 1));
      CHECK(hip()->unloads == before.unloads);
      CHECK((hip()->get_functions == before.get_functions) == known);
      CHECK(std::string(hip()->function_name) == info.name);
      shared += known ? 1 : 0;
    }
  }
  CHECK(shared > 1);
}

// Candidates by their numbers: each is what runs, and choosing allocates nothing either.
TEST_CASE("candidates") {
  fmha_fwd_params p = problem();
  fmha_kernel_info info{};
  info.struct_size = sizeof info;
  CHECK_OK(fmha_fwd_kernel(&p, &info));
  CHECK(info.candidate == 1);
  CHECK(info.candidate_count >= 2);
  CHECK(info.pipeline[0] == 'q');
  const int count = info.candidate_count;
  for (p.kernel = 1; p.kernel <= count; ++p.kernel) {
    CHECK_OK(fmha_fwd_kernel(&p, &info));
    CHECK(info.candidate == p.kernel);
    CHECK(info.candidate_count == count);
    CHECK_OK(fmha_fwd_prepare(&p));
    const long allocated = allocations();
    const fmha_status status = fmha_fwd(&p, nullptr);
    const long now = allocations();
    CHECK_OK(status);
    CHECK(now == allocated);
    CHECK(std::string(hip()->function_name) == info.name);
    CHECK(hip()->grid[1] == static_cast<unsigned>((200 + info.tile_m - 1) / info.tile_m));
  }
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_UNSUPPORTED, "the candidates for this problem");
}

TEST_CASE("nothing to do") {
  fmha_fwd_params p = problem();
  const int launches = hip()->launches;
  p.seqlen_q = 0;
  CHECK_OK(fmha_fwd(&p, nullptr));
  CHECK(hip()->launches == launches);
  fmha_kernel_info info{};
  info.struct_size = sizeof info;
  CHECK_OK(fmha_fwd_kernel(&p, &info));
  CHECK(info.step_count == 0);
  CHECK(info.grid[0] == 0);
}

// The forward pass needs no workspace, and looks at none.
TEST_CASE("workspace") {
  fmha_fwd_params p = problem();
  int64_t bytes = -1;
  CHECK_OK(fmha_fwd_workspace_bytes(&p, &bytes));
  CHECK(bytes == 0);
  CHECK_STATUS(fmha_fwd_workspace_bytes(&p, nullptr), FMHA_INVALID_ARGUMENT, "bytes = NULL");
  p.workspace = reinterpret_cast<void*>(3);
  p.workspace_bytes = -1;
  CHECK_OK(fmha_fwd(&p, nullptr));
  bytes = -1;
  p.dtype = 99;
  CHECK_STATUS(fmha_fwd_workspace_bytes(&p, &bytes), FMHA_INVALID_ARGUMENT, "dtype = 99");
  CHECK(bytes == -1);
}

bool is_extent(const fmha_extent& extent, const char* name, const void* data, int64_t bytes,
               int32_t written) {
  return std::strcmp(extent.name, name) == 0 && extent.data == data && extent.bytes == bytes &&
         extent.written == written && extent.reserved == 0;
}

TEST_CASE("extents") {
  fmha_fwd_params p = problem();
  constexpr int64_t kQBytes = int64_t{2} * 200 * 4 * 64 * 2, kKBytes = int64_t{2} * 150 * 2 * 64 * 2;
  fmha_extent extents[16];
  std::memset(extents, 0xff, sizeof extents);
  int32_t count = -1;
  CHECK_OK(fmha_fwd_extents(&p, extents, 16, &count));
  CHECK(count == 5);
  CHECK(is_extent(extents[0], "q.data", p.q.data, kQBytes, 0));
  CHECK(is_extent(extents[1], "k.data", p.k.data, kKBytes, 0));
  CHECK(is_extent(extents[2], "v.data", p.v.data, kKBytes, 0));
  CHECK(is_extent(extents[3], "o.data", p.o.data, kQBytes, 1));
  CHECK(is_extent(extents[4], "lse.data", p.lse.data, 2 * 4 * 200 * 4, 1));
  CHECK(extents[5].written == -1);
  // The first ones, and how many there are.
  std::memset(extents, 0xff, sizeof extents);
  CHECK_OK(fmha_fwd_extents(&p, extents, 2, &count));
  CHECK(count == 5);
  CHECK(is_extent(extents[1], "k.data", p.k.data, kKBytes, 0));
  CHECK(extents[2].written == -1);
  CHECK_OK(fmha_fwd_extents(&p, nullptr, 0, &count));
  CHECK(count == 5);
  // Tensors that are still to be allocated; rows further apart; gaps count.
  p.q.data = p.o.data = nullptr;
  p.k.stride_seqlen *= 3;
  CHECK_OK(fmha_fwd_extents(&p, extents, 16, &count));
  CHECK(is_extent(extents[0], "q.data", nullptr, kQBytes, 0));
  CHECK(is_extent(extents[3], "o.data", nullptr, kQBytes, 1));
  CHECK(is_extent(extents[1], "k.data", p.k.data,
                  ((p.k.stride_batch + 149 * p.k.stride_seqlen + p.k.stride_head) + 64) * 2, 0));
  p.seqlen_k = 0;
  CHECK_OK(fmha_fwd_extents(&p, extents, 16, &count));
  CHECK(count == 3);
  CHECK(is_extent(extents[1], "o.data", nullptr, kQBytes, 1));
  p.batch = 0;
  CHECK_OK(fmha_fwd_extents(&p, extents, 16, &count));
  CHECK(count == 0);
  CHECK_STATUS(fmha_fwd_extents(&p, extents, 16, nullptr), FMHA_INVALID_ARGUMENT, "count = NULL");
  CHECK_STATUS(fmha_fwd_extents(&p, extents, -1, &count), FMHA_INVALID_ARGUMENT, "capacity = -1: expected 0");
  CHECK_STATUS(fmha_fwd_extents(&p, nullptr, 1, &count), FMHA_INVALID_ARGUMENT, "extents = NULL");
  p.dtype = 99;
  CHECK_STATUS(fmha_fwd_extents(&p, extents, 16, &count), FMHA_INVALID_ARGUMENT, "dtype = 99");
}

// ROCm's words for a stream of another device than the current one do not say what is wrong.
TEST_CASE("foreign stream") {
  const fmha_fwd_params& p = problem();
  for (const int error : {101, 400}) {
    hip()->launch_error = error;
    CHECK_STATUS(fmha_fwd(&p, reinterpret_cast<void*>(0x1234)), FMHA_HIP_ERROR, "on device 0, grid 4 x");
    CHECK(std::strstr(fmha_last_error(),
                      "stream 0x1234: expected a stream of that device, the thread's current"));
  }
  hip()->launch_error = 0;
}

// hipStreamLegacy, which ROCm before 7 does not take.
TEST_CASE("legacy stream") {
  const fmha_fwd_params& p = problem();
  CHECK_OK(fmha_fwd(&p, reinterpret_cast<void*>(0x1234)));
  CHECK_OK(fmha_fwd(&p, reinterpret_cast<void*>(1)));
  CHECK(hip()->stream == nullptr);
  CHECK_OK(fmha_fwd(&p, reinterpret_cast<void*>(2)));  // hipStreamPerThread
  CHECK(hip()->stream == reinterpret_cast<void*>(2));
}

TEST_CASE("launch failure") {
  const fmha_fwd_params& p = problem();
  hip()->launch_error = 719;
  const int reads = hip()->last_error_reads;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_HIP_ERROR, "hipModuleLaunchKernel");
  CHECK(fmha_last_error() == doctest::Contains("hipErrorFake (719)"));
  CHECK(hip()->last_error_reads == reads + 1);
  hip()->launch_error = 0;
  CHECK_OK(fmha_fwd(&p, nullptr));
  // A message stays until the next failure, and belongs to its thread.
  CHECK(fmha_last_error() == doctest::Contains("hipErrorFake (719)"));
  std::thread([] { CHECK(std::string(fmha_last_error()) == ""); }).join();
}

TEST_CASE("memory") {
  const fmha_fwd_params& good = problem();
  const int launches = hip()->launches;
  alignas(16) static char host[64];
  const char* const names[] = {"q.data", "k.data", "v.data", "o.data"};
  for (int i = 0; i < 4; ++i) {
    fmha_fwd_params p = good;
    (&p.q + i)->data = host;
    CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_INVALID_ARGUMENT, names[i]);
    CHECK(fmha_last_error() == doctest::Contains("not device memory"));
    CHECK_STATUS(fmha_fwd_supported(&p), FMHA_INVALID_ARGUMENT, names[i]);
  }
  fmha_fwd_params p = good;
  p.lse.data = reinterpret_cast<float*>(host);
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_INVALID_ARGUMENT, "lse.data");

  // Another device's memory is refused, another device's pinned host memory is not; both numberings of types.
  for (const int version : {50700000, 60200000, 70100000}) {
    hip()->version = version;
    p = good;
    CHECK(hip_set_device(1) == 0);
    p.k.data = device_memory(2 * 150 * 2 * 64 * 2);
    CHECK(hip_set_device(0) == 0);
    CHECK_STATUS(fmha_fwd_prepare(&p), FMHA_INVALID_ARGUMENT,
                 "memory of device 1; expected memory of the current device 0");
    CHECK(hip_set_device(1) == 0);
    CHECK(hip_host_malloc(&p.k.data, 2 * 150 * 2 * 64 * 2) == 0);
    CHECK(hip_set_device(0) == 0);
    CHECK_OK(fmha_fwd_prepare(&p));
  }
  CHECK(hip()->launches == launches);
}

// An error of HIP itself says nothing about the pointer: after a fault of the GPU every call returns it.
TEST_CASE("pointer query failure") {
  const fmha_fwd_params& p = problem();
  hip()->pointer_error = 719;
  const int reads = hip()->last_error_reads;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_HIP_ERROR, "hipPointerGetAttribute (device of q.data = ");
  CHECK(fmha_last_error() == doctest::Contains("hipErrorFake (719)"));
  CHECK(hip()->last_error_reads == reads + 1);
  hip()->pointer_error = 1;  // hipErrorInvalidValue
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_INVALID_ARGUMENT, "q.data = ");
  CHECK(fmha_last_error() == doctest::Contains("not device memory"));
  hip()->pointer_error = 0;
}

// Memory of a captured hipMallocAsync has device 0, as ROCm says it, whatever device the stream is of.
TEST_CASE("captured memory") {
  const fmha_fwd_params& p = problem();
  void* stream = reinterpret_cast<void*>(0x1234);
  CHECK(hip_set_device(1) == 0);
  hip()->capturing = stream;
  CHECK_OK(fmha_fwd(&p, stream));
  const int queries = hip()->capture_queries;
  CHECK(queries == 5);  // q, k, v, o and lse
  for (void* other :
       {static_cast<void*>(nullptr), reinterpret_cast<void*>(1), reinterpret_cast<void*>(0x99)}) {
    CHECK_STATUS(fmha_fwd(&p, other), FMHA_INVALID_ARGUMENT,
                 "memory of device 0; expected memory of the current device 1 (FMHA_NO_MEMORY_CHECK");
  }
  CHECK(hip()->capture_queries == queries + 1);  // the null stream cannot be captured
  CHECK(hip_set_device(0) == 0);
  CHECK_OK(fmha_fwd(&p, stream));
  CHECK(hip()->capture_queries == queries + 1);  // nor is it asked while nothing is odd
  // Memory of device 1 is refused as ever.
  fmha_fwd_params foreign = p;
  CHECK(hip_set_device(1) == 0);
  foreign.k.data = device_memory(2 * 150 * 2 * 64 * 2);
  CHECK(hip_set_device(0) == 0);
  CHECK_STATUS(fmha_fwd(&foreign, stream), FMHA_INVALID_ARGUMENT, "memory of device 1; expected");
  hip()->capturing = nullptr;
}

// A caller that knows the memory's device spares HIP the questions.
TEST_CASE("no memory check") {
  fmha_fwd_params p = problem();
  const int queries = hip()->pointer_queries, launches = hip()->launches;
  p.flags = FMHA_NO_MEMORY_CHECK;
  CHECK_OK(fmha_fwd(&p, nullptr));
  CHECK_OK(fmha_fwd_prepare(&p));
  CHECK(hip()->pointer_queries == queries);
  CHECK(hip()->launches == launches + 1);
  alignas(16) static char host[2 * 150 * 2 * 64 * 2];
  p.k.data = host;
  CHECK_OK(fmha_fwd(&p, nullptr));
  p.flags = 2;
  CHECK_STATUS(fmha_fwd(&p, nullptr), FMHA_INVALID_ARGUMENT,
               "flags = 0x2: expected 0 or FMHA_NO_MEMORY_CHECK");
}

TEST_CASE("devices") {
  const fmha_fwd_params& good = problem();
  fmha_fwd_params p = good;
  p.q.data = p.k.data = p.v.data = p.o.data = p.lse.data = nullptr;
  const int loads = hip()->loads;
  CHECK(hip_set_device(2) == 0);
  CHECK_OK(fmha_fwd_prepare(&p));
  CHECK_OK(fmha_prepare(&p));        // its older name
  CHECK(hip()->loads == loads + 1);  // a device loads for itself, once
  CHECK(hip_set_device(4096) == 0);
  CHECK_STATUS(fmha_fwd_prepare(&p), FMHA_UNSUPPORTED, "current device is 4096");
  CHECK(hip_set_device(0) == 0);
}

TEST_CASE("kernel info struct") {
  const fmha_fwd_params& p = problem();
  CHECK_STATUS(fmha_fwd_kernel(&p, nullptr), FMHA_INVALID_ARGUMENT, "info = NULL");
  struct Future {
    fmha_kernel_info known;
    int64_t unknown;
  } info{};
  CHECK_STATUS(fmha_fwd_kernel(&p, &info.known), FMHA_ABI_MISMATCH, "info->struct_size = 0");
  info.known.struct_size = sizeof info.known - 1;
  CHECK_STATUS(fmha_fwd_kernel(&p, &info.known), FMHA_ABI_MISMATCH, "info->struct_size");
  // The first header's struct ended after sha256; what lies beyond is not touched.
  info.known.struct_size = 72;
  info.known.candidate = 77;
  CHECK_OK(fmha_fwd_kernel(&p, &info.known));
  CHECK(info.known.sha256 != nullptr);
  CHECK(info.known.candidate == 77);
  CHECK(info.known.pipeline == nullptr);
  // The second header's ended after pipeline.
  info.known.struct_size = 88;
  info.known.step_count = info.known.reserved = 77;
  CHECK_OK(fmha_fwd_kernel(&p, &info.known));
  CHECK(info.known.pipeline != nullptr);
  CHECK(info.known.step_count == 77);
  CHECK(info.known.reserved == 77);
  // The third header's after the reserved word.
  for (const size_t size : {size_t{96}, sizeof info.known}) {
    info.known.struct_size = static_cast<uint32_t>(size);
    info.known.reserved = 77;
    CHECK_STATUS(fmha_fwd_kernel(&p, &info.known), FMHA_INVALID_ARGUMENT, "info->reserved = 77: expected 0");
    info.known.reserved = 0;
    CHECK_OK(fmha_fwd_kernel(&p, &info.known));
    CHECK((info.known.why != nullptr) == (size == sizeof info.known));
  }
  CHECK(info.known.step_count == 1);
  CHECK(info.known.reserved == 0);
  info.known.struct_size = sizeof info;
  CHECK_OK(fmha_fwd_kernel(&p, &info.known));
  CHECK(info.known.name != nullptr);
  CHECK(info.known.struct_size == sizeof info);
  CHECK(info.unknown == 0);
  info.unknown = 1;
  CHECK_STATUS(fmha_fwd_kernel(&p, &info.known), FMHA_ABI_MISMATCH, "is set");
}

}  // namespace
