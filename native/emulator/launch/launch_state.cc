// SPDX-License-Identifier: MIT OR Apache-2.0
#include "launch/launch_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <new>

#include "core/dialect.h"

namespace fmha::emu {
namespace {

// hsa_kernel_dispatch_packet_t.
struct Packet {
  uint16_t header, setup;
  uint16_t workgroup[3], reserved0;
  uint32_t grid[3];  // in work-items
  uint32_t private_bytes, group_bytes;
  uint64_t kernel_object, kernarg, reserved1, completion_signal;
};
static_assert(sizeof(Packet) == 64);

// Type kernel dispatch, barrier bit, system-scope acquire and release.
constexpr uint16_t kPacketHeader = 2 | 1 << 8 | 2 << 9 | 2 << 11;

// kernel_code_properties.
enum Property : uint16_t {
  kPrivateBuffer = 1 << 0,
  kDispatchPtr = 1 << 1,
  kQueuePtr = 1 << 2,
  kKernargPtr = 1 << 3,
  kDispatchId = 1 << 4,
  kFlatScratchInit = 1 << 5,
  kPrivateSize = 1 << 6,
};

// compute_pgm_rsrc2.
constexpr uint32_t kEnablePrivate = 1u << 0, kIdX = 1u << 7, kIdY = 1u << 8, kIdZ = 1u << 9, kInfo = 1u << 10;
constexpr uint32_t user_sgprs(uint32_t rsrc2) { return rsrc2 >> 1 & 0x1f; }
constexpr uint32_t work_item_dims(uint32_t rsrc2) { return rsrc2 >> 11 & 3; }

uint64_t hidden_value(const std::string& kind, const Launch& l) {
  const auto axis = [&](const char* prefix) { return kind.starts_with(prefix) ? kind.back() - 'x' : -1; };
  if (int i = axis("hidden_block_count_"); i >= 0) return l.grid[i];
  if (int i = axis("hidden_group_size_"); i >= 0) return l.block[i];
  // HIP grids are whole workgroups, and start at 0.
  if (axis("hidden_remainder_") >= 0 || axis("hidden_global_offset_") >= 0) return 0;
  if (kind == "hidden_grid_dims") return l.grid[2] * l.block[2] > 1 ? 3 : l.grid[1] * l.block[1] > 1 ? 2 : 1;
  if (kind == "hidden_dynamic_lds_size") return l.dynamic_lds;
  if (kind == "hidden_private_base") return kPrivateApertureHi;
  if (kind == "hidden_shared_base") return kSharedApertureHi;
  // Host calls, printf, device-side malloc and queues: null, so that using one faults with its address.
  return 0;
}

// Writes the user SGPRs in the order of the table in AMDGPUUsage.
class SgprWriter {
 public:
  explicit SgprWriter(Wave& w) : wave_(w) {}
  void put(uint32_t v) {
    if (at_ < kMax) wave_.sgpr[at_++] = v;
  }
  void put64(uint64_t v) {
    put(static_cast<uint32_t>(v));
    put(static_cast<uint32_t>(v >> 32));
  }
  int at() const { return at_; }
  void seek(int at) { at_ = at; }

