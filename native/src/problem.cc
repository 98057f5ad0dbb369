// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "error.h"

namespace fmha {
namespace {

// CK's numbers for a mask's alignment (GenericAttentionMaskEnum).
constexpr int32_t kMaskNone = 0;
constexpr int32_t kMaskTopLeft = 1;
constexpr int32_t kMaskBottomRight = 2;
constexpr int32_t kUnlimited = -1;

// The kernels load and store 16 bytes at a time.
constexpr int64_t kAlignBytes = 16;
constexpr int64_t kElementBytes = 2;
constexpr int64_t kAlignElements = kAlignBytes / kElementBytes;

// LSE offsets are int32 bytes, and a store past the last row is dropped by adding 2 GiB to its address, so
// that seqlen_q * 4 must stay below that. It also keeps the masks' int32 sums of two lengths from
// overflowing.
constexpr int64_t kMaxSeqlen = (int64_t{1} << 29) - kTileRows;

// Row offsets are int32 elements; in bytes they are taken modulo 4 GiB.
constexpr int64_t kMaxSpan = int64_t{1} << 31;
// Rows of `o` past the end are dropped by adding 2 GiB to their address: they need a span below that.
constexpr int64_t kMaxPaddedStoreSpan = int64_t{1} << 30;

// More than any process can address.
constexpr uint64_t kAddressSpace = uint64_t{1} << 57;

// Every field of version 0.1.
constexpr uint32_t kParamsSmallestBytes = offsetof(fmha_fwd_params, lse) + sizeof(fmha_lse);
// A struct of any version stays far below this; a larger number was never set, and reading that many bytes
// could leave the caller's memory.
constexpr uint32_t kLargestStructBytes = 4096;

constexpr float kLog2E = 1.4426950408889634F;

// A tensor as it is checked: dims of size one have lost the stride that nobody reads.
struct View {
  const char* name;
  const void* data;
  int64_t element_bytes;
  int64_t row;                    // contiguous elements at the end of each index
  std::array<int64_t, 3> size;    // batch, seqlen, head
  std::array<int64_t, 3> stride;  // elements
  bool touched;                   // false: has no elements, so the pointer means nothing
};

constexpr const char* kStrideNames[] = {"stride_batch", "stride_seqlen", "stride_head"};

void check_dim(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value < least) {
    fail(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected %" PRId64 " or more", name, value, least);
  }
  if (value > most) {
    fail(FMHA_UNSUPPORTED, "%s = %" PRId64 ": kernels take at most %" PRId64, name, value, most);
  }
}

void check_dims(const fmha_fwd_params& p) {
  if (p.dtype != FMHA_FP16 && p.dtype != FMHA_BF16) {
    fail(FMHA_INVALID_ARGUMENT, "dtype = %" PRId32 ": expected FMHA_FP16 (1) or FMHA_BF16 (2)", p.dtype);
  }
  check_dim("batch", p.batch, 0, INT32_MAX);
  check_dim("seqlen_q", p.seqlen_q, 0, kMaxSeqlen);
  check_dim("seqlen_k", p.seqlen_k, 0, kMaxSeqlen);
  check_dim("nhead_q", p.nhead_q, 0, INT32_MAX);
  check_dim("nhead_k", p.nhead_k, 1, INT32_MAX);
  check_dim("hdim_q", p.hdim_q, 1, INT32_MAX);
  check_dim("hdim_v", p.hdim_v, 1, INT32_MAX);
  if (p.nhead_q % p.nhead_k != 0) {
    fail(FMHA_INVALID_ARGUMENT, "nhead_q = %" PRId64 ": expected a multiple of nhead_k = %" PRId64, p.nhead_q,
         p.nhead_k);
  }
}

// The scale as the kernels want it. They take the row maximum before they scale and hide keys with -inf
// scores, so a factor below zero, or one that is flushed to zero, would give infinities and NaNs.
float check_scale(float scale) {
  if (!std::isfinite(scale) || scale == 0.0F) {
    fail(FMHA_INVALID_ARGUMENT, "softmax_scale = %g: expected a finite number above 0", double{scale});
  }
  const float scale_log2e = scale * kLog2E;
  if (scale_log2e < FLT_MIN || std::isinf(scale_log2e)) {
    fail(FMHA_UNSUPPORTED, "softmax_scale = %g: kernels take scales from 1e-38 to 2e38 (negate q for a sign)",
         double{scale});
  }
  return scale_log2e;
}

View make_view(const char* name, const fmha_tensor& t, int64_t batch, int64_t seqlen, int64_t nhead,
               int64_t hdim) {
  return View{.name = name,
              .data = t.data,
              .element_bytes = kElementBytes,
              .row = hdim,
              .size = {batch, seqlen, nhead},
              .stride = {t.stride_batch, t.stride_seqlen, t.stride_head},
              .touched = batch > 0 && seqlen > 0 && nhead > 0};
}

View make_lse_view(const fmha_fwd_params& p) {
  return View{.name = "lse",
              .data = p.lse.data,
              .element_bytes = sizeof(float),
              .row = p.seqlen_q,
              .size = {p.batch, 1, p.nhead_q},
              .stride = {p.lse.stride_batch, 0, p.lse.stride_head},
              .touched = p.lse.data != nullptr && p.batch > 0 && p.seqlen_q > 0 && p.nhead_q > 0};
}

// `align` is the number of elements a stride must be a multiple of.
void check_strides(View& v, int64_t align) {
  for (size_t i = 0; i < v.stride.size(); ++i) {
    if (v.size[i] <= 1) {
      v.stride[i] = v.row;  // any value will do, as long as it is small and aligned
      continue;
    }
    const int64_t stride = v.stride[i];
    if (stride < 0) {
      fail(FMHA_INVALID_ARGUMENT, "%s.%s = %" PRId64 ": expected 0 or more", v.name, kStrideNames[i], stride);
    }
    if (stride % align != 0) {
      fail(FMHA_INVALID_ARGUMENT,
           "%s.%s = %" PRId64 ": expected a multiple of %" PRId64 " elements (16-byte loads)", v.name,
           kStrideNames[i], stride, align);
    }
    if (stride > INT32_MAX) {
      fail(FMHA_UNSUPPORTED, "%s.%s = %" PRId64 ": kernels take strides below 2^31 elements", v.name,
           kStrideNames[i], stride);
    }
  }
}

// What one (batch, head) spans, padded to whole tiles, must fit the 32-bit offsets inside a kernel.
void check_span(const View& v, bool written) {
  const int64_t rows = (v.size[1] + kTileRows - 1) / kTileRows * kTileRows;
  const bool padded_store = written && rows != v.size[1];
  const int64_t most = padded_store ? kMaxPaddedStoreSpan : kMaxSpan;
  const int64_t span = rows * v.stride[1];
  if (span >= most) {
    fail(FMHA_UNSUPPORTED,
         "%s.stride_seqlen = %" PRId64 " over %" PRId64 " rows: one head spans %" PRId64
         " bytes, and kernels address %" PRId64
         "; a layout with a smaller stride_seqlen, such as (batch, head, "
         "seqlen, hdim), fits",
         v.name, v.stride[1], v.size[1], span * v.element_bytes, most * v.element_bytes);
  }
}

// Sufficient for distinct elements to have distinct addresses, and met by every permuted, sliced or padded
// dense layout: each stride steps over all that the smaller ones reach.
void check_no_self_overlap(const View& v) {
  if (!v.touched) return;  // an empty array's strides may well be 0
  std::array<size_t, 3> order = {0, 1, 2};
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v.stride[a] < v.stride[b]; });
  uint64_t reach = static_cast<uint64_t>(v.row);
  for (const size_t i : order) {
    if (v.size[i] <= 1) continue;
    if (static_cast<uint64_t>(v.stride[i]) < reach) {
      fail(FMHA_INVALID_ARGUMENT,
           "%s.%s = %" PRId64 ": its elements overlap one another; expected %" PRIu64 " or more", v.name,
           kStrideNames[i], v.stride[i], reach);
    }
    reach += static_cast<uint64_t>(v.size[i] - 1) * static_cast<uint64_t>(v.stride[i]);
  }
}

