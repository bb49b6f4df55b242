// Points that share the lanes with the axes inside them: not where what comes at their ends takes longer than
// idle lanes.
#include "schedule/schedule.h"

#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <variant>

namespace kiln::schedule {
namespace {

/// The points beside each other of a reduction over axis 1.
std::int64_t fold_of(std::int64_t points, std::int64_t columns, int read_twice, int vector_bytes = 64) {
  const Facts::Axis axes[] = {{5000, false}, {points, true}, {columns, false}};
  Facts f;
  f.axes = axes;
  f.phases = 1;
  f.folds = 1;
  f.prims = 30;
  f.read_twice = read_twice;
  Target t;
  t.threads = 2;
  t.vector_bytes = vector_bytes;
  return std::get<Schedule>(schedule(f, t)).fold;
}

/// The value and the logarithm of each lane, and combining them, take as long as a few elements.
TEST(Schedule, FewPointsThatAreReadTwiceLeaveLanesIdle) {
  for (const int bytes : {32, 64})
    for (const std::int64_t columns : {5, 9}) {
      EXPECT_GT(fold_of(20, columns, 0, bytes), 0) << columns;
      EXPECT_EQ(fold_of(20, columns, 1, bytes), 0) << columns;
      EXPECT_GT(fold_of(2000, columns, 1, bytes), 0) << columns;
    }
  EXPECT_EQ(fold_of(31, 33, 1), 0);
  EXPECT_GT(fold_of(512, 33, 1), 0);
}

/// Values of such columns on every instruction set, with as many points as have either form.
TEST(Schedule, LogsumexpsOfColumnsAreTheirFormulas) {
  KILN_NEEDS_CPU();
  for (const std::string& target : testing::cpu_targets()) {
    const testing::ConfigScope scope(target);
    for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32})
      for (const Shape& shape : {Shape{40, 20, 5}, Shape{40, 31, 33}, Shape{3, 700, 7}}) {
        const Tensor x =
            ((arange(0, shape.numel(), 1, DType::Int64) * 37 % 101 - 50) / 8).astype(dtype).reshape(shape);
        const Tensor wide = x.astype(DType::Float64);
        const Tensor want = log(sum(exp(wide), {1})).eval();
        const double tolerance = dtype == DType::Float32 ? 1e-6 : dtype == DType::Float16 ? 1e-3 : 8e-3;
        EXPECT_TRUE(allclose(logsumexp(x, {1}).astype(DType::Float64), want, tolerance, tolerance))
            << target << " " << name(dtype) << " " << shape[1];
      }
  }
}

/// A group norm of channels last: rows of one line each, which lie apart. A cache has few of those, and reads
/// a slab that it has no room for in the order of memory.
TEST(Schedule, LinesApartThatAreReadAgainAreFoldedInSlabsBeyondTheSecondCache) {
  const auto folded = [](std::int64_t points, std::int64_t channels) {
    const Facts::Axis axes[] = {{8, false}, {points, true}, {8, false}, {channels, true}};
    Facts f;
    f.axes = axes;
    f.phases = 2;
    f.folds = 1;
    f.prims = 10;
    f.stores_full = true;
    f.loaded_bytes = f.out_narrowest = 2;
    Target t;
    t.threads = 2;
    t.vector_bytes = 32;
    t.l2_bytes = 512 << 10;
    return std::get<Schedule>(schedule(f, t)).fold > 0;
  };
  EXPECT_TRUE(folded(4096, 32));
  EXPECT_FALSE(folded(784, 32));   // all lines stay in the cache
  EXPECT_FALSE(folded(4096, 64));  // two lines each
  EXPECT_TRUE(folded(784, 10));
}

/// A step of a logcumsumexp waits for the one before: two registers of rows go side by side.
TEST(Schedule, ShortRowsOfALogcumsumexpHaveTwoRegisters) {
  for (const int prims : {4, 200}) {
    const Facts::Axis axes[] = {{300000, false}, {25, true}};
    Facts f;
    f.axes = axes;
    f.scans = true;
    f.prims = prims;
    f.bunch_bytes = 8;
    f.bunch_operands = 1;
    f.bunch_vector = 4;
    Target t;
    t.threads = 2;
    t.vector_bytes = 32;
    const Schedule s = std::get<Schedule>(schedule(f, t));
    if (prims == 200) EXPECT_EQ(s.form, Form::Bunch);
    EXPECT_EQ(s.lanes, prims == 200 ? 16 : 8);
  }
}

}  // namespace
}  // namespace kiln::schedule
