// SPDX-License-Identifier: MIT OR Apache-2.0
// The entries by which a test tells the checks about memory.
#include "core/memory.h"

#include "base/emu_tools.h"
#include "core/shadow.h"
#include "hip/state.h"

namespace fmha::emu {
namespace {

// hipSuccess if the range lies in one allocation.
int check(const char* function, const void* p, size_t bytes) {
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  Allocation a;
  if (memory_find(address, &a) && bytes <= a.bytes - (address - a.base)) return hipSuccess;
  return fail(hipErrorInvalidValue,
              "%s: p = %p, bytes = %zu, expected a range inside one allocation; p is %s", function, p, bytes,
              memory_describe_nearest(address).c_str());
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

int fmha_emu_track_initialized(const void* p, size_t bytes) {
  return guarded([&] {
    if (const int e = check("fmha_emu_track_initialized", p, bytes)) return e;
    unwritten_track(reinterpret_cast<uint64_t>(p), bytes);
    return static_cast<int>(hipSuccess);
  });
}

int fmha_emu_mark_initialized(const void* p, size_t bytes) {
  return guarded([&] {
    if (const int e = check("fmha_emu_mark_initialized", p, bytes)) return e;
    unwritten_note_write(p, bytes);
    return static_cast<int>(hipSuccess);
  });
}

int fmha_emu_first_uninitialized(const void* p, size_t bytes, size_t* out) {
  return guarded([&] {
    if (!out) return fail(hipErrorInvalidValue, "fmha_emu_first_uninitialized: out is null");
    if (const int e = check("fmha_emu_first_uninitialized", p, bytes)) return e;
    *out = unwritten_first(reinterpret_cast<uint64_t>(p), bytes);
    return static_cast<int>(hipSuccess);
  });
}

int fmha_emu_declare_read_only(const void* p, size_t bytes) {
  return guarded([&] {
    if (const int e = check("fmha_emu_declare_read_only", p, bytes)) return e;
    if (bytes) read_only_ranges().push_back({reinterpret_cast<uint64_t>(p), bytes});
    return static_cast<int>(hipSuccess);
  });
}

int fmha_emu_end_read_only(void) {
  read_only_ranges().clear();
  return hipSuccess;
}
