// Times and checks the product templates of kernels_templates/ against cuBLASLt, and against sums that a
// plain kernel makes in float. Stands alone: needs NVRTC, the driver and cuBLASLt, nothing of Kiln but the
// templates' texts and the table of their tiles.
//
//   products check            many shapes, layouts and alignments; prints the wrong ones
//   products rates            the shapes that docs/contractions.md lists, by turns with cuBLASLt
//   products decode           few rows: bytes a second beside a copy's
//   products cubins FOLDER    compiles what the others need; they read it from $PRODUCTS_CUBINS
#include "device.h"
#include "product_unit.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

using namespace kiln;
using codegen::ProductChoice;
using codegen::ProductExtents;
using codegen::ProductKind;
using product_unit::Epilogue;
using product_unit::Unit;

namespace {

// ---- helper kernels --------------------------------------------------------------------------------------

constexpr const char* kHelpers = R"(
__device__ __forceinline__ unsigned hashed(unsigned x) {
  x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; x ^= x >> 16;
  return x;
}
// Element i, of kind 0 bfloat16, 1 float16, 2 float32, 3 float8_e4m3fn, 4 float8_e5m2. Of floats what tensor
// cores read: of `read` 1 rounded, of 2 cut to 11 bits; of 0 all.
__device__ __forceinline__ float element(const void* x, long long i, int kind, int read = 0) {
  if (kind == 2) {
    const unsigned bits = static_cast<const unsigned*>(x)[i];
    return __uint_as_float(read == 0 ? bits : (bits + (read == 1 ? 0x1000u : 0u)) & 0xffffe000u);
  }
  if (kind >= 3) {
    const unsigned short byte = static_cast<const unsigned char*>(x)[i];
    unsigned pair;
    if (kind == 3)
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(byte));
    else
      pair = byte << 8;
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((unsigned short)pair));
    return y;
  }
  const unsigned short half = static_cast<const unsigned short*>(x)[i];
  if (kind == 0) return __uint_as_float((unsigned)half << 16);
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(half));
  return y;
}
extern "C" __global__ void fill(void* x, long long n, unsigned seed, int kind) {
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    const float u = (float)(int)hashed((unsigned)i ^ hashed(seed + (unsigned)(i >> 32))) * 4.656612873e-10f;
    unsigned short y = (unsigned short)((__float_as_uint(u) + 0x8000u) >> 16);
    if (kind == 1) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(u));
    if (kind == 3) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(u));
    if (kind == 4) asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(u));
    if (kind >= 3)
      static_cast<unsigned char*>(x)[i] = (unsigned char)y;
    else if (kind == 2)
      static_cast<float*>(x)[i] = u;
    else
      static_cast<unsigned short*>(x)[i] = y;
  }
}
extern "C" __global__ void judge(const void* a, const void* b0, const void* b1, const void* bias, const void* d,
                                 int m, int n, int k, int batch,
                                 long long a_m, long long a_k, long long b_n, long long b_k, long long a_batch,
                                 long long b_batch, long long d_batch, long long d_pitch, int kind, int b_kind,
                                 int read,
                                 int epilogue, long long samples, unsigned* wrong, unsigned* worst) {
  const long long total = (long long)m * n * batch;
  for (long long s = blockIdx.x * 256ll + threadIdx.x; s < samples; s += gridDim.x * 256ll) {
    const unsigned long long drawn = (unsigned long long)hashed((unsigned)s) << 32 | hashed((unsigned)s + 77u);
    const long long e = samples == total ? s : (long long)(drawn % (unsigned long long)total);
    const int j = e % n, i = e / n % m, c = e / n / m;
    float x = 0, y = 0, size = 0, other = 0;
    for (int q = 0; q < k; ++q) {
      const float p = element(a, c * a_batch + i * a_m + q * a_k, kind, read);
      const float r = p * element(b0, c * b_batch + j * b_n + q * b_k, b_kind, read);
      x += r;
      size += fabsf(r);
      if (epilogue == 2) {
        const float t = p * element(b1, c * b_batch + j * b_n + q * b_k, b_kind, read);
        y += t;
        other += fabsf(t);
      }
    }
    if (epilogue == 1) {
      x += element(bias, j, kind >= 3 ? 0 : kind);
      const float u = 1.5957691216057308f * (x + 0.044715f * x * x * x);
      x = x / (1.0f + exp2f(-1.4426950408889634f * u));
    }
    if (epilogue == 2) {
      const float silu = x / (1.0f + exp2f(-1.4426950408889634f * x));
      size = 1.1f * size * fabsf(y) + fabsf(silu) * other;
      x = silu * y;
    }
    const float got = element(d, c * d_batch + i * d_pitch + j, kind >= 3 ? 0 : kind);
    const float rounded = kind == 2 ? 1e-5f : 0.0045f;
    const float allowed = fabsf(x) * rounded + size * (kind >= 3 ? 1.3e-4f : 2e-6f) + 1e-5f;  // 2^-13
    const float error = fabsf(got - x) / allowed;
    if (!(error <= 1.0f)) atomicAdd(wrong, 1u);
    atomicMax(worst, __float_as_uint(error == error ? error : 1e30f));
  }
}
// In units of 16 bits.
extern "C" __global__ void untouched(const unsigned short* d, long long rows, long long width, long long pitch,
                                     unsigned* wrong) {
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < rows * pitch; i += gridDim.x * 256ll)
    if (i % pitch >= width && d[i] != 0xfefe) atomicAdd(wrong, 1u);
}
)";

