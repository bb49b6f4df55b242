// Uses much of the public headers, so that their templates are instantiated under the warnings of
// headers.cmake.
#include <kiln/gpu.h>
#include <kiln/kiln.h>

#include <array>
#include <iostream>
#include <list>
#include <vector>

using namespace kiln;

int main() {
  const std::vector<float> v(6, 1.0f);
  std::vector<std::size_t> sizes{2, 3};
  Tensor x = Tensor(v, sizes), y({1.f, 2.f, 3.f}, {1, 3}), z = zeros({v.size(), 4u});
  x += Tensor::from({1, 2, 3}) * 2 - y / 3.0 + Tensor(std::array{1.0, 2.0, 3.0});
  x(0) += 1;
  x(range(0, v.size()), 1) = 2.0f;
  x[x > 3] = 0;
  x[Tensor({0, 1})] *= Scalar(2);
  for (const Tensor& row : x)
    std::cout << row << sum(row, -1, true) << row.dtype() << row.device() << row.shape();
  if (any(x != y) && allclose(x, y)) std::cout << stddev(x, {0, 1}) << max(x, std::list<short>{0});
  const auto parts = split(x, {std::size_t{1}});
  eval(x, y, parts[0]);
  std::vector<float> out(6);
  x.copy_to(out);
  std::cout << x.item<double>() << x.to_vector<float>().size() << x.span<float>().size();
  const auto loop = while_loop([](const Tensors& s) { return s[0] < 3; },
                               [](const Tensors& s) { return Tensors{s[0] + 1}; }, {Tensor(0)});
  const auto [now, later] = random::split<2>(random::Key(1));
  const Tensor draw = random::normal(now, {2, 3}, {DType::Float64, Device::cpu()});
  const Tensor back = from_dlpack(to_dlpack(draw).release());
  std::cout << nn::softmax(back, -1) << Tensor::take(std::vector<int>{1, 2}) << loop[0] << z
            << bitcast(x, DType::Int32);
  std::cout << (later == now) << memory_use(Device::cpu()).in_use << *dtype_from_name("f32")
            << std::vector<bool>(2).size();
  return static_cast<int>(float16(1.0f)) + static_cast<int>(bfloat16(1.0f));
}
