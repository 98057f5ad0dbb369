// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/unsupported.h"

#include <algorithm>
#include <cstring>

#include "error.h"
#include "problem/types.h"
#include "text.h"

namespace fmha {
namespace {

template <typename Predicate>
bool any_kernel(Family family, Predicate predicate) {
  return std::any_of(kKernels, kKernels + kKernelCount,
                     [&](const Kernel& k) { return k.family == family && predicate(k); });
}

}  // namespace

OtherFp8::OtherFp8(DType wanted, Arch arch) {
  const ArchInfo& info = arch_info(arch);
  if (!is_fp8(wanted) || std::strcmp(info.fp8, dtype_name(other_fp8(wanted))) != 0) return;
  std::snprintf(text, sizeof text, "; %s is %s, and %s has %s, %s", dtype_name(wanted), fp8_format(wanted),
                info.name, info.fp8, fp8_format(other_fp8(wanted)));
}

void raise_for_type(const FamilyWords& words, DType wanted, Arch arch, const Elsewhere& elsewhere) {
  ItemList archs, dtypes;
  for (const ArchInfo& info : kArchs) {
    if (any_kernel(words.family, [&](const Kernel& k) { return k.arch == info.arch; })) archs.add(info.name);
  }
  for (size_t i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (any_kernel(words.family, [&](const Kernel& k) { return k.arch == arch && k.dtype == dtype; })) {
      dtypes.add(dtype_name(dtype));
    }
  }
  if (archs.is_empty()) archs.add("none");
  if (dtypes.is_empty()) {
    raise(FMHA_UNSUPPORTED, "%s = %s: this build has no %s for %s; it has kernels for: %s%s", words.dtype,
          dtype_name(wanted), words.kernel, arch_name(arch), archs.c_str(), elsewhere.text);
  }
  raise(FMHA_UNSUPPORTED, "%s = %s: this build has no such kernel for %s; it has: %s%s%s", words.dtype,
        dtype_name(wanted), arch_name(arch), dtypes.c_str(), OtherFp8(wanted, arch).text, elsewhere.text);
}

}  // namespace fmha
