// A product by mma.sync: for every architecture from sm_80 on, every extent, every stride. A block makes one
// tile of the result. Stages of shared memory are filled by copies that run beside the threads, several k
// steps ahead; the next fragments are loaded while the present ones are multiplied. Rows of shared
// memory are permuted in units of 16 bytes, so that neither copies nor ldmatrix meet on a bank. What lies
// outside the matrices is 0 in shared memory and is never given to the epilogue.
//
// Narrow copies serve operands whose rows begin at multiples of 8 or 4 bytes; single elements, any strides.
//
// Elements are halves; 8-bit floats, whose k is the contiguous axis; or floats of which tensor cores take 11
// bits: fragments of these are rounded, half of the last bit away from zero. Stages have as many bytes of
// any, so that a stage of floats has half the steps of k. An instruction takes 32 bytes of k, which a lane
// has in the same places; where k is not the contiguous axis, ldmatrix exchanges the axes of halves, and
// floats are loaded one by one.
#pragma once

template <int Class>
struct MmaTile;  // mirrored by codegen/cuda/product_launch.cpp
template <>
struct MmaTile<0> {
  static constexpr int m = 128, n = 256, depth = 32, m_warps = 2, n_warps = 4, stages = 4, blocks = 1;
};
template <>
struct MmaTile<1> {  // two products, windows, and floats need registers for more addresses
  static constexpr bool deep =
      Config::kProducts == 1 && Config::kWindows == 0 && sizeof(Config::Element) == 2;
  static constexpr int m = 128, n = 128, depth = deep ? 64 : 32, m_warps = 2, n_warps = 2,
                       stages = deep ? 3 : 4, blocks = 2;
};
template <>
struct MmaTile<2> {
  static constexpr int m = 64, n = 64, depth = 32, m_warps = Config::kProducts == 1 ? 2 : 4,
                       n_warps = Config::kProducts == 1 ? 2 : 1, stages = 4, blocks = 3;
};
template <>
struct MmaTile<3> {  // few columns beside windows
  static constexpr int m = 128, n = 32, depth = 32, m_warps = 4, n_warps = 1, stages = 4, blocks = 4;
};

typedef MmaTile<Config::kTile> Tile;  // its depth is that of halves
typedef Config::Element Element;
typedef Multiplied<Element, Config>::type Multiply;
constexpr int kElement = sizeof(Element);
static_assert(kElement > 1 || (Config::kAKMajor && Config::kBKMajor), "bytes have one order only");
constexpr int kThreads = 32 * Tile::m_warps * Tile::n_warps, kBlocksPerSm = Tile::blocks;
constexpr int kLine = Tile::depth * 2, kDepth = kLine / kElement, kParts = kLine / 32;  // of a stage, along k
constexpr int kWarpM = Tile::m / Tile::m_warps,
              kWarpN = Tile::n / Tile::n_warps;      // a warp's part of the tile
constexpr int kEachN = Tile::n / Config::kProducts;  // columns of one product
constexpr int kWarpEachN = kWarpN / Config::kProducts;
constexpr int kABytes = Tile::m * kLine, kEachBytes = kEachN * kLine;  // of a stage
constexpr int kStageBytes = kABytes + Config::kProducts * kEachBytes;

/// Where the 16 bytes stand that begin at unit `unit` of a line, in a tile of `Rows` rows (or columns).
/// k contiguous: a line is a row, of 4 or 8 units. Else: a line is a k, of Rows / 8 units (floats: Rows / 4;
/// a warp reads two units of each of four lines at a time).
template <bool KMajor, int Rows>
__device__ __forceinline__ uint32 shared_unit(int line, int unit) {
  constexpr int kBytes = KMajor ? kLine : Rows * kElement;
  const int permuted = !KMajor && kElement == 4 ? (line & 3) << 1 : kBytes == 64 ? line >> 1 & 3 : line & 7;
  return line * kBytes + ((unit ^ permuted) << 4);
}

/// Fills stages with tiles of one operand, or of Count that are alike: rows first … first + Rows - 1 of
/// matrices with `rows` rows.
template <bool KMajor, int Align, int Rows, int Count = 1>
struct Filler {
  static constexpr int kBytes = Align < 4 ? 4 : Align, kElements = kBytes / kElement;  // of a thread's copy
  static constexpr int kLineBytes = KMajor ? kLine : Rows * kElement;
  static constexpr int kUnits = kLineBytes / kBytes;  // of a line
  static constexpr int kLines = KMajor ? Rows : kDepth;
  static constexpr int kLineStep = kThreads / kUnits;  // lines between two units of a thread: a power of 2
  static constexpr int kCount = kLines / kLineStep;
  static_assert(kThreads % kUnits == 0 && kLines % kLineStep == 0 && (kLineStep & (kLineStep - 1)) == 0, "");

