// Slow programs, whose reports docs/walkthroughs.md explains: `walkthroughs NAME` runs one of them.
#include <kiln/kiln.h>

#include <cstdio>
#include <cstring>
#include <vector>

using namespace kiln;

namespace {

// [extra reader]
void extra_reader() {
  const Tensor q = random::normal(random::Key(1), {128, 64}).eval(),
               k = random::normal(random::Key(2), {128, 64}).eval(),
               v = random::normal(random::Key(3), {128, 64}).eval();
  const Tensor weights = nn::softmax(matmul(q, k.T()) * 0.125f);
  const Tensor out = matmul(weights, v);
  eval(out, weights);  // somebody looks at the weights, too
}
// [extra reader]

// [changing integer]
void changing_integer() {
  const Tensor keys = random::normal(random::Key(1), {64, 32}).eval(),
               query = random::normal(random::Key(2), {32}).eval();
  float total = 0;
  for (int t = 1; t <= 16; ++t) {
    const Tensor seen = keys(range(0, t));  // t rows: another shape in each iteration
    total += sum(nn::softmax(matmul(seen, query))).item<float>();
  }
  std::printf("%.1f\n", total);
}
// [changing integer]

// [printing]
void printing() {
  Tensor x = random::normal(random::Key(1), {1 << 16}).eval();
  for (int step = 0; step < 64; ++step) {
    x = x - 0.1f * tanh(x);
    std::printf("%g\n", mean(x).item<float>());
  }
}
// [printing]

// [copy to host]
void copy_to_host() {
  const Tensor x = random::normal(random::Key(1), {512, 512}).eval();
  const Tensor scaled = x * 0.5f + 1.0f;
  std::vector<float> values = scaled.to_vector<float>();  // a clamp that the program does itself
  for (float& value : values) value = value < 0 ? 0 : value;
  const Tensor y = exp(-Tensor::from(values, {512, 512}));
  std::printf("%g\n", sum(y).item<float>());
}
// [copy to host]

// [above the floor]
void above_the_floor() {
  const Tensor x = random::normal(random::Key(1), {4, 4 << 20}).eval();
  const Tensor centred = x - mean(x, 1, true);
  (centred / sqrt(mean(centred * centred, 1, true))).eval();
}
// [above the floor]

}  // namespace

int main(int argc, char** argv) {
  struct Program {
    const char* name;
    void (*run)();
  };
  constexpr Program kPrograms[] = {{"extra-reader", extra_reader},
                                   {"changing-integer", changing_integer},
                                   {"printing", printing},
                                   {"copy-to-host", copy_to_host},
                                   {"above-the-floor", above_the_floor}};
  for (const Program& program : kPrograms)
    if (argc < 2 || std::strcmp(argv[1], program.name) == 0) program.run();
}
