// Nests over pairs: of each row i what is reduced over all columns j of values that are made of r[i, j]
// (nest_tiles.cuh). A block has kRows rows and goes along a part of the columns by tiles; the last block of
// those rows combines what all parts know. A thread has what it knows of its rows in registers. Nothing of a
// pair reaches memory.
//
// Config, beside that of tiles: kReductions of a row, at most 3, kKind0 and so on (below), and kBegin0 and so
// on, what they begin with, by the bits of a float. A logsumexp (kind 4) is of floats.
//
//   Real value0(args, i, j, given) …        given: r; what is reduced over j
//   Real* partials(args)                     two words for each reduction, part and row
//   void finish_row(args, i, at0, at1, at2, given)
//                                            given: the results; at0 …: those that are positions
//
// Rows behind the last one are not stored; columns behind it change no extreme, and the first of equal ones
// is wanted; sums leave them out.
#pragma once

/// A position beside a value, in a word of its own.
__device__ __forceinline__ float word_of(int position, float) { return __int_as_float(position); }
__device__ __forceinline__ double word_of(int position, double) { return position; }
__device__ __forceinline__ Real word_of(int position) { return word_of(position, Real()); }
__device__ __forceinline__ int position_of(float word) { return __float_as_int(word); }
__device__ __forceinline__ int position_of(double word) { return int(word); }

/// Sums of doubles are as exact without what they have lost.
__device__ __forceinline__ void add_compensated(double& sum, double&, double x) { sum += x; }
__device__ __forceinline__ double compensated(double sum, double) { return sum; }

template <class Op>
struct NestExtreme {
  Real at;
  __device__ __forceinline__ void begin(Real start) { at = start; }
  static constexpr int kKept = 1;
  __device__ __forceinline__ void take(Real x, int) { at = Op::of(x, at); }
  __device__ __forceinline__ void settle() {}
  __device__ __forceinline__ Words<2> words() const { return {{at, 0}}; }
  __device__ __forceinline__ void merge(Words<2> other) { at = Op::of(other.at[0], at); }
  __device__ __forceinline__ Real value() const { return at; }
  __device__ __forceinline__ int position() const { return 0; }
};
template <class Op>
struct NestPosition {
  Best<Real, int> at;
  __device__ __forceinline__ void begin(Real start) { at = {start, 0x7fffffff}; }
  static constexpr int kKept = 2;
  __device__ __forceinline__ void take(Real x, int column) { at = Op::then(at, x, column); }
  __device__ __forceinline__ void settle() {}
  __device__ __forceinline__ Words<2> words() const { return {{at.value, word_of(at.position)}}; }
  __device__ __forceinline__ void merge(Words<2> other) {
    at = Op::of(at, Best<Real, int>{other.at[0], position_of(other.at[1])});
  }
  __device__ __forceinline__ Real value() const { return 0; }
  __device__ __forceinline__ int position() const { return int(found(at.position)); }
};
struct NestWeights {
  typedef void Relative;
  static __device__ __forceinline__ Real weight(Real d) { return exp2_flushed(float(d) * 0x1.715476p+0f); }
};
struct NestLogSum {
  static constexpr int kKept = 2;
  Pair<Real, Real> at;
  __device__ __forceinline__ void begin(Real start) { at = {start, 0}; }
  __device__ __forceinline__ void settle() {}
  __device__ __forceinline__ Words<2> words() const { return {{at.first, at.second}}; }
  __device__ __forceinline__ void merge(Words<2> other) {
    const Real most = greatest(at.first, other.at[0]);
    at = {most, at.second * weight_in<NestWeights>(at.first, most) +
                    other.at[1] * weight_in<NestWeights>(other.at[0], most)};
  }
  __device__ __forceinline__ Real value() const { return at.first + logf(float(at.second)); }
  __device__ __forceinline__ int position() const { return 0; }
};
struct NestSum {
  static constexpr int kKept = 1;
  Real at, lost;
  __device__ __forceinline__ void begin(Real start) { at = start, lost = 0; }
  __device__ __forceinline__ void settle() { at = compensated(at, lost); }
  __device__ __forceinline__ Words<2> words() const { return {{at, 0}}; }
  __device__ __forceinline__ void merge(Words<2> other) { at += other.at[0]; }
  __device__ __forceinline__ Real value() const { return at; }
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
__device__ __forceinline__ void take_columns(State& state, const Real (&x)[kEachN], int first, int thread,
                                             int) {
#pragma unroll
  for (int n = 0; n < kEachN; ++n)
    state.take(x[n], first + place_in_tile<kEachN, Config::kColumns, kByWords>(thread, n));
}
__device__ __forceinline__ Real there_or(Real otherwise, Real x, int thread, int n, int left) {
  return place_in_tile<kEachN, Config::kColumns, kByWords>(thread, n) < left ? x : otherwise;
}
__device__ __forceinline__ void take_columns(NestState<4>& state, const Real (&x)[kEachN], int, int thread,
                                             int left) {
  if (kAlong == 1 && left >= Config::kColumns) {  // (what is long would be long twice)
    state.at = with<NestWeights>(state.at, x);
    return;
  }
  Real there[kEachN];
#pragma unroll
  for (int n = 0; n < kEachN; ++n) there[n] = there_or(-real_of(0x7f800000), x[n], thread, n, left);
  state.at = with<NestWeights>(state.at, there);
}
__device__ __forceinline__ void take_columns(NestState<5>& state, const Real (&x)[kEachN], int, int thread,
                                             int left) {
  Real all = 0;
#pragma unroll
  for (int n = 0; n < kEachN; ++n) all += there_or(0, x[n], thread, n, left);
  add_compensated(state.at, state.lost, all);
}

/// The threads along columns have parts of kEachM rows. In the end each of them has all of kOwnRows, from
/// first_row_of on, or kSharing adjacent ones have one: in each step a thread keeps one half of its rows and
/// gives the other away.
constexpr int kOwnRows = kEachM > kAlong ? kEachM / kAlong : 1,
              kSharing = kAlong > kEachM ? kAlong / kEachM : 1;
__device__ __forceinline__ int first_row_of(int thread) { return thread / kSharing * kOwnRows; }
template <class State>
__device__ __forceinline__ void merge_with(State& state, const State& given, int mask) {
  Words<2> other = given.words();
  other.at[0] = exchange(0xffffffffu, other.at[0], mask);
  if (State::kKept > 1) other.at[1] = exchange(0xffffffffu, other.at[1], mask);
  state.merge(other);
}
template <class State>
__device__ __forceinline__ void join_rows(State (&rows)[kEachM], int thread) {
#pragma unroll
  for (int m = 0; m < kEachM; ++m) rows[m].settle();
#pragma unroll
  for (int mask = kAlong / 2; mask > 0; mask /= 2) {
    const int half = kEachM * mask / kAlong;  // 0: a row is all that is left
    const bool upper = (thread & mask) != 0;
    if (half == 0) merge_with(rows[0], State(rows[0]), mask);
#pragma unroll
    for (int m = 0; m < half; ++m) {
      const State given = upper ? rows[m] : rows[half + m];
      if (upper) rows[m] = rows[half + m];
      merge_with(rows[m], given, mask);
    }
  }
}

/// What a thread knows of its rows by reduction R; nothing, where there is no such.
template <int R, bool There = (R < Config::kReductions)>
struct NestReduction {
  NestState<R == 0 ? Config::kKind0 : R == 1 ? Config::kKind1 : Config::kKind2> rows[kEachM];

