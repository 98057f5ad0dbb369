// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions that programs ask for by name and the software device does not support. Each returns an error.
#include "hip/state.h"

namespace fmha::emu {
namespace {

int unsupported(const char* function, const char* why) {
  return guarded([&] { return fail(hipErrorNotSupported, "%s: %s", function, why); });
}

constexpr const char kNoImages[] = "the software device has no images";
constexpr const char kNoSharing[] = "the software device shares no memory between processes";

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipCreateSurfaceObject(void**, const void*) {
  return unsupported("hipCreateSurfaceObject", kNoImages);
}
HIP_API int hipDestroySurfaceObject(void*) { return unsupported("hipDestroySurfaceObject", kNoImages); }

HIP_API int hipMemExportToShareableHandle(void*, void*, int, uint64_t) {
  return unsupported("hipMemExportToShareableHandle", kNoSharing);
}
HIP_API int hipMemImportFromShareableHandle(void**, void*, int) {
  return unsupported("hipMemImportFromShareableHandle", kNoSharing);
}
HIP_API int hipIpcGetMemHandle(HipIpcHandle*, void*) { return unsupported("hipIpcGetMemHandle", kNoSharing); }
HIP_API int hipIpcOpenMemHandle(void**, HipIpcHandle, unsigned) {
  return unsupported("hipIpcOpenMemHandle", kNoSharing);
}
HIP_API int hipIpcCloseMemHandle(void*) { return unsupported("hipIpcCloseMemHandle", kNoSharing); }
