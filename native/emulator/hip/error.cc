// SPDX-License-Identifier: MIT OR Apache-2.0
// Error codes, names, and what went wrong last.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/per_thread.h"
#include "hip/state.h"

namespace fmha::emu {
namespace {

struct ErrorRow {
  int code;
  const char* name;
  const char* text;
};

// A number, which stands in base/errors.h, and its name.
#define FMHA_EMU_NAMED(error) error, #error
constexpr ErrorRow kErrors[] = {
    {FMHA_EMU_NAMED(hipSuccess), "no error"},
    {FMHA_EMU_NAMED(hipErrorInvalidValue), "invalid argument"},
    {FMHA_EMU_NAMED(hipErrorOutOfMemory), "out of memory"},
    {FMHA_EMU_NAMED(hipErrorNotInitialized), "initialization error"},
    {FMHA_EMU_NAMED(hipErrorDeinitialized), "driver shutting down"},
    {FMHA_EMU_NAMED(hipErrorProfilerDisabled), "profiler disabled while using external profiling tool"},
    {FMHA_EMU_NAMED(hipErrorProfilerNotInitialized), "profiler is not initialized"},
    {FMHA_EMU_NAMED(hipErrorProfilerAlreadyStarted), "profiler already started"},
    {FMHA_EMU_NAMED(hipErrorProfilerAlreadyStopped), "profiler already stopped"},
    {FMHA_EMU_NAMED(hipErrorInvalidConfiguration), "invalid configuration argument"},
    {FMHA_EMU_NAMED(hipErrorInvalidPitchValue), "invalid pitch argument"},
    {FMHA_EMU_NAMED(hipErrorInvalidSymbol), "invalid device symbol"},
    {FMHA_EMU_NAMED(hipErrorInvalidDevicePointer), "invalid device pointer"},
    {FMHA_EMU_NAMED(hipErrorInvalidMemcpyDirection), "invalid copy direction for memcpy"},
    {FMHA_EMU_NAMED(hipErrorInsufficientDriver), "driver version is insufficient for runtime version"},
    {FMHA_EMU_NAMED(hipErrorMissingConfiguration), "__global__ function call is not configured"},
    {FMHA_EMU_NAMED(hipErrorPriorLaunchFailure), "unspecified launch failure in prior launch"},
    {FMHA_EMU_NAMED(hipErrorInvalidDeviceFunction), "invalid device function"},
    {FMHA_EMU_NAMED(hipErrorNoDevice), "no ROCm-capable device is detected"},
    {FMHA_EMU_NAMED(hipErrorInvalidDevice), "invalid device ordinal"},
    {FMHA_EMU_NAMED(hipErrorInvalidImage), "device kernel image is invalid"},
    {FMHA_EMU_NAMED(hipErrorInvalidContext), "invalid device context"},
    {FMHA_EMU_NAMED(hipErrorContextAlreadyCurrent), "context is already current context"},
    {FMHA_EMU_NAMED(hipErrorMapFailed), "mapping of buffer object failed"},
    {FMHA_EMU_NAMED(hipErrorUnmapFailed), "unmapping of buffer object failed"},
    {FMHA_EMU_NAMED(hipErrorArrayIsMapped), "array is mapped"},
    {FMHA_EMU_NAMED(hipErrorAlreadyMapped), "resource already mapped"},
    {FMHA_EMU_NAMED(hipErrorNoBinaryForGpu), "no kernel image is available for execution on the device"},
    {FMHA_EMU_NAMED(hipErrorAlreadyAcquired), "resource already acquired"},
    {FMHA_EMU_NAMED(hipErrorNotMapped), "resource not mapped"},
    {FMHA_EMU_NAMED(hipErrorNotMappedAsArray), "resource not mapped as array"},
    {FMHA_EMU_NAMED(hipErrorNotMappedAsPointer), "resource not mapped as pointer"},
    {FMHA_EMU_NAMED(hipErrorECCNotCorrectable), "uncorrectable ECC error encountered"},
    {FMHA_EMU_NAMED(hipErrorUnsupportedLimit), "limit is not supported on this architecture"},
    {FMHA_EMU_NAMED(hipErrorContextAlreadyInUse),
     "exclusive-thread device already in use by a different thread"},
    {FMHA_EMU_NAMED(hipErrorPeerAccessUnsupported), "peer access is not supported between these two devices"},
    {FMHA_EMU_NAMED(hipErrorInvalidKernelFile), "invalid kernel file"},
    {FMHA_EMU_NAMED(hipErrorInvalidGraphicsContext), "invalid OpenGL or DirectX context"},
    {FMHA_EMU_NAMED(hipErrorInvalidSource), "device kernel image is invalid"},
    {FMHA_EMU_NAMED(hipErrorFileNotFound), "file not found"},
    {FMHA_EMU_NAMED(hipErrorSharedObjectSymbolNotFound), "shared object symbol not found"},
    {FMHA_EMU_NAMED(hipErrorSharedObjectInitFailed), "shared object initialization failed"},
    {FMHA_EMU_NAMED(hipErrorOperatingSystem), "OS call failed or operation not supported on this OS"},
    {FMHA_EMU_NAMED(hipErrorInvalidHandle), "invalid resource handle"},
    {FMHA_EMU_NAMED(hipErrorIllegalState), "the operation cannot be performed in the present state"},
    {FMHA_EMU_NAMED(hipErrorNotFound), "named symbol not found"},
    {FMHA_EMU_NAMED(hipErrorNotReady), "device not ready"},
    {FMHA_EMU_NAMED(hipErrorIllegalAddress), "an illegal memory access was encountered"},
    {FMHA_EMU_NAMED(hipErrorLaunchOutOfResources), "too many resources requested for launch"},
    {FMHA_EMU_NAMED(hipErrorLaunchTimeOut), "the launch timed out and was terminated"},
    {FMHA_EMU_NAMED(hipErrorPeerAccessAlreadyEnabled), "peer access is already enabled"},
    {FMHA_EMU_NAMED(hipErrorPeerAccessNotEnabled), "peer access has not been enabled"},
    {FMHA_EMU_NAMED(hipErrorSetOnActiveProcess), "cannot set while device is active in this process"},
    {FMHA_EMU_NAMED(hipErrorContextIsDestroyed), "context is destroyed"},
    {FMHA_EMU_NAMED(hipErrorAssert), "device-side assert triggered"},
    {FMHA_EMU_NAMED(hipErrorHostMemoryAlreadyRegistered),
     "part or all of the requested memory range is already mapped"},
    {FMHA_EMU_NAMED(hipErrorHostMemoryNotRegistered),
     "pointer does not correspond to a registered memory region"},
    {FMHA_EMU_NAMED(hipErrorIllegalInstruction), "an illegal instruction was encountered"},
    {FMHA_EMU_NAMED(hipErrorLaunchFailure), "unspecified launch failure"},
    {FMHA_EMU_NAMED(hipErrorCooperativeLaunchTooLarge), "too many blocks in cooperative launch"},
    {FMHA_EMU_NAMED(hipErrorNotSupported), "operation not supported"},
    {FMHA_EMU_NAMED(hipErrorStreamCaptureUnsupported), "operation not permitted when stream is capturing"},
    {FMHA_EMU_NAMED(hipErrorStreamCaptureInvalidated),
     "operation failed due to a previous error during capture"},
    {FMHA_EMU_NAMED(hipErrorStreamCaptureMerge),
     "operation would result in a merge of separate capture sequences"},
    {FMHA_EMU_NAMED(hipErrorStreamCaptureUnmatched), "capture was not ended in the same stream as it began"},
    {FMHA_EMU_NAMED(hipErrorStreamCaptureUnjoined), "capturing stream has unjoined work"},
    {FMHA_EMU_NAMED(hipErrorStreamCaptureIsolation),
     "dependency created on uncaptured work in another stream"},
    {FMHA_EMU_NAMED(hipErrorStreamCaptureImplicit),
     "operation would make the legacy stream depend on a capturing stream"},
    {FMHA_EMU_NAMED(hipErrorCapturedEvent),
     "operation not permitted on an event last recorded in a capturing stream"},
    {FMHA_EMU_NAMED(hipErrorStreamCaptureWrongThread),
     "attempt to terminate a thread-local capture sequence from another thread"},
    {FMHA_EMU_NAMED(hipErrorGraphExecUpdateFailure),
     "the graph update was not performed: it violates the constraints"},
    {FMHA_EMU_NAMED(hipErrorInvalidChannelDescriptor), "invalid channel descriptor"},
    {FMHA_EMU_NAMED(hipErrorInvalidTexture), "invalid texture"},
    {FMHA_EMU_NAMED(hipErrorInvalidResourceType), "invalid resource type"},
    {FMHA_EMU_NAMED(hipErrorInvalidResourceConfiguration), "invalid resource configuration"},
    {FMHA_EMU_NAMED(hipErrorStreamDetached), "the stream is detached"},
    {FMHA_EMU_NAMED(hipErrorUnknown), "unknown error"},
    {FMHA_EMU_NAMED(hipErrorRuntimeMemory), "runtime memory call returned error"},
    {FMHA_EMU_NAMED(hipErrorRuntimeOther), "runtime call other than memory returned error"},
};
#undef FMHA_EMU_NAMED

const ErrorRow* find_error(int code) {
  const auto* it =
      std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorRow& r) { return r.code == code; });
  return it == std::end(kErrors) ? nullptr : it;
}

