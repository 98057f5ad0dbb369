// SPDX-License-Identifier: MIT OR Apache-2.0
#include "launch/trace.h"

#include <mutex>

namespace fmha::emu {
namespace {

// Receiver of the events of launches that start now.
struct Sink {
  fmha_emu_event_function function = nullptr;
  void* user = nullptr;
  uint32_t kinds = 0;
};
std::mutex sink_mutex;
Sink sink;

constexpr bool is_same(int exported, EventKind kind) { return static_cast<uint32_t>(exported) == kind; }
static_assert(is_same(FMHA_EMU_EVENT_BEFORE, kEventBefore));
static_assert(is_same(FMHA_EMU_EVENT_AFTER, kEventAfter));
static_assert(is_same(FMHA_EMU_EVENT_GLOBAL, kEventGlobal));
static_assert(is_same(FMHA_EMU_EVENT_SCALAR, kEventScalar));
static_assert(is_same(FMHA_EMU_EVENT_SCRATCH, kEventScratch));
static_assert(is_same(FMHA_EMU_EVENT_LDS, kEventLds));
static_assert(is_same(FMHA_EMU_EVENT_BARRIER, kEventBarrier));
static_assert(FMHA_EMU_EVENTS == (1 << kEventCount) - 1);

class Trace final : public LaunchObserver, public GroupObserver {
 public:
  explicit Trace(const Sink& to) : sink_(to) {}
  uint32_t events() const override { return sink_.kinds; }
  bool in_order() const override { return true; }
  GroupObserver* begin(const Workgroup& group) override {
    group_ = group.index;
    return this;
  }

  bool before(Wave& w, const Inst& inst) override {
    tell(kEventBefore, &w, &inst, 0, 0, -1);
    return true;
  }
  void after(Wave& w, const Inst& inst) override { tell(kEventAfter, &w, &inst, 0, 0, -1); }
  bool global(Wave& w, const Inst& inst, uint64_t address, uint32_t bytes, int lane) override {
    tell(kEventGlobal, &w, &inst, address, bytes, lane);
    return true;
  }
  bool scalar(Wave& w, const Inst& inst, uint64_t address) override {
    tell(kEventScalar, &w, &inst, address, 0, -1);
    return true;
  }
  void scratch(Wave& w, const Inst& inst, uint32_t bytes, int lane) override {
    tell(kEventScratch, &w, &inst, 0, bytes, lane);
  }
  void lds(Wave& w, const Inst& inst, const uint32_t* address, uint64_t lanes, uint32_t bytes) override {
    for (; lanes; lanes &= lanes - 1) {
      const int l = __builtin_ctzll(lanes);
      tell(kEventLds, &w, &inst, address[l], bytes, l);
    }
  }
  void barrier(uint32_t ended) override { tell(kEventBarrier, nullptr, nullptr, ended, 0, -1); }

 private:
  void tell(EventKind kind, const Wave* w, const Inst* inst, uint64_t address, uint32_t bytes,
            int lane) const {
    const fmha_emu_event event{kind, w ? w->id : 0, group_, inst ? inst->pc : 0, address, bytes, lane};
    sink_.function(sink_.user, &event);
  }
  const Sink sink_;
  uint64_t group_ = 0;
};

}  // namespace

std::unique_ptr<LaunchObserver> make_trace(const Launch&, std::string*) {
  std::lock_guard lock(sink_mutex);
  if (!sink.function) return nullptr;
  return std::make_unique<Trace>(sink);
}

void set_trace(fmha_emu_event_function function, void* user, uint32_t kinds) {
  std::lock_guard lock(sink_mutex);
  sink = {function, user, kinds};
}

}  // namespace fmha::emu