CUfunction loaded(const std::vector<char>& image, const char* symbol) {
  CUmodule module;
  CUfunction function;
  CHECKED(cuModuleLoadData(&module, image.data()));
  CHECKED(cuModuleGetFunction(&function, module, symbol));
  return function;
}

std::vector<char> made(const std::string& name, const std::string& text) {
  if (const char* folder = std::getenv("PRODUCTS_CUBINS")) {
    std::ifstream in(std::string(folder) + "/" + name + ".cubin", std::ios::binary);
    if (in) return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string log;
  return compile(text, name, "sm_90a", log);
}

struct Helpers {
  std::vector<char> image = made("helpers", kHelpers);
  CUfunction fill = loaded(image, "fill"), judge = loaded(image, "judge"),
             untouched = loaded(image, "untouched");
};

template <class... A>
void launch(CUfunction f, unsigned grid, A... arguments) {
  void* params[] = {&arguments...};
  CHECKED(cuLaunchKernel(f, grid, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr));
}

// ---- one product -----------------------------------------------------------------------------------------

struct Shape {
  int m, n, k, batch = 1;
  int pad = 0;    // elements added to every row
  int shift = 0;  // elements by which every matrix is moved
};

int sms() {
  int count = 0;
  CHECKED(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  return count;
}

/// How the helper kernels call an element type.
int kind_of(const std::string& element) {
  static const std::string kKinds[] = {"bf16", "f16", "float", "e4m3", "e5m2"};
  return static_cast<int>(std::find(std::begin(kKinds), std::end(kKinds), element) - std::begin(kKinds));
}
int kind_of_b(const Unit& unit) { return unit.bytes() == 1 ? 3 : kind_of(unit.element); }
/// Which bits of its elements a unit multiplies.
int read_by(const Unit& unit) {
  return unit.element != "float" ? 0 : unit.choice.kind == ProductKind::Wgmma ? 2 : 1;
}

CUtensorMap tensor_map(CUdeviceptr at, std::int64_t inner, std::int64_t outer, std::int64_t pitch,
                       std::int64_t batch, std::int64_t batch_stride, int box_outer, int bytes) {
  CUtensorMap map;
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(outer),
                             static_cast<cuuint64_t>(batch)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(pitch * bytes),
                                static_cast<cuuint64_t>(batch_stride * bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(128 / bytes), static_cast<cuuint32_t>(box_outer), 1},
                   steps[] = {1, 1, 1};
  CHECKED(cuTensorMapEncodeTiled(&map,
                                 bytes == 4   ? CU_TENSOR_MAP_DATA_TYPE_UINT32
                                 : bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                              : CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                 3, reinterpret_cast<void*>(at), dims, strides, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

class Problem {
 public:
  Problem(const Helpers& helpers, const Unit& unit, const Shape& shape, int copies = 1)
      : helpers_(helpers), unit_(unit), shape_(shape), copies_(copies) {
    const auto [m, n, k, batch, pad, shift] = shape;
    a_pitch_ = (unit.a_k_major ? k : m) + pad;
    b_pitch_ = (unit.b_k_major ? k : n) + pad;
    args_.d_pitch = n + pad;
    args_.a_batch = a_pitch_ * std::max(unit.a_k_major ? m : k, 1);
    args_.b_batch = b_pitch_ * std::max(unit.b_k_major ? n : k, 1);
    args_.d_batch = args_.d_pitch * m;
    args_.product = {m,
                     n,
                     k,
                     batch,
                     unit.a_k_major ? a_pitch_ : 1,
                     unit.a_k_major ? 1 : a_pitch_,
                     unit.b_k_major ? b_pitch_ : 1,
                     unit.b_k_major ? 1 : b_pitch_};
    a_ = filled(args_.a_batch * batch + shift, 1, kind_of(unit.element));
    for (int c = 0; c < copies; ++c)
      for (int p = 0; p < unit.choice.products; ++p)
        b_.push_back(filled(args_.b_batch * batch + shift, 2 + p, kind_of_b(unit)));
    bias_ = filled(n, 9, kind_of(unit.result()));
    d_ = std::make_unique<Buffer>((args_.d_batch * batch + 4096) * unit.result_bytes());
    args_.a = a_->at() + unit.bytes() * shift;
    args_.bias = bias_->at();
    args_.d = d_->at();
    choose_copy(0);
    launch_ = codegen::product_shape(unit.choice, args_.product, sms());
  }

  void choose_copy(int copy) {
    const int bytes = unit_.bytes();
    for (int p = 0; p < 2; ++p)
      args_.b[p] =
          b_[(copy % copies_) * unit_.choice.products + std::min(p, unit_.choice.products - 1)]->at() +
          bytes * shape_.shift;
    if (unit_.choice.kind != ProductKind::Wgmma) return;
    const codegen::ProductTile tile = codegen::tile_of(unit_.choice);
    const auto& s = shape_;
    const CUtensorMap a =
        tensor_map(args_.a, unit_.a_k_major ? s.k : s.m, unit_.a_k_major ? s.m : s.k, a_pitch_, s.batch,
                   args_.a_batch, unit_.a_k_major ? tile.box_a : 64, bytes);
    std::memcpy(args_.a_map, &a, 128);
    for (int p = 0; p < unit_.choice.products; ++p) {
      const CUtensorMap b =
          tensor_map(args_.b[p], unit_.b_k_major ? s.k : s.n, unit_.b_k_major ? s.n : s.k, b_pitch_, s.batch,
                     args_.b_batch, unit_.b_k_major ? tile.box_b : 64, bytes);
      std::memcpy(args_.b_map[p], &b, 128);
    }
  }

  void run(CUfunction f) const {
    const device::LaunchShape& l = launch_;
    void* params[] = {const_cast<product_unit::Args*>(&args_)};
    CUlaunchConfig config{};
    CUlaunchAttribute attribute{};
    config.gridDimX = l.grid[0], config.gridDimY = 1, config.gridDimZ = 1;
    config.blockDimX = l.block[0], config.blockDimY = 1, config.blockDimZ = 1;
    config.sharedMemBytes = l.dynamic_shared;
    config.attrs = &attribute;
    if (l.has_clusters()) {
      attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute.value.clusterDim = {l.cluster[0], 1, 1};
      config.numAttrs = 1;
    }
    CHECKED(cuLaunchKernelEx(&config, f, params, nullptr));
  }

  void poison() const { CHECKED(cuMemsetD16(d_->at(), 0xfefe, d_->bytes() / 2)); }

  /// Elements that are wrong, of at most `most` looked at.
  unsigned wrong(std::int64_t most, float& worst) const {
    const Buffer out(8);
    CHECKED(cuMemsetD32(out.at(), 0, 2));
    const auto& e = args_.product;
    const long long total = static_cast<long long>(e.m) * e.n * e.batch,
                    samples = std::min<long long>(total, most);
    launch(helpers_.judge, 1056, args_.a, args_.b[0], args_.b[1], args_.bias, args_.d, e.m, e.n, e.k, e.batch,
           e.a_m, e.a_k, e.b_n, e.b_k, args_.a_batch, args_.b_batch, args_.d_batch, args_.d_pitch,
           kind_of(unit_.element), kind_of_b(unit_), read_by(unit_), static_cast<int>(unit_.epilogue),
           samples, out.at(), out.at() + 4);
    if (e.n != args_.d_pitch)
      launch(helpers_.untouched, 1056, args_.d, static_cast<long long>(e.m) * e.batch,
             static_cast<long long>(e.n) * (unit_.result_bytes() / 2),
             static_cast<long long>(args_.d_pitch) * (unit_.result_bytes() / 2), out.at());
    unsigned read[2];
    CHECKED(cuMemcpyDtoH(read, out.at(), 8));
    std::memcpy(&worst, &read[1], 4);
    return read[0];
  }

  const product_unit::Args& args() const { return args_; }
  const Shape& shape() const { return shape_; }
  const Unit& unit() const { return unit_; }
  std::int64_t a_pitch() const { return a_pitch_; }
  std::int64_t b_pitch() const { return b_pitch_; }

 private:
  std::unique_ptr<Buffer> filled(std::int64_t n, unsigned seed, int kind) const {
    auto x = std::make_unique<Buffer>(std::max<std::int64_t>(n, 8) * 4 + 512);
    launch(helpers_.fill, 1056, x->at(), static_cast<long long>(n), seed, kind);
    return x;
  }

  const Helpers& helpers_;
  Unit unit_;
  Shape shape_;
  int copies_;
  std::int64_t a_pitch_, b_pitch_;
  std::unique_ptr<Buffer> a_, bias_, d_;
  std::vector<std::unique_ptr<Buffer>> b_;
  product_unit::Args args_{};
  device::LaunchShape launch_;
};

/// cuBLASLt's product of the same operands, by the first algorithm that it proposes.
class Library {
 public:
  Library(const Problem& problem, Epilogue epilogue) : problem_(problem), workspace_(64 << 20) {
    const Unit& unit = problem.unit();
    const Shape& s = problem.shape();
    static constexpr cudaDataType kTypes[] = {CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_8F_E4M3,
                                              CUDA_R_8F_E5M2};
    const cudaDataType type = kTypes[kind_of(unit.element)], b_type = kTypes[kind_of_b(unit)];
    static cublasLtHandle_t handle = [] {
      cublasLtHandle_t made_handle;
      CHECKED(cublasLtCreate(&made_handle));
      return made_handle;
    }();
    handle_ = handle;
    CHECKED(cublasLtMatmulDescCreate(
        &desc_, type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    // column-major: Dᵀ = B Aᵀ
    const cublasOperation_t first = unit.b_k_major ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = unit.a_k_major ? CUBLAS_OP_N : CUBLAS_OP_T;
    CHECKED(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    CHECKED(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (epilogue == Epilogue::BiasGelu) {
      const cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_GELU_BIAS;
      const CUdeviceptr bias = problem.args().bias;
      CHECKED(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, &kind, sizeof kind));
      CHECKED(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    layout(b_, b_type, unit.b_k_major ? s.k : s.n, unit.b_k_major ? s.n : s.k, problem.b_pitch());
    layout(a_, type, unit.a_k_major ? s.k : s.m, unit.a_k_major ? s.m : s.k, problem.a_pitch());
    layout(d_, kTypes[kind_of(unit.result())], s.n, s.m, problem.args().d_pitch);
    cublasLtMatmulPreference_t preference;
    CHECKED(cublasLtMatmulPreferenceCreate(&preference));
    const std::size_t bytes = workspace_.bytes();
    CHECKED(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                 sizeof bytes));
    int found = 0;
    CHECKED(cublasLtMatmulAlgoGetHeuristic(handle_, desc_, b_, a_, d_, d_, preference, 1, &result_, &found));
    if (found == 0) fail("cuBLASLt has no algorithm");
  }

  void run() const {
    const float one = 1, zero = 0;
    const auto at = [](CUdeviceptr p) { return reinterpret_cast<void*>(p); };
    const auto& args = problem_.args();
    CHECKED(cublasLtMatmul(handle_, desc_, &one, at(args.b[0]), b_, at(args.a), a_, &zero, at(args.d), d_,
                           at(args.d), d_, &result_.algo, at(workspace_.at()), workspace_.bytes(), nullptr));
  }

 private:
  static void layout(cublasLtMatrixLayout_t& to, cudaDataType type, std::int64_t rows, std::int64_t columns,
                     std::int64_t pitch) {
    CHECKED(cublasLtMatrixLayoutCreate(&to, type, rows, columns, pitch));
  }
  const Problem& problem_;
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t desc_;
  cublasLtMatrixLayout_t a_, b_, d_;
  cublasLtMatmulHeuristicResult_t result_{};
  Buffer workspace_;
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

template <class F>
double microseconds(int repeats, const F& f) {
  static const Event begin, end;
  begin.record();
  for (int i = 0; i < repeats; ++i) f(i);
  end.record();
  return end.microseconds_since(begin) / repeats;
}

class Kernels {
 public:
  CUfunction operator()(const Unit& unit) {
    const std::string name = unit.name();
    if (const auto it = made_.find(name); it != made_.end()) return it->second;
    const CUfunction f = loaded(made(name, product_unit::source(unit)), "product_kernel");
    CHECKED(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               codegen::tile_of(unit.choice).shared));
    return made_[name] = f;
  }

 private:
  std::map<std::string, CUfunction> made_;
};

#include "cases.h"

int check_all(const std::string& only) {
  const Helpers helpers;
  Kernels kernels;
  int bad = 0, done = 0;
  for (const Unit& unit : checked_units()) {
    if (unit.name().find(only) == std::string::npos) continue;
    const CUfunction f = kernels(unit);
    for (const Shape& shape : checked_shapes(unit)) {
      const Problem problem(helpers, unit, shape);
      problem.poison();
      problem.run(f);
      float worst = 0;
      const unsigned wrong = problem.wrong(1 << 20, worst);
      ++done;
      if (wrong == 0) continue;
      ++bad;
      if (bad <= 60)
        std::printf(
            "WRONG %-32s %d x %d x %d batch %d pad %d shift %d: %u elements, worst %.3g of the tolerance\n",
            unit.name().c_str(), shape.m, shape.n, shape.k, shape.batch, shape.pad, shape.shift, wrong,
            worst);
    }
  }
  std::printf("checked %d products, %d wrong\n", done, bad);
  return bad > 0;
}

void rates(const std::string& only) {
  const Helpers helpers;
  Kernels kernels;
  std::printf("%-34s %-20s %9s %9s %7s %7s %8s %9s\n", "template", "m x n x k", "us", "Lt us", "TFLOP/s",
              "of Lt", "checked", "tolerance");
  for (const auto& [unit, shape] : rated()) {
    if (unit.name().find(only) == std::string::npos) continue;
    const CUfunction f = kernels(unit);
    const Problem problem(helpers, unit, shape);
    const Library library(problem, Epilogue::Store);
    std::vector<double> ours, theirs;
    const double flops = 2.0 * shape.m * shape.n * shape.k;
    const int repeats = std::max(2, static_cast<int>(6e12 / flops));
    for (int round = 0; round < 6; ++round) {
      const double us = microseconds(repeats, [&](int) { problem.run(f); }),
                   lt = microseconds(repeats, [&](int) { library.run(); });
      if (round == 0) continue;  // warms up
      ours.push_back(us);
      theirs.push_back(lt);
    }
    problem.poison();
    problem.run(f);
    float worst = 0;
    const unsigned wrong = problem.wrong(100000, worst);
    const double us = median(ours), lt = median(theirs) * unit.choice.products;
    char size[64];
    std::snprintf(size, sizeof size, "%dx%dx%d", shape.m, shape.n, shape.k);
    std::printf("%-34s %-20s %9.1f %9.1f %7.1f %6.1f%% %8s %9.2f\n", unit.name().c_str(), size, us, lt,
                flops * unit.choice.products / us / 1e6, 100 * lt / us, wrong == 0 ? "right" : "WRONG",
                worst);
    std::fflush(stdout);
  }
}

void decode(const std::string& only) {
  const Helpers helpers;
  Kernels kernels;
  const Buffer from(1u << 30), to(1u << 30);
  std::vector<double> copies;
  for (int round = 0; round < 6; ++round)
    copies.push_back(
        microseconds(5, [&](int) { cuMemcpyDtoDAsync(to.at(), from.at(), from.bytes(), nullptr); }));
  const double copy_rate = 2.0 * static_cast<double>(from.bytes()) / median(copies) * 1e-6;
  std::printf("copy: %.3f TB/s read and written\n%-34s %-20s %9s %9s %7s %8s %8s %8s\n", copy_rate,
              "template", "m x n x k", "us", "Lt us", "TB/s", "of copy", "equal", "checked");
  for (const auto& [unit, shape] : decoded()) {
    if (unit.name().find(only) == std::string::npos) continue;
    const CUfunction f = kernels(unit);
    Problem problem(helpers, unit, shape, 6);
    const Library library(problem, Epilogue::Store);
    const std::size_t traffic =
        2 * (std::size_t(shape.n) * shape.k + std::size_t(shape.m) * (shape.n + shape.k));
    std::vector<double> ours, theirs, equal;
    for (int round = 0; round < 8; ++round) {
      const auto next = [&](int i) { problem.choose_copy(i); };
      const double us = microseconds(60, [&](int i) { next(i), problem.run(f); }),
                   lt = microseconds(60, [&](int i) { next(i), library.run(); });
      const double copied = microseconds(60, [&](int i) {
        const std::size_t at = i % 6 * (from.bytes() / 6) / 256 * 256;
        CHECKED(cuMemcpyDtoDAsync(to.at() + at, from.at() + at, traffic / 2, nullptr));
      });
      if (round == 0) continue;
      equal.push_back(copied);
      ours.push_back(us);
      theirs.push_back(lt);
    }
    problem.poison();
    problem.run(f);
    float worst = 0;
    const unsigned wrong = problem.wrong(100000, worst);
    const double us = median(ours), rate = static_cast<double>(traffic) / us * 1e-6;
    char size[64];
    std::snprintf(size, sizeof size, "%dx%dx%d", shape.m, shape.n, shape.k);
    std::printf("%-34s %-20s %9.2f %9.2f %7.3f %7.1f%% %7.1f%% %8s\n", unit.name().c_str(), size, us,
                median(theirs), rate, 100 * rate / copy_rate, 100 * median(equal) / us,
                wrong == 0 ? "right" : "WRONG");
    std::fflush(stdout);
  }
}

void write_cubins(const std::string& folder, const std::string& only) {
  std::map<std::string, std::string> texts{{"helpers", kHelpers}};
  for (const Unit& unit : checked_units()) texts[unit.name()] = product_unit::source(unit);
  for (const auto& [unit, shape] : rated()) texts[unit.name()] = product_unit::source(unit);
  for (const auto& [unit, shape] : decoded()) texts[unit.name()] = product_unit::source(unit);
  for (const auto& [name, text] : texts) {
    if (name != "helpers" && name.find(only) == std::string::npos) continue;
    std::string log;
    const std::vector<char> image = compile(text, name, "sm_90a", log);
    std::ofstream(folder + "/" + name + ".cubin", std::ios::binary).write(image.data(), image.size());
    std::ofstream(folder + "/" + name + ".cu") << text;
    std::printf("%s\n%s", name.c_str(), log.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "", more = argc > 2 ? argv[2] : "";
  if (what == "cubins") {
    write_cubins(more, argc > 3 ? argv[3] : "");
    return 0;
  }
  CHECKED(cuInit(0));
  CUcontext context;
  CHECKED(cuDevicePrimaryCtxRetain(&context, 0));
  CHECKED(cuCtxSetCurrent(context));
  if (what == "check") return check_all(more);
  if (what == "rates") rates(more);
  if (what == "decode") decode(more);
  return 0;
}
