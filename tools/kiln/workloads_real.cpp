// The workloads on real data: a photograph and handwritten digits.
#include "inputs.h"
#include "workload.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kiln::tool {
namespace {

constexpr double kBlur[5] = {1 / 16.0, 4 / 16.0, 6 / 16.0, 4 / 16.0, 1 / 16.0};
constexpr double kSharpen = 0.7, kToneScale = 1.15;

/// Five taps along one axis of a (height, width, 3) picture; edges repeat zeros.
Tensor blur(const Tensor& x, int axis) {
  std::vector<std::pair<std::int64_t, std::int64_t>> widths(3, {0, 0});
  widths[static_cast<std::size_t>(axis)] = {2, 2};
  const Tensor padded = pad(x, widths);
  Tensor total;
  for (int tap = 0; tap < 5; ++tap) {
    const Slice part = range(tap, tap + x.dim(axis));
    const Tensor shifted = axis == 0 ? padded.index(std::vector<Slice>{part})
                                     : padded.index(std::vector<Slice>{slice::all(), part});
    total = tap == 0 ? shifted * kBlur[0] : total + shifted * kBlur[tap];
  }
  return total;
}

/// sRGB → linear, unsharp mask, filmic tone curve, back to sRGB bytes.
Tensor develop(const Tensor& photo) {
  const Tensor s = astype(photo, DType::Float32) * (1.0 / 255);
  const Tensor linear = where(s <= 0.04045, s * (1 / 12.92), pow((s + 0.055) * (1 / 1.055), 2.4));
  const Tensor sharp = clip(linear + kSharpen * (linear - blur(blur(linear, 0), 1)), 0.0, 1.0);
  const Tensor toned = clip(sharp * (kToneScale * sharp + 0.9) / (sharp * (sharp + 0.9) + 0.15), 0.0, 1.0);
  const Tensor back = where(toned <= 0.0031308, toned * 12.92, 1.055 * pow(toned, 1 / 2.4) - 0.055);
  return astype(round(back * 255.0), DType::UInt8);
}

/// The same in float64, before rounding.
std::vector<double> develop_reference(const std::vector<std::uint8_t>& rgb, std::int64_t h, std::int64_t w) {
  const auto n = static_cast<std::size_t>(h * w * 3);
  std::vector<double> linear(n), rows(n, 0.0), both(n, 0.0), out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double s = rgb[i] / 255.0;
    linear[i] = s <= 0.04045 ? s / 12.92 : std::pow((s + 0.055) / 1.055, 2.4);
  }
  for (std::int64_t y = 0; y < h; ++y)
    for (std::int64_t i = 0; i < w * 3; ++i)
      for (int t = 0; t < 5; ++t)
        if (const std::int64_t from = y + t - 2; from >= 0 && from < h)
          rows[static_cast<std::size_t>(y * w * 3 + i)] +=
              kBlur[t] * linear[static_cast<std::size_t>(from * w * 3 + i)];
  for (std::int64_t y = 0; y < h; ++y)
    for (std::int64_t x = 0; x < w; ++x)
      for (int c = 0; c < 3; ++c)
        for (int t = 0; t < 5; ++t)
          if (const std::int64_t from = x + t - 2; from >= 0 && from < w)
            both[static_cast<std::size_t>((y * w + x) * 3 + c)] +=
                kBlur[t] * rows[static_cast<std::size_t>((y * w + from) * 3 + c)];
  for (std::size_t i = 0; i < n; ++i) {
    const double sharp = std::clamp(linear[i] + kSharpen * (linear[i] - both[i]), 0.0, 1.0);
    const double toned =
        std::clamp(sharp * (kToneScale * sharp + 0.9) / (sharp * (sharp + 0.9) + 0.15), 0.0, 1.0);
    out[i] = 255 * (toned <= 0.0031308 ? toned * 12.92 : 1.055 * std::pow(toned, 1 / 2.4) - 0.055);
  }
  return out;
}

}  // namespace

