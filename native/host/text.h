// SPDX-License-Identifier: MIT OR Apache-2.0
// A comma-separated list for a message. Fixed size, so that an error path allocates nothing; what does not
// fit is cut off.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace fmha {

class ItemList {
 public:
  const char* c_str() const { return text_; }
  bool is_empty() const { return length_ == 0; }

  void add(const char* item) { add_format("%s", item); }

  [[gnu::format(printf, 2, 3)]] void add_format(const char* format, ...) {
    if (!is_empty()) grow(std::snprintf(text_ + length_, sizeof text_ - length_, ", "));
    va_list arguments;
    va_start(arguments, format);
    grow(std::vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments));
    va_end(arguments);
  }

 private:
  void grow(int written) {
    if (written > 0) length_ += static_cast<size_t>(written);
    if (length_ >= sizeof text_) length_ = sizeof text_ - 1;
  }

  char text_[512] = "";
  size_t length_ = 0;
};

}  // namespace fmha
