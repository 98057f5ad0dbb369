// SPDX-License-Identifier: MIT OR Apache-2.0
// Running a call of either pass that is supported.
#pragma once

#include <cinttypes>
#include <vector>

#include "device.h"
#include "poison.h"
#include "report.h"

namespace fmha::fuzz {

// Runs a case on poisoned memory: its results must be such as finite input can give, and nothing else may be
// written. `call` is the entry, `name` what it is called.
template <typename Case, typename Call>
void run_supported(const Case& c, const char* name, Call call, Device& device) {
  poison(c, device);
  std::vector<uint8_t> before = device.contents();
  const fmha_status status = call(c.pointer(), nullptr);
  if (status != FMHA_OK) report("%s gave %" PRId32 " for what is supported", name, status);
  const char* fault = nullptr;
  device.synchronize(&fault);
  if (fault != nullptr) report("the device stopped: %s", fault);
  const std::vector<uint8_t> now = device.contents();
  if (!take_results(c, device, before, now)) report("%s gave values that finite input cannot give", name);
  if (const char* region = difference(before, now)) report("%s wrote where it may not, to %s", name, region);
  device.restore();
}

}  // namespace fmha::fuzz
