// SPDX-License-Identifier: MIT OR Apache-2.0
#include "core/card.h"

#include <cstring>
#include <string>

#include "base/environment.h"

namespace fmha::emu {
namespace {

// $FMHA_EMU_ARCH.
Arch chosen_arch() {
  constexpr const char* kVariable = "FMHA_EMU_ARCH";
  const char* wish = environment_text(kVariable);
  if (!wish) return kDefaultArch;
  std::string names;
  for (int i = 0; i < kArchCount; ++i) {
    if (!std::strcmp(wish, kArchs[i].name)) return kArchs[i].arch;
    names += i == 0 ? "" : i == kArchCount - 1 ? " or " : ", ";
    names += kArchs[i].name;
  }
  reject_environment(kVariable, names.c_str());
}

// $FMHA_EMU_CARD, one of the arch's.
const Card& chosen_card() {
  constexpr const char* kVariable = "FMHA_EMU_CARD";
  const Arch arch = chosen_arch();
  const char* wish = environment_text(kVariable);
  if (!wish) return card_of(arch);
  std::string names;
  for (const Card& card : kCards) {
    if (card.arch != arch) continue;
    if (!std::strcmp(wish, card.name)) return card;
    names += (names.empty() ? "" : " or ") + std::string(card.name);
  }
  reject_environment(kVariable, names.c_str());
}

}  // namespace

const Card& device_card() {
  static const Card& card = chosen_card();
  return card;
}

const ArchInfo& device_arch() { return arch_info(device_card().arch); }

}  // namespace fmha::emu
