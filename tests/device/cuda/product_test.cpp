// The product templates with hooks written by hand: they compile for every architecture without spills, their
// tiles are those of codegen/cuda/product_launch.h, and they multiply.
#include "device/cuda/product_unit.h"

#include "device/cuda/require.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

namespace kiln::cuda {
namespace {

using codegen::ProductKind;
using product_unit::Epilogue;
using product_unit::Unit;

Unit unit_of(ProductKind kind, int tile, int products = 1) {
  Unit unit;
  unit.choice = {kind, tile, products};
  if (products == 2) unit.epilogue = Epilogue::SiluTimes;
  return unit;
}

/// The unit's text, and a proof that its constants are the table's.
std::string proven_source(const Unit& unit) {
  const codegen::ProductTile tile = codegen::tile_of(unit.choice);
  std::string out = product_unit::source(unit);
  if (unit.choice.kind == ProductKind::Decode)
    return out + cat("static_assert(kThreads == ", tile.threads, " && kRows == ", tile.m,
                     " && kTileN == ", tile.n, " && kDepth == ", tile.k,
                     " && kWarps * kStages * kStageBytes == ", tile.shared, ", \"\");\n");
  if (unit.choice.kind == ProductKind::Gather)
    return out + cat("static_assert(kThreads == ", tile.threads, " && kTileM == ", tile.m,
                     " && kTileN == ", tile.n, " && kDepth == ", tile.k,
                     " && kLinesAt + (kTogether && !kHalves ? kLines * 8 : 0) == ", tile.shared,
                     ", \"\");\n");
  const std::string shared = unit.choice.kind == ProductKind::Mma
                                 ? "Tile::stages * kStageBytes"
                                 : "Tile::stages * (kStageBytes + 16) + 8 + 1024";
  out += cat("static_assert(kThreads == ", tile.threads, " && Tile::n == ", tile.n, " && kDepth == ", tile.k,
             " && ", shared, " == ", tile.shared, ", \"\");\n");
  if (unit.choice.kind == ProductKind::Wgmma)
    out += cat("static_assert(Tile::cluster == ", tile.cluster, " && kBoxN == ", tile.box_b, ", \"\");\n");
  return out;
}

/// Compiles and reads what the assembler says.
void expect_clean(const Unit& unit, const Arch& arch) {
  CompileOptions options;
  options.fmad = false;
  options.extra = {"--ptxas-options=-v"};
  const std::string log = compile(proven_source(unit), unit.name(), arch, options).log;
  SCOPED_TRACE(unit.name() + " for sm_" + std::to_string(arch.number()));
  EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos) << log;
  EXPECT_EQ(log.find("setmaxnreg"), std::string::npos) << log;
  EXPECT_EQ(log.find("serializ"), std::string::npos) << log;
}

/// 512 windows of floats and 16 lines beside them; of others, whose warps have fragments, 128.
Unit gather_unit(const std::string& element, bool of_columns, bool together, bool flat) {
  Unit unit;
  unit.choice.kind = ProductKind::Gather;
  unit.choice.windows = true;
  unit.element = element;
  const int bytes = unit.bytes();
  unit.width = bytes == 8 ? 2 : 4;
  unit.choice.gather = {512, 16, 8, 8, bytes, unit.width, of_columns, together, flat};
  if (bytes != 4) unit.choice.gather = {128, 32, 32, 32, bytes, unit.width, of_columns, together, flat};
  if (bytes == 2) unit.choice.gather.depth = 32;
  if (of_columns) {
    std::swap(unit.choice.gather.m, unit.choice.gather.n);
    std::swap(unit.choice.gather.each_m, unit.choice.gather.each_n);
  }
  unit.windows = of_columns ? 2 : 1;
  return unit;
}

class ProductTemplates : public testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_NVRTC();
    if (nvrtc().library.find("fake") != std::string::npos)
      GTEST_SKIP() << "the fake compiler has no assembler";
  }
};

TEST_F(ProductTemplates, CompileForEveryArchitectureWithoutSpills) {
  for (const int number : {80, 86, 89, 90, 100, 120})
    expect_clean(unit_of(ProductKind::Mma, number / 10 % 3), {number / 10, number % 10});
}

