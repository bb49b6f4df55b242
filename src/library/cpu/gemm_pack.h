// Packing: the lines of a matrix become a panel, in which the elements of one step lie side by side. The
// lines may lie anywhere: an operand that shows windows of an image, or a transposition of axes that a
// reshape has joined, is packed from the image itself, and never exists as a matrix.
#pragma once

#include "library/cpu/gemm_micro.h"

#include <kiln/dtype.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace kiln::cpu {

inline constexpr std::int64_t kMostColumns = 32;  // of a panel

/// Where lines, or the steps along them, begin: at a stride, or at offsets of a table.
struct Lines {
  std::int64_t stride = 0;
  const std::int64_t* at = nullptr;
  std::int64_t first = 0;
  std::int64_t operator[](std::int64_t i) const { return at ? at[first + i] : (first + i) * stride; }
  Lines from(std::int64_t i) const { return {stride, at, first + i}; }
  /// How many lines from the first on, of n, are equally far apart; `step`: how far, where it is more than
  /// one.
  std::int64_t run(std::int64_t n, std::int64_t& step) const {
    step = n > 1 ? (*this)[1] - (*this)[0] : 0;
    std::int64_t count = std::min<std::int64_t>(n, 2);
    if (!at) return n;
    while (count < n && (*this)[count] - (*this)[count - 1] == step) ++count;
    return count;
  }
  /// The same of adjacent ones.
  std::int64_t adjacent(std::int64_t n) const {
    if (!at) return stride == 1 ? n : std::min<std::int64_t>(n, 1);
    std::int64_t count = 1;
    while (count < n && (*this)[count] == (*this)[0] + count) ++count;
    return count;
  }
};

/// The type an element type is multiplied and summed in.
template <class T>
struct ComputeOf {
  using type = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
};
template <>
struct ComputeOf<float> {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <>
struct ComputeOf<float16> {
  using type = float;
};
template <>
struct ComputeOf<bfloat16> {
  using type = float;
};

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// `runs` times n elements, as C.
template <class T, class C>
void widen_runs(const T* from, std::int64_t step, std::int64_t runs, std::int64_t n, C* to,
                std::int64_t to_step) {
  if constexpr (std::is_same_v<T, float16>)
    widen_halves(&from->bits, step, runs, n, to, to_step);
  else if constexpr (std::is_same_v<T, bfloat16>)
    widen_bfloats(&from->bits, step, runs, n, to, to_step);
  else
    for (; runs > 0; --runs, from += step, to += to_step)
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(from[i]);
}
template <class T, class C>
void widen(const T* from, C* to, std::int64_t n) {
  constexpr std::int64_t kCall = 32;  // elements of a bfloat16 run that pay for a call
  if (std::is_same_v<T, bfloat16> && n <= kCall)
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(from[i]);
  else
    widen_runs(from, 0, 1, n, to, 0);
}

/// n elements `step` apart, side by side.
template <class T, class C>
void widen_spread(const T* from, std::int64_t step, std::int64_t n, C* to) {
  if constexpr (kIsHalf<T>) {  // converted together
    constexpr std::int64_t kTogether = 64;
    T some[kTogether];
    for (std::int64_t i = 0, left; i < n; i += left) {
      left = std::min(kTogether, n - i);
      for (std::int64_t j = 0; j < left; ++j) some[j].bits = from[(i + j) * step].bits;
      widen(some, to + i, left);
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(from[i * step]);
  }
}

template <class T, class C>
void narrow(const C* from, T* to, std::int64_t n) {
  if constexpr (std::is_same_v<T, float16>) {
    narrow_half(from, &to->bits, n);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    narrow_bfloat(from, &to->bits, n);
  } else if constexpr (std::is_same_v<T, bool>) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] != 0;
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  }
}

/// So many adjacent elements, often few.
template <class T, class C>
inline __attribute__((always_inline)) void copy_run(const T* from, C* to, std::int64_t n) {
  if constexpr (std::is_same_v<T, C> && sizeof(C) == 4) {
    typedef C V __attribute__((vector_size(16), aligned(4)));
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4) *reinterpret_cast<V*>(to + i) = *reinterpret_cast<const V*>(from + i);
    for (; i < n; ++i) to[i] = from[i];
  } else {
    widen(from, to, n);
  }
}

/// to[p·width + w] = lines[w][p] for four lines and `n` steps, n a multiple of four: squares of four by four,
/// transposed in registers.
template <class C>
void pack_four_lines(const C* const (&lines)[4], std::int64_t width, std::int64_t n, C* to) {
  typedef C V __attribute__((vector_size(16), aligned(4)));
  for (std::int64_t p = 0; p < n; p += 4) {
    const auto at = [&](int w) { return *reinterpret_cast<const V*>(lines[w] + p); };
    const V a = at(0), b = at(1), c = at(2), d = at(3);
    const V ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const V cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const V rows[] = {
        __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7),
        __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5), __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7)};
    for (std::int64_t i = 0; i < 4; ++i) *reinterpret_cast<V*>(to + (p + i) * width) = rows[i];
  }
}

