// A product with few rows, whose time is that of reading B once: decoding tokens against weights. A block
// makes a few columns. Its warps take turns along k, each with stages of shared memory of its own that copies
// fill several steps ahead, so that no warp waits for another until the end. Each sum is made in a fixed
// order: along k within a warp, then over warps. B's columns are the multiplier's 16 rows and A's rows its 8
// columns, of which there are one or two (kRows).
//
// Where B is made of what memory has (kMade: weights in 8 bits with scales), memory's elements are copied,
// and a hook makes eight adjacent ones at a time of them, on their way to the multiplier. A lane takes such
// runs as they are: its part of k, or of the columns, is another than mma.sync names, for both operands
// alike.
//
//   b_value(args, p, line, first, given, made)   elements `first` to `first` + 7 of a line along B's
//                                                contiguous axis
//   b_factor(args, p, n)                         where kFactored: what the sums of column n are multiplied by
//
// Where memory has two elements in each byte (kShare), a lane takes 32 adjacent ones of a line at a time. The
// hook gets the byte of each, or integers of four bits as floats (kNibbles). Of such integers alone, perhaps
// less a zero point and times a scale that 32 of a line share, halves are made in pairs without it:
//
//   b_zero(args, p, line, first)    where kZeroed, b_scale(args, p, line, first) where kScaled: of the 32
//                                   elements from `first` on
//
// Pre: k is A's contiguous axis; rows of both operands begin at multiples of 16 bytes. kMade: lines of B are
// multiples of 8 elements.
#pragma once

typedef Config::Element Element;
constexpr bool kMade = Config::kMade;  // and, where it is, kWidens: the hook gets bytes as floats; kAsGiven:
                                       // and returns them
template <class T>
struct Pointee;
template <class T>
struct Pointee<const T*> {
  typedef T type;
};
typedef Pointee<decltype(b_matrix(*static_cast<const Args*>(nullptr), 0, 0))>::type
    Stored;                                                    // of B, in memory
constexpr int kStored = sizeof(Stored), kUnit = 16 / kStored;  // bytes of one; how many are 16 bytes
constexpr int kShare = Config::kShare;                         // elements of B that are made of one
// A block's tile, mirrored by product_launch.cpp. Class 0: k is B's contiguous axis. 1: n is; 2: n is, and
// there are too few columns for a block of 64 on each multiprocessor. 3: as 0, made of bytes, and blocks of
// 16 columns are dealt more evenly. 4: as 3, of 32 columns and two elements in a byte.
constexpr bool kNarrow = Config::kTile == 3;
constexpr int kRows = Config::kRows, kTileN = Config::kTile == 1 ? 64 : kNarrow ? 16 : 32;
constexpr int kColumns = kTileN / Config::kProducts;                             // of one product
constexpr int kDepth = Config::kTile == 1 ? 32 : Config::kTile >= 3 ? 128 : 64;  // k of a warp's step
constexpr int kALine = kDepth * 2,
              kBLine = (Config::kBKMajor ? kDepth : kColumns) * kStored / kShare;  // bytes
constexpr int kBLines = Config::kBKMajor ? kColumns : kDepth;
constexpr int kABytes = kRows * kALine, kEachBytes = kBLines * kBLine;
constexpr int kStageBytes = kABytes + Config::kProducts * kEachBytes;
constexpr int kWarps = Config::kWarps, kThreads = 32 * kWarps, kBlocksPerSm = Config::kWarpsPerSm / kWarps;
constexpr int kFit = 196608 / Config::kWarpsPerSm / kStageBytes, kStages = kFit < 4 ? kFit : 4;
static_assert(Config::kBKMajor == (Config::kTile == 0 || Config::kTile >= 3), "");
static_assert((Config::kTile != 2 && !kNarrow) || Config::kProducts == 1, "");
static_assert(Config::kTile < 3 || (kMade && kStored == 1), "");
static_assert(kShare == 1 || (kShare == 2 && Config::kTile >= 3), "");
static_assert(Config::kAKMajor && Config::kAAlign == 16 && Config::kBAlign == 16, "");
static_assert(!kMade || (Config::kTile != 2 && kStored <= 4), "");
static_assert(!kMade || Config::kBKMajor || Config::kProducts == 1, "");
static_assert(Config::kProducts == 1 || Config::kParts == 1, "");
static_assert(kStages >= 2 && (kRows == 8 || kRows == 16), "");
static_assert(kRows * (kTileN + 8) * 4 <= kStages * kStageBytes, "");  // a warp's sums, at the end

