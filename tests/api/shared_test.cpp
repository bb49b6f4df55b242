// Tensors that threads share: every const function of one tensor at once, and how long what they return is
// good. Meant for the thread sanitizer: tools/sanitize.sh thread 'Shared.*'.
#include "api/expect.h"
#include "modes.h"
#include "needs_cpu.h"

#include <kiln/dlpack.h>

#include <atomic>
#include <barrier>
#include <sstream>
#include <string_view>
#include <thread>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;

using Call = void (*)(const Tensor&);

/// Every const function of Tensor, by name, for a float32 tensor of rank 2; `one` for tensors of one element
/// alone.
struct ConstFunction {
  const char* name;
  Call call;
  bool one = false;
};
const ConstFunction kConstFunctions[] = {
    {"copy",
     [](const Tensor& t) {
       Tensor copy(t), other;
       other = copy;
       EXPECT_TRUE(other.valid());
     }},
    {"shape", [](const Tensor& t) { EXPECT_EQ(t.shape().rank(), 2); }},
    {"rank", [](const Tensor& t) { EXPECT_EQ(t.rank(), 2); }},
    {"dim", [](const Tensor& t) { EXPECT_EQ(t.dim(-1) * t.dim(0), t.numel()); }},
    {"dtype", [](const Tensor& t) { EXPECT_EQ(t.dtype(), DType::Float32); }},
    {"device", [](const Tensor& t) { EXPECT_EQ(t.device(), ones({1}).eval().device()); }},
    {"evaluated", [](const Tensor& t) { (void)t.evaluated(); }},
    {"eval", [](const Tensor& t) { EXPECT_TRUE(t.eval().evaluated()); }},
    {"eval of several", [](const Tensor& t) { eval({t, t + 1}); }},
    {"to", [](const Tensor& t) { EXPECT_EQ(t.to(Device::cpu()).to_vector<float>(), t.to_vector<float>()); }},
    {"to_vector", [](const Tensor& t) { (void)t.to_vector<float>(); }},
    {"copy_to",
     [](const Tensor& t) {
       std::vector<float> room(static_cast<std::size_t>(t.numel()));
       t.copy_to(room);
       t.copy_to(room.data(), DType::Float32);
     }},
    {"data",
     [](const Tensor& t) {
       const float* const first = t.data<float>();
       EXPECT_EQ(first, t.data());
       const std::vector<float> values = t.to_vector<float>();
       EXPECT_TRUE(std::equal(values.begin(), values.end(), first));
     }},
    {"span", [](const Tensor& t) { EXPECT_EQ(t.span<float>().size(), static_cast<std::size_t>(t.numel())); }},
    {"device_data",
     [](const Tensor& t) {
       EXPECT_EQ(t.device_data(), t.device_data());
       if (t.device().kind == Device::Kind::Cpu) EXPECT_EQ(t.device_data(), t.data());
     }},
    {"astype", [](const Tensor& t) { t.astype(DType::Int32).eval(); }},
    {"reshape", [](const Tensor& t) { t.reshape({t.numel()}).eval(); }},
    {"T", [](const Tensor& t) { t.T().eval(); }},
    {"index", [](const Tensor& t) { t(range(0, 1), slice::all()).eval(); }},
    {"str", [](const Tensor& t) { EXPECT_FALSE(t.str().empty()); }},
    {"print",
     [](const Tensor& t) {
       std::ostringstream out;
       out << t;
     }},
    {"bool", [](const Tensor& t) { (void)static_cast<bool>(t); }, true},
    {"item", [](const Tensor& t) { (void)t.item<double>(); }, true},
    {"to_dlpack", [](const Tensor& t) { (void)to_dlpack(t); }},
    {"operand", [](const Tensor& t) { (t + t.T().T() * 2).eval(); }},
    {"compress", [](const Tensor& t) { (void)compress(t, t.T().T() > 1).to_vector<float>(); }},
    {"unique", [](const Tensor& t) { (void)unique(t).to_vector<float>(); }},
    {"nonzero", [](const Tensor& t) { (void)nonzero(t)[0].to_vector<std::int64_t>(); }},
};

