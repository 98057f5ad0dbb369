// SPDX-License-Identifier: MIT OR Apache-2.0
// Properties of every call of a family, for any arguments and any content of the device's arrays.
//
// A Case has `Params`, `pointer()`, `mutations`, `puts`, and by free functions is_small(case, info), which
// bounds what a launch takes, print(case), and mark_written(case, written): every element that the call may
// write. Such a call is refused with a message that names an argument, or it stays inside that.
#pragma once

#include <cinttypes>
#include <cstring>
#include <vector>

#include "device.h"
#include "fmha_rocm.h"
#include "report.h"

namespace fmha::fuzz {

template <typename Params>
struct Entries {
  const char* name;
  fmha_status (*supported)(const Params*);
  fmha_status (*kernel)(const Params*, fmha_kernel_info*);
  fmha_status (*workspace_bytes)(const Params*, int64_t*);  // nullptr: it needs none
  fmha_status (*extents)(const Params*, fmha_extent*, int32_t, int32_t*);
  fmha_status (*prepare)(const Params*);
  fmha_status (*run)(const Params*, void*);
};

// Integers that a region begins with when the case runs.
struct Put {
  Region region;
  std::vector<int32_t> values;
};
using Puts = std::vector<Put>;

// Takes what a call may write from `now` to `before`.
class Written {
 public:
  Written(const Device& device, const std::vector<fmha_extent>& extents, std::vector<uint8_t>& before,
          const std::vector<uint8_t>& now)
      : device_(device), extents_(extents), before_(before), now_(now) {}

  // `count` bytes from `byte` of a tensor on.
  void take(const void* data, int64_t byte, int64_t count) const {
    const auto* at = static_cast<const uint8_t*>(data) + byte;
    for (const fmha_extent& e : extents_) {
      const auto* begin = static_cast<const uint8_t*>(e.data);
      if (e.written == 0 || at < begin || at + count > begin + e.bytes) continue;
      const size_t place = device_.place(at);
      std::memcpy(before_.data() + place, now_.data() + place, static_cast<size_t>(count));
      return;
    }
    report("the extents leave out %" PRId64 " bytes that are written", count);
  }

 private:
  const Device& device_;
  const std::vector<fmha_extent>& extents_;
  std::vector<uint8_t>& before_;
  const std::vector<uint8_t>& now_;
};

template <typename Case>
class Judge {
  using Params = typename Case::Params;

 public:
  Judge(const Case& c, const Entries<Params>& entries, Device& device, Counts& counts)
      : c_(c), call_(entries), device_(device), counts_(counts) {}

  void judge() {
    ++counts_.cases;
    print_case = [this] { print(c_); };
    for (const Put& put : c_.puts)
      device_.put(put.region, put.values.data(), put.values.size() * sizeof(int32_t));
    status_ = call_.supported(c_.pointer());
    if (c_.mutations == 0 && status_ != FMHA_OK && status_ != FMHA_UNSUPPORTED) {
      report("a problem that makes sense got status %" PRId32, status_);
    }
    if (status_ != FMHA_OK) check_refusal(call_.name, status_, device_);
    ask_kernel();
    ask_workspace();
    ask_extents();
    status_ == FMHA_OK ? judge_accepted() : judge_refused();
  }

 private:
  void agree(const char* what, fmha_status status) {
    if (status != status_) {
      report("%s_%s gave %" PRId32 ", supported gave %" PRId32, call_.name, what, status, status_);
    }
    if (status != FMHA_OK) check_refusal(call_.name, status, device_);
  }

  void ask_kernel() {
    info_ = {};
    info_.struct_size = sizeof info_;
    agree("kernel", call_.kernel(c_.pointer(), &info_));
    if (status_ == FMHA_OK && (info_.name == nullptr || info_.tile_m <= 0 || info_.block_size <= 0)) {
      report("%s_kernel left fields out", call_.name);
    }
  }

  void ask_workspace() {
    if (call_.workspace_bytes == nullptr) return;
    int64_t bytes = -1;
    agree("workspace_bytes", call_.workspace_bytes(c_.pointer(), &bytes));
    if (status_ == FMHA_OK ? bytes < 0 : bytes != -1) report("a workspace of %" PRId64 " bytes", bytes);
    needed_ = status_ == FMHA_OK ? bytes : 0;
  }

