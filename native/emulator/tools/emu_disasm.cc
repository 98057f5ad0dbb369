// SPDX-License-Identifier: MIT OR Apache-2.0
// emu_disasm ARCH FILE [BASE [LANES]]: disassembles a raw text section (objcopy -O binary -j .text) with the
// software device's own decoder, for waves of so many lanes (the arch's own if none are named). emu_disasm
// rows: lists the instruction table.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "archs.h"
#include "base/emu_tools.h"

namespace {

using namespace fmha::emu;

// The number of an arch among all; their count if none has that name.
int number_of(const char* name) {
  int i = 0;
  while (i < kArchCount && std::strcmp(kArchs[i].name, name) != 0) ++i;
  return i;
}

}  // namespace

int main(int argc, char** argv) {
  std::string out;
  if (argc == 2 && !std::strcmp(argv[1], "rows")) {
    out.resize(fmha_emu_rows(nullptr, 0));
    fmha_emu_rows(out.data(), out.size());
    std::fputs(out.c_str(), stdout);
    return 0;
  }
  const int arch = argc < 3 ? kArchCount : number_of(argv[1]);
  if (arch == kArchCount) {
    std::string archs;
    for (const ArchInfo& info : kArchs) archs += (archs.empty() ? "" : "|") + std::string(info.name);
    std::fprintf(stderr, "usage: %s %s FILE [BASE [LANES]]\n       %s rows\n", argv[0], archs.c_str(),
                 argv[0]);
    return 2;
  }
  std::ifstream file(argv[2], std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot open %s\n", argv[0], argv[2]);
    return 1;
  }
  const std::vector<char> text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const uint64_t base = argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 0;
  const int lanes = argc > 4 ? static_cast<int>(std::strtol(argv[4], nullptr, 0))
                             : arch_info(static_cast<Arch>(arch)).wave_size;
  out.resize(fmha_emu_disassemble(arch, lanes, text.data(), text.size(), base, nullptr, 0));
  if (out.empty()) {
    std::fprintf(stderr, "%s: %s has no waves of %d lanes\n", argv[0], argv[1], lanes);
    return 2;
  }
  fmha_emu_disassemble(arch, lanes, text.data(), text.size(), base, out.data(), out.size());
  std::fputs(out.c_str(), stdout);
  return 0;
}
