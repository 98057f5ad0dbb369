// SPDX-License-Identifier: MIT OR Apache-2.0
// Names that LLVM has for the fields of RDNA's instructions.
#include <iterator>

#include "code/disasm_operand.h"

namespace fmha::emu {
namespace {

struct Named {
  uint32_t id;
  const char* name;
};
constexpr Named kBoth[] = {{1, "MODE"},   {2, "STATUS"},  {5, "GPR_ALLOC"}, {6, "LDS_ALLOC"},
                           {7, "IB_STS"}, {23, "HW_ID1"}, {24, "HW_ID2"}};
constexpr Named kRdna2[] = {
    {3, "TRAPSTS"}, {15, "SH_MEM_BASES"}, {16, "TBA_LO"},      {17, "TBA_HI"},      {18, "TMA_LO"},
    {19, "TMA_HI"}, {20, "FLAT_SCR_LO"},  {21, "FLAT_SCR_HI"}, {25, "POPS_PACKER"}, {29, "SHADER_CYCLES"}};
constexpr Named kRdna3[] = {
    {3, "TRAPSTS"},      {15, "SH_MEM_BASES"}, {18, "PERF_SNAPSHOT_PC_LO"}, {19, "PERF_SNAPSHOT_PC_HI"},
    {20, "FLAT_SCR_LO"}, {21, "FLAT_SCR_HI"},  {27, "PERF_SNAPSHOT_DATA"},  {29, "SHADER_CYCLES"}};
constexpr Named kRdna4[] = {
    {4, "STATE_PRIV"},           {10, "PERF_SNAPSHOT_DATA"},  {11, "PERF_SNAPSHOT_PC_LO"},
    {12, "PERF_SNAPSHOT_PC_HI"}, {15, "PERF_SNAPSHOT_DATA1"}, {16, "PERF_SNAPSHOT_DATA2"},
    {17, "EXCP_FLAG_PRIV"},      {18, "EXCP_FLAG_USER"},      {19, "TRAP_CTRL"},
    {20, "SCRATCH_BASE_LO"},     {21, "SCRATCH_BASE_HI"},     {29, "SHADER_CYCLES_LO"},
    {30, "SHADER_CYCLES_HI"},    {31, "DVGPR_ALLOC_LO"}};
constexpr Named kMessages[] = {
    {1, "INTERRUPT"},          {2, "HS_TESSFACTOR"},      {3, "DEALLOC_VGPRS"},
    {9, "GS_ALLOC_REQ"},       {128, "RTN_GET_DOORBELL"}, {130, "RTN_GET_TMA"},
    {131, "RTN_GET_REALTIME"}, {133, "RTN_GET_TBA"},      {134, "RTN_GET_TBA_TO_PC"}};
constexpr Named kRdna3Messages[] = {{5, "STALL_WAVE_GEN"}, {6, "HALT_WAVES"}};
constexpr Named kRdna4Messages[] = {{135, "RTN_GET_SE_AID_ID"}};

template <size_t kCount>
const char* find(const Named (&among)[kCount], uint32_t id) {
  for (const Named& n : among) {
    if (n.id == id) return n.name;
  }
  return nullptr;
}

}  // namespace

const char* rdna_hwreg_name(uint32_t id, const Dialect& dialect) {
  if (const char* name = find(kBoth, id)) return name;
  if (!dialect.late_counts) return find(kRdna2, id);
  return dialect.has_scope_field ? find(kRdna4, id) : find(kRdna3, id);
}

std::string rdna_sendmsg_text(uint32_t imm, const Dialect& dialect) {
  const uint32_t id = imm & 0xff;
  const char* name = find(kMessages, id);
  if (!name) name = dialect.has_scope_field ? find(kRdna4Messages, id) : find(kRdna3Messages, id);
  if (name) return text("sendmsg(MSG_%s)", name);
  return imm > 0xff ? text("%u", imm) : text("sendmsg(%u, 0, 0)", id);
}

std::string version_text(uint32_t imm) {
  constexpr Named kGenerations[] = {{0, "GFX7"}, {4, "GFX10"}, {6, "GFX11"}, {9, "GFX12"}};
  constexpr Named kBits[] = {{0x2000, "W64_BIT"}, {0x4000, "W32_BIT"}, {0x8000, "MDP_BIT"}};
  constexpr uint32_t kGeneration = 0xff, kUnknown = 0x1f00;
  if (imm & kUnknown) return text("0x%x", imm);
  const uint32_t generation = imm & kGeneration;
  const char* name = find(kGenerations, generation);
  std::string s = name ? text("UC_VERSION_%s", name) : text("%u", generation);
  bool several = false;
  for (const Named& bit : kBits) {
    if (!(imm & bit.id)) continue;
    s = text(several ? "(%s)|UC_VERSION_%s" : "%s|UC_VERSION_%s", s.c_str(), bit.name);
    several = true;
  }
  return s;
}

std::string delay_text(uint32_t imm) {
  constexpr const char* kIds[] = {
      "NO_DEP",        "VALU_DEP_1",    "VALU_DEP_2",        "VALU_DEP_3",   "VALU_DEP_4",   "TRANS32_DEP_1",
      "TRANS32_DEP_2", "TRANS32_DEP_3", "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3"};
  constexpr const char* kSkips[] = {"SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"};
  const uint32_t first = imm & 15, skip = imm >> 4 & 7, second = imm >> 7 & 15;
  std::string s;
  const auto add = [&s](const char* name, const char* value) {
    s += text("%s%s(%s)", s.empty() ? "" : " | ", name, value);
  };
  const auto id = [&](uint32_t i) { return i < std::size(kIds) ? kIds[i] : "/* invalid instid value */"; };
  if (first) add("instid0", id(first));
  if (skip) add("instskip", skip < std::size(kSkips) ? kSkips[skip] : "/* invalid instskip value */");
  if (second) add("instid1", id(second));
  return s.empty() ? "0" : s;
}

std::string dependency_text(uint32_t imm) {
  struct Field {
    const char* name;
    uint32_t low, bits;
  };
  constexpr Field kFields[] = {{"depctr_hold_cnt", 7, 1}, {"depctr_sa_sdst", 0, 1}, {"depctr_va_vdst", 12, 4},
                               {"depctr_va_sdst", 9, 3},  {"depctr_va_ssrc", 8, 1}, {"depctr_va_vcc", 1, 1},
                               {"depctr_vm_vsrc", 2, 3}};
  std::string s;
  for (const Field& f : kFields) {
    const uint32_t most = (1u << f.bits) - 1, value = imm >> f.low & most;
    if (value != most) s += text("%s%s(%u)", s.empty() ? "" : " ", f.name, value);
  }
  // LLVM prints the fields if no other bit is set, else the number.
  uint32_t known = 0;
  for (const Field& f : kFields) known |= ((1u << f.bits) - 1) << f.low;
  return s.empty() || imm & ~known ? text("0x%x", imm) : s;
}

}  // namespace fmha::emu
