// SPDX-License-Identifier: MIT OR Apache-2.0
// XLA's custom call of the backward pass without XLA, on both platforms: it gives fmha_bwd's own bits, in
// memory that XLA allocates, its workspace too. Other tests judge fmha_bwd's results.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bwd_params.h"
#include "fmha_rocm.h"
#include "fmha_rocm_jax.h"
#include "on_device.h"
#include "params.h"
#include "reference.h"
#include "xla_frame.h"

namespace {

using xla_frame::Frame;

constexpr int64_t kBatch = 2, kRows = 40, kKeys = 70, kHeads = 2, kHdim = 64;
constexpr int64_t kQ = kBatch * kRows * kHeads * kHdim, kK = kBatch * kKeys * kHeads * kHdim;
// The least that XLA may align to.
constexpr int64_t kSkew = 64;

// The buffers of the call, in their order.
enum { kDout, kInQ, kInK, kInV, kO, kLse, kDq, kDk, kDv, kWorkspace, kCount };
constexpr size_t kArguments = kDq;

struct Params {
  fmha_fwd_params fwd;
  fmha_bwd_params bwd;
};

template <typename T>
T* number(int buffer) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(buffer) + 1);
}

// Parameters with the numbers of the buffers in place of addresses.
Params numbered() {
  Params p{};
  p.fwd = test_params(FMHA_FP16, TEST_BSHD, kBatch, kRows, kKeys, kHeads, kHeads, kHdim);
  p.fwd.mask = FMHA_MASK_CAUSAL;
  fmha_tensor* of_forward[] = {&p.fwd.q, &p.fwd.k, &p.fwd.v, &p.fwd.o};
  for (int i = 0; i < 4; ++i) of_forward[i]->data = number<void>(kInQ + i);
  p.fwd.lse = {number<float>(kLse), kHeads * kRows, kRows};
  p.bwd = test_bwd_params(&p.fwd);
  p.bwd.deterministic = 1;
  p.bwd.dout.data = number<void>(kDout);
  p.bwd.dq.data = number<void>(kDq);
  p.bwd.dk.data = number<void>(kDk);
  p.bwd.dv.data = number<void>(kDv);
  p.bwd.workspace = number<void>(kWorkspace);
  return p;
}

// Parameters for fmha_bwd itself.
Params placed(const std::vector<void*>& memory, int64_t workspace_bytes) {
  Params p = numbered();
  fmha_tensor* of_forward[] = {&p.fwd.q, &p.fwd.k, &p.fwd.v, &p.fwd.o};
  for (size_t i = 0; i < 4; ++i) of_forward[i]->data = memory[kInQ + i];
  p.fwd.lse.data = static_cast<float*>(memory[kLse]);
  p.bwd.dout.data = memory[kDout];
  p.bwd.dq.data = memory[kDq], p.bwd.dk.data = memory[kDk], p.bwd.dv.data = memory[kDv];
  p.bwd.workspace = memory[kWorkspace];
  p.bwd.workspace_bytes = workspace_bytes;
  return p;
}

int64_t workspace_bytes() {
  Params p = placed(std::vector<void*>(kCount), 0);
  int64_t bytes = 0;
  p.bwd.fwd = &p.fwd;
  CHECK(fmha_bwd_workspace_bytes(&p.bwd, &bytes) == FMHA_OK);
  CHECK(bytes > 0);
  return bytes;
}

