// SPDX-License-Identifier: MIT OR Apache-2.0
// Records -> text, as llvm-objdump prints it. Tests compare the two on every instruction of every kernel.
#include "code/code_object.h"
#include "code/decode_internal.h"
#include "code/disasm_operand.h"

namespace fmha::emu {
namespace {

class Printer {
 public:
  Printer(const Inst& inst, const Dialect& dialect) : i_(inst), r_(*inst.row), dialect_(dialect) {}

  std::string run() {
    out_ = r_.mnemonic;
    switch (r_.format) {
      case Format::kSop1:
      case Format::kSop2:
      case Format::kSopc:
        scalar();
        break;
      case Format::kSopp:
        sopp();
        break;
      case Format::kSopk:
        sopk();
        break;
      case Format::kSmem:
        smem();
        break;
      case Format::kVop1:
      case Format::kVop2:
      case Format::kVopc:
      case Format::kVop3:
      case Format::kVop3b:
      case Format::kVop3p:
        valu();
        break;
      case Format::kMai:
        mai();
        break;
      case Format::kDs:
        ds();
        break;
      case Format::kMubuf:
      case Format::kMtbuf:
        mubuf();
        break;
      case Format::kFlat:
      case Format::kGlobal:
      case Format::kScratch:
        flat();
        break;
      case Format::kVopd:
        out_ = half(i_.dual[0]) + " :: " + half(i_.dual[1]);
        break;
    }
    return std::move(out_);
  }

 private:
  // One of the operations of a VOPD: "v_dual_mul_f32 v0, v1, v2".
  std::string half(const Inst& inst) const {
    Inst whole = inst;
    for (Operand& o : whole.src) {
      if (o.kind == OperandKind::kVgpr && o.index == kVopdCopy) o = i_.dual[0].dst;
    }
    Printer p(whole, dialect_);
    p.is_dual_ = true;
    p.out_ = std::string("v_dual") + (inst.row->mnemonic + 1);
    p.operands();
    return std::move(p.out_);
  }
  // The first operand follows a space, the others a comma.
  void put(const std::string& s) {
    out_ += first_ ? " " : ", ";
    out_ += s;
    first_ = false;
  }
  void put(const Operand& o, Type t) { put(operand_text(o, t, dialect_)); }
  void put_if(const Operand& o, Type t) {
    if (o.kind != OperandKind::kNone) put(o, t);
  }

  // LLVM prints the literal of a scalar f16 as it is, also if a float has its value; and what s_cmp compares.
  void put_scalar(const Operand& o, Type t) {
    const bool as_bits = o.encoded == kOpLiteral || (r_.format == Format::kSopc && o.encoded >= kOpFloat);
    if (o.kind == OperandKind::kConst && as_bits && t == Type::kF16)
      put(text("0x%x", static_cast<uint32_t>(o.value)));
    else
      put_if(o, t);
  }

  void scalar() {
    put_if(i_.dst, r_.dst);
    if (r_.immediate == Immediate::kMessage) put(sendmsg_text(static_cast<uint32_t>(i_.imm), dialect_));
    if (r_.is(kLiteralK)) return literal_k();
    put_scalar(i_.src[0], r_.src[0]);
    put_scalar(i_.src[1], r_.src[1]);
    if (r_.immediate == Immediate::kGprIndex) put(gpr_idx_text(static_cast<uint32_t>(i_.imm)));
  }

  void sopp() {
    const uint32_t imm = static_cast<uint16_t>(i_.imm);
    if (r_.immediate == Immediate::kWaitCounts) return put(waitcnt_text(imm, dialect_));
    if (r_.immediate == Immediate::kGprIndex) return put(gpr_idx_text(imm));
    if (r_.immediate == Immediate::kMessage) return put(sendmsg_text(imm, dialect_));
    if (r_.immediate == Immediate::kDelay) return put(delay_text(imm));
    if (r_.immediate == Immediate::kDependency) return put(dependency_text(imm));
    const bool end = r_.immediate == Immediate::kExitCode;
    if (r_.flags & kNoSrc || (end && imm == 0)) return;
    const bool hexadecimal =
        r_.immediate >= Immediate::kStoreCount && r_.immediate <= Immediate::kHexadecimal;
    const bool decimal = !hexadecimal && (imm <= 64 || end || r_.is(kBranch));
    put(text(decimal ? "%u" : "0x%x", imm));
  }

  void sopk() {
    const uint32_t imm = static_cast<uint16_t>(i_.imm);
    const bool hwreg = r_.immediate == Immediate::kHwReg;
    if (hwreg && r_.dst == Type::kNone) {
      put(hwreg_text(imm, dialect_));
      return put(i_.src[0], Type::kI32);
    }
    put_if(i_.dst, r_.dst);
    put_if(i_.src[0], r_.src[0]);
    if (hwreg)
      put(hwreg_text(imm, dialect_));
    else if (r_.immediate == Immediate::kVersion)
      put(version_text(imm));
    else
      put(text(r_.flags & kBranch ? "%u" : "0x%x", imm));
  }

