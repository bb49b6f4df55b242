// A family of random programs that is drawn only when it is asked for: products of matrices of any extents
// and strides, with maps in front of them and behind.
#include "random_program.h"

#include <algorithm>

namespace kiln::tool {
namespace {

const std::vector<std::string>& activations() {
  static const std::vector<std::string> names = {"relu", "silu", "tanh", "sigmoid", "gelu_tanh"};
  return names;
}

/// A matrix of each batch, its axes in memory in any order, and perhaps not all of what lies there.
int stored_matrix(ProgramWriter& w, Draw& d, const Integers& shape, DType dtype) {
  const int rank = static_cast<int>(shape.size());
  Integers order(shape.size());
  for (int i = 0; i < rank; ++i) order[static_cast<std::size_t>(i)] = i;
  if (d.chance(1, 3)) std::swap(order.end()[-1], order.end()[-2]);
  if (d.chance(1, 4)) order = draw_order(d, rank);
  Integers stored(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) stored[static_cast<std::size_t>(order[i])] = shape[i];
  const bool part = d.chance(1, 5);
  Integers memory = stored;
  if (part) memory.back() += d.of(Integers{1, 8, 64});
  int x = w.input(memory, dtype);
  if (part) x = w.slice(x, Integers(shape.size(), 0), stored);
  const bool moved = !std::ranges::is_sorted(order);
  return moved ? w.step({.op = "permute", .in = {x}, .axes = order}) : x;
}

/// What stands in front of a product, of an operand of these extents.
int in_front(ProgramWriter& w, Draw& d, const Integers& shape, DType dtype) {
  if (d.chance(1, 8)) {  // weights of 8 bits
    const int weights = w.cast(w.input(shape, DType::Int8, -100, 100), dtype);
    const int scales = w.input({shape.back()}, dtype, 0, 0.01);
    return w.binary("multiply", weights, scales);
  }
  const int x = stored_matrix(w, d, shape, dtype);
  const std::int64_t way = d.between(0, 8);
  if (way == 0) return w.unary(d.of(activations()), x);
  if (way == 1) return w.with_number("multiply", x, 0.25);
  if (way > 2) return x;
  const int row = w.input({shape.back()}, dtype);
  return w.binary("multiply", x, row);
}

/// Extents from 1 to 10,000, of half of the programs multiples of 8, with as much to multiply as 2^38
/// multiply-adds at most, and operands of `n` elements.
void contraction(RandomProgram& p, Draw& d, std::int64_t n) {
  constexpr std::int64_t kMostExtent = 10000, kMostWork = std::int64_t{1} << 38;
  ProgramWriter w(p);
  const DType dtype = d.chance(2, 3)   ? d.of(std::vector{DType::Float16, DType::BFloat16})
                      : d.chance(4, 5) ? DType::Float32
                                       : DType::Float64;
  const bool eights = d.chance(1, 2);
  const auto extent = [&] {
    const std::int64_t e = d.chance(1, 2) ? d.between(1, kMostExtent) : draw_extent(d, kMostExtent);
    return eights ? (e + 7) / 8 * 8 : e;
  };
  std::int64_t rows = extent(), columns = extent(), depth = extent();
  const auto work = [&] { return rows * columns * depth; };
  const auto elements = [&] { return std::max({rows * depth, depth * columns, rows * columns}); };
  const std::int64_t most_work = std::min(kMostWork, 4096 * n);
  while (work() > most_work || elements() > n) {
    std::int64_t& longest = rows >= std::max(columns, depth) ? rows : columns >= depth ? columns : depth;
    longest = eights && longest > 8 ? (longest / 2 + 7) / 8 * 8 : std::max<std::int64_t>(longest / 2, 1);
  }
  const std::int64_t most_batch = std::max<std::int64_t>(std::min(n / elements(), most_work / work()), 1);
  const std::int64_t batch = d.chance(1, 3) ? std::min<std::int64_t>(d.between(2, 64), most_batch) : 1;
  const bool shared = batch > 1 && d.chance(1, 4);  // one second operand for all
  const auto shaped = [&](bool many, std::int64_t a, std::int64_t b) {
    return many && batch > 1 ? Integers{batch, a, b} : Integers{a, b};
  };
  const int a = in_front(w, d, shaped(true, rows, depth), dtype),
            b = in_front(w, d, shaped(!shared, depth, columns), dtype);
  int y = w.step({.op = "matmul", .in = {a, b}});
  if (d.chance(1, 2)) y = w.binary("add", y, w.input({columns}, dtype));
  if (d.chance(1, 2)) y = w.unary(d.of(activations()), y);
  if (d.chance(1, 4)) y = w.binary("add", y, w.input(shaped(true, rows, columns), dtype));
  if (d.chance(1, 8)) y = w.binary("multiply", y, w.input({rows, 1}, dtype));
  w.output(y);
  if (d.chance(1, 8)) w.output(w.with_number("multiply", y, 0.5));
  if (!is_half(dtype)) p.instructions = static_cast<double>(batch * work());
  p.doubles = dtype == DType::Float64;
}

}  // namespace

const std::vector<NamedFamily>& asked_families() {
  static const std::vector<NamedFamily> families = {{"contraction", contraction}};
  return families;
}

}  // namespace kiln::tool
