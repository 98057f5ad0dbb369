// SPDX-License-Identifier: MIT OR Apache-2.0
#include "check/config.h"

#include <string_view>

#include "base/environment.h"

namespace fmha::emu {
namespace {

struct CheckName {
  std::string_view name;
  uint32_t bit;
};

constexpr CheckName kChecks[] = {
    {"lds-unwritten", kCheckLdsUnwritten},
    {"lds-race", kCheckLdsRace},
    {"lds-race-equal", kCheckLdsRaceEqual},
    {"waits", kCheckWaits},
    {"hazards", kCheckHazards},
    {"hazards-shipped", kCheckHazardsShipped},
    {"hazards-vector-scalar", kCheckHazardsVectorScalar},
    {"global-unwritten", kCheckGlobalUnwritten},
    {"read-only", kCheckReadOnly},
    {"global-race", kCheckGlobalRace},
    {"global-drain", kCheckGlobalDrain},
    {"misaligned", kCheckMisaligned},
    {"resource", kCheckResource},
};

constexpr uint32_t all_checks() {
  uint32_t all = 0;
  for (const CheckName& c : kChecks) all |= c.bit;
  return all;
}

// The bits that a word of the list stands for; 0: none of that name.
uint32_t bits_of(std::string_view name) {
  if (name == "all") return all_checks();
  for (const CheckName& c : kChecks) {
    if (c.name == name) return c.bit;
  }
  return 0;
}

constexpr const char* kVariable = "FMHA_EMU_CHECKS";

std::string names_of_checks() {
  std::string text = "all, none";
  for (const CheckName& c : kChecks) text += ", " + std::string(c.name);
  return text + ", each also with a - in front";
}

std::string unknown(std::string_view word) {
  return std::string(kVariable) + ": \"" + std::string(word) + "\" is no check; there are " +
         names_of_checks();
}

bool apply(std::string_view word, uint32_t* checks) {
  if (word.empty()) return true;
  if (word == "none") {
    *checks = 0;
    return true;
  }
  const bool off = word.front() == '-';
  const uint32_t bits = bits_of(off ? word.substr(1) : word);
  *checks = off ? *checks & ~bits : *checks | bits;
  return bits != 0;
}

}  // namespace

bool parse_checks(const char* list, uint32_t* checks, std::string* error) {
  *checks = all_checks() & ~kOffByDefault;
  std::string_view rest = list ? list : "";
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    if (apply(word, checks)) continue;
    *error = unknown(word);
    return false;
  }
  return true;
}

bool checks_from_environment(uint32_t* checks, std::string* error) {
  return parse_checks(environment_text(kVariable), checks, error);
}

void check_checks_variable() {
  uint32_t checks = 0;
  std::string error;
  if (!checks_from_environment(&checks, &error))
    reject_environment(kVariable, ("a list of " + names_of_checks()).c_str());
}

}  // namespace fmha::emu
