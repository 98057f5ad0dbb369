// SPDX-License-Identifier: MIT OR Apache-2.0
// The class of the profile that an instruction belongs to.
#include "model/profile.h"

namespace fmha::emu {
namespace {

InstClass scalar_class(const BoundRow& row) {
  if (row.is(kBranch | kJump)) return InstClass::kBranch;
  if (row.is(kBarrier) || is_wait(row.immediate)) return InstClass::kSync;
  return row.format == Format::kSopp ? InstClass::kOther : InstClass::kSalu;
}

InstClass memory_class(const BoundRow& row) {
  if (row.flags & kAtomic) return InstClass::kVmemAtomic;
  if (row.flags & kStore) return InstClass::kVmemStore;
  return row.flags & kLoad ? InstClass::kVmemLoad : InstClass::kOther;
}

const char* element_name(Element e) {
  switch (e) {
    case Element::kNone:
      return "none";
    case Element::kF16:
      return "f16";
    case Element::kBf16:
      return "bf16";
    case Element::kXf32:
      return "xf32";
    case Element::kF32:
      return "f32";
    case Element::kF64:
      return "f64";
    case Element::kI8:
      return "i8";
    case Element::kI4:
      return "i4";
    case Element::kFp8:
      return "fp8";
    case Element::kBf8:
      return "bf8";
    case Element::kF8F6F4:
      return "f8f6f4";
  }
  return "none";
}

}  // namespace

const char* class_name(InstClass c) {
  constexpr const char* kNames[kInstClasses] = {
      "valu",      "transcendental", "mfma",        "salu",   "smem", "lds",
      "vmem_load", "vmem_store",     "vmem_atomic", "branch", "sync", "other"};
  return kNames[static_cast<int>(c)];
}

InstClass class_of(const BoundRow& row) {
  switch (row.format) {
    case Format::kSop1:
    case Format::kSop2:
    case Format::kSopc:
    case Format::kSopp:
    case Format::kSopk:
      return scalar_class(row);
    case Format::kSmem:
      return row.is(kCacheControl) ? InstClass::kOther : InstClass::kSmem;
    case Format::kMai:
      return row.matrix.m ? InstClass::kMfma : InstClass::kValu;
    case Format::kDs:
      return row.is(kLoad | kStore | kAtomic | kCounted) ? InstClass::kLds : InstClass::kOther;
    case Format::kMubuf:
    case Format::kMtbuf:
    case Format::kFlat:
    case Format::kGlobal:
    case Format::kScratch:
      return memory_class(row);
    default:  // RDNA's matrix instructions have the format of its others
      if (row.matrix.m) return InstClass::kMfma;
      return row.is(kTranscendental) ? InstClass::kTranscendental : InstClass::kValu;
  }
}

std::string mfma_type(const MatrixShape& matrix) {
  const std::string a = element_name(matrix.a);
  const bool pair = matrix.a == Element::kFp8 || matrix.a == Element::kBf8;  // these may differ
  return pair ? a + "_" + element_name(matrix.b) : a;
}

}  // namespace fmha::emu
