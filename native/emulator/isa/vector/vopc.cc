// SPDX-License-Identifier: MIT OR Apache-2.0
// VOPC: compares and class tests, into a mask; v_cmpx into EXEC as well.
#include "isa/rows.h"
#include "isa/vector/valu.h"

namespace fmha::emu::FMHA_EMU_LEVEL {
namespace {

template <class T>
FMHA_EMU_INLINE T number(T x, const Env&) {
  return x;
}
FMHA_EMU_INLINE float number(f16 x, const Env& e) { return to_f32(x, e); }

enum class Relation { kF, kLt, kEq, kLe, kGt, kLg, kGe, kO, kU, kNge, kNlg, kNgt, kNle, kNeq, kNlt, kTru };
template <Relation kRelation, class T>
FMHA_EMU_INLINE bool holds(T a, T b) {
  switch (kRelation) {
    case Relation::kF:
      return false;
    case Relation::kLt:
      return a < b;
    case Relation::kEq:
      return a == b;
    case Relation::kLe:
      return a <= b;
    case Relation::kGt:
      return a > b;
    case Relation::kLg:
      return (a < b) | (a > b);
    case Relation::kGe:
      return a >= b;
    case Relation::kO:
      return (a == a) & (b == b);
    case Relation::kU:
      return (a != a) | (b != b);
    case Relation::kNge:
      return !(a >= b);
    case Relation::kNlg:
      return !((a < b) | (a > b));
    case Relation::kNgt:
      return !(a > b);
    case Relation::kNle:
      return !(a <= b);
    case Relation::kNeq:
      return !(a == b);
    case Relation::kNlt:
      return !(a < b);
    case Relation::kTru:
      return true;
  }
}
template <Relation kRelation, class T>
constexpr auto kCompare = [](const Env& e, T a, T b) { return holds<kRelation>(number(a, e), number(b, e)); };
template <class T>
constexpr auto kClass = [](T a, u32 mask) { return in_class(a, mask); };

// One row a relation; cmp and cmpx differ in 16 (floats) or 16 (integers) opcodes.
// clang-format off: a row is a line, or two
#define FMHA_EMU_COMPARE(name, relation, opcode, type, operand, flags)                            \
  {"v_cmp_" name, Format::kVopc, {opcode, opcode}, Type::kMask, {operand, operand}, flags,        \
   cmp<kCompare<Relation::relation, type>>},                                                      \
  {"v_cmpx_" name, Format::kVopc, {opcode + 16, opcode + 16}, Type::kMask, {operand, operand},    \
   flags | kWritesExec, cmpx<kCompare<Relation::relation, type>>}

#define FMHA_EMU_FLOAT_COMPARES(suffix, base, type, operand)                                      \
  FMHA_EMU_COMPARE("f_" suffix, kF, base + 0, type, operand, kHasModifiers),                      \
  FMHA_EMU_COMPARE("lt_" suffix, kLt, base + 1, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("eq_" suffix, kEq, base + 2, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("le_" suffix, kLe, base + 3, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("gt_" suffix, kGt, base + 4, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("lg_" suffix, kLg, base + 5, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("ge_" suffix, kGe, base + 6, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("o_" suffix, kO, base + 7, type, operand, kHasModifiers),                      \
  FMHA_EMU_COMPARE("u_" suffix, kU, base + 8, type, operand, kHasModifiers),                      \
  FMHA_EMU_COMPARE("nge_" suffix, kNge, base + 9, type, operand, kHasModifiers),                  \
  FMHA_EMU_COMPARE("nlg_" suffix, kNlg, base + 10, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("ngt_" suffix, kNgt, base + 11, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("nle_" suffix, kNle, base + 12, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("neq_" suffix, kNeq, base + 13, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("nlt_" suffix, kNlt, base + 14, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("tru_" suffix, kTru, base + 15, type, operand, kHasModifiers)

#define FMHA_EMU_INT_COMPARES(suffix, base, type, operand)                                        \
  FMHA_EMU_COMPARE("f_" suffix, kF, base + 0, type, operand, 0u),                                 \
  FMHA_EMU_COMPARE("lt_" suffix, kLt, base + 1, type, operand, 0u),                               \
  FMHA_EMU_COMPARE("eq_" suffix, kEq, base + 2, type, operand, 0u),                               \
  FMHA_EMU_COMPARE("le_" suffix, kLe, base + 3, type, operand, 0u),                               \
  FMHA_EMU_COMPARE("gt_" suffix, kGt, base + 4, type, operand, 0u),                               \
  FMHA_EMU_COMPARE("ne_" suffix, kNeq, base + 5, type, operand, 0u),                              \
  FMHA_EMU_COMPARE("ge_" suffix, kGe, base + 6, type, operand, 0u),                               \
  FMHA_EMU_COMPARE("t_" suffix, kTru, base + 7, type, operand, 0u)

#define FMHA_EMU_CLASS(name, opcode, type, operand)                                               \
  {"v_cmp_class_" name, Format::kVopc, {opcode, opcode}, Type::kMask, {operand, Type::kI32},      \
   kHasModifiers, cmp<kClass<type>>},                                                             \
  {"v_cmpx_class_" name, Format::kVopc, {opcode + 1, opcode + 1}, Type::kMask,                    \
   {operand, Type::kI32}, kHasModifiers | kWritesExec, cmpx<kClass<type>>}

constexpr Row kRows[] = {
  FMHA_EMU_CLASS("f32", 0x10, float, Type::kF32),
  FMHA_EMU_CLASS("f64", 0x12, double, Type::kF64),
  FMHA_EMU_CLASS("f16", 0x14, f16, Type::kF16),
  FMHA_EMU_FLOAT_COMPARES("f16", 0x20, f16, Type::kF16),
  FMHA_EMU_FLOAT_COMPARES("f32", 0x40, float, Type::kF32),
  FMHA_EMU_FLOAT_COMPARES("f64", 0x60, double, Type::kF64),
  FMHA_EMU_INT_COMPARES("i16", 0xa0, i16, Type::kI16),
  FMHA_EMU_INT_COMPARES("u16", 0xa8, u16, Type::kI16),
  FMHA_EMU_INT_COMPARES("i32", 0xc0, i32, Type::kI32),
  FMHA_EMU_INT_COMPARES("u32", 0xc8, u32, Type::kI32),
  FMHA_EMU_INT_COMPARES("i64", 0xe0, i64, Type::kI64),
  FMHA_EMU_INT_COMPARES("u64", 0xe8, u64, Type::kI64),
};
// clang-format on

}  // namespace

std::span<const Row> vopc_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
