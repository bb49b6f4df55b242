// The order in which a plan's regions run, and the memory that the plan takes: Config::memory_budget.
#include "engine/group_launches.h"
#include "engine/plan_maker.h"
#include "ir/custom.h"
#include "plan/recompute.h"
#include "support/check.h"
#include "support/log.h"

#include <algorithm>
#include <utility>

namespace kiln::engine {

using plan::Region;

void PlanMaker::add_regions() {
  kept_.clear();
  const std::uint64_t budget = config().memory_budget;
  constexpr std::size_t kFewRegions = 8;
  if (budget == 0 && regions_.regions.size() < kFewRegions) {
    for (const Region& r : regions_.regions) add_region(r);
    return;
  }
  plan::MemoryNeeds needs = memory_needs();
  if (budget == 0) {
    const plan::Runs order = plan::order_by_memory(g_, regions_, planning_target(device_), needs);
    for (const plan::RegionRun& run : order.runs) add_region(regions_.regions[run.region]);
    return;
  }
  kept_ = needs.kept;
  const plan::Runs runs =
      plan::fit_memory(g_, regions_, planning_target(device_), static_cast<std::int64_t>(budget), needs);
  for (const plan::RegionRun& run : runs.runs) {
    const Region& r = regions_.regions[run.region];
    run.again ? add_region_again(r) : add_region(r);
  }
}

void PlanMaker::add_region(const Region& r) {
  switch (r.kind) {
    case Region::Kind::Library: add_library_call(r); break;
    case Region::Kind::Loop: add_loop(r); break;
    case Region::Kind::Attention:
      planning_target(device_).gpu ? add_attention_launch(r) : add_attention(r);
      break;
    case Region::Kind::PairSums:
      planning_target(device_).gpu ? add_pair_sums_launches(r) : add_pair_sums(r);
      break;
    case Region::Kind::Fused: add_launch(r); break;
    case Region::Kind::Contraction:
      // On a GPU a kernel of its own does all of it.
      planning_target(device_).gpu ? add_launch(r) : add_product(r);
      break;
  }
  note_steps(r);
}

/// Readers from here on read the new memory, but for values that are kept anyway.
void PlanMaker::add_region_again(const Region& r) {
  std::vector<std::int32_t> before;
  for (const NodeId n : r.outputs) before.push_back(std::exchange(buffer_of_[n], -1));
  add_region(r);
  for (std::size_t i = 0; i < before.size(); ++i)
    if (kept_[r.outputs[i]]) buffer_of_[r.outputs[i]] = before[i];
  plan_->again += 1;
}

plan::MemoryNeeds PlanMaker::memory_needs() const {
  plan::MemoryNeeds needs;
  needs.bytes.assign(g_.size(), 0);
  needs.kept.assign(g_.size(), false);
  for (NodeId id = 0; id < g_.size(); ++id)
    if (regions_.stored[id] && g_[id].op != ir::Op::leaf && argument_of(id) < 0)
      needs.bytes[id] = g_[id].numel * size_of(g_[id].dtype);
  const auto keep = [&](NodeId id) {
    needs.kept[id] = true;
    if (const NodeId base = plan::resolve_alias(g_, id).base; base != ir::kNoNode) needs.kept[base] = true;
  };
  for (const NodeId root : g_.roots) keep(root);
  for (std::size_t i = 0; i < ids_.size(); ++i)
    if (wanted_[i] && t_.now[ids_[i]] != ir::kNoNode) keep(t_.now[ids_[i]]);
  for (const Region& r : regions_.regions) needs.once.push_back(!may_run_again(r));
  std::vector<int> readers(g_.size());
  for (const std::vector<NodeId>& of : plan::reads_of(g_, regions_))
    for (const NodeId n : of) ++readers[n];
  for (const Region& r : regions_.regions) needs.fixed.push_back(is_fixed(r, readers));
  return needs;
}

/// Whether a region writes into what others may read: an argument, or an operand that is not its own.
bool PlanMaker::is_fixed(const Region& r, const std::vector<int>& readers) const {
  if (std::ranges::any_of(r.outputs, [&](NodeId n) { return argument_of(n) >= 0; })) return true;
  if (r.kind != Region::Kind::Library || may_run_again(r)) return r.kind == Region::Kind::Loop;
  const ir::GraphNode& n = g_[r.nodes.front()];
  if (n.op == ir::Op::custom) return true;
  const NodeId base = regions_.stored[n.in[0]] ? n.in[0] : plan::resolve_alias(g_, n.in[0]).base;
  return base == ir::kNoNode || g_[base].op == ir::Op::leaf || readers[base] > 1;
}

/// Not what writes into its operand or an argument, what takes unknown time, and what may give other bits.
bool PlanMaker::may_run_again(const Region& r) const {
  if (r.kind == Region::Kind::Loop) return false;
  if (std::ranges::any_of(r.outputs, [&](NodeId n) { return argument_of(n) >= 0; })) return false;
  if (r.kind != Region::Kind::Library) return true;
  const ir::GraphNode& n = g_[r.nodes.front()];
  if (n.op == ir::Op::custom) return ir::custom_code(ir::attributes<ir::Custom>(n).kernel).same_bits;
  return !library::routine(n.op, device_).overwrites_first();
}

void PlanMaker::check_budget() const {
  const std::uint64_t budget = config().memory_budget;
  if (budget == 0) return;
  const std::uint64_t peak = peak_bytes(*plan_);
  log(Topic::Memory, cat("a plan of ", plan_->steps.size(), " steps, ", plan_->again,
                         " of them again, takes ", peak, " bytes"));
  if (peak > budget)
    warn_once(cat("memory budget ", budget),
              cat("the memory budget is ", budget, " bytes; an evaluation takes ", peak,
                  ": its results and what one step needs at once, or steps that cannot run twice. Reports of "
                  "fusion have the peak of each plan"));
}

}  // namespace kiln::engine