/// Where the 16 bytes stand that begin at unit `unit` of a line: permuted, so that ldmatrix meets no bank
/// twice.
template <int Line>
__device__ __forceinline__ uint32 shared_unit(int line, int unit) {
  static_assert(Line == 64 || Line == 128, "");
  return line * Line + ((unit ^ (Line == 64 ? line >> 1 & 3 : line & 7)) << 4);
}

/// The same for lanes 4 g + q that read 8 or 16 bytes of line g, each q others.
template <int Line>
__device__ __forceinline__ uint32 unit_by_lines(int line, int unit) {
  static_assert(Line == 64 || Line == 128 || Line == 256, "");
  const int key = Line == 64    ? (line >> 1 & 1) << 1 | (line >> 2 & 1)
                  : Line == 128 ? (line & 1) << 2 | (line >> 1 & 3)
                                : line & 1;
  return line * Line + ((unit ^ key) << 4);
}

/// The same in blocks of 16 columns: 8 bytes of lines of 128, four units of lines of 256.
template <int Line>
__device__ __forceinline__ uint32 unit_by_narrow_lines(int line, int unit) {
  static_assert(Line == 128 || Line == 256, "");
  return line * Line + ((unit ^ (Line == 128 ? (line & 3) << 1 : (line & 1) << 2)) << 4);
}

/// The same for lanes that read line 4 q of sixteen, each g others.
template <int Line>
__device__ __forceinline__ uint32 unit_by_columns(int line, int unit) {
  static_assert(Line == 64 || Line == 128 || Line == 256, "");
  const int low = line >> 2 & 1, high = line >> 3 & 1;
  if constexpr (Line == 64)
    return (line >> 1) * 128 + ((((line & 1) << 2 | unit) ^ (low << 1 | high << 2)) << 4);
  else
    return line * Line + ((unit ^ (Line == 128 ? low << 1 | high << 2 : low | high << 2)) << 4);
}

/// The same for lanes 4 g + q that read unit 4 q of line g, of 256 bytes.
__device__ __forceinline__ uint32 unit_by_quarters(int line, int unit) {
  return line * 256 + ((unit ^ (unit >> 3 & 1 | (line & 1) << 1)) << 4);
}

__device__ __forceinline__ uint32 a_unit(int line, int unit) {
  if constexpr (kShare == 2)
    return unit_by_quarters(line, unit);
  else if constexpr (kNarrow)
    return unit_by_narrow_lines<kALine>(line, unit);
  else
    return kMade ? unit_by_lines<kALine>(line, unit) : shared_unit<kALine>(line, unit);
}
__device__ __forceinline__ uint32 b_unit(int line, int unit) {
  if constexpr (kShare == 2)
    return line * kBLine + (unit << 4);  // lanes 4 g + q read unit q of line g
  else if constexpr (kNarrow)
    return unit_by_narrow_lines<kBLine>(line, unit);
  else if constexpr (!kMade)
    return shared_unit<kBLine>(line, unit);
  else
    return Config::kBKMajor ? unit_by_lines<kBLine>(line, unit) : unit_by_columns<kBLine>(line, unit);
}

__device__ __forceinline__ int between_0_and(int most, int x) { return x < 0 ? 0 : x < most ? x : most; }

