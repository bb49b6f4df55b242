// What the main loops of windows share whose elements are copied one by one: of float32 and float64, and of
// halves whose channels lie apart or are too few for copies of four bytes. Windows are read where they lie;
// nothing is stored between. Steps of k go through two stages of shared memory, the next one on its way while
// the present one is multiplied: by single threads (product_fma.cuh) or by tensor cores
// (product_fragments.cuh).
//
// A line is a window, of the rows (Config::kWindows: 1) or the columns (2) of the result; `others` are the
// lines of the other operand. Where channels are adjacent, a stage keeps a line's elements of k together
// (kTogether), as they are copied; else all lines' elements of one k. Lines of halves are always kept
// together. What a copy asks of a k is in a table that the block makes 128 of k at a time; what it asks of a
// line, in registers or shared memory.
//
// Images of a batch that share the other operand are one matrix (Config::kFlat): lines of the first image,
// then of the next. Columns are filled up to a multiple of kWidth then, so that no call of the epilogue has
// columns of two images.
#pragma once

typedef Config::Element Element;
typedef Config::Sum Sum;

constexpr int kBytes = sizeof(Element), kVector = 16 / kBytes;
constexpr bool kHalves = kBytes == 2, kFragments = kBytes != 4, kTogether = Config::kTogether || kHalves;
constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN, kEachM = Config::kEachM,
              kEachN = Config::kEachN;  // of a block; of a thread, or of a warp that has fragments
constexpr int kTeamsM = kTileM / kEachM, kTeamsN = kTileN / kEachN;
constexpr int kThreads = kTeamsM * kTeamsN * (kFragments ? 32 : 1), kBlocksPerSm = Config::kBlocks;
constexpr int kDepth = Config::kDepth, kWidth = Config::kWidth;
constexpr int kAxes = Config::kWindowAxes, kBits = 32 / kAxes;
constexpr bool kOfColumns = Config::kWindows == 2;
constexpr int kLines = kOfColumns ? kTileN : kTileM, kOthers = kOfColumns ? kTileM : kTileN;
// Lanes that read fragments meet on no bank: rows of halves begin at others; of doubles, two lines that are
// read at a time lie half of all banks apart, and every second k an eighth.
constexpr int kPitchTogether = kDepth + (kBytes < 8 ? kVector : kDepth % 16 == 0 ? 8 : 0);
constexpr int kLinePitch = kTogether ? kPitchTogether : kLines + (kFragments ? kVector : 0),
              kOtherPitch = kHalves ? kPitchTogether : kOthers + kVector;  // elements
constexpr int kLineBytes = kLinePitch * (kTogether ? kLines : kDepth) * kBytes,
              kStageBytes = kLineBytes + kOtherPitch * (kHalves ? kOthers : kDepth) * kBytes;
constexpr int kTable = 256, kTableStep = kTable / 2;  // entries of k
constexpr int kTableAt = 2 * kStageBytes, kLinesAt = kTableAt + kTable * 8;
constexpr int kBatch = 8;  // a copy that follows a load from shared memory waits for it: loads come first
static_assert(kThreads % 32 == 0 && kThreads >= kTableStep && kEachN % kWidth == 0, "");

/// Two numbers of a k or of a line: elements that it lies further on, and bits. Those of a k are the
/// positions along each axis that a line must have inside the array.
struct Entry {
  int offset;
  uint32 bits;
};
__device__ __forceinline__ void store_entry(uint32 to, const Entry& e) {
  store_shared(to, uint32(e.offset));
  store_shared(to + 4, e.bits);
}
__device__ __forceinline__ Entry load_entry(uint32 from) {
  const uint2 x = load_shared_8(from);
  return {int(x.x), x.y};
}

/// No line has all bits, so that none has a k behind the last.
__device__ __forceinline__ Entry entry_of_k(const Windows& w, int k, int end) {
  if (k >= end) return {0, ~0u};
  const int taps = taps_of<kAxes>(w), inner = Config::kChannelsOuter ? taps : w.channels, outer = k / inner,
            rest = k - outer * inner;
  int tap = Config::kChannelsOuter ? rest : outer;
  int64 offset = (Config::kChannelsOuter ? outer : rest) * w.channel;
  uint32 bits = 0;
#pragma unroll
  for (int i = 0; i < kAxes; ++i) {
    const int next = tap / w.taps[i], at = tap - next * w.taps[i];
    offset += at * w.gap[i] * w.stride[i];
    bits |= 1u << (i * kBits + at);
    tap = next;
  }
  return {int(offset), bits};
}