void check_pointer(const View& v, int64_t align_bytes, Pointers pointers) {
  if (!v.touched) return;
  if (v.data == nullptr) {
    if (pointers == Pointers::kOptional) return;
    fail(FMHA_INVALID_ARGUMENT, "%s.data = NULL: expected a device pointer", v.name);
  }
  if (reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(align_bytes) != 0) {
    fail(FMHA_INVALID_ARGUMENT, "%s.data = %p: expected an address aligned to %" PRId64 " bytes", v.name,
         v.data, align_bytes);
  }
}

// Bytes from the first to past the last element. Sizes and strides are below 2^31, so the sum of three
// products fits 64 unsigned bits, though not always an address space.
uint64_t reach_bytes(const View& v) {
  uint64_t reach = static_cast<uint64_t>(v.row);
  for (size_t i = 0; i < v.size.size(); ++i) {
    reach += static_cast<uint64_t>(v.size[i] - 1) * static_cast<uint64_t>(v.stride[i]);
  }
  return std::min(reach, kAddressSpace) * static_cast<uint64_t>(v.element_bytes);
}

void check_disjoint(const View& written, const View& other) {
  if (!written.touched || !other.touched || written.data == nullptr || other.data == nullptr) return;
  const auto w = reinterpret_cast<uintptr_t>(written.data);
  const auto r = reinterpret_cast<uintptr_t>(other.data);
  if ((w <= r && r - w < reach_bytes(written)) || (r < w && w - r < reach_bytes(other))) {
    fail(FMHA_INVALID_ARGUMENT,
         "%s is written but overlaps %s: %s spans %" PRIu64 " bytes from %p, %s %" PRIu64 " bytes from %p",
         written.name, other.name, written.name, reach_bytes(written), written.data, other.name,
         reach_bytes(other), other.data);
  }
}

