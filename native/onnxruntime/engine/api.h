// SPDX-License-Identifier: MIT OR Apache-2.0
// ONNX Runtime's functions, and how errors go to it and come from it.
#pragma once

#include <onnxruntime_c_api.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace fmha::onnxruntime {

// Plug-in execution providers are complete from this version on; later ones keep it.
constexpr uint32_t kApiVersion = 23;
constexpr char kProvider[] = "FmhaRocmExecutionProvider";
constexpr uint32_t kVendorAmd = 0x1002;

// False if this ONNX Runtime is older than kApiVersion.
bool set_api(const OrtApiBase& base, const OrtLogger* logger);
const OrtApi& api();
const OrtEpApi& ep_api();
// The 32 of ONNX Runtime 1.32.
int minor_version();

// An error that goes to ONNX Runtime.
class Failure : public std::runtime_error {
 public:
  Failure(OrtErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  OrtErrorCode code() const { return code_; }

 private:
  OrtErrorCode code_;
};

[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(OrtErrorCode code, const char* format, ...);

// Throws what a function of ONNX Runtime has returned.
void check(OrtStatus* status);

// Writes to the log that ONNX Runtime registered the library with.
void log(OrtLoggingLevel level, const std::string& message) noexcept;

// The status of the exception that is being handled.
OrtStatus* status_of_exception() noexcept;

// Runs what may throw, for a function that ONNX Runtime calls.
template <typename Function>
OrtStatus* guarded(Function&& function) noexcept {
  try {
    std::forward<Function>(function)();
    return nullptr;
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace fmha::onnxruntime
