// SPDX-License-Identifier: MIT OR Apache-2.0
// The device's properties: one filled struct, from which the older struct and the attributes are read.
#include <cstdio>
#include <cstring>

#include "hip/state.h"

namespace fmha::emu {
namespace {

// Every feature of hipDeviceArch_t but funnel shift, surfaces and dynamic parallelism.
constexpr uint32_t kArchFeatures = 0x1ffff & ~(1u << 11 | 1u << 14 | 1u << 16);
constexpr int kLargestInt = 0x7fffffff;

int number(const Constant& c) { return static_cast<int>(c.value); }

// hipDeviceAttribute_t; the numbers of ROCm 5 to 7 agree.
enum Attribute : int {
  kEcc = 0,
  kAccessPolicyWindow,
  kAsyncEngines,
  kCanMapHost,
  kHostPointerForRegistered,
  kClockRate,
  kComputeMode,
  kPreemption,
  kConcurrentKernels,
  kConcurrentManaged,
  kCooperative,
  kCooperativeMulti,
  kOverlap,
  kDirectManaged,
  kGlobalL1,
  kHostAtomics,
  kIntegrated,
  kMultiBoard,
  kTimeout,
  kL2Bytes,
  kLocalL1,
  kLuid,
  kLuidMask,
  kMajor,
  kManaged,
  kMaxBlocks,
  kBlockX,
  kBlockY,
  kBlockZ,
  kGridX,
  kGridY,
  kGridZ,
  kFirstImage = 32,
  kLastImage = 54,  // surface and texture limits: the device has no images
  kThreadsDim = 55,
  kThreadsPerBlock,
  kThreadsPerCu,
  kMaxPitch,
  kBusWidth,
  kMemoryClock,
  kMinor,
  kBoardGroup,
  kComputeUnits,
  kPageable = 65,
  kPageTables,
  kPciBus,
  kPciDevice,
  kPciDomain,
  kPersistingL2,
  kRegsPerBlock,
  kRegsPerCu,
  kReservedShared,
  kSharedPerBlock,
  kSharedOptin,
  kSharedPerCu,
  kDoubleRatio,
  kPriorities,
  kSurfaceAlign,
  kTcc,
  kTextureAlign,
  kTexturePitch,
  kConstMemory,
  kGlobalMemory,
  kUnified,
  kWarp = 87,
  kPools,
  kVirtualMemory,
  kHostRegister,
  kPoolHandles,
  kInstructionClock = 10000,
  kMaxSharedPerCu = 10002,
  kHdpMem = 10005,
  kHdpReg,
  kUnmatchedFunc,
  kUnmatchedGrid,
  kUnmatchedBlock,
  kUnmatchedShared,
  kLargeBar,
  kRevision,
  kStreamWaitValue,
  kImages,
  kPhysicalUnits,
  kFineGrain,
  kWallClock,
  kXccs,
  kVgprs,
  kChipId,
};

void fill_limits(HipDeviceProp& p) {
  p.sharedMemPerBlock = p.sharedMemPerMultiprocessor = p.maxSharedMemoryPerMultiProcessor =
      device_card().lds_bytes_per_cu.value;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = device_arch().wave_size;
  p.memPitch = kLargestInt;
  p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = p.maxThreadsDim[2] = 1024;
  p.maxGridSize[0] = kLargestInt;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 2;
  p.totalConstMem = kLargestInt;
  p.textureAlignment = p.texturePitchAlignment = 256;
}

HipDeviceProp properties(int index) {
  const Card& card = device_card();
  const ArchInfo& arch = device_arch();
  HipDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "%s", device_name().c_str());
  std::snprintf(p.gcnArchName, sizeof p.gcnArchName, "%s", arch.target);
  char uuid[sizeof p.uuid.bytes + 1];
  std::snprintf(uuid, sizeof uuid, "GPU-emu-%08d", index);
  std::memcpy(p.uuid.bytes, uuid, sizeof p.uuid.bytes);
  p.totalGlobalMem = device_memory_bytes();
  fill_limits(p);
  p.major = arch.capability_major;
  p.minor = arch.capability_minor;
  p.multiProcessorCount = number(card.compute_units) / number(card.cus_per_multiprocessor);
  p.clockRate = number(card.clock_khz);
  p.memoryClockRate = number(card.memory_clock_khz);
  p.memoryBusWidth = number(card.memory_bus_bits);
  p.l2CacheSize = number(card.l2_bytes_per_xcd);
  p.clockInstructionRate = number(card.wall_clock_khz);
  p.arch = kArchFeatures;
  p.pciBusID = index + 1;
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.asyncEngineCount = 1;
  p.integrated = number(card.integrated);
  p.managedMemory = p.concurrentManagedAccess = p.hostRegisterSupported = p.isLargeBar = 1;
  p.streamPrioritiesSupported = p.canUseHostPointerForRegisteredMem = 1;
  p.singleToDoublePrecisionPerfRatio = 1;
  return p;
}

HipDevicePropR0000 old_properties(int index) {
  const HipDeviceProp n = properties(index);
  HipDevicePropR0000 p{};
  std::memcpy(p.name, n.name, sizeof p.name);
  std::memcpy(p.gcnArchName, n.gcnArchName, sizeof p.gcnArchName);
  std::memcpy(p.maxThreadsDim, n.maxThreadsDim, sizeof p.maxThreadsDim);
  std::memcpy(p.maxGridSize, n.maxGridSize, sizeof p.maxGridSize);
  p.totalGlobalMem = n.totalGlobalMem;
  p.sharedMemPerBlock = n.sharedMemPerBlock;
  p.maxSharedMemoryPerMultiProcessor = n.maxSharedMemoryPerMultiProcessor;
  p.regsPerBlock = n.regsPerBlock;
  p.warpSize = n.warpSize;
  p.maxThreadsPerBlock = n.maxThreadsPerBlock;
  p.clockRate = n.clockRate;
  p.memoryClockRate = n.memoryClockRate;
  p.memoryBusWidth = n.memoryBusWidth;
  p.totalConstMem = n.totalConstMem;
  p.major = n.major;
  p.minor = n.minor;
  p.multiProcessorCount = n.multiProcessorCount;
  p.l2CacheSize = n.l2CacheSize;
  p.maxThreadsPerMultiProcessor = n.maxThreadsPerMultiProcessor;
  p.clockInstructionRate = n.clockInstructionRate;
  p.arch = n.arch;
  p.concurrentKernels = n.concurrentKernels;
  p.pciBusID = n.pciBusID;
  p.canMapHostMemory = n.canMapHostMemory;
  p.gcnArch = device_arch().gcn_arch;
  p.memPitch = n.memPitch;
  p.textureAlignment = n.textureAlignment;
  p.texturePitchAlignment = n.texturePitchAlignment;
  p.integrated = n.integrated;
  p.ECCEnabled = n.ECCEnabled;
  p.isLargeBar = n.isLargeBar;
  p.managedMemory = n.managedMemory;
  p.concurrentManagedAccess = n.concurrentManagedAccess;
  return p;
}

// False if HIP has no such attribute.
bool attribute(int which, int index, int* value) {
  const HipDeviceProp p = properties(index);
  const auto clamp = [](size_t v) { return static_cast<int>(v > kLargestInt ? kLargestInt : v); };
  if (which >= kFirstImage && which <= kLastImage) return *value = 0, true;
  switch (which) {
    case kEcc:
      *value = p.ECCEnabled;
      break;
    case kAsyncEngines:
      *value = p.asyncEngineCount;
      break;
    case kCanMapHost:
      *value = p.canMapHostMemory;
      break;
    case kHostPointerForRegistered:
      *value = p.canUseHostPointerForRegisteredMem;
      break;
    case kClockRate:
      *value = p.clockRate;
      break;
    case kIntegrated:
      *value = p.integrated;
      break;
    case kConcurrentKernels:
      *value = p.concurrentKernels;
      break;
    case kConcurrentManaged:
      *value = p.concurrentManagedAccess;
      break;
    case kL2Bytes:
      *value = p.l2CacheSize;
      break;
    case kMajor:
      *value = p.major;
      break;
    case kMinor:
      *value = p.minor;
      break;
    case kManaged:
      *value = p.managedMemory;
      break;
    case kMaxBlocks:
      *value = p.maxBlocksPerMultiProcessor;
      break;
    case kBlockX:
    case kBlockY:
    case kBlockZ:
      *value = p.maxThreadsDim[which - kBlockX];
      break;
    case kGridX:
    case kGridY:
    case kGridZ:
      *value = p.maxGridSize[which - kGridX];
      break;
    case kThreadsDim:
    case kThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case kThreadsPerCu:
      *value = p.maxThreadsPerMultiProcessor;
      break;
    case kMaxPitch:
      *value = clamp(p.memPitch);
      break;
    case kBusWidth:
      *value = p.memoryBusWidth;
      break;
    case kMemoryClock:
      *value = p.memoryClockRate;
      break;
    case kComputeUnits:
    case kPhysicalUnits:
      *value = p.multiProcessorCount;
      break;
    case kPciBus:
      *value = p.pciBusID;
      break;
    case kRegsPerBlock:
      *value = p.regsPerBlock;
      break;
    case kRegsPerCu:
      *value = p.regsPerMultiprocessor;
      break;
    case kSharedPerBlock:
    case kSharedPerCu:
    case kMaxSharedPerCu:
      *value = clamp(p.sharedMemPerBlock);
      break;
    case kDoubleRatio:
      *value = p.singleToDoublePrecisionPerfRatio;
      break;
    case kPriorities:
      *value = p.streamPrioritiesSupported;
      break;
    case kTextureAlign:
      *value = clamp(p.textureAlignment);
      break;
    case kTexturePitch:
      *value = clamp(p.texturePitchAlignment);
      break;
    case kConstMemory:
      *value = clamp(p.totalConstMem);
      break;
    case kGlobalMemory:
      *value = clamp(p.totalGlobalMem);
      break;
    case kUnified:
      *value = p.unifiedAddressing;
      break;
    case kWarp:
      *value = p.warpSize;
      break;
    case kHostRegister:
      *value = p.hostRegisterSupported;
      break;
    case kInstructionClock:
    case kWallClock:
      *value = p.clockInstructionRate;
      break;
    case kLargeBar:
      *value = p.isLargeBar;
      break;
    case kFineGrain:
    case kStreamWaitValue:
    case kVirtualMemory:
      *value = 1;
      break;
    case kXccs:
      *value = number(device_card().xcds);
      break;
    case kVgprs:
      *value = number(device_card().vgprs_per_simd_lane);
      break;
    // The device lacks these.
    case kAccessPolicyWindow:
    case kComputeMode:
    case kPreemption:
    case kCooperative:
    case kCooperativeMulti:
    case kOverlap:
    case kDirectManaged:
    case kGlobalL1:
    case kHostAtomics:
    case kMultiBoard:
    case kTimeout:
    case kLocalL1:
    case kLuid:
    case kLuidMask:
    case kBoardGroup:
    case kPageable:
    case kPageTables:
    case kPciDevice:
    case kPciDomain:
    case kPersistingL2:
    case kReservedShared:
    case kSharedOptin:
    case kSurfaceAlign:
    case kTcc:
    case kPools:
    case kPoolHandles:
    case kHdpMem:
    case kHdpReg:
    case kUnmatchedFunc:
    case kUnmatchedGrid:
    case kUnmatchedBlock:
    case kUnmatchedShared:
    case kRevision:
    case kImages:
    case kChipId:
      *value = 0;
      break;
    default:
      return false;
  }
  return true;
}

template <class Prop, Prop (*kFill)(int)>
int get_properties(const char* function, Prop* out, int index) {
  if (!out) return fail(hipErrorInvalidValue, "%s: prop is null", function);
  if (const int e = check_device(index, function)) return e;
  *out = kFill(index);
  return hipSuccess;
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipGetDevicePropertiesR0600(HipDeviceProp* prop, int index) {
  return get_properties<HipDeviceProp, properties>("hipGetDevicePropertiesR0600", prop, index);
}

HIP_API int hipGetDevicePropertiesR0000(HipDevicePropR0000* prop, int index) {
  return get_properties<HipDevicePropR0000, old_properties>("hipGetDevicePropertiesR0000", prop, index);
}

HIP_API int hipGetDeviceProperties(HipDevicePropR0000* prop, int index) {
  return get_properties<HipDevicePropR0000, old_properties>("hipGetDeviceProperties", prop, index);
}

// Every device is the same model.
HIP_API int hipChooseDeviceR0600(int* index, const HipDeviceProp* prop) {
  return answered([&]() -> int {
    if (!index || !prop) return fail(hipErrorInvalidValue, "hipChooseDeviceR0600: device or prop is null");
    *index = 0;
    return hipSuccess;
  });
}

HIP_API int hipDeviceGetAttribute(int* value, int which, int index) {
  return answered([&]() -> int {
    if (!value) return fail(hipErrorInvalidValue, "hipDeviceGetAttribute: pi is null");
    if (const int e = check_device(index, "hipDeviceGetAttribute")) return e;
    if (attribute(which, index, value)) return hipSuccess;
    return fail(hipErrorInvalidValue, "hipDeviceGetAttribute: there is no attribute %d", which);
  });
}
