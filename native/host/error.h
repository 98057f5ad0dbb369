// SPDX-License-Identifier: MIT OR Apache-2.0
// How a failure travels: raise() throws an Error, guard() stops it at the C boundary and keeps its text for
// fmha_last_error. Nothing allocates on the way, so running out of memory is reported like anything else.
#pragma once

#include <cstddef>
#include <cstdio>

#include "fmha_rocm.h"

namespace fmha {

inline constexpr size_t kMessageBytes = 2048;

struct Error {
  Error(fmha_status status_of, const char* text) noexcept : status(status_of) {
    std::snprintf(message, sizeof message, "%s", text);
  }

  fmha_status status;
  char message[kMessageBytes];
};

[[noreturn, gnu::format(printf, 2, 3)]] void raise(fmha_status status, const char* format, ...);

// A failure that may turn out not to be one: one of several says no, and another may say yes.
class Refusal {
 public:
  Refusal() {}  // says nothing yet: no byte is read before because() has written it

  // Keeps the reason. Returns false, so that a check can be written as `return why.because(...)`.
  [[gnu::format(printf, 3, 4)]] bool because(fmha_status status, const char* format, ...);

  bool has_reason() const { return status_ != FMHA_INTERNAL; }

  // `more` ends the message.
  [[noreturn]] void raise(const char* more = "") const;

 private:
  fmha_status status_ = FMHA_INTERNAL;
  char message_[kMessageBytes];
};

// Stores the message of the exception being handled for this thread and returns its status.
fmha_status report_current_exception() noexcept;

const char* last_error() noexcept;

// Runs the body of a C entry. Whatever it throws becomes a status and a message.
template <typename Body>
fmha_status guard(Body&& body) noexcept {
  try {
    body();
    return FMHA_OK;
  } catch (...) {
    return report_current_exception();
  }
}

}  // namespace fmha
