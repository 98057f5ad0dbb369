// SPDX-License-Identifier: MIT OR Apache-2.0
// A loaded code object: the ELF image laid out in memory as its program headers ask, its kernels, and its
// text decoded once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/once.h"
#include "core/inst.h"

namespace fmha::emu {

// A hidden kernel argument the metadata asks for.
struct HiddenArg {
  std::string kind;  // "hidden_block_count_x", ...
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

// A kernel: what its descriptor and its metadata note say.
struct KernelCode {
  std::string name;
  uint64_t entry = 0;        // address of its first instruction in the loaded image
  uint32_t entry_index = 0;  // of the same in CodeObject::text
  uint64_t descriptor = 0;   // address of its descriptor: the packet's kernel_object
  uint32_t lds_bytes = 0;
  uint32_t private_bytes = 0;
  bool uses_dynamic_stack = false;  // it calls what it does not know: private_bytes is the least
  uint32_t kernarg_bytes = 0;
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  uint16_t properties = 0, preload = 0;
  int wave_size = 64;  // lanes
  uint32_t max_workgroup_size = 1024;
  uint32_t vgpr_count = 0, agpr_count = 0, sgpr_count = 0;
  std::vector<HiddenArg> hidden;
  uint32_t explicit_bytes = 0;                               // of the arguments the caller gives
  std::vector<std::pair<uint32_t, uint32_t>> explicit_args;  // offset, bytes: for kernelParams
};

// decode.cc, for waves of that size. Never fails: what it does not know becomes an Inst that stops the wave
// when run.
DecodedText decode(Arch arch, int wave_size, const uint8_t* text, size_t bytes, uint64_t base);
// disasm.cc. As llvm-objdump prints it, mnemonic and operands.
std::string disassemble(const Inst& inst, Arch arch);

// Vector registers, of both kinds, that a wave of the kernel is given, before the card rounds them up.
uint32_t vgprs_of(const KernelCode& k, const ArchInfo& info);

// Bytes of the code object or offload bundle that starts at `image`, from its own headers; 0: it is neither.
size_t code_object_bytes(const void* image);

class TextFacts;  // code/facts.h

class CodeObject {
 public:
  // Loads an ELF, or the right one of an offload bundle; on failure returns nullptr, *hip_error and *message
  // set.
  static std::unique_ptr<CodeObject> load(const void* image, size_t bytes, Arch device_arch, int device,
                                          int* hip_error, std::string* message);
  ~CodeObject();
  const KernelCode* kernel(const char* name) const;
  const std::vector<KernelCode>& kernels() const { return kernels_; }
  // Address and size of a global variable; false if there is none of that name.
  bool global(const char* name, uint64_t* address, uint64_t* bytes) const;
  // Code as waves of that size read it; some kernel has this size.
  const DecodedText& text(int wave_size) const { return code_[wave_size == 64].text; }
  const TextFacts& facts(int wave_size) const;  // of the same, made when first asked for
  Arch arch() const { return arch_; }

 private:
  CodeObject() = default;
  struct Symbol {
    std::string name;
    uint64_t address, bytes;
  };
  void read_kernels(const class ElfImage& elf);
  void decode_text(const class ElfImage& elf);
  Arch arch_ = kDefaultArch;
  uint8_t* image_ = nullptr;
  size_t image_bytes_ = 0;
  std::vector<KernelCode> kernels_;
  std::vector<Symbol> globals_;
  // The code for waves of 32 and of 64 lanes, which mean different things by the same words.
  struct Code {
    DecodedText text;
    mutable Once facts_once;
    mutable std::unique_ptr<TextFacts> facts;
  };
  Code code_[2];
};

}  // namespace fmha::emu
