// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

// Fields of a params struct, as the fuzzer changes and prints them.
#include <cstddef>
#include <span>

#include "bytes.h"
#include "device.h"
#include "fmha_rocm.h"

namespace fmha::fuzz {

enum class Kind { kInt64, kInt32, kFloat, kPointer, kUint64 };

struct Field {
  const char* name;
  size_t offset;
  Kind kind;
};

std::span<const Field> fields_of(const fmha_fwd_params& params);
std::span<const Field> fields_of(const fmha_bwd_params& params);
std::span<const Field> fields_of(const fmha_cache& cache);
std::span<const Field> fields_of(const fmha_decode_params& params);
std::span<const Field> fields_of(const fmha_kv_append_params& params);
std::span<const Field> fields_of(const fmha_merge_params& params);
std::span<const Field> fields_of(const fmha_quantize_params& params);

// Sets one of these fields of a struct to something a caller might get wrong, or to anything at all.
void mutate(Bytes& bytes, const Device& device, std::span<const Field> fields, void* params);

// One a line.
void print(std::span<const Field> fields, const void* params);

}  // namespace fmha::fuzz