FMHA_THREAD_NUMBER int last_error = 0;
FMHA_THREAD_NUMBER int told_of_fault = -1;  // the device whose fault last_error is

struct Text {
  char text[2048] = "";
};

// Null if the host has no memory for it.
char* last_text() {
  try {
    return per_thread<Text>().text;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

int fail(int error, const char* format, ...) {
  last_error = error;
  told_of_fault = -1;
  va_list args;
  va_start(args, format);
  if (char* text = last_text()) std::vsnprintf(text, sizeof(Text::text), format, args);
  va_end(args);
  return error;
}

void set_last_error(int error) { last_error = error; }

void set_told_of_fault(int index) { told_of_fault = index; }

const char* error_name(int error) {
  const ErrorRow* row = find_error(error);
  return row ? row->name : "hipErrorUnknown";
}

const char* error_text(int error) {
  const ErrorRow* row = find_error(error);
  return row ? row->text : "unknown error";
}

}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API const char* hipGetErrorName(int error) { return error_name(error); }
HIP_API const char* hipGetErrorString(int error) { return error_text(error); }

HIP_API int hipDrvGetErrorName(int error, const char** name) {
  return answered([&]() -> int {
    if (!name) return fail(hipErrorInvalidValue, "hipDrvGetErrorName: the name pointer is null");
    *name = error_name(error);
    return find_error(error) ? hipSuccess : hipErrorInvalidValue;
  });
}

HIP_API int hipDrvGetErrorString(int error, const char** text) {
  return answered([&]() -> int {
    if (!text) return fail(hipErrorInvalidValue, "hipDrvGetErrorString: the text pointer is null");
    *text = error_text(error);
    return find_error(error) ? hipSuccess : hipErrorInvalidValue;
  });
}

HIP_API int hipPeekAtLastError() {
  if (const int e = call_begins()) return e;
  return last_error;
}

HIP_API int hipGetLastError() {
  if (const int e = call_begins()) return e;
  const int error = last_error;
  last_error = hipSuccess;
  if (told_of_fault >= 0) device(told_of_fault).fault = hipSuccess;
  told_of_fault = -1;
  return error;
}

HIP_API int hipExtGetLastError() { return hipGetLastError(); }

// Text of the last call that failed on this thread; valid until the next one does.
HIP_API const char* fmha_emu_last_error() {
  const char* text = last_text();
  return text ? text : "";
}
