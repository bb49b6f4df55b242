#include "codegen/llvm/vector_math.h"

namespace kiln::codegen {
namespace {

using kernel::MathFn;

/// Functions within 2 ulp of the exact result, or no further from it than the scalar function (tanh, erfc),
/// and the narrowest vectors for which that holds: the algorithms differ by width. Left out for their errors:
/// sin, cos, tan (3.5 ulp), exp and expm1 (3.1), asin (2.9), atan2 (2.5), erf (2.4), atan (2.3), log1p but on
/// AVX-512 (2.4).
struct Row {
  MathFn fn;
  int arity, narrowest;
};
constexpr Row kRows[] = {
    {MathFn::Exp2, 1, 2},  {MathFn::Log, 1, 2},   {MathFn::Log1p, 1, 8}, {MathFn::Log2, 1, 8},
    {MathFn::Log10, 1, 8}, {MathFn::Acos, 1, 4},  {MathFn::Sinh, 1, 4},  {MathFn::Cosh, 1, 2},
    {MathFn::Tanh, 1, 4},  {MathFn::Asinh, 1, 8}, {MathFn::Acosh, 1, 8}, {MathFn::Atanh, 1, 8},
    {MathFn::Erfc, 1, 2},  {MathFn::Pow, 2, 2},   {MathFn::Hypot, 2, 4},
};

}  // namespace

std::string vector_symbol(MathFn fn, int lanes) {
  const char* isa = lanes == 8 ? "e" : lanes == 4 ? "d" : lanes == 2 ? "b" : nullptr;
  for (const Row& r : kRows)
    if (r.fn == fn && isa && lanes >= r.narrowest)
      return std::string("_ZGV") + isa + "N" + std::to_string(lanes) + (r.arity == 2 ? "vv_" : "v_") +
             symbol(fn);
  return {};
}

std::vector<std::string> vector_symbols() {
  std::vector<std::string> out;
  for (const Row& r : kRows)
    for (int lanes = r.narrowest; lanes <= 8; lanes *= 2) out.push_back(vector_symbol(r.fn, lanes));
  return out;
}

}  // namespace kiln::codegen