  const Element* at[Count];  // this thread's first unit, of the next stage
  int64 line_stride, step;   // elements between its units; between stages
  int64 element;             // between the elements of a unit
  int unit_left;             // elements from this thread's unit to the end of the line (its k moves)
  int line_left;             // lines from this thread's first one to the end
  uint32 to;                 // within a stage

  /// `matrix(i)`: where the i-th of them begins.
  template <class Matrix>
  __device__ __forceinline__ Filler(const Matrix& matrix, int64 row_stride, int64 k_stride, int first,
                                    int rows, int k) {
    const int unit = threadIdx.x % kUnits, line = threadIdx.x / kUnits;
    if (Align > kElement) (KMajor ? k_stride : row_stride) = 1;
    element = KMajor ? k_stride : row_stride;
    line_stride = KMajor ? row_stride : k_stride;
    step = k_stride * kDepth;
    const int64 along = (KMajor ? 0 : int64(first)) + unit * kElements,
                across = (KMajor ? int64(first) : 0) + line;
#pragma unroll
    for (int c = 0; c < Count; ++c) at[c] = matrix(c) + along * element + across * line_stride;
    unit_left = (KMajor ? k : rows - first) - unit * kElements;
    line_left = (KMajor ? rows - first : k) - line;
    to = shared_unit<KMajor, Rows>(line, unit * kBytes / 16) + unit * kBytes % 16;
  }

  /// Elements that are there of any unit of this thread, if its line is.
  __device__ __forceinline__ int most_there() const {
    return unit_left < kElements ? (unit_left < 0 ? 0 : unit_left) : kElements;
  }
  /// Where that unit goes: a thread's lines differ in bits that its first line has not set, and so do what
  /// the permutation makes of them.
  __device__ __forceinline__ uint32 place(uint32 stage, int line) const {
    return stage + (to ^ shared_unit<KMajor, Rows>(line % 8, 0) % kLineBytes % 128) + line * kLineBytes;
  }

  /// Starts the copies of the next stage, in which the operands begin at `stage`.
  __device__ __forceinline__ void fill(uint32 stage) {
#pragma unroll
    for (int c = 0; c < Count; ++c) {
      fill_one(stage + c * (Rows * kLine), at[c]);
      at[c] += step;
    }
    (KMajor ? unit_left : line_left) -= kDepth;
  }

 private:
  __device__ __forceinline__ void fill_one(uint32 stage, const Element* from) const {
    const int most = most_there();
    if constexpr (Align == 2) {
      uint32 words[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int line = i * kLineStep, count = line < line_left ? most : 0;
        const uint16* const pair = reinterpret_cast<const uint16*>(from + line * line_stride);
        const uint32 low = count > 0 ? pair[0] : 0u, high = count > 1 ? pair[element] : 0u;
        words[i] = low | high << 16;
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) store_shared(place(stage, i * kLineStep), words[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int line = i * kLineStep;
        copy_async<Align>(place(stage, line), from + line * line_stride,
                          line < line_left ? kElement * most : 0);
      }
    }
  }
};

/// The same of windows (product_windows.cuh), whose lines are copied from where they lie. A unit is some
/// channels of one element of a window; each line knows which of its elements are inside the array, by a bit
/// for each position along each axis.
template <int Align, int Rows, int Axes>
struct WindowFiller {
  typedef Filler<true, Align, Rows> Plain;
  static constexpr int kCount = Plain::kCount, kElements = Plain::kElements, kBits = 32 / Axes;

  const Windows& w;
  const Element* base;
  int at[kCount];         // elements from there to the lines' first elements
  uint32 inside[kCount];  // of axis i from bit i * kBits on
  WindowTap<Axes> tap;    // of this thread's unit
  int channel, taps;
  uint32 to;

  __device__ __forceinline__ WindowFiller(const Windows& windows, const Element* from, int b, int first,
                                          int lines)
      : w(windows), taps(taps_of<Axes>(windows)) {
    const int unit = threadIdx.x % Plain::kUnits, line = threadIdx.x / Plain::kUnits;
    const WindowBatch batch(w, b, lines);
    base = from + int64(batch.group) * w.channels;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int number = first + line + i * Plain::kLineStep;
      const WindowPlace<Axes> window(w, batch.first + number);
      int64 offset = window.image * w.image;
      inside[i] = 0;
#pragma unroll
      for (int axis = 0; axis < Axes; ++axis) {
        offset += window.at[axis] * w.stride[axis];
        for (int t = 0; t < w.taps[axis]; ++t) {
          const int x = window.at[axis] + t * w.gap[axis];
          if (number < lines && x >= 0 && x < w.extent[axis]) inside[i] |= 1u << (axis * kBits + t);
        }
      }
      at[i] = int(offset);
    }
    to = shared_unit<true, Rows>(line, unit * Plain::kBytes / 16) + unit * Plain::kBytes % 16;
    channel = unit * kElements;
    settle();
  }

