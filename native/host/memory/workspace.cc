// SPDX-License-Identifier: MIT OR Apache-2.0
#include "memory/workspace.h"

#include <cinttypes>

#include "error.h"

namespace fmha {

void check_workspace(const Workspace& given, int64_t needed, const Extents& extents, const char* query) {
  if (needed == 0) return;
  if (given.data == nullptr) {
    raise(FMHA_INVALID_ARGUMENT,
          "workspace = NULL: expected device memory of workspace_bytes = %" PRId64 " or more (%s)", needed,
          query);
  }
  if (given.bytes < needed) {
    raise(FMHA_INVALID_ARGUMENT, "workspace_bytes = %" PRId64 ": expected %" PRId64 " or more (%s)",
          given.bytes, needed, query);
  }
  const auto begin = reinterpret_cast<uintptr_t>(given.data);
  if (begin % static_cast<uintptr_t>(Workspace::kAlignBytes) != 0) {
    raise(FMHA_INVALID_ARGUMENT, "workspace = %p: expected an address aligned to %" PRId64 " bytes",
          given.data, Workspace::kAlignBytes);
  }
  extents.check_overlaps_with({"workspace", "workspace", begin, static_cast<uint64_t>(needed), true});
}

}  // namespace fmha
