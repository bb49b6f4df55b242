// Subnormal numbers of a thread: kept, or taken for zero (Config::flush_subnormals). Many processors handle
// an instruction that reads or makes one by microcode, which takes a hundred times as long.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kiln::cpu {

/// How the calling thread treats subnormal operands and results: the bits of its floating-point mode that say
/// so. The other bits are left alone.
class FlushMode {
 public:
  static FlushMode of_thread() { return FlushMode(read() & kFlush); }
  static FlushMode flushing() { return FlushMode(kFlush); }
  /// For the calling thread.
  void set() const { write((read() & ~kFlush) | bits_); }
  bool operator==(const FlushMode&) const = default;

 private:
  explicit FlushMode(std::uint64_t bits) : bits_(bits) {}

#if defined(__x86_64__)
  static constexpr std::uint64_t kFlush = 0x8040;  // of results, and of operands
  static std::uint64_t read() { return _mm_getcsr(); }
  static void write(std::uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;
  static std::uint64_t read() {
    std::uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(std::uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
#else
  static constexpr std::uint64_t kFlush = 0;
  static std::uint64_t read() { return 0; }
  static void write(std::uint64_t) {}
#endif

  std::uint64_t bits_;
};

/// The calling thread has a mode while one lives.
class FlushScope {
 public:
  explicit FlushScope(FlushMode mode) : before_(FlushMode::of_thread()), changed_(mode != before_) {
    if (changed_) mode.set();
  }
  ~FlushScope() {
    if (changed_) before_.set();
  }
  FlushScope(const FlushScope&) = delete;
  FlushScope& operator=(const FlushScope&) = delete;

 private:
  const FlushMode before_;
  const bool changed_;
};

}  // namespace kiln::cpu
