// SPDX-License-Identifier: MIT OR Apache-2.0
// Frames as XLA would make them, and what it does with handlers, for tests without XLA.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fmha_rocm.h"
#include "fmha_rocm_jax.h"
#include "on_device.h"

// XLA declares these types; the tests define them.
struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
};
struct XLA_FFI_ExecutionContext {
  void* stream;
};

namespace xla_frame {

inline int g_errors;  // alive

inline XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  ++g_errors;
  return new XLA_FFI_Error{args->errc, args->message};
}
inline void error_message(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->message.c_str();
}
inline void destroy_error(XLA_FFI_Error_Destroy_Args* args) {
  --g_errors;
  delete args->error;
}
inline XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) {
  if (args->ctx == nullptr) {
    ++g_errors;
    return new XLA_FFI_Error{XLA_FFI_Error_Code_UNKNOWN, "no stream here"};
  }
  args->stream = args->ctx->stream;
  return nullptr;
}

inline XLA_FFI_Api api() {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, 0, 1};
  api.XLA_FFI_Error_Create = create_error;
  api.XLA_FFI_Error_GetMessage = error_message;
  api.XLA_FFI_Error_Destroy = destroy_error;
  api.XLA_FFI_Stream_Get = get_stream;
  return api;
}

// A frame and all it points to: arguments, results, and the attributes. Each is a buffer of one dimension.
class Frame {
 public:
  struct Buffer {
    void* data;
    int64_t elements;
    XLA_FFI_DataType dtype = XLA_FFI_DataType_BF16;
  };

  // The first `arguments` of the buffers are arguments, the others results.
  Frame(const std::vector<Buffer>& data, size_t arguments) : dims_(data.size()), buffers_(data.size()) {
    for (size_t i = 0; i < data.size(); ++i) {
      dims_[i] = data[i].elements;
      buffers_[i] = {XLA_FFI_Buffer_STRUCT_SIZE, nullptr, data[i].dtype, data[i].data, 1, &dims_[i]};
      pointers_.push_back(&buffers_[i]);
    }
    types_.assign(arguments, XLA_FFI_ArgType_BUFFER);
    ret_types_.assign(data.size() - arguments, XLA_FFI_RetType_BUFFER);
    set_repeats({1}, std::vector<int64_t>(data.size()));
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = &api_;
    frame.ctx = &context;
    const auto results = static_cast<int64_t>(ret_types_.size());
    frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(arguments), types_.data(),
                  pointers_.data()};
    frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, results, ret_types_.data(),
                  pointers_.data() + arguments};
    frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, kAttributes, attr_types_, names_, attrs_};
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // In the attribute of their kind.
  void set_params(const fmha_fwd_params& params) { set_words(0, params); }
  void set_params(const fmha_bwd_params& params) { set_words(3, params); }
  void set_params(const fmha_cache& params) { set_words(4, params); }
  void set_params(const fmha_decode_params& params) { set_words(5, params); }
  void set_params(const fmha_kv_append_params& params) { set_words(6, params); }
  void append_word(int64_t word, int attribute = 0) {
    words_[attribute].push_back(word);
    set_array(attribute);
  }
  void set_repeats(std::vector<int64_t> counts, std::vector<int64_t> steps) {
    words_[1] = std::move(counts), words_[2] = std::move(steps);
    set_array(1);
    set_array(2);
  }
  void rename_attribute(int i, const char* name) { spans_[i] = {name, std::strlen(name)}; }

  // Calls a handler. "" is success; else the code and the message.
  std::string call(XLA_FFI_Handler* handler) {
    XLA_FFI_Error* error = handler(&frame);
    if (error == nullptr) return "";
    std::string text = std::to_string(error->code) + ": " + error->message;
    XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
    destroy_error(&destroy);
    return text;
  }

  XLA_FFI_CallFrame frame{};
  XLA_FFI_ExecutionContext context{};

 private:
  template <typename Params>
  void set_words(int attribute, const Params& params) {
    words_[attribute].assign(sizeof params / 8, 0);
    std::memcpy(words_[attribute].data(), &params, sizeof params);
    set_array(attribute);
  }
  void set_array(int i) { arrays_[i] = {XLA_FFI_DataType_S64, words_[i].size(), words_[i].data()}; }

  XLA_FFI_Api api_ = api();
  std::vector<int64_t> dims_;
  std::vector<XLA_FFI_Buffer> buffers_;
  std::vector<void*> pointers_;
  std::vector<XLA_FFI_ArgType> types_;
  std::vector<XLA_FFI_RetType> ret_types_;
  static constexpr int kAttributes = 7;
  std::vector<int64_t> words_[kAttributes];
  XLA_FFI_Array arrays_[kAttributes] = {};
  void* attrs_[kAttributes] = {&arrays_[0], &arrays_[1], &arrays_[2], &arrays_[3],
                               &arrays_[4], &arrays_[5], &arrays_[6]};
  XLA_FFI_AttrType attr_types_[kAttributes] = {
      XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY,
      XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY};
  XLA_FFI_ByteSpan spans_[kAttributes] = {{"params", 6},        {"repeat_counts", 13}, {"repeat_steps", 12},
                                          {"bwd_params", 10},   {"cache", 5},          {"decode_params", 13},
                                          {"append_params", 13}};
  XLA_FFI_ByteSpan* names_[kAttributes] = {&spans_[0], &spans_[1], &spans_[2], &spans_[3],
                                           &spans_[4], &spans_[5], &spans_[6]};
};

