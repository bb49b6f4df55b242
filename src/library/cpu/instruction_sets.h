// Attributes of functions made for processors that have more than the base; who calls one asks
// host_instruction_sets() first.
#pragma once

// `optimize` comes first: after `target`, GCC 13 forgets the target wherever the file is compiled at another
// level than O3.
#if defined(__x86_64__)
#define KILN_AVX2 __attribute__((optimize("O3"), target("avx2")))
#define KILN_AVX512 \
  __attribute__((optimize("O3"), target("avx512f,avx512dq,avx512vl,avx512bw,avx2,prefer-vector-width=512")))
#define KILN_AVX512_VBMI         \
  __attribute__((optimize("O3"), \
                 target("avx512f,avx512dq,avx512vl,avx512bw,avx512vbmi,avx2,prefer-vector-width=512")))
#if __GNUC__ >= 12 && !defined(__clang__)
#define KILN_AVX512_FP16         \
  __attribute__((optimize("O3"), \
                 target("avx512f,avx512dq,avx512vl,avx512bw,avx512fp16,avx2,prefer-vector-width=512")))
#endif
#endif
