// Complete CUDA C units of the product templates with hooks written by hand: what generated code will say,
// for tests that compile and run the templates alone and for bench/products. Depends on nothing but the
// templates' texts, so that a program without the rest of Kiln can use it.
#pragma once

#include "codegen/cuda/product_launch.h"
#include "kernels_templates.h"

#include <cstdint>
#include <string>

namespace kiln::product_unit {

enum class Epilogue { Store, BiasGelu, SiluTimes };

struct Unit {
  codegen::ProductChoice choice;
  /// Or f16; but of Decode float; of Gather float or double, too; of Mma and Wgmma e4m3, both operands, or
  /// e5m2, the first one beside e4m3.
  std::string element = "bf16";
  bool a_k_major = true, b_k_major = true;
  int a_align = 16, b_align = 16;
  int width = 8;
  Epilogue epilogue = Epilogue::Store;
  int windows = 0, window_axes = 2;  // an operand is windows, to compile: 1 or 2, along so many axes

  int bytes() const {
    return element == "double" ? 8 : element == "float" ? 4 : element[0] == 'e' ? 1 : 2;
  }  // of an element
  std::string result() const { return bytes() == 1 ? "bf16" : element; }
  int result_bytes() const { return bytes() == 1 ? 2 : bytes(); }

  /// The unit of another element.
  Unit with(const char* of) const {
    Unit unit = *this;
    unit.element = of;
    unit.choice.bytes = unit.bytes();
    return unit;
  }

  std::string name() const {
    static constexpr const char* kKinds[] = {"mma", "wgmma", "decode", "gather"};
    static constexpr const char* kEpilogues[] = {"store", "gelu", "swiglu"};
    return std::string(kKinds[static_cast<int>(choice.kind)]) + std::to_string(choice.tile) + "_" + element +
           (choice.kind == codegen::ProductKind::Decode
                ? "_r" + std::to_string(choice.rows) + "w" + std::to_string(choice.warps)
                : std::string()) +
           "_" + (a_k_major ? "t" : "n") + (b_k_major ? "n" : "t") + "_a" + std::to_string(a_align) + "b" +
           std::to_string(b_align) + "w" + std::to_string(width) + "_" +
           kEpilogues[static_cast<int>(epilogue)] +
           (windows ? "_windows" + std::to_string(windows) + std::to_string(window_axes) : std::string());
  }
};

/// The kernel's one argument, as `source` declares it.
struct alignas(64) Args {
  codegen::ProductExtents product;
  std::uint64_t a, b[2], d, bias;
  std::int64_t a_batch, b_batch, d_batch, d_pitch;  // in elements
  alignas(64) unsigned char a_map[128];
  alignas(64) unsigned char b_map[2][128];
};

inline const char* const kHooks = R"(
struct alignas(64) Args {
  Product product;
  WINDOWS
  const Config::Element* a;
  const Config::Element* b[2];
  Config::Result* d;
  const Config::Result* bias;
  int64 a_batch, b_batch, d_batch, d_pitch;
  TensorMap a_map, b_map[2];
};
__device__ __forceinline__ const Config::Element* a_matrix(const Args& args, int b) {
  return args.a + b * args.a_batch;
}
__device__ __forceinline__ const Config::Element* b_matrix(const Args& args, int p, int b) {
  return args.b[p] + b * args.b_batch;
}
__device__ __forceinline__ void a_at(const Args& args, int b, int m, int k, int (&c)[3]) {
  c[0] = Config::kAKMajor ? k : m;
  c[1] = Config::kAKMajor ? m : k;
  c[2] = b;
}
__device__ __forceinline__ void b_at(const Args& args, int b, int p, int n, int k, int (&c)[3]) {
  c[0] = Config::kBKMajor ? k : n;
  c[1] = Config::kBKMajor ? n : k;
  c[2] = b;
}
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ void narrow(float& y, float x) { y = x; }
__device__ __forceinline__ void narrow(double& y, double x) { y = x; }
__device__ __forceinline__ void narrow(bf16& y, float x) { y = to_bf16(x); }
__device__ __forceinline__ void narrow(f16& y, float x) { y = to_f16(x); }
)";

inline const char* const kStore = R"(
#define FINISH(x) acc[0][x]
)";
// gelu by its tanh form: x · sigmoid(1.702…)-like spellings would hide the cost of the real one
inline const char* const kBiasGelu = R"(
__device__ __forceinline__ float gelu(float x) {
  const float u = 1.5957691216057308f * __fmaf_rn(0.044715f * x * x, x, x);
  float e = -1.4426950408889634f * u, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(e));
  e = 1.0f + e;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(e));
  return x * r;
}
#define FINISH(x) gelu(acc[0][x] + to_float(bias.at[x]))
)";
inline const char* const kSiluTimes = R"(
__device__ __forceinline__ float silu(float x) {
  float e = -1.4426950408889634f * x, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(e));
  e = 1.0f + e;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(e));
  return x * r;
}
#define FINISH(x) silu(acc[0][x]) * acc[Config::kProducts - 1][x]
)";

