// SPDX-License-Identifier: MIT OR Apache-2.0
// The checks as an observer (core/events.h). The events that they need depend on which of them run.
// - The checks of a wave (wave_checks.h) hear of every instruction before it runs, and of barriers.
// - Those of global memory (global_watch.h) hear of every access to it, and of the addresses of scalar ones.
#pragma once

#include <memory>
#include <string>

#include "check/global_watch.h"
#include "code/launch.h"
#include "core/events.h"

namespace fmha::emu {

class LaunchChecks final : public LaunchObserver {
 public:
  LaunchChecks(const Launch& launch, uint32_t checks);
  uint32_t events() const override;
  GroupObserver* begin(const Workgroup& group) override;

 private:
  const Launch& launch_;
  const uint32_t checks_;  // bits of enum Check
  LaunchWatch watch_;
};

// Null if $FMHA_EMU_CHECKS leaves no check; *error is set if it names one that does not exist.
std::unique_ptr<LaunchObserver> make_checks(const Launch& launch, std::string* error);

}  // namespace fmha::emu
