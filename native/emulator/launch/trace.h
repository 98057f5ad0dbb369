// SPDX-License-Identifier: MIT OR Apache-2.0
// The trace as an observer (events.h): it hands events to a C function, so that tests and tools can observe
// launches from outside this library. See fmha_emu_trace in emu_tools.h.
#pragma once

#include <memory>
#include <string>

#include "base/emu_tools.h"
#include "code/launch.h"
#include "core/events.h"

namespace fmha::emu {

// Launches that start from now on tell `function` of the events in `kinds`, a set of EventKind; null: nobody.
void set_trace(fmha_emu_event_function function, void* user, uint32_t kinds);

// Null if nobody traces launches that start now.
std::unique_ptr<LaunchObserver> make_trace(const Launch& launch, std::string* error);

}  // namespace fmha::emu
