// SPDX-License-Identifier: MIT OR Apache-2.0
#include "launch/schedule.h"

#include <bit>
#include <charconv>
#include <string_view>

#include "base/environment.h"

namespace fmha::emu {
namespace {

constexpr const char* kVariable = "FMHA_EMU_SCHEDULE";
constexpr const char* kExpected = "round, reverse or random:<seed>, a seed of 64 bits";
constexpr uint64_t kLongestSlice = 64;  // instructions; short against the distance of barriers

bool parse(std::string_view text, Schedule* schedule) {
  if (text.empty() || text == "round") return true;
  if (text == "reverse") {
    schedule->kind = Schedule::kReverse;
    return true;
  }
  constexpr std::string_view kPrefix = "random:";
  if (!text.starts_with(kPrefix) || text.size() == kPrefix.size()) return false;
  schedule->kind = Schedule::kRandom;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data() + kPrefix.size(), end, schedule->seed);
  return failure == std::errc() && stop == end;
}

}  // namespace

bool schedule_from_environment(Schedule* schedule, std::string* error) {
  const char* text = environment_text(kVariable);
  if (!text || parse(text, schedule)) return true;
  *error = std::string(kVariable) + " must be " + kExpected + ", got \"" + text + "\"";
  return false;
}

void check_schedule_variable() {
  Schedule schedule;
  std::string error;
  if (!schedule_from_environment(&schedule, &error)) reject_environment(kVariable, kExpected);
}

WaveOrder::WaveOrder(const Schedule& schedule, uint64_t workgroup)
    : kind_(schedule.kind), state_(schedule.seed * 0x9e3779b97f4a7c15u + workgroup) {}

// SplitMix64: any state is a good one, so seeds need no mixing.
uint64_t WaveOrder::random() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

uint32_t WaveOrder::next(uint32_t running) {
  if (kind_ == Schedule::kRound) return static_cast<uint32_t>(std::countr_zero(running));
  if (kind_ == Schedule::kReverse) return 31 - static_cast<uint32_t>(std::countl_zero(running));
  for (uint64_t skip = random() % static_cast<uint64_t>(std::popcount(running)); skip; --skip)
    running &= running - 1;
  return static_cast<uint32_t>(std::countr_zero(running));
}

uint64_t WaveOrder::choose(uint64_t n) {
  return kind_ == Schedule::kRound ? 0 : kind_ == Schedule::kReverse ? n - 1 : random() % n;
}

uint64_t WaveOrder::slice() {
  return kind_ == Schedule::kRandom ? 1 + random() % kLongestSlice : ~uint64_t{0};
}

}  // namespace fmha::emu
