// Kernels that a program writes itself, as operations like any others: custom_kernel takes a C++ function for
// the CPU and CUDA C for GPUs, elementwise_kernel a formula for one element, which fuses.
//
//     const auto roll = kiln::custom_kernel({
//         .name = "roll",
//         .results = [](const kiln::KernelTypes& x, kiln::KernelNumbers) { return kiln::KernelTypes{x[0]}; },
//         .cpu = [](const kiln::KernelCall& call) { … call.in[0].as<float>() … call.out[0].as<float>() … },
//         .cuda = {.source = R"(extern "C" __global__ void roll(const float* x, float* y, long long n) …)",
//                  .function = "roll",
//                  .launch = [](const kiln::KernelCall& call) { return
//                  kiln::CudaLaunch::each(call.out[0].numel()); }},
//     });
//     kiln::Tensor y = roll({x});
//
// A kernel is a function of its operands and numbers: it has no state, writes every element of its results
// and nothing else. Calls with equal operands may become one call; results that nobody reads are not
// computed. docs/custom-kernels.md has the rules and a whole example. Not part of <kiln/kiln.h>.
#pragma once

#include <kiln/dtype.h>
#include <kiln/shape.h>
#include <kiln/tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// The shape and dtype of an operand or a result.
struct KernelType {
  Shape shape;
  DType dtype = DType::Float32;
};
using KernelTypes = std::vector<KernelType>;
/// Integers that a call is given beside its operands (an axis, a size). Another value is another plan, but no
/// other kernel.
using KernelNumbers = std::span<const std::int64_t>;

/// An operand or a result as a kernel sees it: adjacent elements in row-major order, aligned to 64 bytes on a
/// CPU and 256 on a GPU if it is no part of another array, else to its elements.
struct KernelArray {
  void* data = nullptr;
  DType dtype = DType::Float32;
  std::span<const std::int64_t> shape;

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
  /// The elements. UserError if T is another type than the dtype's. Operands must not be written.
  template <class T>
  T* as() const {
    if (dtype_of<std::remove_const_t<T>> != dtype) wrong_type(dtype_of<std::remove_const_t<T>>);
    return static_cast<T*>(data);
  }

 private:
  [[noreturn]] void wrong_type(DType asked) const;
};

/// One run of a kernel.
struct KernelCall {
  std::string_view name;
  std::span<const KernelArray> in, out;
  KernelNumbers numbers;

  /// Runs f(begin, end) over disjoint ranges that cover [0, n), each of at least `grain` (unless n is less),
  /// on Kiln's threads, and returns when all have ended. Only inside a function for the CPU.
  void parallel_for(std::int64_t n, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& f) const;
};

/// A function for the CPU: a plain function, or a lambda without captures. It runs on the thread that
/// evaluates; several threads may run it at the same time. What it throws becomes an EvaluationError with the
/// kernel's name.
using CpuKernel = void (*)(const KernelCall& call);

/// How a GPU runs a kernel once.
struct CudaLaunch {
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t shared_bytes = 0;  ///< of dynamic shared memory
  /// What the kernel takes after its pointers, as `long long` each.
  std::vector<std::int64_t> numbers;

  /// One thread for each of n items, in blocks of 256; n is the kernel's one number.
  static CudaLaunch each(std::int64_t n);
};

struct CudaKernel {
  /// CUDA C for NVRTC. It has a function `extern "C" __global__ void FUNCTION(const T0* in0, …, R0* out0, …,
  /// long long number0, …)`: operands, results, numbers of the launch. Element types: float, double, __half
  /// and
  /// __nv_bfloat16 as unsigned short, bool as bool, integers as signed char … unsigned long long.
  std::string source;
  std::string function;
  /// Extents and numbers decide the launch; the arrays have no data yet. A plain function, as CpuKernel.
  CudaLaunch (*launch)(const KernelCall& call) = nullptr;
};