TEST_F(ProductTemplates, GatheredWindowsHaveTheSharedMemoryTheyAreLaunchedWith) {
  for (const bool of_columns : {false, true})
    for (const bool together : {false, true}) {
      expect_clean(gather_unit("float", of_columns, together, true), {9, 0, true});
      expect_clean(gather_unit("double", of_columns, together, true), {9, 0, true});
      expect_clean(gather_unit("double", of_columns, together, false), {8, 0});
      expect_clean(gather_unit("f16", of_columns, together, false), {8, 0});
    }
  Unit deep = gather_unit("float", false, true, true);
  deep.choice.gather.m = 256;
  deep.choice.gather.n = 32;
  deep.choice.gather.depth = 16;
  expect_clean(deep, {9, 0, true});
}

TEST_F(ProductTemplates, EveryTileClassIsThatOfTheTable) {
  for (int tile = 0; tile < 3; ++tile) {
    expect_clean(unit_of(ProductKind::Mma, tile), {8, 0});
    expect_clean(unit_of(ProductKind::Mma, tile, 2), {8, 0});
    expect_clean(unit_of(ProductKind::Wgmma, tile), {9, 0, true});
    expect_clean(unit_of(ProductKind::Wgmma, tile, 2), {9, 0, true});
    for (const int products : {1, 2}) {
      expect_clean(unit_of(ProductKind::Mma, tile, products).with("float"), {8, 0});
      expect_clean(unit_of(ProductKind::Wgmma, tile, products).with("float"), {9, 0, true});
    }
  }
}

TEST_F(ProductTemplates, FloatsOfEightBitsHaveSumsOfStages) {
  for (const char* element : {"e4m3", "e5m2"})
    for (const int products : {1, 2})
      expect_clean(unit_of(ProductKind::Wgmma, 2, products).with(element), {9, 0, true});
  expect_clean(unit_of(ProductKind::Mma, 1).with("e4m3"), {8, 9});
}

TEST_F(ProductTemplates, FloatsLieInAnyOrderAndAtAnyPlaces) {
  for (int layout = 0; layout < 4; ++layout)
    for (const int align : {16, 8, 4}) {
      Unit unit = unit_of(ProductKind::Mma, align == 16 ? layout % 3 : 2).with("float");
      unit.a_k_major = layout & 1;
      unit.b_k_major = layout & 2;
      unit.a_align = unit.b_align = align;
      if (align < 16) unit.width = 2;
      expect_clean(unit, {8, 0});
    }
}

TEST_F(ProductTemplates, DecodeIsThatOfTheTable) {
  for (int tile = 0; tile < 3; ++tile)
    for (int products = 1; products <= (tile < 2 ? 2 : 1); ++products) {
      Unit unit = unit_of(ProductKind::Decode, tile, products);
      unit.b_k_major = tile == 0;
      expect_clean(unit, {8, 0});
    }
}

TEST_F(ProductTemplates, WgmmaTakesEitherAxisOfEitherOperand) {
  for (int layout = 0; layout < 3; ++layout) {
    Unit unit = unit_of(ProductKind::Wgmma, 1);
    unit.a_k_major = layout & 1;
    unit.b_k_major = layout & 2;
    expect_clean(unit, {9, 0, true});
  }
}

TEST_F(ProductTemplates, EitherOperandMayBeWindows) {
  for (int tile = 0; tile < 3; ++tile)
    for (const ProductKind kind : {ProductKind::Mma, ProductKind::Wgmma}) {
      Unit unit = unit_of(kind, tile);
      unit.choice.windows = true;
      unit.windows = 1 + tile % 2;
      unit.window_axes = 1 + tile;
      if (tile == 2 && kind == ProductKind::Mma) unit.a_align = 4;
      for (const char* element : {"bf16", "float"})
        expect_clean(unit.with(element), kind == ProductKind::Mma ? Arch{8, 0} : Arch{9, 0, true});
    }
  for (const bool by_k : {false, true}) {
    Unit few = unit_of(ProductKind::Mma, 3);
    few.choice.windows = true;
    few.windows = 1;
    few.window_axes = 2;
    few.b_k_major = by_k;
    expect_clean(few, {8, 0});
  }
}

// ---- what they compute -----------------------------------------------------------------------------------

