// SPDX-License-Identifier: MIT OR Apache-2.0
#include "ops/operator.h"

namespace fmha::onnxruntime {

std::unique_ptr<Operator> make_operator(const Node& node) {
  struct Entry {
    const char* domain;
    const char* type;
    std::unique_ptr<Operator> (*make)(const Node& node);
  };
  static constexpr Entry kOperators[] = {
      {"com.microsoft", "MultiHeadAttention", make_multi_head},
      {"com.microsoft", "GroupQueryAttention", make_group_query},
      {"com.microsoft", "PagedAttention", make_paged},
      {"", "Attention", make_attention},
  };
  for (const Entry& entry : kOperators) {
    if (node.domain() == entry.domain && node.type() == entry.type) return entry.make(node);
  }
  return nullptr;
}

}  // namespace fmha::onnxruntime
