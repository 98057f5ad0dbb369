// SPDX-License-Identifier: MIT OR Apache-2.0
#include "model/sample.h"

#include <algorithm>

namespace fmha::emu {
namespace {

void sort_unique(auto& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// The points of an axis of `n`: evenly from the first to the last, the middle, and one more.
std::vector<uint32_t> axis_points(uint32_t n, uint32_t points, uint32_t also) {
  std::vector<uint32_t> at{n / 2};
  if (points > 1 && also < n) at.push_back(also);
  for (uint32_t i = 0; points > 1 && i < points; ++i)
    at.push_back(static_cast<uint32_t>(uint64_t{i} * (n - 1) / (points - 1)));
  sort_unique(at);
  return at;
}

// Linear between what is known at `points`.
double between(const std::vector<uint32_t>& points, const std::vector<double>& values, uint32_t x) {
  const auto right = std::lower_bound(points.begin(), points.end(), x);
  if (right == points.end()) return values.back();
  const auto i = static_cast<size_t>(right - points.begin());
  if (*right == x || i == 0) return values[i];
  const double share = double(x - points[i - 1]) / double(points[i] - points[i - 1]);
  return values[i - 1] + share * (values[i] - values[i - 1]);
}

}  // namespace

Sample::Sample(const uint32_t (&grid)[3], uint32_t points) {
  for (int axis = 0; axis < 3; ++axis) {
    grid_[axis] = grid[axis];
    middle_[axis] = grid[axis] / 2;
    points_[axis] = axis_points(grid[axis], points, axis == 2 ? 1 : 0);
  }
  for (int axis = 0; axis < 3; ++axis) {
    for (const uint32_t x : points_[axis]) {
      uint32_t at[3] = {middle_[0], middle_[1], middle_[2]};
      at[axis] = x;
      workgroups_.push_back(number(at));
    }
  }
  sort_unique(workgroups_);
}

bool Sample::has(uint64_t workgroup) const {
  return std::binary_search(workgroups_.begin(), workgroups_.end(), workgroup);
}

Sample::Fit::Fit(const Sample& sample, const std::map<uint64_t, double>& known)
    : sample_(sample), middle_(known.at(sample.middle())) {
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<double> values;
    for (const uint32_t x : sample.points_[axis]) {
      uint32_t at[3] = {sample.middle_[0], sample.middle_[1], sample.middle_[2]};
      at[axis] = x;
      values.push_back(middle_ > 0 ? known.at(sample.number(at)) / middle_ : 1);
    }
    for (uint32_t x = 0; x < sample.grid_[axis]; ++x)
      factor_[axis].push_back(between(sample.points_[axis], values, x));
  }
}

double Sample::Fit::of(uint64_t workgroup) const {
  const uint64_t x = workgroup % sample_.grid_[0], rest = workgroup / sample_.grid_[0];
  return middle_ * factor_[0][x] * factor_[1][rest % sample_.grid_[1]] * factor_[2][rest / sample_.grid_[1]];
}

double Sample::Fit::total() const {
  double product = middle_;
  for (const auto& factors : factor_) {
    double sum = 0;
    for (const double f : factors) sum += f;
    product *= sum;
  }
  return product;
}

}  // namespace fmha::emu