  /// Moves on to the element that `channel` is in.
  __device__ __forceinline__ void settle() {
    while (channel >= w.channels && tap.number < taps) {
      channel -= w.channels;
      tap.next(w);
    }
  }

  __device__ __forceinline__ uint32 place(uint32 stage, int line) const {
    return stage + (to ^ shared_unit<true, Rows>(line % 8, 0) % kLine % 128) + line * kLine;
  }

  __device__ __forceinline__ void fill(uint32 stage) {
    int offset = channel;
    uint32 bits = tap.number < taps ? ~0u : 0;
#pragma unroll
    for (int axis = 0; axis < Axes; ++axis) offset += tap.at[axis] * w.gap[axis] * int(w.stride[axis]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      uint32 there = bits;
#pragma unroll
      for (int axis = 0; axis < Axes; ++axis) there &= inside[i] >> (axis * kBits + tap.at[axis]);
      copy_async<Align>(place(stage, i * Plain::kLineStep), base + (at[i] + offset),
                        there & 1 ? Plain::kBytes : 0);
    }
    channel += kDepth;
    settle();
  }
};

/// The filler of operand 1 or 2, which may be windows.
template <int Operand, int Windows, class A>
__device__ __forceinline__ auto filler_of(const A& args, const TilePlace& place, const Part& part) {
  const Product& product = args.product;
  if constexpr (Operand == 1 && Windows == 1) {
    return WindowFiller<Config::kAAlign, Tile::m, Config::kWindowAxes>(args.windows, a_matrix(args, place.b),
                                                                       place.b, place.m, product.m);
  } else if constexpr (Operand == 1) {
    return Filler<Config::kAKMajor, Config::kAAlign, Tile::m>([&](int) { return a_matrix(args, place.b); },
                                                              product.a_m, product.a_k, place.m, product.m,
                                                              product.k);
  } else if constexpr (Windows == 2) {
    return WindowFiller<Config::kBAlign, kEachN, Config::kWindowAxes>(
        args.windows, b_matrix(args, 0, place.b), place.b, place.n, part.n);
  } else {
    return Filler<Config::kBKMajor, Config::kBAlign, kEachN, Config::kProducts>(
        [&](int p) { return b_matrix(args, place.p + p, place.b); }, part.b_n, part.b_k, place.n, part.n,
        product.k);
  }
}

/// What a warp multiplies at a time: 32 bytes of k.
struct Fragments {
  uint32 a[kWarpM / 16][4];
  uint32 b[kWarpN / 16][4];  // two blocks of 8 columns each
};

/// Addresses of this lane's rows for ldmatrix, within a stage; or of its element of a row.
struct Reader {
  static constexpr bool kALanes = kElement == 4 && !Config::kAKMajor,
                        kBLanes = kElement == 4 && !Config::kBKMajor;  // elements are loaded one by one
  uint32 a, b[Config::kProducts];

  __device__ __forceinline__ Reader(int warp_m, int warp_n) {
    const int lane = threadIdx.x % 32, row = lane & 7, low = lane >> 3 & 1, high = lane >> 4;
    a = kALanes            ? own_element<Tile::m>(warp_m)
        : Config::kAKMajor ? shared_unit<true, Tile::m>(warp_m + row + 8 * low, high)
                           : shared_unit<false, Tile::m>(row + 8 * high, warp_m / 8 + low);
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p) {
      b[p] = kABytes + p * kEachBytes +
             (kBLanes            ? own_element<kEachN>(warp_n)
              : Config::kBKMajor ? shared_unit<true, kEachN>(warp_n + row + 8 * high, low)
                                 : shared_unit<false, kEachN>(row + 8 * low, warp_n / 8 + high));
    }
  }

  /// Loads the part-th 32 bytes of k of a stage.
  __device__ __forceinline__ void load(Fragments& to, uint32 stage, int part) const {
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i)
      if constexpr (kALanes)
        load_elements<Tile::m, 2, 1>(to.a[i], stage, a, i, part);
      else
        load_matrices<!Config::kAKMajor>(to.a[i], stage + block<Config::kAKMajor, Tile::m>(a, i, part));
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) {
      constexpr int kEach = kWarpEachN / 16;
      if constexpr (kBLanes)
        load_elements<kEachN, 1, 2>(to.b[j], stage, b[j / kEach], j % kEach, part);
      else
        load_matrices<!Config::kBKMajor>(
            to.b[j], stage + block<Config::kBKMajor, kEachN>(b[j / kEach], j % kEach, part));
    }
  }

 private:
  /// The element of lane 4 g + q: k of q, row g of those from `first` on.
  template <int Rows>
  static __device__ __forceinline__ uint32 own_element(int first) {
    const int row = first + threadIdx.x % 32 / 4;
    return shared_unit<false, Rows>(threadIdx.x % 4, row / 4) + row % 4 * 4;
  }

  /// This lane's elements of the i-th block of 16 rows: of its row and the row 8 behind it (element `Row`),
  /// of its k and the k 4 behind it (element `K`).
  template <int Rows, int K, int Row>
  static __device__ __forceinline__ void load_elements(uint32 (&to)[4], uint32 stage, uint32 first, int i,
                                                       int part) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int eights = (i << 1) + (e / Row & 1), k = 8 * part + 4 * (e / K & 1);
      to[e] = load_shared(stage + (first ^ (eights & 3) << 5) + (eights >> 2) * 128 + k * (Rows * 4));
    }
  }

  /// The same lane's row in the i-th block of 16 rows: the permutation changes only bits that the block's
  /// number leaves alone.
  template <bool KMajor, int Rows>
  static __device__ __forceinline__ uint32 block(uint32 first, int i, int part) {
    return KMajor ? (first ^ (part << 5)) + i * 16 * kLine : (first ^ (i << 5)) + part * 16 * (Rows * 2);
  }
};

