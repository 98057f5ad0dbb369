// SPDX-License-Identifier: MIT OR Apache-2.0
#include "code/disasm_operand.h"

#include <cstdarg>
#include <cstdio>

#include "code/decode_internal.h"
#include "core/wave.h"

namespace fmha::emu {
namespace {

constexpr const char* kFloatNames[] = {"0.5",  "-0.5", "1.0",  "-1.0",      "2.0",
                                       "-2.0", "4.0",  "-4.0", "0.15915494"};

// LLVM prints by value: a literal that has an inline form reads like one.
std::string constant_text(uint64_t value, Type read_as) {
  const bool wide = read_as == Type::kI64 || read_as == Type::kF64 || read_as == Type::kMask;
  const bool half = is_half(read_as);
  int64_t n = static_cast<int32_t>(value);
  if (wide) n = static_cast<int64_t>(value);
  if (half) n = static_cast<int16_t>(value);
  if (n >= -16 && n <= 64) return text("%d", static_cast<int>(n));
  if (read_as != Type::kI16) {
    for (uint32_t i = 0; i < 9; ++i) {
      if (inline_constant(kOpFloat + i, read_as) != value) continue;
      return wide && i == 8 ? "0.15915494309189532" : kFloatNames[i];
    }
  }
  if (read_as == Type::kF64) return text("0x%x", static_cast<uint32_t>(value >> 32));
  return text("0x%llx", static_cast<unsigned long long>(half ? value & 0xffff : value));
}

std::string range(const char* prefix, int first, int count) {
  return count == 1 ? text("%s%d", prefix, first) : text("%s[%d:%d]", prefix, first, first + count - 1);
}

// Pairs with names of their own.
std::string named_pair(const char* name, uint32_t code, uint32_t first, int dwords) {
  return dwords == 2 ? name : text("%s_%s", name, code == first ? "lo" : "hi");
}

std::string scalar_text(uint32_t code, int dwords, const Dialect& dialect) {
  if (code < dialect.sgprs) return range("s", static_cast<int>(code), dwords);
  switch (code) {
    case kNull:
      return "null";
    case 102:
    case 103:
      return named_pair("flat_scratch", code, 102, dwords);
    case 104:
    case 105:
      return named_pair("xnack_mask", code, 104, dwords);
    case 106:
    case 107:
      return named_pair("vcc", code, 106, dwords);
    case 124:
      return "m0";
    case 126:
    case 127:
      return named_pair("exec", code, 126, dwords);
    default:
      break;
  }
  return range("ttmp", static_cast<int>(code - kOpTtmp), dwords);
}

std::string special_text(uint32_t code) {
  switch (code) {
    case 235:
      return "src_shared_base";
    case 236:
      return "src_shared_limit";
    case 237:
      return "src_private_base";
    case 238:
      return "src_private_limit";
    case 251:
      return "src_vccz";
    case 252:
      return "src_execz";
    default:
      return "src_scc";
  }
}

}  // namespace

std::string text(const char* format, ...) {
  char buffer[160];
  va_list args;
  va_start(args, format);
  std::vsnprintf(buffer, sizeof buffer, format, args);
  va_end(args);
  return buffer;
}

std::string operand_text(const Operand& o, Type type, const Dialect& dialect) {
  switch (o.kind) {
    case OperandKind::kNone:
      return "off";
    case OperandKind::kSgpr:
      return scalar_text(o.index, o.dwords, dialect);
    case OperandKind::kVgpr:
      return range(o.index >= 256 ? "a" : "v", o.index & 255, o.dwords);
    case OperandKind::kSpecial:
      return special_text(o.index);
    case OperandKind::kConst:
      break;
  }
  if (o.encoded == kOpNull) return "null";
  // LLVM 19 prints the half-precision value, though later versions know better.
  if (type == Type::kI16 && o.encoded >= kOpFloat && o.encoded < kOpFloatEnd)
    return text("0x%x", static_cast<uint32_t>(inline_constant(o.encoded, Type::kF16)));
  const bool literal =
      o.encoded == kOpLiteral && type == Type::kI64;  // LLVM prints the dword, not what it means
  return constant_text(literal ? o.value & 0xffffffff : o.value, type);
}

std::string hwreg_text(uint32_t imm, const Dialect& dialect) {
  const uint32_t id = imm & 63, offset = imm >> 6 & 31, size = (imm >> 11 & 31) + 1;
  const char* rdna = dialect.has_vscnt ? rdna_hwreg_name(id, dialect) : nullptr;
  constexpr const char* kNames[] = {nullptr,        "MODE",      "STATUS", "TRAPSTS", "HW_ID",
                                    "GPR_ALLOC",    "LDS_ALLOC", "IB_STS", nullptr,   nullptr,
                                    nullptr,        nullptr,     nullptr,  nullptr,   nullptr,
                                    "SH_MEM_BASES", "TBA_LO",    "TBA_HI", "TMA_LO",  "TMA_HI"};
  constexpr const char* kXccNames[] = {"XCC_ID", "SQ_PERF_SNAPSHOT_DATA", "SQ_PERF_SNAPSHOT_DATA1",
                                       "SQ_PERF_SNAPSHOT_PC_LO", "SQ_PERF_SNAPSHOT_PC_HI"};
  std::string s = "hwreg(";
  if (dialect.has_vscnt)
    s += rdna ? text("HW_REG_%s", rdna) : text("%u", id);
  else if (id < 20 && kNames[id])
    s += text("HW_REG_%s", kNames[id]);
  else if (dialect.has_xcc && id >= 20 && id < 25)
    s += text("HW_REG_%s", kXccNames[id - 20]);
  else
    s += text("%u", id);
  if (offset != 0 || size != 32) s += text(", %u, %u", offset, size);
  return s + ")";
}

std::string waitcnt_text(uint32_t imm, const Dialect& dialect) {
  const WaitCounts c = wait_counts(imm, dialect);
  const bool all =
      c.vector == 63 && c.exports == 7 && c.lds == c.most_lds;  // nothing to wait for: LLVM prints all
  std::string s;
  if (c.vector != 63 || all) s += text("vmcnt(%u) ", c.vector);
  if (c.exports != 7 || all) s += text("expcnt(%u) ", c.exports);
  if (c.lds != c.most_lds || all) s += text("lgkmcnt(%u) ", c.lds);
  s.pop_back();
  return s;
}

namespace {
constexpr const char* kData[] = {"INVALID",     "8",        "16",          "8_8",        "32",      "16_16",
                                 "10_11_11",    "11_11_10", "10_10_10_2",  "2_10_10_10", "8_8_8_8", "32_32",
                                 "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15"};
constexpr const char* kNumber[] = {"UNORM", "SNORM", "USCALED",    "SSCALED",
                                   "UINT",  "SINT",  "RESERVED_6", "FLOAT"};
}  // namespace

std::string unified_format_text(const Inst& inst) {
  constexpr uint32_t kUsual = 1;  // not printed
  const uint32_t format = inst.unified_format;
  if (format == kUsual) return "";
  if (format == 0) return " format:[BUF_FMT_INVALID]";
  if (!inst.data_format) return text(" format:%u", format);
  return text(" format:[BUF_FMT_%s_%s]", kData[inst.data_format], kNumber[inst.number_format]);
}

std::string buffer_format_text(uint32_t data, uint32_t number) {
  constexpr uint32_t kUsualData = 1, kUsualNumber = 0;  // not printed
  std::string s;
  if (data != kUsualData) s = text("BUF_DATA_FORMAT_%s", kData[data & 15]);
  if (number != kUsualNumber) s += text("%sBUF_NUM_FORMAT_%s", s.empty() ? "" : ",", kNumber[number & 7]);
  return s.empty() ? s : " format:[" + s + "]";
}

std::string dpp_text(const Dpp& d, const Dialect& dialect) {
  const uint32_t c = d.ctrl;
  std::string s;
  if (d.by8) {
    for (int l = 0; l < 8; ++l) s += text(l ? ",%u" : " dpp8:[%u", d.lanes >> (3 * l) & 7);
    return s + (d.fetch_inactive ? "] fi:1" : "]");
  }
  if (c < 0x100)
    s = text(" quad_perm:[%u,%u,%u,%u]", c & 3, c >> 2 & 3, c >> 4 & 3, c >> 6 & 3);
  else if (c > 0x100 && c < 0x110)
    s = text(" row_shl:%u", c & 15);
  else if (c > 0x110 && c < 0x120)
    s = text(" row_shr:%u", c & 15);
  else if (c > 0x120 && c < 0x130)
    s = text(" row_ror:%u", c & 15);
  else if (c == 0x130)
    s = " wave_shl:1";
  else if (c == 0x134)
    s = " wave_rol:1";
  else if (c == 0x138)
    s = " wave_shr:1";
  else if (c == 0x13c)
    s = " wave_ror:1";
  else if (c == 0x140)
    s = " row_mirror";
  else if (c == 0x141)
    s = " row_half_mirror";
  else if (c == 0x142)
    s = " row_bcast:15";
  else if (c == 0x143)
    s = " row_bcast:31";
  else if (c >= 0x150 && c < 0x160)
    s = text(dialect.has_vscnt ? " row_share:%u" : " row_newbcast:%u", c & 15);
  else if (dialect.has_vscnt && c >= 0x160 && c < 0x170)
    s = text(" row_xmask:%u", c & 15);
  else
    s = " /* Invalid dpp_ctrl value */";
  s += text(" row_mask:0x%x bank_mask:0x%x", d.row_mask, d.bank_mask);
  if (d.bound_ctrl) s += " bound_ctrl:1";
  return d.fetch_inactive ? s + " fi:1" : s;
}

std::string swizzle_text(uint32_t offset) {
  if (offset == 0) return "";
  if ((offset & 0xff00) == 0x8000) {
    return text(" offset:swizzle(QUAD_PERM,%u,%u,%u,%u)", offset & 3, offset >> 2 & 3, offset >> 4 & 3,
                offset >> 6 & 3);
  }
  if (offset & 0x8000) return text(" offset:%u", offset);
  const uint32_t and_mask = offset & 31, or_mask = offset >> 5 & 31, xor_mask = offset >> 10 & 31;
  if (and_mask == 31 && or_mask == 0 && __builtin_popcount(xor_mask) == 1) {
    return text(" offset:swizzle(SWAP,%u)", xor_mask);
  }
  if (and_mask == 31 && or_mask == 0 && xor_mask && __builtin_popcount(xor_mask + 1) == 1) {
    return text(" offset:swizzle(REVERSE,%u)", xor_mask + 1);
  }
  const uint32_t group = 32 - and_mask;
  if (group > 1 && __builtin_popcount(group) == 1 && or_mask < group && xor_mask == 0) {
    return text(" offset:swizzle(BROADCAST,%u,%u)", group, or_mask);
  }
  std::string s = " offset:swizzle(BITMASK_PERM,\"";
  for (int bit = 4; bit >= 0; --bit) {
    const uint32_t of_zero = (or_mask ^ xor_mask) >> bit & 1,
                   of_one = ((and_mask | or_mask) ^ xor_mask) >> bit & 1;
    s += of_zero == of_one ? (of_zero ? '1' : '0') : (of_zero ? 'i' : 'p');
  }
  return s + "\")";
}

std::string gpr_idx_text(uint32_t mode) {
  if (mode > 15) return text("0x%x", mode);
  constexpr const char* kNames[] = {"SRC0", "SRC1", "SRC2", "DST"};
  std::string s = "gpr_idx(";
  for (int i = 0; i < 4; ++i) {
    if (!(mode >> i & 1)) continue;
    if (s.back() != '(') s += ',';
    s += kNames[i];
  }
  return s + ")";
}

std::string sendmsg_text(uint32_t imm, const Dialect& dialect) {
  if (dialect.late_counts) return rdna_sendmsg_text(imm, dialect);
  constexpr const char* kNames[] = {nullptr,    "INTERRUPT",      "GS",           "GS_DONE",
                                    "SAVEWAVE", "STALL_WAVE_GEN", "HALT_WAVES",   "ORDERED_PS_DONE",
                                    nullptr,    "GS_ALLOC_REQ",   "GET_DOORBELL", nullptr,
                                    nullptr,    nullptr,          nullptr,        "SYSMSG"};
  constexpr const char* kGsOps[] = {"GS_OP_NOP", "GS_OP_CUT", "GS_OP_EMIT", "GS_OP_EMIT_CUT"};
  constexpr const char* kSysOps[] = {nullptr, "ECC_ERR_INTERRUPT", "REG_RD", "HOST_TRAP_ACK", "TTRACE_PC"};
  const uint32_t id = imm & 15, op = imm >> 4 & 7, stream = imm >> 8 & 3;
  if (imm & ~0x37fu) return text("%u", imm);
  const bool gs = id == 2 || id == 3, sys = id == 15, rdna = dialect.has_vscnt;
  const char* name = kNames[id];
  if (rdna && (id == 8 || id == 11)) name = id == 8 ? "EARLY_PRIM_DEALLOC" : "GET_DDID";
  if (rdna && sys && op == 3) return text("sendmsg(%u, %u, %u)", id, op, stream);  // HOST_TRAP_ACK is gfx9's
  if (gs && op == 0 && id == 3 && stream == 0) return "sendmsg(MSG_GS_DONE, GS_OP_NOP)";
  if (gs && op > 0 && op < 4) return text("sendmsg(MSG_%s, %s, %u)", kNames[id], kGsOps[op], stream);
  if (sys && op > 0 && op < 5 && !stream) return text("sendmsg(MSG_SYSMSG, SYSMSG_OP_%s)", kSysOps[op]);
  if (name && !gs && !sys && op == 0 && stream == 0) return text("sendmsg(MSG_%s)", name);
  return text("sendmsg(%u, %u, %u)", id, op, stream);
}

const char* sdwa_sel_text(uint8_t sel) {
  constexpr const char* kNames[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"};
  return kNames[sel];
}
const char* sdwa_unused_text(uint8_t unused) {
  constexpr const char* kNames[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"};
  return kNames[unused];
}

}  // namespace fmha::emu
