// SPDX-License-Identifier: MIT OR Apache-2.0
// One T a thread, made when the thread first asks and gone when it ends. For thread_local objects that have a
// destructor, or take room, the C library ends the process if the host has no memory; this throws
// std::bad_alloc.
#pragma once

#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <new>

// A number of the thread's own: room for it comes with the thread, so that using it cannot fail.
#define FMHA_THREAD_NUMBER [[gnu::tls_model("initial-exec")]] thread_local

namespace fmha::emu {

// A new thread asks this first.
inline bool host_has_memory() {
  constexpr size_t kEnough = 65536;
  void* volatile p = std::malloc(kEnough);
  std::free(p);
  return p != nullptr;
}

// Never destroyed: threads may still run while the process ends.
template <class T>
class PerThread {
 public:
  PerThread() {
    if (pthread_key_create(&key_, [](void* p) { delete static_cast<T*>(p); })) throw std::bad_alloc();
  }
  T& get() {
    if (void* p = pthread_getspecific(key_)) return *static_cast<T*>(p);
    auto made = std::make_unique<T>();
    if (pthread_setspecific(key_, made.get())) throw std::bad_alloc();
    return *made.release();
  }

 private:
  pthread_key_t key_;
};

// This thread's T: one type, one purpose.
template <class T>
T& per_thread() {
  static auto* all = new PerThread<T>;
  return all->get();
}

}  // namespace fmha::emu
