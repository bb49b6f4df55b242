// What the main loops of attention share: what becomes of scores in registers. A warp holds kFragments
// fragments of 16 rows as mma.sync and wgmma leave them: lane 4 g + q has rows g and g + 8, columns 8 n + 2 q
// and + 1; value e of row g + 8 h and columns n is number 4 n + 2 h + e.
//
// Maxima that are -inf count as 0 in exponentials, so that a tile of nothing adds nothing.
#pragma once

constexpr int kPieces = (Config::kOut + Config::kPiece - 1) / Config::kPiece,
              kPieceTiles = Config::kPiece / 8,
              kWidthTiles = kPieces * kPieceTiles;  // tiles: of 8 columns
constexpr int kOwn = kColumns;                      // columns of a tile that a warp has
constexpr int kPart = 32;                           // columns of a part of a tile
static_assert(kColumns % kPart == 0, "");
constexpr float kLog2 = Config::kBase2 ? 1.0f : 1.44269504f;  // of the base of exponentials
constexpr float kVanishes = 150.0f;                           // exponentials of -kVanishes are 0
// a maximum beyond, as an exponent of 2, has too few digits behind the point
constexpr float kFar = sizeof(Element) == 4 ? 0 : 4096;
// Whether rows' maxima may be off by a rounding, as those that nobody else reads may: a whole tile then is
// compared with the bases alone.
constexpr bool kNear = sizeof(Element) == 2 && !Config::kRowResults;

__device__ __forceinline__ float minus_inf() { return __int_as_float(0xff800000); }

#ifdef KILN_FAKE_DEVICE
__device__ __forceinline__ float exp2_fast(float x) { return exp2f(x); }
#else
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

/// A factor of what hooks give for scores, as exponents of 2: that of exponentials times score_scale.
__device__ __forceinline__ float exponents(const Args& args) {
  if constexpr (Config::kScaled)
    return score_scale(args) * kLog2;
  else
    return kLog2;
}

/// Whether whole tiles need no factor.
__device__ __forceinline__ bool is_plain(const Args& args) {
  return !Config::kScaled || score_inside(args) == 1.0f;
}

typedef float Scores[kFragments][kColumns / 2];

/// Kind of the pairs of 16 rows from i0 on and kPart columns: few of a mixed tile's parts are mixed.
__device__ __forceinline__ int part_kind(const Args& args, int b, int i0, int j0) {
  const int rows = args.shape.rows, columns = args.shape.columns;
  if (i0 >= rows || j0 >= columns) return kMixed;
  return tile_kind(args, b, i0, i0 + 16 < rows ? i0 + 15 : rows - 1, j0,
                   j0 + kPart < columns ? j0 + kPart - 1 : columns - 1);
}

/// A thread's part of a block's rows.
struct AttentionRows {
  const Args& args;
  int b, row0, warp;  // the matrix; the block's first row; the warp among those with rows
  float sum[kFragments][kPieces][4 * kPieceTiles];  // of weights times v
  float max[kFragments][2], sums[kFragments][2][Config::kSums > 0 ? Config::kSums : 1];
  float base[kFragments][2];  // what exponentials are taken less: the maximum, or one before that is near
  float above[kFragments]
             [2];  // with kNear, instead of `max`: how far this lane's greatest t is above the base
  bool near;       // with kNear: all bases of the warp are finite and not far
  float scale[kFragments][2];  // of what was summed before the tile at hand, to the new base

  __device__ __forceinline__ AttentionRows(const Args& args, int warp)
      : args(args), b(0), row0(0), warp(warp) {}

