// SPDX-License-Identifier: MIT OR Apache-2.0
#include "ops/dense.h"

#include <cmath>
#include <limits>

namespace fmha::onnxruntime {
namespace {

// The strides of a tensor that broadcasts to (batch, nhead, seqlen_q, seqlen_k).
fmha::bias bias_of(const Tensor& tensor, const int64_t (&expected)[4]) {
  int64_t dims[4] = {1, 1, 1, 1};
  const size_t rank = tensor.rank();
  if (rank < 2 || rank > 4) fail(ORT_INVALID_ARGUMENT, "rank of the mask: got %zu, expected 2 to 4", rank);
  for (size_t i = 0; i < rank; i++) dims[4 - rank + i] = tensor.dim(i);
  for (size_t i = 0; i < 4; i++) {
    if (dims[i] == expected[i] || (dims[i] == 1 && i < 3)) continue;
    fail(dims[i] == 1 ? ORT_NOT_IMPLEMENTED : ORT_INVALID_ARGUMENT,
         "dimension %zu of (batch, heads, queries, keys) of the mask: got %lld, expected %lld%s", i,
         static_cast<long long>(dims[i]), static_cast<long long>(expected[i]), i < 3 ? " or 1" : "");
  }
  const auto stride = [&](size_t i, int64_t elements) { return dims[i] == 1 ? 0 : elements; };
  const int64_t row = dims[3];
  return {tensor.data, stride(0, dims[1] * dims[2] * row), stride(1, dims[2] * row), stride(2, row)};
}

void check_past(const Tensor& past, const char* name, int64_t batch, int64_t nhead, int64_t length,
                int64_t hdim) {
  const int64_t expected[4] = {batch, nhead, length, hdim};
  for (size_t i = 0; i < 4; i++) {
    if (past.rank() == 4 && past.dim(i) == expected[i]) continue;
    fail(ORT_INVALID_ARGUMENT, "%s: got rank %zu, dimension %zu %lld, expected rank 4 and %lld", name,
         past.rank(), i, static_cast<long long>(past.rank() == 4 ? past.dim(i) : 0),
         static_cast<long long>(expected[i]));
  }
}

}  // namespace

void* no_memory(int number) { return reinterpret_cast<void*>((number + INT64_C(1)) << 48); }

fmha_dtype dtype_of(const Value& value, const char* name) {
  switch (value.type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return FMHA_FP16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      return FMHA_BF16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return FMHA_FP32;
    default:
      fail(ORT_NOT_IMPLEMENTED, "type of %s: got ONNX's %d, expected float16, bfloat16 or float", name,
           static_cast<int>(value.type));
  }
}

size_t bytes_of(fmha_dtype dtype) { return dtype == FMHA_FP32 ? 4 : 2; }

int64_t size_or(const Value& value, size_t dim, int64_t otherwise) {
  return dim < value.rank() && value.dims[dim].size >= 0 ? value.dims[dim].size : otherwise;
}

int64_t size_of(const Value& value, size_t dim, const char* name) {
  const int64_t size = size_or(value, dim, -1);
  if (size < 0) {
    fail(ORT_NOT_IMPLEMENTED, "dimension %zu of %s: only a run knows it, expected a size in the model", dim,
         name);
  }
  return size;
}

void expect_none(const Value& value, const char* name) {
  if (value.given()) fail(ORT_NOT_IMPLEMENTED, "%s: got %s, expected none", name, value.name.c_str());
}

float scale_of(const Node& node, int64_t hdim, bool zero_is_default) {
  const float scale = node.number("scale", std::numeric_limits<float>::quiet_NaN());
  if (std::isnan(scale) || (zero_is_default && scale == 0)) {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(hdim)));
  }
  return scale;
}

int64_t window_left(int64_t local_window_size) {
  return minor_version() >= 24 ? local_window_size - 1 : local_window_size;
}

fmha::tensor heads_first(void* data, int64_t nhead, int64_t seqlen, int64_t hdim) {
  return fmha::tensor::bhsd(data, seqlen, nhead, hdim);
}

void forward(const Call& call, fmha::fwd_params params) {
  const Scratch workspace = call.scratch(static_cast<size_t>(fmha::fwd_workspace_bytes(params)));
  params.workspace = workspace.data();
  params.workspace_bytes = workspace.data() != nullptr ? fmha::fwd_workspace_bytes(params) : 0;
  fmha::fwd(params, call.stream());
}

void decode(const Call& call, fmha::decode_params params) {
  const int64_t bytes = fmha::decode_workspace_bytes(params);
  const Scratch workspace = call.scratch(static_cast<size_t>(bytes));
  params.workspace = workspace.data();
  params.workspace_bytes = bytes;
  fmha::decode(params, call.stream());
}

