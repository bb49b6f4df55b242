// A product of windows by multiply-adds of single threads: for dtypes that no tensor core takes, and for
// windows whose channels lie apart or are too few for copies of four bytes. Windows are read where they lie;
// nothing is stored between. Steps of k go through two stages of shared memory, the next one on its way while
// the present one is multiplied; each thread has a small tile of sums, whose operands it reads 16 bytes at a
// time.
//
// A line is a window, of the rows (Config::kWindows: 1) or the columns (2) of the result; `others` are the
// lines of the other operand. Where channels are adjacent, a stage keeps a line's elements of k together
// (kTogether), as they are copied; else all lines' elements of one k. What a copy asks of a k is in a table
// that the block makes 128 of k at a time; what it asks of a line, in registers or shared memory.
//
// Images of a batch that share the other operand are one matrix (Config::kFlat): lines of the first image,
// then of the next. Columns are filled up to a multiple of kWidth then, so that no call of the epilogue has
// columns of two images.
#pragma once

typedef Config::Element Element;
typedef Config::Sum Sum;

constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN, kEachM = Config::kEachM,
              kEachN = Config::kEachN;  // of a block, of a thread
constexpr int kTeamsM = kTileM / kEachM, kTeamsN = kTileN / kEachN;
constexpr int kThreads = kTeamsM * kTeamsN, kBlocksPerSm = Config::kBlocks;
constexpr int kDepth = Config::kDepth, kWidth = Config::kWidth;
constexpr int kBytes = sizeof(Sum), kVector = 16 / kBytes;
constexpr int kAxes = Config::kWindowAxes, kBits = 32 / kAxes;
constexpr bool kOfColumns = Config::kWindows == 2, kTogether = Config::kTogether;
constexpr int kLines = kOfColumns ? kTileN : kTileM, kOthers = kOfColumns ? kTileM : kTileN;
constexpr int kLinePitch = kTogether ? kDepth + kVector : kLines,
              kOtherPitch = kOthers + kVector;  // elements
constexpr int kLineBytes = kLinePitch * (kTogether ? kLines : kDepth) * kBytes,
              kStageBytes = kLineBytes + kOtherPitch * kDepth * kBytes;
constexpr int kTable = 256, kTableStep = kTable / 2;  // entries of k
constexpr int kTableAt = 2 * kStageBytes, kLinesAt = kTableAt + kTable * 8;
constexpr int kBatch = 8;  // a copy that follows a load from shared memory waits for it: loads come first
constexpr bool kCopies = sizeof(Element) == sizeof(Sum);  // else elements are widened on their way
static_assert(kThreads % 32 == 0 && kThreads >= kTableStep && kEachN % kWidth == 0, "");

__device__ __forceinline__ float add_product(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double add_product(double a, double b, double c) { return __fma_rn(a, b, c); }

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

/// Copies Count elements that may not be there to shared memory; those that are widened wait in `kept`.
template <int Count>
__device__ __forceinline__ void fetch(uint32 to, const Element* from, bool there, Element& kept) {
  if constexpr (kCopies) {
    copy_async<Count * kBytes, true>(to, from, there ? Count * kBytes : 0);
  } else {
    kept = Element();
    if (there) kept = *from;
  }
}
template <class T>
__device__ __forceinline__ void put(uint32 to, const T& kept) {
  if constexpr (sizeof(T) < sizeof(Sum)) store_shared(to, __float_as_uint(to_float(kept)));
}

/// Fills stages with elements of windows, those of a line together: units of Config::kUnit elements.
struct LinesTogether {
  static constexpr int kUnit = Config::kUnit, kUnits = kDepth / kUnit, kStep = kThreads / kUnits,
                       kCount = kLines / kStep;
  static_assert(!kTogether || (kCount * kStep == kLines && (kCopies || kUnit == 1)), "");
  const Element* base;
  Element kept[kCopies ? 1 : kCount];

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
        fetch<kUnit>(place(stage, first + i), base + (of[i].offset + tap.offset),
                     (of[i].bits & tap.bits) == tap.bits, kept[kCopies ? 0 : first + i]);
    }
  }
  __device__ __forceinline__ void finish(uint32 stage) const {
    if constexpr (!kCopies) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) put(place(stage, i), kept[i]);
    }
  }
};

