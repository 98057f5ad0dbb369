// SPDX-License-Identifier: MIT OR Apache-2.0
// A comma-separated list for a message. Fixed size, so that an error path allocates nothing; what does not
// fit is cut off.
#pragma once

#include <cstddef>
#include <cstdio>

namespace fmha {

class ItemList {
 public:
  const char* c_str() const { return text_; }
  bool is_empty() const { return length_ == 0; }

  void add(const char* item) {
    const int written =
        std::snprintf(text_ + length_, sizeof text_ - length_, "%s%s", is_empty() ? "" : ", ", item);
    if (written > 0) length_ += static_cast<size_t>(written);
    if (length_ >= sizeof text_) length_ = sizeof text_ - 1;
  }

 private:
  char text_[512] = "";
  size_t length_ = 0;
};

}  // namespace fmha
