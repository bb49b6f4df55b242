// Logarithms of sums of Float32's exponentials in Float64: what is kept of elements is Float32, and partial
// results are combined in Float64. Held against the oracle.
#include "lower/lowered_graph.h"

#include "lower/gpu_target.h"

#include <cmath>
#include <cstring>

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

std::vector<double> doubles(const std::vector<std::byte>& bytes) {
  std::vector<double> out(bytes.size() / sizeof(double));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

/// (Where rows lie on lanes the vm combines these in another order, which shows in sums of floats.)
TEST(Widened, DownColumns) {
  struct Case {
    std::vector<std::int64_t> dims;
    std::uint64_t axes;
    Form form;
  };
  for (const DType type : {DType::Float32, DType::Float16})
    for (const Case& c : {Case{{9000, 40}, 1, Form::SplitColumns}, Case{{50, 3000}, 1, Form::Columns},
                          Case{{500, 7, 60}, 1, Form::Columns}}) {
      GraphBuilder b;
      const NodeId x = b.leaf(type, c.dims), wide = type == DType::Float32 ? x : b.cast(x, DType::Float32);
      b.root(b.add(Op::reduce_logaddexp, {wide}, ir::Reduce{c.axes}, {.dtype = DType::Float64}));
      const std::vector<double> expected = doubles(b.values().front());
      LoweredGraph lowered(b, gpu_target());
      EXPECT_EQ(lowered.forms, std::vector{c.form});
      const std::vector<double> found = doubles(lowered.values().front());
      constexpr double kInOrder = 1e-5;  // of sums that the interpreter adds up one element after the other
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], kInOrder) << i << '\n' << lowered.text();
    }
}

}  // namespace
}  // namespace kiln::lower
