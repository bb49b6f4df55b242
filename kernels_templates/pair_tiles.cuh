// Tiles of pairs of rows and columns: which there are for a block of rows, and what is known of them. Config:
// Element; kRows, of a block; kColumns, of a tile; kWarps, those with rows, each kFragments times 16; kMasks,
// whether there are masks; kLow, whether tiles may be left out; kChecks, whether the launch itself finds
// flags. Hooks:
//
//   int tile_kind(args, b, i0, i1, j0, j1)      of rows i0 … i1 and columns j0 … j1: kMixed, kWhole or kLow
//   bool is_finite(args, b, tile)               of what the weights of kFlagColumns columns multiply; their
//                                               flag is not set
//
// args.shape has `rows` and `columns`.
#pragma once

typedef Config::Element Element;
constexpr int kRows = Config::kRows, kColumns = Config::kColumns, kFragments = Config::kFragments,
              kWarps = Config::kWarps;
constexpr int kMixed = 0, kWhole = 1, kLow = 2;  // kinds of tiles
constexpr int kFlagColumns = 64;                 // that have a flag

/// Whether flags are there; else all is taken for finite: see pair_hopper.cuh.
template <class A>
__device__ __forceinline__ bool knows_flags(const A& args) {
  if constexpr (Config::kChecks) return args.parts.again;
  return true;
}

/// The tiles of columns for the rows of a block, from the last one to the first, so that those with too few
/// columns and the diagonal of a causal attention come first. All lanes of a warp call its functions
/// together: each finds the kind of another tile.
struct PairTiles {
  const Args& args;
  int b = 0, row0 = 0;
  bool keeps_low = false;                 // low tiles are taken like mixed ones
  int window = -1;                        // 32 tiles whose kinds are known
  uint32 low_tiles = 0, whole_tiles = 0;  // among them

  __device__ __forceinline__ PairTiles(const Args& args) : args(args) {}
  __device__ __forceinline__ void begin(int matrix, int first_row, bool keep_low = false) {
    b = matrix;
    row0 = first_row;
    keeps_low = keep_low;
    window = -1;
  }

  /// Whether what the weights of columns j0 … j1 - 1 multiply is finite, as far as flags are there.
  __device__ __forceinline__ bool multiplies_finite(int j0, int j1) const {
    if (knows_flags(args))
#pragma unroll 1
      for (int flag = j0 / kFlagColumns; flag <= (j1 - 1) / kFlagColumns; ++flag)
        if (!is_finite(args, b, flag)) return false;
    return true;
  }

  /// Whole tiles have all their columns; of low ones it is known that what their weights multiply is finite.
  __device__ __forceinline__ int kind_at(int j0) const {
    const bool ragged = j0 + kColumns > args.shape.columns;
    const int j1 = ragged ? args.shape.columns : j0 + kColumns;
    int kind = kWhole;
    if constexpr (Config::kMasks) {
      const int i1 = row0 + kRows < args.shape.rows ? row0 + kRows : args.shape.rows;
      kind = tile_kind(args, b, row0, i1 - 1, j0, j1 - 1);
    }
    if (kind == kWhole && ragged) kind = kMixed;
    if constexpr (Config::kLow) {
      if (kind == kLow && (keeps_low || !multiplies_finite(j0, j1))) kind = kMixed;
    }
    return kind;
  }

  __device__ __forceinline__ void look_at(int tiles) {
    window = tiles;
    const int j0 = (32 * tiles + int(threadIdx.x % 32)) * kColumns;
    const int kind = j0 < args.shape.columns ? kind_at(j0) : kMixed;
    low_tiles = __ballot_sync(0xffffffffu, kind == kLow);
    whole_tiles = __ballot_sync(0xffffffffu, kind == kWhole);
  }

  /// The first column of the last tile before column j1 that is low, or that is not; -1: there is none.
  __device__ __forceinline__ int before(int j1, bool low, int& kind) {
    int tile = (j1 + kColumns - 1) / kColumns - 1;
    if constexpr (!Config::kMasks) {
      kind = (tile + 1) * kColumns > args.shape.columns ? kMixed : kWhole;
      return tile < 0 ? -1 : tile * kColumns;
    }
    for (; tile >= 0; tile = window * 32 - 1) {
      if (tile / 32 != window) look_at(tile / 32);
      const uint32 left = (low ? low_tiles : ~low_tiles) << (31 - tile % 32);
      if (left == 0) continue;
      tile -= __clz(left);
      kind = low ? kLow : whole_tiles >> tile % 32 & 1 ? kWhole : kMixed;
      return tile * kColumns;
    }
    return -1;
  }
};
