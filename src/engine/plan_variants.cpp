// Variants of regions while a plan is made: which verdicts it follows, and what could be tried.
#include "engine/plan_variants.h"

#include "cache/background.h"
#include "device/device.h"
#include "engine/plan_maker.h"
#include "engine/trial.h"
#include "inspect/region_kind.h"
#include "plan/variants.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace kiln::engine {
namespace {

constexpr std::size_t kMostCandidates = 64;  // of one plan
constexpr double kLeastShare = 0.01;         // of the plan's bytes, below which a region is not worth a trial

std::atomic<VariantHook> variant_hook{nullptr};

std::int64_t bytes_of(const ir::GraphNode& n) { return n.numel * size_of(n.dtype); }

/// About what a region moves: its results, and what its operations read that it does not compute.
std::int64_t region_bytes(const ir::Graph& g, const plan::Region& r) {
  std::int64_t bytes = 0;
  for (const NodeId id : r.outputs) bytes += bytes_of(g[id]);
  std::vector<NodeId> read;
  for (const NodeId id : r.nodes)
    for (const NodeId in : g[id].in)
      if (!std::ranges::binary_search(r.nodes, in)) read.push_back(in);
  std::ranges::sort(read);
  read.erase(std::unique(read.begin(), read.end()), read.end());
  for (const NodeId id : read) bytes += bytes_of(g[id]);
  return bytes;
}

/// What a step runs, but for the buffers: equal steps of two plans take the same time.
Hash128 signature(const Plan& plan, const Step& step) {
  std::vector<std::uint64_t> words{static_cast<std::uint64_t>(step.kind), step.count};
  const auto add = [&](const Hash128& h) { words.insert(words.end(), {h.lo, h.hi}); };
  const auto add_launch = [&](const Launch& l) {
    add(l.kernel->key);
    words.insert(words.end(), l.params.begin(), l.params.end());
    words.insert(words.end(), {static_cast<std::uint64_t>(l.grid), static_cast<std::uint64_t>(l.grain),
                               static_cast<std::uint64_t>(l.finish_grid)});
  };
  switch (step.kind) {
    case Step::Kind::Launch:
      for (std::uint32_t i = step.index; i < step.index + step.count; ++i) add_launch(plan.launches[i]);
      break;
    case Step::Kind::Library: {
      const LibraryCall& l = plan.library[step.index];
      words.push_back(static_cast<std::uint64_t>(l.op));
      words.push_back(l.ways.bits());
      words.push_back(l.attr64);
      words.insert(words.end(), l.attrs.begin(), l.attrs.end());
      for (const ArrayOperand& o : l.operands) {
        words.insert(words.end(), o.dims.begin(), o.dims.end());
        words.insert(words.end(), o.strides.begin(), o.strides.end());
        words.push_back(o.row_offsets.size());
        words.insert(words.end(), o.row_offsets.begin(), o.row_offsets.end());
        words.insert(words.end(), o.col_offsets.begin(), o.col_offsets.end());
      }
      for (const std::int32_t kernel : {l.epilogue, l.maker})
        if (kernel >= 0) add_launch(plan.epilogues[static_cast<std::size_t>(kernel)]);
      break;
    }
    case Step::Kind::Loop: {
      const Loop& l = plan.loops[step.index];
      words.push_back(static_cast<std::uint64_t>(l.count));
      for (const auto* part : {&l.condition, &l.body})
        if (*part)
          for (const Step& s : (*part)->steps) add(signature(**part, s));
      break;
    }
    case Step::Kind::Attention:
      for (const auto& k : plan.attentions[step.index]->kernels) add(k->key);
      break;
    case Step::Kind::PairSums:
      for (const auto& k : plan.pair_sums[step.index]->kernels) add(k->key);
      break;
  }
  return hash128(std::span<const std::uint64_t>(words));
}

std::vector<Hash128> signatures(const Plan& plan) {
  std::vector<Hash128> out;
  for (const Step& s : plan.steps) out.push_back(signature(plan, s));
  return out;
}

bool publish_the_same(const Plan& a, const Plan& b) {
  const auto positions = [](const Plan& p) {
    std::vector<std::pair<std::uint32_t, bool>> out;
    for (const Plan::Result& r : p.results) out.emplace_back(r.position, r.root);
    std::ranges::sort(out);
    return out;
  };
  return positions(a) == positions(b) && a.left_pending == b.left_pending && a.donated == b.donated;
}

}  // namespace

void set_variant_hook(VariantHook hook) { variant_hook.store(hook); }

void PlanMaker::choose_variants(plan::Orders orders) {
  VariantScope* const scope = VariantScope::current();
  const schedule::Target& target = planning_target(device_);
  bool cut = false;
  {
    const plan::Units units(g_, regions_, target);
    for (std::size_t r = 0; r < regions_.regions.size(); ++r) {
      const std::vector<FusionVariant> ways = units.ways(r);
      if (ways.empty()) continue;
      const Hash128& key = units.key(r);
      const UnitVerdict verdict = verdict_of(key, device_);
      FusionVariant way = verdict.way();
      note_candidates(regions_.regions[r], key, verdict, ways);
      if (scope->tried && scope->tried->unit == key && is_way(scope->tried->variant))
        way = scope->tried->variant;
      if (const VariantHook hook = variant_hook.load(std::memory_order_relaxed)) {
        const std::vector<FusionVariant> told = hook(ways);
        way = told.empty() ? FusionVariant::Default : told.front();
      }
      if (std::ranges::find(ways, way) == ways.end()) continue;
      units.order(r, way, orders);
      cut = true;
    }
  }
  if (cut) regions_ = plan::fuse(g_, target, plan::Fusion::Full, orders);
  const plan::Units units(g_, regions_, target);
  units_.clear();
  for (std::size_t r = 0; r < regions_.regions.size(); ++r) {
    const UnitOf& unit = units_[regions_.regions[r].outputs.front()] =
        UnitOf{units.key(r), verdict_of(units.key(r), device_)};
    std::vector<FusionVariant> variants = unit.verdict.schedule();
    if (scope->tried && scope->tried->unit == units.key(r) && !is_way(scope->tried->variant))
      variants.push_back(scope->tried->variant);
    if (const VariantHook hook = variant_hook.load(std::memory_order_relaxed)) variants = hook({});
    regions_.regions[r].variants = std::move(variants);
  }
}