/// One warp's part of an operand, as its lanes copy it: lines of `Line` bytes, each lane the same 16 bytes of
/// every `kApart`-th.
template <class T, int Lines, int Line>
struct Copier {
  static constexpr int kUnits = Line / 16, kApart = 32 / kUnits, kCount = Lines / kApart,
                       kEach = 16 / sizeof(T);
  static_assert(kUnits <= 32 && Lines % kApart == 0, "");
  const T* from;  // of this lane, where the warp's next step begins
  int64 apart;    // elements from a line of this lane to its next
  int line = threadIdx.x % 32 / kUnits, unit = threadIdx.x % 32 % kUnits;

  __device__ __forceinline__ void begin(const T* first, int64 pitch) {
    from = first + line * pitch + kEach * unit;
    apart = kApart * pitch;
  }

  /// `lines`: those that are there. `there`: elements of this lane's that are, on each of them.
  template <class Place>
  __device__ __forceinline__ void fill(uint32 stage, int lines, int there, const Place& place) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = line + i * kApart;
      copy_async<16>(stage + place(at, unit), from + i * apart, at < lines ? int(sizeof(T)) * there : 0);
    }
  }
  /// The same where lines are whole. What stands on others stays: nobody asks for what is made of it.
  template <class Place>
  __device__ __forceinline__ void fill(uint32 stage, int lines, const Place& place) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = line + i * kApart;
      if (at < lines) copy_async_16(stage + place(at, unit), from + i * apart);
    }
  }
};

/// Both operands of one warp.
struct Operands {
  Copier<Element, kRows, kALine> a;
  Copier<Stored, kBLines, kBLine> b[Config::kProducts];
  int64 a_step, b_step;  // elements from one step of this warp to its next
  int rows, columns,
      k;  // what is there: rows and columns from this block's first on; k from the next step on

  __device__ __forceinline__ Operands(const Args& args, const TilePlace& place, int first_k) {
    const Product& product = args.product;
    const Part part = part_of<Config::kParts>(args, place.p);
    const int64 b_pitch = Config::kBKMajor ? part.b_n : part.b_k;
    a.begin(a_matrix(args, place.b) + place.m * product.a_m + first_k, product.a_m);
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p)
      b[p].begin(b_matrix(args, place.p + p, place.b) +
                     (Config::kBKMajor ? place.n * b_pitch + first_k / kShare : place.n + first_k * b_pitch),
                 b_pitch);
    a_step = kWarps * kDepth;
    b_step = Config::kBKMajor ? a_step / kShare : a_step * b_pitch;
    rows = product.m - place.m;
    columns = part.n - place.n;
    k = product.k - first_k;
  }

  /// The next step, if there is one.
  __device__ __forceinline__ void fill(uint32 stage) {
    if (k >= kDepth && columns >= kColumns) {
      a.fill(stage, rows, a_unit);
#pragma unroll
      for (int p = 0; p < Config::kProducts; ++p)
        b[p].fill(stage + kABytes + p * kEachBytes, kBLines, b_unit);
    } else if (k > 0) {
      a.fill(stage, rows, between_0_and(8, k - 8 * a.unit), a_unit);
      const int along = (Config::kBKMajor ? k : columns) / kShare, lines = Config::kBKMajor ? columns : k;
#pragma unroll
      for (int p = 0; p < Config::kProducts; ++p)
        b[p].fill(stage + kABytes + p * kEachBytes, lines, between_0_and(kUnit, along - kUnit * b[p].unit),
                  b_unit);
    }
    a.from += a_step;
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p) b[p].from += b_step;
    k -= kWarps * kDepth;
  }
};

typedef float Sums[Config::kProducts][kColumns / 16][kRows / 8][4];

__device__ __forceinline__ void multiply_stored(Sums& sums, uint32 stage) {
  const int lane = threadIdx.x % 32, row = lane & 7, low = lane >> 3 & 1, high = lane >> 4;
  uint32 a[4];
#pragma unroll
  for (int part = 0; part < kDepth / 16; ++part) {
    if (kRows == 16)
      load_matrices<false>(a, stage + a_unit(row + 8 * high, 2 * part + low));
    else if (part % 2 == 0)  // of this part and the next
      load_matrices<false>(a, stage + a_unit(row, 2 * part + (lane >> 3)));
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p)
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        const uint32 each = stage + kABytes + p * kEachBytes;
        uint32 b[4];
        load_matrices<!Config::kBKMajor>(
            b, each + (Config::kBKMajor ? b_unit(16 * j + row + 8 * low, 2 * part + high)
                                        : b_unit(16 * part + row + 8 * high, 2 * j + low)));
#pragma unroll
        for (int t = 0; t < kRows / 8; ++t) {
          const int at = kRows == 16 ? 2 * t : part % 2 * 2;
          multiply_add(sums[p][j][t], b, a[at], a[at + 1], Element());
        }
      }
  }
}