  void smem() {
    if (i_.data.kind != OperandKind::kNone)
      put(i_.data, r_.src[1]);
    else
      put_if(i_.dst, r_.dst);
    if (r_.immediate == Immediate::kProbe) put(text(i_.offset0 <= 64 ? "%u" : "0x%x", i_.offset0));
    if (r_.immediate == Immediate::kLines) return prefetch();
    if (r_.src[0] != Type::kNone) {
      put(i_.src[0], r_.src[0]);
      const std::string offset =
          text(i_.imm < 0 ? "-0x%x" : "0x%x", static_cast<unsigned>(i_.imm < 0 ? -i_.imm : i_.imm));
      if (i_.src[1].kind == OperandKind::kNone) {
        put(dialect_.has_null && !dialect_.has_scope_field && i_.imm == 0 ? "null" : offset);
      } else {
        put(i_.src[1], Type::kI32);
        if (has_smem_imm()) out_ += " offset:" + offset;
      }
    }
    if (dialect_.has_scope_field) return hints();
    if (i_.sc0) out_ += " glc";
    if (i_.sc1) out_ += " dlc";
  }
  void prefetch() {
    put_if(i_.src[0], r_.src[0]);
    put(text(i_.imm < 0 ? "-0x%x" : "0x%x", static_cast<unsigned>(i_.imm < 0 ? -i_.imm : i_.imm)));
    if (i_.src[1].kind == OperandKind::kNone)
      put("null");
    else
      put(i_.src[1], Type::kI32);
    put(text("%u", i_.offset0));
  }
  // An offset of 0 beside a register is printed as none; assemblers do not write it.
  bool has_smem_imm() const { return i_.imm != 0 || dialect_.has_scope_field; }

  // A source with its neg, abs or sext.
  std::string source(int n, bool neg, bool abs, bool sext) const {
    const Operand& o = i_.src[n];
    std::string s = operand_text(o, source_type(n), dialect_);
    if (sext) return "sext(" + s + ")";
    if (abs) s = "|" + s + "|";
    if (!neg) return s;
    return o.kind == OperandKind::kConst && !abs ? "neg(" + s + ")" : "-" + s;
  }
  Type source_type(int n) const {
    if (n == 2 && reads_vcc()) return Type::kMask;
    if (is_mix()) return i_.op_sel_hi >> n & 1 ? Type::kF16 : Type::kF32;
    if (reads_vcc() && r_.format == Format::kVop3) return Type::kI16;  // v_cndmask_b16: bits
    if (n == 1 && r_.is(kHalfConstants)) return Type::kF16;
    return r_.src[n];
  }
  bool reads_vcc() const { return names_mask(r_); }
  bool is_mix() const { return r_.is(kMixedSources); }
  int source_count() const {
    int n = 0;
    while (n < 3 && i_.src[n].kind != OperandKind::kNone) ++n;
    return n;
  }

  void suffix() {
    if (i_.encoding == Encoding::kVop3Dpp && r_.format > Format::kVopc) out_ += "_e64_dpp";
    if (r_.format > Format::kVopc || r_.flags & kLiteralK) return;
    if (i_.encoding == Encoding::kSdwa)
      out_ += "_sdwa";
    else if (is_dpp(i_.encoding))
      out_ += i_.encoding == Encoding::kVop3Dpp ? "_e64_dpp" : dpp_has_suffix() ? "_dpp" : "";
    else if (!r_.is(kNoSuffix) && !(dialect_.has_null && r_.is(kOneForm | kDot)))
      out_ += i_.encoding == Encoding::kVop3 ? "_e64" : "_e32";
  }

  bool dpp_has_suffix() const { return !r_.is(kNoSrc) && !(dialect_.has_null && r_.format == Format::kVopc); }

  void valu() {
    suffix();
    operands();
  }

  void operands() {
    const bool implied = dialect_.has_null && r_.format == Format::kVopc && r_.is(kWritesExec);
    if (i_.dst.kind != OperandKind::kNone && !implied) put(i_.dst, r_.dst);
    if (i_.sdst.kind != OperandKind::kNone) put(i_.sdst, Type::kMask);
    if (r_.flags & kLiteralK) return literal_k();
    const bool packed = r_.format == Format::kVop3p;
    const int n = source_count() - (is_dual_ && reads_vcc() ? 1 : 0);  // which does not name VCC
    for (int s = 0; s < n; ++s) {
      const bool bare = packed && !is_mix();
      const bool abs = (is_mix() ? i_.neg_hi : i_.abs) >> s & 1;
      put(source(s, !bare && i_.neg >> s & 1, !bare && abs, i_.sdwa.sext >> s & 1));
    }
    if (packed) packed_modifiers(n);
    if (!packed && i_.encoding != Encoding::kDpp) modifiers(n);
    if (i_.encoding == Encoding::kSdwa) sdwa();
    if (is_dpp(i_.encoding)) out_ += dpp_text(i_.dpp, dialect_);
  }

