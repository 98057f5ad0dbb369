// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/timing_constants.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <span>

#include "core/dialect.h"
#include "model/profile_constants.h"

namespace fmha::emu {
namespace {

constexpr const char kAssumed[] = "assumed; not published for this card";
// mt4g: results for an MI300X (a virtual function) in caps-tum/mt4g at 231c5bcc, sample_results. Latencies by
// chasing pointers.
constexpr const char kMall[] =
    "assumed; the fast end is the L2's: another workgroup of the XCD has fetched the line";

// Stands in the order of TimingKey.
constexpr std::array<TimingConstant, kTimingKeys> kTable{{
    {"lds_latency", 51, 128, "cycles", "mt4g: 51 for a dword; the slow end, for wide reads: assumed"},
    {"scalar_latency", 48, 250, "cycles", "mt4g: 48, and 172 from the L2; the slow end, under load: assumed"},
    {"l1_latency", 110, 150, "cycles", "mt4g: 116; the ends around it: assumed"},
    {"l2_latency", 220, 500, "cycles", "mt4g: 288; the ends around it: assumed"},
    {"mall_latency", 220, 900, "cycles", kMall},
    {"hbm_latency", 220, 1400, "cycles",
     "mt4g: 900, in 1 of 20 cases more than 1115; the fast end is the L2's: another workgroup of the XCD has "
     "fetched the line; the slow end, under load: assumed"},
    {"store_latency", 300, 800, "cycles", kAssumed},
    {"queue_cycles", 128, 64, "cycles", "how far LDS and L1 may lag behind their requests: assumed"},
    {"taken_branch_slots", 4, 8, "slots", "GCN white paper: 16 cycles; LLVM, SISchedule.td: WriteBranch 8"},
    {"branch_slots", 1, 4, "slots", kAssumed},
    {"barrier_slots", 1, 8, "slots", kAssumed},
    {"matrix_result_slots", 4, 4, "slots", "LLVM, GCNHazardRecognizer.cpp: passes + 3 wait states on CDNA 3"},
    {"matrix_issue_slots", 0, 1, "slots",
     "of the vector port, that a matrix instruction takes to issue: assumed"},
    {"vector_result_slots", 1, 1, "slots",
     "from the end of a vector instruction to who reads its result: calibrated on attn-dsl-bench's "
     "counters of AITER's d128 at 16384 keys, matrix 72.1 %, LDS 39.7 %; with 0 they are 83.8 % and 45 %"},
    {"transcendental_slots", 4, 4, "slots", "LLVM, SISchedule.td: WriteTrans32, a quarter of the rate"},
    {"matrix_slots", 0, 0, "slots", "that a matrix instruction occupies its pipe; 0: its passes"},
    {"transcendental_issue_slots", 0, 0, "slots",
     "of the vector port, that a transcendental instruction takes; 0: all of its time"},
    {"start_cycles", 100, 1000, "cycles",
     "from the end of a workgroup to the next one's first step: assumed"},
    {"launch_seconds", 2e-6, 8e-6, "s", kAssumed},
    {"l2_bandwidth", 2048, 917, "bytes a cycle an XCD",
     "AMD CDNA 3 architecture white paper, \"Memory\": 2 kB a clock for each XCD; mt4g: 15.4 TB/s over 8 "
     "XCDs"},
    {"mall_bandwidth", 17.2e12, 3.7e12, "bytes/s",
     "AMD CDNA 3 architecture white paper, \"Memory\"; mt4g: 5.8 TB/s; the slow end: HBM's, for arrays that "
     "are not in it"},
    {"hbm_bandwidth", 5.3e12, 3.7e12, "bytes/s",
     "AMD CDNA 3 architecture white paper, \"Memory\"; mt4g: 4.0 TB/s read, 4.4 written; the slow end: 70 % "
     "of the peak, assumed"},
    {"atomic_bandwidth", 1.14e12, 0.86e12, "bytes/s",
     "of the lanes of atomics: calibrated on AITER's README, backward, dQ added up in float32, 4 x 64/8 "
     "heads x 8192 without a mask, whose atomics need 0.98 TB/s; the ends: assumed, as far from it as an "
     "MI355X's"},
    {"clock_matrix", 0.451, 0.451, "of the peak clock at full use",
     "AMD, rocm.blogs.amd.com, \"Measuring Max-Achievable FLOPs - Part 2\": bf16 GEMM, 708 TFLOPS at 1207 "
     "MHz"},
    {"clock_vector", 0.01, 0.18, "of the peak clock at full use",
     "calibrated on the times of AITER's d128 rtna of the sources that time kernels only: AITER's README, "
     "4 x 64 heads x 8192, asks for 0.05, moonmath-ai, 2 x 24 x 8192, for 0.25; their mean less and plus "
     "their standard deviation, each with the weight of its source's rows, 94 and 27"},
}};

// Constants that differ on an MI355X. None of them but atomic_bandwidth is calibrated.
constexpr const char kOfMi300x[] = "assumed; as an MI300X's";
constexpr TimingConstant kMi355x[] = {
    {"transcendental_slots", 2, 4, "slots",
     "LLVM, SISchedule.td: WriteTrans32; the fast end, twice the rate of CDNA 3: assumed"},
    {"l2_bandwidth", 2048, 917, "bytes a cycle an XCD", kOfMi300x},
    {"mall_bandwidth", 17.2e12, 5.6e12, "bytes/s",
     "the fast end: assumed, as an MI300X's; the slow end: HBM's, for arrays that are not in it"},
    {"hbm_bandwidth", 8e12, 5.6e12, "bytes/s",
     "AMD Instinct MI355X data sheet; the slow end: 70 % of the peak, assumed"},
    {"atomic_bandwidth", 1.45e12, 1.1e12, "bytes/s",
     "of the lanes of atomics: calibrated on AITER's README, as an MI300X's: 1.25 TB/s; the fast end: what "
     "Composable Kernel's published 465 TFLOPS need with tiles of 128 keys; the slow end takes as much "
     "longer than 1.25 TB/s as the fast end takes less"},
    {"clock_matrix", 0, 0.451, "of the peak clock at full use",
     "assumed; from a clock that never falls to one that falls as an MI300X's"},
    {"clock_vector", 0, 0.18, "of the peak clock at full use",
     "assumed; from a clock that never falls to one that falls as an MI300X's"},
};

// Constants that differ on a Radeon, whose slots are cycles. None of them is calibrated.
constexpr const char kOfMca[] = "LLVM, SISchedule.td: GFX11SpeedModel, GFX12SpeedModel";
constexpr const char kHowFar[] =
    "assumed; the slow end: nothing of another wave runs beside a matrix instruction";
constexpr TimingConstant kRadeon[] = {
    {"atomic_bandwidth", 1e15, 1e15, "bytes/s", "assumed: no bound; not published for these cards"},
    {"lds_latency", 20, 128, "cycles",
     "LLVM, SISchedule.td: WriteLDS 20; the slow end, for wide reads under load: assumed"},
    {"scalar_latency", 20, 250, "cycles",
     "LLVM, SISchedule.td: WriteSMEM 20; the slow end, under load: assumed"},
    {"l1_latency", 80, 150, "cycles", kAssumed},
    {"l2_latency", 200, 400, "cycles", kAssumed},
    {"mall_latency", 200, 500, "cycles",
     "the slow end: chipsandcheese.com, \"Latency Testing is Hard (RDNA 3 Power Saving)\", 150 to 199 ns on "
     "an RX 7900 XTX; the fast end is the L2's: another workgroup has fetched the line"},
    {"hbm_latency", 200, 1000, "cycles",
     "GDDR6's: assumed; the fast end is the L2's: another workgroup has fetched the line"},
    {"taken_branch_slots", 8, 32, "slots", "LLVM, SISchedule.td: WriteBranch 32; the fast end: assumed"},
    {"branch_slots", 1, 8, "slots", kAssumed},
    {"barrier_slots", 1, 32, "slots", kAssumed},
    {"matrix_result_slots", 1, 8, "slots", kAssumed},
    {"vector_result_slots", 4, 4, "slots", kOfMca},
    {"transcendental_slots", 4, 4, "slots",
     "AMD RDNA white paper: a transcendental unit of a quarter of the lanes"},
    {"transcendental_issue_slots", 1, 4, "slots",
     "AMD RDNA white paper: others issue beside it; the slow end, that they do not: assumed"},
};
constexpr TimingConstant kRx7900xtx[] = {
    {"matrix_slots", 32, 32, "slots",
     "AMD Radeon RX 7900 XTX product page: 122.8 TFLOPS of 96 units at 2.5 GHz, 128 multiply-adds a cycle a "
     "SIMD; whatever the type"},
    {"matrix_issue_slots", 1, 32, "slots", kHowFar},
    {"l2_bandwidth", 3072, 1024, "bytes a cycle", kAssumed},
    {"mall_bandwidth", 5.3e12, 0.96e12, "bytes/s",
     "AMD Radeon RX 7900 XTX product page; the slow end: GDDR6's, for arrays that are not in it"},
    {"hbm_bandwidth", 0.96e12, 0.67e12, "bytes/s",
     "AMD Radeon RX 7900 XTX product page; the slow end: 70 % of it, assumed"},
    {"clock_matrix", 0, 0.3, "of the peak clock at full use",
     "assumed; from a clock that never falls to one that by itself explains GEMM of 86 TFLOPS "
     "(zzc0721/torch-performance-test-data, issue 103)"},
    {"clock_vector", 0, 0.1, "of the peak clock at full use", kAssumed},
};
constexpr TimingConstant kRx9070xt[] = {
    {"matrix_slots", 16, 16, "slots",
     "AMD Radeon RX 9070 XT product page: 195 TFLOPS of 64 units at 2.97 GHz, 256 multiply-adds a cycle a "
     "SIMD; whatever the type"},
    {"matrix_issue_slots", 1, 16, "slots", kHowFar},
    {"l2_bandwidth", 4096, 1024, "bytes a cycle", kAssumed},
    {"mall_bandwidth", 4e12, 0.64e12, "bytes/s",
     "the fast end: assumed; the slow end: GDDR6's, for arrays that are not in it"},
    {"hbm_bandwidth", 0.64e12, 0.45e12, "bytes/s",
     "AMD Radeon RX 9070 XT product page; the slow end: 70 % of it, assumed"},
    {"clock_matrix", 0, 0.42, "of the peak clock at full use",
     "assumed; from a clock that never falls to one that by itself explains GEMM of 113.5 TFLOPS "
     "(ROCm/rocm-libraries, issue 10861)"},
    {"clock_vector", 0, 0.1, "of the peak clock at full use", kAssumed},
};

using Table = std::array<TimingConstant, kTimingKeys>;

// Cards that the clock has constants of, by their names in native/archs.toml: what differs from an MI300X.
struct CardRows {
  std::string_view card;
  std::span<const TimingConstant> rows;
};
constexpr CardRows kCardRows[] = {{"AMD Instinct MI300X", {}},
                                  {"AMD Instinct MI355X", kMi355x},
                                  {"AMD Radeon RX 7900 XTX", kRx7900xtx},
                                  {"AMD Radeon RX 9070 XT", kRx9070xt}};

const CardRows* rows_of_card() {
  const auto found = std::ranges::find(kCardRows, std::string_view(profile_card().name), &CardRows::card);
  return found == std::end(kCardRows) ? nullptr : found;
}

Table table_of_card() {
  Table table = kTable;
  const auto replace = [&table](std::span<const TimingConstant> rows) {
    for (const TimingConstant& row : rows) {
      if (const auto key = timing_key(row.name)) table[static_cast<size_t>(*key)] = row;
    }
  };
  if (is_rdna(device_arch().isa)) replace(kRadeon);
  if (const CardRows* card = rows_of_card()) replace(card->rows);
  return table;
}

std::mutex table_mutex;
std::optional<Table> replaced;

}  // namespace

bool has_clock() { return rows_of_card() != nullptr; }

std::array<TimingConstant, kTimingKeys> timing_constants() {
  std::lock_guard lock(table_mutex);
  return replaced ? *replaced : table_of_card();
}

TimingValues timing_values(size_t end) {
  const auto rows = timing_constants();
  TimingValues values;
  for (size_t i = 0; i < kTimingKeys; ++i) {
    values.at(static_cast<TimingKey>(i)) = end ? rows[i].slow : rows[i].fast;
  }
  return values;
}

std::optional<TimingKey> timing_key(std::string_view name) {
  for (size_t i = 0; i < kTimingKeys; ++i) {
    if (name == kTable[i].name) return static_cast<TimingKey>(i);
  }
  return std::nullopt;
}

void set_timing_constant(TimingKey key, double fast, double slow) {
  std::lock_guard lock(table_mutex);
  if (!replaced) replaced = table_of_card();
  TimingConstant& row = (*replaced)[static_cast<size_t>(key)];
  row.fast = fast;
  row.slow = slow;
  row.source = "set by the caller";
}

void reset_timing_constants() {
  std::lock_guard lock(table_mutex);
  replaced.reset();
}

}  // namespace fmha::emu
