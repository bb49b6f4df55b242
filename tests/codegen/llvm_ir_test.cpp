// One kernel, several instruction sets: values do not depend on which instructions a target has. Float16
// conversions matter most: without F16C they are integer arithmetic.
#include "cache/temporary_directory.h"
#include "codegen/on_target.h"
#include "counted.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <regex>

namespace kiln {
namespace {

using testing::bytes_of;
using testing::ConfigScope;
using testing::expect_as_interpreted;

/// Small whole numbers: sums and products are exact in every type and order.
Tensor small_numbers(DType dtype, const Shape& shape, int seed) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(seed)) % 7);
  return Tensor::copy_of(values.data(), shape, DType::Float32).astype(dtype);
}

/// The same of each dtype, which `make` takes.
template <class F>
void expect_as_interpreted_of_every_dtype(F make) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    expect_as_interpreted(std::string(name(dtype)), [&] { return make(dtype); });
  }
}

/// A few kernels of every kind on one dtype.
std::vector<Tensor> kernels(DType dtype) {
  const Shape odd{13, 77};
  const Tensor x = small_numbers(dtype, odd, 1), y = small_numbers(dtype, odd, 3),
               row = small_numbers(dtype, {77}, 2);
  std::vector<Tensor> out{where(x == y, x, row), x != y};
  if (!is_bool(dtype)) {
    for (const Tensor& t :
         {x * y + row, x - y, where(x < y, x, row), minimum(x, y), max(x, {0}), max(x, {1}), argmax(x, 1),
          sum(x, {0}), sum(x, {1}), sum(x * y), floor_divide(x, y + 1), remainder(x, row + 1)})
      out.push_back(t);
  }
  for (int to = 0; to < kDTypeCount; ++to) out.push_back(x.astype(static_cast<DType>(to)));
  return out;
}

TEST(LlvmIr, EveryTargetGivesWhatTheInterpreterGives) { expect_as_interpreted_of_every_dtype(kernels); }

/// The places of the first extremes, NaN being the most extreme: in vectors that are whole, cut and smaller
/// than a register, and of rows that share the lanes or wait behind one another.
std::vector<Tensor> positions(DType dtype) {
  std::vector<Tensor> out;
  for (const Shape& shape : {Shape{6, 3}, Shape{5, 16}, Shape{3, 77}, Shape{70, 9}, Shape{4, 300}})
    for (int at = 0; at < 3; ++at) {
      Tensor x = small_numbers(dtype, shape, at);
      if (is_float(dtype) && at > 0)
        x = where(arange(0, shape.numel(), 1).reshape(shape) % 31 == 7 * at, std::nan(""), x);
      for (int axis = 0; axis < 2; ++axis) {
        out.push_back(argmax(x, axis));
        out.push_back(argmin(x, axis));
        out.push_back(argmax(x(range(none, none, -1)), axis) * 2);
      }
      out.push_back(argmin(x));
    }
  return out;
}

TEST(LlvmIr, PositionsOfExtremesOnEveryTarget) { expect_as_interpreted_of_every_dtype(positions); }

/// Operands that are contiguous along another axis than the last, in tiles that are whole, cut and smaller
/// than a vector.
std::vector<Tensor> transposes(DType dtype) {
  std::vector<Tensor> out;
  for (const Shape& shape : {Shape{64, 128}, Shape{257, 130}, Shape{33, 300}, Shape{300, 33}, Shape{129, 5},
                             Shape{5, 129}, Shape{17, 16}}) {
    const Tensor x = small_numbers(dtype, shape, 1);
    const Tensor y = small_numbers(dtype, {shape[1], shape[0]}, 2),
                 other = small_numbers(DType::Int16, shape, 4);
    out.push_back(where(x.T() == y, x.T(), y));
    out.push_back(x.T() != x(range(none, none, -1)).T());  // runs backwards
    out.push_back(where(other.T() > 3, x.T(), y));         // elements of different sizes
    out.push_back(pad(x, {{1, 2}, {3, 0}}).T() != x.dim(0));
    out.push_back(x(range(1, none), range(1, none, 2)).T() != 3);
  }
  const Tensor square = small_numbers(dtype, {100, 100}, 5);
  out.push_back(square.T() == square);
  const Tensor image = small_numbers(dtype, {3, 20, 7, 9}, 1);
  for (const Axes& axes : {Axes{0, 2, 3, 1}, Axes{0, 3, 1, 2}, Axes{3, 2, 1, 0}, Axes{2, 0, 3, 1}})
    out.push_back(permute_dims(image, axes) != 2);
  const Tensor many = small_numbers(dtype, {2, 3, 4, 2, 3, 2, 2, 4}, 1);
  out.push_back(transpose(many) != 2);
  const Tensor from = small_numbers(dtype, {12, 40, 33}, 1), second = small_numbers(dtype, {33, 40, 12}, 2),
               third = small_numbers(dtype, {40, 33, 12}, 3);
  out.push_back(where(permute_dims(from, {2, 1, 0}) == second, permute_dims(third, {1, 0, 2}), second));
  return out;
}

