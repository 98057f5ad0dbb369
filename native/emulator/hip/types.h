// SPDX-License-Identifier: MIT OR Apache-2.0
// The part of HIP's binary interface that this runtime implements: values and layouts as in ROCm 6 (and 7),
// written down here so that it builds without HIP headers. The older property struct is HIP 5's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/errors.h"

namespace fmha::emu {

enum HipMemcpyKind : int {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,
  hipMemcpyDeviceToDeviceNoCU = 1024,
};

enum HipMemoryType : int {
  hipMemoryTypeUnregistered = 0,
  hipMemoryTypeHost = 1,
  hipMemoryTypeDevice = 2,
  hipMemoryTypeManaged = 3,
};

struct HipPointerAttribute {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  int is_managed;
  unsigned allocation_flags;
};
static_assert(sizeof(HipPointerAttribute) == 32);

struct HipUuid {
  char bytes[16];
};

// hip_Memcpy2D.
struct HipMemcpy2D {
  size_t src_x_bytes, src_y;
  int src_type;
  const void* src_host;
  void* src_device;
  void* src_array;
  size_t src_pitch;
  size_t dst_x_bytes, dst_y;
  int dst_type;
  void* dst_host;
  void* dst_device;
  void* dst_array;
  size_t dst_pitch;
  size_t width_bytes, height;
};
static_assert(sizeof(HipMemcpy2D) == 128);

struct HipDim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct HipFuncAttributes {
  int binary_version, cache_mode_ca;
  size_t const_bytes, local_bytes;
  int max_dynamic_shared_bytes, max_threads, registers, preferred_carveout, ptx_version;
  size_t shared_bytes;
};
static_assert(sizeof(HipFuncAttributes) == 56);

struct HipIpcHandle {
  char reserved[64];
};

using HipStream = struct Stream*;
using HipEvent = struct Event*;
using HipGraph = struct Graph*;
using HipGraphNode = struct GraphNode*;
using HipGraphExec = struct GraphExec*;
using HipMemPool = struct MemPool*;
using HipModule = struct Module*;
using HipFunction = struct Function*;
using HipHostFn = void (*)(void* user_data);
using HipStreamCallback = void (*)(HipStream stream, int status, void* user_data);

// hipKernelNodeParams.
struct HipKernelNodeParams {
  HipDim3 block;
  void** extra;
  void* function;  // of a module, or a host stub
  HipDim3 grid;
  void** params;
  unsigned dynamic_lds;
};
static_assert(sizeof(HipKernelNodeParams) == 64);

// hipMemsetParams.
struct HipMemsetParams {
  void* dst;
  unsigned element_bytes;
  size_t height, pitch;
  unsigned value;
  size_t width;  // in elements
};
static_assert(sizeof(HipMemsetParams) == 48);

// hipHostNodeParams.
struct HipHostNodeParams {
  HipHostFn fn;
  void* user_data;
};

// hipMemcpy3DParms.
struct HipPos {
  size_t x, y, z;
};
struct HipPitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct HipMemcpy3D {
  void* src_array;
  HipPos src_pos;
  HipPitchedPtr src;
  void* dst_array;
  HipPos dst_pos;
  HipPitchedPtr dst;
  size_t width_bytes, height, depth;
  int kind;
};
static_assert(sizeof(HipMemcpy3D) == 160);

// HIP_MEMCPY3D, as it is from HIP 6 on.
struct HipDrvMemcpy3D {
  struct End {
    size_t x_bytes, y, z, lod;
    int type;
    void *host, *device, *array;
    size_t pitch, height;
  } src, dst;
  size_t width_bytes, height, depth;
};
static_assert(sizeof(HipDrvMemcpy3D) == 184);

// hipMemAllocationProp.
struct HipMemAllocationProp {
  int allocation_type, handle_types, location_type, location_id;
  void* security_attributes;
  unsigned char compression, rdma;
  unsigned short usage;
};
static_assert(sizeof(HipMemAllocationProp) == 32);

// hipMemPoolProps.
struct HipMemPoolProps {
  int allocation_type, handle_types, location_type, location_id;
  void* security_attributes;
  unsigned char reserved[64];
};
static_assert(sizeof(HipMemPoolProps) == 88);

// hipMemAccessDesc.
struct HipMemAccess {
  int location_type, location_id, flags;
};

// hipMemAllocNodeParams.
struct HipMemAllocNodeParams {
  HipMemPoolProps pool;
  const HipMemAccess* access;
  size_t access_count, bytes;
  void* address;  // set
};
static_assert(sizeof(HipMemAllocNodeParams) == 120);

// hipDeviceProp_tR0600.
struct HipDeviceProp {
  char name[256];
  HipUuid uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
  int maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2], maxTexture2DMipmap[2];
  int maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap;
  int maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2];
  int maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3];
  int maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount;
  int unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  int singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess;
  int computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
  int cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseHipArraySupported, hostRegisterReadOnlySupported;
  int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingHipArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
  int reserved[63], hipReserved[32];
  char gcnArchName[256];
  size_t maxSharedMemoryPerMultiProcessor;
  int clockInstructionRate;
  uint32_t arch;  // hipDeviceArch_t: a bit a feature
  unsigned *hdpMemFlushCntl, *hdpRegFlushCntl;
  int cooperativeMultiDeviceUnmatchedFunc, cooperativeMultiDeviceUnmatchedGridDim;
  int cooperativeMultiDeviceUnmatchedBlockDim, cooperativeMultiDeviceUnmatchedSharedMem;
  int isLargeBar, asicRevision;
};
static_assert(sizeof(HipDeviceProp) == 1472);

// hipDeviceProp_t up to HIP 5, which hipGetDeviceProperties without a version fills.
struct HipDevicePropR0000 {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int clockRate, memoryClockRate, memoryBusWidth;
  size_t totalConstMem;
  int major, minor, multiProcessorCount, l2CacheSize, maxThreadsPerMultiProcessor, computeMode;
  int clockInstructionRate;
  uint32_t arch;
  int concurrentKernels, pciDomainID, pciBusID, pciDeviceID;
  size_t maxSharedMemoryPerMultiProcessor;
  int isMultiGpuBoard, canMapHostMemory, gcnArch;
  char gcnArchName[256];
  int integrated, cooperativeLaunch, cooperativeMultiDeviceLaunch, maxTexture1DLinear, maxTexture1D;
  int maxTexture2D[2], maxTexture3D[3];
  unsigned *hdpMemFlushCntl, *hdpRegFlushCntl;
  size_t memPitch, textureAlignment, texturePitchAlignment;
  int kernelExecTimeoutEnabled, ECCEnabled, tccDriver;
  int cooperativeMultiDeviceUnmatchedFunc, cooperativeMultiDeviceUnmatchedGridDim;
  int cooperativeMultiDeviceUnmatchedBlockDim, cooperativeMultiDeviceUnmatchedSharedMem;
  int isLargeBar, asicRevision, managedMemory, directManagedMemAccessFromHost, concurrentManagedAccess;
  int pageableMemoryAccess, pageableMemoryAccessUsesHostPageTables;
};
static_assert(sizeof(HipDevicePropR0000) == 792);

}  // namespace fmha::emu
