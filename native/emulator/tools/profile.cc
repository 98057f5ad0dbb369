// SPDX-License-Identifier: MIT OR Apache-2.0
// The entries of the profile, its clock, its models and the trace.
#include "model/profile.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/copy_out.h"
#include "base/emu_tools.h"
#include "hip/state.h"
#include "launch/trace.h"
#include "model/launch_timing.h"
#include "model/profile_lds.h"

using namespace fmha::emu;

int fmha_emu_profile_enable(int on) {
  enable_profile(on != 0);
  return hipSuccess;
}

int fmha_emu_profile(char* out, size_t out_bytes) { return copy_out(profile_records(), out, out_bytes); }

int fmha_emu_profile_constants(char* out, size_t out_bytes) {
  Json j;
  for (const Constant Card::* member : kConstants) {
    const Constant& c = profile_card().*member;
    j[c.name] = {{"value", c.value}, {"source", c.source}};
  }
  return copy_out(j.dump(), out, out_bytes);
}

int fmha_emu_cache_model(const fmha_emu_access* accesses, size_t count, char* out, size_t out_bytes) {
  int bytes = 0;
  const int error = guarded([&] {
    if (!accesses && count) return fail(hipErrorInvalidValue, "fmha_emu_cache_model: accesses is null");
    CacheModel model;
    for (size_t i = 0; i < count; ++i) {
      const fmha_emu_access& a = accesses[i];
      if (a.kind > FMHA_EMU_END_OF_KERNEL) {
        return fail(hipErrorInvalidValue, "fmha_emu_cache_model: accesses[%zu].kind is %u, expected 0 to 3",
                    i, a.kind);
      }
      const auto kind = static_cast<AccessKind>(a.kind);
      if (kind == AccessKind::kEndOfKernel) {
        model.end_kernel();
      } else {
        model.access_range(a.workgroup, a.address, a.bytes, kind);
      }
    }
    model.end_kernel();
    bytes = copy_out(Json{{"caches", json_of(model.counts())}}.dump(), out, out_bytes);
    return static_cast<int>(hipSuccess);
  });
  return error ? -error : bytes;
}

int fmha_emu_lds_cycles(const uint32_t* addresses, uint64_t lanes, uint32_t bytes, int access,
                        uint32_t* groups, uint32_t* cycles) {
  if (!addresses || !groups || !cycles || bytes < 1 || bytes > 16 || access < 0 || access > 2) {
    return fail(hipErrorInvalidValue,
                "fmha_emu_lds_cycles: a null, or bytes %u outside 1 to 16, or access %d "
                "outside 0 to 2",
                bytes, access);
  }
  const ArchInfo& arch = device_arch();
  const UnitShape shape = unit_shape(arch, true, static_cast<uint32_t>(arch.wave_size));
  const LdsCycles c = lds_cycles(addresses, lanes, bytes, static_cast<LdsKind>(access), shape);
  *groups = c.groups;
  *cycles = c.cycles;
  return hipSuccess;
}

int fmha_emu_timing(const fmha_emu_timing_request* request) {
  if (request && (!request->points || request->only_sampled > 1)) {
    return fail(hipErrorInvalidValue,
                "fmha_emu_timing: points is %u, expected 1 or more; only_sampled is %u, expected 0 or 1",
                request->points, request->only_sampled);
  }
  if (request && !has_clock()) {
    return fail(hipErrorNotSupported, "fmha_emu_timing: the clock has no constants of an %s",
                profile_card().name);
  }
  set_timing_request(request
                         ? TimingRequest{true, request->only_sampled != 0, request->points, request->events}
                         : TimingRequest{});
  return hipSuccess;
}

int fmha_emu_timing_constants(char* out, size_t out_bytes) {
  Json j;
  for (const TimingConstant& c : timing_constants())
    j[c.name] = {{"fast", c.fast}, {"slow", c.slow}, {"unit", c.unit}, {"source", c.source}};
  return copy_out(j.dump(), out, out_bytes);
}

int fmha_emu_set_timing_constant(const char* name, double fast, double slow) {
  if (!name) return reset_timing_constants(), hipSuccess;
  const auto key = timing_key(name);
  if (!key || !std::isfinite(fast) || !std::isfinite(slow) || fast < 0 || slow < 0) {
    return fail(hipErrorInvalidValue,
                "fmha_emu_set_timing_constant: got \"%s\", %g, %g, expected a name of "
                "fmha_emu_timing_constants and two numbers of 0 or more",
                name, fast, slow);
  }
  set_timing_constant(*key, fast, slow);
  return hipSuccess;
}

int fmha_emu_trace(fmha_emu_event_function function, void* user, uint32_t kinds) {
  if (kinds & ~uint32_t{FMHA_EMU_EVENTS} || (function && !kinds)) {
    return fail(hipErrorInvalidValue,
                "fmha_emu_trace: kinds is 0x%x, expected a set of FMHA_EMU_EVENT_* bits", kinds);
  }
  set_trace(function, user, kinds);
  return hipSuccess;
}
