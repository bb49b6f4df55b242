#include "device/cpu/measure.h"

#include "device/cpu/target.h"
#include "device/cpu/threads.h"

#include <kiln/error.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kiln::cpu {
namespace {

constexpr std::int64_t kBufferBytes = std::int64_t{256} << 20;
constexpr std::int64_t kPiece = 1 << 20;  // bytes a chunk handles at least
constexpr double kBudget = 0.15;          // seconds of repetitions

/// Touched memory on huge pages where the system has them.
class Pages {
 public:
  explicit Pages(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw DeviceError("[measure] out of memory for the bandwidth measurement");
    madvise(memory, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
    parallel_for(bytes, kPiece, [&](std::int64_t begin, std::int64_t end, int) {
      std::memset(data_ + begin, 0, static_cast<std::size_t>(end - begin));
    });
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

/// Everything below works on whole multiples of 256 bytes, 64-byte aligned.
struct Loops {
  void (*copy)(const std::byte* from, std::byte* to, std::int64_t bytes);
  double (*sum)(const std::byte* from, std::int64_t bytes);
  double (*fma)(std::int64_t steps);  // returns a value so that the work cannot be dropped
  double flops_per_step;
};

#if defined(__x86_64__)
#define KILN_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")))
#define KILN_AVX2 __attribute__((target("avx2,fma")))

/// Lanes of a vector that was stored: intrinsics that reduce one draw warnings from this compiler.
float total(const float* lanes, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += lanes[i];
  return sum;
}

KILN_AVX512 void copy_avx512(const std::byte* from, std::byte* to, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 128) {
    const __m512 a = _mm512_load_ps(from + i), b = _mm512_load_ps(from + i + 64);
    _mm512_stream_ps(reinterpret_cast<float*>(to + i), a);
    _mm512_stream_ps(reinterpret_cast<float*>(to + i + 64), b);
  }
  _mm_sfence();
}

KILN_AVX2 void copy_avx2(const std::byte* from, std::byte* to, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) {
    const __m256 a = _mm256_load_ps(reinterpret_cast<const float*>(from + i));
    const __m256 b = _mm256_load_ps(reinterpret_cast<const float*>(from + i + 32));
    _mm256_stream_ps(reinterpret_cast<float*>(to + i), a);
    _mm256_stream_ps(reinterpret_cast<float*>(to + i + 32), b);
  }
  _mm_sfence();
}

KILN_AVX512 double sum_avx512(const std::byte* from, std::int64_t bytes) {
  __m512 acc[4] = {};
  for (std::int64_t i = 0; i < bytes; i += 256)
    for (int j = 0; j < 4; ++j) acc[j] = _mm512_add_ps(acc[j], _mm512_load_ps(from + i + 64 * j));
  float lanes[16];
  _mm512_storeu_ps(lanes, _mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3])));
  return total(lanes, 16);
}

KILN_AVX2 double sum_avx2(const std::byte* from, std::int64_t bytes) {
  __m256 acc[8] = {};
  for (std::int64_t i = 0; i < bytes; i += 256)
    for (int j = 0; j < 8; ++j)
      acc[j] = _mm256_add_ps(acc[j], _mm256_load_ps(reinterpret_cast<const float*>(from + i + 32 * j)));
  for (int j = 1; j < 8; ++j) acc[0] = _mm256_add_ps(acc[0], acc[j]);
  float lanes[8];
  _mm256_storeu_ps(lanes, acc[0]);
  return total(lanes, 8);
}

KILN_AVX512 double fma_avx512(std::int64_t steps) {
  __m512 acc[12];
  for (int j = 0; j < 12; ++j) acc[j] = _mm512_set1_ps(static_cast<float>(j));
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  for (std::int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) acc[j] = _mm512_fmadd_ps(acc[j], x, y);
  for (int j = 1; j < 12; ++j) acc[0] = _mm512_add_ps(acc[0], acc[j]);
  float lanes[16];
  _mm512_storeu_ps(lanes, acc[0]);
  return total(lanes, 16);
}

KILN_AVX2 double fma_avx2(std::int64_t steps) {
  __m256 acc[12];
  for (int j = 0; j < 12; ++j) acc[j] = _mm256_set1_ps(static_cast<float>(j));
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  for (std::int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) acc[j] = _mm256_fmadd_ps(acc[j], x, y);
  for (int j = 1; j < 12; ++j) acc[0] = _mm256_add_ps(acc[0], acc[j]);
  return _mm256_cvtss_f32(acc[0]);
}
#endif

typedef float Quad __attribute__((vector_size(16)));

void copy_base(const std::byte* from, std::byte* to, std::int64_t bytes) {
#if defined(__x86_64__)
  for (std::int64_t i = 0; i < bytes; i += 16)
    _mm_stream_ps(reinterpret_cast<float*>(to + i), _mm_load_ps(reinterpret_cast<const float*>(from + i)));
  _mm_sfence();
#else
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
#endif
}

double sum_base(const std::byte* from, std::int64_t bytes) {
  Quad acc[8] = {};
  for (std::int64_t i = 0; i < bytes; i += 128)
    for (int j = 0; j < 8; ++j) acc[j] += *reinterpret_cast<const Quad*>(from + i + 16 * j);
  for (int j = 1; j < 8; ++j) acc[0] += acc[j];
  return acc[0][0] + acc[0][1] + acc[0][2] + acc[0][3];
}

