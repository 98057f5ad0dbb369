/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A HIP runtime that runs nothing. It says that the machine has one gfx942, or none if STUB_DEVICES is 0,
 * knows every pointer, and prints what it is given: each code object and each launch. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { kSuccess = 0, kInvalidValue = 1, kNoDevice = 100 };
enum { kAttributeMajor = 23, kAttributeMinor = 61, kAttributeComputeUnits = 63 };
enum { kPointerMemoryType = 2, kPointerDeviceOrdinal = 9, kDeviceMemory = 2 };
enum { kArchName = 1160 }; /* gcnArchName's place in hipDeviceProp_tR0600 */

/* FNV-1a, 64 bits */
static void print_hash(const unsigned char* data, size_t bytes) {
  uint64_t value = 0xcbf29ce484222325u;
  size_t i;
  for (i = 0; i < bytes; ++i) value = (value ^ data[i]) * 0x100000001b3u;
  printf("%u bytes %08x%08x\n", (unsigned)bytes, (unsigned)(value >> 32), (unsigned)value);
}

EXPORT int hipInit(unsigned flags) {
  const char* devices = getenv("STUB_DEVICES");
  (void)flags;
  return devices != NULL && strcmp(devices, "0") == 0 ? kNoDevice : kSuccess;
}

EXPORT int hipRuntimeGetVersion(int* version) {
  *version = 70200000;
  return kSuccess;
}

EXPORT int hipGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}

EXPORT int hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 0) return kInvalidValue;
  switch (attribute) {
    case kAttributeMajor:
      *value = 9;
      return kSuccess;
    case kAttributeMinor:
      *value = 4;
      return kSuccess;
    case kAttributeComputeUnits:
      *value = 304;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

EXPORT int hipGetDevicePropertiesR0600(void* properties, int device) {
  if (device != 0) return kInvalidValue;
  strcpy((char*)properties + kArchName, "gfx942:sramecc+:xnack-");
  return kSuccess;
}

EXPORT int hipPointerGetAttribute(void* value, int attribute, void* pointer) {
  if (pointer == NULL || (attribute != kPointerMemoryType && attribute != kPointerDeviceOrdinal))
    return kInvalidValue;
  *(int*)value = attribute == kPointerMemoryType ? kDeviceMemory : 0;
  return kSuccess;
}

EXPORT int hipStreamIsCapturing(void* stream, int* status) {
  (void)stream;
  *status = 0;
  return kSuccess;
}

/* An ELF file of 64 bits ends with its table of sections. */
EXPORT int hipModuleLoadData(void** module, const void* image) {
  const unsigned char* bytes = image;
  uint64_t sections;
  uint16_t size, count;
  if (memcmp(bytes, "\177ELF\2", 5) != 0) return kInvalidValue;
  memcpy(&sections, bytes + 40, sizeof sections);
  memcpy(&size, bytes + 58, sizeof size);
  memcpy(&count, bytes + 60, sizeof count);
  printf("code object: ");
  print_hash(bytes, (size_t)sections + (size_t)size * count);
  *module = malloc(1);
  return kSuccess;
}

EXPORT int hipModuleUnload(void* module) {
  free(module);
  return kSuccess;
}

/* A function is a copy of its name. */
EXPORT int hipModuleGetFunction(void** function, void* module, const char* name) {
  char* copy = malloc(strlen(name) + 1);
  if (copy == NULL || module == NULL) return kInvalidValue;
  *function = strcpy(copy, name);
  return kSuccess;
}

EXPORT int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned lds_bytes,
                                 void* stream, void** params, void** extra) {
  size_t i;
  if (params != NULL || stream != NULL || extra[0] != (void*)1 || extra[2] != (void*)2 ||
      extra[4] != (void*)3)
    return kInvalidValue;
  printf("launch %s: grid %u %u %u, block %u %u %u, LDS %u, arguments ", (const char*)function, grid_x,
         grid_y, grid_z, block_x, block_y, block_z, lds_bytes);
  for (i = 0; i < *(const size_t*)extra[3]; ++i) printf("%02x", ((const unsigned char*)extra[1])[i]);
  puts("");
  return kSuccess;
}

EXPORT int hipMemsetAsync(void* memory, int value, size_t bytes, void* stream) {
  (void)memory, (void)stream;
  printf("memset %u bytes to %d\n", (unsigned)bytes, value);
  return kSuccess;
}

EXPORT const char* hipGetErrorName(int error) {
  return error == kNoDevice ? "hipErrorNoDevice" : "hipErrorInvalidValue";
}

EXPORT const char* hipGetErrorString(int error) {
  return error == kNoDevice ? "no ROCm-capable device is detected" : "invalid argument";
}

EXPORT int hipGetLastError(void) { return kSuccess; }