  __device__ __forceinline__ void begin(int matrix, int first_row) {
    b = matrix;
    row0 = first_row;
    near = false;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        max[f][h] = base[f][h] = minus_inf();
        above[f][h] = 0;
#pragma unroll
        for (int k = 0; k < Config::kSums; ++k) sums[f][h][k] = 0;
      }
#pragma unroll
      for (int n = 0; n < kWidthTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) at(f, n, e) = 0;
    }
  }

  __device__ __forceinline__ int row_in(int f, int half) const {
    return (warp * kFragments + f) * 16 + half * 8 + threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ int row_of(int f, int half) const { return row0 + row_in(f, half); }
  __device__ __forceinline__ float& at(int f, int n, int e) {
    return sum[f][n / kPieceTiles][n % kPieceTiles * 4 + e];
  }

  /// Scores of a fragment become t, those of kPart columns from j0 on, which are of this kind. Whole tiles
  /// are only taken as such where score_inside is 1: a branch around products with it, in each tile, costs
  /// more than they.
  template <bool Whole>
  __device__ __forceinline__ void mask_part(Scores& s, int f, int part, int j0, int kind) {
    const auto each = [&](int first, const auto& make) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int n = 0; n < kPart / 8; ++n) {
          float* const here = &s[f][4 * (part * (kPart / 8) + n) + 2 * h];
          const float x[1][2] = {{here[0], here[1]}};
          float t[1][2];
          make(first + row_in(f, h), j0 + 8 * n + int(threadIdx.x % 4) * 2, x, t);
          here[0] = t[0][0];
          here[1] = t[0][1];
        }
    };
    if (kind == kWhole) {
      each(row0,
           [&](int i, int j, const float(&x)[1][2], float(&t)[1][2]) { score_whole(args, b, i, j, x, t); });
      if constexpr (Config::kScaled && !Whole)
#pragma unroll
        for (int e = 0; e < kPart / 2; ++e) s[f][part * (kPart / 2) + e] *= score_inside(args);
    } else if (Config::kLow && kind == kLow) {
#pragma unroll
      for (int e = 0; e < kPart / 2; ++e) s[f][part * (kPart / 2) + e] = tile_greatest(args, b);
    } else {
      // what masks make of rows alone is not worth registers of the loop
      each(int(fresh(uint32(row0))),
           [&](int i, int j, const float(&x)[1][2], float(&t)[1][2]) { score(args, b, i, j, x, t); });
    }
    if (Whole || j0 + kPart <= args.shape.columns) return;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int n = 0; n < kPart / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (j0 + 8 * n + int(threadIdx.x % 4) * 2 + e >= args.shape.columns)
            s[f][4 * (part * (kPart / 8) + n) + 2 * h + e] = minus_inf();
  }

  /// The greatest of each half's rows, of all lanes that have them. Runs of their own do not wait for each
  /// other.
  static __device__ __forceinline__ void find_most(const float (&s)[kColumns / 2], float (&most)[2]) {
    float run[2][2];
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float here = greatest(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]);
        run[h][n % 2] = n < 2 ? here : greatest(run[h][n % 2], here);
      }
#pragma unroll
    for (int h = 0; h < 2; ++h) most[h] = greatest(run[h][0], run[h][1]);
#pragma unroll
    for (int away = 1; away < 4; away *= 2)
