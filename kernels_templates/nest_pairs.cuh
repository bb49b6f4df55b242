// Reductions of reductions over pairs: of each row i what is reduced over all columns j of values that are
// made of r[i, j], the reduction over k of a function of x[i, k] and y[j, k]. A block has kRows rows and goes
// along a part of the columns by tiles; the last block of those rows combines what all parts know. A thread
// has kEachM x kEachN of a tile's r in registers, and what is known of its rows. The next steps along k, or
// the first ones of the next tile, are loaded while the present ones are combined. Nothing of a pair reaches
// memory.
//
// A unit is the texts that hooks use; then, generated, struct Config, struct Args and the hooks; then this
// text. Config: kRows, kColumns, kDepth: a tile, and steps along k in shared memory at a time; kEachM,
// kEachN, kBlocks on a multiprocessor; kXByK, kYByK: whether k is the axis along which x, y are adjacent;
// kExtreme: r is the greatest (1) or the least (2) value; kCut: r is a sum, made of parts of kPart steps, so
// that sums of many are as exact as those of few; kStart, the bits r begins with; kReductions of a row, at
// most 3, kKind0 and so on (below), and kBegin0 and so on, the bits they begin with; kWidth is 1, the length
// of all other arrays.
//
//   void x_values(args, i, k, made)          made: kXRun values of x, adjacent along k or, without kXByK, i
//   void y_values(args, j, k, made)          the same of y and kYRun
//   float combined(args, k, given)           given: x, y, and r so far; an extreme's next value
//   float value0(args, i, j, given) …        given: r; what is reduced over j
//   float* partials(args)                    two words for each reduction, part and row
//   void finish_row(args, i, at0, at1, at2, given)
//                                            given: the results; at0 …: those that are positions
//
// Rows and columns behind the last one are the last ones again, whole runs of them: such rows are not stored;
// such columns change no extreme, and the first of equal ones is wanted; sums leave them out.
#pragma once

constexpr int kAlong = Config::kColumns / Config::kEachN;  // threads along columns
constexpr int kThreads = Config::kRows / Config::kEachM * kAlong, kBlocksPerSm = Config::kBlocks;
constexpr int kEachM = Config::kEachM, kEachN = Config::kEachN, kDepth = Config::kDepth;
constexpr int kPart = 32;
constexpr int kWords = 4;  // that a thread loads from shared memory at a time
constexpr bool kByWords = kEachN % kWords == 0;
static_assert(kAlong <= 32 && (kAlong & (kAlong - 1)) == 0, "");

template <int N>
struct alignas(4 * N) Words {
  float at[N];
};
template <int N>
__device__ __forceinline__ Words<N>& words_at(float* first) {
  return *reinterpret_cast<Words<N>*>(first);
}
template <int N>
__device__ __forceinline__ const Words<N>& words_at(const float* first) {
  return *reinterpret_cast<const Words<N>*>(first);
}

/// Steps along k of a tile, a row of shared memory for each, a few words longer to spread over the banks.
struct alignas(16) NestStage {
  float x[kDepth][Config::kRows + kWords], y[kDepth][Config::kColumns + kWords];
};

/// The number of element n of a thread's rows or columns: by words, or one from each of equal strips.
template <int Each, int All, bool ByWords>
__device__ __forceinline__ int place_in_tile(int thread, int n) {
  constexpr int kThreadsAlong = All / Each;
  return ByWords ? n / kWords * (kThreadsAlong * kWords) + thread * kWords + n % kWords
                 : n * kThreadsAlong + thread;
}
template <int Each, int All, bool ByWords>
__device__ __forceinline__ void load_of_tile(float (&to)[Each], const float* line, int thread) {
  if constexpr (ByWords) {
#pragma unroll
    for (int n = 0; n < Each; n += kWords) {
      const Words<kWords> words = words_at<kWords>(line + place_in_tile<Each, All, true>(thread, n));
#pragma unroll
      for (int w = 0; w < kWords; ++w) to[n + w] = words.at[w];
    }
  } else {
#pragma unroll
    for (int n = 0; n < Each; ++n) to[n] = line[place_in_tile<Each, All, false>(thread, n)];
  }
}