void copy_past(const Call& call, const Tensor& past, const Tensor& present, size_t element_bytes) {
  if (past.count() == 0 || past.data == present.data) return;
  const auto row = static_cast<size_t>(past.dim(3)) * element_bytes;
  const size_t from = static_cast<size_t>(past.dim(2)) * row;
  const size_t to = static_cast<size_t>(present.dim(2)) * row;
  check_hip(hip().memcpy_2d_async(present.data, to, past.data, from, from,
                                  static_cast<size_t>(past.dim(0) * past.dim(1)), CopyKind::kDeviceToDevice,
                                  call.stream()),
            "hipMemcpy2DAsync");
}

int64_t past_length(const Call& call, size_t past_key) {
  if (!call.has_input(past_key)) return 0;
  const Tensor past = call.input(past_key);
  if (past.rank() != 4) fail(ORT_INVALID_ARGUMENT, "rank of past_key: got %zu, expected 4", past.rank());
  return past.dim(2);
}

fmha::fwd_params Dense::params(const Sizes& sizes) const {
  fmha::fwd_params params;
  params.dtype = dtype;
  params.batch = sizes.batch;
  params.seqlen_q = sizes.seqlen_q;
  params.seqlen_k = sizes.seqlen_k();
  params.nhead_q = nhead_q;
  params.nhead_k = nhead_k;
  params.hdim_q = hdim_q;
  params.hdim_v = hdim_v;
  params.softmax_scale = scale;
  params.softcap = softcap;
  if (!causal) return params;
  // Query i sees the keys up to past + i, of as many new keys as there are queries or not.
  if (sizes.seqlen_q == sizes.seqlen_new) {
    params.mask = FMHA_MASK_CAUSAL;
  } else {
    params.mask = sizes.past == 0 ? FMHA_MASK_CAUSAL_TOP_LEFT : FMHA_MASK_WINDOW_TOP_LEFT;
    params.window_left = std::numeric_limits<int64_t>::max();
    params.window_right = sizes.past;
  }
  return params;
}

// Sequences of which only the first keys count are packed ones, with gaps. `starts` has those of the queries,
// then those of the keys.
void Dense::pack(const Sizes& sizes, const int32_t* starts, const int32_t* key_lengths,
                 fmha::fwd_params& params) const {
  params.cu_seqlens_q = starts;
  params.cu_seqlens_k = starts + sizes.batch + 1;
  params.seqused_k = key_lengths;
  params.total_q = sizes.batch * sizes.seqlen_q;
  params.total_k = sizes.batch * sizes.seqlen_k();
  if (causal) params.mask = FMHA_MASK_CAUSAL_TOP_LEFT;  // whatever the keys that count
}

fmha::cache Dense::cache(const Sizes& sizes, void* k, void* v) const {
  const auto place = [&](void* data, int64_t hdim) {
    fmha::cache_tensor tensor;
    const size_t before = static_cast<size_t>(sizes.past * hdim) * bytes_of(dtype);
    tensor.data = data != nullptr ? static_cast<char*>(data) + before : nullptr;
    tensor.stride_page = nhead_k * sizes.seqlen_k() * hdim;
    tensor.stride_token = hdim;
    tensor.stride_head = sizes.seqlen_k() * hdim;
    return tensor;
  };
  fmha::cache cache;
  cache.dtype = dtype;
  cache.k = place(k, hdim_q);
  cache.v = place(v, hdim_v);
  cache.pages = sizes.batch;
  cache.page_size = sizes.seqlen_new;
  return cache;
}

// The new keys and values, to behind the past ones.
fmha::kv_append_params Dense::append(const Sizes& sizes, const fmha::cache& cache) const {
  fmha::kv_append_params params;
  params.dtype = dtype;
  params.batch = sizes.batch;
  params.seqlen = sizes.seqlen_new;
  params.nhead_k = nhead_k;
  params.hdim_q = hdim_q;
  params.hdim_v = hdim_v;
  params.cache = &cache;
  return params;
}

