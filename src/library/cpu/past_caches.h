// Results that no cache holds, written a line at a time past the caches: a store that goes through them reads
// the line first.
#pragma once

#include "library/cpu/instruction_sets.h"

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kiln::cpu {

constexpr std::int64_t kPastCaches = 8 << 20;  // bytes of a result
// Bytes of what is written at once: less would keep the buffers that loads beside it wait for.
constexpr std::int64_t kPastTogether = 4 << 10;
constexpr std::int64_t kPastLine = 64;

template <class T>
bool begins_line(const T* to) {
  return reinterpret_cast<std::uintptr_t>(to) % static_cast<std::uintptr_t>(kPastLine) == 0;
}

#if defined(__x86_64__)
KILN_AVX2 inline void line_past_avx2(const void* line, void* to) {
  const auto* const from = static_cast<const __m256i*>(line);
  auto* const at = static_cast<__m256i*>(to);
  _mm256_stream_si256(at, _mm256_load_si256(from));
  _mm256_stream_si256(at + 1, _mm256_load_si256(from + 1));
}
KILN_AVX512 inline void line_past_avx512(const void* line, void* to) {
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_load_si512(line));
}
#endif

/// To be called by a thread that wrote past the caches, before others read it.
inline void end_past_caches() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace kiln::cpu