/// What a thread loads of an operand for the next steps along k: runs of `Run` values that are adjacent along
/// k (ByK), or along the operand's other axis, of which a tile has `All`.
template <int All, int Run, bool ByK>
struct NestRuns {
  static constexpr int kRuns = All * kDepth / Run, kCount = (kRuns + kThreads - 1) / kThreads;
  float values[kCount][1][Run];

  static __device__ __forceinline__ int line(int n) {
    const int at = n * kThreads + int(threadIdx.x);
    return ByK ? at / (kDepth / Run) : at % (All / Run) * Run;
  }
  static __device__ __forceinline__ int step(int n) {
    const int at = n * kThreads + int(threadIdx.x);
    return ByK ? at % (kDepth / Run) * Run : at / (All / Run);
  }
  /// `get(line, k, values)`, from a line and a step on; `lines` and `depth` exist.
  template <class Get>
  __device__ __forceinline__ void load(int first, int lines, int k, int depth, const Get& get) {
#pragma unroll
    for (int n = 0; n < kCount; ++n)
      get(min_of(first + line(n), lines - (ByK ? 1 : Run)), min_of(k + step(n), depth - (ByK ? Run : 1)),
          values[n]);
  }
  template <int Pitch>
  __device__ __forceinline__ void put(float (&to)[kDepth][Pitch]) const {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (kRuns % kThreads != 0 && n * kThreads + int(threadIdx.x) >= kRuns) continue;
      if constexpr (!ByK && Run == kWords) {
        Words<Run> words;
#pragma unroll
        for (int q = 0; q < Run; ++q) words.at[q] = values[n][0][q];
        words_at<Run>(&to[step(n)][line(n)]) = words;
      } else {
#pragma unroll
        for (int q = 0; q < Run; ++q) to[step(n) + (ByK ? q : 0)][line(n) + (ByK ? 0 : q)] = values[n][0][q];
      }
    }
  }
};

// ---- what is known of a row

template <class Op>
struct NestExtreme {
  float at;
  __device__ __forceinline__ void begin(float start) { at = start; }
  __device__ __forceinline__ void take(float x, int) { at = Op::of(x, at); }
  __device__ __forceinline__ void join() { at = reduce_lanes<Op, kAlong>(at, 0xffffffffu); }
  __device__ __forceinline__ Words<2> words() const { return {{at, 0.0f}}; }
  __device__ __forceinline__ void merge(Words<2> other) { at = Op::of(other.at[0], at); }
  __device__ __forceinline__ float value() const { return at; }
  __device__ __forceinline__ int position() const { return 0; }
};
template <class Op>
struct NestPosition {
  Best<float, int> at;
  __device__ __forceinline__ void begin(float start) { at = {start, 0x7fffffff}; }
  __device__ __forceinline__ void take(float x, int column) { at = Op::then(at, x, column); }
  __device__ __forceinline__ void join() { at = reduce_lanes<Op, kAlong>(at, 0xffffffffu); }
  __device__ __forceinline__ Words<2> words() const { return {{at.value, __int_as_float(at.position)}}; }
  __device__ __forceinline__ void merge(Words<2> other) {
    at = Op::of(at, Best<float, int>{other.at[0], __float_as_int(other.at[1])});
  }
  __device__ __forceinline__ float value() const { return 0.0f; }
  __device__ __forceinline__ int position() const { return int(found(at.position)); }
};
struct NestWeights {
  typedef void Relative;
  static __device__ __forceinline__ float weight(float d) { return exp2_flushed(d * 0x1.715476p+0f); }
};
struct NestLogSum {
  Pair<float, float> at;
  __device__ __forceinline__ void begin(float start) { at = {start, 0.0f}; }
  __device__ __forceinline__ void join() { at = reduce_lanes<NestWeights, kAlong>(at, 0xffffffffu); }
  __device__ __forceinline__ Words<2> words() const { return {{at.first, at.second}}; }
  __device__ __forceinline__ void merge(Words<2> other) {
    const float most = greatest(at.first, other.at[0]), base = base_of(most);
    at = {most, at.second * NestWeights::weight(at.first - base) +
                    other.at[1] * NestWeights::weight(other.at[0] - base)};
  }
  __device__ __forceinline__ float value() const { return at.first + logf(at.second); }
  __device__ __forceinline__ int position() const { return 0; }
};
struct NestSum {
  float at, lost;
  __device__ __forceinline__ void begin(float start) { at = start, lost = 0.0f; }
  __device__ __forceinline__ void join() {
    at = reduce_lanes<Sum, kAlong>(compensated(at, lost), 0xffffffffu);
  }
  __device__ __forceinline__ Words<2> words() const { return {{at, 0.0f}}; }
  __device__ __forceinline__ void merge(Words<2> other) { at += other.at[0]; }
  __device__ __forceinline__ float value() const { return at; }
  __device__ __forceinline__ int position() const { return 0; }
};