double fma_base(std::int64_t steps) {
  Quad acc[12];
  for (int j = 0; j < 12; ++j) acc[j] = Quad{} + static_cast<float>(j);
  const Quad x = Quad{} + 0.999f, y = Quad{} + 0.001f;
  for (std::int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) acc[j] = acc[j] * x + y;
  for (int j = 1; j < 12; ++j) acc[0] += acc[j];
  return acc[0][0];
}

/// The widest loops of the target in force, so that floors and kernels use the same instructions.
Loops choose() {
  constexpr double kFlops = 12 * 2;
#if defined(__x86_64__)
  const CpuTarget target = host_target();
  if (target.avx512) return {copy_avx512, sum_avx512, fma_avx512, kFlops * 16};
  if (target.avx2 && target.fma) return {copy_avx2, sum_avx2, fma_avx2, kFlops * 8};
#endif
  return {copy_base, sum_base, fma_base, kFlops * 4};
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of one call.
template <class F>
double time_of(F&& f) {
  const double begin = seconds();
  f();
  return seconds() - begin;
}

/// Calls f(begin, end) on ranges of whole pieces that cover `bytes`: on this thread alone, or on all.
template <class F>
void ranges(std::int64_t bytes, int threads, F&& f) {
  if (threads == 1) return f(std::int64_t{0}, bytes);
  parallel_for(bytes / kPiece, 1,
               [&](std::int64_t begin, std::int64_t end, int) { f(begin * kPiece, end * kPiece); });
}

/// Keeps the compiler from dropping the work behind a value.
void use(double value) { asm volatile("" : : "m"(value)); }

/// Arrays as long as the work's own, so that caches help both alike, but no longer than fits.
std::int64_t array_bytes(double bytes) {
  return std::clamp(static_cast<std::int64_t>(bytes) / kPiece * kPiece, kPiece, kBufferBytes);
}

class Copy final : public Probe {
 public:
  Copy(double bytes, int threads)
      : threads_(threads), bytes_(array_bytes(bytes / 2)), from_(bytes_), to_(bytes_) {}
  double rate() override {
    return 2.0 * static_cast<double>(bytes_) * 1e-9 / time_of([&] {
             ranges(bytes_, threads_, [&](std::int64_t begin, std::int64_t end) {
               loops_.copy(from_.data() + begin, to_.data() + begin, end - begin);
             });
           });
  }

 private:
  const Loops loops_ = choose();
  const int threads_;
  const std::int64_t bytes_;
  const Pages from_, to_;
};

class Read final : public Probe {
 public:
  Read(double bytes, int threads) : threads_(threads), bytes_(array_bytes(bytes)), from_(bytes_) {}
  double rate() override {
    return static_cast<double>(bytes_) * 1e-9 / time_of([&] {
             ranges(bytes_, threads_, [&](std::int64_t begin, std::int64_t end) {
               use(loops_.sum(from_.data() + begin, end - begin));
             });
           });
  }

 private:
  const Loops loops_ = choose();
  const int threads_;
  const std::int64_t bytes_;
  const Pages from_;
};

class MultiplyAdd final : public Probe {
 public:
  explicit MultiplyAdd(int threads) : lanes_(threads == 1 ? 1 : thread_count()) {}
  double rate() override {
    constexpr std::int64_t kSteps = 1 << 19;  // about 1 ms
    return loops_.flops_per_step * 4.0 * static_cast<double>(kSteps) * lanes_ * 1e-9 / time_of([&] {
             if (lanes_ == 1) {
               use(loops_.fma(4 * kSteps));
             } else {
               parallel_for(4 * lanes_, 1, [&](std::int64_t begin, std::int64_t end, int) {
                 use(loops_.fma((end - begin) * kSteps));
               });
             }
           });
  }

 private:
  const Loops loops_ = choose();
  const int lanes_;
};

/// Over at least three passes and the budget.
double best_rate(Probe&& probe) {
  double best = 0;
  const double start = seconds();
  for (int i = 0; i < 3 || (seconds() - start < kBudget && i < 50); ++i) best = std::max(best, probe.rate());
  return best;
}

}  // namespace

std::unique_ptr<Probe> copy_probe(double bytes) { return std::make_unique<Copy>(bytes, 0); }
std::unique_ptr<Probe> read_probe(double bytes) { return std::make_unique<Read>(bytes, 0); }
std::unique_ptr<Probe> multiply_add_probe() { return std::make_unique<MultiplyAdd>(0); }

double copy_bandwidth(int threads) { return best_rate(Copy(2.0 * kBufferBytes, threads)); }
double read_bandwidth(int threads) { return best_rate(Read(kBufferBytes, threads)); }
double fma_rate(int threads) { return best_rate(MultiplyAdd(threads)); }

const Ceilings& ceilings() {
  static const Ceilings measured = [] {
    Ceilings c;
    c.copy_gbps = copy_bandwidth();
    c.read_gbps = read_bandwidth();
    c.fma_gflops = fma_rate();
    const bool one = thread_count() == 1;
    c.copy_gbps_1 = one ? c.copy_gbps : copy_bandwidth(1);
    c.read_gbps_1 = one ? c.read_gbps : read_bandwidth(1);
    c.fma_gflops_1 = one ? c.fma_gflops : fma_rate(1);
    return c;
  }();
  return measured;
}

}  // namespace kiln::cpu