void Dense::check_supported(const Node& node, const Sizes& sizes) const {
  fmha::fwd_params attention = params(sizes);
  attention.flags = FMHA_NO_MEMORY_CHECK;
  attention.q = fmha::tensor::bshd(nullptr, sizes.seqlen_q, nhead_q, hdim_q);
  attention.k = fmha::tensor::bshd(nullptr, sizes.seqlen_k(), nhead_k, hdim_q);
  attention.v = fmha::tensor::bshd(nullptr, sizes.seqlen_k(), nhead_k, hdim_v);
  attention.o = fmha::tensor::bshd(nullptr, sizes.seqlen_q, nhead_q, hdim_v);
  const Value& bias = node.input(slots.bias);
  if (bias.given()) {
    if (dtype_of(bias, "the mask") != dtype) {
      fail(ORT_NOT_IMPLEMENTED, "type of the mask: got another, expected that of the query");
    }
    const int64_t keys = sizes.seqlen_k();
    attention.bias = fmha::bias(no_memory(0), 0, 0, keys);
    if (bias.rank() > 0 && bias.dims.back().size == 1 && keys != 1) {
      fail(ORT_NOT_IMPLEMENTED, "keys of the mask: got 1, expected %lld", static_cast<long long>(keys));
    }
  }
  if (node.input(slots.key_lengths).given()) {
    const auto* integers = static_cast<const int32_t*>(no_memory(0));
    pack(sizes, integers, integers, attention);
  }
  fmha::fwd_supported(std::nothrow, attention).value();
  if (node.output(slots.present_key).given() || node.input(slots.past_key).given()) {
    const fmha::cache kept = cache(sizes, nullptr, nullptr);
    fmha::kv_append_params storing = append(sizes, kept);
    storing.flags = FMHA_NO_MEMORY_CHECK;
    storing.k = fmha::tensor::bshd(no_memory(0), sizes.seqlen_new, nhead_k, hdim_q);
    storing.v = fmha::tensor::bshd(no_memory(1), sizes.seqlen_new, nhead_k, hdim_v);
    fmha::kv_append_supported(std::nothrow, storing).value();
  }
}

void Dense::forward_lengths(const Call& call, const Sizes& sizes, fmha::fwd_params attention) const {
  const Tensor lengths = call.input(slots.key_lengths);
  if (lengths.count() != sizes.batch) {
    fail(ORT_INVALID_ARGUMENT, "key_padding_mask: got %lld numbers, expected %lld, one for each sequence",
         static_cast<long long>(lengths.count()), static_cast<long long>(sizes.batch));
  }
  std::vector<int32_t> starts;
  for (const int64_t length : {sizes.seqlen_q, sizes.seqlen_k()}) {
    for (int64_t b = 0; b <= sizes.batch; b++) starts.push_back(static_cast<int32_t>(b * length));
  }
  const size_t bytes = starts.size() * sizeof(int32_t);
  const Scratch scratch = call.scratch(bytes);
  call.write(starts.data(), scratch.data(), bytes);
  pack(sizes, static_cast<const int32_t*>(scratch.data()), reinterpret_cast<const int32_t*>(lengths.data),
       attention);
  forward(call, attention);
}

bool Dense::keeps(const Call& call) const {
  return call.has_input(slots.past_key) || call.has_output(slots.present_key) ||
         call.has_output(slots.present_value);
}

void Dense::run(const Call& call, const Sizes& sizes, const fmha::tensor& q, const fmha::tensor& k,
                const fmha::tensor& v, const fmha::tensor& o) const {
  fmha::fwd_params attention = params(sizes);
  attention.q = q;
  attention.k = k;
  attention.v = v;
  attention.o = o;
  if (call.has_input(slots.bias)) {
    attention.bias =
        bias_of(call.input(slots.bias), {sizes.batch, nhead_q, sizes.seqlen_q, sizes.seqlen_k()});
  }
  if (call.has_input(slots.key_lengths)) return forward_lengths(call, sizes, attention);
  if (!keeps(call)) return forward(call, attention);

  // One that nothing else reads is kept for this run.
  std::vector<Scratch> unread;
  const auto present_of = [&](size_t slot, int64_t hdim) {
    Tensor present;
    present.dims = {sizes.batch, nhead_k, sizes.seqlen_k(), hdim};
    if (call.has_output(slot)) return call.output(slot, present.dims);
    unread.push_back(call.scratch(static_cast<size_t>(present.count()) * bytes_of(dtype)));
    present.data = static_cast<char*>(unread.back().data());
    return present;
  };
  const Tensor present_k = present_of(slots.present_key, hdim_q);
  const Tensor present_v = present_of(slots.present_value, hdim_v);
  if (call.has_input(slots.past_key)) {
    const Tensor past_k = call.input(slots.past_key);
    const Tensor past_v = call.input(slots.past_value);
    check_past(past_k, "past_key", sizes.batch, nhead_k, sizes.past, hdim_q);
    check_past(past_v, "past_value", sizes.batch, nhead_k, sizes.past, hdim_v);
    copy_past(call, past_k, present_k, bytes_of(dtype));
    copy_past(call, past_v, present_v, bytes_of(dtype));
  }
  const fmha::cache kept = cache(sizes, present_k.data, present_v.data);
  fmha::kv_append_params storing = append(sizes, kept);
  storing.k = k;
  storing.v = v;
  fmha::kv_append(storing, call.stream());
  attention.k = heads_first(present_k.data, nhead_k, sizes.seqlen_k(), hdim_q);
  attention.v = heads_first(present_v.data, nhead_k, sizes.seqlen_k(), hdim_v);
  forward(call, attention);
}

}  // namespace fmha::onnxruntime
