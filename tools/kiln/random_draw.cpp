// How programs are drawn: numbers, dtypes, extents, axes, and the writer that families fill a program with.
#include "random_program.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace kiln::tool {
namespace {

constexpr std::int64_t kPrimes[] = {3,    5,    7,    11,   13,    17,    23,    31,    37,    53,
                                    61,   97,   127,  131,  193,   257,   509,   641,   769,   1021,
                                    2053, 4099, 6151, 8191, 12289, 16381, 24593, 32771, 49157, 65537};

/// What one line of a cache holds: the least stretch that a slab is worth holding by.
constexpr std::int64_t kStretchBytes = 64;

}  // namespace

std::uint64_t Draw::bits() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::int64_t Draw::between(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>((bits() >> 1) % static_cast<std::uint64_t>(high - low + 1));
}

DType draw_float(Draw& draw) {
  const std::int64_t n = draw.between(0, 19);
  return n < 11 ? DType::Float32 : n < 14 ? DType::Float16 : n < 18 ? DType::BFloat16 : DType::Float64;
}

DType draw_dtype(Draw& draw) {
  if (draw.chance(9, 10)) return draw_float(draw);
  return draw.of(std::vector{DType::Int32, DType::Int64, DType::Int8, DType::UInt8, DType::Int16});
}

std::int64_t draw_extent(Draw& draw, std::int64_t most) {
  std::int64_t extent = 1;
  switch (draw.between(0, 9)) {
    case 0: extent = draw.between(1, 2); break;
    case 1:
    case 2: extent = draw.between(2, 33); break;
    case 3:
    case 4: extent = kPrimes[draw.between(0, std::ssize(kPrimes) - 1)]; break;
    case 5:
    case 6: extent = std::int64_t{1} << draw.between(1, 15); break;
    case 7: extent = (std::int64_t{1} << draw.between(2, 15)) + (draw.chance(1, 2) ? 1 : -1); break;
    case 8: extent = draw.between(34, 1500); break;
    case 9: extent = draw.between(10000, 60000); break;
  }
  return std::clamp<std::int64_t>(extent, 1, std::max<std::int64_t>(most, 1));
}

Integers draw_shape(Draw& draw, std::int64_t elements, int rank) {
  if (rank == 0) rank = draw.of(std::vector{1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 6});
  Integers shape;
  std::int64_t left = elements;
  for (int i = 0; i + 1 < rank; ++i) {
    shape.push_back(draw_extent(draw, left));
    left /= shape.back();
  }
  // The last one drawn takes what is left, and stands anywhere.
  shape.insert(shape.begin() + draw.between(0, rank - 1), std::max<std::int64_t>(left, 1));
  return shape;
}

Integers draw_axes(Draw& draw, int rank) {
  Integers axes;
  const std::int64_t mask = draw.between(1, (std::int64_t{1} << rank) - 1);
  for (int i = 0; i < rank; ++i)
    if (mask >> i & 1) axes.push_back(i);
  return axes;
}

Integers draw_order(Draw& draw, int rank) {
  Integers order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  for (int i = rank - 1; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(draw.between(0, i))]);
  return order;
}

std::int64_t product(const Integers& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

void hold(RandomProgram& program, const Integers& shape, DType dtype, const Integers& axes) {
  std::int64_t slab = 1, inner = 1;
  const auto reduced = [&](std::size_t axis) {
    return std::ranges::find(axes, static_cast<std::int64_t>(axis)) != axes.end();
  };
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (reduced(i)) slab *= shape[i];
  for (std::size_t i = shape.size(); i > 0 && !reduced(i - 1); --i) inner *= shape[i - 1];
  slab *= std::min(inner, std::max<std::int64_t>(kStretchBytes / size_of(dtype), 1));
  program.slab_bytes = std::max(program.slab_bytes, static_cast<double>(slab * size_of(dtype)));
  program.again_bytes = static_cast<double>(product(shape) * size_of(dtype));
}

int ProgramWriter::input(const Integers& shape, DType dtype, double low, double high) {
  p_.inputs.push_back({shape, dtype, low, high});
  return ~(static_cast<int>(p_.inputs.size()) - 1);
}

int ProgramWriter::step(RandomStep step) {
  p_.steps.push_back(std::move(step));
  return static_cast<int>(p_.steps.size()) - 1;
}

int ProgramWriter::slice(int x, const Integers& starts, const Integers& stops, const Integers& steps) {
  RandomStep s{.op = "slice", .in = {x}};
  for (std::size_t i = 0; i < starts.size(); ++i) {
    s.sizes.push_back(starts[i]);
    s.sizes.push_back(stops[i]);
    s.sizes.push_back(steps.empty() ? 1 : steps[i]);
  }
  return step(std::move(s));
}

}  // namespace kiln::tool