#pragma unroll
      for (int h = 0; h < 2; ++h) most[h] = greatest(most[h], __shfl_xor_sync(0xffffffffu, most[h], away));
  }

  /// A new base, if weights would become too large: they are at most 2 to the power of Config::kSlack.
  __device__ __forceinline__ void find_base(int f, int h, float most, float log2) {
    const float before = base[f][h];
    if constexpr (kNear) {
      const float rise = (most - before) * log2;
      if (!(rise <= float(Config::kSlack))) {
        base[f][h] = most;
        above[f][h] = 0;
      } else {
        above[f][h] = greatest(above[f][h], rise);
      }
    } else {
      const float after = greatest(max[f][h], most);
      max[f][h] = after;
      if (!((after - before) * log2 <= float(Config::kSlack))) base[f][h] = after;
    }
  }
  __device__ __forceinline__ float shift_of(int f, int h) const {
    return base[f][h] == minus_inf() ? 0.0f : base[f][h];
  }

  /// Scores become t, and then exponents of 2 of the weights. Bases stay while no weight becomes too large,
  /// so that few tiles rescale what was summed.
  template <bool Whole, class Kinds>
  __device__ __forceinline__ void find_exponents(Scores& s, int j0, const Kinds& kind_of) {
    const float log2 = exponents(args);
    float less[kFragments][2];
    bool far = false, none = false;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
#pragma unroll
      for (int part = 0; part < kColumns / kPart; ++part)
        mask_part<Whole>(s, f, part, j0 + kPart * part, Whole || !Config::kMasks ? kWhole : kind_of(f, part));
      float most[2];
      find_most(s[f], most);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float before = base[f][h];
        find_base(f, h, most[h], log2);
        scale[f][h] = exp2_fast((before - shift_of(f, h)) * log2);
        less[f][h] = shift_of(f, h) * log2;
        far = far || !(fabsf(less[f][h]) <= kFar);
        none = none || base[f][h] == minus_inf();
      }
    }
    near = !__any_sync(0xffffffffu, far || (kNear && none));
    // There the difference has to come first: where all scores of a row are -1e9, its product is 0 that way.
    const bool differences = !near && __any_sync(0xffffffffu, far);
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (differences) {
          less[f][h] = 0;
#pragma unroll
          for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) s[f][4 * n + 2 * h + e] -= shift_of(f, h);
        }
      }
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) s[f][i] = __fmaf_rn(s[f][i], log2, -less[f][i / 2 % 2]);
  }

  static __device__ __forceinline__ int more(int a, int b) { return a > b ? a : b; }

  /// The same of a whole tile where `near`. Numbers that are not negative are ordered as their bits are, and
  /// NaN, whose sign is none after arithmetic, is above all; so one comparison serves three of them.
  __device__ __forceinline__ void find_exponents_near(Scores& s, int j0) {
    const float log2 = exponents(args);
    constexpr int kOne = 0x3f800000;
    const int slack = __float_as_int(float(Config::kSlack));
    bool rises = false;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
#pragma unroll
      for (int part = 0; part < kColumns / kPart; ++part)
        mask_part<true>(s, f, part, j0 + kPart * part, kWhole);
      int most[2][2] = {{__float_as_int(above[f][0]), 0}, {__float_as_int(above[f][1]), 0}};
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float* const here = &s[f][4 * n + 2 * h];
#pragma unroll
          for (int e = 0; e < 2; ++e) here[e] = __fmaf_rn(here[e], log2, -(base[f][h] * log2));
          most[h][n % 2] = more(more(__float_as_int(here[0]), __float_as_int(here[1])), most[h][n % 2]);
        }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int top = more(most[h][0], most[h][1]);
        above[f][h] = __int_as_float(top);
        scale[f][h] = __int_as_float(kOne);
        rises = rises || top > slack;
      }
    }
    if (__any_sync(0xffffffffu, rises)) raise(s, log2, slack);
  }

  /// New bases where exponents are above `slack`.
  __device__ __forceinline__ void raise(Scores& s, float log2, int slack) {
    bool far = false;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int top = __float_as_int(above[f][h]);
        top = more(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = more(top, __shfl_xor_sync(0xffffffffu, top, 2));
        if (top > slack) {
          const float before = base[f][h] * log2;
          base[f][h] += __int_as_float(top) / log2;
          const float by = base[f][h] * log2 - before;
          scale[f][h] = exp2_fast(-by);
          above[f][h] = 0;
#pragma unroll
          for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) s[f][4 * n + 2 * h + e] -= by;
        }
        far = far || !(fabsf(base[f][h] * log2) <= kFar);
      }
    near = !__any_sync(0xffffffffu, far);
  }

  /// Scores become weights, which are added to the running sums; `scale` says what rescale() has to do.
  /// kind_of(f, part): of a fragment's rows and kPart columns of the tile, where that is not whole.
  template <bool Whole, class Kinds>
  __device__ __forceinline__ void weigh(Scores& s, int j0, const Kinds& kind_of) {
    const int column = j0 + threadIdx.x % 4 * 2;
    if (kNear && Whole && near)
      find_exponents_near(s, j0);
    else
      find_exponents<Whole>(s, j0, kind_of);
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = row_of(f, h);
#pragma unroll
        for (int k = 0; k < Config::kSums; ++k) sums[f][h][k] *= scale[f][h];
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          const int j = column + 8 * n;
          float* const here = &s[f][4 * n + 2 * h];
          const float p[1][2] = {{exp2_fast(here[0]), exp2_fast(here[1])}};
          float w[1 + Config::kSums][2];
          weights(args, b, i, j, p, w);
          here[0] = w[0][0];
          here[1] = w[0][1];
#pragma unroll
          for (int k = 0; k < Config::kSums; ++k) sums[f][h][k] += w[1 + k][0] + w[1 + k][1];
        }
      }
  }
  __device__ __forceinline__ void weigh(Scores& s, int j0, int kind) {
    const auto kind_of = [&](int f, int part) {
      return part_kind(args, b, row0 + (warp * kFragments + f) * 16, j0 + kPart * part);
    };
    if (kind == kWhole && is_plain(args))
      weigh<true>(s, j0, kind_of);
    else
      weigh<false>(s, j0, kind_of);
  }

  __device__ __forceinline__ void rescale() {
    bool same = true;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) same = same && scale[f][0] == 1.0f && scale[f][1] == 1.0f;
    if (__all_sync(0xffffffffu, same)) return;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int n = 0; n < kWidthTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) at(f, n, e) *= scale[f][e / 2];
  }

  /// 16 columns of weights as the first operand of a product of halves.
  template <class T>
  __device__ __forceinline__ void operand(const Scores& s, int f, int step, uint32 (&a)[4], T type) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* const pair = &s[f][8 * step + 2 * e];
      a[e] = pair_of(pair[0], pair[1], type);
    }
  }

  /// Whether a low tile adds nothing: what each row's exponentials are taken less is far above what it has.
  __device__ __forceinline__ bool adds_nothing(float greatest_here) const {
    const float log2 = exponents(args);
    bool far = true;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        far = far && ((base[f][h] - greatest_here) * log2 > kVanishes || row_of(f, h) >= args.shape.rows);
    return far || greatest_here == minus_inf();
  }

  /// Sums are relative to the maxima then, which are those of t.
  __device__ __forceinline__ void end_row(int f, int h) {
    if constexpr (kNear) {
      float most = greatest(above[f][h], __shfl_xor_sync(0xffffffffu, above[f][h], 1));
      most = greatest(most, __shfl_xor_sync(0xffffffffu, most, 2));
      max[f][h] = most == 0 ? base[f][h] : base[f][h] + most / exponents(args);
    }
    const float left = base[f][h] == max[f][h] ? 1.0f : exp2_fast((base[f][h] - max[f][h]) * exponents(args));
    if constexpr (Config::kScaled) max[f][h] *= score_scale(args);
#pragma unroll
    for (int k = 0; k < Config::kSums; ++k) {
      sums[f][h][k] += __shfl_xor_sync(0xffffffffu, sums[f][h][k], 1);
      sums[f][h][k] += __shfl_xor_sync(0xffffffffu, sums[f][h][k], 2);
      sums[f][h][k] *= left;
    }
#pragma unroll
    for (int n = 0; n < kWidthTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) at(f, n, 2 * h + e) *= left;
  }

  static constexpr int kWide = Config::kFinish, kTiles = kWide == 8 ? 4 : 1;  // of which a lane gets columns
  static_assert((kWide == 2 || kWide == 8) && kWidthTiles % kTiles == 0, "");

  /// Columns of the result that this lane stores, from those of tiles n and on.
  __device__ __forceinline__ void take_columns(int f, int h, int n, float (&x)[kWide]) {
    float y[4][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int e = 0; e < 2; ++e) y[t][e] = at(f, n + t, 2 * h + e);
    if constexpr (kTiles == 4) gather_columns(y);
#pragma unroll
    for (int e = 0; e < kWide; ++e) x[e] = y[e / 2][e % 2];
  }

  __device__ __forceinline__ void write() {
    const int column = threadIdx.x % 4 * kWide;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = row_of(f, h);
        const bool there = i < args.shape.rows;
        end_row(f, h);
        if constexpr (Config::kRowResults) {
          float x[1 + Config::kSums][2];
          x[0][0] = x[0][1] = max[f][h];
#pragma unroll
          for (int k = 0; k < Config::kSums; ++k) x[1 + k][0] = x[1 + k][1] = sums[f][h][k];
          if (column == 0 && there) finish_row(args, b, i, x);
        }
#pragma unroll
        for (int n = 0; n < kWidthTiles; n += kTiles) {
          const int d = 8 * n + column, left = Config::kOut - d;
          float x[2 + Config::kSums][kWide];
          take_columns(f, h, n, x[0]);
#pragma unroll
          for (int e = 0; e < kWide; ++e) {
            x[1][e] = max[f][h];
#pragma unroll
            for (int k = 0; k < Config::kSums; ++k) x[2 + k][e] = sums[f][h][k];
          }
          if (there && left > 0) finish(args, b, i, d, left < kWide ? left : kWide, x);
        }
      }
  }
};
