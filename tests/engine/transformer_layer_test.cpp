// A layer of a transformer, written as a program writes it, in plans of a Hopper that runs nothing: how many
// launches it takes, and what stands between its products.
#include "counted.h"
#include "device/null/on_null_device.h"

#include <kiln/config.h>
#include <kiln/fusion_report.h>
#include <kiln/layers.h>

#include <cmath>
#include <limits>

namespace kiln {
namespace {

struct Layer {
  std::int64_t batch, length, width, heads, hidden, head = width / heads;
  bool neighbours = false;  // rotates columns n and n + 1 instead of halves

  static Tensor f32(const Tensor& x) { return astype(x, DType::Float32); }
  static Tensor bf16(const Tensor& x) { return astype(x, DType::BFloat16); }
  static Tensor memory(const Shape& shape, DType type = DType::BFloat16) { return zeros(shape, type).eval(); }

  Tensor x = memory({batch, length, width}), cosines = memory({length, head / 2}, DType::Float32),
         sines = memory({length, head / 2}, DType::Float32), before_attention = memory({width}),
         before_gates = memory({width}), q = memory({width, width}), k = memory({width, width}),
         v = memory({width, width}), o = memory({width, width}), gate = memory({width, hidden}),
         up = memory({width, hidden}), down = memory({hidden, width});

  static Tensor norm(const Tensor& x, const Tensor& weight) {
    const Tensor wide = f32(x);
    return bf16(wide * rsqrt(mean(wide * wide, -1, true) + 1e-5) * f32(weight));
  }
  Tensor in_heads(const Tensor& y) const { return swapaxes(y.reshape({batch, length, heads, head}), 1, 2); }
  Tensor rotated(const Tensor& y) const {
    const auto part = [&](std::int64_t which) {
      std::vector<Slice> at(4);
      at[3] =
          neighbours ? slice::range(which, head, 2) : slice::range(which * head / 2, (which + 1) * head / 2);
      return f32(y.index(at));
    };
    const Tensor a = part(0), b = part(1), c = a * cosines - b * sines, d = b * cosines + a * sines;
    return bf16(neighbours ? stack({c, d}, -1).reshape(y.shape()) : concat({c, d}, -1));
  }
  Tensor operator()() const {
    const Tensor h = norm(x, before_attention);
    const Tensor i = arange(length).reshape({length, 1}), j = arange(length);
    const Tensor scores =
        f32(matmul(rotated(in_heads(matmul(h, q))), matrix_transpose(rotated(in_heads(matmul(h, k)))))) *
        (1 / std::sqrt(static_cast<double>(head)));
    const Tensor weights = bf16(nn::softmax(where(i >= j, scores, -std::numeric_limits<double>::infinity())));
    const Tensor attended = swapaxes(matmul(weights, in_heads(matmul(h, v))), 1, 2).reshape(x.shape());
    const Tensor y = x + matmul(attended, o);
    const Tensor g = norm(y, before_gates);
    return y + matmul(silu(matmul(g, gate)) * matmul(g, up), down);
  }
};

class TransformerLayer : public testing::OnNullDevice {
 protected:
  /// Launches and calls of the library.
  static std::uint64_t launches_of(const Layer& layer) {
    const test::Counted c = test::count([&] { layer().eval(); });
    return c.launches + c.library_calls;
  }
};

TEST_F(TransformerLayer, TakesEightLaunches) {
  // norm; q, k and v with both rotations; what tells which of v may be left out; attention; o with the
  // residual; norm; gate and up; down with the residual
  EXPECT_EQ(launches_of({4, 2048, 4096, 32, 11008}), 8u);
  EXPECT_EQ(launches_of({1, 4096, 2048, 32, 5632}), 8u) << "heads of 64";
}

TEST_F(TransformerLayer, WhatIsNotAtHandIsAKernelOfItsOwn) {
  EXPECT_EQ(launches_of({4, 2048, 4096, 16, 11008}), 12u) << "heads of 256";
  EXPECT_EQ(launches_of({4, 2048, 4096, 32, 11008, 128, true}), 12u) << "neighbours";
  options_.fuse_off = {"epilogue"};
  use();
  EXPECT_GT(launches_of({4, 2048, 4096, 32, 11008}), 8u);
}

TEST_F(TransformerLayer, TheDistanceIsTheReason) {
  const Layer layer{4, 2048, 4096, 16, 11008};
  const FusionRecorder recorder;
  layer().eval();
  const FusionReport r = recorder.last();
  int told = 0;
  for (const FusionReport::Boundary& b : r.boundaries)
    told += b.text().find("halves 128 columns apart") != std::string::npos;
  EXPECT_EQ(told, 4) << to_text(r);
}

}  // namespace
}  // namespace kiln