struct Data {
  Data() : room(workspace_bytes() + 256) {
    const int64_t bytes[] = {kQ * 2, kQ * 2, kK * 2, kK * 2,      kQ * 2, kBatch * kHeads * kRows * 4,
                             kQ * 2, kK * 2, kK * 2, room + kSkew};
    for (size_t i = 0; i < kCount; ++i) host[i].resize(static_cast<size_t>(bytes[i]));
    for (uint32_t i = 0; i < kLse; ++i) fill(host[i], 5 + i);
    auto* lse = reinterpret_cast<float*>(host[kLse].data());
    for (int64_t i = 0; i < kBatch * kHeads * kRows; ++i) lse[i] = 4 + static_cast<float>(i % 7) / 8;
  }
  static void fill(std::vector<char>& bytes, uint32_t seed) {
    std::vector<uint16_t> numbers(bytes.size() / 2);
    reference_fill(FMHA_FP16, seed, numbers.data(), numbers.size());
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
  }
  // The buffers as XLA would tell of them, at these addresses.
  std::vector<Frame::Buffer> buffers(const std::vector<void*>& memory) const {
    std::vector<Frame::Buffer> found;
    for (size_t i = 0; i < kCount; ++i) {
      found.push_back({memory[i], static_cast<int64_t>(host[i].size()) / 2, XLA_FFI_DataType_F16});
    }
    found[kLse] = {memory[kLse], kBatch * kHeads * kRows, XLA_FFI_DataType_F32};
    found[kWorkspace] = {static_cast<char*>(memory[kWorkspace]) + kSkew, room, XLA_FFI_DataType_U8};
    return found;
  }
  std::vector<void*> pointers() {
    std::vector<void*> found;
    for (std::vector<char>& x : host) found.push_back(x.data());
    return found;
  }
  void forget() {
    for (int i = kDq; i <= kDv; ++i) std::memset(host[i].data(), 0x55, host[i].size());
  }

  const int64_t room;  // of the workspace
  std::vector<char> host[kCount];
};

struct Gradients {
  explicit Gradients(const Data& data) : dq(data.host[kDq]), dk(data.host[kDk]), dv(data.host[kDv]) {}
  bool operator==(const Gradients&) const = default;
  std::vector<char> dq, dk, dv;
};

// Returns fmha_bwd's gradients.
Gradients wanted() {
  Data data;
  const OnDevice device(data.host);
  Params p = placed(device.memory, data.room);
  p.bwd.fwd = &p.fwd;
  CHECK(fmha_bwd(&p.bwd, nullptr) == FMHA_OK);
  CHECK(hip().stream_synchronize(nullptr) == 0);
  device.take(data.host, {kDq, kDk, kDv});
  return Gradients(data);
}

struct Call : Frame {
  Call(const Data& data, const std::vector<void*>& memory, const Params& params = numbered())
      : Frame(data.buffers(memory), kArguments) {
    set_params(params.fwd);
    set_params(params.bwd);
  }
};

