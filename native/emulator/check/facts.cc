// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/facts.h"

#include <cstring>

#include "core/wave.h"

namespace fmha::emu {
namespace {

constexpr uint16_t kVccz = 251, kExecz = 252;  // operand numbers

bool starts(const char* s, const char* prefix) { return !std::strncmp(s, prefix, std::strlen(prefix)); }
bool has(const char* s, const char* part) { return std::strstr(s, part) != nullptr; }

RegisterRange range_of(const Operand& o) {
  if (o.kind == OperandKind::kVgpr) return {o.index, o.dwords};
  if (o.kind == OperandKind::kSgpr) return {static_cast<uint16_t>(kFirstScalar + o.index), o.dwords};
  return {};
}
constexpr RegisterRange scalar(uint16_t first, uint8_t count) {
  return {static_cast<uint16_t>(kFirstScalar + first), count};
}

// Passes (of four cycles) of the matrix instructions. Source: LLVM's SISchedule.td, models SIDPFullSpeed
// (gfx90a) and SIDPGFX942FullSpeed, which agree with the tables of the CDNA2 and CDNA3 ISA guides.
int passes_of(const char* name, Arch arch) {
  const bool small = has(name, "_4x4x"), middle = has(name, "_16x16x");
  if (has(name, "mfma_f64")) return small ? 4 : 8;
  if (small) return 2;
  if (arch == Arch::kGfx90a) return middle ? 8 : 16;
  if (starts(name, "v_smfmac")) return middle ? 4 : 8;
  const char* k = std::strstr(name, middle ? "16x16x" : "32x32x") + 6;
  int depth = 0;
  for (; *k >= '0' && *k <= '9'; ++k) depth = depth * 10 + (*k - '0');
  const bool xf32 = has(name, "xf32");
  if (middle) return xf32 || depth >= 16 ? 4 : 8;
  return xf32 || depth >= 8 ? 8 : 16;
}

// On gfx942 the f32 and f64 matrix instructions do not run on the XDL unit; on gfx90a only the f64 ones do
// not.
bool is_xdl(const char* name, Arch arch) {
  if (has(name, "mfma_f64")) return false;
  if (arch == Arch::kGfx90a || starts(name, "v_smfmac")) return true;
  const size_t n = std::strlen(name);
  return has(name, "xf32") || n < 3 || std::strcmp(name + n - 3, "f32") != 0;
}

bool is_trans(const char* name) {
  for (const char* p : {"v_exp_f", "v_log_f", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_",
                        "v_exp_legacy", "v_log_legacy"}) {
    if (starts(name, p)) return true;
  }
  return false;
}

Unit unit_of(const Row& row) {
  switch (row.format) {
    case Format::kSop1:
    case Format::kSop2:
    case Format::kSopc:
    case Format::kSopp:
    case Format::kSopk:
      return Unit::kScalar;
    case Format::kSmem:
      return Unit::kScalarMemory;
    case Format::kDs:
      return Unit::kLds;
    case Format::kMubuf:
    case Format::kMtbuf:
    case Format::kGlobal:
    case Format::kScratch:
      return Unit::kVectorMemory;
    case Format::kFlat:
      return Unit::kFlat;
    default:
      return starts(row.mnemonic, "v_mfma") || starts(row.mnemonic, "v_smfmac") ? Unit::kMatrix
                                                                                : Unit::kVector;
  }
}

class FactsBuilder {
 public:
  FactsBuilder(const Inst& inst, Arch arch) : inst_(inst), arch_(arch), name_(inst.row->mnemonic) {}
  void build() {
    hot.unit = unit_of(*inst_.row);
    operands();
    implicit();
    traits();
    memory();
    touched();
  }
  Facts hot;
  FactsDetail detail;

 private:
  void read(RegisterRange r) {
    if (r.count) detail.reads[detail.n_reads++] = r;
  }
  void write(RegisterRange r) {
    if (r.count) detail.writes[detail.n_writes++] = r;
  }
  bool vector_alu() const { return hot.unit == Unit::kVector || hot.unit == Unit::kMatrix; }

