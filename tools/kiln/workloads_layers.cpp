// Layers of networks as a program writes them: a transformer's with its norms, rotations, attention and
// gates, and a convolution with a normalisation of constants and an activation.
#include "workload.h"

#include "checks.h"

#include <kiln/layers.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace kiln::tool {
namespace {

constexpr double kEpsilon = 1e-5;

Tensor f32(const Tensor& x) { return astype(x, DType::Float32); }
Tensor bf16(const Tensor& x) { return astype(x, DType::BFloat16); }
Tensor halves(const Shape& shape, double most, std::uint32_t seed) {
  return uniform(shape, -most, most, seed, DType::BFloat16);
}

// ---- a layer of a transformer ----

struct Sizes {
  std::int64_t batch, length, width, heads, hidden;
  std::int64_t head() const { return width / heads; }
};

struct Llama {
  Sizes sizes;
  Tensor x, cosines, sines;               // of a rotation of each position's halves of a head
  Tensor before_attention, before_gates;  // weights of norms
  Tensor q, k, v, o, gate, up, down;      // (in, out)

  explicit Llama(const Sizes& s) : sizes(s) {
    const auto angles = [&] {
      const Tensor position = f32(arange(s.length)).reshape({s.length, 1});
      return position *
             exp2(f32(arange(s.head() / 2)) * (-2.0 * std::log2(1e4) / static_cast<double>(s.head())));
    };
    const double wide = std::sqrt(3.0 / static_cast<double>(s.width)),
                 tall = std::sqrt(3.0 / static_cast<double>(s.hidden));
    x = halves({s.batch, s.length, s.width}, 1, 71);
    cosines = cos(angles()).eval();
    sines = sin(angles()).eval();
    before_attention = uniform({s.width}, 0.5, 1.5, 72, DType::BFloat16);
    before_gates = uniform({s.width}, 0.5, 1.5, 73, DType::BFloat16);
    q = halves({s.width, s.width}, wide, 74);
    k = halves({s.width, s.width}, wide, 75);
    v = halves({s.width, s.width}, wide, 76);
    o = halves({s.width, s.width}, wide, 77);
    gate = halves({s.width, s.hidden}, wide, 78);
    up = halves({s.width, s.hidden}, wide, 79);
    down = halves({s.hidden, s.width}, tall, 80);
  }

  static Tensor norm(const Tensor& x, const Tensor& weight) {
    const Tensor wide = f32(x);
    return bf16(wide * rsqrt(mean(wide * wide, -1, true) + kEpsilon) * f32(weight));
  }
  Tensor heads(const Tensor& x) const {
    return swapaxes(x.reshape({sizes.batch, sizes.length, sizes.heads, sizes.head()}), 1, 2);
  }
  Tensor rotated(const Tensor& x) const {
    const std::int64_t half = sizes.head() / 2;
    const auto part = [&](std::int64_t first) {
      return f32(x.index(
          std::vector<Slice>{slice::all(), slice::all(), slice::all(), slice::range(first, first + half)}));
    };
    const Tensor a = part(0), b = part(half);
    return bf16(concat({a * cosines - b * sines, b * cosines + a * sines}, -1));
  }

