// SPDX-License-Identifier: MIT OR Apache-2.0
#include "engine/api.h"

#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include "fmha_rocm.hpp"

namespace fmha::onnxruntime {
namespace {

const OrtApi* g_api;
const OrtEpApi* g_ep_api;
const OrtLogger* g_logger;
int g_minor_version;

OrtErrorCode code_of(fmha_status status) {
  switch (status) {
    case FMHA_INVALID_ARGUMENT:
      return ORT_INVALID_ARGUMENT;
    case FMHA_UNSUPPORTED:
      return ORT_NOT_IMPLEMENTED;
    default:
      return ORT_EP_FAIL;
  }
}

}  // namespace

bool set_api(const OrtApiBase& base, const OrtLogger* logger) {
  g_api = base.GetApi(kApiVersion);
  if (g_api == nullptr) return false;
  g_ep_api = g_api->GetEpApi();
  g_logger = logger;
  const std::string_view version = base.GetVersionString();
  const std::string_view minor = version.substr(version.find('.') + 1);
  std::from_chars(minor.data(), minor.data() + minor.size(), g_minor_version);
  return true;
}

const OrtApi& api() { return *g_api; }
const OrtEpApi& ep_api() { return *g_ep_api; }
int minor_version() { return g_minor_version; }

void fail(OrtErrorCode code, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Failure(code, text);
}

void check(OrtStatus* status) {
  if (status == nullptr) return;
  const OrtErrorCode code = g_api->GetErrorCode(status);
  const std::string message = g_api->GetErrorMessage(status);
  g_api->ReleaseStatus(status);
  throw Failure(code, message);
}

void log(OrtLoggingLevel level, const std::string& message) noexcept {
  if (g_logger == nullptr) return;
  OrtStatus* status =
      g_api->Logger_LogMessage(g_logger, level, message.c_str(), "native/onnxruntime", __LINE__, kProvider);
  if (status != nullptr) g_api->ReleaseStatus(status);
}

OrtStatus* status_of_exception() noexcept {
  try {
    throw;
  } catch (const Failure& failure) {
    return g_api->CreateStatus(failure.code(), failure.what());
  } catch (const fmha::error& error) {
    return g_api->CreateStatus(code_of(error.status()), error.what());
  } catch (const std::exception& error) {
    return g_api->CreateStatus(ORT_EP_FAIL, error.what());
  } catch (...) {
    return g_api->CreateStatus(ORT_EP_FAIL, "an unknown exception");
  }
}

}  // namespace fmha::onnxruntime
