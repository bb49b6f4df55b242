// Steps for sums over pairs: the kernels of their tiles, and the memory that they use.
#include "device/device.h"
#include "engine/plan_maker.h"
#include "engine/tile_graphs.h"
#include "lower/pair_sums_kernel.h"

#include <algorithm>

namespace kiln::engine {

void PlanMaker::add_pair_sums(const plan::Region& r) {
  at_ = &r;
  for (NodeId o : r.outputs) place_of(o, 0);
  auto step = std::make_unique<PairSumsStep>();
  step->what = regions_.pair_sums[static_cast<std::size_t>(r.tiled)];
  step->line = g_[r.outputs.front()].loc;
  const plan::PairSums& s = *step->what;
  step->routine = &library::pair_sums(device_);
  std::tie(step->tile_rows, step->tile_columns) = step->routine->tile_of(s);
  step->slot_types = g_.slots;
  const std::size_t first = tile_kernels_.size();
  const std::int64_t rows[2] = {s.rows >= step->tile_rows ? step->tile_rows : 0, s.rows % step->tile_rows};
  const std::int64_t columns[2] = {s.columns >= step->tile_columns ? step->tile_columns : 0,
                                   s.columns % step->tile_columns};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      if (rows[i] == 0 || columns[j] == 0) continue;
      PairSumsStep::Tiles& t = step->tiles[i][j];
      t.statistics.resize(static_cast<std::size_t>(s.levels));
      for (int level = 0; level < s.levels; ++level)
        add_tile_kernels(*step, statistics_graph(s, g_.slots, level, step->tile_rows, rows[i], columns[j]),
                         t.statistics[static_cast<std::size_t>(level)], r);
      add_tile_kernels(*step, weights_graph(s, g_.slots, step->tile_rows, rows[i], columns[j]), t.weights, r);
    }
  // in the order in which the kernels were lowered
  std::size_t at = first;
  for (auto& of_rows : step->tiles)
    for (PairSumsStep::Tiles& t : of_rows) {
      for (auto& kernels : t.statistics)
        for (library::TileKernel& k : kernels) tile_kernels_[at++].launch = &k.launch;
      for (library::TileKernel& k : t.weights) tile_kernels_[at++].launch = &k.launch;
    }
  for (const plan::PairSums::Product& p : s.products)
    step->products.emplace_back(place_of(p.x), place_of(p.y));
  for (const plan::MatrixMemory& m : s.memory) step->memory.push_back(place_of(m));
  for (const plan::PairSums::Sum& x : s.sums) {
    step->others.push_back(place_of(x.other));
    step->results.push_back(place_of(x.node, 0));
  }
  plan_->steps.push_back({Step::Kind::PairSums, static_cast<std::uint32_t>(plan_->pair_sums.size())});
  plan_->pair_sums.push_back(std::move(step));
  at_ = nullptr;
}

void PlanMaker::add_pair_sums_launches(const plan::Region& r) {
  for (NodeId o : r.outputs) place_of(o, 0);
  const schedule::Target& target = planning_target(device_);
  const plan::PairSums& s = *regions_.pair_sums[static_cast<std::size_t>(r.tiled)];
  std::map<std::uint32_t, Place> shared;
  at_ = &r;
  for (const lower::PairPass& pass : lower::pair_passes(g_, s, target)) {
    at_ = &r;
    auto lowered = std::make_unique<lower::Lowered>(lower::lower_pair_pass(g_, s, pass, target));
    Launch l = bound_launch(r, *lowered, &shared);
    push_launches(std::move(l), std::move(lowered), r);
  }
}

}  // namespace kiln::engine
