// SPDX-License-Identifier: MIT OR Apache-2.0
// The workgroups that stand for a launch, and the estimate of the whole launch from them.
//
// Points lie on each axis of the grid: the first, the middle, the last and as many between as are asked for,
// with the other two coordinates in the middle of theirs. On the last axis the second is one too: a kernel of
// two kinds of workgroups has the first kind in front. Any workgroup then counts as the middle one times a
// factor for each of its coordinates, linear between the points: right where cost depends on one coordinate
// (the block of rows of a causal problem), or on each by itself. It is wrong for kernels that fold several
// meanings into one coordinate, or fetch their work from a queue.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace fmha::emu {

class Sample {
 public:
  Sample() = default;
  // `points` of each axis, at least 1; 0: every workgroup.
  Sample(const uint32_t (&grid)[3], uint32_t points);
  // Numbers of the workgroups, ascending.
  const std::vector<uint64_t>& workgroups() const { return workgroups_; }
  bool has(uint64_t workgroup) const;
  uint64_t middle() const { return number(middle_); }

  // A quantity known for the sampled workgroups, for any.
  class Fit {
   public:
    Fit(const Sample& sample, const std::map<uint64_t, double>& known);
    double of(uint64_t workgroup) const;
    double total() const;  // over the grid

   private:
    const Sample& sample_;
    double middle_;
    std::vector<double> factor_[3];  // by coordinate
  };

 private:
  uint64_t number(const uint32_t (&at)[3]) const {
    return at[0] + uint64_t{grid_[0]} * (at[1] + uint64_t{grid_[1]} * at[2]);
  }
  uint32_t grid_[3] = {1, 1, 1};
  uint32_t middle_[3] = {0, 0, 0};
  std::vector<uint32_t> points_[3];
  std::vector<uint64_t> workgroups_;
};

}  // namespace fmha::emu
