// SPDX-License-Identifier: MIT OR Apache-2.0
// A call like one before does what it would do without: each call of a random series is also made by a thread
// of its own, which remembers nothing. And what a remembered call asks of HIP.
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "args/fwd_pingpong.h"
#include "fake_runtime.h"
#include "remembered_calls.h"

namespace {

// The outcome of a call.
struct Outcome {
  fmha_status status;
  std::string message;
  int launches, memsets;
  std::string function;
  std::vector<unsigned char> arguments;
  std::vector<unsigned> grid;

  bool operator==(const Outcome&) const = default;
};

// The last launch's, without what lies between the fields of a struct: nobody writes or reads it.
std::vector<unsigned char> arguments() {
  using Args = fmha::PingpongParams;
  using ScoreArgs = fmha::PingpongScoreParams;
  std::vector<unsigned char> bytes(hip()->arguments, hip()->arguments + hip()->argument_bytes);
  using Fp8Args = fmha::PingpongFp8Params;
  static_assert(sizeof(Args) < sizeof(Fp8Args) && sizeof(Fp8Args) < sizeof(ScoreArgs));
  const bool scored = bytes.size() == sizeof(ScoreArgs), fp8 = bytes.size() == sizeof(Fp8Args);
  if (std::strstr(hip()->function_name, "_pingpong") == nullptr ||
      !(scored || fp8 || bytes.size() == sizeof(Args)))
    return bytes;
  constexpr size_t kEnd = offsetof(fmha::PingpongStrides, row) + sizeof(fmha::PingpongStrides::row);
  for (const size_t strides : {offsetof(Args, q_strides), offsetof(Args, k_strides),
                               offsetof(Args, v_strides), offsetof(Args, o_strides)}) {
    std::memset(&bytes[strides + kEnd], 0, sizeof(fmha::PingpongStrides) - kEnd);
  }
  constexpr size_t kScaleEnd = offsetof(Args, scale) + sizeof(Args::scale);
  std::memset(&bytes[kScaleEnd], 0, offsetof(Args, parts) - kScaleEnd);
  constexpr size_t kTileEnd = offsetof(Args, parts.first_tile) + sizeof(int32_t);
  std::memset(&bytes[kTileEnd], 0, sizeof(Args) - kTileEnd);
  constexpr size_t kCapEnd = offsetof(ScoreArgs, cap) + sizeof(fmha::PingpongCap);
  constexpr size_t kFactorEnd = offsetof(Fp8Args, v_descale) + sizeof(float);
  if (fp8) std::memset(&bytes[kFactorEnd], 0, sizeof(Fp8Args) - kFactorEnd);
  if (scored) std::memset(&bytes[kCapEnd], 0, sizeof(ScoreArgs) - kCapEnd);
  return bytes;
}

Outcome outcome_of(AnyCall call) {
  const int launches = hip()->launches, memsets = hip()->memsets;
  const fmha_status status = call.run();
  if (status != FMHA_OK || hip()->launches == launches) {
    return {status, status == FMHA_OK ? "" : fmha_last_error(), 0, 0, "", {}, {}};
  }
  return {status,
          "",
          hip()->launches - launches,
          hip()->memsets - memsets,
          hip()->function_name,
          arguments(),
          {hip()->grid, hip()->grid + 3}};
}

Outcome outcome_anew(const AnyCall& call) {
  Outcome outcome;
  std::thread([&] { outcome = outcome_of(call); }).join();
  return outcome;
}

// Three calls of each shape, whose addresses differ: aligned or not, there or not, HIP's or not, apart or
// not.
void test_series(Family family, Series& series) {
  CAPTURE(family);
  int launched = 0, refused = 0, unsupported = 0;
  for (int shape = 0; shape < 300; ++shape) {
    AnyCall call = series.next(family);
    for (int turn = 0; turn < 4; ++turn) {
      series.move(call);
      const Outcome anew = outcome_anew(call);
      launched += anew.launches > 0 ? 1 : 0;
      refused += anew.status == FMHA_INVALID_ARGUMENT ? 1 : 0;
      unsupported += anew.status == FMHA_UNSUPPORTED ? 1 : 0;
      const Outcome remembered = outcome_of(call);
      CHECK(remembered.status == anew.status);
      CHECK(remembered.message == anew.message);
      CHECK(remembered == anew);
    }
  }
  INFO(launched, " launched, ", unsupported, " unsupported");
  const bool enough = launched > 150 || unsupported > 600;
  CHECK(enough);
  CHECK(refused > 30);
}

// One question for each argument, none of them twice, and one for the device.
void test_questions(Family family, Series& series, int questions) {
  CAPTURE(family);
  AnyCall call = series.plain(family);
  const fmha_status status = call.run();
  if (status == FMHA_UNSUPPORTED) return;  // by a build of some kernels only
  CHECK_OK(status);
  const fake_hip_state before = *hip();
  for (int i = 0; i < 10; ++i) CHECK_OK(call.run());
  CHECK(hip()->pointer_queries - before.pointer_queries == 10 * questions);
  CHECK(hip()->get_devices == before.get_devices + 10);
  CHECK(hip()->attributes == before.attributes);
  CHECK(hip()->capture_queries == before.capture_queries);
  CHECK(hip()->loads == before.loads);
}

// Another device of the process, and another thread, know their own.
void test_devices(Family family, Series& series) {
  CAPTURE(family);
  AnyCall call = series.plain(family);
  call.skip_memory_check();
  const Outcome first = outcome_of(call);
  CHECK(hip_set_device(1) == 0);
  CHECK(outcome_of(call) == first);
  CHECK(outcome_of(call) == first);
  CHECK(hip_set_device(0) == 0);
  CHECK(outcome_of(call) == first);
  CHECK(outcome_anew(call) == first);
}

TEST_CASE("a random series of each family") {
  Series series;
  for (const Family family : {Family::kFwd, Family::kVarlen, Family::kBwd, Family::kDecode, Family::kAppend,
                              Family::kMerge, Family::kQuantize}) {
    test_series(family, series);
    test_devices(family, series);
  }
}

TEST_CASE("questions of a remembered call") {
  Series series;
  test_questions(Family::kFwd, series, 5);       // q, k, v, o and lse
  test_questions(Family::kVarlen, series, 6);    // and one array of lengths, of queries and of keys
  test_questions(Family::kBwd, series, 10);      // and dout, dq, dk, dv and the workspace
  test_questions(Family::kDecode, series, 7);    // q, o, lse, seqused_k, k, v and block_table
  test_questions(Family::kAppend, series, 6);    // k, v, seqused_k, block_table, k and v of the cache
  test_questions(Family::kMerge, series, 4);     // o_parts, lse_parts, o and lse
  test_questions(Family::kQuantize, series, 4);  // x, out, descale and the workspace
}

}  // namespace
