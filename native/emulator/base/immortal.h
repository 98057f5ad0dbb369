// SPDX-License-Identifier: MIT OR Apache-2.0
// One T for the process, in place: to make it takes no memory of the host's, if T's constructor takes none,
// and it is never destroyed, since threads may still run while the process ends.
#pragma once

#include <cstddef>
#include <new>

namespace fmha::emu {

template <class T>
class Immortal {
 public:
  Immortal() { new (room_) T; }
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;
  T& get() { return *std::launder(reinterpret_cast<T*>(room_)); }

 private:
  alignas(T) std::byte room_[sizeof(T)];
};

}  // namespace fmha::emu