inline bool g_refuses_once;

inline int find_device(fmha_jax_device* device, char* message, size_t bytes) {
  if (std::exchange(g_refuses_once, false)) {
    std::snprintf(message, bytes, "not yet");
    return 1;
  }
  void* library = dlopen(fmha_hip_runtime_path(), RTLD_NOW);
  return !(hip_bind(library, "hipHostRegister", &device->host_register) &&
           hip_bind(library, "hipHostUnregister", &device->host_unregister) &&
           hip_bind(library, "hipStreamSynchronize", &device->stream_synchronize) &&
           hip_bind(library, "hipGetLastError", &device->get_last_error) &&
           hip_bind(library, "hipGetErrorName", &device->get_error_name));
}

inline void connect() {
  const fmha_jax_library library{fmha_fwd,
                                 fmha_fwd_prepare,
                                 fmha_fwd_extents,
                                 fmha_fwd_workspace_bytes,
                                 fmha_bwd,
                                 fmha_bwd_prepare,
                                 fmha_bwd_extents,
                                 fmha_decode,
                                 fmha_decode_prepare,
                                 fmha_decode_extents,
                                 fmha_kv_append,
                                 fmha_kv_append_prepare,
                                 fmha_kv_append_extents,
                                 fmha_merge,
                                 fmha_merge_prepare,
                                 fmha_merge_extents,
                                 fmha_last_error,
                                 find_device};
  fmha_jax_connect(&library);
}

// Connects a test case to the library, lends it a stream, and checks that no error is left.
class Session {
 public:
  Session() {
    connect();
    CHECK(hip().stream_create(&stream) == 0);
  }
  ~Session() {
    CHECK(hip().stream_destroy(stream) == 0);
    CHECK(g_errors == 0);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void* stream = nullptr;
};

// Replays of what is captured on a stream.
class Graph {
 public:
  template <typename Body>
  Graph(void* stream, Body body) : stream_(stream), library_(dlopen(fmha_hip_runtime_path(), RTLD_NOW)) {
    int (*begin)(void*, int) = nullptr, (*end)(void*, void**) = nullptr;
    int (*instantiate)(void**, void*, void*, void*, size_t) = nullptr;
    CHECK(hip_bind(library_, "hipStreamBeginCapture", &begin));
    CHECK(hip_bind(library_, "hipStreamEndCapture", &end));
    CHECK(hip_bind(library_, "hipGraphInstantiate", &instantiate));
    CHECK(begin(stream, 0) == 0);
    body();
    CHECK(end(stream, &graph_) == 0);
    CHECK(instantiate(&exec_, graph_, nullptr, nullptr, 0) == 0);
  }
  ~Graph() {
    int (*destroy)(void*) = nullptr, (*destroy_exec)(void*) = nullptr;
    CHECK(hip_bind(library_, "hipGraphDestroy", &destroy));
    CHECK(hip_bind(library_, "hipGraphExecDestroy", &destroy_exec));
    CHECK(destroy_exec(exec_) == 0);
    CHECK(destroy(graph_) == 0);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  bool launch() const {
    int (*launch)(void*, void*) = nullptr;
    return hip_bind(library_, "hipGraphLaunch", &launch) && launch(exec_, stream_) == 0;
  }

 private:
  void *stream_, *library_, *graph_ = nullptr, *exec_ = nullptr;
};

}  // namespace xla_frame