/// Lines of an image, as they are counted where images are one matrix.
__device__ __forceinline__ int counted_lines(int lines) {
  return kOfColumns ? (lines + kWidth - 1) / kWidth * kWidth : lines;
}

/// Of the number-th line of batch b, or of all where images are one matrix.
__device__ __forceinline__ Entry entry_of_line(const Windows& w, int b, int number, int lines, int images) {
  if (Config::kFlat) {
    const int each = counted_lines(lines);
    b = number / each;
    number -= b * each;
    if (b >= images) return {0, 0};
  }
  if (number >= lines) return {0, 0};
  const WindowBatch batch(w, b, lines);
  const WindowPlace<kAxes> window(w, batch.first + number);
  int64 offset = window.image * w.image + int64(batch.group) * w.channels * w.channel;
  uint32 bits = 0;
#pragma unroll
  for (int axis = 0; axis < kAxes; ++axis) {
    offset += window.at[axis] * w.stride[axis];
    for (int t = 0; t < w.taps[axis]; ++t) {
      const int x = window.at[axis] + t * w.gap[axis];
      if (x >= 0 && x < w.extent[axis]) bits |= 1u << (axis * kBits + t);
    }
  }
  return {int(offset), bits};
}

/// Copies Count elements that may not be there to shared memory.
template <int Count>
__device__ __forceinline__ void copy_element(uint32 to, const Element* from, bool there) {
  if constexpr (!kHalves) copy_async<Count * kBytes, true>(to, from, there ? Count * kBytes : 0);
}

/// Of halves, which alone are kept in registers.
template <class T>
__device__ __forceinline__ uint16 bits_of(const T& x) {
  if constexpr (sizeof(T) == 2)
    return x.bits;
  else
    return 0;
}

/// Fills stages with elements of windows, those of a line together: units of Config::kUnit elements.
struct LinesTogether {
  static constexpr int kUnit = Config::kUnit, kUnits = kDepth / kUnit, kStep = kThreads / kUnits,
                       kCount = kLines / kStep;
  static_assert(!kTogether || kHalves || kCount * kStep == kLines, "");
  const Element* base;

  __device__ __forceinline__ LinesTogether(const Args& args, const Element* from, int b, int first, int lines)
      : base(from) {
    for (int i = threadIdx.x; i < kLines; i += kThreads)
      store_entry(shared_base() + kLinesAt + i * 8,
                  entry_of_line(args.windows, b, first + i, lines, args.product.batch));
  }
  __device__ __forceinline__ uint32 place(uint32 stage, int i) const {
    return stage + ((threadIdx.x / kUnits + i * kStep) * kLinePitch + threadIdx.x % kUnits * kUnit) * kBytes;
  }
  __device__ __forceinline__ void start(uint32 stage, int k) {
    const int unit = threadIdx.x % kUnits * kUnit;
    const uint32 line = fresh(shared_base() + kLinesAt + threadIdx.x / kUnits * 8);
    const Entry tap = load_entry(shared_base() + kTableAt + (k + unit) % kTable * 8);
#pragma unroll
    for (int first = 0; first < kCount; first += kBatch) {
      Entry of[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch && first + i < kCount; ++i)
        of[i] = load_entry(line + (first + i) * kStep * 8);
#pragma unroll
      for (int i = 0; i < kBatch && first + i < kCount; ++i)
        copy_element<kUnit>(place(stage, first + i), base + (of[i].offset + tap.offset),
                            (of[i].bits & tap.bits) == tap.bits);
    }
  }
  __device__ __forceinline__ void finish(uint32) const {}
};

/// A thread's own lines: all threads have one or more, or some share one.
struct OwnLines {
  static constexpr int kOwn = kLines > kThreads ? kLines / kThreads : 1,
                       kSharing = kLines > kThreads ? 1 : kThreads / kLines;
  const Element* base;
  int at[kOwn];
  uint32 bits[kOwn];

  __device__ __forceinline__ OwnLines(const Args& args, const Element* from, int b, int first, int lines)
      : base(from) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const Entry of = entry_of_line(args.windows, b, first + line(i), lines, args.product.batch);
      at[i] = of.offset;
      bits[i] = of.bits;
    }
  }
  static __device__ __forceinline__ int line(int i) { return threadIdx.x % kLines + i * kThreads; }
  /// Of the threads that share a line.
  static __device__ __forceinline__ int number() { return threadIdx.x / kLines % kSharing; }
  __device__ __forceinline__ const Element* address(int i, const Entry& tap) const {
    return base + (at[i] + tap.offset);
  }
  __device__ __forceinline__ bool there(int i, const Entry& tap) const {
    return (bits[i] & tap.bits) == tap.bits;
  }
};

