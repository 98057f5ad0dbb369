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

int best_level() {
  const int level = x86_64_level();
  if (level >= 2) return level;
  std::fprintf(stderr, "amdhip64 software device: this CPU lacks SSE4.2 (x86-64-v2), which it needs\n");
  std::abort();
}

// $FMHA_EMU_LEVEL=2|3|4 asks for a lower level than the CPU's best, so that tests can compare them.
int chosen_level() {
  const auto best = static_cast<uint64_t>(best_level());
  return static_cast<int>(environment_number("FMHA_EMU_LEVEL", 2, best, best));
}

Table make_table() {
  std::span<const Row> parts[kTableParts];
  Table table;
  switch (chosen_level()) {
    case 4:
      v4::table_parts(parts);
      table.level = "x86-64-v4";
      break;
    case 3:
      v3::table_parts(parts);
      table.level = "x86-64-v3";
      break;
    default:
      v2::table_parts(parts);
      table.level = "x86-64-v2";
      break;
  }
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
