// SPDX-License-Identifier: MIT OR Apache-2.0
// How a thread of the program sleeps until the device has done something, and what interrupts it.
//
// A program that waits for a GPU hears of Ctrl-C when the wait is over. Here a launch may take minutes, or
// for ever if a length is garbage. So a thread that waits notices that a handler of the program for SIGINT or
// SIGTERM has run on it, which for a signal from outside is so if it is the main thread. Work that is not
// done kCancelAfter later is cancelled, on all devices, and the wait returns; the program's handler decides
// what happens next (in Python, KeyboardInterrupt). The handlers stay the program's: none is installed.
// ppoll() is interrupted by any handler, even one with SA_RESTART, but does not tell by which. So the other
// signals are blocked while it sleeps, for kMoment at most.
#pragma once

#include <signal.h>

#include <chrono>

namespace fmha::emu {

constexpr auto kCancelAfter = std::chrono::milliseconds(500);
constexpr auto kMoment = std::chrono::milliseconds(20);

class HostWait {
 public:
  HostWait();
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

  // Until wake(), but a moment at most.
  void sleep();
  void wake() const;
  // A handler of SIGINT or SIGTERM ran on this thread kCancelAfter ago, or longer.
  bool wants_to_cancel() const;

 private:
  int fd_;  // an eventfd, one a thread; -1: the host gives none
  sigset_t before_, asleep_;
  bool is_signalled_ = false;
  std::chrono::steady_clock::time_point signalled_;
};

}  // namespace fmha::emu
