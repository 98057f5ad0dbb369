// SPDX-License-Identifier: MIT OR Apache-2.0
#include "error.h"

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>

namespace fmha {
namespace {

// Plain bytes, not a std::string: no destructor has to run when a thread or the process ends.
thread_local char t_message[kMessageBytes];

fmha_status keep(fmha_status status, const char* message) noexcept {
  std::snprintf(t_message, sizeof t_message, "%s", message);
  return status;
}

}  // namespace

void raise(fmha_status status, const char* format, ...) {
  char message[kMessageBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  throw Error(status, message);
}

bool Refusal::because(fmha_status status, const char* format, ...) {
  status_ = status;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message_, sizeof message_, format, arguments);
  va_end(arguments);
  return false;
}

void Refusal::raise(const char* more) const {
  char message[kMessageBytes];
  std::snprintf(message, sizeof message, "%s%s", message_, more);
  throw Error(status_, message);
}

fmha_status report_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep(error.status, error.message);
  } catch (const std::bad_alloc&) {
    return keep(FMHA_INTERNAL, "out of host memory");
  } catch (const std::exception& error) {
    return keep(FMHA_INTERNAL, error.what());
  } catch (...) {
    return keep(FMHA_INTERNAL, "an exception of unknown type");
  }
}

const char* last_error() noexcept { return t_message; }

}  // namespace fmha