  void ask_extents() {
    constexpr int32_t kMost = 17;
    extents_.assign(kMost, {});
    int32_t count = -1;
    const fmha_status status = call_.extents(c_.pointer(), extents_.data(), kMost, &count);
    if (status != FMHA_OK) {
      if (status_ == FMHA_OK) report("%s_extents gave %" PRId32 " for what is supported", call_.name, status);
      check_refusal(call_.name, status, device_);
      count = 0;
    }
    if (count < 0 || count > kMost) report("%" PRId32 " extents", count);
    extents_.resize(static_cast<size_t>(count));
    for (const fmha_extent& e : extents_) {
      if (e.name == nullptr || e.bytes <= 0 || e.bytes > int64_t{1} << 57 || e.written < 0 || e.written > 1) {
        report("the extent of %s makes no sense", e.name != nullptr ? e.name : "nothing");
      }
    }
  }

  void judge_refused() {
    ++counts_.refused;
    agree("prepare", call_.prepare(c_.pointer()));
    const fmha_status status = call_.run(c_.pointer(), nullptr);
    // Only the call itself looks at NULL tensors, which may come before what the others found.
    if (status != status_ && status != FMHA_INVALID_ARGUMENT) {
      report("%s gave %" PRId32 ", supported gave %" PRId32, call_.name, status, status_);
    }
    check_refusal(call_.name, status, device_);
    check_untouched(call_.name, device_);
  }

  void judge_accepted() {
    ++counts_.accepted;
    if (call_.prepare(c_.pointer()) != FMHA_OK) report("%s_prepare refused what is supported", call_.name);
    check_untouched(call_.name, device_);
    bool inside = true;
    for (const fmha_extent& e : extents_) {
      if (e.data == nullptr) return expect_refusal(e.name);
      inside = inside && device_.holds(e.data, static_cast<uint64_t>(e.bytes));
    }
    if (needed_ > 0) {
      if (c_.workspace() == nullptr) return expect_refusal("workspace");
      if (!device_.is_workspace(c_.workspace(), static_cast<size_t>(needed_))) return;
      if (reinterpret_cast<uintptr_t>(c_.workspace()) % 256 != 0) return expect_refusal("workspace");
      if (c_.workspace_bytes() < needed_) return expect_refusal("workspace_bytes");
    }
    if (inside && is_small(c_, info_)) run();
  }

  void expect_refusal(const char* what) {
    const fmha_status status = call_.run(c_.pointer(), nullptr);
    if (status != FMHA_INVALID_ARGUMENT) report("%s gave %" PRId32 " for %s", call_.name, status, what);
    check_refusal(call_.name, status, device_);
    check_untouched(call_.name, device_);
  }

  void run() {
    ++(info_.step_count == 0 ? counts_.empty : counts_.launched);
    std::vector<uint8_t> before = device_.contents();
    const fmha_status status = call_.run(c_.pointer(), nullptr);
    if (status != FMHA_OK) report("%s gave %" PRId32 " for what is supported", call_.name, status);
    const char* fault = nullptr;
    device_.synchronize(&fault);
    if (fault != nullptr) report("the device stopped: %s", fault);
    const std::vector<uint8_t> now = device_.contents();
    if (info_.step_count > 0) mark_written(c_, needed_ > 0, Written(device_, extents_, before, now));
    if (const char* region = difference(before, now)) {
      report("%s wrote where it may not, to %s", call_.name, region);
    }
    device_.restore();
  }

  const Case& c_;
  const Entries<Params>& call_;
  Device& device_;
  Counts& counts_;
  fmha_status status_ = FMHA_OK;
  fmha_kernel_info info_{};
  int64_t needed_ = 0;
  std::vector<fmha_extent> extents_;
};

// Judges the call that `make` makes of an input, for a family's LLVMFuzzerTestOneInput.
template <class Make, class Params>
void judge_input(const uint8_t* data, size_t size, Make make, const Entries<Params>& entries) {
  static Counts counts;
  print_counts_at_exit(counts);
  Device& device = Device::get();
  Bytes bytes(data, size);
  const auto c = make(bytes, device);
  Judge(c, entries, device, counts).judge();
}

}  // namespace fmha::fuzz
