// SPDX-License-Identifier: MIT OR Apache-2.0
// Code objects: which of a bundle's suits the device, what kernels one holds, its text decoded.
#include "code/code_object.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "code/facts.h"
#include "core/dialect.h"
#include "core/memory.h"
#include "image/elf_image.h"
#include "image/offload_bundle.h"

namespace fmha::emu {
namespace {

using Metadata = nlohmann::json;

constexpr size_t kDescriptorBytes = 64;
constexpr uint32_t kPreloadEntryOffset = 256;
constexpr uint16_t kWave32 = 1 << 10;  // of kernel_code_properties

// EF_AMDGPU_MACH, and the feature bits of code object v4 and later.
constexpr uint32_t kMachMask = 0xff;
constexpr uint32_t kXnackMask = 0x300, kXnackOn = 0x300;
constexpr uint32_t kSrameccMask = 0xc00, kSrameccOff = 0x800;

template <class T>
T read(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

std::string mach_name(uint32_t mach) {
  for (const ArchInfo& info : kArchs) {
    if (info.elf_machine == mach) return info.name;
  }
  return "another processor (EF_AMDGPU_MACH " + std::to_string(mach) + ")";
}

// Empty if the device can run it.
std::string why_not(uint32_t flags, Arch device) {
  if ((flags & kMachMask) != arch_info(device).elf_machine) {
    return "code object is for " + mach_name(flags & kMachMask) + ", the device is " + arch_name(device);
  }
  if ((flags & kXnackMask) == kXnackOn) return "code object needs xnack+, the device is xnack-";
  if ((flags & kSrameccMask) == kSrameccOff) return "code object needs sramecc-, the device is sramecc+";
  return {};
}

// Tells by a file's head whether it is a code object that the device can run.
bool is_for(std::span<const uint8_t> head, Arch device) {
  ElfImage elf(head.data(), head.size());
  return elf.check_identity() && why_not(elf.flags(), device).empty();
}

size_t elf_bytes(const uint8_t* p) {
  const auto h = read<Elf64_Ehdr>(p);
  size_t end = std::max<size_t>(sizeof h, h.e_shoff + size_t{h.e_shentsize} * h.e_shnum);
  end = std::max<size_t>(end, h.e_phoff + size_t{h.e_phentsize} * h.e_phnum);
  for (unsigned i = 0; i < h.e_phnum; ++i) {
    const auto s = read<Elf64_Phdr>(p + h.e_phoff + i * sizeof(Elf64_Phdr));
    end = std::max<size_t>(end, s.p_offset + s.p_filesz);
  }
  return end;
}

// Far more than any compiler writes or any card has: what a field may say, so that no sum of them is cut off.
constexpr uint32_t kMostArgumentBytes = 1 << 20;
constexpr uint32_t kMostWorkgroup = 1024, kMostRegisters = 1024;
constexpr size_t kMostDepth = 32;  // of nested arrays and maps in the metadata note; compilers need 6

// Hears an array or a map begin and end, and stops at too deep a one: the parser is recursive.
class DepthLimit : public Metadata::json_sax_t {
 public:
  bool start_object(size_t) override { return ++depth_ <= kMostDepth; }
  bool start_array(size_t) override { return ++depth_ <= kMostDepth; }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
  bool too_deep() const { return depth_ > kMostDepth; }

 private:
  size_t depth_ = 0;
};

Metadata read_note(std::span<const uint8_t> metadata) {
  // As char: libc++ has no traits of other bytes.
  const auto* text = reinterpret_cast<const char*>(metadata.data());
  DepthLimit limit;
  if (Metadata::sax_parse(text, text + metadata.size(), &limit, Metadata::input_format_t::msgpack))
    return Metadata::from_msgpack(text, text + metadata.size());
  if (limit.too_deep())
    throw std::runtime_error("its metadata note is nested more than " + std::to_string(kMostDepth) + " deep");
  throw std::runtime_error("its metadata note is not MessagePack");
}

uint32_t number(const Metadata& map, const char* key, uint32_t otherwise, uint32_t most) {
  const auto it = map.find(key);
  if (it == map.end()) return otherwise;
  const bool natural = it->is_number_unsigned() || (it->is_number_integer() && it->get<int64_t>() >= 0);
  if (!natural || it->get<uint64_t>() > most) {
    throw std::runtime_error(std::string("metadata: ") + key + " is " + it->dump() + ", expected at most " +
                             std::to_string(most));
  }
  return it->get<uint32_t>();
}

void read_args(const Metadata& args, KernelCode* k) {
  for (const Metadata& arg : args) {
    const std::string kind = arg.value(".value_kind", std::string());
    const uint32_t offset = number(arg, ".offset", 0, kMostArgumentBytes);
    const uint32_t bytes = number(arg, ".size", 0, kMostArgumentBytes);
    if (kind.starts_with("hidden_")) {
      k->hidden.push_back({kind, offset, bytes});
    } else {
      k->explicit_args.emplace_back(offset, bytes);
      k->explicit_bytes = std::max(k->explicit_bytes, offset + bytes);
    }
  }
}

void read_metadata(const Metadata& kernels, KernelCode* k) {
  for (const Metadata& m : kernels) {
    if (m.value(".symbol", std::string()) != k->name + ".kd") continue;
    if (const auto it = m.find(".name"); it != m.end() && it->is_string()) k->name = it->get<std::string>();
    k->kernarg_bytes = std::max(k->kernarg_bytes, number(m, ".kernarg_segment_size", 0, kMostArgumentBytes));
    k->lds_bytes = std::max(k->lds_bytes, number(m, ".group_segment_fixed_size", 0, ~0u));
    k->private_bytes = std::max(k->private_bytes, number(m, ".private_segment_fixed_size", 0, ~0u));
    k->uses_dynamic_stack = m.value(".uses_dynamic_stack", false);
    k->max_workgroup_size = number(m, ".max_flat_workgroup_size", k->max_workgroup_size, kMostWorkgroup);
    k->vgpr_count = number(m, ".vgpr_count", k->vgpr_count, kMostRegisters);
    k->agpr_count = number(m, ".agpr_count", k->agpr_count, kMostRegisters);
    k->sgpr_count = number(m, ".sgpr_count", k->sgpr_count, kMostRegisters);
    if (const auto it = m.find(".args"); it != m.end() && it->is_array()) {
      read_args(*it, k);
      return;
    }
    break;
  }
  k->explicit_bytes = k->kernarg_bytes;  // nothing says where arguments lie: the caller gives the whole block
}

}  // namespace

// rsrc1[5:0] counts eights less 1, on RDNA fours for waves of 64 (LLVM, AMDGPUUsage:
// GRANULATED_WORKITEM_VGPR_COUNT).
uint32_t vgprs_of(const KernelCode& k, const ArchInfo& info) {
  const uint32_t unit = is_rdna(info.isa) && k.wave_size == 64 ? 4 : 8;
  return ((k.rsrc1 & 0x3f) + 1) * unit;
}

namespace {

KernelCode read_descriptor(const ElfImage::Symbol& symbol, Arch arch) {
  const auto* d = reinterpret_cast<const uint8_t*>(symbol.address);
  KernelCode k;
  k.name = symbol.name.substr(0, symbol.name.size() - 3);
  k.descriptor = symbol.address;
  k.lds_bytes = read<uint32_t>(d);
  k.private_bytes = read<uint32_t>(d + 4);
  k.kernarg_bytes = read<uint32_t>(d + 8);
  k.entry = symbol.address + read<uint64_t>(d + 16);
  k.rsrc3 = read<uint32_t>(d + 44);
  k.rsrc1 = read<uint32_t>(d + 48);
  k.rsrc2 = read<uint32_t>(d + 52);
  k.properties = read<uint16_t>(d + 56);
  k.preload = read<uint16_t>(d + 58);
  // With preloaded arguments the first 256 bytes are for firmware that cannot preload.
  if (k.preload & 0x7f) k.entry += kPreloadEntryOffset;
  const ArchInfo& info = arch_info(arch);
  k.wave_size = k.properties & kWave32 ? 32 : 64;
  if (!has_waves_of(info, k.wave_size))
    throw std::runtime_error(k.name + " is for waves of 32 lanes, which " + info.name + " has not");
  const uint32_t total = vgprs_of(k, info);
  const uint32_t plain = info.matrix == MatrixUnit::kMfma ? ((k.rsrc3 & 0x3f) + 1) * 4 : total;
  k.vgpr_count = std::min(plain, total);
  k.agpr_count = total - k.vgpr_count;
  k.sgpr_count = dialect_of(info.isa).sgprs;
  return k;
}

}  // namespace

namespace {

// Compares what descriptor and metadata ask for with what any card of the arch has. The launch compares LDS.
void check_kernel(const KernelCode& k, const ArchInfo& info) {
  const auto refuse = [&](const char* what, uint64_t bytes, uint64_t most) {
    throw std::runtime_error("kernel " + k.name + " has " + std::to_string(bytes) + " bytes of " + what +
                             ", expected at most " + std::to_string(most));
  };
  if (k.kernarg_bytes > kMostArgumentBytes) refuse("arguments", k.kernarg_bytes, kMostArgumentBytes);
  const uint64_t most_private = dialect_of(info.isa).wave_scratch_bytes / static_cast<uint64_t>(k.wave_size);
  if (k.private_bytes > most_private) refuse("private memory a lane", k.private_bytes, most_private);
}

}  // namespace

size_t code_object_bytes(const void* image) {
  const auto* p = static_cast<const uint8_t*>(image);
  if (std::memcmp(p, ELFMAG, SELFMAG) == 0) return elf_bytes(p);
  return bundle_bytes(p);
}

void CodeObject::read_kernels(const ElfImage& elf) {
  Metadata note = Metadata::object();
  if (!elf.metadata().empty()) note = read_note(elf.metadata());
  const Metadata kernels =
      note.is_object() ? note.value("amdhsa.kernels", Metadata::array()) : Metadata::array();
  for (const ElfImage::Symbol& s : elf.symbols()) {
    if (s.type != STT_OBJECT) continue;
    if (!s.name.ends_with(".kd")) {
      globals_.push_back({s.name, s.address, s.bytes});
      continue;
    }
    if (s.bytes != kDescriptorBytes) throw std::runtime_error(s.name + " is not 64 bytes");
    KernelCode k = read_descriptor(s, arch_);
    read_metadata(kernels, &k);
    check_kernel(k, arch_info(arch_));
    kernels_.push_back(std::move(k));
  }
}

void CodeObject::decode_text(const ElfImage& elf) {
  const auto text = elf.text();
  const auto base = reinterpret_cast<uint64_t>(text.data());
  for (KernelCode& k : kernels_) {
    DecodedText& decoded = code_[k.wave_size == 64].text;
    if (decoded.insts.empty()) decoded = decode(arch_, k.wave_size, text.data(), text.size(), base);
    const Inst* entry = decoded.at(k.entry);
    if (!entry) throw std::runtime_error("kernel " + k.name + " starts outside the code");
    k.entry_index = static_cast<uint32_t>(entry - decoded.insts.data());
  }
}

std::unique_ptr<CodeObject> CodeObject::load(const void* image, size_t bytes, Arch device_arch, int device,
                                             int* hip_error, std::string* message) {
  const auto refuse = [&](int error, std::string text) {
    *hip_error = error;
    *message = std::move(text);
    return nullptr;
  };
  if (is_bundle(image, bytes)) {
    BundlePick pick;
    const auto wanted = [&](std::span<const uint8_t> head) { return is_for(head, device_arch); };
    if (!pick_from_bundle({static_cast<const uint8_t*>(image), bytes}, wanted, &pick, message))
      return refuse(hipErrorInvalidImage, *message);
    if (pick.image.empty()) {
      return refuse(hipErrorNoBinaryForGpu, std::string("offload bundle: nothing for ") +
                                                arch_name(device_arch) + " in: " + pick.ids);
    }
    return load(pick.image.data(), pick.image.size(), device_arch, device, hip_error, message);
  }
  ElfImage elf(image, bytes);
  if (!elf.check_identity()) return refuse(elf.hip_error(), elf.error());
  if (std::string reason = why_not(elf.flags(), device_arch); !reason.empty())
    return refuse(hipErrorNoBinaryForGpu, reason);
  if (!elf.load()) return refuse(elf.hip_error(), elf.error());
  std::unique_ptr<CodeObject> code(new CodeObject);
  code->arch_ = device_arch;
  try {
    code->read_kernels(elf);
    code->decode_text(elf);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    return refuse(hipErrorInvalidImage, std::string("code object: ") + e.what());
  }
  code->image_ = elf.release(&code->image_bytes_);
  memory_add({reinterpret_cast<uint64_t>(code->image_), code->image_bytes_, MemoryKind::kCode, device});
  return code;
}

const TextFacts& CodeObject::facts(int wave_size) const {
  const Code& code = code_[wave_size == 64];
  code.facts_once.run([&] { code.facts = std::make_unique<TextFacts>(code.text, arch_, wave_size); });
  return *code.facts;
}

CodeObject::~CodeObject() {
  if (!image_) return;
  memory_remove(reinterpret_cast<uint64_t>(image_));
  munmap(image_, image_bytes_);
}

const KernelCode* CodeObject::kernel(const char* name) const {
  for (const KernelCode& k : kernels_) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

bool CodeObject::global(const char* name, uint64_t* address, uint64_t* bytes) const {
  for (const Symbol& s : globals_) {
    if (s.name != name) continue;
    *address = s.address;
    *bytes = s.bytes;
    return true;
  }
  return false;
}

}  // namespace fmha::emu
