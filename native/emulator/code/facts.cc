// SPDX-License-Identifier: MIT OR Apache-2.0
#include "code/facts.h"

#include <algorithm>

#include "core/dialect.h"
#include "core/wave.h"

namespace fmha::emu {
namespace {

constexpr uint16_t kVccz = 251, kExecz = 252;  // operand numbers

RegisterRange range_of(const Operand& o) {
  if (o.kind == OperandKind::kSgpr && o.index >= kNull) return {};
  if (o.kind == OperandKind::kVgpr) return {o.index, o.dwords};
  if (o.kind == OperandKind::kSgpr) return {static_cast<uint16_t>(kFirstScalar + o.index), o.dwords};
  return {};
}
constexpr RegisterRange scalar(uint16_t first, uint8_t count) {
  return {static_cast<uint16_t>(kFirstScalar + first), count};
}

// Passes (of four cycles) of the matrix instructions. Source: LLVM's SISchedule.td, models SIDPFullSpeed
// (gfx90a), SIDPGFX942FullSpeed, which agree with the tables of the CDNA2 and CDNA3 ISA guides, and
// SIDPGFX950FullSpeed.
int passes_of(const Inst& inst, Isa isa) {
  const MatrixShape& matrix = inst.row->matrix;
  const bool small = matrix.m == 4, middle = matrix.m == 16;
  // CBSZ and BLGP of 0 and 1 are types of 8 bits, which take twice as long.
  if (matrix.a == Element::kF8F6F4) return (middle ? 4 : 8) * (inst.cbsz < 2 || inst.blgp < 2 ? 2 : 1);
  if (matrix.a == Element::kF64) return small ? 4 : isa == Isa::kCdna4 ? 16 : 8;
  if (small) return 2;
  switch (isa) {
    case Isa::kCdna2:
      return middle ? 8 : 16;
    case Isa::kRdna2:  // which has none
    case Isa::kRdna3:
    case Isa::kRdna4:
      return 4;  // 32 cycles of two SIMD16s
    case Isa::kCdna3:
    case Isa::kCdna4: {
      const bool fast = matrix.sparse || matrix.a == Element::kXf32 || matrix.k >= (middle ? 16 : 8);
      return (middle ? 8 : 16) / (fast ? 2 : 1);
    }
  }
  __builtin_unreachable();
}

// Does it run on the XDL unit?
bool is_xdl(const MatrixShape& matrix, Isa isa) {
  if (matrix.a == Element::kF64) return false;
  switch (isa) {
    case Isa::kCdna2:
      return true;
    case Isa::kCdna3:
    case Isa::kCdna4:
      return matrix.a != Element::kF32;
    case Isa::kRdna2:
    case Isa::kRdna3:
    case Isa::kRdna4:
      return false;
  }
  __builtin_unreachable();
}

Unit unit_of(const BoundRow& row) {
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
      return row.matrix.m ? Unit::kMatrix : Unit::kVector;
  }
}

bool is_branch(const Inst& inst) { return inst.row && inst.row->is(kBranch); }

class FactsBuilder {
 public:
  FactsBuilder(const Inst& inst, Isa isa, int wave_size)
      : inst_(inst), row_(*inst.row), isa_(isa), wave_size_(wave_size) {}
  void build() {
    hot.unit = unit_of(row_);
    hot.queue = queue_of(inst_, isa_);
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
  uint8_t lane_words() const { return static_cast<uint8_t>(wave_size_ / 32); }
  bool vector_alu() const { return is_vector_alu(hot); }

  // Half a register, where halves are kept.
  RegisterRange half_of(const Operand& o, bool upper) const {
    RegisterRange range = range_of(o);
    if (range.count == 1 && o.kind == OperandKind::kVgpr && dialect_of(isa_).keeps_halves)
      range.halves = upper ? kUpperHalf : kLowHalf;
    return range;
  }
  RegisterRange source(int i) const {
    const Operand& o = inst_.src[i];
    const bool picked = (i == 0 && row_.is(kSelectsSource)) || (i == 2 && row_.is(kSelectsShift));
    if (vector_alu() && (is_half(row_.src[i]) || picked)) return half_of(o, inst_.op_sel >> i & 1);
    return i == 1 && hot.unit == Unit::kLds ? stored(o) : range_of(o);
  }
  // The registers that a store reads. All other instructions have only registers of 32 bits.
  RegisterRange stored(const Operand& o) const {
    const bool half = row_.is(kStore) && row_.bytes <= 2;
    return half ? half_of(o, row_.is(kHighHalf)) : range_of(o);
  }
  RegisterRange destination() const {
    if (inst_.keeps_half) return half_of(inst_.dst, inst_.op_sel & 8);
    const bool half = row_.is(kLoad) && row_.is(kReadsDst);
    return half ? half_of(inst_.dst, row_.is(kHighHalf)) : range_of(inst_.dst);
  }

  void operands() {
    if (inst_.dual) {
      dual(inst_.dual[0]);
      dual(inst_.dual[1]);
      return;
    }
    for (int i = 0; i < 2 && inst_.scales; ++i) read(range_of(inst_.scales->src[i]));
    for (int i = 0; i < 3; ++i) read(source(i));
    read(stored(inst_.data));
    // A load of one half writes no more than that, where registers have no error correction (RDNA).
    const bool writes_half = row_.is(kLoad) && dialect_of(isa_).keeps_halves;
    const bool upper = inst_.op_sel & 8 && !inst_.keeps_half;
    const bool keeps = (row_.is(kReadsDst) && !writes_half) || inst_.sdwa.dst_unused == 2 || upper;
    if (keeps) read(inst_.keeps_half ? destination() : range_of(inst_.dst));
    write(destination());
    write(range_of(inst_.sdst));
    if (row_.is(kWritesSrc0)) write(source(0));
  }

  void dual(const Inst& half) {
    for (const Operand& o : half.src) {
      const bool copy = o.kind == OperandKind::kVgpr && o.index == kVopdCopy;
      read(range_of(copy ? inst_.dual[0].dst : o));
    }
    if (half.row->is(kReadsDst)) read(range_of(half.dst));
    write(range_of(half.dst));
  }

  void implicit() {
    const bool explicit_vcc = names_mask(row_);  // it is src[2]
    if (row_.is(kReadsVcc) && !explicit_vcc) read(scalar(kVccLo, lane_words()));
    if (row_.is(kWritesExec)) write(scalar(kExecLo, lane_words()));
    const bool lds_by_lane = row_.is(kByLane) && hot.unit == Unit::kLds;
    if (loads_to_lds() || lds_by_lane) read(scalar(kM0, 1));
    if (row_.is(kWritesM0)) write(scalar(kM0, 1));
  }

  bool loads_to_lds() const { return inst_.lds || row_.is(kToLds); }

  void traits() {
    uint32_t t = 0;
    if (row_.is(kTranscendental)) t |= kTransTrait;
    if (is_dpp(inst_.encoding)) t |= kDppTrait;
    if (row_.is(kDot)) t |= kDotTrait;
    if (row_.is(kReadLane)) t |= kReadLaneTrait;
    if (row_.is(kReadLane | kWriteLane)) t |= kLaneTrait;
    if (row_.is(kLateVcc)) t |= kDivFmasTrait;
    if (row_.is(kSwapsLanes)) t |= kSwapTrait;
    if (row_.is(kFma64)) t |= kFma64Trait;
    if (row_.immediate == Immediate::kHwReg) t |= row_.dst == Type::kNone ? kSetRegTrait : kGetRegTrait;
    if (is_wait(row_.immediate)) t |= kWaitTrait;
    if (row_.is(kNeedsM0) || loads_to_lds() || inst_.gds) t |= kNeedsM0Trait;
    for (const Operand& o : inst_.src) {
      if (hot.unit != Unit::kVector || o.kind != OperandKind::kSpecial) continue;
      if (o.index == kVccz) t |= kReadsVcczTrait;
      if (o.index == kExecz) t |= kReadsExeczTrait;
    }
    const bool part =
        inst_.encoding == Encoding::kSdwa && row_.format != Format::kVopc && inst_.sdwa.dst_sel != 6;
    const bool high =
        inst_.op_sel & 8 || (row_.is(kSelectsByte) && inst_.op_sel & 12) || row_.is(kPlacesLate);
    if (vector_alu() && (part || high)) t |= kHalfTrait;
    if (hot.unit == Unit::kMatrix) matrix(&t);
    for (int i = 0; i < detail.n_reads; ++i) {
      if (hot.unit != Unit::kScalar && detail.reads[i].first >= kFirstScalar) t |= kReadsScalarTrait;
    }
    for (int i = 0; i < detail.n_writes; ++i) {
      if (detail.writes[i].first >= kFirstScalar) t |= kWritesScalarTrait;
    }
    hot.traits = t;
    if (row_.immediate == Immediate::kWaitStates)
      hot.wait_states = static_cast<uint8_t>((inst_.imm & 15) + 1);
  }

  void matrix(uint32_t* t) {
    hot.passes = static_cast<uint8_t>(passes_of(inst_, isa_));
    if (row_.matrix.a == Element::kF64) *t |= kF64MatrixTrait;
    if (is_xdl(row_.matrix, isa_)) *t |= kXdlTrait;
    // It is the last source, or for SMFMAC the destination, which operands() appends to the sources.
    detail.accumulator = range_of(row_.matrix.sparse ? inst_.dst : inst_.src[2]);
    if (detail.accumulator.count) detail.accumulator_read = detail.n_reads - 1;
  }

  void memory() {
    constexpr RowFlags kCountedKinds = kLoad | kStore | kAtomic | kCounted;
    switch (hot.unit) {
      case Unit::kScalarMemory:
        hot.counted = detail.n_writes != 0 || row_.is(kStore | kAtomic);
        break;
      case Unit::kLds:
        hot.counted = row_.is(kCountedKinds);
        lds();
        break;
      case Unit::kVectorMemory:
      case Unit::kFlat:
        // Cache invalidations are not counted; buffer_wbl2 is (LLVM, SIInsertWaitcnts).
        hot.counted = row_.is(kCountedKinds);
        if (loads_to_lds())
          detail.lds = {LdsAccess::kLoadTo,
                        std::max<uint8_t>(row_.bytes, 4),
                        1,
                        true,
                        {static_cast<uint32_t>(inst_.imm), 0}};
        if (row_.is(kStore | kAtomic) && inst_.data.dwords > 2)
          hot.traits |= range_of(inst_.src[2]).count ? kBigStoreScalarTrait : kBigStoreTrait;
        break;
      default:
        return;
    }
    if (hot.counted) detail.loaded = destination();
  }

  void lds() {
    LdsAccess a;
    a.kind = row_.is(kAtomic)  ? LdsAccess::kAtomic
             : row_.is(kLoad)  ? LdsAccess::kRead
             : row_.is(kStore) ? LdsAccess::kWrite
                               : LdsAccess::kNone;
    if (a.kind == LdsAccess::kNone || !row_.bytes) return;  // ds_append counts lanes at M0
    const bool two = row_.is(kTwoOffsets);
    a.by_lane = row_.is(kByLane);
    a.places = two ? 2 : 1;
    a.bytes = row_.bytes;
    const uint32_t unit = a.bytes * (row_.is(kStride64) ? 64 : 1);
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
  const BoundRow& row_;
  const Isa isa_;
  const int wave_size_;
};

}  // namespace

Queue queue_of(const Inst& inst, Isa isa) {
  switch (unit_of(*inst.row)) {
    case Unit::kScalarMemory:
      return Queue::kScalar;
    case Unit::kLds:
      return Queue::kLds;
    case Unit::kFlat:
      return Queue::kFlat;
    default: {
      const bool returns_nothing = inst.row->is(kStore | kAtomic) && inst.dst.kind == OperandKind::kNone;
      return dialect_of(isa).has_vscnt && returns_nothing ? Queue::kStore : Queue::kVector;
    }
  }
}

Waits waits_of(const Inst& inst, Isa isa) {
  const auto field = static_cast<uint32_t>(inst.imm) & 0xffff;
  Waits waits;
  switch (inst.row->immediate) {
    case Immediate::kStoreCount:
      waits.stores = field;
      break;
    case Immediate::kVectorCount:
      waits.vector = field;
      break;
    case Immediate::kLdsCount:
      waits.lds = field;
      break;
    case Immediate::kScalarCount:
      waits.scalars = field;
      break;
    case Immediate::kLoadLdsCount:
      waits.vector = field >> 8 & 63;
      waits.lds = field & 63;
      break;
    case Immediate::kStoreLdsCount:
      waits.stores = field >> 8 & 63;
      waits.lds = field & 63;
      break;
    default: {
      const WaitCounts counts = wait_counts(field, dialect_of(isa));
      waits.vector = counts.vector;
      waits.lds = waits.scalars = counts.lds;
    }
  }
  return waits;
}

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

bool writes_exec(const FactsDetail& d) {
  const RegisterRange exec = scalar(kExecLo, 2);
  return std::any_of(d.writes, d.writes + d.n_writes,
                     [&](const RegisterRange& r) { return r.overlaps(exec); });
}

TextFacts::TextFacts(const DecodedText& text, Arch arch, int wave_size)
    : hot_(text.insts.size()), detail_(text.insts.size()) {
  for (size_t i = 0; i < text.insts.size(); ++i) {
    if (!text.insts[i].row) continue;
    FactsBuilder builder(text.insts[i], arch_info(arch).isa, wave_size);
    builder.build();
    hot_[i] = builder.hot;
    detail_[i] = builder.detail;
    const bool pair = is_branch(text.insts[i]) && is_branch(text.insts[i + 1]);  // the end is no branch
    if (pair) hot_[i].traits |= kBranchPairTrait;
  }
}

}  // namespace fmha::emu
