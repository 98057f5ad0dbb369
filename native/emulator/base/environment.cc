// SPDX-License-Identifier: MIT OR Apache-2.0
#include "base/environment.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace fmha::emu {

const char* environment_text(const char* name) {
  const char* text = secure_getenv(name);
  return text && *text ? text : nullptr;
}

uint64_t environment_number(const char* name, uint64_t least, uint64_t most, uint64_t missing) {
  const char* text = environment_text(name);
  if (!text) return missing;
  const char* end = text + std::strlen(text);
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error == std::errc() && stop == end && value >= least && value <= most) return value;
  reject_environment(name,
                     ("a number from " + std::to_string(least) + " to " + std::to_string(most)).c_str());
}

void reject_environment(const char* name, const char* expected) {
  const char* text = environment_text(name);
  std::fprintf(stderr, "amdhip64 software device: %s must be %s, got \"%s\"\n", name, expected,
               text ? text : "");
  std::abort();
}

}  // namespace fmha::emu
