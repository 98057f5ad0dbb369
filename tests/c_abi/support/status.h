// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks of what a call of the library gave: its status, and its message if it failed.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "fmha_rocm.h"

// A status and a message, or a part of one.
struct CallResult {
  fmha_status status;
  std::string message;

  friend bool operator==(const CallResult& got, const CallResult& wanted) {
    return got.status == wanted.status &&
           (got.status == FMHA_OK || got.message.find(wanted.message) != std::string::npos);
  }
  friend doctest::String toString(const CallResult& outcome) {
    const std::string status = "status " + std::to_string(outcome.status);
    return (outcome.status == FMHA_OK ? status : status + ", \"" + outcome.message + "\"").c_str();
  }
};

// The status, and a message that contains the text.
#define CHECK_STATUS(call, expected, text) \
  CHECK(CallResult{(call), fmha_last_error()} == CallResult{(expected), (text)})

#define REQUIRE_STATUS(call, expected, text) \
  REQUIRE(CallResult{(call), fmha_last_error()} == CallResult{(expected), (text)})
#define CHECK_OK(call) CHECK_STATUS(call, FMHA_OK, "")
#define REQUIRE_OK(call) REQUIRE_STATUS(call, FMHA_OK, "")
