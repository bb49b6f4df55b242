// Several results of one loop in one evaluation, and states of one element that views read.
#include "api/expect.h"
#include "modes.h"

#include <kiln/report.h>

#include <functional>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::floats;
using testing::in_every_mode;

/// What is made of a carry, whose last axis is the one to reduce.
struct Reader {
  const char* name;
  std::function<Tensor(const Tensor&)> read;
};
const Reader kReaders[] = {
    {"sum", [](const Tensor& x) { return sum(x); }},
    {"sum of the last axis", [](const Tensor& x) { return sum(x, -1); }},
    {"sum of the first axis", [](const Tensor& x) { return sum(x, 0); }},
    {"mean", [](const Tensor& x) { return mean(x, -1); }},
    {"max", [](const Tensor& x) { return max(x); }},
    {"argmax", [](const Tensor& x) { return argmax(x, -1); }},
    {"softmax", [](const Tensor& x) { return nn::softmax(x, -1); }},
    {"softmax down", [](const Tensor& x) { return nn::softmax(x, 0); }},
    {"layer_norm", [](const Tensor& x) { return nn::layer_norm(x); }},
    {"cumsum", [](const Tensor& x) { return cumsum(x, -1); }},
    {"cumsum down", [](const Tensor& x) { return cumsum(x, 0); }},
    {"scan from the end", [](const Tensor& x) { return cumsum(x, -1, false, true); }},
    {"row statistics spread back",
     [](const Tensor& x) { return (x - max(x, -1, true)) / (1.0 + sum(abs(x), -1, true)); }},
};

Scanned averages(const Tensor& x, const Tensor& init) {
  return scan(
      [](const Tensors& c, const Tensors& in) {
        const Tensor next = c[0] * 0.5 + in[0];
        return Scanned{{next}, {next, c[0] - in[0]}};
      },
      {init}, {x});
}

/// Values of all of them from one evaluation.
std::vector<std::vector<double>> together(const Tensors& wanted) {
  eval(wanted);
  std::vector<std::vector<double>> out;
  for (const Tensor& t : wanted) out.push_back(t.astype(DType::Float64).to_vector<double>());
  return out;
}

void expect_as_interpreted(const std::function<Tensors()>& record, double tolerance = 1e-6) {
  const auto want = [&] {
    const testing::ModeScope scope(Mode::Interpret);
    return together(record());
  }();
  in_every_mode([&] {
    const std::uint64_t fallbacks = statistics().fallbacks;
    const auto have = together(record());
    EXPECT_EQ(statistics().fallbacks, fallbacks);  // which would be right, too
    ASSERT_EQ(have.size(), want.size());
    for (std::size_t t = 0; t < want.size(); ++t) {
      ASSERT_EQ(have[t].size(), want[t].size()) << "result " << t;
      for (std::size_t i = 0; i < want[t].size(); ++i)
        EXPECT_NEAR(have[t][i], want[t][i], tolerance * (1 + std::abs(want[t][i])))
            << "result " << t << ", element " << i;
    }
  });
}

/// A loop that a reduction and a stack both want stands in the kernel once, or twice with values of its own.
TEST(LoopResults, AStackAndWhatIsMadeOfTheFinalCarry) {
  for (const Shape& shape :
       {Shape{3, 8}, Shape{1, 8}, Shape{2, 6, 40}, Shape{2, 70, 300}, Shape{2, 3, 20000}}) {
    const Tensor x = ((counting(shape) * 7.0) % 11.0).eval();
    for (const Reader& r : kReaders) {
      SCOPED_TRACE(shape.str() + ", " + r.name);
      expect_as_interpreted(
          [&] {
            const Scanned out = averages(x, zeros({}));
            return Tensors{out.ys[0], r.read(out.carry[0])};
          },
          1e-4);
      expect_as_interpreted(
          [&] {
            const Scanned out = averages(x, x(0));
            return Tensors{r.read(out.carry[0]), out.ys[1], out.carry[0], out.ys[0]};
          },
          1e-4);
    }
  }
}

TEST(LoopResults, AreRightFromOneKernel) {
  in_every_mode([] {
    const Scanned r = averages(arange(24.).reshape({3, 8}), zeros({8}));
    const Tensor total = sum(r.carry[0]);
    eval({r.ys[0], total});
    expect_equal<float>(total, Shape{}, {209});
    expect_equal<float>(r.ys[0](0), {0, 1, 2, 3, 4, 5, 6, 7});
  });
}

/// A loop whose first value is made of a reduction, and whose stack is stored in a later phase than the
/// other's result.
TEST(LoopResults, ThatWaitForAReductionOfTheSameRows) {
  const Tensor x = ((counting({4, 50}) * 5.0) % 9.0).eval(), xs = counting({3, 1}).eval();
  expect_as_interpreted(
      [&] {
        const Tensor centred = x - mean(x, -1, true);
        const Scanned out = scan(
            [&](const Tensors& c, const Tensors& in) {
              const Tensor next = c[0] * 0.5 + in[0];
              return Scanned{{next}, {next * centred, c[0]}};
            },
            {x}, {xs.reshape({3, 1, 1})});
        return Tensors{out.ys[0], sum(out.carry[0], -1), nn::softmax(out.carry[0], -1),
                       cumsum(out.carry[0], -1), out.ys[1]};
      },
      1e-4);
  // What an iteration keeps is a scan's value, or another loop's.
  expect_as_interpreted(
      [&] {
        const Tensor running = cumsum(x, -1);
        const Tensor halved = while_loop([](const Tensors& s) { return s[0] > 3.0; },
                                         [](const Tensors& s) { return Tensors{s[0] * 0.5}; }, {running})[0];
        const Scanned out =
            scan([&](const Tensors& c,
                     const Tensors& in) { return Scanned{{c[0] + in[0]}, {c[0] * running, halved - c[0]}}; },
                 {x}, {xs.reshape({3, 1, 1})});
        return Tensors{max(out.carry[0], -1), out.ys[0], out.ys[1], sum(halved * out.carry[0], -1)};
      },
      1e-4);
}