  Tensor operator()() const {
    const Tensor h = norm(x, before_attention);
    const Tensor i = arange(sizes.length).reshape({sizes.length, 1}), j = arange(sizes.length);
    const Tensor scores =
        f32(matmul(rotated(heads(matmul(h, q))), matrix_transpose(rotated(heads(matmul(h, k)))))) *
        (1 / std::sqrt(static_cast<double>(sizes.head())));
    const Tensor weights = bf16(nn::softmax(where(i >= j, scores, -std::numeric_limits<double>::infinity())));
    const Tensor attended = swapaxes(matmul(weights, heads(matmul(h, v))), 1, 2).reshape(x.shape());
    const Tensor y = x + matmul(attended, o);
    const Tensor g = norm(y, before_gates);
    return y + matmul(silu(matmul(g, gate)) * matmul(g, up), down);
  }
};

typedef std::vector<double> Row;

Row times(const Row& x, const Values& w, std::int64_t columns) {
  Row out(static_cast<std::size_t>(columns));
  for (std::size_t r = 0; r < x.size(); ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      out[static_cast<std::size_t>(c)] += x[r] * w[static_cast<std::int64_t>(r) * columns + c];
  return out;
}

Row normed(const Row& x, const Values& weight) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEpsilon);
  Row out(x);
  for (std::size_t i = 0; i < x.size(); ++i) out[i] *= scale * weight[static_cast<std::int64_t>(i)];
  return out;
}

/// A position of a sequence in float64: those before it are all that it depends on.
class Expected {
 public:
  explicit Expected(const Llama& l)
      : s_(l.sizes),
        x_(l.x),
        first_(l.before_attention),
        second_(l.before_gates),
        q_(l.q),
        k_(l.k),
        v_(l.v),
        o_(l.o),
        gate_(l.gate),
        up_(l.up),
        down_(l.down) {}

  Row at(std::int64_t batch, std::int64_t position) const {
    const Row x = input(batch, position), q = rotated(times(normed(x, first_), q_, s_.width), position);
    std::vector<Row> keys, values;
    for (std::int64_t p = 0; p <= position; ++p) {
      const Row h = normed(input(batch, p), first_);
      keys.push_back(rotated(times(h, k_, s_.width), p));
      values.push_back(times(h, v_, s_.width));
    }
    Row attended(x.size());
    for (std::int64_t head = 0; head < s_.heads; ++head) attend(head, q, keys, values, attended);
    Row y = times(attended, o_, s_.width);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
    const Row g = normed(y, second_);
    Row gated = times(g, gate_, s_.hidden);
    const Row up = times(g, up_, s_.hidden);
    for (std::size_t i = 0; i < gated.size(); ++i) gated[i] *= up[i] / (1 + std::exp(-gated[i]));
    const Row down = times(gated, down_, s_.width);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += down[i];
    return y;
  }

 private:
  Row input(std::int64_t batch, std::int64_t position) const {
    Row out;
    for (std::int64_t c = 0; c < s_.width; ++c)
      out.push_back(x_[(batch * s_.length + position) * s_.width + c]);
    return out;
  }
  Row rotated(const Row& x, std::int64_t position) const {
    Row out(x.size());
    const std::int64_t half = s_.head() / 2;
    for (std::int64_t h = 0; h < s_.heads; ++h)
      for (std::int64_t c = 0; c < half; ++c) {
        const double angle = static_cast<double>(position) *
                             std::pow(1e4, -2.0 * static_cast<double>(c) / static_cast<double>(s_.head()));
        const auto a = static_cast<std::size_t>(h * s_.head() + c), b = a + static_cast<std::size_t>(half);
        out[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        out[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
      }
    return out;
  }
  void attend(std::int64_t head, const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values,
              Row& to) const {
    const auto first = static_cast<std::size_t>(head * s_.head()),
               end = first + static_cast<std::size_t>(s_.head());
    Row weights;
    double total = 0;
    for (const Row& key : keys) {
      double score = 0;
      for (std::size_t c = first; c < end; ++c) score += q[c] * key[c];
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s_.head()))));
      total += weights.back();
    }
    for (std::size_t p = 0; p < values.size(); ++p)
      for (std::size_t c = first; c < end; ++c) to[c] += weights[p] / total * values[p][c];
  }

  Sizes s_;
  Values x_, first_, second_, q_, k_, v_, o_, gate_, up_, down_;
};

