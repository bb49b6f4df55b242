// The programs of docs/tour.md, one function each. The page shows what stands between two markers and, below,
// what the function prints; tests/docs_test.cpp compares both. `tour` runs all of them, `tour NAME` one.
#include <kiln/grad.h>
#include <kiln/kiln.h>
#include <kiln/vmap.h>

#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

using namespace kiln;

namespace {

void creation() {
  // [creation]
  const Tensor counts = arange(6).reshape({2, 3});                // int64
  const Tensor grid = linspace(0.0, 1.0, 5);                      // float32, the last number is exactly 1
  const Tensor table = Tensor({1.5f, 2.5f, 3.5f, 4.5f}, {2, 2});  // copies a list
  const std::vector<double> values = {0.25, 0.5};
  const Tensor copied = Tensor::from(values);  // copies a vector, span or array; double gives float64
  const Tensor ones16 = ones({2, 2}, DType::BFloat16);
  const Tensor sevens = full({2}, 7, {DType::Int8, Device::cpu()});
  for (const Tensor& x : {counts, grid, table, copied, ones16, sevens}) std::cout << x << "\n";
  // [creation]
}

void indexing() {
  // [indexing]
  Tensor x = arange(12).reshape({3, 4});
  std::cout << x(1) << "\n";                                // an integer drops its axis
  std::cout << x(slice::all(), range(1, none, 2)) << "\n";  // columns 1 and 3
  std::cout << x(-1, range(none, none, -1)) << "\n";        // the last row, reversed
  std::cout << x(x % 5 == 0) << "\n";                       // the elements where a mask is true
  std::cout << take(x, Tensor({2, 0}), 0) << "\n";          // rows 2 and 0
  const Tensor before = x;
  x(0) = 0;                   // x becomes a new value; `before` keeps the old one
  x(slice::all(), 1) += 100;  // column 1
  x(x > 107) = -1;            // elements where a mask is true
  std::cout << x << "\n" << before(0) << "\n";
  // [indexing]
}

void broadcasting() {
  // [broadcasting]
  const Tensor row = arange(3), column = arange(2).reshape({2, 1});
  std::cout << row + 10 * column << "\n";  // (3,) and (2, 1) give (2, 3)
  std::cout << row(newaxis, slice::all()) - row(slice::all(), newaxis) << "\n";  // all differences, (3, 3)
  std::cout << (row + 0.5).dtype() << "\n";                      // an integer tensor and a float number
  std::cout << (ones(2, DType::Float16) * 2.5).dtype() << "\n";  // a float tensor keeps its dtype
  std::cout << (Tensor({1, 2}) + Tensor({0.5, 0.25})).dtype() << "\n";  // int32 and float64
  std::cout << where(row > 0, row.astype(DType::Float32) / 4, -1) << "\n";
  // [broadcasting]
}

void reductions() {
  // [reductions]
  const Tensor x = Tensor({1.f, 5.f, 3.f, 4.f, 2.f, 6.f}, {2, 3});
  std::cout << sum(x) << "\n";                 // all axes: rank 0
  std::cout << sum(x, 0) << "\n";              // (3,)
  std::cout << x - mean(x, -1, true) << "\n";  // keepdims: (2, 1) broadcasts against x
  std::cout << max(x, {0, 1}) << " at " << argmax(x) << "\n";
  std::cout << var(x, 1, false, 1) << "\n";                   // divided by count - 1
  std::cout << cumsum(x, 1) << "\n";                          // running sums
  if (any(x > 5)) std::cout << count_nonzero(x > 2) << "\n";  // `if` evaluates
  // [reductions]
}

void linear_algebra() {
  // [linear algebra]
  const Tensor a = arange(6.0).reshape({2, 3}), b = ones({3, 2}), v = Tensor({1.f, 2.f, 3.f});
  std::cout << matmul(a, b) << "\n";                 // (2, 3) @ (3, 2)
  std::cout << matmul(a, v) << "\n";                 // a vector loses its axis: (2,)
  std::cout << matmul(a, a.T()) << "\n";             // T(): the last two axes swapped, no copy
  std::cout << einsum("ij,kj->ik", {a, a}) << "\n";  // the same product
  std::cout << outer(v, v) << "\n" << vecdot(v, v) << "\n";
  std::cout << matmul(ones({4, 2, 3}), b).shape() << "\n";  // leading axes broadcast
  // [linear algebra]
}

void sorting() {
  // [sorting]
  const Tensor x = Tensor({3, 1, 2, 3});
  std::cout << sort(x) << "\n" << argsort(x) << "\n";
  const auto [values, indices] = topk(x, 2);
  std::cout << values << " at " << indices << "\n";
  std::cout << unique(x) << "\n";  // evaluates x: the values decide the shape
  std::cout << searchsorted(Tensor({10, 20, 30}), Tensor({5, 25})) << "\n";
  std::cout << scatter_add(zeros(4, DType::Int32), x, 1) << "\n";  // a histogram
  // [sorting]
}

void loops() {
  // [loops]
  const Tensor a = Tensor({1.f, 4.f, 9.f, 16.f});
  const Tensors roots = while_loop([&](const Tensors& s) { return abs(s[0] * s[0] - a) > 1e-3f * a; },
                                   [&](const Tensors& s) { return Tensors{0.5f * (s[0] + a / s[0])}; }, {a});
  std::cout << round(roots[0]) << "\n";  // each element stops when its own condition is false

  const auto balance = [](const Tensors& carry, const Tensors& x) {
    const Tensor next = carry[0] * 1.5f + x[0];
    return Scanned{{next}, {next}};  // the next carry, and what to keep
  };
  const Scanned result = scan(balance, {zeros({})}, {Tensor({100.f, 0.f, 20.f})});
  std::cout << result.ys[0] << "\n";

  Tensor x = zeros(3);
  for (int step = 0; step < 10; ++step) x = x + step;  // ten operations are recorded
  std::cout << x << "\n";
  // [loops]
}

void random_numbers() {
  // [random numbers]
  const random::Key seed(42);
  const auto [first, second] = random::split<2>(seed);  // a key is used once: split it
  const Tensor dice = random::randint(first, {5}, 1, 7);
  std::cout << dice << "\n";
  std::cout << array_equal(dice, random::randint(first, {5}, 1, 7)) << "\n";  // equal keys, equal draws
  const Tensor x = random::normal(second, {1000, 1000});
  std::cout << (abs(mean(x)) < 0.01f) << "\n";
  std::cout << sort(random::permutation(random::fold_in(seed, 7), 6)) << "\n";
  // [random numbers]
}

void files() {
  // [files]
  namespace fs = std::filesystem;
  const fs::path directory =
      fs::temp_directory_path() / ("kiln_tour" + std::to_string(std::random_device()()));
  fs::create_directories(directory);
  const Tensor x = arange(4.0).reshape({2, 2});
  save_npy(directory / "x.npy", x);  // evaluates x
  std::cout << load_npy(directory / "x.npy") << "\n";
  save_npz(directory / "both.npz", {{"x", x}, {"twice", 2 * x}});
  for (const auto& [name, tensor] : load_npz(directory / "both.npz"))
    std::cout << name << " " << tensor.shape() << "\n";
  save_safetensors(directory / "model.safetensors", {{"weight", x}}, {{"epoch", "3"}});
  const Safetensors model = load_safetensors(directory / "model.safetensors");  // maps the file
  std::cout << sum(model.tensors.at("weight")) << " epoch " << model.metadata.at("epoch") << "\n";
  fs::remove_all(directory);  // the mapping lives on until `model` is gone
  // [files]
}

void interop() {
  // [interop]
  std::vector<float> samples = {1, 2, 3, 4};
  const auto release = [](const void*) { std::cout << "released\n"; };
  {
    const Tensor lent = Tensor::borrow(samples, {2, 2}, release);  // no copy; Kiln never writes the memory
    const Tensor owned = Tensor::take(std::vector<int>{5, 6});     // no copy: the tensor owns the vector
    const Tensor twice = lent * 2;
    const std::span<const float> result = twice.span<float>();  // evaluates; valid while `twice` lives
    std::cout << result[3] << "\n" << lent << " " << owned << "\n";
  }
  const Tensor x = arange(3.0);
  const Tensor same = from_dlpack(to_dlpack(x).release());  // as another library would: shared memory
  std::cout << (same.data<float>() == x.data<float>()) << "\n";
  std::vector<float> out(3);
  (x + 1).copy_to(out);
  std::cout << out[2] << " " << x(1).item<float>() << " " << x.to_vector<float>().size() << "\n";
  // [interop]
}

void evaluation() {
  // [evaluation]
  reset_statistics();
  const Tensor x = random::uniform(random::Key(1), {256, 256});
  const Tensor low = min(x), high = max(x), mid = (low + high) / 2;
  std::cout << mid.evaluated() << " " << statistics().launches << "\n";  // recorded: nothing ran
  eval(low, high, mid);                                                  // together, so x is made once
  std::cout << mid.evaluated() << " " << statistics().evaluations << "\n";
  const float value = mid.item<float>();  // in memory: nothing runs
  std::cout << (value > 0.49f) << " " << statistics().evaluations << "\n";
  // [evaluation]
}

void kernels() {
  // [kernels]
  const Tensor x = random::normal(random::Key(2), {64, 128}).eval();
  const auto normalise = [](const Tensor& t) { return (t - mean(t, -1, true)) / stddev(t, -1, true); };
  reset_statistics();
  normalise(x).eval();
  std::cout << statistics().launches << " kernel, " << statistics().plan_misses << " plan made\n";
  normalise(x + 1).eval();  // another program: another plan
  normalise(x).eval();      // the first one again: its plan is found
  std::cout << statistics().plan_misses << " plans made, " << statistics().plan_hits << " found\n";
  // [kernels]
}

void configuration() {
  // [configuration]
  const Config before = config();  // what the KILN_ variables say
  Config options = before;
  options.strict = true;  // KILN_STRICT=1
  options.num_threads = 1;
  configure(options);
  std::cout << config().strict << " " << sum(ones(1000)).item<float>() << "\n";
  configure(before);
  // [configuration]
}

void errors() {
  // [errors]
  try {
    const Tensor product = matmul(zeros({4, 8}), zeros({7, 3}));
  } catch (const UserError& error) {  // thrown by the wrong call, before anything runs
    std::cout << error.message() << "\n";
  }
  // [errors]
}

void neural_networks() {
  // [neural networks]
  const Tensor x = random::normal(random::Key(3), {4, 8});
  const Tensor weight = random::normal(random::Key(4), {3, 8}), bias = zeros(3);
  const Tensor logits = nn::linear(gelu(nn::layer_norm(x)), weight, bias);
  std::cout << allclose(sum(nn::softmax(logits), -1), 1) << "\n";
  std::cout << nn::cross_entropy(logits, Tensor({0, 1, 2, 0})).shape() << "\n";
  // [neural networks]
}

void derivatives() {
  // [derivatives]
  const auto loss = [](const Tensor& w, const Tensor& x, const Tensor& y) {
    return mean(square(matmul(x, w) - y));
  };
  const Tensor x = arange(1.0, 5.0).reshape({2, 2}), y = arange(1.0, 3.0), w = full({2}, 0.5);
  const auto [value, gradient] = value_and_grad(loss, w, x, y);
  std::cout << value.item<float>() << " " << gradient << "\n";
  std::cout << vmap(grad(loss), {none, 0, 0})(w, x, y) << "\n";  // of each example
  // [derivatives]
}

struct Program {
  const char* name;
  void (*run)();
};
constexpr Program kPrograms[] = {{"creation", creation},
                                 {"indexing", indexing},
                                 {"broadcasting", broadcasting},
                                 {"reductions", reductions},
                                 {"linear algebra", linear_algebra},
                                 {"sorting", sorting},
                                 {"loops", loops},
                                 {"random numbers", random_numbers},
                                 {"neural networks", neural_networks},
                                 {"derivatives", derivatives},
                                 {"files", files},
                                 {"interop", interop},
                                 {"evaluation", evaluation},
                                 {"kernels", kernels},
                                 {"configuration", configuration},
                                 {"errors", errors}};

}  // namespace

int main(int argc, char** argv) {
  for (const Program& program : kPrograms) {
    if (argc > 1 && std::strcmp(argv[1], program.name) != 0) continue;
    std::cout << "[" << program.name << "]\n" << std::boolalpha;
    program.run();
  }
}