  __device__ __forceinline__ void begin() {
    constexpr int kBegin = R == 0 ? Config::kBegin0 : R == 1 ? Config::kBegin1 : Config::kBegin2;
#pragma unroll
    for (int m = 0; m < kEachM; ++m) rows[m].begin(real_of(kBegin));
  }
  static __device__ __forceinline__ Real value_at(const Args& args, int i, int j, const Real (&given)[1][1]) {
    if constexpr (R == 0)
      return value0(args, i, j, given);
    else if constexpr (R == 1)
      return value1(args, i, j, given);
    else
      return value2(args, i, j, given);
  }
  /// r of row m, which is i, and of a tile's columns from `column` on.
  __device__ __forceinline__ void take(const Args& args, const Real (&r)[kEachN], int m, int i, int column,
                                       int thread) {
    const int left = args.shape.columns - column;
    Real x[kEachN];
#pragma unroll
    for (int n = 0; n < kEachN; ++n) {
      const Real given[1][1] = {{r[n]}};
      constexpr int kRun = Config::kYByK ? 1 : Config::kYRun;
      const int at = place_in_tile<kEachN, Config::kColumns, kByWords>(thread, n);
      x[n] = value_at(args, i, column + (at < left ? at : left - kRun + at % kRun), given);
    }
    take_columns(rows[m], x, column, thread, left);
  }
  __device__ __forceinline__ void join(int thread) { join_rows(rows, thread); }
  __device__ __forceinline__ Words<2> words(int m) const { return rows[m].words(); }
  __device__ __forceinline__ void merge(int m, Words<2> other) { rows[m].merge(other); }
  /// All that two threads know of their first row.
  __device__ __forceinline__ void merge_shared(int mask) { merge_with(rows[0], rows[0], mask); }
  __device__ __forceinline__ Real value(int m) const { return rows[m].value(); }
  __device__ __forceinline__ int position(int m) const { return rows[m].position(); }
};
template <int R>
struct NestReduction<R, false> {
  __device__ __forceinline__ void begin() {}
  __device__ __forceinline__ void take(const Args&, const Real (&)[kEachN], int, int, int, int) {}
  __device__ __forceinline__ void join(int) {}
  __device__ __forceinline__ Words<2> words(int) const { return {}; }
  __device__ __forceinline__ void merge(int, Words<2>) {}
  __device__ __forceinline__ void merge_shared(int) {}
  __device__ __forceinline__ Real value(int) const { return 0; }
  __device__ __forceinline__ int position(int) const { return 0; }
};

/// All that a thread knows of its rows.
struct NestRows {
  NestReduction<0> first;
  NestReduction<1> second;
  NestReduction<2> third;

