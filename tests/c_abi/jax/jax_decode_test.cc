// SPDX-License-Identifier: MIT OR Apache-2.0
// XLA's custom calls on a KV cache without XLA, on both platforms: a step that appends and attends gives the
// bits of fmha_kv_append and fmha_decode, which are judged elsewhere.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fmha_rocm.h"
#include "fmha_rocm_jax.h"
#include "on_device.h"
#include "reference.h"
#include "status.h"
#include "xla_frame.h"

namespace {

using xla_frame::Frame;

constexpr int64_t kBatch = 2, kHeads = 4, kKeyHeads = 2, kHdim = 64;
constexpr int64_t kPages = 6, kPageSize = 16, kMaxPages = 3, kSplits = 2;
constexpr int64_t kQ = kBatch * kHeads * kHdim, kNew = kBatch * kKeyHeads * kHdim;
constexpr int64_t kCache = kPages * kPageSize * kKeyHeads * kHdim;
constexpr int64_t kWorkspaceBytes = 2 * kSplits * kBatch * kHeads * (kHdim + 1) * 4;  // with room to align
constexpr int32_t kTable[] = {4, 0, -1, 2, 5, 1}, kUsed[] = {17, 40}, kAfter[] = {18, 41};

// All memory of a step, and how XLA tells of it.
enum { kNewK, kNewV, kCacheK, kCacheV, kPageTable, kBefore, kNow, kQuery, kOut, kWorkspace, kCount };
constexpr int64_t kBytes[kCount] = {kNew * 2,     kNew * 2,     kCache * 2, kCache * 2, sizeof kTable,
                                    sizeof kUsed, sizeof kUsed, kQ * 2,     kQ * 2,     kWorkspaceBytes};

Frame::Buffer buffer(const std::vector<void*>& memory, int which) {
  if (which == kWorkspace) return {memory[kWorkspace], kWorkspaceBytes, XLA_FFI_DataType_U8};
  const bool integers = which == kPageTable || which == kBefore || which == kNow;
  return {memory[static_cast<size_t>(which)], kBytes[which] / (integers ? 4 : 2),
          integers ? XLA_FFI_DataType_S32 : XLA_FFI_DataType_F16};
}

template <typename T>
T* number(uintptr_t n) {
  return reinterpret_cast<T*>(n);
}

fmha_cache cache_of(void* k, void* v, const int32_t* table) {
  fmha_cache c{};
  c.struct_size = sizeof c;
  c.dtype = FMHA_FP16;
  constexpr int64_t token = kKeyHeads * kHdim;
  c.k = {k, kPageSize * token, token, kHdim};
  c.v = {v, kPageSize * token, token, kHdim};
  c.pages = kPages, c.page_size = kPageSize;
  c.block_table = table, c.stride_block_table = c.max_pages = kMaxPages;
  return c;
}

fmha_kv_append_params append_of(void* k, void* v, const int32_t* used, const fmha_cache* cache) {
  fmha_kv_append_params p{};
  p.struct_size = sizeof p;
  p.dtype = FMHA_FP16;
  p.batch = kBatch, p.seqlen = 1, p.nhead_k = kKeyHeads, p.hdim_q = p.hdim_v = kHdim;
  p.k = {k, kKeyHeads * kHdim, kKeyHeads * kHdim, kHdim};
  p.v = {v, kKeyHeads * kHdim, kKeyHeads * kHdim, kHdim};
  p.seqused_k = used;
  p.cache = cache;
  return p;
}

fmha_fwd_params forward_of(void* q, void* o, const int32_t* used) {
  fmha_fwd_params p{};
  p.struct_size = sizeof p;
  p.dtype = FMHA_FP16;
  p.batch = kBatch, p.seqlen_q = 1, p.seqlen_k = kMaxPages * kPageSize;
  p.nhead_q = kHeads, p.nhead_k = kKeyHeads, p.hdim_q = p.hdim_v = kHdim;
  p.softmax_scale = 0.125f;
  p.q = {q, kHeads * kHdim, kHeads * kHdim, kHdim};
  p.o = {o, kHeads * kHdim, kHeads * kHdim, kHdim};
  p.seqused_k = used;
  return p;
}

fmha_decode_params decode_of(void* workspace) {
  fmha_decode_params p{};
  p.struct_size = sizeof p;
  p.num_splits = kSplits;
  p.workspace = workspace;
  return p;
}

// Arguments: new keys and values, caches, table, lengths. Results: the caches.
class AppendFrame : public Frame {
 public:
  explicit AppendFrame(const std::vector<void*>& memory)
      : Frame({buffer(memory, kNewK), buffer(memory, kNewV), buffer(memory, kCacheK), buffer(memory, kCacheV),
               buffer(memory, kPageTable), buffer(memory, kBefore), buffer(memory, kCacheK),
               buffer(memory, kCacheV)},
              6) {
    set_params(append_of(number<void>(1), number<void>(2), number<int32_t>(6), number<fmha_cache>(1)));
    set_params(cache_of(number<void>(7), number<void>(8), number<int32_t>(5)));
  }
};

// Arguments: queries, caches, table, lengths. Results: output and workspace.
class DecodeFrame : public Frame {
 public:
  explicit DecodeFrame(const std::vector<void*>& memory)
      : Frame({buffer(memory, kQuery), buffer(memory, kCacheK), buffer(memory, kCacheV),
               buffer(memory, kPageTable), buffer(memory, kNow), buffer(memory, kOut),
               buffer(memory, kWorkspace)},
              5) {
    set_params(forward_of(number<void>(1), number<void>(6), number<int32_t>(5)));
    set_params(cache_of(number<void>(2), number<void>(3), number<int32_t>(4)));
    set_params(decode_of(number<void>(7)));
  }
};

struct Data {
  Data() {
    for (size_t i = 0; i < kCount; ++i) host[i].assign(static_cast<size_t>(kBytes[i]), '\x55');
    for (const size_t i : {kNewK, kNewV, kCacheK, kCacheV, kQuery}) {
      std::vector<uint16_t> numbers(host[i].size() / 2);
      reference_fill(FMHA_FP16, static_cast<uint32_t>(i) + 1, numbers.data(), numbers.size());
      std::memcpy(host[i].data(), numbers.data(), host[i].size());
    }
    std::memcpy(host[kPageTable].data(), kTable, sizeof kTable);
    std::memcpy(host[kBefore].data(), kUsed, sizeof kUsed);
    std::memcpy(host[kNow].data(), kAfter, sizeof kAfter);
  }
  std::vector<void*> pointers() {
    std::vector<void*> found;
    for (std::vector<char>& x : host) found.push_back(x.data());
    return found;
  }
  bool same(const Data& other) const {
    return host[kOut] == other.host[kOut] && host[kCacheK] == other.host[kCacheK] &&
           host[kCacheV] == other.host[kCacheV];
  }
  std::vector<char> host[kCount];
};

// Returns the results of a step that calls the library itself.
Data by_the_library() {
  Data data;
  const OnDevice device(data.host);
  const std::vector<void*>& m = device.memory;
  const auto* table = static_cast<const int32_t*>(m[kPageTable]);
  const fmha_cache cache = cache_of(m[kCacheK], m[kCacheV], table);
  const fmha_kv_append_params append =
      append_of(m[kNewK], m[kNewV], static_cast<const int32_t*>(m[kBefore]), &cache);
  CHECK_OK(fmha_kv_append(&append, nullptr));
  const fmha_fwd_params fwd = forward_of(m[kQuery], m[kOut], static_cast<const int32_t*>(m[kNow]));
  fmha_decode_params decode = decode_of(m[kWorkspace]);
  decode.workspace_bytes = kWorkspaceBytes;
  decode.fwd = &fwd;
  decode.cache = &cache;
  CHECK_OK(fmha_decode(&decode, nullptr));
  CHECK(hip().synchronize() == 0);
  device.take(data.host, {kCacheK, kCacheV, kOut});
  return data;
}

TEST_CASE_FIXTURE(xla_frame::Session, "the CPU steps") {
  Data data;
  AppendFrame append(data.pointers());
  DecodeFrame decode(data.pointers());
  xla_frame::g_refuses_once = true;
  CHECK(append.call(fmha_jax_kv_append_cpu) == "9: not yet");
  CHECK(append.call(fmha_jax_kv_append_cpu) == "");
  CHECK(decode.call(fmha_jax_decode_cpu) == "");
  CHECK(data.same(by_the_library()));
}

// XLA initializes before it captures, and replays the graph.
TEST_CASE_FIXTURE(xla_frame::Session, "ROCm can be captured") {
  Data data;
  const OnDevice device(data.host);
  AppendFrame append(device.memory);
  DecodeFrame decode(device.memory);
  append.context.stream = decode.context.stream = stream;
  CHECK(append.call(fmha_jax_kv_append_prepare_rocm) == "");
  CHECK(decode.call(fmha_jax_decode_prepare_rocm) == "");
  const xla_frame::Graph graph(stream, [&] {
    CHECK(append.call(fmha_jax_kv_append_rocm) == "");
    CHECK(decode.call(fmha_jax_decode_rocm) == "");
  });
  CHECK(graph.launch());
  CHECK(hip().stream_synchronize(stream) == 0);
  device.take(data.host, {kCacheK, kCacheV, kOut});
  CHECK(data.same(by_the_library()));
}

// Every stage refuses it; none may reach the device.
TEST_CASE_FIXTURE(xla_frame::Session, "what does not fit is refused") {
  Data data;
  const std::vector<void*> pointers = data.pointers();
  const auto check = [](const std::string& got, const char* start) {
    CHECK(got.substr(0, std::strlen(start)) == start);
  };
  const auto decode_refused = [&](auto&& change, const char* start) {
    DecodeFrame frame(pointers);
    change(frame);
    for (XLA_FFI_Handler* handler : {fmha_jax_decode_cpu, fmha_jax_decode_rocm, fmha_jax_decode_prepare_rocm})
      check(frame.call(handler), start);
  };
  const auto append_refused = [&](auto&& change, const char* start) {
    AppendFrame frame(pointers);
    change(frame);
    for (XLA_FFI_Handler* handler :
         {fmha_jax_kv_append_cpu, fmha_jax_kv_append_rocm, fmha_jax_kv_append_prepare_rocm})
      check(frame.call(handler), start);
  };
  fmha_cache more = cache_of(number<void>(2), number<void>(3), number<int32_t>(4));
  more.pages = kPages + 1;
  decode_refused([&](Frame& f) { f.set_params(more); }, "3: cache->k.data: got a buffer of 24576 bytes");
  more.pages = kPages, more.stride_block_table = kMaxPages + 1;
  decode_refused([&](Frame& f) { f.set_params(more); }, "3: cache->block_table: got a buffer of 24 bytes");
  more.k.data = number<void>(8);
  decode_refused([&](Frame& f) { f.set_params(more); }, "3: attribute params: cache->k.data is buffer 8");
  decode_refused([](Frame& f) { f.rename_attribute(4, "cash"); }, "3: attribute cache of the custom call");
  decode_refused([](Frame& f) { f.append_word(1, 5); }, "9: attribute decode_params");
  fmha_kv_append_params append =
      append_of(number<void>(1), number<void>(2), number<int32_t>(6), number<fmha_cache>(1));
  append.batch = kBatch + 1;
  append_refused([&](Frame& f) { f.set_params(append); }, "3: k.data: got a buffer of 512 bytes");
  append.batch = kBatch, append.cache = nullptr;
  append_refused([&](Frame& f) { f.set_params(append); }, "3: cache = NULL");
}

}  // namespace