/// The same of four lines or eight.
template <class C>
void pack_lines_together(const C* const* lines, std::int64_t count, std::int64_t width, std::int64_t n,
                         C* to) {
  static_assert(sizeof(C) == 4);
  constexpr std::int64_t kBegin = 0;
  if (count == 8 && pack_eight_lines(reinterpret_cast<const std::uint32_t* const*>(lines), &kBegin, 1, n,
                                     reinterpret_cast<std::uint32_t*>(to), width))
    return;
  for (std::int64_t w = 0; w < count; w += 4)
    pack_four_lines<C>({lines[w], lines[w + 1], lines[w + 2], lines[w + 3]}, width, n, to + w);
}

/// One panel of lines at single strides: to[p·width + w] = from[w·across + p·along].
template <class T, class C>
void pack_strided(const T* from, std::int64_t across, std::int64_t along, std::int64_t used,
                  std::int64_t width, std::int64_t depth, C* to) {
  if (across == 1 && (!std::is_same_v<T, C> || used >= width))
    return widen_runs(from, along, depth, used, to, width);
  if (across == 1) {  // the last columns of an operand
    for (std::int64_t p = 0; p < depth; ++p) copy_run(from + p * along, to + p * width, used);
    return;
  }
  constexpr std::int64_t kRun = 64;  // of each line at a time: the lines written stay in L1
  alignas(64) C run[kRun];
  for (std::int64_t p0 = 0; p0 < depth; p0 += kRun) {
    const std::int64_t n = std::min(kRun, depth - p0);
    std::int64_t w = 0;
    if constexpr (sizeof(C) == 4)
      if (along == 1 && n % 4 == 0 && used >= 4)
        for (const std::int64_t some = used >= 8 ? 8 : 4; w < used; w += some) {
          const std::int64_t first = std::min(w, used - some);  // the last lines, some of them once more
          const T* const line = from + first * across + p0;
          C* const at = to + p0 * width + first;
          const C* lines[8] = {};
          if constexpr (std::is_same_v<T, C>) {
            for (std::int64_t i = 0; i < some; ++i) lines[i] = line + i * across;
            pack_lines_together(lines, some, width, n, at);
          } else {
            alignas(64) C wide[8][kRun];
            widen_runs(line, across, some, n, wide[0], kRun);
            for (std::int64_t i = 0; i < some; ++i) lines[i] = wide[i];
            pack_lines_together(lines, some, width, n, at);
          }
        }
    for (; w < used; ++w) {
      const T* line = from + w * across + p0 * along;
      if (along == 1)
        widen(line, run, n);
      else
        widen_spread(line, along, n, run);
      for (std::int64_t p = 0; p < n; ++p) to[(p0 + p) * width + w] = run[p];
    }
  }
}

/// The same N elements of each step.
template <int N, class T, class C>
void copy_runs(const T* from, Lines along, std::int64_t width, std::int64_t depth, C* to) {
  for (std::int64_t p = 0; p < depth; ++p) copy_run(from + along[p], to + p * width, N);
}

/// to[i] = from[2·i]: nothing behind the last of them is read.
template <class C>
inline void copy_every_second(const C* from, C* to, std::int64_t n) {
  typedef C V __attribute__((vector_size(16), aligned(4)));
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const V low = *reinterpret_cast<const V*>(from + 2 * i),
            high = *reinterpret_cast<const V*>(from + 2 * i + 3);
    *reinterpret_cast<V*>(to + i) = __builtin_shufflevector(low, high, 0, 2, 5, 7);
  }
  for (; i < n; ++i) to[i] = from[2 * i];
}

/// Elements `step` apart of each step of a panel.
template <class T, class C>
void copy_spread(const T* from, std::int64_t step, std::int64_t n, Lines along, std::int64_t width,
                 std::int64_t depth, C* to) {
  if constexpr (std::is_same_v<T, C> && sizeof(C) == 4)
    if (step == 2) {
      for (std::int64_t p = 0; p < depth; ++p) copy_every_second(from + along[p], to + p * width, n);
      return;
    }
  constexpr std::int64_t kMostStep = 4;  // of elements that are converted with those between them
  if (kIsHalf<T> && step > 0 && step <= kMostStep) {
    alignas(64) C wide[kMostStep * kMostColumns];
    for (std::int64_t p = 0; p < depth; ++p) {
      widen(from + along[p], wide, (n - 1) * step + 1);
      C* const at = to + p * width;
      if constexpr (sizeof(C) == 4)
        if (step == 2) {
          copy_every_second(wide, at, n);
          continue;
        }
      for (std::int64_t i = 0; i < n; ++i) at[i] = wide[i * step];
    }
    return;
  }
  for (std::int64_t p = 0; p < depth; ++p) widen_spread(from + along[p], step, n, to + p * width);
}