/// An array's elements, as bits: bfloat16, float32, or 8-bit floats.
struct Elements {
  std::vector<std::uint32_t> bits;
  int bytes = 2;
  bool e5m2 = false;  // of one byte, not e4m3

  std::vector<std::uint8_t> packed() const {
    std::vector<std::uint8_t> out(bits.size() * static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < bits.size(); ++i)
      std::memcpy(out.data() + i * static_cast<std::size_t>(bytes), &bits[i],
                  static_cast<std::size_t>(bytes));
    return out;
  }
  float operator[](std::int64_t i) const {
    if (bytes == 1) {  // normal numbers
      const int mantissa = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
      const auto x = static_cast<int>(bits[static_cast<std::size_t>(i)]), one = 1 << mantissa;
      const auto size =
          static_cast<float>(std::ldexp(one + x % one, (x % 128 >> mantissa) - bias - mantissa));
      return x < 128 ? size : -size;
    }
    return std::bit_cast<float>(bits[static_cast<std::size_t>(i)] << (32 - 8 * bytes));
  }
  /// What tensor cores multiply: of a float 11 bits, the nearest.
  float read(std::int64_t i) const {
    if (bytes < 4) return (*this)[i];
    return std::bit_cast<float>((bits[static_cast<std::size_t>(i)] + 0x1000) & ~std::uint32_t{0x1fff});
  }
};

struct Shape {
  int m, n, k, batch = 1, pad = 0;
};