int32_t window_side(const char* name, int64_t value, int64_t seqlen_k) {
  if (value < 0) {
    fail(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected 0 or more (seqlen_k or more for no limit)", name,
         value);
  }
  return value >= seqlen_k ? kUnlimited : static_cast<int32_t>(value);
}

// Sides that hide no key become unlimited; a mask with both sides unlimited needs no masked kernel.
void set_mask(const fmha_fwd_params& p, Problem& problem) {
  FwdKernelParams& a = problem.args;
  a.mask_type = kMaskBottomRight;
  a.window_left = kUnlimited;
  a.window_right = kUnlimited;
  switch (p.mask) {
    case FMHA_MASK_NONE:
      break;
    case FMHA_MASK_CAUSAL:
      a.window_right = 0;
      break;
    case FMHA_MASK_CAUSAL_TOP_LEFT:
      a.mask_type = kMaskTopLeft;
      a.window_right = 0;
      break;
    case FMHA_MASK_WINDOW:
      a.window_left = window_side("window_left", p.window_left, p.seqlen_k);
      a.window_right = window_side("window_right", p.window_right, p.seqlen_k);
      break;
    default:
      fail(FMHA_INVALID_ARGUMENT, "mask = %" PRId32 ": expected one of FMHA_MASK_* (0 to 3)", p.mask);
  }
  // The first row is the one that a right side cuts most: its column is 0 (top-left) or seqlen_k - seqlen_q.
  const int64_t rows_before_end = a.mask_type == kMaskTopLeft ? p.seqlen_k : p.seqlen_q;
  if (a.window_right >= rows_before_end - 1) a.window_right = kUnlimited;
  // The last row is the one that a left side cuts most. Only bottom-right masks have one: its column is the
  // last key.
  if (a.window_left >= p.seqlen_k - 1) a.window_left = kUnlimited;
  problem.masked = p.seqlen_k > 0 && (a.window_left != kUnlimited || a.window_right != kUnlimited);
  if (!problem.masked) {
    a.mask_type = kMaskNone;
    a.window_left = kUnlimited;
    a.window_right = kUnlimited;
  }
}

void set_sizes(const fmha_fwd_params& p, Problem& problem) {
  problem.dtype = p.dtype == FMHA_FP16 ? DType::kFp16 : DType::kBf16;
  problem.batch = static_cast<int32_t>(p.batch);
  problem.nhead_k = static_cast<int32_t>(p.nhead_k);
  problem.empty = p.batch == 0 || p.seqlen_q == 0 || p.nhead_q == 0;
  FwdKernelParams& a = problem.args;
  a.seqlen_q = static_cast<int32_t>(p.seqlen_q);
  a.seqlen_k = static_cast<int32_t>(p.seqlen_k);
  a.hdim_q = static_cast<int32_t>(p.hdim_q);
  a.hdim_v = static_cast<int32_t>(p.hdim_v);
  a.nhead_q = static_cast<int32_t>(p.nhead_q);
  a.nhead_ratio_qk = static_cast<int32_t>(p.nhead_q / p.nhead_k);
}

struct KernelStrides {
  int32_t batch, seqlen, head;
};

KernelStrides kernel_strides(const View& v) {
  return {static_cast<int32_t>(v.stride[0]), static_cast<int32_t>(v.stride[1]),
          static_cast<int32_t>(v.stride[2])};
}

