// PairSumsCall: sums over pairs (plan/pair_sums.h) with their memory, and the kernels that Kiln generated for
// their tiles.
//
// `statistics` of a level make of a tile's products what the tile adds to the statistics of that level;
// `weights` makes the weights of all sums. The products and the sums themselves are the library's.
#pragma once

#include "library/attention.h"
#include "plan/pair_sums.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kiln::library {

struct PairSumsCall {
  const plan::PairSums* what = nullptr;
  std::int64_t tile_rows = 0, tile_columns = 0;
  /// By whether it is the last block of rows, which has fewer, and the last tile of columns. Several kernels
  /// run in order.
  struct Tiles {
    std::vector<std::span<const TileKernel>> statistics;  // by level
    std::span<const TileKernel> weights;
  };
  Tiles tiles[2][2];
  std::int64_t local_bytes = 0;
  std::vector<std::pair<AttentionMatrix, AttentionMatrix>> products;  // x, y
  std::vector<AttentionMatrix> others, memory;                        // of the sums; what terms read
  std::vector<std::byte*> results;                                    // of the sums, row-major
  const std::vector<DType>* slot_types = nullptr;
  std::span<const std::uint64_t> slots;  // of the plan
};

/// How a device does sums over pairs.
class PairSumsRoutine {
 public:
  virtual ~PairSumsRoutine() = default;
  /// Extents of a tile, which its kernels are made for.
  virtual std::pair<std::int64_t, std::int64_t> tile_of(const plan::PairSums& what) const = 0;
  virtual std::size_t workspace_bytes(const PairSumsCall& call) const = 0;
  virtual void run(const PairSumsCall& call, std::byte* workspace) const = 0;
};

/// Pre: the device's target has sums over pairs.
const PairSumsRoutine& pair_sums(Device device);

}  // namespace kiln::library