/// The same, those of a k together: a thread has lines of its own.
struct LinesApart {
  static constexpr int kOwn = kLines > kThreads ? kLines / kThreads : 1,
                       kSharing = kLines > kThreads ? 1 : kThreads / kLines, kCount = kDepth / kSharing;
  static_assert(kTogether || (kOwn * kThreads == kLines * kSharing && kCount > 0), "");
  const Element* base;
  int at[kOwn];
  uint32 bits[kOwn];
  Element kept[kCopies ? 1 : kOwn * kCount];

  __device__ __forceinline__ LinesApart(const Args& args, const Element* from, int b, int first, int lines)
      : base(from) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const Entry of = entry_of_line(args.windows, b, first + threadIdx.x % kLines + i * kThreads, lines,
                                     args.product.batch);
      at[i] = of.offset;
      bits[i] = of.bits;
    }
  }
  __device__ __forceinline__ uint32 place(uint32 stage, int j, int i) const {
    const int k = threadIdx.x / kLines % kSharing + j * kSharing;
    return stage + (k * kLinePitch + threadIdx.x % kLines + i * kThreads) * kBytes;
  }
  __device__ __forceinline__ void start(uint32 stage, int k) {
    const int first = k + threadIdx.x / kLines % kSharing;
    Entry taps[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      taps[j] = load_entry(shared_base() + kTableAt + (first + j * kSharing) % kTable * 8);
#pragma unroll
    for (int j = 0; j < kCount; ++j)
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        fetch<1>(place(stage, j, i), base + (at[i] + taps[j].offset),
                 (bits[i] & taps[j].bits) == taps[j].bits, kept[kCopies ? 0 : j * kOwn + i]);
  }
  __device__ __forceinline__ void finish(uint32 stage) const {
    if constexpr (!kCopies) {
#pragma unroll
      for (int j = 0; j < kCount; ++j)
#pragma unroll
        for (int i = 0; i < kOwn; ++i) put(place(stage, j, i), kept[j * kOwn + i]);
    }
  }
};

/// Fills stages with the other operand, whose lines or whose k are adjacent in memory (Config::kByK).
struct Others {
  static constexpr int kAll = kOthers * kDepth, kCount = (kAll + kThreads - 1) / kThreads;
  const Element* from;
  int64 line_stride, k_stride;
  int lines, end;
  Element kept[kCopies ? 1 : kCount];

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
    return stage + kLineBytes + (k_of(i) * kOtherPitch + line_of(i)) * kBytes;
  }
  __device__ __forceinline__ void start(uint32 stage, int k) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (is_mine(i))
        fetch<1>(place(stage, i), from + (line_of(i) * line_stride + (k + k_of(i)) * k_stride),
                 line_of(i) < lines && k + k_of(i) < end, kept[kCopies ? 0 : i]);
  }
  __device__ __forceinline__ void finish(uint32 stage) const {
    if constexpr (!kCopies) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (is_mine(i)) put(place(stage, i), kept[i]);
    }
  }
};

union Quad {
  uint4 words;
  Sum elements[kVector];
};

/// A thread's lines of an operand: runs of `Run` adjacent ones, one run for each round of all teams.
template <int Teams, int Run>
struct Owned {
  static __device__ __forceinline__ int line(int team, int i) {
    return i / Run * (Run * Teams) + team * Run + i % Run;
  }
};
constexpr int kRunM = kTogether && !kOfColumns ? 1
                      : kEachM < kVector       ? kEachM
                                               : kVector,
              kRunN = kWidth > kVector ? kWidth : kVector;
typedef Owned<kTeamsM, kRunM> Rows;
typedef Owned<kTeamsN, kRunN> Columns;
static_assert(kEachM % kRunM == 0 && kEachN % kRunN == 0 && kRunN % kVector == 0, "");
static_assert(kRunM == 1 || kRunM % kVector == 0, "");

/// A thread's elements of kVector steps of an operand, x[step][i].
template <bool Together, class Lines, int Each>
__device__ __forceinline__ void load_steps(Sum (&x)[kVector][Each], uint32 from, int pitch, int team, int k) {
  Quad q;
  if constexpr (Together) {
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      q.words = load_shared_16(from + (Lines::line(team, i) * pitch + k) * kBytes);
#pragma unroll
      for (int step = 0; step < kVector; ++step) x[step][i] = q.elements[step];
    }
  } else {
#pragma unroll
    for (int step = 0; step < kVector; ++step)
#pragma unroll
      for (int i = 0; i < Each; i += kVector) {
        q.words = load_shared_16(from + ((k + step) * pitch + Lines::line(team, i)) * kBytes);
#pragma unroll
        for (int e = 0; e < kVector; ++e) x[step][i + e] = q.elements[e];
      }
  }
}