TEST_CASE_FIXTURE(xla_frame::Session, "metadata says what can be captured") {
  const XLA_FFI_Api known = xla_frame::api();
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{{sizeof extension, XLA_FFI_Extension_Metadata, nullptr}, &metadata};
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.extension_start = &extension.extension_base;
  frame.api = &known;
  CHECK(fmha_jax_bwd_cpu(&frame) == nullptr);
  CHECK(metadata.traits == 0);
  CHECK(fmha_jax_bwd_rocm(&frame) == nullptr);
  CHECK(metadata.traits == XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
  CHECK(fmha_jax_bwd_prepare_rocm(&frame) == nullptr);
  CHECK(metadata.traits == XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
}

TEST_CASE_FIXTURE(xla_frame::Session, "the CPU gives the same") {
  Data data;
  Call call(data, data.pointers());
  xla_frame::g_refuses_once = true;
  CHECK(call.call(fmha_jax_bwd_cpu) == "9: not yet");
  CHECK(call.call(fmha_jax_bwd_cpu) == "");
  CHECK(Gradients(data) == wanted());
}

// One batch at a time, with the same workspace for each.
TEST_CASE_FIXTURE(xla_frame::Session, "repeats share the workspace") {
  Data data;
  Params params = numbered();
  params.fwd.batch = 1;
  Call call(data, data.pointers(), params);
  const int64_t q = kQ / kBatch * 2, k = kK / kBatch * 2, lse = kHeads * kRows * 4;
  call.set_repeats({kBatch}, {q, q, k, k, q, lse, q, k, k, 0});
  CHECK(call.call(fmha_jax_bwd_cpu) == "");
  CHECK(Gradients(data) == wanted());
  data.forget();
  call.set_repeats({0}, {q, q, k, k, q, lse, q, k, k, 0});
  for (XLA_FFI_Handler* handler : {fmha_jax_bwd_cpu, fmha_jax_bwd_rocm, fmha_jax_bwd_prepare_rocm}) {
    CHECK(call.call(handler) == "");
  }
  CHECK(data.host[kDq][0] == 0x55);
}

TEST_CASE_FIXTURE(xla_frame::Session, "ROCm can be captured") {
  const Gradients want = wanted();
  Data data;
  const OnDevice device(data.host);
  Call call(data, device.memory);
  call.context.stream = stream;
  CHECK(call.call(fmha_jax_bwd_prepare_rocm) == "");
  const xla_frame::Graph graph(stream, [&] { CHECK(call.call(fmha_jax_bwd_rocm) == ""); });
  for (int i = 0; i < 2; ++i) {  // on what the first left in the workspace
    CHECK(graph.launch());
    CHECK(hip().stream_synchronize(stream) == 0);
    device.take(data.host, {kDq, kDk, kDv});
    CHECK(Gradients(data) == want);
    data.forget();
  }
  CHECK(call.call(fmha_jax_bwd_rocm) == "");
  CHECK(hip().stream_synchronize(stream) == 0);
  device.take(data.host, {kDq, kDk, kDv});
  CHECK(Gradients(data) == want);
}

// Both platforms read attributes alike; here none may reach the device.
TEST_CASE_FIXTURE(xla_frame::Session, "what does not fit is refused") {
  Data data;
  const auto refused = [&](auto&& change, const char* expected) {
    Call call(data, data.pointers());
    Params params = numbered();
    change(params, call);
    call.set_params(params.fwd);
    for (XLA_FFI_Handler* handler : {fmha_jax_bwd_cpu, fmha_jax_bwd_rocm, fmha_jax_bwd_prepare_rocm}) {
      const std::string got = call.call(handler);
      CHECK(got.substr(0, std::strlen(expected)) == expected);
    }
  };
  const auto with = [](auto&& edit) {
    return [edit](Params& p, Frame& frame) {
      edit(p);
      frame.set_params(p.bwd);
    };
  };
  refused([](Params&, Frame& f) { f.rename_attribute(3, "bwd"); },
          "3: attribute bwd_params of the custom call");
  const std::string longer =
      "9: attribute bwd_params: got " + std::to_string(sizeof(fmha_bwd_params) + 8) + " bytes with fields";
  refused([](Params&, Frame& f) { f.append_word(1, 3); }, longer.c_str());
  refused(with([](Params& p) { p.fwd.seqlen_k += 1; }), "3: fwd->k.data: got a buffer of 35840 bytes");
  refused(with([](Params& p) { p.bwd.dk.stride_batch += 8; }), "3: dk.data: got a buffer of 35840 bytes");
  refused(with([](Params& p) { p.bwd.dout.data = number<void>(kCount); }),
          "3: attribute params: dout.data is");
  refused(with([](Params& p) { p.bwd.workspace = number<void>(kCount); }),
          "3: attribute params: workspace is");
  refused(with([](Params& p) { p.bwd.accumulate = 2; }), "3: accumulate = 2: expected 0 or 1");
  Params small = numbered();
  small.bwd.workspace = number<void>(kLse);
  CHECK(Call(data, data.pointers(), small).call(fmha_jax_bwd_cpu).rfind("3: workspace_bytes = ", 0) == 0);
  small.bwd.workspace = nullptr;
  CHECK(Call(data, data.pointers(), small).call(fmha_jax_bwd_cpu).rfind("3: workspace = NULL: ", 0) == 0);
}

}  // namespace