  void modifiers(int n) {
    if (r_.is(kTruthTable) && i_.imm) out_ += text(" bitop3:%s%x", i_.imm < 10 ? "" : "0x", i_.imm);
    if (r_.is(kSwapsLanes)) {
      if (i_.op_sel & 2) out_ += " bound_ctrl:1";
      if (i_.op_sel & 1) out_ += " fi:1";
    } else if (i_.op_sel) {
      op_sel(n);
    }
    if (i_.clamp) out_ += " clamp";
    if (i_.omod) out_ += text(" %s", i_.omod == 1 ? "mul:2" : i_.omod == 2 ? "mul:4" : "div:2");
  }

  void literal_k() {
    const bool middle = r_.is(kLiteralMiddle);
    const std::string k = text("0x%x", static_cast<uint32_t>(i_.imm));
    put(i_.src[0], r_.src[0]);
    if (middle) put(k);
    put(i_.src[1], r_.src[1]);
    if (!middle) put(k);
  }

  void bit_list(const char* name, uint32_t bits, int n) {
    out_ += text(" %s:[", name);
    for (int s = 0; s < n; ++s) out_ += text(s ? ",%u" : "%u", bits >> s & 1);
    out_ += "]";
  }
  void byte(int which) { out_ += text(" byte_sel:%d", which); }
  void op_sel(int n) {
    const bool permutes = r_.dst == Type::kI32 && r_.src[0] == Type::kI32 &&
                          !r_.is(kSelectsByte | kNoResultModifiers | kSelectsShift);
    if (permutes) return bit_list("op_sel", i_.op_sel, 2);  // v_permlane16: two switches
    if (dialect_.has_null && r_.is(kSelectsByte)) return byte(i_.op_sel >> 2);
    const bool picks_byte = r_.is(kOwnOpSel) && r_.dst == Type::kF32;  // v_cvt_f32_fp8 of gfx12
    if (dialect_.has_null && picks_byte) return byte((i_.op_sel & 1) << 1 | (i_.op_sel >> 1 & 1));
    if (r_.is(kReadsDst) && dialect_.has_null && n == 2) n = 3;
    if (r_.is(kSelectsByte)) n = 3;  // LLVM counts the destination, which is read, as a source
    bit_list("op_sel", (i_.op_sel & ((1u << n) - 1)) | static_cast<uint32_t>(i_.op_sel >> 3) << n, n + 1);
  }
  void packed_modifiers(int n) {
    const uint32_t all = (1u << n) - 1;
    if (r_.matrix.sparse) {  // which part of the register of indices
      if (i_.op_sel & all) out_ += text(" index_key:%u", i_.op_sel & all);
    } else if (i_.op_sel & all) {
      bit_list("op_sel", i_.op_sel, n);
    }
    if (is_mix() ? i_.op_sel_hi & all : (i_.op_sel_hi & all) != all) bit_list("op_sel_hi", i_.op_sel_hi, n);
    if (!is_mix()) {
      if (i_.neg & all) bit_list("neg_lo", i_.neg, n);
      if (i_.neg_hi & all) bit_list("neg_hi", i_.neg_hi, n);
    }
    if (i_.clamp) out_ += " clamp";
  }

  void sdwa() {
    const Sdwa& s = i_.sdwa;
    if (r_.format != Format::kVopc && !r_.is(kNoDstSel)) {
      out_ += text(" dst_sel:%s dst_unused:%s", sdwa_sel_text(s.dst_sel), sdwa_unused_text(s.dst_unused));
    }
    out_ += text(" src0_sel:%s", sdwa_sel_text(s.src_sel[0]));
    if (r_.format != Format::kVop1) out_ += text(" src1_sel:%s", sdwa_sel_text(s.src_sel[1]));
  }

