// SPDX-License-Identifier: MIT OR Apache-2.0
// A custom call as calls of one of the library's functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fmha_rocm.h"
#include "frame.h"

namespace fmha::jax {

enum class Pass { kForward, kBackward, kDecode, kAppend, kMerge };

// The numbers of buffers in the attributes' parameters are replaced by their addresses, after a check that
// each buffer holds all that the parameters say is there: a program may have been stored, and not only by us.
class Call {
 public:
  Call(const XLA_FFI_CallFrame& frame, const fmha_jax_library& library, Pass pass);

  // Enqueues all launches.
  void launch(void* stream) const;

  // Loads the kernels of the launches. The addresses of tensors mean nothing yet.
  void prepare() const;

  // The buffers that a launch is given. None is empty.
  const std::vector<Buffer>& used() const { return used_; }

 private:
  // Each pass reads some of them. Those that point to others are linked to them when they are used.
  struct Params {
    fmha_fwd_params fwd;
    fmha_bwd_params bwd;
    fmha_cache cache;
    fmha_decode_params decode;
    fmha_kv_append_params append;
    fmha_merge_params merge;
    bool has_cache;
  };
  struct Field {
    const char* name;  // as the pass's extents have it, with "fwd->" in the forward pass too
    size_t offset;     // in Params
  };
  struct Pointer {
    Field field;
    size_t buffer;
  };
  static const Field kForwardFields[], kBackwardFields[], kCacheFields[], kDecodeFields[], kAppendFields[],
      kMergeFields[];

  static void link(Params& params);
  const char* name_of(const Field& field) const;
  void check(fmha_status status) const;
  fmha_status list_extents(const Params& params, std::span<fmha_extent> extents, int32_t* count) const;
  fmha_status run(const Params& params, void* stream) const;
  void prepare_linked(Params& params) const;
  void read_params(const XLA_FFI_CallFrame& frame);
  void read_repeats(const XLA_FFI_CallFrame& frame);
  void read_pointers(std::span<const Field> fields);
  void check_buffers() const;
  void check_buffer(const Pointer& pointer, int64_t bytes) const;
  void place_workspace(Params& params) const;
  void drop_small_workspace(fmha_fwd_params& fwd) const;
  Params params(int64_t repeat) const;  // repeat < repeats_

  const fmha_jax_library& library_;
  const Pass pass_;
  Params params_{};
  std::vector<Buffer> buffers_, used_;
  std::vector<Pointer> pointers_;
  std::span<const int64_t> counts_, steps_;
  int64_t repeats_ = 1;  // how many launches it is
};

}  // namespace fmha::jax
