// Errors of the user name the line that called, in their text and by where().
#include "api/expect.h"
#include "modes.h"
#include "record/node.h"

#include <kiln/nn.h>
#include <kiln/random.h>

#include <functional>
#include <set>

namespace kiln {
namespace {

using namespace testing;

struct Call {
  const char* name;
  unsigned line;
  std::function<void()> run;
};

#define KILN_CALL(...) {#__VA_ARGS__, __LINE__, [=] { static_cast<void>(__VA_ARGS__); }}

/// One wrong call of each public function that has one.
std::vector<Call> wrong_calls() {
  const Tensor x = zeros({2, 3}), three = zeros({3}), two = zeros({2}), flags = zeros({2, 3}, DType::Bool),
               none;
  const Tensor at = zeros({2}, DType::Int64);
  const random::Key key(1);
  return {
      KILN_CALL(x + two),
      KILN_CALL(x == two),
      KILN_CALL(-flags),
      KILN_CALL(~x),
      KILN_CALL(1 + flags * flags),
      KILN_CALL(exp(none)),
      KILN_CALL(floor(none)),
      KILN_CALL(isnan(none)),
      KILN_CALL(add(x, two)),
      KILN_CALL(where(x, two, three)),
      KILN_CALL(clip(x, two, 1)),
      KILN_CALL(square(flags)),
      KILN_CALL(positive(flags)),
      KILN_CALL(astype(none, DType::Int8)),
      KILN_CALL(bitcast(x, DType::Int8)),
      KILN_CALL(isclose(x, two)),
      KILN_CALL(allclose(x, two)),
      KILN_CALL(array_equal(x, none)),
      KILN_CALL(zeros({-1})),
      KILN_CALL(full({-1}, 2)),
      KILN_CALL(zeros_like(none)),
      KILN_CALL(arange(0, 1, 0)),
      KILN_CALL(linspace(0, 1, -1)),
      KILN_CALL(eye(-1)),
      KILN_CALL(tril(three)),
      KILN_CALL(one_hot(x, 2)),
      KILN_CALL(reshape(x, {4})),
      KILN_CALL(x.reshape(4)),
      KILN_CALL(flatten(x, 5)),
      KILN_CALL(permute_dims(x, {0})),
      KILN_CALL(transpose(none)),
      KILN_CALL(three.T()),
      KILN_CALL(swapaxes(x, 0, 2)),
      KILN_CALL(moveaxis(x, 0, 5)),
      KILN_CALL(expand_dims(x, 9)),
      KILN_CALL(squeeze(x, 0)),
      KILN_CALL(broadcast_to(x, {2})),
      KILN_CALL(broadcast_arrays(std::vector{x, two})),
      KILN_CALL(flip(x, 2)),
      KILN_CALL(roll(x, 1, 2)),
      KILN_CALL(sliding_window(x, 9, 1)),
      KILN_CALL(pad(x, {})),
      KILN_CALL(concat({x, two})),
      KILN_CALL(stack({x, two})),
      KILN_CALL(tile(x, -1)),
      KILN_CALL(repeat(x, -1, 0)),
      KILN_CALL(split(x, 5)),
      KILN_CALL(split(x, {9})),
      KILN_CALL(unstack(x, 4)),
      KILN_CALL(slice_update(x, {0}, two)),
      KILN_CALL(x(7)),
      KILN_CALL(x[7]),
      KILN_CALL(x(0, 0, 0)),
      KILN_CALL(x(0)(7)),
      KILN_CALL(x[0][7]),
      KILN_CALL(x(three)),
      KILN_CALL(x.index(std::vector<Slice>{9})),
      KILN_CALL(sum(x, 2)),
      KILN_CALL(prod(x, 2)),
      KILN_CALL(max(x, 2)),
      KILN_CALL(min(x, 2)),
      KILN_CALL(mean(x, 2)),
      KILN_CALL(var(x, 2)),
      KILN_CALL(kiln::std(x, 2)),
      KILN_CALL(any(x, 2)),
      KILN_CALL(all(x, 2)),
      KILN_CALL(count_nonzero(x, 2)),
      KILN_CALL(logsumexp(x, 2)),
      KILN_CALL(argmax(x, 2)),
      KILN_CALL(argmin(x, 2)),
      KILN_CALL(cumsum(x, 2)),
      KILN_CALL(logcumsumexp(x, 2)),
      KILN_CALL(
          while_loop([](const Tensors&) { return Tensor(true); }, [](const Tensors& s) { return s; }, {})),
      KILN_CALL(scan([](const Tensors& c, const Tensors&) { return Scanned{c, {}}; }, {}, {})),
      KILN_CALL(cond(
          x, [](const Tensors& s) { return s; }, [](const Tensors& s) { return s; }, {})),
      KILN_CALL(take(x, three)),
      KILN_CALL(take_along_axis(x, at)),
      KILN_CALL(gather(x, {at, at, at})),
      KILN_CALL(scatter(x, three, 1)),
      KILN_CALL(scatter(x, {three}, 1)),
      KILN_CALL(scatter_add(x, at, 1, 2)),
      KILN_CALL(put_along_axis(x, at, 1)),
      KILN_CALL(sort(x, 2)),
      KILN_CALL(argsort(x, 2)),
      KILN_CALL(sort_with_indices(x, 2)),
      KILN_CALL(topk(x, 9)),
      KILN_CALL(searchsorted(x, x)),
      KILN_CALL(nonzero(Tensor(1))),
      KILN_CALL(compress(x, three)),
      KILN_CALL(unique(none)),
      KILN_CALL(unique_all(none)),
      KILN_CALL(matmul(x, x)),
      KILN_CALL(einsum("ij,jk", {x, x})),
      KILN_CALL(tensordot(x, two, 1)),
      KILN_CALL(tensordot(x, x, 7)),
      KILN_CALL(outer(x, x)),
      KILN_CALL(vecdot(x, two)),
      KILN_CALL(cholesky(x)),
      KILN_CALL(solve_triangular(x, x)),
      KILN_CALL(nn::softmax(x, 2)),
      KILN_CALL(nn::linear(x, two)),
      KILN_CALL(nn::layer_norm(x, two)),
      KILN_CALL(nn::batch_norm(x, two, two)),
      KILN_CALL(nn::cross_entropy(x, x)),
      KILN_CALL(nn::mse_loss(x, two)),
      KILN_CALL(random::bits(key, {2}, DType::Float32)),
      KILN_CALL(random::uniform(key, {-1})),
      KILN_CALL(random::uniform(key, {2}, 2, 1)),
      KILN_CALL(random::normal(key, {2}, DType::Int8)),
      KILN_CALL(random::bernoulli(key, {2}, 2)),
      KILN_CALL(random::randint(key, {2}, 2, 1)),
      KILN_CALL(random::exponential(key, -1)),
      KILN_CALL(random::permutation(key, -1)),
      KILN_CALL(random::permutation(key, x, 2)),
      KILN_CALL(Tensor::from(std::vector<int>(3), 2)),
      KILN_CALL(Tensor::take(std::vector<int>(3), 2)),
      KILN_CALL(Tensor::borrow(std::vector<int>(3), 2, std::make_shared<int>())),
      KILN_CALL(Tensor({1, 2}, 3)),
      KILN_CALL(Tensor::copy_of(nullptr, 2, DType::Int8)),
      KILN_CALL(x.item<float>()),
      KILN_CALL(x.to_vector<int>()),
      KILN_CALL(x.dim(2)),
      KILN_CALL(none.eval()),
      KILN_CALL(eval(none, x)),
      KILN_CALL(eval({x, none})),
      KILN_CALL(eval(none)),
      KILN_CALL(none.to(Device::cpu())),
      KILN_CALL(none.astype(DType::Int8)),
      KILN_CALL(Tensor(1).begin()),
      KILN_CALL(Shape(std::vector<int>(20))),
      KILN_CALL(Axes(std::vector<int>(20))),
      KILN_CALL(load_npy("/no/such/file")),
      KILN_CALL(load_npz("/no/such/file")),
      KILN_CALL(load_safetensors("/no/such/file")),
      KILN_CALL(from_dlpack(static_cast<dlpack::DLManagedTensor*>(nullptr))),
      KILN_CALL(to_dlpack(none)),
  };
}

TEST(ErrorLines, EveryCallNamesItsLine) {
  for (const Call& call : wrong_calls()) {
    SCOPED_TRACE(call.name);
    try {
      call.run();
      ADD_FAILURE() << "no error";
    } catch (const UserError& e) {
      EXPECT_EQ(e.where().line(), call.line) << e.what();
      EXPECT_TRUE(std::string(e.where().file_name()).ends_with("error_lines_test.cpp")) << e.what();
      EXPECT_EQ(e.what(), std::string(e.message()) + ", called at " + e.where().file_name() + ":" +
                              std::to_string(call.line));
      EXPECT_TRUE(e.message().starts_with("[") && e.message().find("called at") == std::string_view::npos)
          << e.what();
    }
  }
}

TEST(ErrorLines, OfALoopsBodyAreTheBodys) {
  const Tensor x = zeros({2});
  try {
    while_loop([](const Tensors& s) { return any(s[0] < 1); },
               [](const Tensors& s) {
                 return Tensors{sum(s[0], 4)};  // here
               },
               {x});
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_EQ(e.message(), "[sum] axis 4 is out of range for float32 (2,)");
    EXPECT_EQ(e.where().line(), __LINE__ - 6u);
  }
}

TEST(ErrorLines, OfAFunctionThatNamesNoneAreTheLoops) {
  const auto fails = [](const Tensors&) -> Tensors { throw UserError("[mine] no"); };
  try {
    while_loop([](const Tensors& s) { return any(s[0] < 1); }, fails, {zeros({2})});  // here
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_EQ(e.message(), "[mine] no");
    EXPECT_EQ(e.where().line(), __LINE__ - 4u);
  }
  // Nothing of that call is left over.
  try {
    throw UserError("[plain] y");
  } catch (const UserError& e) {
    EXPECT_EQ(e.message(), "[plain] y");
    EXPECT_EQ(e.where().line(), 0u);
  }
}

/// Lines of all pending nodes that a value is made of.
void add_lines(const ir::Node* node, std::set<unsigned>& lines) {
  if (node->is_leaf()) return;
  lines.insert(node->loc.line());
  for (int i = 0; i < node->n_in; ++i)
    if (node->in[i]) add_lines(node->in[i], lines);
}

TEST(ErrorLines, WhatACompositionRecordsHasTheLineOfItsCall) {
  if (config().mode != Mode::Lazy) GTEST_SKIP() << "nodes are computed at once";
  const Tensor x = zeros({4, 6}).eval(), at = zeros({4}, DType::Int64).eval();
  const auto lines = [](const Tensor& made) {
    std::set<unsigned> found;
    add_lines(made.node(), found);
    return found;
  };
  EXPECT_EQ(lines(nn::softmax(x)), std::set<unsigned>{__LINE__});
  EXPECT_EQ(lines(nn::cross_entropy(x, at)), std::set<unsigned>{__LINE__});
  EXPECT_EQ(lines(var(x, 1)), std::set<unsigned>{__LINE__});
  EXPECT_EQ(lines(roll(x, 2, 1)), std::set<unsigned>{__LINE__});
  EXPECT_EQ(lines(isclose(x, 1.0)), std::set<unsigned>{__LINE__});
  EXPECT_EQ(lines(random::normal(random::Key(1), {8})), std::set<unsigned>{__LINE__});
}

/// Also without a shape: not that of the header which counts the elements.
TEST(ErrorLines, WhatIsMadeOfNumbersHasTheLineOfItsCall) {
  const std::vector<float> floats = {1, 2};
  const std::vector<bool> flags = {true, false};
  const auto line = [](const Tensor& made) {
    EXPECT_TRUE(std::string(made.node()->loc.file_name()).ends_with("error_lines_test.cpp"));
    return made.node()->loc.line();
  };
  EXPECT_EQ(line(Tensor(2)), __LINE__);
  EXPECT_EQ(line(Tensor({1, 2})), __LINE__);
  EXPECT_EQ(line(Tensor({})), __LINE__);
  EXPECT_EQ(line(Tensor(floats)), __LINE__);
  EXPECT_EQ(line(Tensor(flags)), __LINE__);
  EXPECT_EQ(line(Tensor({1, 2}, {2, 1})), __LINE__);
  EXPECT_EQ(line(Tensor({1}, {})), __LINE__);  // no axes
  EXPECT_EQ(line(Tensor(floats, {2})), __LINE__);
  EXPECT_EQ(line(Tensor::from({1, 2})), __LINE__);
  EXPECT_EQ(line(Tensor::from(floats)), __LINE__);
  EXPECT_EQ(line(Tensor::from(flags)), __LINE__);
  EXPECT_EQ(line(Tensor::take(std::vector<float>(3))), __LINE__);
}

TEST(ErrorLines, AreUnknownWhereThereIsNoCall) {
  const UserError plain("[x] something");
  EXPECT_EQ(plain.where().line(), 0u);
  EXPECT_EQ(plain.message(), "[x] something");
  EXPECT_STREQ(plain.what(), "[x] something");
  const UserError copy = UserError("[x] y", SourceLocation::current());
  EXPECT_EQ(copy.message(), "[x] y");
}

}  // namespace
}  // namespace kiln