std::vector<Workload> image_workloads() {
  const std::string path = find_data("astronaut.png");
  if (path.empty()) return {};
  Workload w;
  w.name = "image_pipeline_u8_512x512x3";
  w.dtype = "uint8";
  w.bytes = 2.0 * 512 * 512 * 3;
  w.tolerance = 0.51;  // of a level of 255: half is rounding
  w.make = [path](bool tiny) {
    Photo photo = tiny ? Photo{8, 8, std::vector<std::uint8_t>(8 * 8 * 3, 100)} : read_photo(path);
    const Tensor x = Tensor::from(photo.rgb, {photo.height, photo.width, 3});
    Program p;
    p.record = [x] { return std::vector{develop(x)}; };
    p.max_error = [photo](const std::vector<Tensor>& out) {
      const std::vector<double> expected = develop_reference(photo.rgb, photo.height, photo.width);
      const std::uint8_t* got = out[0].data<std::uint8_t>();
      double worst = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(got[i] - expected[i]));
      return worst;
    };
    return p;
  };
  return {w};
}

namespace {

/// The greatest difference of the probabilities of image i from those that its pixels give in double.
double error_of_image(const float* pixels, const std::vector<Layer>& layers, const float* got,
                      std::int64_t i) {
  std::vector<double> value(pixels, pixels + 64);
  for (double& v : value) v /= 16;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<double> next;
    for (std::int64_t o = 0; o < layers[l].outputs; ++o) {
      double total = layers[l].bias[static_cast<std::size_t>(o)];
      for (std::size_t q = 0; q < value.size(); ++q)
        total += value[q] * layers[l].weight[static_cast<std::size_t>(o) * value.size() + q];
      next.push_back(l == 0 ? std::max(total, 0.0) : total);
    }
    value = next;
  }
  const double top = *std::max_element(value.begin(), value.end());
  double total = 0, worst = 0;
  for (double& v : value) total += v = std::exp(v - top);
  for (std::size_t c = 0; c < value.size(); ++c)
    worst = std::max(worst, std::abs(got[static_cast<std::size_t>(i) * value.size() + c] - value[c] / total));
  return worst;
}

std::string held_out_images(const Tensor& probabilities, const Digits& digits, std::int64_t n) {
  constexpr std::int64_t kTrained = 1200;
  const std::vector<std::int64_t> guess = argmax(probabilities, -1).to_vector<std::int64_t>();
  std::int64_t right = 0;
  for (std::int64_t i = kTrained; i < n; ++i)
    right += guess[static_cast<std::size_t>(i)] == digits.labels[static_cast<std::size_t>(i)];
  char text[96];
  std::snprintf(text, sizeof text, "digits: %lld of %lld held-out images right (%.1f %%)",
                static_cast<long long>(right), static_cast<long long>(n - kTrained),
                100.0 * static_cast<double>(right) / static_cast<double>(n - kTrained));
  return text;
}

}  // namespace

std::vector<Workload> digits_workloads() {
  const std::string data = find_data("digits.csv.gz"), weights = find_data("digits_mlp.csv");
  if (data.empty() || weights.empty()) return {};
  Workload w;
  w.name = "digits_forward_f32_1797";
  w.bytes = 4.0 * 1797 * (64 + 10) + 4.0 * (48 * 65 + 10 * 49);
  w.tolerance = 1e-4;
  w.make = [=](bool tiny) {
    Digits digits = read_digits(data);
    const std::vector<Layer> layers = read_layers(weights);
    const std::int64_t n = tiny ? 4 : static_cast<std::int64_t>(digits.labels.size());
    digits.pixels.resize(static_cast<std::size_t>(n * 64));
    const Tensor x = Tensor::from(digits.pixels, {n, 64});
    std::vector<Tensor> weight, bias;
    for (const Layer& layer : layers) {
      weight.push_back(Tensor::from(layer.weight, {layer.outputs, layer.inputs}));
      bias.push_back(Tensor::from(layer.bias));
    }
    Program p;
    p.record = [=] {
      const Tensor hidden = relu(nn::linear(x * (1.0 / 16), weight[0], bias[0]));
      return std::vector{nn::softmax(nn::linear(hidden, weight[1], bias[1]))};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      double worst = 0;
      for (std::int64_t i = 0; i < n; ++i)
        worst =
            std::max(worst, error_of_image(digits.pixels.data() + i * 64, layers, out[0].data<float>(), i));
      return worst;
    };
    p.remark = [=](const std::vector<Tensor>& out) { return held_out_images(out[0], digits, n); };
    return p;
  };
  return {w};
}

}  // namespace kiln::tool
