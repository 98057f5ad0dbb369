// SPDX-License-Identifier: MIT OR Apache-2.0
// The live handles of one kind, which callers name by address.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace fmha::emu {

template <class T>
class Handles {
 public:
  T* add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    T* p = object.get();
    live_.emplace(p, std::move(object));
    return p;
  }
  // Null if `p` is not a live handle. The handle stays alive while the result does.
  std::shared_ptr<T> find(T* p) {
    std::shared_lock lock(mutex_);
    const auto it = live_.find(p);
    return it == live_.end() ? nullptr : it->second;
  }
  std::shared_ptr<T> remove(T* p) {
    std::lock_guard lock(mutex_);
    const auto it = live_.find(p);
    if (it == live_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(it->second);
    live_.erase(it);
    return object;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<T*, std::shared_ptr<T>> live_;
};

}  // namespace fmha::emu
