// SPDX-License-Identifier: MIT OR Apache-2.0
// XLA's custom call without XLA: frames as it would make them, for both platforms, on the software device.
// That of ROCm is what no JAX without a GPU runs: device memory, a stream, capture into a graph.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "fmha_rocm.h"
#include "fmha_rocm_jax.h"
#include "hip_calls.h"
#include "host_memory.h"
#include "params.h"
#include "reference.h"

// What XLA keeps behind these names.
struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
};
struct XLA_FFI_ExecutionContext {
  void* stream;
};

namespace {

using fmha::jax::merged;
using fmha::jax::Range;

hip_calls hip;
int g_errors;  // alive

XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  ++g_errors;
  return new XLA_FFI_Error{args->errc, args->message};
}
void error_message(XLA_FFI_Error_GetMessage_Args* args) { args->message = args->error->message.c_str(); }
void destroy_error(XLA_FFI_Error_Destroy_Args* args) {
  --g_errors;
  delete args->error;
}
XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) {
  if (args->ctx == nullptr) {
    ++g_errors;
    return new XLA_FFI_Error{XLA_FFI_Error_Code_UNKNOWN, "no stream here"};
  }
  args->stream = args->ctx->stream;
  return nullptr;
}

XLA_FFI_Api api() {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, 0, 1};
  api.XLA_FFI_Error_Create = create_error;
  api.XLA_FFI_Error_GetMessage = error_message;
  api.XLA_FFI_Error_Destroy = destroy_error;
  api.XLA_FFI_Stream_Get = get_stream;
  return api;
}

// A frame and all it points to: arguments q, k, v, a result o, and the attributes.
class Frame {
 public:
  Frame(const fmha_fwd_params& params, const std::vector<void*>& data, const std::vector<int64_t>& elements) {
    set_params(params);
    for (size_t i = 0; i < data.size(); ++i) {
      dims_[i] = elements[i];
      buffers_[i] = {XLA_FFI_Buffer_STRUCT_SIZE, nullptr, XLA_FFI_DataType_BF16, data[i], 1, &dims_[i]};
      pointers_[i] = &buffers_[i];
    }
    set_repeats({1}, {0, 0, 0, 0});
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = &api_;
    frame.ctx = &context;
    frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, 3, types_, pointers_};
    frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, 1, ret_types_, pointers_ + 3};
    frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, 3, attr_types_, names_, attrs_};
  }

  void set_params(const fmha_fwd_params& params) {
    words_.assign(sizeof params / 8, 0);
    std::memcpy(words_.data(), &params, sizeof params);
    arrays_[0] = {XLA_FFI_DataType_S64, words_.size(), words_.data()};
  }
  void append_word(int64_t word) {
    words_.push_back(word);
    arrays_[0] = {XLA_FFI_DataType_S64, words_.size(), words_.data()};
  }
  void set_repeats(std::vector<int64_t> counts, std::vector<int64_t> steps) {
    counts_ = std::move(counts), steps_ = std::move(steps);
    arrays_[1] = {XLA_FFI_DataType_S64, counts_.size(), counts_.data()};
    arrays_[2] = {XLA_FFI_DataType_S64, steps_.size(), steps_.data()};
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
  XLA_FFI_Api api_ = api();
  int64_t dims_[4] = {};
  XLA_FFI_Buffer buffers_[4] = {};
  void* pointers_[4] = {};
  XLA_FFI_ArgType types_[3] = {XLA_FFI_ArgType_BUFFER, XLA_FFI_ArgType_BUFFER, XLA_FFI_ArgType_BUFFER};
  XLA_FFI_RetType ret_types_[1] = {XLA_FFI_RetType_BUFFER};
  std::vector<int64_t> words_, counts_, steps_;
  XLA_FFI_Array arrays_[3] = {};
  void* attrs_[3] = {&arrays_[0], &arrays_[1], &arrays_[2]};
  XLA_FFI_AttrType attr_types_[3] = {XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_ARRAY};
  XLA_FFI_ByteSpan spans_[3] = {{"params", 6}, {"repeat_counts", 13}, {"repeat_steps", 12}};
  XLA_FFI_ByteSpan* names_[3] = {&spans_[0], &spans_[1], &spans_[2]};
};

