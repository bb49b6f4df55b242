// Cholesky factors and triangular systems on a GPU, batches of matrices at any strides:
// kernels_templates/linear.cuh. A matrix of n rows takes about 3 n / 32 launches. Halves are computed in
// float32 beside the result.
#include "codegen/cuda/cuda_expr.h"
#include "device/cuda/template_kernels.h"
#include "device/cuda/workspace.h"
#include "kernels_templates.h"
#include "library/cuda/axes.h"
#include "library/cuda/routines.h"
#include "support/check.h"

#include <algorithm>
#include <optional>

namespace kiln::cuda {
namespace {

using library::Array;
using library::Call;
using library::Routine;

constexpr std::int64_t kBlock = 32, kTile = 64;  // linear.cuh's

enum Kernel { kRead, kWrite, kFactorDiagonal, kSolveRows, kUpdateFactor, kSolveBlock, kUpdateSolution };
constexpr const char* kSymbols[] = {"read_matrices", "write_matrices", "factor_diagonal", "solve_rows",
                                    "update_factor", "solve_block",    "update_solution"};

/// The kernels' Matrices.
struct Matrices {
  const void* data;
  Axes batch;
  std::int64_t row, column;
};
static_assert(sizeof(Matrices) == sizeof(Axes) + 24);

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Matrices matrices(const Array& a) {
  Array batch = a;
  batch.rank -= 2;
  return {a.data, joined_axes(batch), a.strides[batch.rank], a.strides[batch.rank + 1]};
}

}  // namespace

std::string linear_source(DType dtype) {
  const char* const element = codegen::cuda_memory_type(dtype);
  return cat(template_prologue(), "typedef ", element, " Element;\ntypedef ",
             is_half(dtype) ? "float" : element, " Work;\n", codegen::templates::linear);
}

namespace {

/// One call's extents and memory, and launches with them.
class Work {
 public:
  Work(const Call& call, Stream stream)
      : call_(call),
        stream_(stream),
        kernels_(template_kernels(device_of(stream), cat("linear_", codegen::cuda_memory_type(call.dtype)),
                                  kSymbols, [&] { return linear_source(call.dtype); })) {
    const auto rank = static_cast<std::size_t>(call.rank);
    rows_ = call.dims[rank - 2];
    columns_ = call.dims[rank - 1];
    for (std::size_t a = 0; a + 2 < rank; ++a) batch_ *= call.dims[a];
    if (is_half(call.dtype)) wide_.emplace(static_cast<std::uint64_t>(elements()) * sizeof(float), stream);
    data_ = wide_ ? wide_->data() : call.out;
  }

  void factor() {
    read(call_.operands[0].array, true);
    for (std::int64_t at = 0; at < rows_; at += kBlock) {
      std::int32_t width = static_cast<std::int32_t>(std::min(kBlock, rows_ - at));
      launch(kFactorDiagonal, batch_, 256, {&data_, &rows_, &at, &width, &batch_});
      const std::int64_t below = rows_ - at - width, side = ceil_div(below, kTile);
      if (below == 0) continue;
      launch(kSolveRows, side * batch_, kTile, {&data_, &rows_, &at, &side, &batch_});
      launch(kUpdateFactor, side * side * batch_, 256, {&data_, &rows_, &at, &side, &batch_});
    }
    write();
  }

  void solve() {
    read(call_.operands[1].array, false);
    const Matrices a = matrices(call_.operands[0].array);
    const std::int64_t across = ceil_div(columns_, kTile);
    for (std::int64_t at = 0; at < rows_; at += kBlock) {
      std::int32_t width = static_cast<std::int32_t>(std::min(kBlock, rows_ - at));
      launch(kSolveBlock, across * batch_, kTile,
             {&data_, &a, &rows_, &columns_, &at, &width, &across, &batch_});
      const std::int64_t down = ceil_div(rows_ - at - width, kTile);
      if (down == 0) continue;
      launch(kUpdateSolution, down * across * batch_, 256,
             {&data_, &a, &rows_, &columns_, &at, &down, &across, &batch_});
    }
    write();
  }

 private:
  std::int64_t elements() const { return batch_ * rows_ * columns_; }

  void launch(Kernel k, std::int64_t blocks, std::int64_t threads,
              std::initializer_list<const void*> arguments) const {
    LaunchShape shape;
    shape.grid[0] = static_cast<std::uint32_t>(std::min<std::int64_t>(blocks, 1 << 20));
    shape.block[0] = static_cast<std::uint32_t>(threads);
    void* params[8];
    std::transform(arguments.begin(), arguments.end(), params,
                   [](const void* a) { return const_cast<void*>(a); });
    cuda::launch(kernels_[k], shape, stream_, params);
  }

  void read(const Array& from, bool lower_only) const {
    const Matrices m = matrices(from);
    const std::int64_t count = elements();
    const std::int32_t lower = lower_only;
    launch(kRead, ceil_div(count, 256), 256, {&data_, &m, &rows_, &columns_, &count, &lower});
  }
  void write() const {
    const std::int64_t count = elements();
    if (wide_) launch(kWrite, ceil_div(count, 256), 256, {&call_.out, &data_, &count});
  }

  const Call& call_;
  Stream stream_;
  const std::vector<Function>& kernels_;
  std::int64_t batch_ = 1, rows_ = 0, columns_ = 0;
  std::optional<Workspace> wide_;
  void* data_ = nullptr;  // what is computed, adjacent elements
};

struct Factoring final : Routine {
  void run(const Call& call, std::byte*) const override {
    Work(call, current_stream(call.device.index)).factor();
  }
};

struct Solving final : Routine {
  void run(const Call& call, std::byte*) const override {
    Work(call, current_stream(call.device.index)).solve();
  }
};

}  // namespace

const Routine& cholesky_routine() {
  static const Factoring routine;
  return routine;
}

const Routine& solve_triangular_routine() {
  static const Solving routine;
  return routine;
}

}  // namespace kiln::cuda
