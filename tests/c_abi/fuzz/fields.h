// SPDX-License-Identifier: MIT OR Apache-2.0
// How a list of a struct's fields is written: `Params` is the struct.
#pragma once

#include <cstddef>

#include "mutate.h"

#define INT64(name) {#name, offsetof(Params, name), Kind::kInt64}
#define INT32(name) {#name, offsetof(Params, name), Kind::kInt32}
#define FLOAT(name) {#name, offsetof(Params, name), Kind::kFloat}
#define POINTER(name) {#name, offsetof(Params, name), Kind::kPointer}
#define UINT64(name) {#name, offsetof(Params, name), Kind::kUint64}
#define TENSOR(name) \
  POINTER(name.data), INT64(name.stride_batch), INT64(name.stride_seqlen), INT64(name.stride_head)
