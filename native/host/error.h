// SPDX-License-Identifier: MIT OR Apache-2.0
// How a failure travels: fail() throws an Error, guard() stops it at the C boundary and keeps its text for
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

[[noreturn, gnu::format(printf, 2, 3)]] void fail(fmha_status status, const char* format, ...);

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
