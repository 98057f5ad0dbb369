// SPDX-License-Identifier: MIT OR Apache-2.0
// A custom call as calls of fmha_fwd.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fmha_rocm.h"
#include "frame.h"

namespace fmha::jax {

// Raises what the library says of a call that it refuses.
void check(const fmha_jax_library& library, fmha_status status);

// The numbers of buffers in the attribute's parameters are replaced by their addresses, after a check that
// each buffer holds all that the parameters say is there: a program may have been stored, and not only by us.
class Call {
 public:
  Call(const XLA_FFI_CallFrame& frame, const fmha_jax_library& library);

  // How many launches it is.
  int64_t repeats() const { return repeats_; }
  fmha_fwd_params params(int64_t repeat) const;  // repeat < repeats()

  // Like params(0), but without the addresses of q, k, v and o, which fmha_fwd_prepare does not look at.
  fmha_fwd_params prepared() const;

  // The buffers that a launch is given. None is empty.
  const std::vector<Buffer>& used() const { return used_; }

 private:
  void read_params(std::span<const int64_t> words);
  void read_repeats(const XLA_FFI_CallFrame& frame);
  void read_pointer(const char* name, size_t offset);
  void check_buffers(const fmha_jax_library& library) const;

  struct Pointer {
    const char* name;  // in the parameters, as fmha_extent has it
    size_t offset;
    size_t buffer;
  };
  void check_buffer(const Pointer& pointer, int64_t bytes) const;

  fmha_fwd_params params_{};
  std::vector<Buffer> buffers_, used_;
  std::vector<Pointer> pointers_;
  std::span<const int64_t> counts_, steps_;
  int64_t repeats_ = 1;
};

}  // namespace fmha::jax
