// Lines of a matrix where they lie, each times a few vectors: products of which one operand has few rows (or
// columns) and the other one's lines are adjacent in memory. Such a product takes the time of reading the
// lines; packing them into panels would take several times as long.
#pragma once

#include "library/cpu/gemm_pack.h"

#include <cstdint>

namespace kiln::cpu {

inline constexpr int kLines = 4, kLineLanes = 16, kMostVectors = 4;

/// Instruction sets that these sums are written for.
enum class SumLevel { Base, Avx2, Avx512 };
/// The greatest that the host has.
SumLevel best_sum_level();

/// c[i·c_line + j·c_vector] = Σ_p lines[i·line + p] · x[j·x_row + p] for kLines lines and as many vectors as
/// the function is for. Each sum is kLineLanes partial sums, element p in number p % kLineLanes, that are
/// added up as a tree: it does not depend on which lines and vectors are computed together.
template <class T, class C = typename ComputeOf<T>::type>
using LineSums = void (*)(std::int64_t k, const T* lines, std::int64_t line, const C* x, std::int64_t x_row,
                          C* c, std::int64_t c_line, std::int64_t c_vector);
/// The function of 1 to kMostVectors vectors; null: no function is for so many at once. T: a float type.
template <class T>
LineSums<T> line_sums(int vectors, SumLevel level);

}  // namespace kiln::cpu
