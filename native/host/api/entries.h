// SPDX-License-Identifier: MIT OR Apache-2.0
// The C entries of a family, whichever it is: each runs its body under the guard.
//
// A family F has: Params and Problem; Structs, copies of its params and of what they point to, and
// structs_of(), where the caller has these; Offers and ask(), what is said of a problem before any kernel is
// looked at, and fails if none could do it; Choice and choose(); plan(); and what callers are told.
// make_problem, rebind and check_overlaps are overloads of problem/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "api/alike.h"
#include "api/answers.h"
#include "api/remembered.h"
#include "error.h"
#include "fmha_rocm.h"
#include "hip/runtime.h"
#include "launch/device.h"
#include "plan/plan.h"
#include "select/choose.h"

namespace fmha {

template <typename F>
class Call {
 public:
  using Params = typename F::Params;

  // Every entry that runs, or could, does this first: checks the arguments, then whose memory the tensors are
  // in, chooses the kernel and plans the call. Candidates are counted for the entry that tells of them;
  // nothing is remembered then, nor of a struct of an older header.
  Call(const Params* params, Pointers pointers, bool counted = false, void* stream = nullptr)
      : can_remember_(!counted && is_current(params) && are_current(F::structs_of(*params))),
        entry_(Memory::at<F>(can_remember_ ? F::number(*params) : 0)) {
    const bool is_known = can_remember_ && entry_.used && entry_.pointers == pointers && is_like(*params);
    typename F::Offers offers;
    if (is_known) {
      rebind(*params, problem());
    } else {
      entry_.used = false;
      F::make_problem(params, pointers, problem());
      F::ask(problem(), offers);
    }
    check_overlaps(problem());
    device_ = &Device::current();
    memory_ = {problem().checks_memory, stream};
    device_->check_memory(F::extents(problem()), memory_);
    if (!is_known) {
      choose(offers, counted);
    } else if (entry_.device != device_) {
      F::ask(problem(), offers);
      choose(offers, counted);
    }
    F::plan(entry_.choice, problem(), device_->target(), plan_);
    if (!is_known && can_remember_) remember(*params, pointers);
  }

  const typename F::Choice& choice() const { return entry_.choice; }
  const typename F::Problem& problem() const { return entry_.problem; }
  const Plan& plan() const { return plan_; }

  void prepare() {
    device_->prepare(plan_);
    if constexpr (F::kDoesWithoutWorkspace) {
      if (plan_.needed_bytes() != 0) prepare_without();
    }
  }

  void run(void* stream) {
    if constexpr (F::kWorkspaceQuery != nullptr) {
      device_->check_plan_workspace(plan_, problem().workspace, F::extents(problem()), F::kWorkspaceQuery,
                                    memory_);
    }
    device_->run(plan_, stream);
  }

 private:
  typename F::Problem& problem() { return entry_.problem; }

  template <typename... S>
  static bool are_current(const std::tuple<const S*...>& structs) {
    return std::apply([](const auto*... s) { return (is_current(s) && ...); }, structs);
  }

  bool is_like(const Params& params) const {
    const auto given = F::structs_of(params);
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return (are_alike(*std::get<I>(given), std::get<I>(entry_.structs)) && ...);
    }(std::make_index_sequence<std::tuple_size_v<typename F::Structs>>());
  }

  void choose(const typename F::Offers& offers, bool counted) {
    entry_.choice = F::choose(problem(), offers, device_->target(), counted);
    entry_.device = device_;
  }

  void remember(const Params& params, Pointers pointers) {
    std::apply([&](const auto*... s) { entry_.structs = {*s...}; }, F::structs_of(params));
    entry_.pointers = pointers;
    entry_.used = true;
  }

  // A call that would use a workspace may come without one.
  void prepare_without() {
    entry_.used = false;
    problem().may_use_workspace = false;
    typename F::Offers offers;
    F::ask(problem(), offers);
    choose(offers, false);
    Plan without;
    F::plan(entry_.choice, problem(), device_->target(), without);
    device_->prepare(without);
  }

  const bool can_remember_;
  Remembered<F>& entry_;
  Device* device_;
  MemoryCheck memory_;
  Plan plan_;
};

template <typename F>
struct Entries {
  using Params = typename F::Params;

  static fmha_status supported(const Params* params) {
    return guard([&] { Call<F>(params, Pointers::kOptional); });
  }

  static fmha_status kernel(const Params* params, fmha_kernel_info* info) {
    return guard([&] {
      check_info(info);
      const Call<F> call(params, Pointers::kOptional, true);
      const Chosen& chosen = *F::chosen(call.choice());
      describe(chosen, F::tile(*chosen.kernel, call.problem()), call.plan(), info);
    });
  }

  static fmha_status workspace_bytes(const Params* params, int64_t* bytes) {
    return guard([&] {
      check_bytes(bytes);
      *bytes = Call<F>(params, Pointers::kOptional).plan().needed_bytes();
    });
  }

  static fmha_status extents(const Params* params, fmha_extent* extents, int32_t capacity, int32_t* count) {
    return guard([&] {
      check_extents_room(extents, capacity, count);
      typename F::Problem problem;
      F::make_problem(params, Pointers::kOptional, problem);
      write_extents(F::extents(problem), extents, capacity, count);
    });
  }

  static fmha_status prepare(const Params* params) {
    return guard([&] { Call<F>(params, Pointers::kOptional).prepare(); });
  }

  static fmha_status run(const Params* params, void* stream) {
    return guard([&] {
      if (stream == kHipStreamLegacy) stream = nullptr;
      Call<F>(params, Pointers::kRequired, false, stream).run(stream);
    });
  }
};

}  // namespace fmha
