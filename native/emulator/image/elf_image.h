// SPDX-License-Identifier: MIT OR Apache-2.0
// An AMDGPU ELF, checked and laid out in memory as its program headers ask. Nothing in the file is trusted:
// every offset is checked before it is followed.
#pragma once

#include <elf.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fmha::emu {

class ElfImage {
 public:
  struct Symbol {
    std::string name;
    uint64_t address, bytes;  // address: in the loaded image
    uint8_t type;             // STT_…
  };

  ElfImage(const void* file, size_t bytes) : file_(static_cast<const uint8_t*>(file)), bytes_(bytes) {}
  ~ElfImage();
  ElfImage(const ElfImage&) = delete;
  ElfImage& operator=(const ElfImage&) = delete;

  // Reads only the first 64 bytes: is this an AMDGPU HSA code object? False with error() set if not.
  bool check_identity();
  uint32_t flags() const { return header_.e_flags; }
  // Maps, copies and relocates the image, reads its symbols. False with error() set.
  bool load();
  const std::string& error() const { return error_; }
  // hipError_t that goes with error().
  int hip_error() const { return hip_error_; }

  const std::vector<Symbol>& symbols() const { return symbols_; }
  // The code: the file-backed part of the executable segment. Empty if there is none.
  std::span<const uint8_t> text() const { return text_; }
  // The AMDGPU metadata note (MessagePack). Empty if there is none.
  std::span<const uint8_t> metadata() const { return metadata_; }
  // True if [address, address + bytes) lies in the loaded image.
  bool contains(uint64_t address, uint64_t bytes) const;
  // Hands over the mapping; the caller unmaps it.
  uint8_t* release(size_t* bytes);

 private:
  bool fail(std::string message);
  bool in_file(uint64_t offset, uint64_t size) const { return offset <= bytes_ && size <= bytes_ - offset; }
  bool read_segments();
  bool map_segments();
  bool read_dynamic(const Elf64_Phdr& segment);
  bool read_symbols(uint64_t symtab, uint64_t strtab, uint64_t strsz, uint64_t count);
  bool relocate(uint64_t rela, uint64_t bytes);
  void read_notes(const Elf64_Phdr& segment);
  uint8_t* at(uint64_t vaddr) const { return base_ + (vaddr - low_); }
  bool has(uint64_t vaddr, uint64_t size) const {
    return vaddr >= low_ && vaddr - low_ <= span_ && size <= span_ - (vaddr - low_);
  }

  const uint8_t* file_;
  size_t bytes_;
  Elf64_Ehdr header_{};  // copies, since the file may lie at any address
  std::vector<Elf64_Phdr> segments_;
  uint8_t* base_ = nullptr;
  uint64_t low_ = 0, span_ = 0;  // virtual address of base_, bytes mapped
  std::vector<Symbol> symbols_;
  std::vector<Elf64_Sym> raw_symbols_;  // by index, for relocations
  std::span<const uint8_t> text_, metadata_;
  std::string error_;
  int hip_error_ = 0;
};

}  // namespace fmha::emu