/// Lines of which each eight lie side by side, of every step together. False: they do not.
template <class T, class C>
bool pack_pieces(const T* from, Lines across, Lines along, std::int64_t used, std::int64_t width,
                 std::int64_t depth, C* to) {
  constexpr std::int64_t kPiece = 8;
  static_assert(kMostPieces * kPiece == kMostColumns);
  if (!std::is_same_v<T, C> || sizeof(C) != 4 || used % kPiece != 0) return false;
  const std::uint32_t* pieces[kMostPieces];
  for (std::int64_t w = 0; w < used; w += kPiece) {
    if (across.from(w).adjacent(kPiece) < kPiece) return false;
    pieces[w / kPiece] = reinterpret_cast<const std::uint32_t*>(from + across[w]);
  }
  const std::int64_t* const steps = along.at ? along.at + along.first : nullptr;
  for (std::int64_t j = 0; j < used / kPiece && !steps; ++j) pieces[j] += along[0];
  return copy_pieces(pieces, static_cast<int>(used / kPiece), steps, along.stride, depth,
                     reinterpret_cast<std::uint32_t*>(to), width);
}

/// Lines of which many lie side by side, or equally far apart: the rows of an image, for its windows.
template <class T, class C>
bool pack_runs(const T* from, Lines across, Lines along, std::int64_t used, std::int64_t width,
               std::int64_t depth, C* to) {
  struct Run {
    std::int64_t line, length, offset, step;
  };
  constexpr std::int64_t kLeast = 4;  // lines of a run, in the mean
  // where so many steps are adjacent, lines apart are packed along them
  const bool steps_are_apart = depth < kLeast || along[kLeast - 1] != along[0] + kLeast - 1;
  Run runs[kMostColumns / kLeast];
  std::int64_t count = 0;
  for (std::int64_t w = 0, n; w < used; w += n) {
    const std::int64_t step = steps_are_apart && w + 1 < used ? across[w + 1] - across[w] : 1;
    for (n = 1; w + n < used && across[w + n] == across[w] + n * step;) ++n;
    if ((count + 1) * kLeast > std::max(used, kLeast)) return false;
    runs[count++] = {w, n, across[w], step};
  }
  for (std::int64_t r = 0; r < count; ++r) {
    const T* const line = from + runs[r].offset;
    C* const at = to + runs[r].line;
    if (runs[r].step != 1) {
      copy_spread(line, runs[r].step, runs[r].length, along, width, depth, at);
      continue;
    }
    switch (runs[r].length) {  // extents of small images
      case 4: copy_runs<4>(line, along, width, depth, at); break;
      case 8: copy_runs<8>(line, along, width, depth, at); break;
      case 16: copy_runs<16>(line, along, width, depth, at); break;
      case 32: copy_runs<32>(line, along, width, depth, at); break;
      default:
        for (std::int64_t p = 0; p < depth; ++p) copy_run(line + along[p], at + p * width, runs[r].length);
    }
  }
  return true;
}

/// to[p·width + w] = from[across[w] + p] for n adjacent steps of four lines of halves.
template <class T, class C>
void pack_four_halves(const T* from, Lines across, std::int64_t n, std::int64_t width, C* to) {
  constexpr std::int64_t kRun = 64;
  alignas(64) C wide[4][kRun];
  for (std::int64_t p0 = 0; p0 < n; p0 += kRun) {
    const std::int64_t count = std::min(kRun, n - p0), whole = count / 4 * 4;
    for (int i = 0; i < 4; ++i) widen(from + across[i] + p0, wide[i], count);
    pack_four_lines<C>({wide[0], wide[1], wide[2], wide[3]}, width, whole, to + p0 * width);
    for (std::int64_t p = whole; p < count; ++p)
      for (int i = 0; i < 4; ++i) to[(p0 + p) * width + i] = wide[i][p];
  }
}