__device__ __forceinline__ void multiply_stage(Sum (&sums)[kEachM][kEachN], uint32 stage, int team_m,
                                               int team_n) {
  constexpr int kPitchM = kOfColumns ? kOtherPitch : kLinePitch,
                kPitchN = kOfColumns ? kLinePitch : kOtherPitch;
  const uint32 of_m = stage + (kOfColumns ? kLineBytes : 0), of_n = stage + (kOfColumns ? 0 : kLineBytes);
#pragma unroll
  for (int k = 0; k < kDepth; k += kVector) {
    Sum a[kVector][kEachM], b[kVector][kEachN];
    load_steps<kTogether && !kOfColumns, Rows>(a, of_m, kPitchM, team_m, k);
    load_steps<kTogether && kOfColumns, Columns>(b, of_n, kPitchN, team_n, k);
#pragma unroll
    for (int step = 0; step < kVector; ++step)
#pragma unroll
      for (int i = 0; i < kEachM; ++i)
#pragma unroll
        for (int j = 0; j < kEachN; ++j) sums[i][j] = add_product(a[step][i], b[step][j], sums[i][j]);
  }
}

template <class Windowed>
__device__ __forceinline__ void sum_products(Sum (&sums)[kEachM][kEachN], const Args& args, Windowed& lines,
                                             Others& others, int team_m, int team_n) {
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
    multiply_stage(sums, now, team_m, team_n);
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

/// Hands a thread's sums to the epilogue, kWidth columns at a time.
__device__ __forceinline__ void finish_tile(const Args& args, const Sum (&sums)[kEachM][kEachN],
                                            const TilePlace& place, int team_m, int team_n) {
  const Product& p = args.product;
  Line column[kEachN / kWidth];
#pragma unroll
  for (int j = 0; j < kEachN / kWidth; ++j)
    column[j] = line_of_image(Config::kFlat && kOfColumns, place.n + Columns::line(team_n, j * kWidth),
                              counted_lines(p.n), place.b);
#pragma unroll
  for (int i = 0; i < kEachM; ++i) {
    const Line row =
        line_of_image(Config::kFlat && !kOfColumns, place.m + Rows::line(team_m, i), p.m, place.b);
    if (row.at >= p.m || row.batch >= p.batch) continue;
#pragma unroll
    for (int j = 0; j < kEachN; j += kWidth) {
      const Line& here = column[j / kWidth];
      const int left = p.n - here.at, b = kOfColumns ? here.batch : row.batch;
      if (left <= 0 || b >= p.batch) continue;
      Sum x[1][kWidth];
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[0][e] = sums[i][j + e];
      epilogue(args, 0, b, row.at, here.at, left < kWidth ? left : kWidth, x);
    }
  }
}

__device__ __forceinline__ void run_product(const Args& args) {
  const Product& p = args.product;
  const int lines = kOfColumns ? p.n : p.m, all = Config::kFlat ? p.batch * counted_lines(lines) : lines;
  const int m_tiles = tiles_of(kOfColumns ? p.m : all, kTileM),
            n_tiles = tiles_of(kOfColumns ? all : p.n, kTileN);
  const TilePlace place = place_of_tile<8>(blockIdx.x, m_tiles, n_tiles, kTileM, kTileN);
  const int team_n = threadIdx.x % kTeamsN, team_m = threadIdx.x / kTeamsN;
  const Element *a = a_matrix(args, place.b), *b = b_matrix(args, 0, place.b);
  Others others(kOfColumns ? a : b, kOfColumns ? p.a_m : p.b_n, kOfColumns ? p.a_k : p.b_k,
                kOfColumns ? place.m : place.n, kOfColumns ? p.m : p.n, p.k);
  Sum sums[kEachM][kEachN] = {};
  if constexpr (kTogether) {
    LinesTogether windows(args, kOfColumns ? b : a, place.b, kOfColumns ? place.n : place.m, lines);
    sum_products(sums, args, windows, others, team_m, team_n);
  } else {
    LinesApart windows(args, kOfColumns ? b : a, place.b, kOfColumns ? place.n : place.m, lines);
    sum_products(sums, args, windows, others, team_m, team_n);
  }
  finish_tile(args, sums, place, team_m, team_n);
}