  void operands() {
    for (const Operand& o : inst_.src) read(range_of(o));
    read(range_of(inst_.data));
    const bool keeps = inst_.row->flags & kReadsDst || inst_.sdwa.dst_unused == 2 || inst_.op_sel & 8;
    if (keeps) read(range_of(inst_.dst));
    write(range_of(inst_.dst));
    write(range_of(inst_.sdst));
    if (starts(name_, "v_swap")) write(range_of(inst_.src[0]));
  }

  void implicit() {
    if (starts(name_, "v_div_fmas") || has(name_, "branch_vcc")) read(scalar(kVccLo, 2));
    const bool exec = inst_.row->flags & kWritesExec || has(name_, "_fork") || has(name_, "branch_join") ||
                      has(name_, "_saveexec") || has(name_, "_wrexec");
    if (exec) write(scalar(kExecLo, 2));
    if (loads_to_lds() || has(name_, "addtid")) read(scalar(kM0, 1));
    const bool index = starts(name_, "s_set_gpr_idx") && !has(name_, "_off");
    if (index) write(scalar(kM0, 1));
  }

  // Buffer loads say so in a bit, global_load_lds_* and scratch_load_lds_* in the name.
  bool loads_to_lds() const { return inst_.lds || has(name_, "_load_lds"); }

  bool needs_m0() const {
    const bool message = starts(name_, "s_sendmsg") || !std::strcmp(name_, "s_ttracedata");
    return loads_to_lds() || inst_.gds || message || has(name_, "addtid") || starts(name_, "s_movrel");
  }

  void traits() {
    uint32_t t = 0;
    const bool read_lane = starts(name_, "v_readlane") || starts(name_, "v_readfirstlane");
    if (is_trans(name_)) t |= kTransTrait;
    if (inst_.encoding == Encoding::kDpp) t |= kDppTrait;
    if (starts(name_, "v_dot")) t |= kDotTrait;
    if (read_lane) t |= kReadLaneTrait;
    if (read_lane || starts(name_, "v_writelane")) t |= kLaneTrait;
    if (starts(name_, "v_div_fmas")) t |= kDivFmasTrait;
    if (starts(name_, "v_fma_f64") || starts(name_, "v_fmac_f64")) t |= kFma64Trait;
    if (starts(name_, "s_setreg")) t |= kSetRegTrait;
    if (starts(name_, "s_getreg")) t |= kGetRegTrait;
    if (!std::strcmp(name_, "s_waitcnt")) t |= kWaitTrait;
    if (needs_m0()) t |= kNeedsM0Trait;
    for (const Operand& o : inst_.src) {
      if (hot.unit != Unit::kVector || o.kind != OperandKind::kSpecial) continue;
      if (o.index == kVccz) t |= kReadsVcczTrait;
      if (o.index == kExecz) t |= kReadsExeczTrait;
    }
    const bool part =
        inst_.encoding == Encoding::kSdwa && inst_.row->format != Format::kVopc && inst_.sdwa.dst_sel != 6;
    const bool high = inst_.op_sel & 8 || (starts(name_, "v_cvt_sr_") && inst_.op_sel & 12);
    if (vector_alu() && (part || high)) t |= kHalfTrait;
    if (hot.unit == Unit::kMatrix) matrix(&t);
    for (int i = 0; i < detail.n_reads; ++i) {
      if (hot.unit != Unit::kScalar && detail.reads[i].first >= kFirstScalar) t |= kReadsScalarTrait;
    }
    for (int i = 0; i < detail.n_writes; ++i) {
      if (detail.writes[i].first >= kFirstScalar) t |= kWritesScalarTrait;
    }
    hot.traits = t;
    if (!std::strcmp(name_, "s_nop")) hot.wait_states = static_cast<uint8_t>((inst_.imm & 15) + 1);
  }

  void matrix(uint32_t* t) {
    hot.passes = static_cast<uint8_t>(passes_of(name_, arch_));
    if (has(name_, "mfma_f64")) *t |= kF64MatrixTrait;
    if (is_xdl(name_, arch_)) *t |= kXdlTrait;
    // The last of the sources, or what SMFMAC writes, which operands() has put behind them.
    detail.accumulator = range_of(starts(name_, "v_smfmac") ? inst_.dst : inst_.src[2]);
    if (detail.accumulator.count) detail.accumulator_read = detail.n_reads - 1;
  }

