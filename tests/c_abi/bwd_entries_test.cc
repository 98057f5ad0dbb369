// SPDX-License-Identifier: MIT OR Apache-2.0
// The backward pass's entries over the table in table.cc and a runtime that counts.
#include <cstring>

#include "allocations.h"
#include "args/bwd.h"
#include "bwd_planned.h"
#include "fake_runtime.h"
#include "fmha_rocm.h"

namespace {

using fmha::BwdSumParams;

TEST_CASE("entries") {
  fmha_fwd_params f = forward(4, 2);
  const size_t q = 2 * 100 * 4 * 64 * 2, k = 2 * 300 * 2 * 64 * 2;
  f.q.data = device_memory(q), f.k.data = device_memory(k), f.v.data = device_memory(k);
  f.o.data = device_memory(q), f.lse.data = static_cast<float*>(device_memory(2 * 4 * 100 * 4));
  fmha_bwd_params p = test_bwd_params(&f);
  p.dout.data = device_memory(q), p.dq.data = device_memory(q);
  p.dk.data = device_memory(k), p.dv.data = device_memory(k);
  int64_t bytes = 0;
  CHECK_OK(fmha_bwd_supported(&p));
  CHECK_OK(fmha_bwd_workspace_bytes(&p, &bytes));
  CHECK(bytes == rounded(2 * 4 * 100 * 4) + 2 * 4 * 100 * 64 * 4 + 2 * 2 * 4 * 300 * 64 * 4);
  CHECK_STATUS(fmha_bwd_workspace_bytes(&p, nullptr), FMHA_INVALID_ARGUMENT, "bytes = NULL");
  fmha_kernel_info info{};
  info.struct_size = sizeof info;
  CHECK_OK(fmha_bwd_kernel(&p, &info));
  CHECK(std::string(info.name) == "bwd_fp16_d64");
  CHECK(info.tile_m == 32);
  CHECK(info.tile_n == 128);
  CHECK(info.grid[0] == 3);
  CHECK(info.grid[1] == 4);
  CHECK(info.grid[2] == 2);
  CHECK(info.step_count == 6);
  CHECK(info.candidate == 1);
  CHECK(info.candidate_count == 2);
  CHECK(std::string(info.pipeline) == "kr_ktr_vr_iglp");
  fmha_extent extents[16];
  int32_t count = 0;
  CHECK_OK(fmha_bwd_extents(&p, extents, 16, &count));
  CHECK(count == 9);
  CHECK(std::string(extents[8].name) == "dv.data");
  CHECK(extents[8].written == 1);
  CHECK(std::string(extents[3].name) == "fwd->o.data");
  CHECK(extents[3].written == 0);
  CHECK_STATUS(fmha_bwd_extents(&p, nullptr, 1, &count), FMHA_INVALID_ARGUMENT, "extents = NULL");

  // Nothing is enqueued by a call that fails.
  CHECK_STATUS(fmha_bwd(&p, nullptr), FMHA_INVALID_ARGUMENT,
               "workspace = NULL: expected device memory of workspace_bytes = ");
  CHECK(fmha_last_error() == doctest::Contains("(fmha_bwd_workspace_bytes)"));
  p.workspace = device_memory(static_cast<size_t>(bytes));
  p.workspace_bytes = bytes - 1;
  CHECK_STATUS(fmha_bwd(&p, nullptr), FMHA_INVALID_ARGUMENT, "workspace_bytes = ");
  p.workspace_bytes = bytes;
  void* const dk = p.dk.data;
  p.dk.data = p.workspace;
  CHECK_STATUS(fmha_bwd(&p, nullptr), FMHA_INVALID_ARGUMENT, "workspace is written but overlaps dk");
  alignas(16) static char host[16];
  p.dk.data = host;
  CHECK_STATUS(fmha_bwd(&p, nullptr), FMHA_INVALID_ARGUMENT, "not device memory");
  p.dk.data = dk;
  CHECK(hip()->launches == 0);
  CHECK(hip()->memsets == 0);
  CHECK(hip()->loads == 0);

  // Everything is loaded before anything is enqueued.
  hip()->get_function_error = 500;
  CHECK_STATUS(fmha_bwd(&p, nullptr), FMHA_HIP_ERROR, "hipModuleGetFunction");
  CHECK(hip()->launches == 0);
  CHECK(hip()->memsets == 0);
  hip()->get_function_error = 0;
  CHECK_OK(fmha_bwd_prepare(&p));
  CHECK(hip()->launches == 0);
  CHECK(hip()->memsets == 0);
  const int loads = hip()->loads;
  void* const stream = at(30);
  CHECK_OK(fmha_bwd(&p, stream));
  CHECK(hip()->launches == 5);
  CHECK(hip()->memsets == 1);
  CHECK(hip()->launches_before_memset == 1);
  CHECK(hip()->loads == loads);
  CHECK(hip()->stream == stream);
  CHECK(hip()->memset_stream == stream);
  CHECK(std::string(hip()->function_name) == "bwd_sum_fp16");
  CHECK(hip()->argument_bytes == sizeof(BwdSumParams));
  BwdSumParams last{};
  std::memcpy(&last, hip()->arguments, sizeof last);
  CHECK(last.out == p.dv.data);
  CHECK(last.parts_count == 2);

  // The second call asks whose memory it is, enqueues, and neither allocates nor waits.
  const fake_hip_state before = *hip();
  const long allocated = allocations();
  const fmha_status status = fmha_bwd(&p, stream);
  const long now = allocations();
  CHECK(now == allocated);
  CHECK_OK(status);
  CHECK(hip()->launches == 10);
  CHECK(hip()->memsets == 2);
  CHECK(hip()->loads == loads);
  CHECK(hip()->get_functions == before.get_functions);
  CHECK(hip()->attributes == before.attributes);

  // Nothing to do: no workspace, no launch.
  f.batch = 0;
  p.workspace = nullptr;
  CHECK_OK(fmha_bwd(&p, stream));
  CHECK_OK(fmha_bwd_kernel(&p, &info));
  CHECK(info.step_count == 0);
  CHECK(info.grid[0] == 0);
  CHECK(hip()->launches == 10);
  CHECK(hip()->memsets == 2);
}

}  // namespace
