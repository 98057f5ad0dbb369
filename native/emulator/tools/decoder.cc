// SPDX-License-Identifier: MIT OR Apache-2.0
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/copy_out.h"
#include "base/emu_tools.h"
#include "code/code_object.h"
#include "code/disasm_operand.h"
#include "isa/table.h"

namespace {

using namespace fmha::emu;

const char* format_name(Format f) {
  constexpr const char* kNames[] = {"SOP1",  "SOP2",  "SOPC", "SOPP",   "SOPK",    "SMEM", "VOP1",
                                    "VOP2",  "VOPC",  "VOP3", "VOP3B",  "VOP3P",   "MAI",  "DS",
                                    "MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH", "VOPD"};
  static_assert(std::size(kNames) == static_cast<size_t>(Format::kVopd) + 1);
  return kNames[static_cast<int>(f)];
}
const char* type_name(Type t) {
  constexpr const char* kNames[] = {"none", "i16",    "f16",    "bf16",    "i32",    "f32",  "i64",
                                    "f64",  "pk_i16", "pk_f16", "pk_bf16", "pk_f32", "mask", "b96",
                                    "b128", "b192",   "b256",   "b512",    "b1024"};
  static_assert(std::size(kNames) == static_cast<size_t>(Type::kB1024) + 1);
  return kNames[static_cast<int>(t)];
}
std::string flag_names(RowFlags flags) {
  // clang-format off
  constexpr const char* kNames[] = {
      "reads_vcc", "writes_vcc", "reads_dst", "writes_exec", "scalar_dst", "literal_k", "literal_middle",
      "has_modifiers", "no_src", "writes_src0", "writes_m0", "acc_dst", "acc_src", "mixed_sources",
      "selects_byte", "register_src", "one_form", "no_suffix", "no_dst_sel", "half_constants", "branch",
      "jump", "barrier", "transcendental", "dot", "fma64", "read_lane", "write_lane", "refused", "load",
      "store", "atomic", "two_offsets", "stride64", "by_lane", "to_lds", "may_go_to_lds", "high_half",
      "counted", "cache_control", "needs_m0", "late_vcc", "signed_literal", "truth_table", "swaps_lanes",
      "own_op_sel", "permlane", "vector_nop", "no_result_modifiers", "selects_source", "loads_scales",
      "places_late", "sets_denorms", "of_floats", "mad64", "dpp_too", "selects_shift"};
  // clang-format on
  static_assert(kSelectsShift == RowFlags{1} << (std::size(kNames) - 1), "name the new flag");
  std::string s;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (flags >> i & 1) s += std::string(s.empty() ? "" : "|") + kNames[i];
  }
  return s;
}

// The archs that have a row: for each name and format under which one has it, the opcodes by arch, or -1.
using Bindings = std::map<std::pair<std::string, std::string>, std::vector<int>>;

}  // namespace

int fmha_emu_disassemble(int arch, int wave_size, const void* text_bytes, size_t bytes, uint64_t base,
                         char* out, size_t out_bytes) {
  if (arch < 0 || arch >= kArchCount) return 0;
  const auto a = static_cast<Arch>(arch);
  if (!has_waves_of(arch_info(a), wave_size)) return 0;
  const DecodedText decoded = decode(a, wave_size, static_cast<const uint8_t*>(text_bytes), bytes, base);
  std::string s;
  for (const Inst& inst : decoded.insts) {
    if (inst.bytes == 0) continue;  // the mark behind the last one
    s += text("%llx: ", static_cast<unsigned long long>(inst.pc)) + disassemble(inst, a) + "\n";
  }
  return copy_out(s, out, out_bytes);
}

int fmha_emu_rows(char* out, size_t out_bytes) {
  // By row: those of waves of 64 and of 32 have the same names, but for MFMA. Types are those of the arch's
  // own.
  std::map<std::string, std::pair<const Row*, Bindings>> rows;
  for (const int wave_size : {32, 64}) {
    for (const Row& row : isa_rows(wave_size)) rows.try_emplace(row.mnemonic, &row, Bindings());
  }
  for (const ArchInfo& info : kArchs) {
    const auto table = isa_rows(info.wave_size);
    for (const BoundRow& row : isa_rows(info.arch, info.wave_size)) {
      auto& opcodes = rows[table[row.index].mnemonic].second[{row.mnemonic, format_name(row.format)}];
      opcodes.resize(kArchCount, -1);
      opcodes[static_cast<size_t>(info.arch)] = row.opcode;
    }
  }
  std::string s = "mnemonic\tformat";
  for (const ArchInfo& info : kArchs) s += text("\t%s", info.name);
  s += "\tdst\tsrc0\tsrc1\tsrc2\tflags\n";
  for (auto& [mnemonic, entry] : rows) {
    auto& [row, bindings] = entry;
    if (bindings.empty()) bindings[{mnemonic, "none"}].resize(kArchCount, -1);
    for (const auto& [name, opcodes] : bindings) {
      s += name.first + "\t" + name.second;
      for (const int opcode : opcodes) s += text("\t%d", opcode);
      for (const Type t : {row->dst, row->src[0], row->src[1], row->src[2]}) s += text("\t%s", type_name(t));
      s += "\t" + flag_names(row->flags) + "\n";
    }
  }
  return copy_out(s, out, out_bytes);
}
