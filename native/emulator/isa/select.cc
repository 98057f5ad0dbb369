// SPDX-License-Identifier: MIT OR Apache-2.0
// Picks the copy of the instruction table that suits this CPU, once.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/environment.h"
#include "core/host_cpu.h"
#include "isa/inst.h"
#include "isa/table.h"

namespace fmha::emu {
namespace {

struct Table {
  const char* level;
  std::vector<Row> rows;
};

struct Level {
  int number;
  const char* name;
  void (*parts)(std::span<const Row>* out);
};

// The copies that were built, lowest first: all three, unless a development build asks for fewer to save
// time.
constexpr Level kLevels[] = {
#if FMHA_EMU_BUILD_V2
    {2, "x86-64-v2", v2::table_parts},
#endif
#if FMHA_EMU_BUILD_V3
    {3, "x86-64-v3", v3::table_parts},
#endif
#if FMHA_EMU_BUILD_V4
    {4, "x86-64-v4", v4::table_parts},
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

Table make_table() {
  std::span<const Row> parts[kTableParts];
  const Level& level = chosen_level();
  Table table;
  table.level = level.name;
  level.parts(parts);
  for (const auto& part : parts) table.rows.insert(table.rows.end(), part.begin(), part.end());
  return table;
}

const Table& table() {
  static const Table t = make_table();
  return t;
}

}  // namespace

std::span<const Row> isa_rows() { return table().rows; }
const char* isa_level() { return table().level; }

}  // namespace fmha::emu
