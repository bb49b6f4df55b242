// Long recordings evaluated on a thread with a small stack: what is planned, lowered and emitted calls itself
// no deeper for a longer chain.
#include "api/expect.h"
#include "modes.h"

#include <pthread.h>

#include <functional>
#include <vector>

namespace kiln {
namespace {

using testing::counting;

constexpr std::size_t kStack = 256 << 10;
constexpr int kLong = 4096;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLargeFrames = true;  // those of the sanitizers
#else
constexpr bool kLargeFrames = false;
#endif

/// f's values from a thread of its own, which throws nothing.
std::vector<float> on_small_stack(const std::function<Tensor()>& f) {
  struct Job {
    const std::function<Tensor()>& f;
    std::vector<float> values;
    std::string error;
  } job{f, {}, {}};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread;
  const auto run = [](void* given) -> void* {
    Job& j = *static_cast<Job*>(given);
    try {
      j.values = j.f().to_vector<float>();
    } catch (const std::exception& e) {
      j.error = e.what();
    }
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, run, &job), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(job.error, "");
  return job.values;
}

void expect_as_interpreted(const std::function<Tensor()>& f) {
  const auto want = [&] {
    const testing::ModeScope scope(Mode::Interpret);
    return f().to_vector<float>();
  }();
  for (const testing::Engine& e : testing::kEngines) {
    SCOPED_TRACE(e.name);
    const testing::EngineScope scope(e);
    const std::vector<float> have = on_small_stack(f);
    ASSERT_EQ(have.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(have[i], want[i], 1e-4 * (1 + std::abs(want[i]))) << "element " << i;
  }
}

/// One of a few operations, without a period that recordings could be cut by.
Tensor stepped(const Tensor& y, const Tensor& x, unsigned& random) {
  random = random * 1664525u + 1013904223u;
  switch (random >> 29) {
    case 0: return y + x;
    case 1: return y * 0.5;
    case 2: return maximum(y, 0.5);
    case 3: return abs(y);
    case 4: return -y;
    case 5: return sqrt(abs(y));
    case 6: return minimum(y, x + 1.0);
    default: return y - x;
  }
}

TEST(SmallStack, AChainOfOperations) {
  if (kLargeFrames) GTEST_SKIP() << "frames of a sanitizer";
  const Tensor x = counting({8}).eval();
  expect_as_interpreted([&] {
    Tensor y = x;
    unsigned random = 1;
    for (int i = 0; i < kLong; ++i) y = stepped(y, x, random);
    return y;
  });
}

TEST(SmallStack, ALongBodyOfALoop) {
  if (kLargeFrames) GTEST_SKIP() << "frames of a sanitizer";
  const Tensor x = counting({8}).eval();
  for (const int length : {500, kLong})  // inside a kernel, and over whole tensors
    expect_as_interpreted([&] {
      return while_loop([](const Tensors& s) { return s[1] < 2; },
                        [&](const Tensors& s) {
                          Tensor y = s[0];
                          unsigned random = 1;
                          for (int i = 0; i < length; ++i) y = stepped(y, x, random);
                          return Tensors{y, s[1] + 1};
                        },
                        {x, zeros({}, DType::Int32)})[0];
    });
}

/// Coordinates of views that divide what the view before divided: each was looked into once a reader, three
/// times a view.
TEST(SmallStack, ViewsOfViews) {
  if (kLargeFrames) GTEST_SKIP() << "frames of a sanitizer";
  const Tensor x = counting({4, 6, 2}).eval();
  for (const int length : {15, 40, 1000})
    expect_as_interpreted([&] {
      Tensor y = x;
      for (int i = 0; i < length; ++i) y = reshape(permute_dims(y, {1, 0, 2}), {4, 6, 2});
      return y + 1.0;
    });
}

TEST(SmallStack, PartsWrittenInTurn) {
  if (kLargeFrames) GTEST_SKIP() << "frames of a sanitizer";
  const Tensor x = counting({8}).eval();
  expect_as_interpreted([&] {
    Tensor y = x;
    for (int i = 0; i < 300; ++i) y(range(i % 8, i % 8 + 1)) = y(range(i * 5 % 7, i * 5 % 7 + 1)) * 0.5;
    return y;
  });
}

/// A value of a row that several phases need, made of shared operands: what it depends on is found once.
TEST(SmallStack, DoublingsOfARowsValue) {
  const Tensor x = counting({6, 40}).eval(), scale = (counting({6, 1}) * 1e-6).eval();
  expect_as_interpreted([&] {
    Tensor r = scale;
    for (int i = 0; i < 40; ++i) r = (r + r) * (0.5 - r * 1e-9);
    const Tensor y = exp(x * r);
    return y / sum(y, -1, true) * r;
  });
}

}  // namespace
}  // namespace kiln
