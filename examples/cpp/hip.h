// SPDX-License-Identifier: MIT OR Apache-2.0
// Streams, and memory of the device and the host, that end with their scope. The library owns neither.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>

inline void check_hip(hipError_t error, const char* what) {
  if (error != hipSuccess) throw std::runtime_error(std::string(what) + ": " + hipGetErrorName(error));
}

class Stream {
 public:
  Stream() { check_hip(hipStreamCreate(&stream_), "hipStreamCreate"); }
  ~Stream() { (void)hipStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator hipStream_t() const { return stream_; }
  void wait() const { check_hip(hipStreamSynchronize(stream_), "hipStreamSynchronize"); }

 private:
  hipStream_t stream_ = nullptr;
};

// `count` elements on the device, and as many on the host, pinned so that copies do not make the caller wait.
template <typename T>
class Mirrored {
 public:
  explicit Mirrored(std::size_t count) : count_(count) {
    void* memory = nullptr;
    check_hip(hipMalloc(&memory, count * sizeof(T)), "hipMalloc");
    device_ = static_cast<T*>(memory);
    const hipError_t error = hipHostMalloc(&memory, count * sizeof(T), 0);
    if (error != hipSuccess) (void)hipFree(device_);
    check_hip(error, "hipHostMalloc");
    host_ = static_cast<T*>(memory);
  }
  ~Mirrored() {
    (void)hipFree(device_);
    (void)hipHostFree(host_);
  }
  Mirrored(const Mirrored&) = delete;
  Mirrored& operator=(const Mirrored&) = delete;

  T* device() const { return device_; }
  T* host() const { return host_; }
  std::size_t count() const { return count_; }

  // Enqueued: the host's part may be touched again once the stream has come past it.
  void upload(hipStream_t stream, std::size_t first, std::size_t count) const {
    copy(device_ + first, host_ + first, count, hipMemcpyHostToDevice, stream);
  }
  void download(hipStream_t stream, std::size_t first, std::size_t count) const {
    copy(host_ + first, device_ + first, count, hipMemcpyDeviceToHost, stream);
  }

 private:
  static void copy(T* to, const T* from, std::size_t count, hipMemcpyKind kind, hipStream_t stream) {
    check_hip(hipMemcpyAsync(to, from, count * sizeof(T), kind, stream), "hipMemcpyAsync");
  }

  std::size_t count_;
  T* device_ = nullptr;
  T* host_ = nullptr;
};
