#include "engine/tile_calls.h"

#include "plan/attention.h"
#include "plan/pair_sums.h"

namespace kiln::engine {
namespace {

/// What both kinds of calls have of their steps.
template <class Call, class Step>
Call begin_call(const Step& step, const AddressOf& address) {
  Call call;
  call.what = step.what.get();
  call.tile_rows = step.tile_rows;
  call.tile_columns = step.tile_columns;
  call.local_bytes = step.local_bytes;
  call.slot_types = &step.slot_types;
  for (std::size_t m = 0; m < step.memory.size(); ++m)
    call.memory.push_back({address(step.memory[m]), &step.what->memory[m]});
  return call;
}

}  // namespace

library::AttentionCall tile_call(const AttentionStep& step, const AddressOf& address) {
  const plan::Attention& what = *step.what;
  auto call = begin_call<library::AttentionCall>(step, address);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j)
      for (int w = 0; w < 2; ++w) call.step[i][j][w] = step.step[i][j][w];
    call.finish[i] = step.finish[i];
  }
  call.q = {address(step.q), &what.q};
  call.k = {address(step.k), &what.k};
  call.v = {address(step.v), &what.v};
  for (std::size_t r = 0; r < step.row_results.size(); ++r)
    call.row_results.push_back({address(step.row_results[r]), &what.row_outputs[r].to});
  call.result = address(step.result);
  call.result_type = step.result_type;
  return call;
}

library::PairSumsCall tile_call(const PairSumsStep& step, const AddressOf& address) {
  const plan::PairSums& what = *step.what;
  auto call = begin_call<library::PairSumsCall>(step, address);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      for (const auto& kernels : step.tiles[i][j].statistics)
        call.tiles[i][j].statistics.emplace_back(kernels);
      call.tiles[i][j].weights = step.tiles[i][j].weights;
    }
  for (std::size_t p = 0; p < step.products.size(); ++p)
    call.products.push_back({{address(step.products[p].first), &what.products[p].x},
                             {address(step.products[p].second), &what.products[p].y}});
  for (std::size_t x = 0; x < step.others.size(); ++x) {
    call.others.push_back({address(step.others[x]), &what.sums[x].other});
    call.results.push_back(address(step.results[x]));
  }
  return call;
}

}  // namespace kiln::engine