  void memory() {
    const uint32_t flags = inst_.row->flags;
    switch (hot.unit) {
      case Unit::kScalarMemory:
        hot.counted = detail.n_writes != 0 || flags & (kStore | kAtomic);
        break;
      case Unit::kLds:
        hot.counted = std::strcmp(name_, "ds_nop") != 0;
        lds();
        break;
      case Unit::kVectorMemory:
      case Unit::kFlat:
        // Cache invalidations are not counted; buffer_wbl2 is (LLVM, SIInsertWaitcnts).
        hot.counted = flags & (kLoad | kStore | kAtomic) || starts(name_, "buffer_wbl2");
        if (loads_to_lds())
          detail.lds = {LdsAccess::kLoadTo, 4, 1, true, {static_cast<uint32_t>(inst_.imm), 0}};
        if (flags & (kStore | kAtomic) && inst_.data.dwords > 2)
          hot.traits |= range_of(inst_.src[2]).count ? kBigStoreScalarTrait : kBigStoreTrait;
        break;
      default:
        return;
    }
    if (hot.counted) detail.loaded = range_of(inst_.dst);
  }

  void lds() {
    const uint32_t flags = inst_.row->flags;
    LdsAccess a;
    a.kind = flags & kAtomic  ? LdsAccess::kAtomic
             : flags & kLoad  ? LdsAccess::kRead
             : flags & kStore ? LdsAccess::kWrite
                              : LdsAccess::kNone;
    a.by_lane = has(name_, "addtid");
    const bool counts_lanes = inst_.row->src[0] == Type::kNone && !a.by_lane;  // ds_append, ds_consume
    if (a.kind == LdsAccess::kNone || counts_lanes) return;
    const bool two = flags & kTwoOffsets;
    const Type type = a.kind == LdsAccess::kRead ? inst_.row->dst : inst_.row->src[1];
    a.places = two ? 2 : 1;
    a.bytes = static_cast<uint8_t>(4 * dwords_of(type) / (two && a.kind == LdsAccess::kRead ? 2 : 1));
    if (has(name_, "_b8") || has(name_, "_u8") || has(name_, "_i8")) a.bytes = 1;
    if (has(name_, "_b16") || has(name_, "_u16") || has(name_, "_i16")) a.bytes = 2;
    const uint32_t unit = a.bytes * (has(name_, "st64") ? 64 : 1);
    a.offset[0] = two ? inst_.offset0 * unit : static_cast<uint32_t>(inst_.imm);
    a.offset[1] = inst_.offset1 * unit;
    detail.lds = a;
  }

  void touched() {
    uint64_t all[kRegisterWords] = {};
    for (int i = 0; i < detail.n_reads; ++i) set_bits(all, detail.reads[i]);
    for (int i = 0; i < detail.n_writes; ++i) set_bits(all, detail.writes[i]);
    for (int w = 0; w < kRegisterWords; ++w) {
      if (!all[w]) continue;
      if (hot.words == Facts::kWords) {
        hot.traits |= kTooManyTrait;
        return;
      }
      hot.word[hot.words] = static_cast<uint8_t>(w);
      hot.bits[hot.words++] = all[w];
    }
  }

  const Inst& inst_;
  const Arch arch_;
  const char* name_;
};

}  // namespace

std::string to_string(const RegisterRange& r) {
  const bool is_scalar = r.first >= kFirstScalar;
  const int first = is_scalar ? r.first - kFirstScalar : r.first & 255;
  if (is_scalar && first == kVccLo) return "vcc";
  if (is_scalar && first == kExecLo) return "exec";
  if (is_scalar && first == kM0) return "m0";
  const char* prefix = is_scalar ? "s" : r.first >= 256 ? "a" : "v";
  if (r.count == 1) return prefix + std::to_string(first);
  return prefix + ("[" + std::to_string(first)) + ":" + std::to_string(first + r.count - 1) + "]";
}

TextFacts::TextFacts(const DecodedText& text, Arch arch)
    : hot_(text.insts.size()), detail_(text.insts.size()) {
  for (size_t i = 0; i < text.insts.size(); ++i) {
    if (!text.insts[i].row) continue;
    FactsBuilder builder(text.insts[i], arch);
    builder.build();
    hot_[i] = builder.hot;
    detail_[i] = builder.detail;
  }
}

}  // namespace fmha::emu
