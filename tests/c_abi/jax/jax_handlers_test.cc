// SPDX-License-Identifier: MIT OR Apache-2.0
// XLA's custom call without XLA: frames as it would make them, for both platforms, on the software device.
// That of ROCm is what no JAX without a GPU runs: device memory, a stream, capture into a graph.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fmha_rocm.h"
#include "fmha_rocm_jax.h"
#include "host_memory.h"
#include "on_device.h"
#include "params.h"
#include "reference.h"
#include "xla_frame.h"

namespace {

using fmha::jax::merged;
using fmha::jax::Range;

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

// The custom call of the forward pass: arguments q, k, v, and a result o.
class Frame : public xla_frame::Frame {
 public:
  Frame(const fmha_fwd_params& params, const std::vector<void*>& data)
      : xla_frame::Frame({{data[0], kElements[0]},
                          {data[1], kElements[1]},
                          {data[2], kElements[2]},
                          {data[3], kElements[3]}},
                         3) {
    set_params(params);
  }
};

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

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

TEST_CASE("ranges are merged") {
  CHECK(merged({}).empty());
  CHECK((merged({{5, 5}})).empty());
  CHECK((merged({{10, 20}, {0, 5}}) == std::vector<Range>{{0, 5}, {10, 20}}));
  CHECK((merged({{0, 10}, {10, 20}}) == std::vector<Range>{{0, 10}, {10, 20}}));  // they only touch
  CHECK((merged({{0, 10}, {9, 20}, {0, 10}}) == std::vector<Range>{{0, 20}}));
  CHECK((merged({{0, 30}, {5, 10}, {29, 31}, {40, 41}}) == std::vector<Range>{{0, 31}, {40, 41}}));
}

TEST_CASE_FIXTURE(xla_frame::Session, "metadata has the version of the caller") {
  const XLA_FFI_Api known = xla_frame::api();
  for (const XLA_FFI_Api* caller : {&known, static_cast<const XLA_FFI_Api*>(nullptr)}) {
    XLA_FFI_Metadata metadata{};
    metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
    XLA_FFI_Metadata_Extension extension{{sizeof extension, XLA_FFI_Extension_Metadata, nullptr}, &metadata};
    XLA_FFI_CallFrame frame{};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.extension_start = &extension.extension_base;
    frame.api = caller;
    CHECK(fmha_jax_fwd_rocm(&frame) == nullptr);
    CHECK(metadata.api_version.major_version == 0);
    CHECK(metadata.api_version.minor_version == 1);
    CHECK(metadata.traits == XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
    CHECK(fmha_jax_fwd_prepare_rocm(&frame) == nullptr);
    CHECK(fmha_jax_fwd_cpu(&frame) == nullptr);
    CHECK(metadata.traits == 0);
  }
}

TEST_CASE_FIXTURE(xla_frame::Session, "the CPU lends its memory") {
  Data data(1);
  Frame frame(numbered(), data.pointers());
  xla_frame::g_refuses_once = true;
  CHECK(frame.call(fmha_jax_fwd_cpu) == "9: not yet");  // and is asked again
  CHECK(frame.call(fmha_jax_fwd_cpu) == "");
  CHECK(data.right());
  // Nothing stays registered: the same memory again, and now k is v.
  data.host[2] = data.host[1];
  std::vector<void*> pointers = data.pointers();
  pointers[2] = pointers[1];
  Frame shared(numbered(), pointers);
  CHECK(shared.call(fmha_jax_fwd_cpu) == "");
  CHECK(data.right());
}

TEST_CASE_FIXTURE(xla_frame::Session, "repeats step through buffers") {
  Data data(7);
  fmha_fwd_params params = numbered();
  params.batch = 1;
  Frame frame(params, data.pointers());
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
TEST_CASE_FIXTURE(xla_frame::Session, "what does not fit is refused") {
  Data data(3);
  const std::vector<void*> pointers = data.pointers();
  const auto refused = [&](auto&& change, const char* start, const char* part) {
    Frame frame(numbered(), pointers);
    change(frame);
    for (XLA_FFI_Handler* handler : {fmha_jax_fwd_cpu, fmha_jax_fwd_rocm, fmha_jax_fwd_prepare_rocm}) {
      const std::string got = frame.call(handler);
      CHECK(got.substr(0, std::strlen(start)) == start);
      CHECK(got.c_str() == doctest::Contains(part));
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
  CHECK(starts_with(Frame(no_such_kernel, pointers).call(fmha_jax_fwd_cpu), "12: kernel = 99"));
  Frame longer(numbered(), pointers);
  longer.append_word(0);
  CHECK(longer.call(fmha_jax_fwd_cpu) == "");
  CHECK(data.right());
}

// XLA initializes before it captures, and replays the graph on whatever the memory holds by then.
TEST_CASE_FIXTURE(xla_frame::Session, "ROCm can be captured") {
  Data data(11);
  const OnDevice device(data.host);
  Frame frame(numbered(), device.memory);
  frame.context.stream = stream;
  CHECK(frame.call(fmha_jax_fwd_prepare_rocm) == "");
  const xla_frame::Graph graph(stream, [&] { CHECK(frame.call(fmha_jax_fwd_rocm) == ""); });
  CHECK(graph.launch());
  CHECK(hip().stream_synchronize(stream) == 0);
  device.take(data.host, {3});
  CHECK(data.right());
}

TEST_CASE_FIXTURE(xla_frame::Session, "ROCm runs on the stream of XLA") {
  Data data(13);
  const OnDevice device(data.host);
  Frame frame(numbered(), device.memory);
  frame.context.stream = stream;
  CHECK(frame.call(fmha_jax_fwd_rocm) == "");
  CHECK(hip().stream_synchronize(stream) == 0);
  device.take(data.host, {3});
  CHECK(data.right());
  frame.frame.ctx = nullptr;
  CHECK(frame.call(fmha_jax_fwd_rocm) == "13: XLA_FFI_Stream_Get: no stream here");
  Frame host(numbered(), data.pointers());
  CHECK(starts_with(host.call(fmha_jax_fwd_rocm), "3: q.data = "));
}

// One head with so many keys that workgroups share them in a workspace, the fifth buffer. Its first bytes are
// not aligned, as XLA's may be.
class LongFrame {
 public:
  static constexpr int64_t kLongRows = 128, kLongKeys = 4096, kLongHdim = 128, kSkew = 64;

  explicit LongFrame(int64_t missing_bytes) {
    for (size_t i = 0; i < 4; ++i) {
      host_[i].resize(static_cast<size_t>((i % 3 ? kLongKeys : kLongRows) * kLongHdim));
      if (i < 3) {
        reference_fill(FMHA_BF16, 17 + static_cast<uint32_t>(i), host_[i].data(), host_[i].size());
      }
    }
    fmha_fwd_params asked = params();
    for (fmha_tensor* x : {&asked.q, &asked.k, &asked.v, &asked.o}) x->data = nullptr;
    CHECK(fmha_fwd_workspace_bytes(&asked, &wanted_) == FMHA_OK);
    host_[4].resize(static_cast<size_t>(wanted_ + 512) / sizeof(uint16_t));
    const int64_t elements = (wanted_ + 256 - missing_bytes) / static_cast<int64_t>(sizeof(uint16_t));
    device_ = std::make_unique<OnDevice<uint16_t, 5>>(host_);
    std::vector<xla_frame::Frame::Buffer> buffers;
    for (size_t i = 0; i < 4; ++i) {
      buffers.push_back({device_->memory[i], static_cast<int64_t>(host_[i].size())});
    }
    buffers.push_back({static_cast<char*>(device_->memory[4]) + kSkew, elements});
    frame = std::make_unique<xla_frame::Frame>(buffers, 3);
    fmha_fwd_params p = params();
    p.workspace = reinterpret_cast<void*>(uintptr_t{5});
    frame->set_params(p);
  }

  bool shares() const { return wanted_ > 0; }

  // O after a handler has run.
  std::vector<uint16_t> run(void* stream) {
    frame->context.stream = stream;
    CHECK(frame->call(fmha_jax_fwd_prepare_rocm) == "");
    const xla_frame::Graph graph(stream, [&] { CHECK(frame->call(fmha_jax_fwd_rocm) == ""); });
    CHECK(graph.launch());
    CHECK(hip().stream_synchronize(stream) == 0);
    device_->take(host_, {3, 4});
    const fmha_fwd_params p = params();
    CHECK(reference_compare(&p, host_[0].data(), host_[1].data(), host_[2].data(), host_[3].data(), nullptr)
              .worst_o <= 1);
    return host_[3];
  }
  bool workspace_is_written() const {
    return std::any_of(host_[4].begin(), host_[4].end(), [](uint16_t x) { return x != 0; });
  }

  std::unique_ptr<xla_frame::Frame> frame;

 private:
  static fmha_fwd_params params() {
    fmha_fwd_params p = test_params(FMHA_BF16, TEST_BSHD, 1, kLongRows, kLongKeys, 1, 1, kLongHdim);
    fmha_tensor* tensors[] = {&p.q, &p.k, &p.v, &p.o};
    for (uintptr_t i = 0; i < 4; ++i) tensors[i]->data = reinterpret_cast<void*>(i + 1);
    return p;
  }

  std::vector<uint16_t> host_[5];
  std::unique_ptr<OnDevice<uint16_t, 5>> device_;
  int64_t wanted_ = 0;
};

TEST_CASE_FIXTURE(xla_frame::Session, "keys are shared in a workspace") {
  LongFrame shared(0), small(256);
  if (!shared.shares()) return;  // no kernel of this arch does
  const std::vector<uint16_t> with = shared.run(stream), without = small.run(stream);
  CHECK(shared.workspace_is_written());
  CHECK(!small.workspace_is_written());  // too small for this device: it does without
  CHECK(with != without);                // sums of parts round otherwise
}

}  // namespace