void set_tensors(const fmha_fwd_params& p, Pointers pointers, Problem& problem) {
  View q = make_view("q", p.q, p.batch, p.seqlen_q, p.nhead_q, p.hdim_q);
  View k = make_view("k", p.k, p.batch, p.seqlen_k, p.nhead_k, p.hdim_q);
  View v = make_view("v", p.v, p.batch, p.seqlen_k, p.nhead_k, p.hdim_v);
  View o = make_view("o", p.o, p.batch, p.seqlen_q, p.nhead_q, p.hdim_v);
  View lse = make_lse_view(p);
  for (View* tensor : {&q, &k, &v, &o}) {
    // A head dim that is no multiple of 8 has no kernel, which the selector says better than its strides.
    check_strides(*tensor, tensor->row % kAlignElements == 0 ? kAlignElements : 1);
    check_span(*tensor, tensor == &o);
    // Without a query nothing is read at all.
    tensor->touched = tensor->touched && !problem.empty;
    check_pointer(*tensor, kAlignBytes, pointers);
  }
  check_no_self_overlap(o);
  if (lse.touched) {
    check_strides(lse, 1);
    check_pointer(lse, sizeof(float), pointers);
    check_no_self_overlap(lse);
  }
  for (const View* read : {&q, &k, &v}) {
    check_disjoint(o, *read);
    check_disjoint(lse, *read);
  }
  check_disjoint(lse, o);

  FwdKernelParams& a = problem.args;
  a.q = q.touched ? p.q.data : nullptr;
  a.k = k.touched ? p.k.data : nullptr;
  a.v = v.touched ? p.v.data : nullptr;
  a.o = o.touched ? p.o.data : nullptr;
  a.lse = lse.touched ? p.lse.data : nullptr;
  const KernelStrides sq = kernel_strides(q), sk = kernel_strides(k), sv = kernel_strides(v);
  const KernelStrides so = kernel_strides(o);
  a.stride_q = sq.seqlen, a.nhead_stride_q = sq.head, a.batch_stride_q = sq.batch;
  a.stride_k = sk.seqlen, a.nhead_stride_k = sk.head, a.batch_stride_k = sk.batch;
  a.stride_v = sv.seqlen, a.nhead_stride_v = sv.head, a.batch_stride_v = sv.batch;
  a.stride_o = so.seqlen, a.nhead_stride_o = so.head, a.batch_stride_o = so.batch;
  if (lse.touched) {
    const KernelStrides sl = kernel_strides(lse);
    a.nhead_stride_lse = sl.head, a.batch_stride_lse = sl.batch;
  }
}

fmha_fwd_params read_params(const fmha_fwd_params* params) {
  check_struct_size("params", params, kParamsSmallestBytes, sizeof(fmha_fwd_params));
  fmha_fwd_params copy{};
  std::memcpy(&copy, params, std::min<size_t>(params->struct_size, sizeof copy));
  return copy;
}

}  // namespace

void check_struct_size(const char* name, const void* data, uint32_t smallest, uint32_t known) {
  if (data == nullptr) fail(FMHA_INVALID_ARGUMENT, "%s = NULL: expected a struct", name);
  uint32_t size = 0;
  std::memcpy(&size, data, sizeof size);
  if (size < smallest || size > kLargestStructBytes) {
    fail(FMHA_ABI_MISMATCH,
         "%s->struct_size = %" PRIu32 ": expected %" PRIu32 ", its sizeof in fmha_rocm.h %d.%d.%d", name,
         size, known, FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR, FMHA_VERSION_PATCH);
  }
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (uint32_t i = known; i < size; ++i) {
    if (bytes[i] != 0) {
      fail(FMHA_ABI_MISMATCH,
           "%s->struct_size = %" PRIu32 ": byte %" PRIu32
           " is set, but this library (%d.%d.%d) knows the first %" PRIu32
           " alone; expected zeros there, or a newer library",
           name, size, i, FMHA_VERSION_MAJOR, FMHA_VERSION_MINOR, FMHA_VERSION_PATCH, known);
    }
  }
}

Problem make_problem(const fmha_fwd_params* params, Pointers pointers) {
  const fmha_fwd_params p = read_params(params);
  Problem problem{};
  check_dims(p);
  problem.args.scale_log2e = check_scale(p.softmax_scale);
  set_sizes(p, problem);
  set_mask(p, problem);
  set_tensors(p, pointers, problem);
  return problem;
}

}  // namespace fmha
