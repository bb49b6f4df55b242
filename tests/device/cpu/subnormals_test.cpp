// Config::flush_subnormals: subnormal floats are zeros on every thread of an evaluation, and of nobody else.
#include "device/cpu/subnormals.h"

#include "modes.h"
#include "with_threads.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#if defined(__x86_64__) || defined(__aarch64__)

namespace kiln {
namespace {

using testing::EngineScope;
using testing::kEngines;

constexpr float kSmall = 1e-40f;

/// Made at run time, by the thread that calls.
bool this_thread_flushes() {
  volatile float least = 1.17549435e-38f;
  return least * 0.5f == 0;
}

class FlushSubnormals : public testing::WithThreads {
 protected:
  FlushSubnormals() {
    Config c = config();
    c.device = "cpu";
    configure(c);
  }
  static void set(bool flush, bool strict = false) {
    Config c = config();
    c.flush_subnormals = flush;
    c.strict = strict;
    configure(c);
  }
};

TEST_F(FlushSubnormals, OperandsAndResultsAreZerosInKernelsAndProducts) {
  set(true);
  for (const auto& e : kEngines) {
    SCOPED_TRACE(e.name);
    const EngineScope scope(e);
    const Tensor x = Tensor({kSmall, -kSmall, 1.17549435e-38f, 1.0f});
    EXPECT_EQ((x * 3.0f).to_vector<float>(), (std::vector<float>{0, 0, 3 * 1.17549435e-38f, 3}));
    EXPECT_EQ((x * 0.5f).to_vector<float>()[2], 0);
    EXPECT_EQ((Tensor({1e-310, 1.0}) * 2.0).to_vector<double>()[0], 0);
    EXPECT_EQ(matmul(full({4, 4}, kSmall), full({4, 4}, 1e30)).eval().to_vector<float>()[5], 0);
    EXPECT_FALSE(this_thread_flushes());
  }
}

TEST_F(FlushSubnormals, EveryThreadOfALoopDoes) {
  use(4);
  const Tensor x = full({1 << 22}, kSmall).eval();
  set(true);
  EXPECT_EQ(max(abs((x * 4.0f).eval())).item<float>(), 0);
  EXPECT_EQ(max(matmul(full({400, 400}, kSmall), full({400, 400}, 1e30))).item<float>(), 0);
  set(false);
  EXPECT_EQ(min((x * 4.0f).eval()).item<float>(), kSmall * 4);  // its threads keep them again
}

TEST_F(FlushSubnormals, NobodyDoesUnasked) {
  const Tensor x = Tensor({kSmall, 1.17549435e-38f});
  EXPECT_EQ((x * 0.5f).to_vector<float>(), (std::vector<float>{kSmall * 0.5f, 1.17549435e-38f * 0.5f}));
  set(true, true);  // the strict mode refuses it
  EXPECT_EQ((x * 0.5f).to_vector<float>(), (std::vector<float>{kSmall * 0.5f, 1.17549435e-38f * 0.5f}));
}

TEST_F(FlushSubnormals, HalvesKeepTheirs) {
  set(true);
  const Tensor x = Tensor({float16(0x1p-24f), float16(0x1p-15f)});
  EXPECT_EQ((x * 2).astype(DType::Float32).to_vector<float>(), (std::vector<float>{0x1p-23f, 0x1p-14f}));
}

TEST_F(FlushSubnormals, AThreadsModeComesBackHoweverAScopeEnds) {
  using cpu::FlushMode, cpu::FlushScope;
  const FlushMode before = FlushMode::of_thread();
  EXPECT_FALSE(this_thread_flushes());
  try {
    const FlushScope outer(FlushMode::flushing());
    EXPECT_TRUE(this_thread_flushes());
    {
      const FlushScope kept(before);
      EXPECT_FALSE(this_thread_flushes());
      const FlushScope same(FlushMode::of_thread());
      EXPECT_FALSE(this_thread_flushes());
    }
    EXPECT_TRUE(this_thread_flushes());
    throw std::runtime_error("ends it");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(this_thread_flushes());
  }
  EXPECT_EQ(FlushMode::of_thread(), before);
}

}  // namespace
}  // namespace kiln

#endif