/// A loop of a row takes a reduction of what another loop made of its elements.
TEST(LoopResults, OfAnotherLoopsReduction) {
  const Tensor x = ((counting({6, 40}) * 5.0) % 90.0).eval();
  for (const bool one_row : {true, false})
    expect_as_interpreted(
        [&] {
          const Tensor halved =
              while_loop([](const Tensors& s) { return s[0] > 3.0; },
                         [](const Tensors& s) { return Tensors{s[0] * 0.5}; }, {x * 2.0})[0];
          const Tensor best = one_row ? reshape(max(halved), {1}) : max(halved, -1);
          const Scanned out =
              scan([&](const Tensors& c,
                       const Tensors& in) { return Scanned{{c[0] + in[0] * best}, {best, c[0] - best}}; },
                   {zeros_like(best)}, {counting({4, 1})});
          return Tensors{out.ys[0], out.ys[1], out.carry[0], sum(halved, -1)};
        },
        1e-4);
}

/// A stack of a row's value beside the row itself, and beside what is spread over it.
TEST(LoopResults, OfRowsAndOfTheirElements) {
  const Tensor x = ((counting({6, 40}) * 5.0) % 9.0).eval();
  expect_as_interpreted(
      [&] {
        const Tensor rows = sum(x, -1);
        const Scanned out =
            scan([](const Tensors& c, const Tensors& in) { return Scanned{{c[0] * 0.5 + in[0]}, {c[0]}}; },
                 {rows}, {counting({3, 1})});
        return Tensors{out.ys[0], x - out.carry[0].reshape({6, 1}), sum(x * out.carry[0].reshape({6, 1}), -1),
                       out.carry[0]};
      },
      1e-4);
  // Rows cut into chunks: what a row's partial sums become is computed apart, and its stack with it.
  const Tensor y = ((counting({2, 300000}) * 5.0) % 9.0).eval(), first = counting({2}).eval();
  expect_as_interpreted(
      [&] {
        const Scanned out =
            scan([](const Tensors& c, const Tensors& in) { return Scanned{{c[0] * 0.5 + in[0]}, {c[0]}}; },
                 {first}, {counting({3, 1})});
        return Tensors{sum(y, -1) + out.carry[0], out.ys[0]};
      },
      1e-4);
}

TEST(LoopResults, OneElementStatesAreReadThroughViews) {
  in_every_mode([] {
    const auto read = [](const std::function<Tensor(const Tensor&)>& view, const Tensor& first) {
      return scan([&](const Tensors& k,
                      const Tensors&) { return Scanned{{k[0] + 1.0, view(k[0])}, {view(k[0]), k[1]}}; },
                  {first, Tensor(0.f)}, {ones({3})});
    };
    for (const Tensor& first : {ones({1}), ones({1, 1})})
      for (const auto& view :
           {+[](const Tensor& x) { return squeeze(x); }, +[](const Tensor& x) { return sum(x); },
            +[](const Tensor& x) { return max(x); }, +[](const Tensor& x) { return mean(x); },
            +[](const Tensor& x) { return reshape(x, {}); }}) {
        const Scanned r = read(view, first);
        eval({r.carry[1], r.ys[0], r.ys[1]});
        expect_equal<float>(r.carry[1], Shape{}, {3});
        expect_equal<float>(r.ys[0], {1, 2, 3});
        expect_equal<float>(r.ys[1], {0, 1, 2});
        expect_equal<float>(r.carry[0], first.shape(), {4});
        expect_equal<float>(read(view, first).carry[1], Shape{}, {3});  // alone
        expect_equal<float>(read(view, first).ys[0], {1, 2, 3});
      }
  });
}

/// The results of one loop have several shapes; a state of one element is read at the places of the larger
/// ones.
TEST(LoopResults, OfSeveralShapes) {
  const Tensor x = counting({3, 4}).eval();
  expect_as_interpreted([&] {
    const Scanned out = scan(
        [](const Tensors& c, const Tensors& in) {
          const Tensor joined = concat({c[1], c[1] * 2.0, reshape(c[2], {1}), c[1]});
          return Scanned{{c[0] + in[0] * squeeze(c[1]), c[1] + c[2].reshape({1}), c[2] + 1.0},
                         {c[0] + joined, expand_dims(c[2], 0), joined}};
        },
        {zeros({4}), ones({1}), Tensor(2.f)}, {x});
    return Tensors{out.carry[0], out.carry[1], out.carry[2],      out.ys[0],
                   out.ys[1],    out.ys[2],    sum(out.carry[0]), out.carry[0](range(0, 1)) + out.carry[1]};
  });
}

}  // namespace
}  // namespace kiln
