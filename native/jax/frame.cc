// SPDX-License-Identifier: MIT OR Apache-2.0
#include "frame.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace fmha::jax {
namespace {

int64_t element_bytes(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_S8:
    case XLA_FFI_DataType_U8:
    case XLA_FFI_DataType_F8E4M3FN:
    case XLA_FFI_DataType_F8E4M3FNUZ:
      return 1;
    case XLA_FFI_DataType_F16:
    case XLA_FFI_DataType_BF16:
      return 2;
    case XLA_FFI_DataType_S32:
    case XLA_FFI_DataType_U32:
    case XLA_FFI_DataType_F32:
      return 4;
    case XLA_FFI_DataType_S64:
    case XLA_FFI_DataType_U64:
      return 8;
    default:
      raise(XLA_FFI_Error_Code_INVALID_ARGUMENT,
            "a buffer has XLA's element type %d, expected a type of the C ABI", static_cast<int>(type));
  }
}

// XLA made the buffer, so its size in bytes is a number.
Buffer buffer_of(const void* untyped) {
  const auto& buffer = *static_cast<const XLA_FFI_Buffer*>(untyped);
  int64_t bytes = element_bytes(buffer.dtype);
  for (int64_t i = 0; i < buffer.rank; ++i) bytes *= buffer.dims[i];
  return {static_cast<char*>(buffer.data), bytes};
}

// Takes the error over.
[[noreturn]] void raise_as(const XLA_FFI_CallFrame& frame, XLA_FFI_Error* error, const char* call) {
  XLA_FFI_Error_GetMessage_Args get{XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE, nullptr, error, nullptr};
  frame.api->XLA_FFI_Error_GetMessage(&get);
  const std::string message = get.message != nullptr ? get.message : "no message";
  XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
  frame.api->XLA_FFI_Error_Destroy(&destroy);
  raise(XLA_FFI_Error_Code_INTERNAL, "%s: %s", call, message.c_str());
}

}  // namespace

void raise(XLA_FFI_Error_Code code, const char* format, ...) {
  char message[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  throw Error{code, message};
}

std::vector<Buffer> buffers_of(const XLA_FFI_CallFrame& frame) {
  std::vector<Buffer> buffers;
  for (int64_t i = 0; i < frame.args.size; ++i) buffers.push_back(buffer_of(frame.args.args[i]));
  for (int64_t i = 0; i < frame.rets.size; ++i) buffers.push_back(buffer_of(frame.rets.rets[i]));
  return buffers;
}

std::span<const int64_t> attribute(const XLA_FFI_CallFrame& frame, const char* name) {
  const XLA_FFI_Attrs& attributes = frame.attrs;
  for (int64_t i = 0; i < attributes.size; ++i) {
    const XLA_FFI_ByteSpan& found = *attributes.names[i];
    if (found.len != std::strlen(name) || std::memcmp(found.ptr, name, found.len) != 0) continue;
    if (attributes.types[i] != XLA_FFI_AttrType_ARRAY) break;
    const auto& array = *static_cast<const XLA_FFI_Array*>(attributes.attrs[i]);
    if (array.dtype != XLA_FFI_DataType_S64) break;
    return {static_cast<const int64_t*>(array.data), array.size};
  }
  raise(XLA_FFI_Error_Code_INVALID_ARGUMENT,
        "attribute %s of the custom call: missing or of another type, expected an array of int64", name);
}

void* stream_of(const XLA_FFI_CallFrame& frame) {
  XLA_FFI_Stream_Get_Args get{XLA_FFI_Stream_Get_Args_STRUCT_SIZE, nullptr, frame.ctx, nullptr};
  if (XLA_FFI_Error* error = frame.api->XLA_FFI_Stream_Get(&get))
    raise_as(frame, error, "XLA_FFI_Stream_Get");
  return get.stream;
}

// The version is XLA's own as far as this file was compiled to know it: what is used here has not changed
// since 0.1, and a jaxlib takes only handlers of its version and some older ones. One too old to show its
// version is of 0.1.
bool answer_metadata(const XLA_FFI_CallFrame& frame, XLA_FFI_Handler_Traits traits) {
  if (frame.extension_start == nullptr || frame.extension_start->type != XLA_FFI_Extension_Metadata)
    return false;
  XLA_FFI_Metadata& metadata =
      *reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame.extension_start)->metadata;
  XLA_FFI_Api_Version& version = metadata.api_version;
  const int known = frame.api != nullptr ? frame.api->api_version.minor_version : 1;
  version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, std::min(XLA_FFI_API_MINOR, known)};
  metadata.traits = traits;
  return true;
}

XLA_FFI_Error* make_error(const XLA_FFI_CallFrame& frame, XLA_FFI_Error_Code code, const char* message) {
  XLA_FFI_Error_Create_Args create{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message, code};
  return frame.api->XLA_FFI_Error_Create(&create);
}

}  // namespace fmha::jax
