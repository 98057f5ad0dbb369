// SPDX-License-Identifier: MIT OR Apache-2.0
#include "mutate.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <limits>

#include "fields.h"

namespace fmha::fuzz {
namespace {

struct Forward {
  using Params = fmha_fwd_params;
  static constexpr Field kFields[] = {
      INT32(dtype),
      INT64(batch),
      INT64(seqlen_q),
      INT64(seqlen_k),
      INT64(nhead_q),
      INT64(nhead_k),
      INT64(hdim_q),
      INT64(hdim_v),
      FLOAT(softmax_scale),
      INT32(mask),
      INT64(window_left),
      INT64(window_right),
      TENSOR(q),
      TENSOR(k),
      TENSOR(v),
      TENSOR(o),
      POINTER(lse.data),
      INT64(lse.stride_batch),
      INT64(lse.stride_head),
      INT32(o_dtype),
      FLOAT(softcap),
      TENSOR(bias),
      POINTER(alibi_slopes),
      INT64(alibi_stride_batch),
      POINTER(cu_seqlens_q),
      POINTER(cu_seqlens_k),
      POINTER(seqused_q),
      POINTER(seqused_k),
      INT64(total_q),
      INT64(total_k),
      FLOAT(p_drop),
      INT32(kernel),
      UINT64(philox_seed),
      UINT64(philox_offset),
      POINTER(philox_seed_offset),
      TENSOR(randval),
      FLOAT(q_descale),
      FLOAT(k_descale),
      FLOAT(v_descale),
      INT32(reserved),
      POINTER(workspace),
      INT64(workspace_bytes),
      POINTER(sinks),
  };
};

struct Backward {
  using Params = fmha_bwd_params;
  static constexpr Field kFields[] = {
      INT32(grad_dtype),  POINTER(fwd),           TENSOR(dout),         TENSOR(dq),    TENSOR(dk),
      TENSOR(dv),         INT32(accumulate),      INT32(deterministic), INT32(kernel), INT32(reserved),
      POINTER(workspace), INT64(workspace_bytes), TENSOR(dbias),
  };
};

template <typename Number>
Number read(const void* params, const Field& f) {
  Number value;
  std::memcpy(&value, static_cast<const char*>(params) + f.offset, sizeof value);
  return value;
}

template <typename Number>
void write(void* params, const Field& f, Number value) {
  std::memcpy(static_cast<char*>(params) + f.offset, &value, sizeof value);
}

int64_t wrong_int64(Bytes& bytes, int64_t value) {
  constexpr int64_t kValues[] = {0,
                                 -1,
                                 1,
                                 7,
                                 8,
                                 3,
                                 INT32_MAX,
                                 INT64_MAX,
                                 INT64_MIN,
                                 INT32_MIN,
                                 65535,
                                 65536,
                                 1 << 29,
                                 1 << 30,
                                 1L << 31,
                                 1L << 32,
                                 (1 << 29) - 256,
                                 1L << 61,
                                 (1L << 62) + 1};
  switch (bytes.below(8)) {
    case 0:
      return static_cast<int64_t>(static_cast<uint64_t>(value) + 8);
    case 1:
      return static_cast<int64_t>(static_cast<uint64_t>(value) + 1);
    case 2:
      return static_cast<int64_t>(static_cast<uint64_t>(value) * 2);
    case 3:
      return value / 2;
    case 4:
      return bytes.take<uint16_t>();
    case 5:
      return bytes.take<int64_t>();
    default:
      return bytes.one_of(kValues);
  }
}

int32_t wrong_int32(Bytes& bytes, int32_t value) {
  constexpr int32_t kValues[] = {0, 1, 2, 3, 4, 5, -1, 6, 17, INT32_MAX, INT32_MIN, 256};
  switch (bytes.below(4)) {
    case 0:
      return static_cast<int32_t>(static_cast<uint32_t>(value) + 1);
    case 1:
      return bytes.take<int32_t>();
    default:
      return bytes.one_of(kValues);
  }
}

float wrong_float(Bytes& bytes) {
  using Limits = std::numeric_limits<float>;
  constexpr float kValues[] = {0.0F,
                               -0.0F,
                               1.0F,
                               -1.0F,
                               0.5F,
                               2.0F,
                               Limits::quiet_NaN(),
                               Limits::infinity(),
                               -Limits::infinity(),
                               Limits::max(),
                               Limits::denorm_min(),
                               Limits::min(),
                               0.99999994F,
                               1e-30F,
                               1e30F,
                               1e-3F};
  return bytes.chance(6) ? bytes.take<float>() : bytes.one_of(kValues);
}

uintptr_t wrong_pointer(Bytes& bytes, const Device& device, uintptr_t value) {
  static char host[256];
  constexpr uintptr_t kSteps[] = {2, 4, 8, 16, 1, 256};
  const auto region = static_cast<Region>(bytes.below(kRegionCount));
  const auto start = reinterpret_cast<uintptr_t>(device.start(region));
  switch (bytes.below(10)) {
    case 0:
      return 0;
    case 1:
      return value + bytes.one_of(kSteps);
    case 2:
      return start;
    case 3:
      return start + Device::bytes(region);
    case 4:
      return start + Device::bytes(region) - bytes.one_of(kSteps);
    case 5:
      return start + bytes.take<uint16_t>();
    case 6:
      return reinterpret_cast<uintptr_t>(host);
    case 7:
      return reinterpret_cast<uintptr_t>(device.other_device());
    case 8:
      return reinterpret_cast<uintptr_t>(device.freed());
    default:
      return bytes.take<uintptr_t>();
  }
}

}  // namespace

std::span<const Field> fields_of(const fmha_fwd_params& /*params*/) { return Forward::kFields; }
std::span<const Field> fields_of(const fmha_bwd_params& /*params*/) { return Backward::kFields; }

void mutate(Bytes& bytes, const Device& device, std::span<const Field> fields, void* params) {
  const Field& f = fields[bytes.below(static_cast<uint32_t>(fields.size()))];
  switch (f.kind) {
    case Kind::kInt64:
      write(params, f, wrong_int64(bytes, read<int64_t>(params, f)));
      break;
    case Kind::kInt32:
      write(params, f, wrong_int32(bytes, read<int32_t>(params, f)));
      break;
    case Kind::kFloat:
      write(params, f, wrong_float(bytes));
      break;
    case Kind::kPointer:
      write(params, f, wrong_pointer(bytes, device, read<uintptr_t>(params, f)));
      break;
    case Kind::kUint64:
      write(params, f, bytes.take<uint64_t>());
      break;
  }
}

void print(std::span<const Field> fields, const void* params) {
  for (const Field& f : fields) {
    switch (f.kind) {
      case Kind::kInt64:
        std::fprintf(stderr, "%s = %" PRId64 "\n", f.name, read<int64_t>(params, f));
        break;
      case Kind::kInt32:
        std::fprintf(stderr, "%s = %" PRId32 "\n", f.name, read<int32_t>(params, f));
        break;
      case Kind::kFloat:
        std::fprintf(stderr, "%s = %.9g\n", f.name, static_cast<double>(read<float>(params, f)));
        break;
      case Kind::kPointer:
      case Kind::kUint64:
        std::fprintf(stderr, "%s = %#" PRIx64 "\n", f.name, read<uint64_t>(params, f));
        break;
    }
  }
}

}  // namespace fmha::fuzz
