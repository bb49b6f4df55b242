// What a plan hands to reports of fusion: which kernels and calls run a region, and why values are stored.
#include "device/device.h"
#include "engine/plan_maker.h"
#include "ir/layout.h"

#include <kiln/config.h>

#include <algorithm>

namespace kiln::engine {
namespace {

/// The memory that an operand shows; of rows or columns at offsets no more than lies between the first and
/// the last.
std::int64_t bytes_of(const ArrayOperand& o) {
  const std::vector<std::int64_t>* const tables[] = {&o.col_offsets, &o.row_offsets};  // from the last axis
  std::int64_t n = 1, matrix = 1, last = 0;
  bool any = false;
  for (std::size_t d = o.dims.size(), i = 0; d-- > 0; ++i) {
    const bool table = i < 2 && !tables[i]->empty();
    any |= table;
    if (i < 2) last += table ? std::ranges::max(*tables[i]) : (o.dims[d] - 1) * std::abs(o.strides[d]);
    if (table || o.strides[d] != 0) (i < 2 ? matrix : n) *= o.dims[d];
  }
  return n * (any ? std::min(matrix, last + 1) : matrix) * size_of(o.dtype);
}

/// Operands and the result; that of a product with an epilogue goes to no memory.
std::int64_t bytes_of(const LibraryCall& l) {
  std::int64_t bytes = 0;
  for (const ArrayOperand& o : l.operands)
    if (o.place.kind != Place::Kind::None) bytes += bytes_of(o);  // else it is made on the way
  return l.epilogue >= 0 ? bytes : bytes + ir::element_count(l.dims) * size_of(l.dtype);
}

std::int64_t bytes_of(const plan::MatrixMemory& m, const ir::Graph& g) {
  return g[m.base].numel * size_of(m.dtype);
}

}  // namespace

NewKernels new_kernels(const Plan& plan) {
  NewKernels out;
  if (config().tier == Tier::Vm) return out;
  const auto add = [&](const CachedKernel& k, Verdict verdict) {
    if (verdict != Verdict::Compiled && verdict != Verdict::Vm) return;
    ++out.kernels;
    out.ns += k.compile_ns.load(std::memory_order_relaxed);
  };
  for (const Step& s : plan.steps)
    if (s.kind == Step::Kind::Launch) add(*plan.launches[s.index].kernel, plan.launches[s.index].verdict);
  for (const Launch& l : plan.epilogues) add(*l.kernel, l.verdict);
  for (const Loop& l : plan.loops)
    for (const auto& inner : {l.condition, l.body}) {
      if (!inner) continue;
      const NewKernels more = new_kernels(*inner);
      out.kernels += more.kernels;
      out.ns += more.ns;
    }
  return out;
}

void PlanMaker::note_steps(const plan::Region& r) {
  region_of_library_.resize(plan_->library.size(), &r);
  region_of_loop_.resize(plan_->loops.size(), &r);
  region_of_attention_.resize(plan_->attentions.size(), &r);
  region_of_pair_sums_.resize(plan_->pair_sums.size(), &r);
}

double PlanMaker::gain_of(const plan::Region& r) const {
  const auto unit = r.variants ? units_.find(r.outputs.front()) : units_.end();
  return unit == units_.end() ? 0 : unit->second.verdict.gain();
}

/// Adds what a step is to the facts of its regions; `facts_of` finds these.
void PlanMaker::add_facts(const Step& s, const std::function<RegionFacts&(const plan::Region*)>& facts_of) {
  const auto add_tiles = [&](const TileStep& step, RegionFacts& f) {
    f.library = f.tiles = true;
    for (const TileLowered& t : tile_kernels_)
      if (t.step == &step) f.kernels.push_back({t.lowered.get(), t.kernel, t.verdict});
  };
  switch (s.kind) {
    case Step::Kind::Launch:
      for (std::uint32_t i = s.index; i < s.index + s.count; ++i) {
        const Launch& l = plan_->launches[i];
        auto& kernels = facts_of(region_of_launch_[i]).kernels;
        // a second launch of the same kernel is no further kernel
        const bool again = !lowered_[i]->again.empty() && !kernels.empty() && kernels.back().code == l.kernel;
        if (!again) kernels.push_back({lowered_[i].get(), l.kernel, l.verdict});
        if (lowered_[i]->kernel.tally) facts_of(region_of_launch_[i]).stored = false;
      }
      break;
    case Step::Kind::Library: {
      const LibraryCall& l = plan_->library[s.index];
      RegionFacts& f = facts_of(region_of_library_[s.index]);
      f.library = true;
      f.library_bytes = bytes_of(l);
      const auto add = [&](std::int32_t kernel, RegionFacts& to) {
        const auto e = static_cast<std::size_t>(kernel);
        to.kernels.push_back(
            {epilogues_[e].lowered.get(), plan_->epilogues[e].kernel, plan_->epilogues[e].verdict});
      };
      if (l.epilogue >= 0) add(l.epilogue, f);
      if (l.maker >= 0) {
        RegionFacts& of = facts_of(epilogues_[static_cast<std::size_t>(l.maker)].region);
        add(l.maker, of);
        of.stored = false;
      }
      break;
    }
    case Step::Kind::Loop: facts_of(region_of_loop_[s.index]).library = true; break;
    case Step::Kind::Attention: {
      const AttentionStep& a = *plan_->attentions[s.index];
      RegionFacts& f = facts_of(region_of_attention_[s.index]);
      for (const plan::MatrixMemory* m : {&a.what->q, &a.what->k, &a.what->v})
        f.library_bytes += bytes_of(*m, g_);
      const ir::GraphNode& result = g_[a.what->product];
      f.library_bytes += result.numel * size_of(result.dtype);
      add_tiles(a, f);
      break;
    }
    case Step::Kind::PairSums: {
      const PairSumsStep& p = *plan_->pair_sums[s.index];
      RegionFacts& f = facts_of(region_of_pair_sums_[s.index]);
      for (const plan::PairSums::Product& of : p.what->products)
        f.library_bytes += bytes_of(of.x, g_) + bytes_of(of.y, g_);
      for (const plan::PairSums::Sum& x : p.what->sums)
        f.library_bytes += bytes_of(x.other, g_) + g_[x.node].numel * size_of(x.dtype);
      add_tiles(p, f);
      break;
    }
  }
}

void PlanMaker::report() {
  std::vector<RegionFacts> facts;
  std::vector<std::vector<std::uint32_t>> regions_of_step;
  const auto facts_of = [&](const plan::Region* r) -> RegionFacts& {
    auto at = std::find_if(facts.begin(), facts.end(), [&](const RegionFacts& f) { return f.region == r; });
    if (at == facts.end()) {
      at = facts.insert(at, RegionFacts{r, {}});
      at->gain = gain_of(*r);
    }
    const auto index = static_cast<std::uint32_t>(at - facts.begin());
    if (std::ranges::find(regions_of_step.back(), index) == regions_of_step.back().end())
      regions_of_step.back().push_back(index);
    return *at;
  };
  for (const Step& s : plan_->steps) {
    regions_of_step.emplace_back();
    add_facts(s, facts_of);
  }
  FusionReport out = fusion_report(g_, regions_, facts, *before_, planning_target(device_), device_);
  out.device = device::at(device_).name();
  out.after.peak_bytes = static_cast<std::int64_t>(peak_bytes(*plan_));
  out.after.again = plan_->again;
  std::vector<const PlanReport*> loops;
  for (const Loop& l : plan_->loops)
    for (const auto* part : {&l.condition, &l.body})
      if (*part && (*part)->report) {
        loops.push_back((*part)->report.get());
        out.loops.push_back(*loops.back()->now());
      }
  std::vector<std::vector<PlanReport::Code>> code;
  for (const RegionFacts& f : facts) {
    code.emplace_back();
    for (const RegionFacts::Kernel& k : f.kernels) code.back().push_back({k.code, k.verdict});
  }
  plan_->stored = stored_values();
  plan_->report = std::make_unique<PlanReport>(std::move(out), std::move(regions_of_step), std::move(code),
                                               std::move(loops));
}

std::vector<FusionReport::Stored> PlanMaker::stored_values() const {
  const std::size_t recorded_roots = walk_.roots.size() + walk_.stored.size();
  std::vector<FusionReport::Stored> out;
  for (const Plan::Result& r : plan_->results) {
    const NodeId id = t_.now[ids_[r.position]];
    const auto roots = std::span(g_.roots);
    const bool learned = std::ranges::find(walk_.stored, r.position) != walk_.stored.end();
    const bool pinning =
        roots.size() > recorded_roots && std::ranges::find(roots.subspan(recorded_roots), id) != roots.end();
    const StoredBecause why = r.root    ? StoredBecause::Requested
                              : learned ? StoredBecause::Learned
                              : pinning ? StoredBecause::Pinning
                                        : StoredBecause::InMemory;
    out.push_back({id, why, g_[id].numel * size_of(g_[id].dtype)});
  }
  return out;
}

}  // namespace kiln::engine