template <int Kind>
struct NestState;  // mirrored by lower/region_pairs.cpp
template <>
struct NestState<0> : NestExtreme<Max> {};
template <>
struct NestState<1> : NestExtreme<Min> {};
template <>
struct NestState<2> : NestPosition<ArgMax> {};
template <>
struct NestState<3> : NestPosition<ArgMin> {};
template <>
struct NestState<4> : NestLogSum {};
template <>
struct NestState<5> : NestSum {};

/// What a tile's columns of one row add to what is known of it; `left` of the tile exist.
template <class State>
__device__ __forceinline__ void take_columns(State& state, const float (&x)[kEachN], int first, int thread,
                                             int) {
#pragma unroll
  for (int n = 0; n < kEachN; ++n)
    state.take(x[n], first + place_in_tile<kEachN, Config::kColumns, kByWords>(thread, n));
}
__device__ __forceinline__ float there_or(float otherwise, float x, int thread, int n, int left) {
  return place_in_tile<kEachN, Config::kColumns, kByWords>(thread, n) < left ? x : otherwise;
}
__device__ __forceinline__ void take_columns(NestState<4>& state, const float (&x)[kEachN], int, int thread,
                                             int left) {
  float there[kEachN];
#pragma unroll
  for (int n = 0; n < kEachN; ++n) there[n] = there_or(-__int_as_float(0x7f800000), x[n], thread, n, left);
  state.at = with<NestWeights>(state.at, there);
}
__device__ __forceinline__ void take_columns(NestState<5>& state, const float (&x)[kEachN], int, int thread,
                                             int left) {
  float all = 0.0f;
#pragma unroll
  for (int n = 0; n < kEachN; ++n) all += there_or(0.0f, x[n], thread, n, left);
  add_compensated(state.at, state.lost, all);
}

/// What a thread knows of its rows by reduction R; nothing, where there is no such.
template <int R, bool There = (R < Config::kReductions)>
struct NestReduction {
  NestState<R == 0 ? Config::kKind0 : R == 1 ? Config::kKind1 : Config::kKind2> rows[kEachM];

  __device__ __forceinline__ void begin() {
    constexpr int kBegin = R == 0 ? Config::kBegin0 : R == 1 ? Config::kBegin1 : Config::kBegin2;
#pragma unroll
    for (int m = 0; m < kEachM; ++m) rows[m].begin(__int_as_float(kBegin));
  }
  static __device__ __forceinline__ float value_at(const Args& args, int i, int j,
                                                   const float (&given)[1][1]) {
    if constexpr (R == 0)
      return value0(args, i, j, given);
    else if constexpr (R == 1)
      return value1(args, i, j, given);
    else
      return value2(args, i, j, given);
  }
  /// r of row m, which is i, and of a tile's columns from `column` on.
  __device__ __forceinline__ void take(const Args& args, const float (&r)[kEachN], int m, int i, int column,
                                       int thread) {
    const int left = args.shape.columns - column;
    float x[kEachN];
#pragma unroll
    for (int n = 0; n < kEachN; ++n) {
      const float given[1][1] = {{r[n]}};
      constexpr int kRun = Config::kYByK ? 1 : Config::kYRun;
      const int at = place_in_tile<kEachN, Config::kColumns, kByWords>(thread, n);
      x[n] = value_at(args, i, column + (at < left ? at : left - kRun + at % kRun), given);
    }
    take_columns(rows[m], x, column, thread, left);
  }
  __device__ __forceinline__ void join(int m) { rows[m].join(); }
  __device__ __forceinline__ Words<2> words(int m) const { return rows[m].words(); }
  __device__ __forceinline__ void merge(int m, Words<2> other) { rows[m].merge(other); }
  __device__ __forceinline__ float value(int m) const { return rows[m].value(); }
  __device__ __forceinline__ int position(int m) const { return rows[m].position(); }
};
template <int R>
struct NestReduction<R, false> {
  __device__ __forceinline__ void begin() {}
  __device__ __forceinline__ void take(const Args&, const float (&)[kEachN], int, int, int, int) {}
  __device__ __forceinline__ void join(int) {}
  __device__ __forceinline__ Words<2> words(int) const { return {}; }
  __device__ __forceinline__ void merge(int, Words<2>) {}
  __device__ __forceinline__ float value(int) const { return 0.0f; }
  __device__ __forceinline__ int position(int) const { return 0; }
};

