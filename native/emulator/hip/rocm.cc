// SPDX-License-Identifier: MIT OR Apache-2.0
// Sources: ROCm/clr at rocm-6.0.0 and rocm-6.2.2, rocm-systems after 7.0.
#include "hip/rocm.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "base/environment.h"
#include "hip/state.h"

namespace fmha::emu {
namespace {

constexpr const char* kVariable = "FMHA_EMU_ROCM";

struct Release {
  const char* name;  // null: nothing is set
  Rocm rocm;
  int version;
};
constexpr Release kReleases[] = {{nullptr, Rocm::kUnset, 60'400'000},
                                 {"6.0", Rocm::k60, 60'000'000},
                                 {"6.2", Rocm::k62, 60'200'000},
                                 {"7", Rocm::k7, 70'000'000}};

const Release* find_release(const char* name) {
  for (const Release& r : kReleases) {
    if (name && r.name ? !std::strcmp(name, r.name) : name == r.name) return &r;
  }
  return nullptr;
}

const Release* of_environment() {
  const Release* r = find_release(environment_text(kVariable));
  if (!r) reject_environment(kVariable, "6.0, 6.2 or 7");
  return r;
}

std::atomic<const Release*>& chosen() {
  static std::atomic<const Release*> release = of_environment();
  return release;
}

std::atomic<int> final_fault{hipSuccess};

// libamdhip64.so.7, or whatever file this is by another name.
bool asked_for_as_7() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&asked_for_as_7), &info) || !info.dli_fname) return false;
  const char* end = std::strstr(info.dli_fname, ".so.7");
  return end && (end[5] == '\0' || end[5] == '.');
}

}  // namespace

Rocm rocm() { return chosen().load()->rocm; }

bool last_error_is_of_last_call() { return rocm() == Rocm::k60 || rocm() == Rocm::k62; }
bool takes_legacy_handle() { return rocm() == Rocm::kUnset || rocm() == Rocm::k7; }
bool fault_is_final() { return rocm() == Rocm::k7; }
bool function_needs_current_device() { return rocm() == Rocm::k62; }

int runtime_version() {
  static const bool is_7 = asked_for_as_7();
  return rocm() == Rocm::kUnset && is_7 ? find_release("7")->version : chosen().load()->version;
}

int call_begins() {
  const int fault = final_fault;
  if (!fault || !fault_is_final()) return hipSuccess;
  return fail(fault, "a launch stopped earlier, which ends what this process may do with devices: %s",
              error_name(fault));
}

int call_ends(int code) {
  if (last_error_is_of_last_call()) set_last_error(code);
  return code;
}

void note_final_fault(int error) {
  if (!fault_is_final()) return;
  int none = hipSuccess;
  final_fault.compare_exchange_strong(none, error);
}

void forget_final_fault() { final_fault = hipSuccess; }

}  // namespace fmha::emu

using namespace fmha::emu;

// Tests call it: plays another release from now on, "" for none. Returns a hipError_t.
HIP_API int fmha_emu_set_rocm(const char* name) {
  const Release* r = find_release(name && *name ? name : nullptr);
  if (!r)
    return fail(hipErrorInvalidValue, "fmha_emu_set_rocm: \"%s\", expected 6.0, 6.2, 7 or nothing", name);
  chosen() = r;
  return hipSuccess;
}