/// Eight adjacent elements of a line of B, as memory has them; kWidens: bytes, as floats.
union Run {
  Stored at[1][8];
  uint2 two;
  uint4 four[kStored < 2 ? 1 : kStored / 2];
  /// `apart` bytes behind those of a line: a constant, so that the address is made once.
  __device__ __forceinline__ Run(uint32 from, int line, int first, int apart) {
    if constexpr (kStored == 1) {
      two = load_shared_8(from + b_unit(line, first >> 4) + (first & 8) + apart);
    } else {
#pragma unroll
      for (int i = 0; i < kStored / 2; ++i)
        four[i] = load_shared_16(from + b_unit(line, first / kUnit + i) + apart);
    }
  }
};

template <class A, class T = Stored>
__device__ __forceinline__ void make(const A& args, int p, int line, int first, const Run& run,
                                     float (&made)[1][8]) {
  if constexpr (Config::kWidens) {
    float given[1][8];
#pragma unroll
    for (int i = 0; i < 8; ++i) given[0][i] = byte_of(i < 4 ? run.two.x : run.two.y, i % 4, T());
    b_value(args, p, line, first, given, made);
  } else {
    b_value(args, p, line, first, run.at, made);
  }
}

/// The lines are columns: a lane has eight k of each of its columns, four for either of two products.
/// `columns`: those of the part.
template <bool Whole, class A>
__device__ __forceinline__ void multiply_lines(const A& args, Sums& sums, uint32 stage,
                                               const TilePlace& place, int columns, int k) {
  const int lane = threadIdx.x % 32, g = lane >> 2, q = lane & 3;
#pragma unroll
  for (int part = 0; part < kDepth / 32; ++part) {
    uint4 rows[kRows / 8];
#pragma unroll
    for (int t = 0; t < kRows / 8; ++t) rows[t] = load_shared_16(stage + a_unit(8 * t + g, 4 * part + q));
    const int at = 32 * part + 8 * q;
    const bool there = Whole || k + at < args.product.k;
#pragma unroll
    for (int i = 0; i < Config::kProducts * (kColumns / 16); ++i) {
      const int p = i / (kColumns / 16), j = i % (kColumns / 16);
      uint32 first[4], second[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int below = 16 * j + 8 * h, column = place.n + below + g, last = columns - 1;
        const Run run(stage + kABytes, g, at, p * kEachBytes + below * kBLine);
        if constexpr (Config::kAsGiven) {
          halves_of<Stored, Element>(run.two.x, first[h], first[h + 2]);
          halves_of<Stored, Element>(run.two.y, second[h], second[h + 2]);
        } else {
          float made[1][8];
          make(args, place.p + p, column < last ? column : last, there ? k + at : args.product.k - 8, run,
               made);
          first[h] = pair_of(made[0][0], made[0][1], Element());
          first[h + 2] = pair_of(made[0][2], made[0][3], Element());
          second[h] = pair_of(made[0][4], made[0][5], Element());
          second[h + 2] = pair_of(made[0][6], made[0][7], Element());
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        first[e] = there ? first[e] : 0;
        second[e] = there ? second[e] : 0;
      }
#pragma unroll
      for (int t = 0; t < kRows / 8; ++t) {
        multiply_add(sums[p][j][t], first, rows[t].x, rows[t].y, Element());
        multiply_add(sums[p][j][t], second, rows[t].z, rows[t].w, Element());
      }
    }
  }
}

/// The lines go along k: a lane has eight columns of each of its four k. Sums j of lanes 4 g + q are those of
/// columns 8 g + 2 j and + 1.
template <bool Whole, class A>
__device__ __forceinline__ void multiply_columns(const A& args, Sums& sums, uint32 stage,
                                                 const TilePlace& place, int columns, int k) {
  const int lane = threadIdx.x % 32, g = lane >> 2, q = lane & 3;
  const int column = place.n + 8 * g, last = columns - 8;
#pragma unroll
  for (int part = 0; part < kDepth / 16; ++part) {
    uint2 rows[kRows / 8];
#pragma unroll
    for (int t = 0; t < kRows / 8; ++t)
      rows[t] = load_shared_8(stage + a_unit(8 * t + g, 2 * part + (q >> 1)) + ((q & 1) << 3));
    const auto run_of = [&](int r) {  // of line 16 part + 4 q + r
      return Run(stage + kABytes, 4 * q + r % 2, 8 * g, (16 * part + r / 2 * 2) * kBLine);
    };
    const auto use = [&](const auto& pair) {
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        uint32 b[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) b[i] = pair(i / 2 * 2, 2 * j + i % 2);
#pragma unroll
        for (int t = 0; t < kRows / 8; ++t) multiply_add(sums[0][j][t], b, rows[t].x, rows[t].y, Element());
      }
    };
    if constexpr (Config::kAsGiven) {
      uint2 lines[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) lines[r] = run_of(r).two;
      use([&](int r, int e) {
        return halves_of<Stored, Element>(e < 4 ? lines[r].x : lines[r].y,
                                          e < 4 ? lines[r + 1].x : lines[r + 1].y, e % 4);
      });
    } else {
      float made[4][1][8];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int at = k + 16 * part + 4 * q + r;
        const Run run = run_of(r);
        const bool there = Whole || at < args.product.k;
        make(args, place.p, there ? at : args.product.k - 1, column < last ? column : last, run, made[r]);
#pragma unroll
        for (int e = 0; e < 8; ++e) made[r][0][e] = there ? made[r][0][e] : 0.0f;
      }
      use([&](int r, int e) { return pair_of(made[r][0][e], made[r + 1][0][e], Element()); });
    }
  }
}