/// Where a thread stands in its block's tiles, and the block among rows.
struct NestPlace {
  int row_blocks, row_block, part, first_row, row, column;

  __device__ __forceinline__ explicit NestPlace(const NestShape& shape) {
    row_blocks = (shape.rows + Config::kRows - 1) / Config::kRows;
    part = int(blockIdx.x) / row_blocks;
    row_block = int(blockIdx.x) - part * row_blocks;  // blocks side by side read the same columns
    first_row = row_block * Config::kRows;
    row = threadIdx.x / kAlong;
    column = threadIdx.x % kAlong;
  }
  __device__ __forceinline__ int row_at(int m) const {
    return first_row + place_in_tile<kEachM, Config::kRows, true>(row, m);
  }
};

/// All that a thread knows of its rows.
struct NestRows {
  NestReduction<0> first;
  NestReduction<1> second;
  NestReduction<2> third;

  __device__ __forceinline__ void begin() { first.begin(), second.begin(), third.begin(); }
  __device__ __forceinline__ void take(const Args& args, const float (&r)[kEachM][kEachN],
                                       const NestPlace& at, int column) {
#pragma unroll
    for (int m = 0; m < kEachM; ++m) {
      const int i = min_of(at.row_at(m), args.shape.rows - 1);
      first.take(args, r[m], m, i, column, at.column);
      second.take(args, r[m], m, i, column, at.column);
      third.take(args, r[m], m, i, column, at.column);
    }
  }
  __device__ __forceinline__ void finish(const Args& args, int m, int i) const {
    const float given[3][1] = {{first.value(m)}, {second.value(m)}, {third.value(m)}};
    finish_row(args, i, first.position(m), second.position(m), third.position(m), given);
  }
  /// Two words of a reduction, of a part of the columns.
  static __device__ __forceinline__ Words<2>& kept(const Args& args, int reduction, int part, int i) {
    const NestShape& shape = args.shape;
    return words_at<2>(partials(args) + 2 * (int64(reduction * shape.parts + part) * shape.rows + i));
  }
  /// Stores the rows' results, or what this block knows of them.
  __device__ __forceinline__ void store(const Args& args, const NestPlace& at) {
#pragma unroll
    for (int m = 0; m < kEachM; ++m) {
      first.join(m), second.join(m), third.join(m);
      const int i = at.row_at(m);
      if (at.column != 0 || i >= args.shape.rows) continue;
      if (args.shape.parts == 1) {
        finish(args, m, i);
        continue;
      }
      kept(args, 0, at.part, i) = first.words(m);
      if (Config::kReductions > 1) kept(args, 1, at.part, i) = second.words(m);
      if (Config::kReductions > 2) kept(args, 2, at.part, i) = third.words(m);
    }
  }
  /// Stores the results of the block's rows, of which all parts are kept.
  __device__ __forceinline__ void combine(const Args& args, const NestPlace& at) {
    for (int row = threadIdx.x; row < Config::kRows && at.first_row + row < args.shape.rows;
         row += kThreads) {
      const int i = at.first_row + row;
      begin();
      for (int part = 0; part < args.shape.parts; ++part) {
        first.merge(0, kept(args, 0, part, i));
        if (Config::kReductions > 1) second.merge(0, kept(args, 1, part, i));
        if (Config::kReductions > 2) third.merge(0, kept(args, 2, part, i));
      }
      finish(args, 0, i);
    }
  }
};