  // For v_mfma_ld_scale, which has two sources; v_mfma_scale has three, the last of which has no bits.
  void scale_selects(const Inst& scales, int n) {
    if (scales.op_sel & 3) bit_list("op_sel", scales.op_sel, n);
    if (n == 3 || (scales.op_sel_hi & 3) != 3) bit_list("op_sel_hi", scales.op_sel_hi, n);
  }
  void mai() {
    if (r_.is(kLoadsScales)) {
      for (int s = 0; s < 2; ++s) put(i_.src[s], r_.src[s]);
      return scale_selects(i_, 2);
    }
    put(i_.dst, r_.dst);
    const bool f64 = r_.matrix.a == Element::kF64;
    for (int s = 0; s < 3 && r_.src[s] != Type::kNone; ++s) put(i_.src[s], f64 ? Type::kF64 : r_.src[s]);
    if (i_.scales) {
      for (int s = 0; s < 2; ++s) put(i_.scales->src[s], Type::kI32);
      scale_selects(*i_.scales, 3);
    }
    if (i_.cbsz) out_ += text(" cbsz:%u", i_.cbsz);
    if (i_.abid) out_ += text(" abid:%u", i_.abid);
    if (!i_.blgp) return;
    if (f64 && dialect_.blgp_negates)
      bit_list("neg", i_.blgp, 3);
    else
      out_ += text(" blgp:%u", i_.blgp);
  }
  void ds() {
    put_if(i_.dst, r_.dst);
    for (int s = 0; s < 3; ++s) put_if(i_.src[s], r_.src[s]);
    if (r_.flags & kTwoOffsets) {
      if (i_.offset0) out_ += text(" offset0:%u", i_.offset0);
      if (i_.offset1) out_ += text(" offset1:%u", i_.offset1);
    } else if (r_.immediate == Immediate::kSwizzle) {
      out_ += swizzle_text(static_cast<uint32_t>(i_.imm));
    } else if (i_.imm) {
      out_ += text(" offset:%d", i_.imm);
    }
    if (i_.gds) out_ += " gds";
  }

  // gfx12: what a cache is told of an access, and how far others must see it.
  void hints() {
    const bool atomic = r_.is(kAtomic), store = r_.is(kStore);
    const char* kind = atomic ? "ATOMIC" : store ? "STORE" : "LOAD";
    constexpr const char* kAtomicHints[] = {"",           "RETURN", "NT",         "NT_RETURN",
                                            "CASCADE_RT", "5",      "CASCADE_NT", "7"};
    constexpr const char* kHints[] = {"", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "NT_WB"};
    constexpr const char* kScopes[] = {"", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS"};
    if (i_.hint) {
      const char* name = (atomic ? kAtomicHints : kHints)[i_.hint & 7];
      if (store && i_.hint == 3) name = i_.scope == 3 ? "BYPASS" : "RT_WB";
      if (!store && i_.hint == 3 && i_.scope == 3 && !atomic) name = "BYPASS";
      out_ += text(" th:TH_%s_%s", kind, name);
    }
    if (i_.scope) out_ += text(" scope:%s", kScopes[i_.scope & 3]);
  }

  void cache_policy() {
    if (dialect_.has_scope_field) return hints();
    if (i_.sc0) out_ += text(" %s", dialect_.sc0);
    if (i_.nt) out_ += text(" %s", dialect_.nt);
    if (i_.sc1) out_ += text(" %s", dialect_.sc1);
  }

  // The vector data of a memory instruction: what is stored, else what is loaded.
  void memory_data() {
    if (i_.data.kind != OperandKind::kNone)
      put(i_.data, r_.src[0]);
    else
      put_if(i_.dst, r_.dst);
  }

  void mubuf() {
    if (i_.src[1].kind != OperandKind::kNone) {
      memory_data();
      if (!(r_.flags & kRefused)) put(i_.src[0], Type::kI64);
      put(i_.src[1], Type::kB128);
      put(i_.src[2], Type::kI32);
      if (r_.format == Format::kMtbuf) out_ += buffer_format();
      if (i_.idxen) out_ += " idxen";
      if (i_.offen) out_ += " offen";
      if (i_.imm) out_ += text(" offset:%d", i_.imm);
    }
    cache_policy();
    if (i_.lds && !r_.is(kToLds)) out_ += " lds";
  }

  std::string buffer_format() const {
    return dialect_.has_null ? unified_format_text(i_) : buffer_format_text(i_.data_format, i_.number_format);
  }

  void flat() {
    if (r_.is(kCacheControl)) return cache_policy();
    const bool scratch = r_.format == Format::kScratch;
    put_if(i_.dst, r_.dst);
    if (!r_.is(kByLane)) put(i_.src[0], Type::kI64);
    if (i_.data.kind != OperandKind::kNone) put(i_.data, r_.src[0]);
    if (scratch || r_.format == Format::kGlobal) put(i_.src[1], Type::kI64);
    if (i_.imm) out_ += text(" offset:%d", i_.imm);
    cache_policy();
  }

  const Inst& i_;
  const BoundRow& r_;
  const Dialect dialect_;
  std::string out_;
  bool first_ = true;
  bool is_dual_ = false;  // one of the operations of a VOPD
};

}  // namespace

std::string disassemble(const Inst& inst, Arch arch) {
  if (!inst.row) return inst.bytes ? text(".long 0x%08x", static_cast<uint32_t>(inst.data.value)) : "<end>";
  return Printer(inst, dialect_of(arch_info(arch).isa)).run();
}

}  // namespace fmha::emu
