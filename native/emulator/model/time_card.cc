// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/time_card.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "model/profile_constants.h"

namespace fmha::emu {

template <class Get>
Sample::Fit CardModel::fit(const std::map<uint64_t, CuTime>& times, Get get) const {
  std::map<uint64_t, double> known;
  for (const auto& [workgroup, time] : times) known[workgroup] = static_cast<double>(get(time));
  return {sample_, known};
}

// Cycles until the last workgroup has ended.
double CardModel::makespan(const Sample::Fit& cycles) const {
  const uint64_t xcds = profile_card().xcds.value;
  const uint64_t rooms = profile_card().compute_units.value / shape_.units / xcds * copies_;
  const double start = values_[TimingKey::kStartCycles];
  double last = 0;
  for (uint64_t xcd = 0; xcd < std::min(xcds, workgroups_); ++xcd) {
    std::priority_queue<double, std::vector<double>, std::greater<>> free;  // when a room is
    for (uint64_t i = xcd; i < workgroups_; i += xcds) {
      double begin = 0;
      if (free.size() == rooms) {
        begin = free.top();
        free.pop();
      }
      free.push(begin + start + cycles.of(i));
      last = std::max(last, begin + start + cycles.of(i));
    }
  }
  return last;
}

CardTime CardModel::run(const std::map<uint64_t, CuTime>& times, const Traffic& traffic) const {
  const auto slot_cycles = static_cast<double>(shape_.slot_cycles), simds = static_cast<double>(shape_.simds);
  const auto total = [&](auto get) { return fit(times, get).total() / copies_; };
  const double matrix = total([](const CuTime& t) { return t.matrix_slots; }) * slot_cycles;
  const double vector = total([](const CuTime& t) { return t.vector_slots; }) * slot_cycles;
  const Sample::Fit cycles = fit(times, [](const CuTime& t) { return t.cycles; });
  const double unit_cycles = cycles.total() / copies_;  // of compute units with work

  CardTime card;
  const auto xcds = static_cast<double>(std::min(profile_card().xcds.value, workgroups_));
  const double l2 = traffic.l2_bytes / (values_[TimingKey::kL2Bandwidth] * xcds);
  card.cycles = std::max(makespan(cycles), l2);
  // The whole card draws one budget of power.
  const auto units = static_cast<double>(profile_card().compute_units.value);
  const double ports = card.cycles * units / shape_.units * simds;
  const double peak = static_cast<double>(profile_card().clock_khz.value) * 1e3;
  card.clock_hz = peak * std::min(1.0, 1 - values_[TimingKey::kClockMatrix] * matrix / ports -
                                           values_[TimingKey::kClockVector] * vector / ports);
  // Launch after launch, arrays that fit stay in the Infinity Cache.
  const bool fits = traffic.memory_bytes <= static_cast<double>(profile_card().mall_bytes.value);
  const double arrays =
      traffic.memory_bytes / values_[fits ? TimingKey::kMallBandwidth : TimingKey::kHbmBandwidth];
  const double memory = std::max(arrays, traffic.atomic_bytes / values_[TimingKey::kAtomicBandwidth]);
  const double busy = std::max(card.cycles / card.clock_hz, memory);
  card.memory = std::max(memory, l2 / card.clock_hz) / busy;
  card.cycles = busy * card.clock_hz;
  card.seconds = busy + values_[TimingKey::kLaunchSeconds];

  const auto pipes = static_cast<double>(shape_.pipes);
  card.matrix = matrix / (unit_cycles * simds);
  card.vector = vector / (unit_cycles * simds);
  card.lds = total([](const CuTime& t) { return t.lds_cycles; }) / (unit_cycles * pipes);
  card.l1 = total([](const CuTime& t) { return t.l1_cycles; }) / (unit_cycles * pipes);
  const double slots = unit_cycles * simds / slot_cycles;
  card.latency = total([](const CuTime& t) { return t.latency_slots; }) / slots;
  card.barriers = total([](const CuTime& t) { return t.barrier_slots; }) / slots;
  return card;
}

}  // namespace fmha::emu