__device__ __forceinline__ void multiply(float (&sums)[kWarpM / 16][kWarpN / 8][4], Fragments& x) {
  if constexpr (kElement == 4) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) x.a[i][e] = rounded_to_tf32(x.a[i][e]);
#pragma unroll
      for (int j = 0; j < kWarpN / 16; ++j) x.b[j][e] = rounded_to_tf32(x.b[j][e]);
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
    for (int j = 0; j < kWarpN / 8; ++j)
      multiply_add(sums[i][j], x.a[i], x.b[j / 2][j % 2 * 2], x.b[j / 2][j % 2 * 2 + 1], Multiply());
}

template <int Stages, class Fill>
__device__ __forceinline__ void main_loop(float (&sums)[kWarpM / 16][kWarpN / 8][4], const Reader& reader,
                                          int steps, const Fill& fill) {
  const uint32 shared = shared_base();
#pragma unroll
  for (int s = 0; s < Stages - 1; ++s) {
    if (s < steps) fill(shared + s * kStageBytes);
    copies_commit();
  }
  copies_wait<Stages - 2>();
  __syncthreads();
  Fragments x[2];
  reader.load(x[0], shared, 0);
  int read = 0, write = Stages - 1;
  for (int step = 0; step < steps; ++step) {
    const int write_now = write;  // what the step before has read
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (part + 1 < kParts) {
        reader.load(x[(part + 1) % 2], shared + read * kStageBytes, part + 1);
      } else {
        copies_wait<Stages - 2>();
        __syncthreads();
        write = read;
        read = read + 1 == Stages ? 0 : read + 1;
        if (step + 1 < steps) reader.load(x[0], shared + read * kStageBytes, 0);
      }
      if (part == 0) {
        if (step + Stages - 1 < steps) fill(shared + write_now * kStageBytes);
        copies_commit();
      }
      multiply(sums, x[part % 2]);
    }
  }
  copies_wait<0>();
}

__device__ __forceinline__ void run_product(const Args& args) {
  const Product& product = args.product;
  const int m_tiles = tiles_of(product.m, Tile::m), n_tiles = tiles_of_parts<Config::kParts>(args, kEachN);
  TilePlace place = place_of_tile<8>(blockIdx.x, m_tiles, n_tiles, Tile::m, kEachN);
  enter_part<Config::kParts>(args, place, kEachN);
  const Part part = part_of<Config::kParts>(args, place.p);
  const int warp = threadIdx.x / 32, warp_m = warp % Tile::m_warps * kWarpM,
            warp_n = warp / Tile::m_warps * kWarpEachN;

  auto a = filler_of<1, Config::kWindows>(args, place, part);
  auto b = filler_of<2, Config::kWindows>(args, place, part);
  const Reader reader(warp_m, warp_n);
  float sums[kWarpM / 16][kWarpN / 8][4] = {};
  const int steps = tiles_of(product.k, kDepth);
  if (steps > 0)
    main_loop<Tile::stages>(sums, reader, steps, [&](uint32 stage) {
      a.fill(stage);
      b.fill(stage + kABytes);
    });

  constexpr int kPairs = kWarpEachN / 8;
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      finish_row<kPairs>(args, place.p, place.b, place.m + warp_m + 16 * i + 8 * h + threadIdx.x % 32 / 4,
                         place.n + warp_n, part.n,
                         [&](int p, int j, int e) { return sums[i][p * kPairs + j][2 * h + e]; });
}