class ProductLoops : public testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRE_GPU();
    if (!computes()) GTEST_SKIP() << "NOT TESTED: the fake driver computes nothing";
    stream_ = default_stream(0);
  }

  Block* uploaded(const Elements& x) {
    const std::vector<std::uint8_t> bytes = x.packed();
    Block* const block = allocate(bytes.size() + 64, stream_);
    copy_to_device(block->data, bytes.data(), bytes.size(), stream_);
    return block;
  }

  void expect_product(Unit unit, const Shape& shape) {
    SCOPED_TRACE(cat(unit.name(), ": ", shape.m, " x ", shape.n, " x ", shape.k, ", batch ", shape.batch,
                     ", pad ", shape.pad));
    const auto [m, n, k, batch, pad] = shape;
    const std::int64_t a_pitch = (unit.a_k_major ? k : m) + pad, b_pitch = (unit.b_k_major ? k : n) + pad,
                       d_pitch = n + pad;
    product_unit::Args args{};
    args.a_batch = a_pitch * (unit.a_k_major ? m : k);
    args.b_batch = b_pitch * (unit.b_k_major ? n : k);
    args.d_batch = d_pitch * m;
    args.d_pitch = d_pitch;
    args.product = {m,
                    n,
                    k,
                    batch,
                    unit.a_k_major ? a_pitch : 1,
                    unit.a_k_major ? 1 : a_pitch,
                    unit.b_k_major ? b_pitch : 1,
                    unit.b_k_major ? 1 : b_pitch};
    std::mt19937 random(static_cast<unsigned>(m + 7 * n + 13 * k));
    const int bytes = unit.result_bytes(), of = unit.bytes();
    const auto drawn = [&](std::int64_t count, int element, bool e5m2 = false) {
      Elements x{std::vector<std::uint32_t>(static_cast<std::size_t>(std::max<std::int64_t>(count, 1))),
                 element, e5m2};
      for (auto& e : x.bits) {
        const auto sign = static_cast<std::uint32_t>(random() % 2);
        e = static_cast<std::uint32_t>(random());
        e = element == 1   ? 0x38 | e % 8 | sign << 7
            : element == 2 ? 0x3c00 + e % 0x400 + sign * 0x8000
                           : 0x3c000000 + e % 0x4000000 + (sign << 31);
      }
      return x;
    };
    const Elements a = drawn(args.a_batch * batch, of, unit.element == "e5m2"),
                   b0 = drawn(args.b_batch * batch, of), b1 = drawn(args.b_batch * batch, of),
                   bias = drawn(n, bytes);
    const std::uint32_t poisoned = bytes == 2 ? 0x7fc1 : 0x7fc10001;
    const Elements poison{
        std::vector<std::uint32_t>(static_cast<std::size_t>(args.d_batch * batch + 8), poisoned), bytes};
    Block* const blocks[] = {uploaded(a), uploaded(b0), uploaded(b1), uploaded(bias), uploaded(poison)};
    const auto address = [&](int i) { return reinterpret_cast<std::uint64_t>(blocks[i]->data); };
    args.a = address(0);
    args.b[0] = address(1);
    args.b[1] = address(2);
    args.bias = address(3);
    args.d = address(4);

    const Function& f = function(unit);
    const device::LaunchShape launched =
        codegen::product_shape(unit.choice, args.product, device(0).sm_count);
    allow_dynamic_shared(f, static_cast<int>(launched.dynamic_shared));
    void* params[] = {&args};
    launch(f, launched, stream_, params);
    std::vector<std::uint8_t> raw(poison.packed().size());
    copy_to_host(raw.data(), blocks[4]->data, raw.size(), stream_);
    Elements d{std::vector<std::uint32_t>(poison.bits.size()), bytes};
    for (std::size_t i = 0; i < d.bits.size(); ++i)
      std::memcpy(&d.bits[i], raw.data() + i * static_cast<std::size_t>(bytes),
                  static_cast<std::size_t>(bytes));
    for (Block* block : blocks) release(block, stream_);

    int wrong = 0;
    for (int c = 0; c < batch; ++c)
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < d_pitch; ++j) {
          const std::int64_t to = c * args.d_batch + i * d_pitch + j;
          const float got = d[to];
          if (j >= n) {
            wrong += d.bits[static_cast<std::size_t>(to)] != poisoned;
            continue;
          }
          double x = 0, y = 0, size = 0;
          for (int q = 0; q < k; ++q) {
            const std::int64_t bi = c * args.b_batch + j * args.product.b_n + q * args.product.b_k;
            const double p = a.read(c * args.a_batch + i * args.product.a_m + q * args.product.a_k);
            x += p * b0.read(bi);
            y += p * b1.read(bi);
            size += std::abs(p * b0.read(bi));
          }
          if (unit.epilogue == Epilogue::BiasGelu) {
            x += bias[j];
            x *= 0.5 * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
          }
          if (unit.epilogue == Epilogue::SiluTimes) x = x / (1 + std::exp(-x)) * y;
          const double allowed = (bytes == 2 ? 0.005 : 1e-6) * std::abs(x) + 1e-6 * size +
                                 1e-4 * (unit.epilogue != Epilogue::Store);
          if (!(std::abs(got - x) <= allowed) && ++wrong <= 3)
            ADD_FAILURE() << c << ", " << i << ", " << j << ": " << got << " where " << x << " is right";
        }
    for (std::size_t i = d.bits.size() - 8; i < d.bits.size(); ++i) wrong += d.bits[i] != poisoned;
    EXPECT_EQ(wrong, 0);
  }

  const Function& function(const Unit& unit) {
    static std::map<std::string, Function> made;
    const std::string name = unit.name();
    if (const auto it = made.find(name); it != made.end()) return it->second;
    Arch arch = arch_of(0);
    arch.specific = unit.choice.kind == ProductKind::Wgmma;
    CompileOptions options;
    options.fmad = false;
    const Code code = compile(product_unit::source(unit), name, arch, options);
    return made[name] = find_function(load_module(0, code.image), "product_kernel");
  }

  Stream stream_ = nullptr;
};

TEST_F(ProductLoops, MmaMultipliesRaggedExtents) {
  const Unit unit = unit_of(ProductKind::Mma, 2);
  for (const Shape& shape : {Shape{64, 64, 32}, {1, 1, 8}, {65, 70, 72, 2}, {10, 130, 8}, {5, 9, 0}})
    expect_product(unit, shape);
}

TEST_F(ProductLoops, MmaTakesEitherAxisOfEitherOperand) {
  for (int layout = 0; layout < 3; ++layout) {
    Unit unit = unit_of(ProductKind::Mma, 2);
    unit.a_k_major = layout & 1;
    unit.b_k_major = layout & 2;
    expect_product(unit, {72, 80, 40, 2});
  }
}