  __device__ __forceinline__ void begin() { first.begin(), second.begin(), third.begin(); }
  __device__ __forceinline__ void take(const Args& args, const Real (&r)[kEachM][kEachN], const NestPlace& at,
                                       int column) {
#pragma unroll
    for (int m = 0; m < kEachM; ++m) {
      const int i = min_of(at.row_at(m), args.shape.rows - 1);
      first.take(args, r[m], m, i, column, at.column);
      second.take(args, r[m], m, i, column, at.column);
      third.take(args, r[m], m, i, column, at.column);
    }
  }
  __device__ __forceinline__ void finish(const Args& args, int m, int i) const {
    const Real given[3][1] = {{first.value(m)}, {second.value(m)}, {third.value(m)}};
    finish_row(args, i, first.position(m), second.position(m), third.position(m), given);
  }
  /// Two words of a reduction, of a part of the columns.
  static __device__ __forceinline__ Words<2>& kept(const Args& args, int reduction, int part, int i) {
    const NestShape& shape = args.shape;
    return words_at<2>(partials(args) + 2 * (int64(reduction * shape.parts + part) * shape.rows + i));
  }
  /// Stores the rows' results, or what this block knows of them; the last block of these rows combines that.
  __device__ __forceinline__ void end(const Args& args, const NestPlace& at) {
    store(args, at);
    if (args.shape.parts > 1 && last_of(args.counters + at.row_block, args.shape.parts)) combine(args, at);
  }
  __device__ __forceinline__ void store(const Args& args, const NestPlace& at) {
    first.join(at.column), second.join(at.column), third.join(at.column);
    if (at.column % kSharing != 0) return;
#pragma unroll
    for (int m = 0; m < kOwnRows; ++m) {
      const int i = at.row_at(first_row_of(at.column) + m);
      if (i >= args.shape.rows) continue;
      if (args.shape.parts == 1) {
        finish(args, m, i);
        continue;
      }
      kept(args, 0, at.part, i) = first.words(m);
      if (Config::kReductions > 1) kept(args, 1, at.part, i) = second.words(m);
      if (Config::kReductions > 2) kept(args, 2, at.part, i) = third.words(m);
    }
  }
  /// Stores the results of the block's rows, of which all parts are kept: adjacent threads share a row where
  /// there are more of them than rows, and have several parts' words under way together.
  __device__ __forceinline__ void combine(const Args& args, const NestPlace& at) {
    constexpr int kSharers = kThreads > Config::kRows ? kThreads / Config::kRows : 1, kLoads = 8;
    const NestShape& shape = args.shape;
    const int share = threadIdx.x % kSharers;
    for (int row = threadIdx.x / kSharers; row < Config::kRows; row += kThreads / kSharers) {
      const int i = min_of(at.first_row + row, shape.rows - 1);
      begin();
      for (int first_part = share; first_part < shape.parts; first_part += kSharers * kLoads) {
        Words<2> words[Config::kReductions][kLoads];
#pragma unroll
        for (int n = 0; n < kLoads; ++n)
#pragma unroll
          for (int r = 0; r < Config::kReductions; ++r)
            words[r][n] = kept(args, r, min_of(first_part + n * kSharers, shape.parts - 1), i);
#pragma unroll
        for (int n = 0; n < kLoads; ++n)
          if (first_part + n * kSharers < shape.parts) merge(words, n);
      }
#pragma unroll
      for (int mask = kSharers / 2; mask > 0; mask /= 2)
        first.merge_shared(mask), second.merge_shared(mask), third.merge_shared(mask);
      if (share == 0 && at.first_row + row < shape.rows) finish(args, 0, i);
    }
  }
  template <int N>
  __device__ __forceinline__ void merge(const Words<2> (&words)[Config::kReductions][N], int n) {
    first.merge(0, words[0][n]);
    if constexpr (Config::kReductions > 1) second.merge(0, words[1][n]);
    if constexpr (Config::kReductions > 2) third.merge(0, words[2][n]);
  }
};