/// What a thread loads of both operands.
struct NestOperands {
  NestRuns<Config::kRows, Config::kXRun, Config::kXByK> x;
  NestRuns<Config::kColumns, Config::kYRun, Config::kYByK> y;

  __device__ __forceinline__ void load(const Args& args, int row, int column, int step) {
    const NestShape& shape = args.shape;
    x.load(row, shape.rows, step, shape.depth,
           [&](int i, int k, float(&made)[1][Config::kXRun]) { x_values(args, i, k, made); });
    y.load(column, shape.columns, step, shape.depth,
           [&](int j, int k, float(&made)[1][Config::kYRun]) { y_values(args, j, k, made); });
  }
  __device__ __forceinline__ void put(NestStage& to) const {
    x.put(to.x);
    y.put(to.y);
  }
};

typedef float NestTile[kEachM][kEachN];

/// f(r) of each of a thread's r.
template <class F>
__device__ __forceinline__ void each_of_tile(NestTile& r, const F& f) {
#pragma unroll
  for (int m = 0; m < kEachM; ++m)
#pragma unroll
    for (int n = 0; n < kEachN; ++n) r[m][n] = f(m, n);
}
__device__ __forceinline__ void begin_tile(NestTile& r) {
  each_of_tile(r, [](int, int) { return __int_as_float(Config::kStart); });
}

/// Combines step k of a stage, whose first one is `first`, into a thread's r.
__device__ __forceinline__ void combine_step(const Args& args, const NestStage& stage, int first, int k,
                                             const NestPlace& at, NestTile& r) {
  float x[kEachM], y[kEachN];
  load_of_tile<kEachM, Config::kRows, true>(x, stage.x[k], at.row);
  load_of_tile<kEachN, Config::kColumns, kByWords>(y, stage.y[k], at.column);
  each_of_tile(r, [&](int m, int n) {
    const float given[3][1] = {{x[m]}, {y[n]}, {r[m][n]}};
    const float value = combined(args, first + k, given);
    return Config::kExtreme == 1   ? Max::of(value, r[m][n])
           : Config::kExtreme == 2 ? Min::of(value, r[m][n])
                                   : value;
  });
}
__device__ __forceinline__ void combine_stage(const Args& args, const NestStage& stage, int first,
                                              const NestPlace& at, NestTile& r) {
  const int steps = args.shape.depth - first;
  if (steps >= kDepth) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) combine_step(args, stage, first, k, at, r);
  } else {
    for (int k = 0; k < steps; ++k) combine_step(args, stage, first, k, at, r);
  }
}

__device__ __forceinline__ void run_nest(const Args& args) {
  __shared__ NestStage stages[2];
  const NestShape& shape = args.shape;
  const NestPlace at(shape);
  const int tiles = (shape.columns + Config::kColumns - 1) / Config::kColumns,
            begin = int(int64(tiles) * at.part / shape.parts) * Config::kColumns,
            stop = int(int64(tiles) * (at.part + 1) / shape.parts) * Config::kColumns;
  NestOperands next;
  NestRows rows;
  rows.begin();
  next.load(args, at.first_row, begin, 0);
  next.put(stages[0]);
  __syncthreads();
  int stage = 0;
  for (int column = begin; column < stop; column += Config::kColumns) {
    NestTile r, sum;
    begin_tile(r);
    for (int step = 0; step < shape.depth; step += kDepth) {
      const bool end = step + kDepth >= shape.depth, more = !end || column + Config::kColumns < stop;
      if (more)
        next.load(args, at.first_row, end ? column + Config::kColumns : column, end ? 0 : step + kDepth);
      if (Config::kCut && step % kPart == 0) begin_tile(sum);
      combine_stage(args, stages[stage], step, at, Config::kCut ? sum : r);
      if (Config::kCut && (end || (step + kDepth) % kPart == 0))
        each_of_tile(r, [&](int m, int n) { return r[m][n] + sum[m][n]; });
      stage ^= 1;
      if (more) next.put(stages[stage]);
      __syncthreads();
    }
    rows.take(args, r, at, column);
  }
  rows.store(args, at);
  if (shape.parts > 1 && last_of(args.counters + at.row_block, shape.parts)) rows.combine(args, at);
}
