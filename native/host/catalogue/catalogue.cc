// SPDX-License-Identifier: MIT OR Apache-2.0
#include "catalogue/catalogue.h"

namespace fmha {

const char* arch_name(Arch arch) {
  for (const ArchInfo& info : kArchs) {
    if (info.arch == arch) return info.name;
  }
  return "unknown arch";
}

const char* dtype_name(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) return info.name;
  }
  return "unknown dtype";
}

}  // namespace fmha
