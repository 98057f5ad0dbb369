// SPDX-License-Identifier: MIT OR Apache-2.0
// emu_disasm ARCH FILE [BASE]: disassembles a raw text section (objcopy -O binary -j .text) with the software
// device's own decoder. emu_disasm rows: lists the instruction table.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/emu_tools.h"

int main(int argc, char** argv) {
  std::string out;
  if (argc == 2 && !std::strcmp(argv[1], "rows")) {
    out.resize(fmha_emu_rows(nullptr, 0));
    fmha_emu_rows(out.data(), out.size());
    std::fputs(out.c_str(), stdout);
    return 0;
  }
  if (argc < 3 || (std::strcmp(argv[1], "gfx90a") && std::strcmp(argv[1], "gfx942"))) {
    std::fprintf(stderr, "usage: %s gfx90a|gfx942 FILE [BASE]\n       %s rows\n", argv[0], argv[0]);
    return 2;
  }
  std::ifstream file(argv[2], std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot open %s\n", argv[0], argv[2]);
    return 1;
  }
  const std::vector<char> text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const int arch = std::strcmp(argv[1], "gfx942") ? 0 : 1;
  const uint64_t base = argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 0;
  out.resize(fmha_emu_disassemble(arch, text.data(), text.size(), base, nullptr, 0));
  fmha_emu_disassemble(arch, text.data(), text.size(), base, out.data(), out.size());
  std::fputs(out.c_str(), stdout);
  return 0;
}