/// Lines whose steps are adjacent by fours, as those of most images' rows are: eight lines at a time, some of
/// them once more. False: nothing was done.
template <class C>
bool pack_fours(const C* from, Lines across, Lines along, std::int64_t used, std::int64_t width,
                std::int64_t depth, C* to) {
  constexpr std::int64_t kSteps = 4, kMost = 128, kLines = 8;
  std::int64_t starts[kMost];
  if (used < kLines || depth % kSteps != 0 || depth > kMost * kSteps) return false;
  for (std::int64_t p = 0; p < depth; p += kSteps) {
    if (along.from(p).adjacent(kSteps) < kSteps) return false;
    starts[p / kSteps] = along[p];
  }
  for (std::int64_t w = 0; w < used; w += kLines) {
    const std::int64_t first = std::min(w, used - kLines);
    const std::uint32_t* lines[kLines];
    for (std::int64_t i = 0; i < kLines; ++i)
      lines[i] = reinterpret_cast<const std::uint32_t*>(from + across[first + i]);
    if (!pack_eight_lines(lines, starts, depth / kSteps, kSteps, reinterpret_cast<std::uint32_t*>(to + first),
                          width))
      return false;
  }
  return true;
}

/// Any lines: along runs of adjacent steps.
template <class T, class C>
void pack_steps(const T* from, Lines across, Lines along, std::int64_t used, std::int64_t width,
                std::int64_t depth, C* to) {
  constexpr std::int64_t kLeastRun = 8;  // of steps, for lines of halves to be converted one by one
  if constexpr (std::is_same_v<T, C> && sizeof(C) == 4)
    if (pack_fours(from, across, along, used, width, depth, to)) return;
  for (std::int64_t p0 = 0, n; p0 < depth; p0 += n) {
    for (n = 1; p0 + n < depth && along[p0 + n] == along[p0] + n;) ++n;
    const T* const step = from + along[p0];
    std::int64_t w = 0;
    if constexpr (std::is_same_v<T, C> && sizeof(C) == 4) {
      const std::int64_t whole = n / 4 * 4;
      const std::int64_t some = used >= 8 ? 8 : 4;
      for (; whole > 0 && used >= 4 && w < used; w += some) {  // as above
        const std::int64_t first = std::min(w, used - some);
        const C* lines[8] = {};
        for (std::int64_t i = 0; i < some; ++i) lines[i] = step + across[first + i];
        pack_lines_together(lines, some, width, whole, to + p0 * width + first);
        for (std::int64_t p = whole; p < n; ++p)
          for (std::int64_t i = 0; i < some; ++i) to[(p0 + p) * width + first + i] = lines[i][p];
      }
    }
    if constexpr (kIsHalf<T>) {
      if (n >= kLeastRun) {
        for (; w + 4 <= used; w += 4) pack_four_halves(step, across.from(w), n, width, to + p0 * width + w);
        for (; w < used; ++w) pack_strided(step + across[w], 0, 1, 1, width, n, to + p0 * width + w);
        continue;
      }
      T some[kMostColumns];
      for (std::int64_t p = 0; p < n; ++p) {
        for (std::int64_t i = 0; i < used; ++i) some[i].bits = step[across[i] + p].bits;
        widen(some, to + (p0 + p) * width, used);
      }
      continue;
    }
    for (; w < used; ++w) {
      const T* const line = step + across[w];
      for (std::int64_t p = 0; p < n; ++p) to[(p0 + p) * width + w] = static_cast<C>(line[p]);
    }
  }
}

/// One panel: `used` of `width` lines (the rest zero), `depth` steps: to[p·width + w] = from[across[w] +
/// along[p]].
template <class T, class C>
void pack_panel(const T* from, Lines across, Lines along, std::int64_t used, std::int64_t width,
                std::int64_t depth, C* to) {
  if (used < width) std::fill(to, to + width * depth, C{});
  if (!across.at && !along.at)
    return pack_strided(from + across.first * across.stride + along.first * along.stride, across.stride,
                        along.stride, used, width, depth, to);
  if (pack_pieces(from, across, along, used, width, depth, to)) return;
  if (!pack_runs(from, across, along, used, width, depth, to))
    pack_steps(from, across, along, used, width, depth, to);
}

/// Whether most of m rows of elements T are equally far apart, as many as a block of mr has, and their k
/// elements adjacent, in runs long enough to be multiplied where they lie: those of windows are. Not if the
/// first cache cannot hold so many lines as far apart, because they are in one set.
template <class T>
bool rows_in_runs(Lines rows, Lines elements, std::int64_t m, std::int64_t k, std::int64_t mr) {
  constexpr std::int64_t kLeastRows = 5, kLeastSteps = 8, kPage = 4096, kWays = 8;
  std::int64_t runs = 0, steps = 0, step = 0;
  for (std::int64_t i = 0; i < k; ++steps) i += elements.from(i).adjacent(k - i);
  if (k < kLeastSteps * steps) return false;
  for (std::int64_t i = 0; i < m; ++runs) {
    i += rows.from(i).run(m - i, step);
    if (mr > kWays && step * static_cast<std::int64_t>(sizeof(T)) % kPage == 0 && step != 0) return false;
  }
  return m >= kLeastRows * runs;
}

}  // namespace kiln::cpu