TEST(LlvmIr, TransposedReadsGiveWhatTheInterpreterGivesOnEveryTarget) {
  expect_as_interpreted_of_every_dtype(transposes);
}

/// An operand that ends, or begins, where a page ends or begins that nobody may touch.
Tensor between_pages(DType dtype, std::int64_t n, int seed, bool at_end) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = static_cast<std::size_t>(n * size_of(dtype));
  const std::size_t inside = (bytes + page - 1) / page * page, all = inside + 2 * page;
  auto* memory =
      static_cast<std::byte*>(mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::byte* data = memory + page + (at_end ? inside - bytes : 0);
  small_numbers(dtype, {n}, seed).copy_to(data, dtype);
  mprotect(memory, page, PROT_NONE);
  mprotect(memory + all - page, page, PROT_NONE);
  return Tensor::borrow(data, {n}, dtype, [memory, all](const void*) { munmap(memory, all); });
}

/// Elements that come from one operand or another, or from none, decided by their position: at every place
/// in a vector, forwards, backwards and along rows.
std::vector<Tensor> pieces(DType dtype) {
  std::vector<Tensor> out;
  for (const bool at_end : {false, true}) {
    for (const std::int64_t n : {1, 3, 16, 31, 64, 100, 257}) {
      const Tensor x = between_pages(dtype, n, 1, at_end), y = between_pages(dtype, 70, 2, at_end);
      out.push_back(concat({x, y, x}) != 3);
      out.push_back(concat({flip(y), flip(x)}) != 3);
      out.push_back(pad(x, {{17, 40}}) != 3);
      out.push_back(roll(y, n % 70) != roll(flip(y), 5));
      out.push_back(slice_update(concat({y, y}), {range(n % 60, n % 60 + 9)}, 1) != 3);
    }
    const Tensor x = between_pages(dtype, 6 * 77, 1, at_end).reshape({6, 77});
    const Tensor y = between_pages(dtype, 4 * 77, 1, at_end).reshape({4, 77});
    out.push_back(concat({x, y, x}, 0) != 2);
    out.push_back(concat({x.T(), y.T()}, 1) != 2);
    out.push_back(pad(x, {{2, 1}, {5, 90}}) != 2);
    out.push_back(roll(x, 2, 0) != roll(x, -3, 1));
    out.push_back(concat({x(slice::all(), range(0, 3)), x(slice::all(), range(70, 77))}, 1) != 2);
  }
  return out;
}

TEST(LlvmIr, ElementsOfOneOperandOrAnotherOnEveryTarget) { expect_as_interpreted_of_every_dtype(pieces); }

/// The LLVM IR of the kernels that `make` evaluates.
template <class F>
std::string llvm_ir_of(const std::string& target, F make) {
  const testing::TemporaryDirectory directory;
  clear_memory_caches();
  const ConfigScope scope(target);
  Config c = config();
  c.cache = "off";
  c.tier = Tier::Jit;
  c.dump = directory.path().string();
  c.dump_stages = {"ll"};
  configure(c);
  eval(make());
  std::string all;
  for (const auto& file : std::filesystem::directory_iterator(directory.path())) {
    std::ifstream in(file.path());
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

/// A load whose lanes are all off takes a hundred times as long as another one when its address lies beyond
/// the operand, on a page that is not there. So the address of a load with a predicate is chosen.
TEST(LlvmIr, LoadsWithAPredicateNeverNameAnAddressBeyondTheirOperand) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  for (const std::string& target : testing::cpu_targets()) {
    const std::string text = llvm_ir_of(target, [] {
      const Tensor x = small_numbers(DType::Float32, {5000}, 1), y = small_numbers(DType::Float32, {3000}, 2);
      return concat({x, y, x}) + 1;
    });
    const std::regex masked(R"(masked\.load\S*\(ptr (%[\w.]+),)");
    int loads = 0;
    for (std::sregex_iterator m(text.begin(), text.end(), masked), end; m != end; ++m, ++loads)
      EXPECT_NE(text.find((*m)[1].str() + " = select i1 "), text.npos) << target << ": " << m->str();
    EXPECT_GT(loads, target == "sse4.2" ? -1 : 2) << target;
  }
}

/// A body that is too long to be emitted twice, so that every vector may be the last one, of small numbers.
Tensor long_body(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < 60; ++i) y = minimum(y * 2 + x, 6) - minimum(x, 1);
  return y;
}

