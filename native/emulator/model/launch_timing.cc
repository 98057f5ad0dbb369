// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/launch_timing.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <mutex>
#include <string>
#include <utility>

#include "core/copy_out.h"
#include "core/emu_tools.h"
#include "hip/state.h"
#include "model/profile.h"
#include "model/profile_constants.h"

namespace fmha::emu {
namespace {

std::mutex request_mutex;
TimingRequest current;

uint64_t workgroups_of(const Launch& launch) {
  return uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
}

// Workgroups that share a compute unit: as many as fit, unless there are too few.
uint32_t copies_of(const Launch& launch) {
  const uint64_t units = profile_card().compute_units.value / unit_shape(launch).units;
  const uint64_t needed = (workgroups_of(launch) + units - 1) / units;
  const uint64_t room = std::max<uint64_t>(occupancy_of(launch).workgroups_per_cu, 1);
  return static_cast<uint32_t>(std::max<uint64_t>(std::min(needed, room), 1));
}

// "mi300x", "rx7900xtx": of a product's name what comes after its maker and its line.
std::string short_name(const std::string& name) {
  size_t from = 0;
  for (int words = 0; words < 2 && from != std::string::npos; ++words) from = name.find(' ', from) + 1;
  std::string text;
  for (const char c : name.substr(from)) {
    if (c != ' ') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

void write_range(Json& j, const char* name, double a, double b) {
  j.open(name).real("low", std::min(a, b)).real("high", std::max(a, b)).close();
}

}  // namespace

TimingRequest timing_request() {
  std::lock_guard lock(request_mutex);
  return current;
}

LaunchTiming::LaunchTiming(const Launch& launch, const TimingRequest& request)
    : launch_(launch),
      request_(request),
      workgroups_(workgroups_of(launch)),
      shape_(unit_shape(launch)),
      copies_(copies_of(launch)),
      sample_(launch.grid, request.points),
      values_{timing_values(0), timing_values(1)},
      traces_(waves_of(launch)) {}

void LaunchTiming::begin(uint64_t workgroup) {
  finish();
  workgroup_ = workgroup;
  recording_ = sample_.has(workgroup);
}

// Times the workgroup that is over.
void LaunchTiming::finish() {
  if (!recording_) return;
  recording_ = false;
  const bool tell = workgroup_ == sample_.middle();
  for (size_t end = 0; end < kTimingEnds; ++end) {
    const TextFacts& facts = launch_.code->facts(launch_.kernel->wave_size);
    CuModel unit(text_of(launch_).insts.data(), facts, values_[end], shape_);
    std::vector<IssueEvent>* events = tell && end == 0 ? &events_ : nullptr;
    times_[end][workgroup_] = unit.run(traces_, copies_, events, request_.most_events);
  }
  requested_[workgroup_] = static_cast<double>(std::exchange(l2_bytes_, 0));
  multiplied_[workgroup_] = static_cast<double>(std::exchange(macs_, 0));
  for (WaveTrace& trace : traces_) trace.clear();
  l1_.clear();
}

void LaunchTiming::write_events(Json& j) const {
  j.open("events").number("slot_cycles", shape_.slot_cycles).number("workgroup", sample_.middle());
  j.number("waves_per_workgroup", traces_.size());
  const auto list = [&](const char* name, auto get) {
    j.open_array(name);
    for (const IssueEvent& e : events_) j.number(nullptr, get(e));
    j.close_array();
  };
  list("wave", [](const IssueEvent& e) { return e.wave; });
  list("simd", [](const IssueEvent& e) { return e.simd; });
  list("slot", [](const IssueEvent& e) { return e.slot; });
  list("slots", [](const IssueEvent& e) { return e.slots; });
  list("stalled", [](const IssueEvent& e) { return e.stalled; });
  list("reason", [](const IssueEvent& e) { return static_cast<uint64_t>(e.stall); });
  list("instruction", [](const IssueEvent& e) { return e.inst; });
  j.open_array("reasons");
  for (size_t s = 0; s < kStalls; ++s) j.string(nullptr, stall_name(static_cast<Stall>(s)));
  j.close_array().open("instructions");
  std::map<uint32_t, bool> seen;
  for (const IssueEvent& e : events_) {
    if (!seen.try_emplace(e.inst, true).second) continue;
    const Inst& inst = text_of(launch_).insts[e.inst];
    j.open(std::to_string(e.inst).c_str()).number("pc", inst.pc);
    j.string("text", disassemble(inst, launch_.code->arch()));
    j.string("class", class_name(class_of(*inst.row))).close();
  }
  j.close().close();
}

void LaunchTiming::write(Json& j, uint64_t arrays) {
  finish();
  const double requested = Sample::Fit(sample_, requested_).total();
  const Traffic traffic{requested, std::min(requested, static_cast<double>(arrays))};
  CardTime card[kTimingEnds];
  for (size_t end = 0; end < kTimingEnds; ++end)
    card[end] = CardModel(sample_, workgroups_, copies_, values_[end], shape_).run(times_[end], traffic);
  j.open("time").string("card", short_name(profile_card().name));
  j.number("sampled_workgroups", sample_.workgroups().size()).number("workgroups", workgroups_);
  j.number("workgroups_per_cu", copies_);
  write_range(j, "cycles", card[0].cycles, card[1].cycles);
  write_range(j, "seconds", card[0].seconds, card[1].seconds);
  write_range(j, "clock_hz", card[0].clock_hz, card[1].clock_hz);
  const double tera = 2e-12 * Sample::Fit(sample_, multiplied_).total();
  write_range(j, "tflops", tera / card[0].seconds, tera / card[1].seconds);
  j.open("binds");
  const auto mean = [&](const char* name, double CardTime::* share) {
    j.real(name, (card[0].*share + card[1].*share) / 2);
  };
  mean("matrix", &CardTime::matrix);
  mean("vector", &CardTime::vector);
  mean("lds", &CardTime::lds);
  mean("l1", &CardTime::l1);
  mean("memory", &CardTime::memory);
  mean("latency", &CardTime::latency);
  mean("barriers", &CardTime::barriers);
  j.close();
  // A compute unit's cycles over each sampled workgroup and those beside it.
  j.open_array("units");
  for (const uint64_t workgroup : sample_.workgroups()) {
    j.open(nullptr).number("workgroup", workgroup);
    write_range(j, "cycles", static_cast<double>(times_[0].at(workgroup).cycles),
                static_cast<double>(times_[1].at(workgroup).cycles));
    j.close();
  }
  j.close_array();
  if (request_.most_events) write_events(j);
  j.close();
}

}  // namespace fmha::emu

using namespace fmha::emu;

int fmha_emu_timing(const fmha_emu_timing_request* request) {
  if (request && (!request->points || request->only_sampled > 1)) {
    return fail(hipErrorInvalidValue,
                "fmha_emu_timing: points is %u, expected 1 or more; only_sampled is %u, expected 0 or 1",
                request->points, request->only_sampled);
  }
  if (request && !has_clock()) {
    return fail(hipErrorNotSupported, "fmha_emu_timing: the clock has no constants of an %s",
                profile_card().name);
  }
  std::lock_guard lock(request_mutex);
  current = request ? TimingRequest{true, request->only_sampled != 0, request->points, request->events}
                    : TimingRequest{};
  return hipSuccess;
}

int fmha_emu_timing_constants(char* out, size_t out_bytes) {
  Json j;
  j.open(nullptr);
  for (const TimingConstant& c : timing_constants()) {
    j.open(c.name).real("fast", c.fast).real("slow", c.slow);
    j.string("unit", c.unit).string("source", c.source).close();
  }
  j.close();
  return copy_out(j.text(), out, out_bytes);
}

int fmha_emu_set_timing_constant(const char* name, double fast, double slow) {
  if (!name) return reset_timing_constants(), hipSuccess;
  const auto key = timing_key(name);
  if (!key || !std::isfinite(fast) || !std::isfinite(slow) || fast < 0 || slow < 0) {
    return fail(hipErrorInvalidValue,
                "fmha_emu_set_timing_constant: got \"%s\", %g, %g, expected a name of "
                "fmha_emu_timing_constants and two numbers of 0 or more",
                name, fast, slow);
  }
  set_timing_constant(*key, fast, slow);
  return hipSuccess;
}