/// What the elements of a lane's columns have in common within a step.
struct Shared {
  uint32 zero[Config::kProducts * (kColumns / 16)][2], scale[Config::kProducts * (kColumns / 16)][2];
};

/// Loads it: early, so that it is there when the step's operands are.
template <class A>
__device__ __forceinline__ void load_shared_of(const A& args, Shared& shared, const TilePlace& place,
                                               int columns, int k) {
  if constexpr (Config::kZeroed || Config::kScaled) {
    const int lane = threadIdx.x % 32, g = lane >> 2, at = k + 32 * (lane & 3);
    const int first = at < args.product.k ? at : args.product.k - 32;
#pragma unroll
    for (int i = 0; i < Config::kProducts * (kColumns / 16); ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int p = place.p + i / (kColumns / 16),
                  column = place.n + 16 * (i % (kColumns / 16)) + 8 * h + g;
        const int line = column < columns ? column : columns - 1;
        if constexpr (Config::kZeroed) {
          const float zero = -b_zero(args, p, line, first);
          shared.zero[i][h] = pair_of(zero, zero, Element());
        }
        if constexpr (Config::kScaled) {
          const float scale = b_scale(args, p, line, first);
          shared.scale[i][h] = pair_of(scale, scale, Element());
        }
      }
  }
}

/// Eight adjacent elements of a line, two of them in each byte of `word`.
template <class A, class T = Stored>
__device__ __forceinline__ void make_packed(const A& args, int p, int line, int first, uint32 word,
                                            float (&made)[1][8]) {
  if constexpr (Config::kNibbles) {
    float given[1][8];
#pragma unroll
    for (int i = 0; i < 8; ++i) given[0][i] = nibble_of(word, i, T());
    b_value(args, p, line, first, given, made);
  } else if constexpr (Config::kWidens) {
    float given[1][8];
#pragma unroll
    for (int i = 0; i < 8; ++i) given[0][i] = byte_of(word, i / 2, T());
    b_value(args, p, line, first, given, made);
  } else {
    T given[1][8];
#pragma unroll
    for (int i = 0; i < 8; ++i) given[0][i] = T(word >> 8 * (i / 2));
    b_value(args, p, line, first, given, made);
  }
}

