#include "kernel/monoid.h"

#include <limits>

namespace kiln::kernel {

std::uint64_t identity(const AccDecl& acc) {
  const DType t = acc.type;
  switch (acc.monoid) {
    case Monoid::Sum:
    case Monoid::State: return 0;
    case Monoid::Prod: return const_bits(t, 1);
    case Monoid::Max: case Monoid::Min: case Monoid::ArgMax: case Monoid::ArgMin: break;
  }
  const bool low = greatest(acc.monoid);
  const double inf = std::numeric_limits<double>::infinity();
  if (is_float(t)) return const_bits(t, low ? -inf : inf);
  const int bits = is_bool(t) ? 1 : static_cast<int>(8 * size_of(t));
  const std::uint64_t all = ~std::uint64_t{0} >> (64 - bits), top = std::uint64_t{1} << (bits - 1);
  if (is_signed_int(t)) return low ? top : all >> 1;
  return low ? 0 : all;
}

}  // namespace kiln::kernel
