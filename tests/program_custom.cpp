// Random calls of kernels of the program's own, which move bytes: their values are as exact as their
// operands.
#include "program_recorder.h"

#include <kiln/custom_kernel.h>

#include <cstring>

namespace kiln::test {
namespace {

constexpr const char* kTurn = R"(
extern "C" __global__ void turn(const unsigned char* x, unsigned char* y, long long n, long long size, long long by) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= n * size) return;
  long long from = (i / size + by) % n;
  y[i] = x[from * size + i % size];
}
)";
constexpr const char* kZip = R"(
extern "C" __global__ void zip(const unsigned char* x, const unsigned char* y, unsigned char* even, unsigned char* odd,
                               long long n, long long size) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= n * size) return;
  bool first = i / size % 2 == 0;
  even[i] = first ? x[i] : y[i];
  odd[i] = first ? y[i] : x[i];
}
)";

std::int64_t bytes_of(const KernelArray& a) { return a.numel() * size_of(a.dtype); }

CudaLaunch each_byte(const KernelCall& call) {
  CudaLaunch l = CudaLaunch::each(bytes_of(call.in[0]));
  l.numbers = {call.in[0].numel(), size_of(call.in[0].dtype)};
  l.numbers.insert(l.numbers.end(), call.numbers.begin(), call.numbers.end());
  return l;
}

/// y[i] = x[(i + numbers[0]) mod n] of all elements in order.
const CustomKernel& turn() {
  static const auto* const kernel = new CustomKernel(
      custom_kernel({.name = "turn",
                     .results = [](const KernelTypes& in, KernelNumbers) { return KernelTypes{in[0]}; },
                     .cpu =
                         [](const KernelCall& call) {
                           const std::int64_t n = call.in[0].numel(), size = size_of(call.in[0].dtype);
                           const auto* x = static_cast<const std::byte*>(call.in[0].data);
                           auto* y = static_cast<std::byte*>(call.out[0].data);
                           for (std::int64_t i = 0; i < n; ++i)
                             std::memcpy(y + i * size, x + (i + call.numbers[0]) % n * size,
                                         static_cast<std::size_t>(size));
                         },
                     .cuda = {.source = kTurn, .function = "turn", .launch = each_byte},
                     .same_bits = true}));
  return *kernel;
}

/// Of two arrays the elements at even positions of the one and at odd positions of the other, and the rest.
const CustomKernel& zip() {
  static const auto* const kernel = new CustomKernel(custom_kernel(
      {.name = "zip",
       .results =
           [](const KernelTypes& in, KernelNumbers) {
             if (in[0].shape != in[1].shape || in[0].dtype != in[1].dtype) throw UserError("of two types");
             return KernelTypes{in[0], in[0]};
           },
       .cpu =
           [](const KernelCall& call) {
             const auto size = static_cast<std::size_t>(size_of(call.in[0].dtype));
             for (std::size_t i = 0; i < static_cast<std::size_t>(call.in[0].numel()); ++i)
               for (std::size_t k = 0; k < 2; ++k)
                 std::memcpy(static_cast<std::byte*>(call.out[k].data) + i * size,
                             static_cast<const std::byte*>(call.in[(i + k) % 2].data) + i * size, size);
           },
       .cuda = {.source = kZip, .function = "zip", .launch = each_byte},
       .same_bits = true}));
  return *kernel;
}

}  // namespace

Value Recorder::custom(const Value& a, const Value& b, Draw& d) {
  if (a.tensor.numel() == 0) return a;
  if (d.chance(50)) {
    const std::int64_t by = d.between(0, 9) + p_.variant;
    return define(cat("turn()({", a.name, "}, {", by, "})"), turn()({a.tensor}, {by}), a);
  }
  const Value other = b.tensor.shape() == a.tensor.shape() && b.tensor.dtype() == a.tensor.dtype()
                          ? b
                          : define(cat("flip(", a.name, ")"), flip(a.tensor), a);
  const Tensor operands[] = {a.tensor, other.tensor};
  const std::vector<Tensor> results = zip().call(operands);
  const auto which = static_cast<std::size_t>(d.below(2));
  return define(cat("zip().call({{", a.name, ", ", other.name, "}})[", which, "]"), results[which],
                a.exact && other.exact, std::max(a.bound, other.bound), std::max(a.error, other.error));
}

}  // namespace kiln::test
