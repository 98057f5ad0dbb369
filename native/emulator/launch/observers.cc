// SPDX-License-Identifier: MIT OR Apache-2.0
// The one list of observers. Those that only count come first: an event that a check stops has been counted.
#include "launch/observers.h"

#include "check/launch_checks.h"
#include "launch/trace.h"
#include "model/profile.h"

namespace fmha::emu {
namespace {

// Makes an observer; null if the launch needs none of the kind, or if *error was set.
using Make = std::unique_ptr<LaunchObserver> (*)(const Launch& launch, std::string* error);
constexpr Make kMakers[] = {make_profile, make_trace, make_checks};
static_assert(std::size(kMakers) <= Listeners::kMost);

}  // namespace

bool observers_of(const Launch& launch, Observers* observers, std::string* error) {
  for (const Make make : kMakers) {
    std::unique_ptr<LaunchObserver> observer = make(launch, error);
    if (!error->empty()) return false;
    if (observer) observers->push_back(std::move(observer));
  }
  return true;
}

}  // namespace fmha::emu
