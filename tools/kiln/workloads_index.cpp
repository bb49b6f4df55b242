// Programs whose memory accesses depend on their data: gathers, scatters, sorts.
#include "checks.h"
#include "workload.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kiln::tool {

Workload gather_row_sum() {
  constexpr std::int64_t kRows = 32768, kWidth = 768;
  Workload w;
  w.name = "gather_row_sum_f32_32768x768";
  w.floor = Workload::Floor::Read;
  w.bytes = 4.0 * kRows * kWidth;
  w.tolerance = 1e-5;
  w.make = [](bool tiny) {
    const std::int64_t rows = tiny ? 4 : kRows, width = tiny ? 4 : kWidth;
    const Tensor table = uniform({rows, width}, 0, 1, 12);
    const Tensor at = floor(uniform({rows}, 0, static_cast<double>(rows), 13)).astype(DType::Int32).eval();
    Program p;
    p.record = [=] { return std::vector{sum(take(table, at, 0) * 0.5 + 1.0, 1)}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float* t = table.data<float>();
      const std::int32_t* row = at.data<std::int32_t>();
      return elementwise_error(out[0], [=](std::int64_t i) {
        double total = 0;
        for (std::int64_t c = 0; c < width; ++c) total += t[row[i] * width + c] * 0.5 + 1;
        return total;
      });
    };
    return p;
  };
  return w;
}

Workload scatter_add_rows() {
  constexpr std::int64_t kTable = 50257, kRows = 16384, kWidth = 768;
  Workload w;
  w.name = "scatter_add_f32_16384x768";
  w.bytes = 4.0 * kWidth * (2 * kTable + kRows);
  w.tolerance = 1e-5;
  w.make = [](bool tiny) {
    const std::int64_t table = tiny ? 5 : kTable, rows = tiny ? 4 : kRows, width = tiny ? 4 : kWidth;
    const Tensor x = uniform({table, width}, 0, 1, 15), values = uniform({rows, width}, 0, 1, 16);
    const Tensor at = floor(uniform({rows}, 0, static_cast<double>(table), 17)).astype(DType::Int32).eval();
    Program p;
    p.record = [=] { return std::vector{scatter_add(x, at, values, 0)}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const Values before(x), added(values);
      const std::vector<std::int32_t> row = at.to_vector<std::int32_t>();
      std::vector<double> want;
      for (std::int64_t i = 0; i < table * width; ++i) want.push_back(before[i]);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < width; ++c)
          want[static_cast<std::size_t>(row[static_cast<std::size_t>(r)] * width + c)] +=
              added[r * width + c];
      return elementwise_error(out[0], [&](std::int64_t i) { return want[static_cast<std::size_t>(i)]; });
    };
    return p;
  };
  return w;
}

Workload sorted() {
  constexpr std::int64_t kSize = 16 << 20;
  Workload w;
  w.name = "sort_f32_16M";
  w.bytes = 2.0 * 4 * kSize;
  w.tolerance = 0;
  w.make = [](bool tiny) {
    const Tensor x = uniform({tiny ? 16 : kSize}, -1, 1, 18);
    Program p;
    p.record = [=] { return std::vector{sort(x)}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      std::vector<float> want = x.to_vector<float>();
      std::sort(want.begin(), want.end());
      return elementwise_error(
          out[0], [&](std::int64_t i) { return static_cast<double>(want[static_cast<std::size_t>(i)]); });
    };
    return p;
  };
  return w;
}

}  // namespace kiln::tool