struct Kind {
  const char* name;
  Tensor (*make)();
};
Tensor borrowed_strided() {
  static const std::vector<float> memory(64, 2.0f);
  const std::int64_t strides[] = {1, 8};
  return Tensor::borrow(memory.data(), {8, 8}, strides, DType::Float32, [](const void*) {});
}
const Kind kKinds[] = {
    {"leaf", [] { return counting({4, 6}); }},
    {"pending", [] { return counting({4, 6}) * 2 + 1; }},
    {"strided",
     [] {
       Tensor t = counting({4, 6}).T();
       t.eval();
       return t;
     }},
    {"strided, pending", [] { return counting({4, 6}).T(); }},
    {"strided, lent", borrowed_strided},
    {"a slice of a pending value",
     []() -> Tensor { return (counting({4, 6}) + 1)(slice::all(), range(1, none, 2)); }},
    {"empty", [] { return zeros({0, 3}); }},
    {"empty and strided", []() -> Tensor { return counting({4, 6}).T()(range(2, 2), slice::all()); }},
    {"one", [] { return Tensor::from(std::vector<float>{3}, {1, 1}); }},
    {"one, pending", [] { return counting({1, 1}) + 3; }},
    {"one, broadcast", [] { return broadcast_to(Tensor(3.0f), {1, 1}); }},
};

/// Two threads call all of it on one tensor, from different beginnings.
void call_at_once(const Kind& kind, std::size_t shift) {
  const Tensor t = kind.make();
  const std::size_t n = std::size(kConstFunctions);
  std::barrier start(2);
  const void* seen[2];
  const auto work = [&](std::size_t thread) {
    start.arrive_and_wait();
    for (std::size_t i = 0; i < n; ++i) {
      const ConstFunction& f = kConstFunctions[(i + thread * shift) % n];
      if (!f.one || t.numel() == 1) f.call(t);
    }
    seen[thread] = t.data();
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(seen[0], seen[1]) << kind.name;
}

TEST(Shared, EveryConstFunctionFromTwoThreads) {
  for (const Kind& kind : kKinds)
    for (std::size_t shift = 0; shift < std::size(kConstFunctions); ++shift) {
      SCOPED_TRACE(kind.name);
      call_at_once(kind, shift);
    }
}

TEST(Shared, TheSameFunctionFromTwoThreads) {
  for (const Kind& kind : kKinds)
    for (const ConstFunction& f : kConstFunctions) {
      const Tensor t = kind.make();
      if (f.one && t.numel() != 1) continue;
      SCOPED_TRACE(std::string(kind.name) + ": " + f.name);
      std::barrier start(2);
      const auto work = [&] {
        start.arrive_and_wait();
        for (int i = 0; i < 3; ++i) f.call(t);
      };
      std::thread other(work);
      work();
      other.join();
    }
}

TEST(Shared, DataOfAStridedValueIsOneMemoryForEveryHandle) {
  KILN_NEEDS_CPU();
  testing::in_every_mode([] {
    const Tensor view = counting({2, 3}).T(), same = view;
    view.eval();
    const auto by_value = [](Tensor t) { return t.data<float>(); };
    const float* const first = by_value(view);  // that handle is gone
    EXPECT_EQ(first, view.data<float>());
    EXPECT_EQ(first, same.span<float>().data());
    EXPECT_EQ(first, same.device_data());
    EXPECT_EQ(std::vector<float>(first, first + 6), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    const ir::Node* const node = view.node();
    expect_equal<float>(view + 1, {3, 2}, {1, 4, 2, 5, 3, 6});
    EXPECT_EQ(node, view.node()) << "data() is const";
  });
}

TEST(Shared, DataIsGoodForAsLongAsAnyHandle) {
  Tensor kept;
  const float* values = nullptr;
  {
    Tensor view = counting({64, 64}).T();
    kept = view;
    values = view.data<float>();
    view = zeros({1});
  }
  const Tensor scribble = full({64, 64}, -1.0f).T();  // would take the memory if that had been given back
  (void)scribble.data<float>();
  EXPECT_EQ(values[1], 64.0f);
  EXPECT_EQ(kept.data<float>(), values);
}

TEST(Shared, CompressByItself) {
  testing::in_every_mode([] {
    const Tensor m = Tensor::from(std::vector<bool>{true, false, true, true, false, true}, {2, 3}).T();
    expect_equal<bool>(compress(m, m), {true, true, true, true});
    const Tensor x = counting({2, 3}).T();
    expect_equal<float>(compress(x, m), {0, 3, 2, 5});
  });
}

}  // namespace
}  // namespace kiln