/// Fills stages with elements of windows, those of a k together.
struct LinesApart : OwnLines {
  static constexpr int kCount = kDepth / kSharing;
  static_assert(kTogether || (kOwn * kThreads == kLines * kSharing && kCount > 0), "");
  using OwnLines::OwnLines;

  __device__ __forceinline__ void start(uint32 stage, int k) {
    const int first = number();
    Entry taps[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      taps[j] = load_entry(shared_base() + kTableAt + (k + first + j * kSharing) % kTable * 8);
#pragma unroll
    for (int j = 0; j < kCount; ++j)
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        copy_element<1>(stage + ((first + j * kSharing) * kLinePitch + line(i)) * kBytes, address(i, taps[j]),
                        there(i, taps[j]));
  }
  __device__ __forceinline__ void finish(uint32) const {}
};

/// Fills stages with halves of windows, those of a line together: runs of eight adjacent k.
struct LinesOfHalves : OwnLines {
  static constexpr int kRun = 8, kRuns = kDepth / (kRun * kSharing);
  static_assert(!kHalves || (kOwn * kThreads == kLines * kSharing && kRuns > 0), "");
  Element kept[kHalves ? kRuns : 1][kOwn][kRun];
  using OwnLines::OwnLines;

  static __device__ __forceinline__ int k_of(int run) { return (number() + run * kSharing) * kRun; }
  __device__ __forceinline__ void start(uint32, int k) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      Entry taps[kRun];
#pragma unroll
      for (int e = 0; e < kRun; ++e)
        taps[e] = load_entry(shared_base() + kTableAt + (k + k_of(run) + e) % kTable * 8);
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int e = 0; e < kRun; ++e) {
          kept[run][i][e] = Element();
          if (there(i, taps[e])) kept[run][i][e] = *address(i, taps[e]);
        }
    }
  }
  __device__ __forceinline__ void finish(uint32 stage) const {
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        uint32 words[kRun / 2];
#pragma unroll
        for (int w = 0; w < kRun / 2; ++w)
          words[w] = bits_of(kept[run][i][2 * w]) | uint32(bits_of(kept[run][i][2 * w + 1])) << 16;
        store_shared(stage + (line(i) * kLinePitch + k_of(run)) * kBytes,
                     make_uint4(words[0], words[1], words[2], words[3]));
      }
  }
};

/// Fills stages with the other operand, whose lines or whose k are adjacent in memory (Config::kByK).
struct Others {
  static constexpr int kAll = kOthers * kDepth, kCount = (kAll + kThreads - 1) / kThreads;
  const Element* from;
  int64 line_stride, k_stride;
  int lines, end;
  Element kept[kHalves ? kCount : 1];

  __device__ __forceinline__ Others(const Element* base, int64 by_line, int64 by_k, int first, int count,
                                    int k)
      : from(base + first * by_line), line_stride(by_line), k_stride(by_k), lines(count - first), end(k) {}
  static __device__ __forceinline__ int line_of(int i) {
    const int at = threadIdx.x + i * kThreads;
    return Config::kByK ? at / kDepth : at % kOthers;
  }
  static __device__ __forceinline__ int k_of(int i) {
    const int at = threadIdx.x + i * kThreads;
    return Config::kByK ? at % kDepth : at / kOthers;
  }
  static __device__ __forceinline__ bool is_mine(int i) {
    return kAll % kThreads == 0 || threadIdx.x + i * kThreads < kAll;
  }
  static __device__ __forceinline__ uint32 place(uint32 stage, int i) {
    const int k = k_of(i), line = line_of(i);
    return stage + kLineBytes + (kHalves ? line * kOtherPitch + k : k * kOtherPitch + line) * kBytes;
  }
  __device__ __forceinline__ void start(uint32 stage, int k) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!is_mine(i)) continue;
      const Element* const at = from + (line_of(i) * line_stride + (k + k_of(i)) * k_stride);
      const bool there = line_of(i) < lines && k + k_of(i) < end;
      if constexpr (kHalves) {
        kept[i] = Element();
        if (there) kept[i] = *at;
      } else {
        copy_element<1>(place(stage, i), at, there);
      }
    }
  }
  __device__ __forceinline__ void finish(uint32 stage) const {
    if constexpr (kHalves) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (is_mine(i)) store_shared(place(stage, i), bits_of(kept[i]));
    }
  }
};

