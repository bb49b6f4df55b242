// Random programs that are planned by blocks of rows and as a whole: what both give.
#pragma once

#include "engine/plan.h"
#include "support/check.h"

#include <kiln/fusion_report.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace kiln::test {

inline std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

inline std::vector<std::vector<double>> values(std::span<const Tensor> out) {
  eval(out);
  std::vector<std::vector<double>> all;
  for (const Tensor& t : out) all.push_back(astype(t, DType::Float64).eval().to_vector<double>());
  return all;
}

/// Where they differ, relative to the greatest value of a result.
inline std::string difference(const std::vector<std::vector<double>>& want,
                              const std::vector<std::vector<double>>& got, double tolerance) {
  if (want.size() != got.size()) return "another number of results";
  for (std::size_t t = 0; t < want.size(); ++t) {
    double greatest = 0;
    for (const double v : want[t]) greatest = std::max(greatest, std::abs(v));
    for (std::size_t i = 0; i < want[t].size(); ++i)
      if (!(std::abs(got[t][i] - want[t][i]) <= tolerance * (greatest + 1e-30)))
        return cat("element ", i, " of result ", t, ": ", got[t][i], ", ", want[t][i]);
  }
  return {};
}

/// Records the program's values as a whole and by blocks, which must be the same. How often blocks were made.
template <class Program>
int whole_and_by_blocks(const Program& program, double tolerance) {
  const Config before = config();
  Config whole = before;
  whole.fuse_off = {"blocks"};
  configure(whole);
  const auto want = values(program.record());
  configure(before);
  const FusionRecorder recorder;
  const auto got = values(program.record());
  EXPECT_EQ(difference(want, got, tolerance), "");
  int blocks = 0;
  for (const FusionReport& r : recorder.reports())
    for (const FusionReport::Boundary& b : r.boundaries) blocks += b.reason == FusionReason::InBlocks;
  return blocks;
}

}  // namespace kiln::test
