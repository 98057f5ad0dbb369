// SPDX-License-Identifier: MIT OR Apache-2.0
#include "backward/bwd_extent.h"

#include "extent.h"
#include "rows.h"
#include "span.h"

namespace fmha::fuzz {
namespace {

struct Gradient {
  const char* name;
  const void* data;
  Strides strides;
  int64_t batch, rows, heads, columns;
};

Gradient of_tensor(const char* name, const fmha_tensor& t, int64_t batch, int64_t rows, int64_t heads,
                   int64_t hdim) {
  return {name, t.data, {t.stride_batch, t.stride_seqlen, t.stride_head}, batch, rows, heads, hdim};
}

// All rows of the tensors: those of no sequence may become 0.
std::vector<Gradient> gradients(const BwdCase& c) {
  const fmha_fwd_params& f = c.forward.params;
  const fmha_bwd_params& p = c.params;
  const int64_t batch = is_group(f) ? 1 : f.batch;
  const int64_t q_rows = is_group(f) ? f.total_q : f.seqlen_q, k_rows = is_group(f) ? f.total_k : f.seqlen_k;
  std::vector<Gradient> all = {of_tensor("dq", p.dq, batch, q_rows, f.nhead_q, f.hdim_q),
                               of_tensor("dk", p.dk, batch, k_rows, f.nhead_k, f.hdim_q),
                               of_tensor("dv", p.dv, batch, k_rows, f.nhead_k, f.hdim_v)};
  if (p.dbias.data != nullptr) {
    const Strides strides{p.dbias.stride_batch, p.dbias.stride_seqlen, p.dbias.stride_head};
    const auto size = [](int64_t n, int64_t stride) { return stride == 0 ? 1 : n; };
    all.push_back({"dbias", p.dbias.data, strides, is_group(f) ? 1 : size(batch, strides.batch),
                   size(q_rows, strides.seqlen), size(f.nhead_q, strides.head), f.seqlen_k});
  }
  return all;
}

bool is_inside(const Gradient& g, const Device& device, int64_t size) {
  Span span;
  span.step(g.batch, g.strides.batch).step(g.rows, g.strides.seqlen);
  return span.step(g.heads, g.strides.head).inside(device, g.data, g.columns, size);
}

bool has_elements(const Gradient& g) { return g.batch > 0 && g.rows > 0 && g.heads > 0 && g.columns > 0; }

}  // namespace

bool lies_in_memory(const BwdCase& c, const Device& device) {
  const fmha_fwd_params& f = c.forward.params;
  if (!lies_in_memory(c.forward, device)) return false;
  const int64_t q_rows = is_group(f) ? f.total_q : f.seqlen_q;
  for (const Gradient& g : gradients(c)) {
    if (!is_inside(g, device, element_bytes(grad_dtype(c)))) return false;
  }
  return is_empty(f) || (f.lse.data != nullptr && tensor_inside(c.forward, device, c.params.dout, q_rows,
                                                                f.nhead_q, f.hdim_v, f.dtype));
}

bool take_results(const BwdCase& c, const Device& device, std::vector<uint8_t>& before,
                  const std::vector<uint8_t>& now) {
  Result result{before, now};
  const fmha_dtype dtype = grad_dtype(c);
  const auto size = static_cast<size_t>(element_bytes(dtype));
  const bool tame = c.mutations == 0;
  for (const Gradient& g : gradients(c)) {
    if (!has_elements(g)) continue;
    const size_t start = device.place(g.data);
    for (int64_t b = 0; b < g.batch; ++b) {
      for (int64_t s = 0; s < g.rows; ++s) {
        for (int64_t h = 0; h < g.heads; ++h) {
          const int64_t element = b * g.strides.batch + s * g.strides.seqlen + h * g.strides.head;
          result.take(start + static_cast<size_t>(element) * size, static_cast<size_t>(g.columns), size,
                      g.name, [&](const uint8_t* at) { return !tame || is_finite(at, dtype); });
        }
      }
    }
  }
  return result.good;
}

}  // namespace fmha::fuzz
