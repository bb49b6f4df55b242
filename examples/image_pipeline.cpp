// A photograph developed: sRGB to linear light, a wide blur by slices, unsharp mask, tone curve, back to
// sRGB.
//
//   image_pipeline [in.png [out.png]]
#include "inputs.h"

#include <kiln/kiln.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

using namespace kiln;

namespace {

Tensor to_linear(const Tensor& s) { return where(s <= 0.04045, s / 12.92, pow((s + 0.055) / 1.055, 2.4)); }
Tensor to_srgb(const Tensor& x) { return where(x <= 0.0031308, x * 12.92, 1.055 * pow(x, 1 / 2.4) - 0.055); }

/// Gaussian weights of 2·radius + 1 taps, adding up to 1.
std::vector<double> gaussian(int radius) {
  std::vector<double> taps;
  double total = 0;
  for (int i = -radius; i <= radius; ++i) {
    taps.push_back(std::exp(-4.5 * i * i / (radius * radius)));
    total += taps.back();
  }
  for (double& tap : taps) tap /= total;
  return taps;
}

/// Blurs along the first axis. Past an edge stands the edge's own row.
Tensor blur_rows(const Tensor& x, const std::vector<double>& taps) {
  const auto radius = static_cast<std::int64_t>(taps.size() / 2);
  const std::int64_t height = x.dim(0);
  const Tensor top = repeat(x(range(none, 1)), radius, 0), bottom = repeat(x(range(-1, none)), radius, 0);
  const Tensor padded = concat({top, x, bottom});
  Tensor total = zeros_like(x);
  for (std::size_t i = 0; i < taps.size(); ++i) {
    const auto from = static_cast<std::int64_t>(i);
    total += taps[i] * padded(range(from, from + height));
  }
  return total;
}

Tensor blur(const Tensor& x, const std::vector<double>& taps) {
  return swapaxes(blur_rows(swapaxes(blur_rows(x, taps), 0, 1), taps), 0, 1);
}

/// Lifts the middle tones; keeps 0 and 1.
Tensor tone(const Tensor& x) { return x * (1.2 - 0.2 * x); }

Tensor develop(const Tensor& bytes) {
  const Tensor light = to_linear(astype(bytes, DType::Float32) / 255);
  const Tensor luminance =
      light(ellipsis, 0) * 0.2126 + light(ellipsis, 1) * 0.7152 + light(ellipsis, 2) * 0.0722;
  const Tensor detail = luminance - blur(luminance, gaussian(4));
  const Tensor sharp = clip(light + 0.6 * expand_dims(detail, -1), 0, 1);
  return astype(round(to_srgb(tone(sharp)) * 255), DType::UInt8);
}

double mean_contrast(const Tensor& bytes) {  // mean step between neighbouring pixels
  const Tensor x = astype(bytes, DType::Float32);
  return mean(abs(x(slice::all(), range(1, none)) - x(slice::all(), range(none, -1)))).item<float>();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string in = argc > 1 ? argv[1] : tool::find_data("astronaut.png");
  const std::string out = argc > 2 ? argv[2] : "developed.png";
  tool::Photo photo = tool::read_photo(in);
  const Tensor bytes = Tensor::from(photo.rgb, {photo.height, photo.width, 3});

  for (const char* which : {"first", "second"}) {
    reset_statistics();
    const auto start = std::chrono::steady_clock::now();
    photo.rgb = develop(bytes).to_vector<std::uint8_t>();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    wait_for_compiles();
    std::printf(
        "%s run: %.1f ms, %llu kernels ran, %llu made\n", which, taken.count(),
        static_cast<unsigned long long>(statistics().launches),
        static_cast<unsigned long long>(statistics().kernels_compiled + statistics().kernels_from_disk));
  }
  tool::write_photo(out, photo);

  const Tensor developed = Tensor::from(photo.rgb, bytes.shape());
  const double before = mean_contrast(bytes), after = mean_contrast(developed);
  std::printf("%lld x %lld pixels; step between neighbours %.2f before, %.2f after\n",
              static_cast<long long>(photo.width), static_cast<long long>(photo.height), before, after);
  const bool same = all(astype(developed, DType::Int32) == astype(develop(bytes), DType::Int32)).item<bool>();
  std::printf("written to %s: %s\n", out.c_str(), same && after > before ? "sharper" : "WRONG");
  return same && after > before ? 0 : 1;
}
