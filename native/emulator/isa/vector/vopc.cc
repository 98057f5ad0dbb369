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

// One row of cmp and one of cmpx a relation.
// clang-format off: a row is a line, or two
#define FMHA_EMU_COMPARE(name, relation, type, operand, flags)                            \
  {"v_cmp_" name, Type::kMask, {operand, operand}, flags,        \
   cmp<kCompare<Relation::relation, type>>},                                                      \
  {"v_cmpx_" name, Type::kMask, {operand, operand},    \
   flags | kWritesExec, cmpx<kCompare<Relation::relation, type>>}

#define FMHA_EMU_FLOAT_COMPARES(suffix, type, operand)                                      \
  FMHA_EMU_COMPARE("f_" suffix, kF, type, operand, kHasModifiers),                      \
  FMHA_EMU_COMPARE("lt_" suffix, kLt, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("eq_" suffix, kEq, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("le_" suffix, kLe, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("gt_" suffix, kGt, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("lg_" suffix, kLg, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("ge_" suffix, kGe, type, operand, kHasModifiers),                    \
  FMHA_EMU_COMPARE("o_" suffix, kO, type, operand, kHasModifiers),                      \
  FMHA_EMU_COMPARE("u_" suffix, kU, type, operand, kHasModifiers),                      \
  FMHA_EMU_COMPARE("nge_" suffix, kNge, type, operand, kHasModifiers),                  \
  FMHA_EMU_COMPARE("nlg_" suffix, kNlg, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("ngt_" suffix, kNgt, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("nle_" suffix, kNle, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("neq_" suffix, kNeq, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("nlt_" suffix, kNlt, type, operand, kHasModifiers),                 \
  FMHA_EMU_COMPARE("tru_" suffix, kTru, type, operand, kHasModifiers)

#define FMHA_EMU_INT_COMPARES(suffix, type, operand, flags)                                        \
  FMHA_EMU_COMPARE("f_" suffix, kF, type, operand, flags),                                 \
  FMHA_EMU_COMPARE("lt_" suffix, kLt, type, operand, flags),                               \
  FMHA_EMU_COMPARE("eq_" suffix, kEq, type, operand, flags),                               \
  FMHA_EMU_COMPARE("le_" suffix, kLe, type, operand, flags),                               \
  FMHA_EMU_COMPARE("gt_" suffix, kGt, type, operand, flags),                               \
  FMHA_EMU_COMPARE("ne_" suffix, kNeq, type, operand, flags),                              \
  FMHA_EMU_COMPARE("ge_" suffix, kGe, type, operand, flags),                               \
  FMHA_EMU_COMPARE("t_" suffix, kTru, type, operand, flags)

#define FMHA_EMU_CLASS(name, type, operand)                                               \
  {"v_cmp_class_" name, Type::kMask, {operand, Type::kI32},      \
   kHasModifiers, cmp<kClass<type>>},                                                             \
  {"v_cmpx_class_" name, Type::kMask,                    \
   {operand, Type::kI32}, kHasModifiers | kWritesExec, cmpx<kClass<type>>}

// From gfx11 on the mask of classes beside an f16 is half a register.
constexpr auto kClassOfHalf = [](f16 a, u16 mask) { return in_class(a, u32{mask}); };

constexpr Row kRows[] = {
  {"v_cmp_class_f16_gfx11", Type::kMask, {Type::kF16, Type::kI16}, kHasModifiers | kHalfConstants, cmp<kClassOfHalf>},
  {"v_cmpx_class_f16_gfx11", Type::kMask, {Type::kF16, Type::kI16}, kHasModifiers | kHalfConstants | kWritesExec,
   cmpx<kClassOfHalf>},
  FMHA_EMU_CLASS("f32", float, Type::kF32),
  FMHA_EMU_CLASS("f64", double, Type::kF64),
  FMHA_EMU_CLASS("f16", f16, Type::kF16),
  FMHA_EMU_FLOAT_COMPARES("f16", f16, Type::kF16),
  FMHA_EMU_FLOAT_COMPARES("f32", float, Type::kF32),
  FMHA_EMU_FLOAT_COMPARES("f64", double, Type::kF64),
  FMHA_EMU_INT_COMPARES("i16", i16, Type::kI16, 0u),
  FMHA_EMU_INT_COMPARES("u16", u16, Type::kI16, 0u),
  FMHA_EMU_INT_COMPARES("i32", i32, Type::kI32, 0u),
  FMHA_EMU_INT_COMPARES("u32", u32, Type::kI32, 0u),
  FMHA_EMU_INT_COMPARES("i64", i64, Type::kI64, kSignedLiteral),
  FMHA_EMU_INT_COMPARES("u64", u64, Type::kI64, 0u),
};
// clang-format on

}  // namespace

std::span<const Row> vopc_rows() { return kRows; }

}  // namespace fmha::emu::FMHA_EMU_LEVEL