/// Elements i and i + 4 of eight halves together, as nibbles have them.
__device__ __forceinline__ uint4 by_fours(const uint4& r) {
  return make_uint4(__byte_perm(r.x, r.z, 0x5410), __byte_perm(r.x, r.z, 0x7632),
                    __byte_perm(r.y, r.w, 0x5410), __byte_perm(r.y, r.w, 0x7632));
}

/// The lines are columns of two elements in a byte: a lane has 32 adjacent k of each of its columns, eight of
/// them at a time.
template <bool Whole, class A>
__device__ __forceinline__ void multiply_packed(const A& args, Sums& sums, uint32 stage,
                                                const TilePlace& place, int columns, int k,
                                                const Shared& shared) {
  constexpr int kEach = Config::kProducts * (kColumns / 16);
  const int lane = threadIdx.x % 32, g = lane >> 2, q = lane & 3;
  uint4 words[kEach][2];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      words[i][h] = load_shared_16(stage + kABytes + i / (kColumns / 16) * kEachBytes +
                                   b_unit(16 * (i % (kColumns / 16)) + 8 * h + g, q));
  const bool there = Whole || k + 32 * q < args.product.k;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    uint4 rows[kRows / 8];
#pragma unroll
    for (int t = 0; t < kRows / 8; ++t) {
      const uint4 r = load_shared_16(stage + a_unit(8 * t + g, 4 * q + part));
      rows[t] = Config::kAsGiven ? by_fours(r) : r;
    }
    const int at = there ? k + 32 * q + 8 * part : args.product.k - 8;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      uint32 b[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4& w = words[i][h];
        const uint32 word = part == 0 ? w.x : part == 1 ? w.y : part == 2 ? w.z : w.w;
        uint32 pairs[4];
        if constexpr (Config::kAsGiven) {
          halves_of_nibbles<Stored, Element>(word, pairs);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if constexpr (Config::kZeroed) pairs[e] = add_pairs(pairs[e], shared.zero[i][h], Element());
            if constexpr (Config::kScaled) pairs[e] = multiply_pairs(pairs[e], shared.scale[i][h], Element());
          }
        } else {
          const int column = place.n + 16 * (i % (kColumns / 16)) + 8 * h + g;
          float made[1][8];
          make_packed(args, place.p + i / (kColumns / 16), column < columns ? column : columns - 1, at, word,
                      made);
#pragma unroll
          for (int e = 0; e < 4; ++e) pairs[e] = pair_of(made[0][2 * e], made[0][2 * e + 1], Element());
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) b[e / 2][h + e % 2 * 2] = there ? pairs[e] : 0;
      }
#pragma unroll
      for (int t = 0; t < kRows / 8; ++t) {
        auto& sum = sums[i / (kColumns / 16)][i % (kColumns / 16)][t];
        multiply_add(sum, b[0], rows[t].x, rows[t].y, Element());
        multiply_add(sum, b[1], rows[t].z, rows[t].w, Element());
      }
    }
  }
}

/// One step, with all of its k or without; a template, so that b_value need not exist where nothing is made.
template <bool Whole, class A>
__device__ __forceinline__ void multiply(const A& args, Sums& sums, uint32 stage, const TilePlace& place,
                                         int columns, int k, const Shared& shared) {
  if constexpr (!kMade)
    multiply_stored(sums, stage);
  else if constexpr (kShare == 2)
    multiply_packed<Whole>(args, sums, stage, place, columns, k, shared);
  else if constexpr (Config::kBKMajor)
    multiply_lines<Whole>(args, sums, stage, place, columns, k);
  else
    multiply_columns<Whole>(args, sums, stage, place, columns, k);
}