/// The hooks, with windows or without.
inline std::string hooks(const Unit& unit) {
  const std::string place = "WINDOWS";
  std::string out = kHooks;
  return out.replace(out.find(place), place.size(), unit.windows ? "Windows windows;" : "");
}

inline std::string flag(bool x) { return x ? "true" : "false"; }
inline std::string number(int x) { return std::to_string(x); }

/// What product_gather has of its own; its units are single elements.
inline std::string gather_constants(const codegen::ProductChoice::Gather& g) {
  return "  typedef " + std::string(g.bytes == 8 ? "double" : "float") +
         " Sum;\n  static constexpr int kTileM = " + number(g.m) + ", kTileN = " + number(g.n) +
         ", kEachM = " + number(g.each_m) + ", kEachN = " + number(g.each_n) +
         ", kBlocks = 3, kUnit = 1, kDepth = " + number(g.depth) +
         ";\n  static constexpr bool kByK = true, kChannelsOuter = false, kTogether = " + flag(g.together) +
         ", kFlat = " + flag(g.flat) + ";\n";
}

inline std::string source(const Unit& unit) {
  namespace texts = codegen::templates;
  std::string out = "#define KILN_TRAP_LATE\n";
  out += std::string(texts::types) + texts::memory + texts::ptx + texts::product + texts::product_windows +
         texts::hopper;
  out += "struct Config {\n  typedef " + (unit.bytes() == 1 ? "uint8" : unit.element) + " Element;\n";
  out += "  typedef " + unit.result() +
         " Result;\n  static constexpr bool kAE5M2 = " + flag(unit.element == "e5m2") + ", kBE5M2 = false;\n";
  out += "  static constexpr int kProducts = " + number(unit.choice.products) +
         ", kTile = " + number(unit.choice.tile) + ", kAAlign = " + number(unit.a_align) +
         ", kBAlign = " + number(unit.b_align) + ", kWidth = " + number(unit.width) +
         ", kParts = 1, kPartner = 0, kARank = 3, kBRank = 3, kWindows = " + number(unit.windows) +
         ", kWindowAxes = " + number(unit.window_axes) + ", kRows = " + number(unit.choice.rows) +
         ", kWarps = " + number(unit.choice.warps) + ", kWarpsPerSm = " + number(unit.choice.warps_per_sm) +
         ";\n";
  out += "  static constexpr bool kAKMajor = " + flag(unit.a_k_major) +
         ", kBKMajor = " + flag(unit.b_k_major) +
         ", kBatched = false, kWhole = false, kSpread = false, kMade = false, kWidens = false, kAsGiven = "
         "false, kFactored = false, kNibbles = false, kZeroed = false, kScaled = false;\n"
         "  static constexpr int kShare = 1;\n";
  if (unit.choice.kind == codegen::ProductKind::Gather) out += gather_constants(unit.choice.gather);
  out += "};\n";
  out += hooks(unit);
  switch (unit.epilogue) {
    case Epilogue::Store: out += kStore; break;
    case Epilogue::BiasGelu: out += kBiasGelu; break;
    case Epilogue::SiluTimes: out += kSiluTimes; break;
  }
  out +=
      "__device__ __forceinline__ void epilogue(const Args& args, int, int b, int m, int n, int left,\n"
      "                                         const " +
      std::string(unit.bytes() == 8 ? "double" : "float") + " (&acc)[Config::kProducts][Config::kWidth]) {\n";
  if (unit.epilogue == Epilogue::BiasGelu)
    out += "  const vec<Config::Result, Config::kWidth> bias = load<Config::kWidth>(args.bias + n, left);\n";
  out +=
      "  vec<Config::Result, Config::kWidth> y;\n#pragma unroll\n"
      "  for (int x = 0; x < Config::kWidth; ++x) narrow(y.at[x], FINISH(x));\n"
      "  Config::Result* const to = args.d + b * args.d_batch + m * args.d_pitch + n;\n";
  // rows that begin anywhere: element by element
  out +=
      "  if (args.d_pitch % Config::kWidth == 0 && args.d_batch % Config::kWidth == 0) {\n"
      "    store(to, y, left);\n  } else {\n#pragma unroll\n"
      "    for (int x = 0; x < Config::kWidth; ++x)\n      if (x < left) to[x] = y.at[x];\n  }\n}\n";
  if (unit.choice.kind != codegen::ProductKind::Gather)
    out += std::string(texts::turn_columns) + texts::product_rows;
  switch (unit.choice.kind) {
    case codegen::ProductKind::Mma: out += texts::product_mma; break;
    case codegen::ProductKind::Wgmma: out += texts::product_wgmma; break;
    case codegen::ProductKind::Decode: out += texts::product_decode; break;
    case codegen::ProductKind::Gather:
      out += texts::product_gather;
      out += unit.bytes() == 4 ? texts::product_fma : texts::product_fragments;
      break;
  }
  out +=
      "\nextern \"C\" __global__ void __launch_bounds__(kThreads, kBlocksPerSm) product_kernel(const "
      "__grid_constant__ Args args) {\n  run_product(args);\n}\n";
  return out;
}

}  // namespace kiln::product_unit
