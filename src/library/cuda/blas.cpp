#include "library/cuda/blas.h"

#include <cublasLt.h>
#include <cuda.h>

#include "device/cuda/copy.h"
#include "device/cuda/driver.h"
#include "device/cuda/driver_api.h"
#include "device/cuda/shared_library.h"
#include "device/cuda/stream.h"
#include "device/cuda/strided_copy.h"
#include "library/cuda/blas_product.h"
#include "support/check.h"
#include "support/hash128.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>

namespace kiln::cuda {
namespace {

constexpr std::size_t kMostWorkspace = 32 << 20;  // what the fast kernels of recent devices may want
constexpr std::size_t kMostChoices = 4096;

struct BlasApi {
  // clang-format off
#define KILN_BLAS_FUNCTIONS(_)                                                                                     \
  _(cublasLtCreate) _(cublasLtGetVersion) _(cublasLtGetStatusString) _(cublasLtMatmul)                             \
  _(cublasLtMatmulAlgoGetHeuristic) _(cublasLtMatmulDescCreate) _(cublasLtMatmulDescDestroy)                       \
  _(cublasLtMatmulDescSetAttribute) _(cublasLtMatrixLayoutCreate) _(cublasLtMatrixLayoutDestroy)                   \
  _(cublasLtMatrixLayoutSetAttribute) _(cublasLtMatmulPreferenceCreate) _(cublasLtMatmulPreferenceDestroy)         \
  _(cublasLtMatmulPreferenceSetAttribute)
// clang-format on
#define KILN_BLAS_FIELD(name) decltype(&::name) name = nullptr;
  KILN_BLAS_FUNCTIONS(KILN_BLAS_FIELD)
#undef KILN_BLAS_FIELD
};

BlasReport look(std::span<const std::string> names, BlasApi& api) {
  BlasReport out;
  const SharedLibrary library = open_first(names);
  if (!library.handle) {
    out.reason = "no cuBLASLt library: " + library.failure;
    return out;
  }
  out.library = library.path;
  const char* missing = nullptr;
#define KILN_BLAS_BIND(name)                                                    \
  api.name = reinterpret_cast<decltype(api.name)>(find_symbol(library, #name)); \
  if (!api.name) missing = #name;
  KILN_BLAS_FUNCTIONS(KILN_BLAS_BIND)
#undef KILN_BLAS_BIND
  if (missing) {
    out.reason = cat(library.path, " has no function ", missing, ": not cuBLASLt, or one that is too old");
    return out;
  }
  const std::size_t version = api.cublasLtGetVersion();  // 130100 is 13.1.0; 12.x writes 120803 alike
  out.version = cat(version / 10000, '.', version / 100 % 100, '.', version % 100);
  out.available = true;
  return out;
}

struct Opened {
  BlasReport report;
  BlasApi api;
};

const Opened& opened() {
  static const Opened* const instance = [] {
    auto* made = new Opened;
    made->report = look(toolkit_candidates(toolkit_names("libcublasLt")), made->api);
    return made;
  }();
  return *instance;
}

const BlasApi& blas_api() { return opened().api; }

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(cat("[matmul] ", call, ": ", blas_api().cublasLtGetStatusString(status)));
}
#define KILN_BLAS(function, ...) check(blas_api().function(__VA_ARGS__), #function)

/// One of cuBLASLt's objects.
template <class T, cublasStatus_t (*BlasApi::*destroy)(T)>
struct Destroy {
  using pointer = T;
  void operator()(T object) const { (blas_api().*destroy)(object); }
};
template <class T, cublasStatus_t (*BlasApi::*destroy)(T)>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, destroy>>;
using Description = Owned<cublasLtMatmulDesc_t, &BlasApi::cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, &BlasApi::cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &BlasApi::cublasLtMatmulPreferenceDestroy>;

struct Types {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
  cudaDataType_t result = data;
};

/// Nothing for types that cuBLASLt does not multiply as we promise to.
bool types_of(DType dtype, Types& out) {
  switch (dtype) {
    case DType::Float16: out = {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F}; return true;
    case DType::BFloat16: out = {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F}; return true;
    case DType::Float32: out = {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F}; return true;
    case DType::Float64: out = {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F}; return true;
    case DType::Bool:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::UInt8:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64:
    case DType::Float8E4M3FN:
    case DType::Float8E5M2: return false;
  }
  return false;
}

/// The same of a product whose sums are stored as `result`.
bool types_of(DType dtype, DType result, bool tf32, Types& out) {
  Types stored;
  if (!types_of(dtype, out) || !types_of(result, stored)) return false;
  out.result = stored.data;
  if (tf32) out.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  return result == dtype || (is_half(dtype) && result == DType::Float32);
}

/// Everything that decides the algorithm. All bytes are compared.
struct ChoiceKey {
  std::int64_t m, n, k, batch, lda, ldb, stride_a, stride_b, stride_out;
  std::uint32_t dtype, result, a_column_major, b_column_major;
  std::uint32_t align_a, align_b, align_out;
  std::uint32_t has_bias, align_bias, has_addend, align_addend, tf32;  // no padding
  friend bool operator==(const ChoiceKey&, const ChoiceKey&) = default;
};
static_assert(std::has_unique_object_representations_v<ChoiceKey>);
struct HashChoiceKey {
  std::size_t operator()(const ChoiceKey& key) const { return hash128(&key, sizeof key).lo; }
};

std::uint32_t alignment(const std::byte* data) {
  const auto bits = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data) & 255u);
  return bits ? 1u << std::countr_zero(bits) : 256u;
}

/// The alignment that every outer repetition keeps.
std::uint32_t alignment(const std::byte* data, const BlasProduct& p, std::int64_t BlasProduct::Axis::* stride,
                        std::int64_t element) {
  std::uint32_t out = alignment(data);
  for (int i = 0; i < p.outer_rank; ++i)
    out = std::min(out, alignment(reinterpret_cast<const std::byte*>(p.outer[i].*stride * element)));
  return out;
}

ChoiceKey key_of(const BlasProduct& p) {
  const std::int64_t element = size_of(p.dtype), stored = size_of(p.result);
  return {p.m,
          p.n,
          p.k,
          p.batch,
          p.a.ld,
          p.b.ld,
          p.a.batch_stride,
          p.b.batch_stride,
          p.out_batch_stride,
          static_cast<std::uint32_t>(p.dtype),
          static_cast<std::uint32_t>(p.result),
          p.a.column_major,
          p.b.column_major,
          alignment(p.a.data, p, &BlasProduct::Axis::a_stride, element),
          alignment(p.b.data, p, &BlasProduct::Axis::b_stride, element),
          alignment(p.out, p, &BlasProduct::Axis::out_stride, stored),
          p.bias != nullptr,
          alignment(p.bias),
          p.addend != nullptr,
          alignment(p.addend, p, &BlasProduct::Axis::out_stride, stored),
          p.tf32};
}

/// A product of known shape, ready to be enqueued.
struct Choice {
  ChoiceKey key{};
  Description description;
  MatrixLayout a, b, out;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;
  bool found = false;
};

/// cuBLASLt thinks in columns: our row-major matrix is the transpose of its. It computes outᵀ = bᵀ · aᵀ, so
/// that b comes first, and what is row-major here is not transposed there.
cublasOperation_t operation(bool column_major) { return column_major ? CUBLAS_OP_T : CUBLAS_OP_N; }

MatrixLayout matrix(cudaDataType_t type, std::int64_t rows, std::int64_t cols, bool column_major,
                    std::int64_t ld, std::int64_t batch, std::int64_t stride) {
  if (!column_major) std::swap(rows, cols);
  cublasLtMatrixLayout_t raw = nullptr;
  KILN_BLAS(cublasLtMatrixLayoutCreate, &raw, type, static_cast<std::uint64_t>(rows),
            static_cast<std::uint64_t>(cols), ld);
  MatrixLayout out(raw);
  const auto count = static_cast<std::int32_t>(batch);
  KILN_BLAS(cublasLtMatrixLayoutSetAttribute, raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  KILN_BLAS(cublasLtMatrixLayoutSetAttribute, raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
            sizeof stride);
  return out;
}

Description describe(const Types& types, const ChoiceKey& key, const void* bias) {
  cublasLtMatmulDesc_t raw = nullptr;
  KILN_BLAS(cublasLtMatmulDescCreate, &raw, types.compute, types.scale);
  Description out(raw);
  const cublasOperation_t first = operation(key.b_column_major), second = operation(key.a_column_major);
  KILN_BLAS(cublasLtMatmulDescSetAttribute, raw, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
  KILN_BLAS(cublasLtMatmulDescSetAttribute, raw, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
  if (key.has_bias) {  // of our columns, which are its rows
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    KILN_BLAS(cublasLtMatmulDescSetAttribute, raw, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    KILN_BLAS(cublasLtMatmulDescSetAttribute, raw, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    KILN_BLAS(cublasLtMatmulDescSetAttribute, raw, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &types.result,
              sizeof types.result);
  }
  return out;
}

/// The workspace that an algorithm may have. It begins with zeros that are written before each product, which
/// then waits for them: as long as a tenth of a short product. Where there are tiles for all multiprocessors,
/// an algorithm without does as well.
std::uint64_t most_workspace(const ChoiceKey& key, int multiprocessors) {
  constexpr std::int64_t kTile = 128;
  constexpr double kShort = 4e10;  // operations
  const auto tiles = [](std::int64_t extent) { return (extent + kTile - 1) / kTile; };
  const double work = 2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) *
                      static_cast<double>(key.k) * static_cast<double>(key.batch);
  const bool spread = tiles(key.m) * tiles(key.n) >= (multiprocessors + key.batch - 1) / key.batch;
  return is_half(static_cast<DType>(key.dtype)) && work < kShort && spread ? 0 : kMostWorkspace;
}

Preference prefer(const ChoiceKey& key, std::uint64_t workspace) {
  cublasLtMatmulPreference_t raw = nullptr;
  KILN_BLAS(cublasLtMatmulPreferenceCreate, &raw);
  Preference out(raw);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    KILN_BLAS(cublasLtMatmulPreferenceSetAttribute, raw, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  // Partial sums of half types in float32, and in an order that does not change from run to run.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.has_addend ? key.align_addend : key.align_out);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_out);
  return out;
}

class CudaLibrary final : public library::Library {
 public:
  explicit CudaLibrary(int device) : device_(device) {}

  bool supports(const library::Matmul& call) const override {
    Types types;
    if (!types_of(call.dtype, result_of(call), call.tf32, types) || !opened().report.available) return false;
    return is_trivial(call) || choice(blas_product(call, nullptr))->found;
  }

  std::size_t workspace_bytes(const library::Matmul& call) const override {
    if (is_trivial(call)) return 0;
    const BlasProduct p = blas_product(call, nullptr);
    return p.pack_bytes + choice(p)->workspace;
  }

  void matmul(const library::Matmul& call, std::byte* workspace) const override {
    Stream stream = current_stream(device_);
    if (is_trivial(call)) {
      const std::int64_t bytes = out_elements(call) * size_of(result_of(call));
      return fill(call.out, 0, 1, static_cast<std::uint64_t>(bytes), stream);
    }
    const BlasProduct p = blas_product(call, workspace);
    const std::shared_ptr<const Choice> chosen = choice(p);
    if (!chosen->found) throw InternalError("[matmul] a product that cuBLASLt does not support");
    for (int i = 0; i < p.packings; ++i)
      copy_strided(p.packing[static_cast<std::size_t>(i)], size_of(call.dtype), stream);
    run(p, *chosen, workspace + p.pack_bytes, stream);
  }

 private:
  static std::int64_t out_elements(const library::Matmul& call) {
    std::int64_t n = call.m * call.n;
    for (int i = 0; i < call.batch_rank; ++i) n *= call.batch[i];
    return n;
  }
  /// Nothing to multiply: the result is empty or zeros.
  static bool is_trivial(const library::Matmul& call) { return call.k == 0 || out_elements(call) == 0; }

  void run(const BlasProduct& p, const Choice& chosen, std::byte* workspace, Stream stream) const {
    const float one_f = 1, zero_f = 0;
    const double one_d = 1, zero_d = 0;
    const bool wide = p.dtype == DType::Float64;
    const void* one = wide ? static_cast<const void*>(&one_d) : &one_f;
    const void* zero = wide ? static_cast<const void*>(&zero_d) : &zero_f;
    const void* beta = p.addend ? one : zero;
    const std::int64_t element = size_of(p.dtype), stored = size_of(p.result);
    const Enter in(device_);
    Types types;
    KILN_CHECK_THAT(types_of(p.dtype, p.result, p.tf32, types));
    const Description own = p.bias ? describe(types, chosen.key, p.bias) : Description();
    for (std::int64_t i = 0, count = outer_count(p); i < count; ++i) {
      const OuterOffsets at = outer_offsets(p, i);
      std::byte* out = p.out + at.out * stored;
      const std::byte* added = p.addend ? p.addend + at.out * stored : out;
      KILN_BLAS(cublasLtMatmul, handle(), (own ? own : chosen.description).get(), one,
                p.b.data + at.b * element, chosen.b.get(), p.a.data + at.a * element, chosen.a.get(), beta,
                added, chosen.out.get(), out, chosen.out.get(), &chosen.algorithm, workspace,
                chosen.workspace, handle_of(stream));
    }
  }

  cublasLtHandle_t handle() const {
    std::call_once(handle_once_, [&] {
      const Enter in(device_);
      KILN_BLAS(cublasLtCreate, &handle_);
    });
    return handle_;
  }

  std::shared_ptr<const Choice> choice(const BlasProduct& p) const {
    const ChoiceKey key = key_of(p);
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = choices_.find(key); it != choices_.end()) return it->second;
    }
    auto made = std::make_shared<const Choice>(choose(key));
    const std::lock_guard lock(mutex_);
    if (choices_.size() >= kMostChoices) choices_.clear();
    return choices_.emplace(key, std::move(made)).first->second;
  }

  Choice choose(const ChoiceKey& key) const {
    const Enter in(device_);
    Choice out;
    Types types;
    KILN_CHECK_THAT(types_of(static_cast<DType>(key.dtype), static_cast<DType>(key.result), key.tf32, types));
    constexpr std::int64_t kMost = 0x7fffffff;
    if (key.m > kMost || key.n > kMost || key.k > kMost || key.batch > kMost) return out;
    out.key = key;
    // which is not read
    out.description = describe(types, key, reinterpret_cast<const void*>(std::uintptr_t{256}));
    out.a = matrix(types.data, key.m, key.k, key.a_column_major, key.lda, key.batch, key.stride_a);
    out.b = matrix(types.data, key.k, key.n, key.b_column_major, key.ldb, key.batch, key.stride_b);
    out.out = matrix(types.result, key.m, key.n, false, key.n, key.batch, key.stride_out);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const auto ask = [&](std::uint64_t most) {
      const Preference preference = prefer(key, most);
      const cublasStatus_t status = blas_api().cublasLtMatmulAlgoGetHeuristic(
          handle(), out.description.get(), out.b.get(), out.a.get(), out.out.get(), out.out.get(),
          preference.get(), 1, &result, &found);
      if (status == CUBLAS_STATUS_NOT_SUPPORTED)
        found = 0;
      else
        check(status, "cublasLtMatmulAlgoGetHeuristic");
      return found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    };
    const std::uint64_t most = most_workspace(key, device(device_).sm_count);
    out.found = ask(most) || (most < kMostWorkspace && ask(kMostWorkspace));
    out.algorithm = result.algo;
    out.workspace = out.found ? result.workspaceSize : 0;
    return out;
  }

  const int device_;
  mutable std::once_flag handle_once_;
  mutable cublasLtHandle_t handle_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::unordered_map<ChoiceKey, std::shared_ptr<const Choice>, HashChoiceKey> choices_;
};

}  // namespace

const BlasReport& blas() { return opened().report; }

BlasReport probe_blas(std::span<const std::string> libraries) {
  BlasApi unused;
  return look(libraries, unused);
}

const library::Library& library(int index) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const libraries = new std::unordered_map<int, std::unique_ptr<CudaLibrary>>;
  device(index);
  const std::lock_guard lock(*mutex);
  auto& slot = (*libraries)[index];
  if (!slot) slot = std::make_unique<CudaLibrary>(index);
  return *slot;
}

}  // namespace kiln::cuda
