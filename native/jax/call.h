// SPDX-License-Identifier: MIT OR Apache-2.0
// A custom call as calls of fmha_fwd.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fmha_rocm.h"
#include "frame.h"

namespace fmha::jax {

// The numbers of buffers in the attribute's parameters are replaced by their addresses, after a check that
// each buffer holds all that the parameters say is there: a program may have been stored, and not only by us.
class Call {
 public:
  explicit Call(const XLA_FFI_CallFrame& frame);

  // How many launches it is.
  int64_t repeats() const { return repeats_; }
  fmha_fwd_params params(int64_t repeat) const;  // repeat < repeats()

  // Like params(0), but without the addresses of q, k, v and o, which fmha_prepare does not look at.
  fmha_fwd_params prepared() const;

  // The buffers that a launch is given. None is empty.
  const std::vector<Buffer>& used() const { return used_; }

 private:
  void read_params(std::span<const int64_t> words);
  void read_repeats(const XLA_FFI_CallFrame& frame);
  void resolve(const char* name, size_t offset, int64_t bytes);

  struct Pointer {
    size_t offset;  // in the parameters
    size_t buffer;
  };

  fmha_fwd_params params_{};
  std::vector<Buffer> buffers_, used_;
  std::vector<Pointer> pointers_;
  std::span<const int64_t> counts_, steps_;
  int64_t repeats_ = 1;
};

}  // namespace fmha::jax
