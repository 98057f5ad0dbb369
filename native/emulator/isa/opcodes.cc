// SPDX-License-Identifier: MIT OR Apache-2.0
#include "isa/opcodes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/once.h"
#include "isa/table.h"

namespace fmha::emu {
namespace {

// Every arch names its tables here, whatever else it shares with another.
std::vector<std::span<const OpcodeRun>> tables_of(Arch arch) {
  switch (arch) {
    case Arch::kGfx90a:
      return {gfx9::shared(), gfx9::gfx90a()};
    case Arch::kGfx942:
      return {gfx9::shared(), gfx9::cdna3(), gfx9::gfx942()};
    case Arch::kGfx950:
      return {gfx9::shared(), gfx9::cdna3(), gfx9::gfx950()};
    case Arch::kGfx1030:
    case Arch::kGfx1031:
    case Arch::kGfx1032:
    case Arch::kGfx1033:
    case Arch::kGfx1034:
    case Arch::kGfx1035:
    case Arch::kGfx1036:
      return {gfx10::shared()};
    case Arch::kGfx1100:
    case Arch::kGfx1101:
    case Arch::kGfx1102:
    case Arch::kGfx1103:
      return {gfx11::shared(), gfx11::memory()};
    case Arch::kGfx1150:
    case Arch::kGfx1151:
    case Arch::kGfx1152:
    case Arch::kGfx1153:
      return {gfx11::shared(), gfx11::memory(), gfx11::scalar_floats(), gfx11::gfx1150()};
    case Arch::kGfx1200:
    case Arch::kGfx1201:
      return {gfx12::shared(), gfx11::memory(), gfx11::scalar_floats()};
  }
  std::abort();
}

struct Bound {
  std::vector<BoundRow> rows;
  std::deque<std::string> names;  // of the rows that the arch spells its own way
};

class Binder {
 public:
  Binder(Arch arch, int wave_size) : arch_(arch), rows_(isa_rows(wave_size)), seen_(rows_.size()) {
    uint16_t index = 0;
    for (const Row& row : rows_) {
      if (!by_name_.emplace(row.mnemonic, index++).second) fail("two rows are called", row.mnemonic);
    }
  }

  void add(const OpcodeRun& run) {
    const std::string_view names = run.names;
    uint16_t opcode = run.first;
    for (size_t at = 0; at < names.size(); ++opcode) {
      const size_t end = std::min(names.find(' ', at), names.size());
      add(run.format, opcode, names.substr(at, end - at));
      at = end + 1;
    }
  }

  Bound bound;

 private:
  void add(Format format, uint16_t opcode, std::string_view name) {
    const size_t equals = name.find('=');
    const bool renamed = equals != name.npos;
    const auto found = by_name_.find(renamed ? name.substr(equals + 1) : name);
    if (found == by_name_.end()) return fail("an opcode table names an instruction without a row:", name);
    const uint16_t index = found->second;
    if (seen_[index]) return fail("the opcode tables name twice", name);
    seen_[index] = true;
    BoundRow row{rows_[index], format, opcode, index};
    if (renamed) row.mnemonic = bound.names.emplace_back(name.substr(0, equals)).c_str();
    bound.rows.push_back(row);
  }

  void fail(const char* what, std::string_view name) const {
    std::fprintf(stderr, "amdhip64 software device: %s: %s %.*s\n", arch_name(arch_), what,
                 static_cast<int>(name.size()), name.data());
    std::abort();
  }

  Arch arch_;
  std::span<const Row> rows_;
  std::unordered_map<std::string_view, uint16_t> by_name_;
  std::vector<bool> seen_;
};

Bound bind(Arch arch, int wave_size) {
  Binder binder(arch, wave_size);
  for (const auto& table : tables_of(arch)) {
    for (const OpcodeRun& run : table) binder.add(run);
  }
  return std::move(binder.bound);
}

}  // namespace

std::span<const BoundRow> isa_rows(Arch arch, int wave_size) {
  static Once once[kArchCount * kWaveSizes];
  static Bound bound[kArchCount * kWaveSizes];
  const size_t i = place_of(arch, wave_size);
  once[i].run([&] { bound[i] = bind(arch, wave_size); });
  return bound[i].rows;
}

}  // namespace fmha::emu