/// A template, so that b_factor need not exist.
template <bool Factored, class A>
__device__ __forceinline__ float factor_of(const A& args, int p, int n) {
  if constexpr (Factored)
    return b_factor(args, p, n);
  else
    return 1.0f;
}

/// Where sum e of a lane's j-th four stands among a block's columns.
__device__ __forceinline__ int column_of(int j, int e) {
  const int g = threadIdx.x % 32 / 4;
  return kMade && !Config::kBKMajor ? 8 * g + 2 * j + e / 2 : 16 * j + 8 * (e / 2) + g;
}

/// A warp's sums: over its share of k.
__device__ __forceinline__ void add_products(const Args& args, Sums& sums, const TilePlace& place,
                                             int columns, uint32 shared) {
  const Product& product = args.product;
  const int warp = threadIdx.x / 32;
  constexpr int kStep = kWarps * kDepth;
  Operands operands(args, place, warp * kDepth);
  const uint32 mine = shared + warp * kStages * kStageBytes;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    operands.fill(mine + s * kStageBytes);
    copies_commit();
  }
  int read = 0, k = warp * kDepth;
  const auto wait = [&] {
    copies_wait<kStages - 2>();
    __syncwarp();
  };
  Shared common;
  for (; k + kDepth <= product.k; k += kStep) {
    load_shared_of(args, common, place, columns, k);
    wait();
    operands.fill(mine +
                  (read == 0 ? kStages - 1 : read - 1) * kStageBytes);  // what the step before has read
    copies_commit();
    multiply<true>(args, sums, mine + read * kStageBytes, place, columns, k, common);
    read = read + 1 == kStages ? 0 : read + 1;
  }
  if (k < product.k) {
    load_shared_of(args, common, place, columns, k);
    wait();
    multiply<false>(args, sums, mine + read * kStageBytes, place, columns, k, common);
  }
  copies_wait<0>();
}

__device__ __forceinline__ void run_product(const Args& args) {
  const Product& product = args.product;
  const int m_tiles = tiles_of(product.m, kRows), n_tiles = tiles_of_parts<Config::kParts>(args, kColumns);
  TilePlace place = place_of_tile<1>(blockIdx.x, m_tiles, n_tiles, kRows, kColumns);
  enter_part<Config::kParts>(args, place, kColumns);
  const int columns = part_of<Config::kParts>(args, place.p).n;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32 shared = shared_base();
  Sums sums = {};
  add_products(args, sums, place, columns, shared);
  __syncthreads();

  constexpr int kPitch = kTileN + 8;  // floats of a row of a warp's sums
#pragma unroll
  for (int p = 0; p < Config::kProducts; ++p)
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j)
#pragma unroll
      for (int t = 0; t < kRows / 8; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = 8 * t + 2 * (lane % 4) + e % 2;
          store_shared(shared + 4 * ((warp * kRows + row) * kPitch + p * kColumns + column_of(j, e)),
                       __float_as_uint(sums[p][j][t][e]));
        }
  __syncthreads();
  constexpr int kWidth = Config::kWidth, kAcross = kColumns / kWidth;
  for (int i = threadIdx.x; i < kRows * kAcross; i += kThreads) {
    const int m = i / kAcross, n = i % kAcross * kWidth, left = columns - place.n - n;
    if (m >= product.m - place.m || left <= 0) continue;
    float total[Config::kProducts][kWidth];
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p)
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w)
          sum += __uint_as_float(load_shared(shared + 4 * ((w * kRows + m) * kPitch + p * kColumns + n + e)));
        const int column = place.n + n + (e < left ? e : 0);
        if constexpr (Config::kAsGiven && kShare == 1) sum *= 1 / kHalfOfByte<Element>;
        total[p][e] = Config::kFactored ? sum * factor_of<Config::kFactored>(args, place.p + p, column) : sum;
      }
    epilogue(args, place.p, place.b, place.m + m, place.n + n, left < kWidth ? left : kWidth, total);
  }
}
