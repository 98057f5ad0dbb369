// SPDX-License-Identifier: MIT OR Apache-2.0
// Picks the copies of the instruction table that suit this CPU, once: one for each wave size.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/environment.h"
#include "base/host_cpu.h"
#include "isa/table.h"

namespace fmha::emu {
namespace {

struct Level {
  int number;
  const char* name;
  TableParts (*parts64)();
  TableParts (*parts32)();
};

// A build that saves time has the instructions for waves of one size only.
#if FMHA_EMU_BUILD_W64
#define WIDE(level) level::table_parts
#else
#define WIDE(level) nullptr
#endif
#if FMHA_EMU_BUILD_W32
#define NARROW(level) level##_w32::table_parts
#else
#define NARROW(level) nullptr
#endif

// The levels that were built, lowest first: all three, unless a build asks for fewer to save time.
constexpr Level kLevels[] = {
#if FMHA_EMU_BUILD_V2
    {2, "x86-64-v2", WIDE(v2), NARROW(v2)},
#endif
#if FMHA_EMU_BUILD_V3
    {3, "x86-64-v3", WIDE(v3), NARROW(v3)},
#endif
#if FMHA_EMU_BUILD_V4
    {4, "x86-64-v4", WIDE(v4), NARROW(v4)},
#endif
};

// The best copy whose level is at most `most`, or null.
const Level* level_up_to(int most) {
  const Level* best = nullptr;
  for (const Level& level : kLevels)
    if (level.number <= most) best = &level;
  return best;
}

// $FMHA_EMU_LEVEL=2|3|4 asks for a lower level than the CPU's best, so that tests can compare them.
const Level& chosen_level() {
  const Level* best = level_up_to(x86_64_level());
  if (best == nullptr) {
    std::fprintf(stderr, "amdhip64 software device: this CPU lacks the instructions of %s, which it needs\n",
                 kLevels[0].name);
    std::abort();
  }
  const auto number = static_cast<uint64_t>(best->number);
  const auto lowest = static_cast<uint64_t>(kLevels[0].number);
  return *level_up_to(static_cast<int>(environment_number("FMHA_EMU_LEVEL", lowest, number, number)));
}

const Level& level() {
  static const Level& chosen = chosen_level();
  return chosen;
}

std::vector<Row> joined(TableParts (*parts)(), int wave_size) {
  if (!parts) {
    std::fprintf(stderr,
                 "amdhip64 software device: built without instructions for waves of %d lanes, which this "
                 "program needs (FMHA_EMU_WAVES; `make build` has them)\n",
                 wave_size);
    std::abort();
  }
  std::vector<Row> rows;
  for (const auto& part : parts()) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace

std::span<const Row> isa_rows(int wave_size) {
  if (wave_size == 64) {
    static const std::vector<Row> wide = joined(level().parts64, 64);
    return wide;
  }
  static const std::vector<Row> narrow = joined(level().parts32, 32);
  return narrow;
}
const char* isa_level() { return level().name; }

}  // namespace fmha::emu