constexpr int64_t kBatch = 2, kRows = 40, kKeys = 70, kHeads = 2, kHdim = 64;
constexpr int64_t kElements[] = {kBatch * kRows * kHeads * kHdim, kBatch* kKeys* kHeads* kHdim,
                                 kBatch* kKeys* kHeads* kHdim, kBatch* kRows* kHeads* kHdim};

// Parameters with the numbers of the buffers in place of addresses.
fmha_fwd_params numbered() {
  fmha_fwd_params p = test_params(FMHA_BF16, TEST_BSHD, kBatch, kRows, kKeys, kHeads, kHeads, kHdim);
  fmha_tensor* tensors[] = {&p.q, &p.k, &p.v, &p.o};
  for (uintptr_t i = 0; i < 4; ++i) tensors[i]->data = reinterpret_cast<void*>(i + 1);
  return p;
}

struct Data {
  explicit Data(uint32_t seed) {
    for (size_t i = 0; i < 4; ++i) {
      host[i].resize(static_cast<size_t>(kElements[i]));
      if (i < 3) reference_fill(FMHA_BF16, seed + static_cast<uint32_t>(i), host[i].data(), host[i].size());
    }
  }
  bool right() const {
    const fmha_fwd_params p = numbered();
    return reference_compare(&p, host[0].data(), host[1].data(), host[2].data(), host[3].data(), nullptr)
               .worst_o <= 1;
  }
  std::vector<void*> pointers() { return {host[0].data(), host[1].data(), host[2].data(), host[3].data()}; }
  std::vector<uint16_t> host[4];
};
const std::vector<int64_t> kSizes(kElements, kElements + 4);

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

