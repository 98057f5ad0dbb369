// SPDX-License-Identifier: MIT OR Apache-2.0
#include "image/elf_image.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"

namespace fmha::emu {
namespace {

constexpr uint16_t kMachineAmdgpu = 224;
constexpr uint8_t kOsAbiAmdgpuHsa = 64;
constexpr uint32_t kNoteMetadata = 32;  // NT_AMDGPU_METADATA
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargestImage = uint64_t{1} << 32;

// Relocation types of the AMDGPU psABI.
enum Relocation : uint32_t {
  kNone = 0,
  kAbs32Lo = 1,
  kAbs32Hi = 2,
  kAbs64 = 3,
  kRel32 = 4,
  kRel64 = 5,
  kAbs32 = 6,
  kRel32Lo = 10,
  kRel32Hi = 11,
  kRelative64 = 13,
};

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

ElfImage::~ElfImage() {
  if (base_) munmap(base_, span_);
}

bool ElfImage::fail(std::string message) {
  error_ = std::move(message);
  if (!hip_error_) hip_error_ = hipErrorInvalidImage;
  return false;
}

bool ElfImage::check_identity() {
  if (bytes_ < sizeof(Elf64_Ehdr))
    return fail("code object: " + std::to_string(bytes_) + " bytes hold no ELF header");
  std::memcpy(&header_, file_, sizeof header_);
  const Elf64_Ehdr& h = header_;
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return fail("code object: not an ELF file");
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB) {
    return fail("code object: not a 64-bit little-endian ELF");
  }
  if (h.e_machine != kMachineAmdgpu) {
    return fail("code object: ELF machine is " + std::to_string(h.e_machine) + ", expected 224 (AMDGPU)");
  }
  if (h.e_ident[EI_OSABI] != kOsAbiAmdgpuHsa) return fail("code object: ELF OS ABI is not AMDGPU HSA");
  if (h.e_type != ET_DYN) return fail("code object: not a shared object (was it linked?)");
  return true;
}

bool ElfImage::read_segments() {
  const Elf64_Ehdr& h = header_;
  if (h.e_phentsize != sizeof(Elf64_Phdr) || !in_file(h.e_phoff, uint64_t{h.e_phnum} * sizeof(Elf64_Phdr))) {
    return fail("code object: program headers lie outside the file");
  }
  segments_.resize(h.e_phnum);
  if (h.e_phnum) std::memcpy(segments_.data(), file_ + h.e_phoff, h.e_phnum * sizeof(Elf64_Phdr));
  return true;
}

bool ElfImage::load() {
  if (!check_identity() || !read_segments() || !map_segments()) return false;
  for (const Elf64_Phdr& s : segments_) {
    if (s.p_type == PT_NOTE) read_notes(s);
    if (s.p_type == PT_DYNAMIC && !read_dynamic(s)) return false;
  }
  return true;
}

bool ElfImage::map_segments() {
  uint64_t low = ~uint64_t{0}, high = 0;
  for (const Elf64_Phdr& s : segments_) {
    if (s.p_type != PT_LOAD) continue;
    if (!in_file(s.p_offset, s.p_filesz) || s.p_filesz > s.p_memsz || s.p_vaddr > kLargestImage ||
        s.p_memsz > kLargestImage) {
      return fail("code object: a segment lies outside the file");
    }
    low = std::min(low, s.p_vaddr / kPage * kPage);
    high = std::max(high, s.p_vaddr + s.p_memsz);
  }
  if (low >= high) return fail("code object: nothing to load");
  const uint64_t span = round_up(high - low, kPage);
  void* p = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    hip_error_ = hipErrorOutOfMemory;
    return fail("code object: cannot map " + std::to_string(span) + " bytes");
  }
  base_ = static_cast<uint8_t*>(p);
  low_ = low;
  span_ = span;
  for (const Elf64_Phdr& s : segments_) {
    if (s.p_type != PT_LOAD) continue;
    std::memcpy(at(s.p_vaddr), file_ + s.p_offset, s.p_filesz);
    if (!(s.p_flags & PF_X)) continue;
    if (!text_.empty()) return fail("code object: more than one executable segment");
    text_ = {at(s.p_vaddr), s.p_filesz};
  }
  return true;
}

void ElfImage::read_notes(const Elf64_Phdr& segment) {
  if (!in_file(segment.p_offset, segment.p_filesz)) return;
  const uint8_t* p = file_ + segment.p_offset;
  uint64_t left = segment.p_filesz;
  Elf64_Nhdr note;
  while (left >= sizeof note) {
    std::memcpy(&note, p, sizeof note);
    const uint64_t name = round_up(note.n_namesz, 4), desc = round_up(note.n_descsz, 4);
    if (name > left - sizeof note || note.n_descsz > left - sizeof note - name) return;
    const uint8_t* text = p + sizeof note;
    if (note.n_type == kNoteMetadata && note.n_namesz == 7 && std::memcmp(text, "AMDGPU", 7) == 0) {
      metadata_ = {text + name, note.n_descsz};
    }
    const uint64_t step = std::min(left, sizeof note + name + desc);
    p += step;
    left -= step;
  }
}

