// tile_graphs: the program of an attention on one tile, as graphs that are planned and lowered like any
// other.
//
// `step` reads a tile of scores, transposed, and the maxima and sums of its rows so far; it writes weights,
// new maxima and sums, and the factor that scales what was summed before. `finish` makes results of the sums.
// `statistics` and `weights` are the same of sums over pairs. Arguments stand for the memory of a unit of
// work (library/attention.h), results are placed in arguments.
#pragma once

#include "library/attention.h"
#include "plan/attention.h"
#include "plan/pair_sums.h"

#include <unordered_map>
#include <vector>

namespace kiln::engine {

struct TileGraph {
  ir::Graph graph;
  std::vector<library::TileBuffer> arguments;  // of the graph
  std::vector<library::TileSlot> slots;        // of the graph
  std::unordered_map<ir::NodeId, plan::Placement> placements;
};

/// `whole`: of a tile where every mask chooses the scores. `tile_rows`: how far apart columns of a tile lie;
/// rows <= tile_rows. `slot_types`: the plan's.
TileGraph step_graph(const plan::Attention& a, const std::vector<DType>& slot_types, std::int64_t tile_rows,
                     std::int64_t rows, std::int64_t columns, bool whole);
TileGraph finish_graph(const plan::Attention& a, const std::vector<DType>& slot_types, DType result,
                       std::int64_t tile_rows, std::int64_t rows);

/// What a tile adds to each statistic of one level.
TileGraph statistics_graph(const plan::PairSums& s, const std::vector<DType>& slot_types, int level,
                           std::int64_t tile_rows, std::int64_t rows, std::int64_t columns);
/// The weights of all sums over pairs.
TileGraph weights_graph(const plan::PairSums& s, const std::vector<DType>& slot_types, std::int64_t tile_rows,
                        std::int64_t rows, std::int64_t columns);

}  // namespace kiln::engine
