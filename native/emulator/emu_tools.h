// SPDX-License-Identifier: MIT OR Apache-2.0
// What the library exports beside HIP: windows into the decoder, for tests.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Both write at most `out_bytes` bytes, the last a NUL, and return the bytes needed (with the NUL), so that a
// call with out = NULL, out_bytes = 0 asks for the size.

// One line an instruction: "pc: mnemonic operands", pc in hex without 0x, text as llvm-objdump prints it
// (branch targets as the raw signed number of dwords). Unknown words print as "pc: .long 0x…".
// arch: 0 gfx90a, 1 gfx942.
__attribute__((visibility("default"))) int fmha_emu_disassemble(int arch, const void* text, size_t bytes,
                                                                uint64_t base, char* out, size_t out_bytes);

// The instruction table, a line a row, tab-separated, with a header line: mnemonic, format, opcode on gfx90a,
// opcode on gfx942 (-1: none), destination type, three source types, flags by name joined with '|'.
__attribute__((visibility("default"))) int fmha_emu_rows(char* out, size_t out_bytes);

#ifdef __cplusplus
}
#endif