template <bool Halves, bool Together>
struct LinesOf {
  typedef LinesApart type;
};
template <>
struct LinesOf<false, true> {
  typedef LinesTogether type;
};
template <>
struct LinesOf<true, true> {
  typedef LinesOfHalves type;
};

/// Takes all steps of k through the stages: `multiply` adds up what one has.
template <class Windowed, class Multiply>
__device__ __forceinline__ void sum_products(const Args& args, Windowed& lines, Others& others,
                                             const Multiply& multiply) {
  const uint32 shared = shared_base();
  const int end = args.product.k, steps = tiles_of(end, kDepth);
  const auto add_entries = [&](int k) {
    if (threadIdx.x < kTableStep)
      store_entry(shared + kTableAt + (k + threadIdx.x) % kTable * 8,
                  entry_of_k(args.windows, k + int(threadIdx.x), end));
  };
  const auto start = [&](uint32 stage, int step) {
    lines.start(stage, step * kDepth);
    others.start(stage, step * kDepth);
    copies_commit();
  };
  const auto finish = [&](uint32 stage) {
    lines.finish(stage);
    others.finish(stage);
  };
  add_entries(0);
  add_entries(kTableStep);
  __syncthreads();
  start(shared, 0);
  finish(shared);
  for (int step = 0; step < steps; ++step) {
    const uint32 now = shared + step % 2 * kStageBytes, next = shared + (step + 1) % 2 * kStageBytes;
    copies_wait<0>();
    __syncthreads();
    const int k = step * kDepth;
    if (k % kTableStep == 0 && k > 0) add_entries(k + kTableStep);
    if (step + 1 < steps) start(next, step + 1);
    multiply(now);
    if (step + 1 < steps) finish(next);
  }
}

/// A line of the result, and its matrix of the batch.
struct Line {
  int at, batch;
};
__device__ __forceinline__ Line line_of_image(bool flat, int line, int lines, int batch) {
  if (!flat) return {line, batch};
  const int image = line / lines;
  return {line - image * lines, image};
}

/// Hands the sums of `RowCount` rows to the epilogue, kWidth columns at a time, of as many groups: `row` and
/// `column` say where they are in the tile, `sum` has a row's, a group's and a column's number.
template <int RowCount, int Groups, class Row, class Column, class Sums>
__device__ __forceinline__ void finish_tile(const Args& args, const TilePlace& place, const Row& row_of,
                                            const Column& column_of, const Sums& sum) {
  const Product& p = args.product;
  Line columns[Groups];
#pragma unroll
  for (int j = 0; j < Groups; ++j)
    columns[j] =
        line_of_image(Config::kFlat && kOfColumns, place.n + column_of(j), counted_lines(p.n), place.b);
#pragma unroll
  for (int i = 0; i < RowCount; ++i) {
    const Line row = line_of_image(Config::kFlat && !kOfColumns, place.m + row_of(i), p.m, place.b);
    if (row.at >= p.m || row.batch >= p.batch) continue;
#pragma unroll
    for (int j = 0; j < Groups; ++j) {
      const int left = p.n - columns[j].at, b = kOfColumns ? columns[j].batch : row.batch;
      if (left <= 0 || b >= p.batch) continue;
      Sum x[1][kWidth];
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[0][e] = sum(i, j, e);
      epilogue(args, 0, b, row.at, columns[j].at, left < kWidth ? left : kWidth, x);
    }
  }
}

/// A block's tile: `Tile` multiplies stages and has the sums.
template <class Tile>
__device__ __forceinline__ void run_tile(const Args& args) {
  const Product& p = args.product;
  const int lines = kOfColumns ? p.n : p.m, all = Config::kFlat ? p.batch * counted_lines(lines) : lines;
  const int m_tiles = tiles_of(kOfColumns ? p.m : all, kTileM),
            n_tiles = tiles_of(kOfColumns ? all : p.n, kTileN);
  const TilePlace place = place_of_tile<8>(blockIdx.x, m_tiles, n_tiles, kTileM, kTileN);
  const Element *a = a_matrix(args, place.b), *b = b_matrix(args, 0, place.b);
  Others others(kOfColumns ? a : b, kOfColumns ? p.a_m : p.b_n, kOfColumns ? p.a_k : p.b_k,
                kOfColumns ? place.m : place.n, kOfColumns ? p.m : p.n, p.k);
  Tile tile;
  typename LinesOf<kHalves, kTogether>::type windows(args, kOfColumns ? b : a, place.b,
                                                     kOfColumns ? place.n : place.m, lines);
  sum_products(args, windows, others, [&](uint32 stage) { tile.multiply(stage); });
  tile.finish(args, place);
}
