// What every product template and the text generated for it share: D[b, m, n] = Σₖ A[b, m, k] · B[b, n, k],
// then the epilogue that Kiln generates. A unit is this text; then, generated, struct Config (types, tile
// class, alignments), struct Args and the hooks (docs/cuda.md lists them); then product_rows.cuh and the main
// loop. Must not know of any of them.
//
// Several operands B may share A. Of equal extents, they are multiplied side by side in one tile and meet in
// one epilogue (Config::kProducts); or each has columns, tiles and an epilogue of its own, and the launch
// alone is one (Config::kParts). What belongs to one of them has its number: hooks take it as `p`.
#pragma once

/// Extents, and strides in elements of one matrix of the batch. Mirrored by codegen/cuda/product_launch.h.
struct Product {
  int m, n, k, batch;
  int64 a_m, a_k, b_n, b_k;
};

/// The same of the columns of a further part: Args::parts[p - 1].
struct Part {
  int64 b_n, b_k;
  int n, unused;
};

/// What names the instructions that multiply elements: their type, or those of bytes that are 8-bit floats.
template <class Element, class Config>
struct Multiplied {
  typedef Element type;
};
template <class Config>
struct Multiplied<uint8, Config> {
  typedef float8_pair<Config::kAE5M2, Config::kBE5M2> type;
};

/// What a lane has of a fragment's line: halves two at a time, or a float's bits, or a double.
template <class Element>
struct FragmentWord {
  typedef uint32 type;
};
template <>
struct FragmentWord<double> {
  typedef double type;
};

/// load() of what nobody writes while the kernel runs: loads of one call of an epilogue may overtake the
/// stores of the one before.
template <int N, class T>
__device__ __forceinline__ vec<T, N> load_fixed(const T* __restrict__ p) {
  constexpr int kBytes = N * sizeof(T), kWord = kBytes < 16 ? kBytes : 16;
  typedef typename word<kWord>::type W;
  union {
    vec<T, N> elements;
    W words[kBytes / kWord];
  } u;
#pragma unroll
  for (int i = 0; i < kBytes / kWord; ++i) u.words[i] = __ldg(reinterpret_cast<const W*>(p) + i);
  return u.elements;
}

template <int N, class T>
__device__ __forceinline__ vec<T, N> load_fixed(const T* __restrict__ p, int left) {
  return left >= N ? load_fixed<N>(p) : load<N>(p, left);
}

// Vectors of a lane that keeps the columns that products leave in it: of 32 columns from p on, lane q of four
// has 8 j + 2 q and + 1.

template <int N, class T>
__device__ __forceinline__ vec<T, N> load_spread(const T* __restrict__ p) {
  vec<T, N> x;
#pragma unroll
  for (int j = 0; j < N / 2; ++j) {
    const vec<T, 2> pair = load_fixed<2>(p + 8 * j + 2 * int(threadIdx.x & 3));
    x.at[2 * j] = pair.at[0];
    x.at[2 * j + 1] = pair.at[1];
  }
  return x;
}

/// By all lanes of a warp. Halves are exchanged, so that each lane stores eight adjacent ones; pairs of wider
/// types fill units of memory.
template <int N, class T>
__device__ __forceinline__ void store_spread(T* p, const vec<T, N>& x) {
  const int q = threadIdx.x & 3;
  if constexpr (N == 8 && sizeof(T) == 2) {
    union {
      vec<T, N> elements;
      uint32 words[4];
    } u;
    u.elements = x;
#pragma unroll
    for (int bit = 1; bit <= 2; bit <<= 1)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j & bit) continue;
        const uint32 give = q & bit ? u.words[j] : u.words[j | bit];
        const uint32 got = __shfl_xor_sync(~0u, give, bit);
        if (q & bit)
          u.words[j] = got;
        else
          u.words[j | bit] = got;
      }
    store(p + 8 * q, u.elements);
  } else {
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      vec<T, 2> pair;
      pair.at[0] = x.at[2 * j];
      pair.at[1] = x.at[2 * j + 1];
      store(p + 8 * j + 2 * q, pair);
    }
  }
}

__device__ __forceinline__ int tiles_of(int extent, int tile) {
  return int((int64(extent) + tile - 1) / tile);
}

struct TilePlace {
  int b, m, n;  // batch, first row, first column
  int p = 0;    // the part that the columns are of
};

/// Columns of part p, and strides of its operand.
template <int Parts, class Args>
__device__ __forceinline__ Part part_of(const Args& args, int p) {
  Part part = {args.product.b_n, args.product.b_k, args.product.n};
  if constexpr (Parts > 1) {
#pragma unroll
    for (int other = 1; other < Parts; ++other)
      if (p == other) part = args.parts[other - 1];
  }
  return part;
}

/// Tiles along n, of all parts one after the other.
template <int Parts, class Args>
__device__ __forceinline__ int tiles_of_parts(const Args& args, int tile) {
  int tiles = 0;
#pragma unroll
  for (int p = 0; p < Parts; ++p) tiles += tiles_of(part_of<Parts>(args, p).n, tile);
  return tiles;
}

/// A place whose columns are counted over the tiles of all parts becomes that of a part.
template <int Parts, class Args>
__device__ __forceinline__ void enter_part(const Args& args, TilePlace& place, int tile) {
#pragma unroll
  for (int p = 0; p + 1 < Parts; ++p) {
    const int columns = tiles_of(part_of<Parts>(args, p).n, tile) * tile;
    if (place.p == p && place.n >= columns) {
      place.n -= columns;
      place.p = p + 1;
    }
  }
}

/// The i-th tile, of fewer than 2^31. Tiles that run at one time share rows and columns: groups of `Group`
/// tiles along m are walked side by side, so that what the second cache holds is read by many.
template <int Group>
__device__ __forceinline__ TilePlace place_of_tile(int i, int m_tiles, int n_tiles, int tile_m, int tile_n) {
  const int each = m_tiles * n_tiles;
  TilePlace place;
  place.b = i / each;
  const int rest = i - place.b * each, first = rest / (Group * n_tiles) * Group;
  const int in_group = rest - first * n_tiles;
  const int rows = m_tiles - first < Group ? m_tiles - first : Group;
  const int column = in_group / rows;
  place.m = (first + in_group - column * rows) * tile_m;
  place.n = column * tile_n;
  return place;
}