/// Rows that end anywhere in a vector, and anywhere in a page.
TEST(LlvmIr, LongBodiesEndInsideAVectorOnEveryTarget) {
  const auto rows = [](DType dtype) {
    std::vector<Tensor> out;
    for (const bool at_end : {false, true})
      for (const std::int64_t n : {1, 2, 7, 15, 16, 31, 33, 65, 100, 2050, 4097})
        out.push_back(long_body(between_pages(dtype, n, 1, at_end)));
    const Tensor many =
        between_pages(dtype, 500 * 37, 1, true).reshape({500, 37});  // over many ends of pages
    out.push_back(long_body(many - max(many, {1}, true)));
    return out;
  };
  for (const DType dtype : {DType::Int8, DType::UInt16, DType::Float16, DType::BFloat16, DType::Float32})
    expect_as_interpreted(std::string(name(dtype)), [&] { return rows(dtype); });
}

/// Without registers of masks code generation makes a branch for each lane of a mask.
TEST(LlvmIr, NoMaskedAccessesWhereTheTargetHasNone) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  for (const std::string& target : testing::cpu_targets()) {
    if (target != "avx2" && target != "sse4.2") continue;
    const std::string text = llvm_ir_of(target, [] {
      const Tensor x = small_numbers(DType::BFloat16, {3001}, 1), at = small_numbers(DType::Int32, {3001}, 2);
      return std::vector<Tensor>{long_body(x), long_body(take(x, at))};
    });
    EXPECT_NE(text.find("define"), text.npos);
    EXPECT_EQ(text.find("call void @llvm.masked.store"), text.npos) << target;
    const std::regex narrow(R"(call \S* ?<\d+ x (i16|bfloat|half|i8)> @llvm\.masked\.load)");
    EXPECT_FALSE(std::regex_search(text, narrow)) << target;
    const std::regex gather(R"(llvm\.masked\.gather[^\n]*<\d+ x i1> %)");
    EXPECT_FALSE(std::regex_search(text, gather)) << target;
    EXPECT_EQ(text.find(", 4095"), text.npos) << target << ": what is read depends on pages";
  }
}

/// A stage goes on from what the one before it left in memory, though instructions take exponents without
/// their bounds.
TEST(LlvmIr, StagesMakeNothingAgain) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  for (const std::string& target : testing::cpu_targets()) {
    if (target == "avx2" || target == "sse4.2") continue;
    for (const Shape& shape : {Shape{30000}, Shape{1000, 33}}) {
      const std::string text = llvm_ir_of(target, [&] {
        const Tensor x = small_numbers(DType::BFloat16, shape, 1);
        const Tensor y = x + small_numbers(DType::BFloat16, {shape[shape.rank() - 1]}, 2);
        return std::vector<Tensor>{silu(sigmoid(sigmoid(silu(y))))};
      });
      const std::regex split(R"(call \S* ?<\d+ x float> @llvm\.x86\.avx512\.mask\.reduce)");
      const auto splits =
          std::distance(std::sregex_iterator(text.begin(), text.end(), split), std::sregex_iterator());
      EXPECT_NE(text.find("piece"), text.npos) << target;
      EXPECT_EQ(splits % 4, 0) << target << ": one a function and register";
      EXPECT_LE(splits, 8) << target << ": one a function and register, of two at most";
    }
  }
}

