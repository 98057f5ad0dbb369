// SPDX-License-Identifier: MIT OR Apache-2.0
// Which class of the profile an instruction belongs to.
#include <string_view>

#include "model/profile.h"

namespace fmha::emu {
namespace {

// The VALU instructions that run at a quarter of the rate (CDNA3 ISA manual, "Transcendental instructions").
bool is_transcendental(std::string_view m) {
  for (const char* stem : {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"}) {
    if (m.starts_with(stem)) return true;
  }
  return false;
}

bool is_jump(std::string_view m) {
  return m.starts_with("s_setpc") || m.starts_with("s_swappc") || m.starts_with("s_cbranch") ||
         m.starts_with("s_call");
}

InstClass scalar_class(const Row& row) {
  const std::string_view m = row.mnemonic;
  if (row.flags & kBranch || is_jump(m)) return InstClass::kBranch;
  if (m == "s_barrier" || m.starts_with("s_waitcnt")) return InstClass::kSync;
  return row.format == Format::kSopp ? InstClass::kOther : InstClass::kSalu;
}

InstClass memory_class(const Row& row) {
  if (row.flags & kAtomic) return InstClass::kVmemAtomic;
  if (row.flags & kStore) return InstClass::kVmemStore;
  return row.flags & kLoad ? InstClass::kVmemLoad : InstClass::kOther;
}

}  // namespace

const char* class_name(InstClass c) {
  constexpr const char* kNames[kInstClasses] = {
      "valu",      "transcendental", "mfma",        "salu",   "smem", "lds",
      "vmem_load", "vmem_store",     "vmem_atomic", "branch", "sync", "other"};
  return kNames[static_cast<int>(c)];
}

InstClass class_of(const Row& row) {
  const std::string_view m = row.mnemonic;
  switch (row.format) {
    case Format::kSop1:
    case Format::kSop2:
    case Format::kSopc:
    case Format::kSopp:
    case Format::kSopk:
      return scalar_class(row);
    case Format::kSmem:
      return m.starts_with("s_dcache") ? InstClass::kOther : InstClass::kSmem;
    case Format::kMai:
      return m.starts_with("v_accvgpr") ? InstClass::kValu : InstClass::kMfma;
    case Format::kDs:
      return m == "ds_nop" ? InstClass::kOther : InstClass::kLds;
    case Format::kMubuf:
    case Format::kMtbuf:
    case Format::kFlat:
    case Format::kGlobal:
    case Format::kScratch:
      return memory_class(row);
    default:
      return is_transcendental(m) ? InstClass::kTranscendental : InstClass::kValu;
  }
}

std::string mfma_type(const std::string& mnemonic) {
  // v_mfma_<type of the result>_<shape>[_]<type of the inputs>[_1k]
  const size_t result = mnemonic.find('_', 2);
  const size_t shape = mnemonic.find('_', result + 1);
  const std::string inputs = mnemonic.substr(shape + 1);
  for (const char* type :
       {"fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8", "bf16", "f16", "xf32", "f32", "f64", "i8"}) {
    if (inputs.find(type) != std::string::npos) return type;
  }
  return "unknown";
}

}  // namespace fmha::emu
