// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace fmha::emu {

// JSON, written from front to back.
class Json {
 public:
  Json& open(const char* name) { return key(name), text_ += '{', *this; }
  Json& close() { return text_ += '}', *this; }
  Json& number(const char* name, uint64_t value) { return key(name), text_ += std::to_string(value), *this; }
  Json& real(const char* name, double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", value);
    return key(name), text_ += digits, *this;
  }
  Json& string(const char* name, const std::string& value) {
    key(name);
    text_ += '"';
    for (const char c : value) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c) & 0xff);
      if (c == '"' || c == '\\' || (static_cast<unsigned char>(c) < 0x20)) {
        text_ += escaped;
      } else {
        text_ += c;
      }
    }
    text_ += '"';
    return *this;
  }
  Json& triple(const char* name, const uint32_t (&v)[3]) {
    key(name);
    text_ += '[' + std::to_string(v[0]) + ',' + std::to_string(v[1]) + ',' + std::to_string(v[2]) + ']';
    return *this;
  }
  // Elements have no name (nullptr).
  Json& open_array(const char* name) { return key(name), text_ += '[', *this; }
  Json& close_array() { return text_ += ']', *this; }
  const std::string& text() const { return text_; }

 private:
  void key(const char* name) {
    if (!text_.empty() && text_.back() != '{' && text_.back() != '[') text_ += ',';
    if (name) text_ += '"' + std::string(name) + "\":";
  }
  std::string text_;
};

}  // namespace fmha::emu