TEST_F(ProductLoops, MmaTakesRowsThatBeginAnywhere) {
  for (const int align : {8, 4, 2}) {
    Unit unit = unit_of(ProductKind::Mma, 2);
    unit.a_align = unit.b_align = align;
    unit.width = 2;
    expect_product(unit, {66, 67, 40, 2, align / 2});
  }
  Unit unit = unit_of(ProductKind::Mma, 2);
  unit.a_align = unit.b_align = unit.width = 2;
  unit.a_k_major = unit.b_k_major = false;
  expect_product(unit, {33, 65, 37, 2});
}

TEST_F(ProductLoops, MmaRoundsFloatsToElevenBits) {
  const Unit unit = unit_of(ProductKind::Mma, 2).with("float");
  for (const Shape& shape : {Shape{64, 64, 16}, {1, 1, 4}, {65, 70, 76, 2}, {10, 130, 8}, {5, 9, 0}})
    expect_product(unit, shape);
  for (int layout = 0; layout < 3; ++layout)
    for (const int align : {16, 8, 4}) {
      Unit other = unit;
      other.a_k_major = layout & 1;
      other.b_k_major = layout & 2;
      other.a_align = other.b_align = align;
      other.width = align == 16 ? 8 : 2;
      expect_product(other, {72, 80, 44, 2, align == 16 ? 0 : align / 4});
    }
}

TEST_F(ProductLoops, MmaHasEpiloguesAndTilesOfFloats) {
  Unit unit = unit_of(ProductKind::Mma, 2).with("float");
  unit.epilogue = Epilogue::BiasGelu;
  expect_product(unit, {70, 72, 40});
  for (int tile = 0; tile < 3; ++tile) {
    Unit large = unit_of(ProductKind::Mma, tile).with("float");
    large.a_k_major = tile == 1;
    large.b_k_major = false;
    expect_product(large, {132, 264, 100});
    unit = unit_of(ProductKind::Mma, tile, 2).with("float");
    unit.b_k_major = tile == 1;
    expect_product(unit, {100, 136, 68});
  }
}

TEST_F(ProductLoops, MmaMultipliesFloatsOfEightBits) {
  for (const char* element : {"e4m3", "e5m2"})
    for (int tile = 0; tile < 3; ++tile) {
      const Unit unit = unit_of(ProductKind::Mma, tile).with(element);
      for (const Shape& shape : {Shape{64, 64, 64}, {65, 70, 112, 2}, {10, 130, 16}, {33, 40, 176, 2, 16}})
        expect_product(unit, shape);
    }
  Unit unit = unit_of(ProductKind::Mma, 2).with("e4m3");
  unit.epilogue = Epilogue::BiasGelu;
  expect_product(unit, {70, 72, 48});
  expect_product(unit_of(ProductKind::Mma, 2, 2).with("e4m3"), {70, 72, 48});
}

TEST_F(ProductLoops, DecodeReadsEitherAxisOnce) {
  for (int tile = 0; tile < 3; ++tile) {
    Unit unit = unit_of(ProductKind::Decode, tile);
    unit.b_k_major = tile == 0;
    for (const Shape& shape : {Shape{1, 40, 1160}, {16, 72, 72, 2}, {9, 8, 0}, {20, 8, 72}})
      expect_product(unit, shape);
    expect_product(unit, {3, 35, 67, 2, 5});
    if (tile == 2) continue;
    unit = unit_of(ProductKind::Decode, tile, 2);
    unit.b_k_major = tile == 0;
    expect_product(unit, {5, 72, 136});
  }
}

TEST_F(ProductLoops, MmaHasEpiloguesAndPairsOfProducts) {
  Unit unit = unit_of(ProductKind::Mma, 2);
  unit.epilogue = Epilogue::BiasGelu;
  expect_product(unit, {70, 72, 40});
  unit = unit_of(ProductKind::Mma, 2, 2);
  expect_product(unit, {70, 72, 40});
  unit.b_k_major = false;
  expect_product(unit, {70, 72, 40});
}

TEST_F(ProductLoops, MmaHasTilesForLargeProducts) {
  for (int tile = 0; tile < 2; ++tile) {
    expect_product(unit_of(ProductKind::Mma, tile), {130, 264, 200});
    Unit unit = unit_of(ProductKind::Mma, tile, 2);
    unit.b_k_major = false;
    expect_product(unit, {100, 136, 136});
  }
}

}  // namespace
}  // namespace kiln::cuda
