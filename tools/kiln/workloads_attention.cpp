// Attention as a user writes it: two products, a mask, a softmax. Each variant is one kernel, and nothing of
// rows × columns is stored.
#include "workload.h"

#include "checks.h"

#include <kiln/nn.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln::tool {
namespace {

constexpr double kSlopeBase = 8, kCap = 30;
constexpr std::int64_t kWindow = 512;

enum class Mask : std::uint8_t { None, Causal, Alibi, SoftCap, Window };

const char* name(Mask m) {
  switch (m) {
    case Mask::None: return "";
    case Mask::Causal: return "_causal";
    case Mask::Alibi: return "_alibi";
    case Mask::SoftCap: return "_softcap";
    case Mask::Window: return "_window512";
  }
  return "";
}

struct Extents {
  std::int64_t batch, heads, length, depth;
  std::int64_t rows = length;  // of q; fewer have no mask
};

Tensor masked(const Tensor& t, Mask mask, const Extents& e) {
  if (mask == Mask::None) return t;
  const Tensor i = arange(e.length).reshape({e.length, 1}), j = arange(e.length).reshape({1, e.length});
  const double none = -std::numeric_limits<double>::infinity();
  switch (mask) {
    case Mask::None:
    case Mask::Causal: return where(i >= j, t, none);
    case Mask::Alibi: {
      const Tensor head = arange(e.heads).astype(DType::Float32) + 1.0;
      const Tensor slope = exp2(head * (-kSlopeBase / static_cast<double>(e.heads))).reshape({e.heads, 1, 1});
      return where(i >= j, t + (j - i).astype(DType::Float32) * slope, none);
    }
    case Mask::SoftCap: return where(i >= j, tanh(t * (1 / kCap)) * kCap, none);
    case Mask::Window: return where((i >= j) & (i - j < kWindow), t, none);
  }
  return t;
}

/// Row i of one head's result, in float64.
std::vector<double> expected_row(const Values& q, const Values& k, const Values& v, Mask mask,
                                 const Extents& e, std::int64_t row) {
  const std::int64_t i = row % e.rows, number = row / e.rows, head = number % e.heads, d = e.depth;
  std::vector<double> t, out(static_cast<std::size_t>(d));
  const std::int64_t first = mask == Mask::Window ? std::max<std::int64_t>(0, i - kWindow + 1) : 0,
                     last = mask == Mask::None ? e.length - 1 : i;
  double most = -std::numeric_limits<double>::infinity(), total = 0;
  for (std::int64_t j = first; j <= last; ++j) {
    double s = 0;
    for (std::int64_t x = 0; x < d; ++x) s += q[row * d + x] * k[(number * e.length + j) * d + x];
    s /= std::sqrt(static_cast<double>(d));
    if (mask == Mask::Alibi)
      s += static_cast<double>(j - i) *
           std::exp2(-kSlopeBase * static_cast<double>(head + 1) / static_cast<double>(e.heads));
    if (mask == Mask::SoftCap) s = kCap * std::tanh(s / kCap);
    t.push_back(s);
    most = std::max(most, s);
  }
  for (double& x : t) total += x = std::exp(x - most);
  for (std::int64_t j = first; j <= last; ++j)
    for (std::int64_t x = 0; x < d; ++x)
      out[static_cast<std::size_t>(x)] +=
          t[static_cast<std::size_t>(j - first)] / total * v[(number * e.length + j) * d + x];
  return out;
}

Workload attention(const std::string& sizes, Mask mask, const Extents& full, DType dtype) {
  Workload w;
  const bool half = dtype == DType::BFloat16;
  w.name = std::string("attention") + name(mask) + (half ? "_bf16_" : "_f32_") + sizes;
  w.dtype = half ? "bfloat16" : "float32";
  w.floor = Workload::Floor::Flops;
  const double matrices = static_cast<double>(full.batch * full.heads), n = static_cast<double>(full.length),
               d = static_cast<double>(full.depth);
  const double pairs = mask == Mask::None     ? n * n
                       : mask == Mask::Window ? n * static_cast<double>(std::min(kWindow, full.length))
                                              : n * n / 2;
  w.bytes = (half ? 2.0 : 4.0) * 4 * matrices * n * d;
  w.flops = 4.0 * matrices * pairs * d;
  w.tolerance = half ? 2e-2 : 1e-4;
  w.make = [=](bool tiny) {
    const Extents e = tiny ? Extents{1, 2, 8, 16, std::min<std::int64_t>(full.rows, 8)} : full;
    const Shape shape{e.batch, e.heads, e.length, e.depth};
    const Tensor q = uniform({e.batch, e.heads, e.rows, e.depth}, -2, 2, 61, dtype),
                 k = uniform(shape, -2, 2, 62, dtype), v = uniform(shape, -1, 1, 63, dtype);
    Program p;
    p.record = [=] {
      const Tensor t = matmul(q, matrix_transpose(k)).astype(DType::Float32) *
                       (1 / std::sqrt(static_cast<double>(e.depth)));
      return std::vector{matmul(nn::softmax(masked(t, mask, e)).astype(dtype), v)};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const Values a(q), b(k), c(v);
      return row_error(out[0], [&](std::int64_t row) { return expected_row(a, b, c, mask, e, row); });
    };
    return p;
  };
  return w;
}

/// The rows of new tokens against all that came before: the time of reading k and v.
Workload few_rows(const std::string& sizes, const Extents& full, DType dtype) {
  Workload w = attention(sizes, Mask::None, full, dtype);
  w.name.insert(w.name.find('_'), "_" + std::to_string(full.rows) + "row" + (full.rows > 1 ? "s" : ""));
  w.floor = Workload::Floor::Read;
  w.bytes = 2.0 * static_cast<double>(full.batch * full.heads * full.length * full.depth * size_of(dtype));
  return w;
}

constexpr Mask kMasked[] = {Mask::Causal, Mask::Alibi, Mask::SoftCap, Mask::Window};

}  // namespace

std::vector<Workload> attention_workloads(bool gpu) {
  std::vector<Workload> out;
  if (gpu) {
    for (const Mask m : kMasked)
      out.push_back(attention("4x32x4096x128", m, {4, 32, 4096, 128}, DType::BFloat16));
    for (const Extents& e : {Extents{4, 16, 4096, 64}, Extents{16, 16, 1024, 64}})
      out.push_back(attention(std::to_string(e.batch) + "x16x" + std::to_string(e.length) + "x64",
                              Mask::Causal, e, DType::BFloat16));
    out.push_back(few_rows("4x32x8192x128", {4, 32, 8192, 128, 1}, DType::BFloat16));
    for (const Mask m : {Mask::None, Mask::Causal})
      out.push_back(attention("4x16x2048x64", m, {4, 16, 2048, 64}, DType::Float32));
    out.push_back(attention("2x16x2048x128", Mask::Causal, {2, 16, 2048, 128}, DType::Float32));
    for (const std::int64_t few : {1, 16})
      out.push_back(few_rows("1x16x16384x64", {1, 16, 16384, 64, few}, DType::Float32));
    return out;
  }
  out.push_back(attention("1x8x1024x64", Mask::None, {1, 8, 1024, 64}, DType::Float32));
  for (const Mask m : kMasked) out.push_back(attention("1x8x1024x64", m, {1, 8, 1024, 64}, DType::Float32));
  for (const std::int64_t rows : {1, 16})
    out.push_back(few_rows("1x8x2048x64", {1, 8, 2048, 64, rows}, DType::Float32));
  return out;
}

}  // namespace kiln::tool