Workload llama_layer() {
  Workload w;
  w.name = "llama_layer_bf16_B4_S2048_D4096_H32_F11008";
  w.dtype = "bfloat16";
  w.floor = Workload::Floor::Flops;
  const double tokens = 4.0 * 2048, width = 4096, hidden = 11008;
  w.bytes = 2.0 * (2 * tokens * width + 4 * width * width + 3 * width * hidden);
  w.flops = 2.0 * tokens * (4 * width * width + 3 * width * hidden + 2048 * width);
  w.tolerance = 4e-2;
  w.make = [](bool tiny) {
    const Llama layer(tiny ? Sizes{1, 8, 16, 2, 32} : Sizes{4, 2048, 4096, 32, 11008});
    Program p;
    p.record = [layer] { return std::vector{layer()}; };
    p.max_error = [layer](const std::vector<Tensor>& out) {
      const Expected expected(layer);
      const Values got(out[0]);
      const Sizes& s = layer.sizes;
      constexpr std::int64_t kPositions = 3;
      return greatest(s.batch * kPositions, [&](std::int64_t sample) {
        const std::int64_t batch = sample / kPositions, position = sample % kPositions;
        const Row row = expected.at(batch, position);
        double most = 1, error = 0;
        for (std::int64_t c = 0; c < s.width; ++c) {
          const double want = row[static_cast<std::size_t>(c)];
          most = std::max(most, std::abs(want));
          error = std::max(error, std::abs(got[(batch * s.length + position) * s.width + c] - want));
        }
        return error / most;
      });
    };
    return p;
  };
  return w;
}

// ---- a convolution ----

/// relu(norm(conv(x))), channels last; the norm's statistics are constants of the network.
Workload conv_bn_relu() {
  Workload w;
  w.name = "conv_bn_relu_bf16_nhwc_64x56x56x256_3x3";
  w.dtype = "bfloat16";
  w.floor = Workload::Floor::Flops;
  w.bytes = 2.0 * (2 * 64.0 * 56 * 56 * 256 + 256.0 * 9 * 256);
  w.flops = 2.0 * 64 * 56 * 56 * 256 * 9 * 256;
  w.tolerance = 3e-2;
  w.make = [](bool tiny) {
    const std::int64_t n = tiny ? 1 : 64, side = tiny ? 5 : 56, channels = tiny ? 4 : 256;
    const Tensor x = halves({n, side, side, channels}, 1, 81),
                 weight = halves({channels, 3, 3, channels}, 0.04, 82);
    const Tensor mean = uniform({channels}, -0.5, 0.5, 83), var = uniform({channels}, 0.5, 1.5, 84),
                 scale = uniform({channels}, 0.5, 1.5, 85), bias = uniform({channels}, -1, 1, 86);
    Program p;
    p.record = [=] {
      const Tensor y = nn::conv(x, weight, {}, {.padding = {1, 1}, .channels_last = true});
      return std::vector{bf16(relu(nn::batch_norm(f32(y), mean, var, scale, bias, kEpsilon, -1)))};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const Values in(x), weights(weight), m(mean), v(var), s(scale), b(bias);
      return elementwise_error(out[0], [&](std::int64_t at) {
        const std::int64_t to = at % channels, column = at / channels % side,
                           row = at / channels / side % side, image = at / channels / side / side;
        double sum = 0;
        for (std::int64_t i = 0; i < 9; ++i) {
          const std::int64_t r = row + i / 3 - 1, c = column + i % 3 - 1;
          if (std::min(r, c) < 0 || std::max(r, c) >= side) continue;
          for (std::int64_t from = 0; from < channels; ++from)
            sum += in[((image * side + r) * side + c) * channels + from] *
                   weights[(to * 9 + i) * channels + from];
        }
        return std::max(0.0, (sum - m[to]) / std::sqrt(v[to] + kEpsilon) * s[to] + b[to]);
      });
    };
    return p;
  };
  return w;
}

}  // namespace

std::vector<Workload> layer_workloads() { return {llama_layer(), conv_bn_relu()}; }

}  // namespace kiln::tool