 private:
  static constexpr int kMax = 102;
  Wave& wave_;
  int at_ = 0;
};

// The V# of private memory, for code that reaches it with buffer instructions (CDNA2, RDNA 2): lane l at base
// + l * stride, by ADD_TID_ENABLE without swizzling, which is the layout that Wave::scratch has.
void put_private_buffer(SgprWriter& s, uint64_t base, uint32_t stride) {
  constexpr uint32_t kAddTid = 1u << 23;
  s.put(static_cast<uint32_t>(base));
  s.put((static_cast<uint32_t>(base >> 32) & 0xffff) | (stride & 0x3fff) << 16);
  s.put(~0u);
  s.put(kAddTid | (stride >> 14 & 0xf) << 15);
}

void init_sgprs(Wave& w, const Launch& l, const LaunchBlock& block, const uint8_t* scratch_base) {
  const KernelCode& k = *l.kernel;
  const uint64_t scratch = reinterpret_cast<uint64_t>(scratch_base);
  SgprWriter s(w);
  if (k.properties & kPrivateBuffer) put_private_buffer(s, scratch, w.scratch_bytes);
  if (k.properties & kDispatchPtr) s.put64(block.packet());
  if (k.properties & kQueuePtr) s.put64(0);
  if (k.properties & kKernargPtr) s.put64(block.kernarg());
  if (k.properties & kDispatchId) s.put64(0);
  if (k.properties & kFlatScratchInit) s.put64(scratch);
  if (const uint32_t length = k.preload & 0x7f) {
    const auto* args = reinterpret_cast<const uint8_t*>(block.kernarg());
    const uint32_t first = k.preload >> 7;
    for (uint32_t i = 0; i < length; ++i) {
      uint32_t v = 0;
      if ((first + i + 1) * 4 <= k.kernarg_bytes) std::memcpy(&v, args + (first + i) * 4, 4);
      s.put(v);
    }
  }
  if (k.properties & kPrivateSize) s.put(w.scratch_bytes);
  // The system SGPRs follow the count that the hardware is told, which may leave a gap.
  s.seek(static_cast<int>(user_sgprs(k.rsrc2)));
  if (dialect_of(arch_info(l.code->arch()).isa).ids_in_ttmp) {
    constexpr int kTtmp7 = 115, kTtmp8 = 116, kTtmp9 = 117;
    w.sgpr[kTtmp9] = w.group->id[0];
    w.sgpr[kTtmp7] = w.group->id[1] | w.group->id[2] << 16;
    w.sgpr[kTtmp8] = w.id << 25;
  } else {
    if (k.rsrc2 & kIdX) s.put(w.group->id[0]);
    if (k.rsrc2 & kIdY) s.put(w.group->id[1]);
    if (k.rsrc2 & kIdZ) s.put(w.group->id[2]);
  }
  if (k.rsrc2 & kInfo) s.put(w.id == 0 ? 1u << 31 : 0);
  if (!(k.rsrc2 & kEnablePrivate)) return;
  switch (arch_info(l.code->arch()).isa) {
    case Isa::kCdna2:
    case Isa::kRdna2:  // the kernel adds the wave's offset itself
      s.put(static_cast<uint32_t>(w.scratch - scratch_base));
      break;
    case Isa::kCdna3:
    case Isa::kCdna4:  // architected flat scratch
      w.set_sgpr64(kFlatScratchLo, reinterpret_cast<uint64_t>(w.scratch));
      break;
    case Isa::kRdna3:  // the same, in a hardware register
    case Isa::kRdna4:
      break;
  }
}

// MODE from rsrc1: FLOAT_MODE, DX10_CLAMP, IEEE_MODE, FP16_OVFL.
uint32_t initial_mode(uint32_t rsrc1, Isa isa) {
  uint32_t mode = rsrc1 >> 12 & 0xff;
  if (isa == Isa::kRdna4) {
    return mode | (rsrc1 >> 26 & 1) << 23 | 1u << Mode::kDx10Clamp | 1u << Mode::kMinimumNumber;
  }
  mode |= (rsrc1 >> 21 & 1) << Mode::kDx10Clamp;
  mode |= (rsrc1 >> 23 & 1) << Mode::kIeee;
  mode |= (rsrc1 >> 26 & 1) << 23;
  return mode;
}

// The work-item id, as many of its numbers as the kernel asks for: v0 packs them, x | y << 10 | z << 20, or
// v0 to v2 have one each.
void init_work_items(Wave& w, const Launch& l) {
  const uint32_t dims = work_item_dims(l.kernel->rsrc2);
  const bool packed = dialect_of(arch_info(l.code->arch()).isa).packed_ids;
  const uint32_t total = l.block[0] * l.block[1] * l.block[2];
  uint64_t exec = 0;
  for (uint32_t lane = 0; lane < w.lanes; ++lane) {
    const uint32_t i = w.id * w.lanes + lane;
    if (i >= total) break;
    exec |= uint64_t{1} << lane;
    const uint32_t x = i % l.block[0], y = i / l.block[0] % l.block[1], z = i / l.block[0] / l.block[1];
    if (packed) {
      w.vgpr[0][lane] = x | (dims >= 1 ? y << 10 : 0) | (dims >= 2 ? z << 20 : 0);
      continue;
    }
    w.vgpr[0][lane] = x;
    if (dims >= 1) w.vgpr[1][lane] = y;
    if (dims >= 2) w.vgpr[2][lane] = z;
  }
  w.set_sgpr64(kExecLo, exec);
}

}  // namespace

void fill_poison(void* p, size_t bytes) {
  if (!bytes) return;
  static_assert(sizeof(wchar_t) == sizeof kPoison);
  auto* words = static_cast<wchar_t*>(p);
  std::wmemset(words, kPoison, bytes / 4);  // by vectors, which a loop is only at -O3
  std::memset(words + bytes / 4, kPoison & 0xff, bytes % 4);
}

uint32_t scratch_bytes_per_lane(const Launch& launch) {
  const KernelCode& k = *launch.kernel;
  const uint32_t bytes =
      k.uses_dynamic_stack ? std::max(k.private_bytes, launch.stack_bytes) : k.private_bytes;
  return (bytes + 15) / 16 * 16;
}

void LaunchBlock::Free::operator()(uint8_t* p) const { std::free(p); }

LaunchBlock::LaunchBlock(const Launch& launch) {
  // Compilers widen loads of arguments up to the alignment of the block.
  kernarg_bytes_ = std::max<uint64_t>(
      16, (std::max<uint64_t>(launch.kernel->kernarg_bytes, launch.args_bytes) + 15) / 16 * 16);
  const size_t bytes = kKernargOffset + kernarg_bytes_;
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
  if (!memory_) throw std::bad_alloc();
  write_packet(launch);
  write_kernarg(launch);
  memory_add({packet(), sizeof(Packet), MemoryKind::kKernarg, launch.device});
  try {
    memory_add({kernarg(), kernarg_bytes_, MemoryKind::kKernarg, launch.device});
  } catch (...) {
    memory_remove(packet());
    throw;
  }
}

LaunchBlock::~LaunchBlock() {
  memory_remove(packet());
  memory_remove(kernarg());
}

void LaunchBlock::write_packet(const Launch& l) {
  Packet p{};
  p.header = kPacketHeader;
  p.setup = static_cast<uint16_t>(hidden_value("hidden_grid_dims", l));
  for (int i = 0; i < 3; ++i) {
    p.workgroup[i] = static_cast<uint16_t>(l.block[i]);
    p.grid[i] = l.grid[i] * l.block[i];
  }
  p.private_bytes = scratch_bytes_per_lane(l);
  p.group_bytes = l.kernel->lds_bytes + l.dynamic_lds;
  p.kernel_object = l.kernel->descriptor;
  p.kernarg = kernarg();
  std::memcpy(memory_.get(), &p, sizeof p);
}

void LaunchBlock::write_kernarg(const Launch& l) {
  uint8_t* block = memory_.get() + kKernargOffset;
  std::memset(block, 0, kernarg_bytes_);
  if (l.args_bytes) std::memcpy(block, l.args, l.args_bytes);
  for (const HiddenArg& h : l.kernel->hidden) {
    const uint64_t value = hidden_value(h.kind, l);
    if (h.bytes <= sizeof value && h.offset + h.bytes <= kernarg_bytes_)
      std::memcpy(block + h.offset, &value, h.bytes);
  }
}

void init_wave(Wave& w, const Launch& l, const LaunchBlock& block, const uint8_t* scratch_base) {
  const KernelCode& k = *l.kernel;
  fill_poison(w.vgpr[0], std::min(k.vgpr_count, 256u) * sizeof w.vgpr[0]);
  fill_poison(w.vgpr[256], std::min(k.agpr_count, 256u) * sizeof w.vgpr[0]);
  fill_poison(w.sgpr, sizeof w.sgpr);
  w.scc = w.signalled = false;
  w.mode = initial_mode(k.rsrc1, arch_info(l.code->arch()).isa);
  w.state = WaveState::kRunning;
  w.lanes = wave_size_of(l);
  w.all_lanes = ~uint64_t{0} >> (64 - w.lanes);
  w.next = text_of(l).insts.data() + k.entry_index;
  w.instructions = w.mfma_macs = w.clock = 0;
  w.memory = MemoryCache(l.device);
  w.scratch_bytes = scratch_bytes_per_lane(l);
  init_sgprs(w, l, block, scratch_base);
  init_work_items(w, l);
}

}  // namespace fmha::emu
