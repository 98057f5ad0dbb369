// SPDX-License-Identifier: MIT OR Apache-2.0
#include "poison.h"

#include <cstring>
#include <span>

#include "rows.h"

namespace fmha::fuzz {
namespace {

constexpr Region kRead[] = {kQ, kK, kV, kBias};
constexpr Region kReadBackward[] = {kQ, kK, kV, kBias, kO, kDout, kLse};

class Painter {
 public:
  Painter(const Case& c, Device& device) : c_(c), device_(device) {}

  void fill(std::span<const Region> regions) const {
    // The only NaN of e4m3fnuz; all bits set are one in the other types.
    const int byte = c_.params.dtype == FMHA_FP8_E4M3_FNUZ ? 0x80 : 0xff;
    for (const Region region : regions) std::memset(device_.start(region), byte, Device::bytes(region));
  }

  void tensor(const fmha_tensor& t, int64_t heads, int64_t hdim,
              Rows (*rows_of)(const Case&, int64_t)) const {
    const Strides strides{t.stride_batch, t.stride_seqlen, t.stride_head};
    for (int64_t b = 0; b < c_.params.batch; ++b) {
      const Rows rows = rows_of(c_, b);
      for (int64_t s = rows.first; s < rows.first + rows.count; ++s) {
        for (int64_t h = 0; h < heads; ++h) row(t.data, strides.offset(c_.params, heads, b, h, s), hdim);
      }
    }
  }

  void bias() const {
    const fmha_fwd_params& p = c_.params;
    const Strides strides{p.bias.stride_batch, p.bias.stride_seqlen, p.bias.stride_head};
    for (int64_t b = 0; b < p.batch; ++b) {
      const Rows rows = query_rows(c_, b);
      for (int64_t s = rows.first; s < rows.first + rows.count; ++s) {
        for (int64_t h = 0; h < p.nhead_q; ++h) {
          row(p.bias.data, strides.offset(p, p.nhead_q, b, h, s), key_rows(c_, b).count);
        }
      }
    }
  }

  void lse() const {
    const fmha_fwd_params& p = c_.params;
    const Strides strides{p.lse.stride_batch, 1, p.lse.stride_head};
    for (int64_t b = 0; b < p.batch; ++b) {
      const Rows rows = query_rows(c_, b);
      for (int64_t h = 0; h < p.nhead_q && rows.count > 0; ++h) {
        float* at = p.lse.data + strides.offset(p, p.nhead_q, b, h, rows.first);
        device_.restore(at, static_cast<size_t>(rows.count) * sizeof *at);
      }
    }
  }

  // They may have been put into one of the regions that were filled.
  void slopes() const {
    const fmha_fwd_params& p = c_.params;
    for (int64_t b = 0; b < p.batch; ++b) {
      const float* at = p.alibi_slopes + (p.batch == 1 ? 0 : b * p.alibi_stride_batch);
      device_.restore(const_cast<float*>(at), static_cast<size_t>(p.nhead_q) * sizeof *at);
    }
  }

  void sinks() const {
    const fmha_fwd_params& p = c_.params;
    device_.restore(const_cast<float*>(p.sinks), static_cast<size_t>(p.nhead_q) * sizeof *p.sinks);
  }

 private:
  void row(const void* data, int64_t element, int64_t count) const {
    const int64_t size = element_bytes(c_.params.dtype);
    char* at = static_cast<char*>(const_cast<void*>(data)) + element * size;
    if (count > 0) device_.restore(at, static_cast<size_t>(count * size));
  }

  const Case& c_;
  Device& device_;
};

// Restores the inputs of both passes.
void restore_inputs(const Painter& painter, const fmha_fwd_params& p) {
  painter.tensor(p.q, p.nhead_q, p.hdim_q, query_rows);
  painter.tensor(p.k, p.nhead_k, p.hdim_q, key_rows);
  painter.tensor(p.v, p.nhead_k, p.hdim_v, key_rows);
  if (p.bias.data != nullptr) painter.bias();
  if (p.alibi_slopes != nullptr) painter.slopes();
}

}  // namespace

void poison(const Case& c, Device& device) {
  if (is_empty(c.params)) return;
  const Painter painter(c, device);
  painter.fill(kRead);
  restore_inputs(painter, c.params);
  if (c.params.sinks != nullptr) painter.sinks();
}

void poison(const BwdCase& c, Device& device) {
  const fmha_fwd_params& p = c.forward.params;
  if (is_empty(p)) return;
  const Painter painter(c.forward, device);
  painter.fill(kReadBackward);
  restore_inputs(painter, p);
  painter.tensor(p.o, p.nhead_q, p.hdim_v, query_rows);
  painter.tensor(c.params.dout, p.nhead_q, p.hdim_v, query_rows);
  painter.lse();
}

}  // namespace fmha::fuzz