bool ElfImage::read_dynamic(const Elf64_Phdr& segment) {
  uint64_t symtab = 0, strtab = 0, strsz = 0, hash = 0, rela = 0, rela_bytes = 0;
  if (!has(segment.p_vaddr, segment.p_filesz)) return fail("code object: the dynamic section is not loaded");
  for (uint64_t i = 0; i < segment.p_filesz / sizeof(Elf64_Dyn); ++i) {
    Elf64_Dyn d;
    std::memcpy(&d, at(segment.p_vaddr) + i * sizeof d, sizeof d);
    if (d.d_tag == DT_NULL) break;
    if (d.d_tag == DT_SYMTAB) symtab = d.d_un.d_ptr;
    if (d.d_tag == DT_STRTAB) strtab = d.d_un.d_ptr;
    if (d.d_tag == DT_STRSZ) strsz = d.d_un.d_val;
    if (d.d_tag == DT_HASH) hash = d.d_un.d_ptr;
    if (d.d_tag == DT_RELA) rela = d.d_un.d_ptr;
    if (d.d_tag == DT_RELASZ) rela_bytes = d.d_un.d_val;
    if (d.d_tag == DT_REL || (d.d_tag == DT_PLTREL && d.d_un.d_val != DT_RELA)) {
      return fail("code object: REL relocations are not supported");
    }
  }
  // The number of symbols is the chain count of the SysV hash table, which lld always writes for AMDGPU.
  uint32_t counts[2] = {0, 0};
  if (!hash || !has(hash, sizeof counts)) return fail("code object: no DT_HASH");
  std::memcpy(counts, at(hash), sizeof counts);
  return read_symbols(symtab, strtab, strsz, counts[1]) && relocate(rela, rela_bytes);
}

bool ElfImage::read_symbols(uint64_t symtab, uint64_t strtab, uint64_t strsz, uint64_t count) {
  if (!has(symtab, count * sizeof(Elf64_Sym)) || !has(strtab, strsz) || !strsz ||
      *(at(strtab) + strsz - 1) != 0) {
    return fail("code object: the dynamic symbols lie outside the image");
  }
  raw_symbols_.resize(count);
  std::memcpy(raw_symbols_.data(), at(symtab), count * sizeof(Elf64_Sym));
  for (const Elf64_Sym& s : raw_symbols_) {
    if (s.st_name >= strsz) return fail("code object: a symbol's name lies outside the string table");
    if (s.st_shndx == SHN_UNDEF) continue;
    if (!has(s.st_value, s.st_size)) return fail("code object: a symbol lies outside the image");
    symbols_.push_back({reinterpret_cast<const char*>(at(strtab)) + s.st_name,
                        reinterpret_cast<uint64_t>(at(s.st_value)), s.st_size,
                        static_cast<uint8_t>(ELF64_ST_TYPE(s.st_info))});
  }
  return true;
}

bool ElfImage::relocate(uint64_t rela, uint64_t bytes) {
  if (!has(rela, bytes) && bytes) return fail("code object: relocations lie outside the image");
  for (uint64_t i = 0; i < bytes / sizeof(Elf64_Rela); ++i) {
    Elf64_Rela r;
    std::memcpy(&r, at(rela) + i * sizeof r, sizeof r);
    const uint32_t type = ELF64_R_TYPE(r.r_info), index = ELF64_R_SYM(r.r_info);
    if (type == kNone) continue;
    const bool wide = type == kAbs64 || type == kRel64 || type == kRelative64;
    if (!has(r.r_offset, wide ? 8 : 4))
      return fail("code object: a relocation's place lies outside the image");
    const uint64_t place = reinterpret_cast<uint64_t>(at(r.r_offset));
    uint64_t value = static_cast<uint64_t>(r.r_addend);
    if (type == kRelative64) {
      value += reinterpret_cast<uint64_t>(base_) - low_;
    } else {
      if (index >= raw_symbols_.size())
        return fail("code object: a relocation names a symbol that does not exist");
      if (raw_symbols_[index].st_shndx == SHN_UNDEF) {
        hip_error_ = hipErrorSharedObjectSymbolNotFound;
        return fail("code object: symbol number " + std::to_string(index) + " is undefined");
      }
      value += reinterpret_cast<uint64_t>(at(raw_symbols_[index].st_value));
    }
    if (type == kRel32 || type == kRel64 || type == kRel32Lo || type == kRel32Hi) value -= place;
    if (type == kAbs32Hi || type == kRel32Hi) value >>= 32;
    switch (type) {
      case kAbs64:
      case kRel64:
      case kRelative64:
        std::memcpy(at(r.r_offset), &value, 8);
        break;
      case kAbs32Lo:
      case kAbs32Hi:
      case kAbs32:
      case kRel32:
      case kRel32Lo:
      case kRel32Hi:
        std::memcpy(at(r.r_offset), &value, 4);
        break;
      default:
        return fail("code object: relocation type " + std::to_string(type) + " is not supported");
    }
  }
  return true;
}

bool ElfImage::contains(uint64_t address, uint64_t bytes) const {
  const uint64_t offset = address - reinterpret_cast<uint64_t>(base_);
  return base_ && offset <= span_ && bytes <= span_ - offset;
}

uint8_t* ElfImage::release(size_t* bytes) {
  uint8_t* p = base_;
  *bytes = span_;
  base_ = nullptr;
  return p;
}

}  // namespace fmha::emu
