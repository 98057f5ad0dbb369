// SPDX-License-Identifier: MIT OR Apache-2.0
// The observers of a launch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "code/launch.h"
#include "core/events.h"

namespace fmha::emu {

using Observers = std::vector<std::unique_ptr<LaunchObserver>>;

// The observers that `launch` needs, in the order in which they hear of events; most launches need none but
// the checks. False, and *error set, if the environment asks for what does not exist. `launch` must outlive
// them.
bool observers_of(const Launch& launch, Observers* observers, std::string* error);

}  // namespace fmha::emu