int find_device(fmha_jax_device* device, char* message, size_t bytes) {
  static int asked = 0;
  if (++asked == 1) {
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

void ranges_are_merged() {
  CHECK(merged({}).empty());
  CHECK((merged({{5, 5}})).empty());
  CHECK((merged({{10, 20}, {0, 5}}) == std::vector<Range>{{0, 5}, {10, 20}}));
  CHECK((merged({{0, 10}, {10, 20}}) == std::vector<Range>{{0, 10}, {10, 20}}));  // they only touch
  CHECK((merged({{0, 10}, {9, 20}, {0, 10}}) == std::vector<Range>{{0, 20}}));
  CHECK((merged({{0, 30}, {5, 10}, {29, 31}, {40, 41}}) == std::vector<Range>{{0, 31}, {40, 41}}));
}

void metadata_has_the_version_of_the_caller() {
  const XLA_FFI_Api known = api();
  for (const XLA_FFI_Api* caller : {&known, static_cast<const XLA_FFI_Api*>(nullptr)}) {
    XLA_FFI_Metadata metadata{};
    metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
    XLA_FFI_Metadata_Extension extension{{sizeof extension, XLA_FFI_Extension_Metadata, nullptr}, &metadata};
    XLA_FFI_CallFrame frame{};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.extension_start = &extension.extension_base;
    frame.api = caller;
    CHECK(fmha_jax_fwd_rocm(&frame) == nullptr);
    CHECK(metadata.api_version.major_version == 0 && metadata.api_version.minor_version == 1);
    CHECK(metadata.traits == XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
    CHECK(fmha_jax_fwd_prepare_rocm(&frame) == nullptr);
    CHECK(fmha_jax_fwd_cpu(&frame) == nullptr);
    CHECK(metadata.traits == 0);
  }
}

void cpu_lends_its_memory() {
  Data data(1);
  Frame frame(numbered(), data.pointers(), kSizes);
  CHECK(frame.call(fmha_jax_fwd_cpu) == "9: not yet");  // and is asked again
  CHECK(frame.call(fmha_jax_fwd_cpu) == "");
  CHECK(data.right());
  // Nothing stays registered: the same memory again, and now k is v.
  data.host[2] = data.host[1];
  std::vector<void*> pointers = data.pointers();
  pointers[2] = pointers[1];
  Frame shared(numbered(), pointers, kSizes);
  CHECK(shared.call(fmha_jax_fwd_cpu) == "");
  CHECK(data.right());
}

void repeats_step_through_buffers() {
  Data data(7);
  fmha_fwd_params params = numbered();
  params.batch = 1;
  Frame frame(params, data.pointers(), kSizes);
  const int64_t rows = 2 * kRows * kHeads * kHdim, keys = 2 * kKeys * kHeads * kHdim;
  frame.set_repeats({kBatch, 1}, {rows, keys, keys, rows, 0, 0, 0, 0});
  CHECK(frame.call(fmha_jax_fwd_cpu) == "");
  CHECK(data.right());
  frame.set_repeats({0}, {rows, keys, keys, rows});
  for (XLA_FFI_Handler* handler : {fmha_jax_fwd_cpu, fmha_jax_fwd_rocm, fmha_jax_fwd_prepare_rocm}) {
    CHECK(frame.call(handler) == "");
  }
}

// Both platforms read attributes alike; here none may reach the device.
void what_does_not_fit_is_refused() {
  Data data(3);
  const std::vector<void*> pointers = data.pointers();
  const auto refused = [&](auto&& change, const char* start, const char* part) {
    Frame frame(numbered(), pointers, kSizes);
    change(frame);
    for (XLA_FFI_Handler* handler : {fmha_jax_fwd_cpu, fmha_jax_fwd_rocm, fmha_jax_fwd_prepare_rocm}) {
      const std::string got = frame.call(handler);
      const bool right = starts_with(got, start) && has(got, part);
      CHECK(right);
      if (!right) fprintf(stderr, "  got '%s', expected '%s' and '%s'\n", got.c_str(), start, part);
    }
  };
  const auto with = [](auto&& edit) {
    return [edit](Frame& frame) {
      fmha_fwd_params p = numbered();
      edit(p);
      frame.set_params(p);
    };
  };
  refused([](Frame& f) { f.rename_attribute(0, "param"); }, "3: attribute params", "array of int64");
  refused([](Frame& f) { f.append_word(1); }, "9: attribute params", "newer version");
  refused([](Frame& f) { f.set_repeats({1}, {0}); }, "3: attributes repeat_counts",
          "got 1 and 1 numbers for 4");
  refused([](Frame& f) { f.set_repeats({-1}, {0, 0, 0, 0}); }, "3: attributes repeat_counts", "negative");
  refused([](Frame& f) { f.set_repeats({3}, {0, 16, 0, 0}); }, "3: k.data: got a buffer of 35840 bytes",
          "35872");
  refused([](Frame& f) { f.set_repeats({3}, {INT64_MAX, 0, 0, 0}); }, "3: q.data", "");
  refused(with([](auto& p) { p.seqlen_k += 1; }), "3: k.data: got a buffer of 35840 bytes, expected 36096",
          "");
  refused(with([](auto& p) { p.o.stride_batch += 8; }), "3: o.data: got a buffer", "");
  refused(with([](auto& p) { p.q.stride_head = -8; }), "3: q.stride_head = -8: expected 0 or more", "");
  refused(with([](auto& p) { p.q.stride_head = INT64_MAX; }), "3: q.data: got a buffer", "");
  refused(with([](auto& p) { p.dtype = 77; }), "3: dtype = 77: expected FMHA_FP16", "");
  refused(with([](auto& p) { p.v.data = reinterpret_cast<void*>(5); }),
          "3: attribute params: v.data is buffer 5", "");
  refused(with([](auto& p) { p.randval.data = reinterpret_cast<uint8_t*>(1); }), "3: attribute params",
          "randval");
  refused(with([](auto& p) { p.softcap = -1; }), "3: softcap", "");  // the library's own refusal
  fmha_fwd_params no_such_kernel = numbered();
  no_such_kernel.kernel = 99;
  CHECK(starts_with(Frame(no_such_kernel, pointers, kSizes).call(fmha_jax_fwd_cpu), "12: kernel = 99"));
  Frame longer(numbered(), pointers, kSizes);
  longer.append_word(0);
  CHECK(longer.call(fmha_jax_fwd_cpu) == "");
  CHECK(data.right());
}

class OnDevice {
 public:
  explicit OnDevice(const Data& data) {
    for (int i = 0; i < 4; ++i) {
      const size_t bytes = data.host[i].size() * 2;
      CHECK(hip.malloc_(&memory[static_cast<size_t>(i)], bytes) == 0);
      CHECK(hip.copy(memory[static_cast<size_t>(i)], data.host[i].data(), bytes, HIP_TO_DEVICE) == 0);
    }
  }
  ~OnDevice() {
    for (void* p : memory) CHECK(hip.free_(p) == 0);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  void take(Data& data) const {
    CHECK(hip.copy(data.host[3].data(), memory[3], data.host[3].size() * 2, HIP_TO_HOST) == 0);
  }
  std::vector<void*> memory = std::vector<void*>(4);
};

// XLA initializes before it captures, and replays the graph on whatever the memory holds by then.
void rocm_can_be_captured(void* stream) {
  Data data(11);
  const OnDevice device(data);
  Frame frame(numbered(), device.memory, kSizes);
  frame.context.stream = stream;
  void *library = dlopen(fmha_hip_runtime_path(), RTLD_NOW), *graph = nullptr, *exec = nullptr;
  int (*begin)(void*, int), (*end)(void*, void**), (*instantiate)(void**, void*, void*, void*, size_t);
  int (*launch)(void*, void*), (*destroy)(void*), (*destroy_exec)(void*);
  CHECK(hip_bind(library, "hipStreamBeginCapture", &begin) &&
        hip_bind(library, "hipStreamEndCapture", &end) &&
        hip_bind(library, "hipGraphInstantiate", &instantiate) &&
        hip_bind(library, "hipGraphLaunch", &launch) && hip_bind(library, "hipGraphDestroy", &destroy) &&
        hip_bind(library, "hipGraphExecDestroy", &destroy_exec));
  CHECK(frame.call(fmha_jax_fwd_prepare_rocm) == "");
  CHECK(begin(stream, 0) == 0);
  CHECK(frame.call(fmha_jax_fwd_rocm) == "");
  CHECK(end(stream, &graph) == 0);
  CHECK(instantiate(&exec, graph, nullptr, nullptr, 0) == 0);
  CHECK(launch(exec, stream) == 0 && hip.stream_synchronize(stream) == 0);
  device.take(data);
  CHECK(data.right());
  CHECK(destroy_exec(exec) == 0 && destroy(graph) == 0);
}

void rocm_runs_on_the_stream_of_xla(void* stream) {
  Data data(13);
  const OnDevice device(data);
  Frame frame(numbered(), device.memory, kSizes);
  frame.context.stream = stream;
  CHECK(frame.call(fmha_jax_fwd_rocm) == "");
  CHECK(hip.stream_synchronize(stream) == 0);
  device.take(data);
  CHECK(data.right());
  frame.frame.ctx = nullptr;
  CHECK(frame.call(fmha_jax_fwd_rocm) == "13: XLA_FFI_Stream_Get: no stream here");
  Frame host(numbered(), data.pointers(), kSizes);
  CHECK(starts_with(host.call(fmha_jax_fwd_rocm), "3: q.data = "));
}

}  // namespace

int main() {
  if (!hip_open(&hip)) return 1;
  const fmha_jax_library library{fmha_fwd,         fmha_fwd_prepare, fmha_fwd_extents, fmha_bwd,
                                 fmha_bwd_prepare, fmha_bwd_extents, fmha_last_error, find_device};
  fmha_jax_connect(&library);
  void* stream = nullptr;
  CHECK(hip.stream_create(&stream) == 0);
  ranges_are_merged();
  metadata_has_the_version_of_the_caller();
  rocm_can_be_captured(stream);
  rocm_runs_on_the_stream_of_xla(stream);
  cpu_lends_its_memory();
  repeats_step_through_buffers();
  what_does_not_fit_is_refused();
  CHECK(hip.stream_destroy(stream) == 0);
  CHECK(g_errors == 0);
  return check_result();
}