/// What custom_kernel makes an operation of.
struct CustomKernelOptions {
  /// In errors, reports, logs and timelines.
  std::string name;
  /// The types of the results, of which there are 1 to 4, from the operands'. It throws UserError for
  /// operands that do not fit: the error gets the kernel's name.
  std::function<KernelTypes(const KernelTypes& operands, KernelNumbers numbers)> results;
  CpuKernel cpu = nullptr;  ///< also the reference of KILN_CHECK=diff and KILN_MODE=interpret
  CudaKernel cuda = {};     ///< source and launch, or neither
  /// The same operands give the same bits, on any number of threads. The strict and the deterministic mode
  /// refuse other kernels.
  bool same_bits = false;
  /// The cotangents of the operands (an empty Tensor: 0) from those of the results; operands and results are
  /// values, what it records is ordinary. Without it, differentiating the kernel is a UserError.
  std::function<std::vector<Tensor>(std::span<const Tensor> cotangents, std::span<const Tensor> results,
                                    std::span<const Tensor> operands)>
      backward = {};
  /// The tangents of the results from those of the operands (zeros where there is none), for jvp.
  std::function<std::vector<Tensor>(std::span<const Tensor> tangents, std::span<const Tensor> results,
                                    std::span<const Tensor> operands)>
      forward = {};
};

/// An operation that custom_kernel made. Copies share everything.
class CustomKernel {
 public:
  /// Records a call and returns its only result. Up to 8 operands, up to 32 numbers. UserErrors begin with
  /// the kernel's name: an operand that `results` refuses, a device that the kernel has no code for, a kernel
  /// of several results.
  [[nodiscard]] Tensor operator()(std::initializer_list<Tensor> operands,
                                  std::initializer_list<std::int64_t> numbers = {},
                                  SourceLocation loc = SourceLocation::current()) const;
  /// The same for any number of results.
  [[nodiscard]] std::vector<Tensor> call(std::span<const Tensor> operands, KernelNumbers numbers = {},
                                         SourceLocation loc = SourceLocation::current()) const;
  const std::string& name() const;

 private:
  friend CustomKernel custom_kernel(CustomKernelOptions options, SourceLocation loc);
  friend struct CustomKernelAccess;
  struct State;
  std::shared_ptr<const State> state_;
};

/// UserError: no name, no `results`, neither code, a source without a function's name or a launch.
[[nodiscard]] CustomKernel custom_kernel(CustomKernelOptions options,
                                         SourceLocation loc = SourceLocation::current());

/// A function of one element that a formula defines. It becomes ordinary operations: it fuses with what is
/// around it, runs on every device and in every mode, and has a derivative.
class ElementwiseKernel {
 public:
  /// One operand for each parameter, tensors or numbers, at least one of them a tensor; they broadcast.
  /// UserErrors begin with the kernel's name.
  template <class... A>
  [[nodiscard]] Tensor operator()(const Operand& first, const A&... others) const {
    const Operand list[] = {first, Operand(others)...};
    return call(list);
  }
  [[nodiscard]] Tensor call(std::span<const Operand> operands,
                            SourceLocation loc = SourceLocation::current()) const;
  const std::string& name() const;

 private:
  friend ElementwiseKernel elementwise_kernel(std::string name, std::string_view formula, SourceLocation loc);
  struct State;
  std::shared_ptr<const State> state_;
};

/// A formula is `PARAMETER, … -> NAME = EXPRESSION; … EXPRESSION`:
///
///     const auto swish = kiln::elementwise_kernel("swish", "x, beta -> s = 1 / (1 + exp(-beta * x)); x *
///     s");
///
/// Expressions have C's operators and precedence (? : || && | ^ & == != < <= > >= << >> + - * / % and unary -
/// ! ~), the functions of docs/ops.md (exp, maximum, where, …) and, as functions, the names of dtypes, which
/// convert: float32(x). Everything means what it means of tensors: `/` divides in floating point, `? :` is
/// where. UserError with the line and the column for a formula that is wrong.
[[nodiscard]] ElementwiseKernel elementwise_kernel(std::string name, std::string_view formula,
                                                   SourceLocation loc = SourceLocation::current());

}  // namespace kiln