/// Vectors of a running logsumexp in which nothing is greater than all before take one exponential a lane.
TEST(LlvmIr, RunningLogsumexpsAddWhereTheMaximumStays) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  const std::string text = llvm_ir_of(
      "", [] { return std::vector<Tensor>{logcumsumexp(small_numbers(DType::Float32, {3, 3001}, 1), 1)}; });
  const std::size_t other = text.find("\ngreater:"), arm = text.find("\nbelow:"),
                    end = text.find("\njoined:");
  ASSERT_TRUE(other < arm && arm < end && end != text.npos) << text;
  const auto fmas = [&](std::size_t from, std::size_t to) {
    const std::string part = text.substr(from, to - from);
    int n = 0;
    for (std::size_t at = 0; (at = part.find("@llvm.fma", at)) != part.npos; ++at) ++n;
    return n;
  };
  EXPECT_LE(3 * fmas(arm, end), fmas(other, arm));  // of one exponential, and of one for each step
}

/// Beyond the size from which results are stored past the caches and operands asked for ahead.
TEST(LlvmIr, LargeTransposesOfEveryWidth) {
  for (const DType dtype : {DType::Int8, DType::BFloat16, DType::Float32, DType::Float64})
    for (const Shape& shape : {Shape{3200, 2688}, Shape{2700, 3301}}) {
      const Tensor x = ((arange(shape.numel(), DType::Int32) * 40503) >> 7)
                           .reshape(shape)
                           .astype(DType::Int8)
                           .astype(dtype)
                           .eval();
      const Tensor rows = arange(shape[1], DType::Int64).reshape({-1, 1}),
                   columns = arange(shape[0], DType::Int64);
      const Tensor want =
          (((columns * shape[1] + rows).astype(DType::Int32) * 40503) >> 7).astype(DType::Int8).astype(dtype);
      const Tensor have = (x.T() + 1).eval();
      EXPECT_TRUE(all(have == want + 1).item<bool>()) << name(dtype) << shape.str();
    }
}

/// Same bits, or both NaN.
template <class T>
void expect_same(const Tensor& have, const std::vector<T>& want, const std::string& what) {
  const std::vector<T> h = have.to_vector<T>();
  ASSERT_EQ(h.size(), want.size());
  for (std::size_t i = 0, shown = 0; i < h.size() && shown < 5; ++i) {
    if (std::memcmp(&h[i], &want[i], sizeof(T)) == 0) continue;
    const double a = static_cast<double>(h[i]), b = static_cast<double>(want[i]);
    if (a != a && b != b) continue;
    ++shown;
    ADD_FAILURE() << what << ", element " << i << ": " << a << ", expected " << b;
  }
}

template <class Half>
void check_halves(const std::string& target) {
  const std::string what = std::string(name(dtype_of<Half>)) + " on KILN_CPU=" + target;
  std::vector<Half> every(65536);
  std::vector<float> wide(65536);
  for (std::size_t i = 0; i < every.size(); ++i) {
    every[i].bits = static_cast<std::uint16_t>(i);
    wide[i] = static_cast<float>(every[i]);
  }
  const Tensor halves = Tensor::copy_of(every.data(), {65536}, dtype_of<Half>);
  expect_same(halves.astype(DType::Float32), wide, what + " to float32");
  // Every half value, the midpoints above and their neighbours; then random bits.
  std::vector<float> x;
  for (const float v : wide) {
    const std::uint32_t step = dtype_of<Half> == DType::Float16 ? 0x1000 : 0x8000;
    for (std::uint32_t extra : {0u, 1u, step - 1, step, step + 1})
      x.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) + extra));
  }
  std::mt19937 rng(5);
  for (int i = 0; i < 200001; ++i) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng())));
    x.push_back(std::ldexp(static_cast<float>(static_cast<int>(rng() % 0x1000000) - 0x800000),
                           -static_cast<int>(rng() % 56)));
  }
  std::vector<Half> rounded;
  for (float v : x) rounded.push_back(Half(v));
  const Tensor floats = Tensor::copy_of(x.data(), {static_cast<std::int64_t>(x.size())}, DType::Float32);
  expect_same(floats.astype(dtype_of<Half>), rounded, what + " from float32");
  expect_same(floats.astype(DType::Float64).astype(dtype_of<Half>), rounded, what + " from float64");
}

TEST(LlvmIr, HalvesConvertWithAndWithoutTheInstruction) {
  for (const std::string& target : testing::cpu_targets()) {
    const ConfigScope scope(target);
    check_halves<float16>(target);
    check_halves<bfloat16>(target);
  }
}

}  // namespace
}  // namespace kiln
