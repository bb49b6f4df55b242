#include "library/cuda/host_product.h"

#include "device/cuda/copy.h"
#include "library/cpu/gemm.h"

#include <cstdint>
#include <type_traits>
#include <vector>

namespace kiln::cuda {
namespace {

/// The elements that a stack of matrices touches: offsets from its data.
struct Reach {
  std::int64_t first = 0, last = 0;
};
Reach reach_of(const library::Matmul& call, const library::MatrixStack& m, std::int64_t rows,
               std::int64_t columns) {
  Reach r;
  auto walk = [&](std::int64_t extent, std::int64_t stride) {
    (stride < 0 ? r.first : r.last) += (extent - 1) * stride;
  };
  walk(rows, m.row_stride);
  walk(columns, m.col_stride);
  for (int b = 0; b < call.batch_rank; ++b) walk(call.batch[b], m.batch_strides[b]);
  return r;
}

/// Adds `count` elements, again and again.
void add_repeated(DType dtype, const void* from, std::uint64_t count, std::vector<std::byte>& out,
                  Stream stream) {
  std::vector<std::byte> added(count * static_cast<std::uint64_t>(size_of(dtype)));
  copy_to_host(added.data(), static_cast<const std::byte*>(from), added.size(), stream);
  dispatch(dtype, [&]<class T>() {
    T* const x = reinterpret_cast<T*>(out.data());
    const T* const b = reinterpret_cast<const T*>(added.data());
    if constexpr (!std::is_same_v<T, bool>)
      for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) x[i] = static_cast<T>(x[i] + b[i % count]);
  });
}

}  // namespace

void multiply_on_host(const library::Matmul& given, Stream stream) {
  library::Matmul call = given;
  const auto size = static_cast<std::uint64_t>(size_of(call.dtype));
  std::vector<std::byte> a, b;
  auto fetch = [&](library::MatrixStack& m, std::int64_t rows, std::int64_t columns,
                   std::vector<std::byte>& to) {
    if (call.k == 0) return;
    const Reach r = reach_of(call, m, rows, columns);
    to.resize(static_cast<std::size_t>(r.last - r.first + 1) * size);
    const std::int64_t before = r.first * static_cast<std::int64_t>(size);
    copy_to_host(to.data(), static_cast<const std::byte*>(m.data) + before, to.size(), stream);
    m.data = to.data() - before;
  };
  fetch(call.a, call.m, call.k, a);
  fetch(call.b, call.k, call.n, b);
  std::uint64_t count = static_cast<std::uint64_t>(call.m * call.n);
  for (int i = 0; i < call.batch_rank; ++i) count *= static_cast<std::uint64_t>(call.batch[i]);
  std::vector<std::byte> out(count * size);
  call.out = out.data();
  call.bias = call.addend = nullptr;
  std::vector<std::byte> workspace(cpu::library().workspace_bytes(call) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(workspace.data()) + 63) &
                                               ~std::uintptr_t{63});
  cpu::library().matmul(call, aligned);
  if (given.bias) add_repeated(given.dtype, given.bias, static_cast<std::uint64_t>(given.n), out, stream);
  if (given.addend) add_repeated(given.dtype, given.addend, count, out, stream);
  copy_to_device(given.out, out.data(), out.size(), stream);
}

}  // namespace kiln::cuda
