// A stream around a cylinder by the lattice Boltzmann method, as a user writes it: a loop that carries nine
// arrays. For tests and the benchmark of loops.
#pragma once

#include "test_data.h"

#include <kiln/kiln.h>

#include <cstddef>
#include <vector>

namespace kiln::test {

/// D2Q9, after a widely known NumPy program: a cylinder in a stream.
struct LatticeBoltzmann {
  static constexpr int kRows = 100, kColumns = 400, kX[9] = {0, 0, 1, 1, 1, 0, -1, -1, -1},
                       kY[9] = {0, 1, 1, 0, -1, -1, -1, 0, 1}, kOpposite[9] = {0, 5, 6, 7, 8, 1, 2, 3, 4};
  static constexpr double kWeight[9] = {4. / 9, 1. / 9,  1. / 36, 1. / 9, 1. / 36,
                                        1. / 9, 1. / 36, 1. / 9,  1. / 36};
  std::vector<Tensor> f;
  Tensor inside, density;

  LatticeBoltzmann() {
    for (int i = 0; i < 9; ++i)
      f.push_back(data({kRows, kColumns}, DType::Float32, i) * 0.01f + 1.f + (i == 3 ? 2.f : 0.f));
    const Tensor y = arange(kRows).reshape({kRows, 1}) - kRows / 2, x = arange(kColumns) - kColumns / 4;
    inside = x * x + y * y < 169;
    eval(f);
    inside.eval();
  }
  void step() {
    for (std::size_t i = 0; i < 9; ++i) f[i] = roll(roll(f[i], kX[i], 1), kY[i], 0);
    const std::vector<Tensor> streamed = f;
    density = streamed[0];
    for (std::size_t i = 1; i < 9; ++i) density = density + streamed[i];
    Tensor ux, uy;
    for (std::size_t i = 0; i < 9; ++i) {
      if (kX[i] != 0) ux = ux.valid() ? ux + streamed[i] * kX[i] : streamed[i] * kX[i];
      if (kY[i] != 0) uy = uy.valid() ? uy + streamed[i] * kY[i] : streamed[i] * kY[i];
    }
    ux = ux / density;
    uy = uy / density;
    for (std::size_t i = 0; i < 9; ++i) {
      const Tensor along = ux * kX[i] + uy * kY[i];
      const Tensor equilibrium =
          density * kWeight[i] * (1 + 3 * along + 4.5 * (along * along) - 1.5 * (ux * ux + uy * uy));
      f[i] = where(inside, streamed[static_cast<std::size_t>(kOpposite[i])],
                   streamed[i] + (equilibrium - streamed[i]) * (1 / 0.6));
    }
  }
};

}  // namespace kiln::test
