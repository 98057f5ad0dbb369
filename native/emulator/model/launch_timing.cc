// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/launch_timing.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

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

Json range(double a, double b) { return {{"low", std::min(a, b)}, {"high", std::max(a, b)}}; }

}  // namespace

void set_timing_request(const TimingRequest& request) {
  std::lock_guard lock(request_mutex);
  current = request;
}

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
  added_[workgroup_] = static_cast<double>(std::exchange(atomic_bytes_, 0));
  multiplied_[workgroup_] = static_cast<double>(std::exchange(macs_, 0));
  for (WaveTrace& trace : traces_) trace.clear();
  l1_.clear();
}

Json LaunchTiming::events() const {
  Json j = {{"slot_cycles", shape_.slot_cycles},
            {"workgroup", sample_.middle()},
            {"waves_per_workgroup", traces_.size()}};
  const auto list = [&](const char* name, auto get) {
    Json& all = j[name] = Json::array();
    for (const IssueEvent& e : events_) all.push_back(get(e));
  };
  list("wave", [](const IssueEvent& e) { return e.wave; });
  list("simd", [](const IssueEvent& e) { return e.simd; });
  list("slot", [](const IssueEvent& e) { return e.slot; });
  list("slots", [](const IssueEvent& e) { return e.slots; });
  list("stalled", [](const IssueEvent& e) { return e.stalled; });
  list("reason", [](const IssueEvent& e) { return static_cast<uint64_t>(e.stall); });
  list("instruction", [](const IssueEvent& e) { return e.inst; });
  for (size_t s = 0; s < kStalls; ++s) j["reasons"].push_back(stall_name(static_cast<Stall>(s)));
  Json& instructions = j["instructions"] = Json::object();
  std::set<uint32_t> seen;
  for (const IssueEvent& e : events_) {
    if (!seen.insert(e.inst).second) continue;
    const Inst& inst = text_of(launch_).insts[e.inst];
    instructions[std::to_string(e.inst)] = {{"pc", inst.pc},
                                            {"text", disassemble(inst, launch_.code->arch())},
                                            {"class", class_name(class_of(*inst.row))}};
  }
  return j;
}

Json LaunchTiming::json(uint64_t arrays) {
  finish();
  const double requested = Sample::Fit(sample_, requested_).total();
  const Traffic traffic{requested, std::min(requested, static_cast<double>(arrays)),
                        Sample::Fit(sample_, added_).total()};
  CardTime card[kTimingEnds];
  for (size_t end = 0; end < kTimingEnds; ++end)
    card[end] = CardModel(sample_, workgroups_, copies_, values_[end], shape_).run(times_[end], traffic);
  const double tera = 2e-12 * Sample::Fit(sample_, multiplied_).total();
  const auto mean = [&](double CardTime::* share) { return (card[0].*share + card[1].*share) / 2; };
  Json j = {{"card", short_name(profile_card().name)},
            {"sampled_workgroups", sample_.workgroups().size()},
            {"workgroups", workgroups_},
            {"workgroups_per_cu", copies_},
            {"cycles", range(card[0].cycles, card[1].cycles)},
            {"seconds", range(card[0].seconds, card[1].seconds)},
            {"clock_hz", range(card[0].clock_hz, card[1].clock_hz)},
            {"tflops", range(tera / card[0].seconds, tera / card[1].seconds)},
            {"binds",
             {{"matrix", mean(&CardTime::matrix)},
              {"vector", mean(&CardTime::vector)},
              {"lds", mean(&CardTime::lds)},
              {"l1", mean(&CardTime::l1)},
              {"memory", mean(&CardTime::memory)},
              {"latency", mean(&CardTime::latency)},
              {"barriers", mean(&CardTime::barriers)}}},
            {"units", Json::array()}};
  // A compute unit's cycles over each sampled workgroup and those beside it.
  for (const uint64_t workgroup : sample_.workgroups()) {
    const auto cycles = [&](size_t end) { return static_cast<double>(times_[end].at(workgroup).cycles); };
    j["units"].push_back({{"workgroup", workgroup}, {"cycles", range(cycles(0), cycles(1))}});
  }
  if (request_.most_events) j["events"] = events();
  return j;
}

}  // namespace fmha::emu