void PlanMaker::note_candidates(const plan::Region& r, const Hash128& unit, const UnitVerdict& verdict,
                                std::span<const FusionVariant> variants) {
  VariantScope* const scope = VariantScope::current();
  for (const FusionVariant v : variants)
    if (!verdict.knows(v))
      scope->candidates.push_back(
          {{unit, v}, verdict.in_force(v), kind_of(g_, regions_, r), region_bytes(g_, r)});
}

void PlanMaker::note_schedules(const plan::Region& r, const lower::Lowered& lowered) {
  if (!r.variants) return;
  const auto& [key, verdict] = units_.at(r.outputs.front());
  note_candidates(r, key, verdict, lowered.alternatives);
}

void PlanMaker::choose_way(const plan::Region& r, LibraryCall& l) {
  if (!r.variants) return;
  std::vector<FusionVariant> ways = l.routine->ways(call_without_memory(l, device_));
  for (const FusionVariant v : *r.variants)
    if (std::ranges::find(ways, v) != ways.end()) {
      l.ways.add(v);
      ways = l.routine->ways(call_without_memory(l, device_));
    }
  const auto& [key, verdict] = units_.at(r.outputs.front());
  note_candidates(r, key, verdict, ways);
}

bool PlanMaker::is_like() {
  if (!publish_the_same(*plan_, *like_)) return false;
  std::vector<LateKernel> late = late_kernels([](const KernelRequest&) { return true; });
  if (late.empty()) return true;
  compiling_ = std::make_shared<std::atomic<LateCompile>>(LateCompile::Running);
  compile_later(std::move(late), device_, [compiling = compiling_](const std::exception* e) {
    if (e) log(Topic::Plan, cat("a variant is not tried: ", e->what()));
    compiling->store(e ? LateCompile::Failed : LateCompile::Done, std::memory_order_release);
  });
  return false;
}

Challenger make_challenger(const Walk& walk, ir::Graph graph, const std::vector<ir::NodeId>& ids,
                           const Plan& base, const Choice& choice) {
  const VariantScope scope(choice);
  std::vector<NodeId> donatable;
  if (!base.donated.empty())
    for (const std::uint32_t i : walk.donatable) donatable.push_back(ids[i]);
  PlanMaker maker(walk, std::move(graph), ids, base.device, donatable, false);
  maker.make_like(base);
  std::shared_ptr<const Plan> plan = maker.run();
  return {std::move(plan), maker.compiling()};
}

bool find_difference(const Plan& a, const Plan& b, StepTimer& of_a, StepTimer& of_b) {
  const std::vector<Hash128> x = signatures(a), y = signatures(b);
  if (x == y) return false;
  const std::size_t least = std::min(x.size(), y.size());
  std::size_t begin = 0, end = 0;
  while (begin < least && x[begin] == y[begin]) ++begin;
  while (end < least - begin && x[x.size() - 1 - end] == y[y.size() - 1 - end]) ++end;
  // A plan without a step of its own there is timed with a neighbour.
  if (begin + end == least) begin > 0 ? --begin : end > 0 ? --end : 0;
  if (a.graphs || b.graphs) begin = end = 0;  // a graph is one piece
  const auto whole = [&](const std::vector<Hash128>& steps) {
    return StepTimer{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(steps.size() - end)};
  };
  of_a = whole(x);
  of_b = whole(y);
  return true;
}

bool is_compiled(const Plan& plan) {
  const auto compiled = [](const Launch& l) { return l.kernel && l.kernel->code->compiled(); };
  const auto tiles_compiled = [](const auto& step) {
    return std::ranges::all_of(step->kernels, [](const auto& k) { return k->code->compiled(); });
  };
  return std::ranges::all_of(plan.launches, compiled) && std::ranges::all_of(plan.epilogues, compiled) &&
         std::ranges::all_of(plan.attentions, tiles_compiled) &&
         std::ranges::all_of(plan.pair_sums, tiles_compiled) &&
         std::ranges::all_of(plan.loops, [](const Loop& l) {
           return (!l.condition || is_compiled(*l.condition)) && is_compiled(*l.body);
         });
}

void begin_trial(Plan& plan, std::vector<Candidate> candidates) {
  if (plan.superseded) return;  // by a better one soon
  std::int64_t bytes = 1;
  for (const Candidate& c : candidates) bytes = std::max(bytes, c.bytes);
  std::vector<Candidate> kept;
  std::ranges::stable_sort(candidates, std::ranges::greater{}, &Candidate::bytes);
  for (Candidate& c : candidates) {
    if (static_cast<double>(c.bytes) < kLeastShare * static_cast<double>(bytes)) continue;
    const auto same = [&](const Candidate& other) { return other.choice == c.choice; };
    if (kept.size() < kMostCandidates && std::ranges::none_of(kept, same)) kept.push_back(std::move(c));
  }
  if (kept.empty()) return;
  auto superseded = std::make_shared<std::atomic<bool>>(false);
  plan.superseded = superseded;
  plan.trial = std::make_shared<Trial>(std::move(kept), std::move(superseded));
}

}  // namespace kiln::engine
