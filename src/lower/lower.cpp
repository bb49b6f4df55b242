// From pulled entries to a Kernel: collapse axes while sizes are known, ask for a schedule, then abstract
// every size into a parameter and build the loops.
//
// Parameters have roles (this load's stride over that axis, the extent of that axis …): one role is one
// parameter whatever its value, so regions that differ in sizes only give equal kernels. Only strides 0 and 1
// are baked.
#include "lower/lower.h"

#include "kernel/canonical.h"
#include "kernel/specialise.h"
#include "lower/attention_kernel.h"
#include "lower/end_early.h"
#include "lower/region_lowering.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace kiln::lower {

constexpr double kAssumedIterations = 32;  // of a loop, for want of anything better

Lowered RegionLowering::run() {
  make();
  return std::move(out_);
}

void RegionLowering::make() {
  measure();
  out_.overlaps = reads_what_it_writes();
  product_ == ir::kNoNode ? collapse() : collapse_product();
  product_ == ir::kNoNode ? choose() : choose_product();
  mark_uses();
  find_rough();
  declare_accs();
  build_loops();
  compensate_sums();
  complete();
}

/// Before the first expression.
void RegionLowering::begin() {
  // A loop would amplify the last bits of a product: what goes through one is computed as it is written.
  k_.fma = target_.fma && !target_.strict && p_.loops.empty();
  k_.exact = k_.pool.exact = target_.exact;
  memo_.assign(p_.entries.size(), E{});
  axis_.assign(groups_.size(), E{});
}

void RegionLowering::build_loops() {
  begin();
  switch (s_.form) {
    case Form::Flat:
    case Form::Rows: phases_ == 0 && scans_.empty() ? build_map() : build_rows(); break;
    case Form::Tiles: build_tiles(); break;
    case Form::Columns:
      s_.fold == 0 ? build_columns() : target_.gpu ? build_grouped() : build_folded();
      break;
    case Form::Bunch: target_.gpu ? build_bunch() : build_turned(); break;
    case Form::Stripes: build_stripes(); break;
    case Form::Split:
    case Form::SplitColumns: row_place_ >= 0 ? build_both_ways() : build_split(); break;
    case Form::Chain: build_chain(); break;
    case Form::Product: build_product(); break;
    case Form::Nest: build_nest(); break;
    case Form::Slab: build_slab(); break;
  }
}

/// Whether a loop runs an accumulator's updates a known and small number of times.
static bool is_short(const LoopDecl& l, std::uint32_t acc) {
  const auto updates = [&](const Stmt& s) { return s.kind == Stmt::Kind::Update && s.target == acc; };
  return l.kind == LoopKind::Vector && l.steps > 0 && std::any_of(l.body.begin(), l.body.end(), updates);
}

/// A thread of a GPU adds up any number of values one after the other: sums of an unknown number are
/// compensated.
void RegionLowering::compensate_sums() {
  if (!target_.gpu || target_.strict) return;
  std::vector<bool> read_inside(k_.accs.size());  // scans, of which every value is a result
  for (kernel::ExprId e = 0; e < k_.pool.size(); ++e)
    if (const kernel::ExprNode& n = k_.pool[e]; n.prim == Prim::Running || n.prim == Prim::Before)
      read_inside[n.imm] = true;
  for (const LoopDecl& l : k_.loops)
    for (const std::uint32_t acc : l.accs) {
      AccDecl& a = k_.accs[acc];
      a.compensated = a.monoid == Monoid::Sum && a.type == DType::Float32 && !read_inside[acc] &&
                      !is_short(l, acc) && !(acc < bounded_.size() && bounded_[acc]);
    }
}

/// Accumulators belong to their reductions, also where no value of the kernel is their result.
void RegionLowering::note_reductions() {
  origins_.resize(k_.pool.size(), ir::kNoNode);
  for (kernel::ExprId e = 0; e < k_.pool.size(); ++e) {
    const kernel::ExprNode& n = k_.pool[e];
    if (n.prim != Prim::Acc || origins_[e] != ir::kNoNode) continue;
    for (const Reduction& r : reductions_)
      if (r.acc == n.imm || r.final_acc == n.imm) origins_[e] = p_.entries[r.entry].node;
  }
}

/// Where nothing is divided along vectors, what quotients along them may be tells no kernels apart.
void RegionLowering::forget_quotients() {
  std::vector<bool> is_lane(k_.n_vars), varies(k_.pool.size());
  for (const LoopDecl& l : k_.loops)
    if (l.kind == LoopKind::Vector) is_lane[l.var] = true;
  for (kernel::ExprId e = 0; e < k_.pool.size(); ++e) {
    const kernel::ExprNode& n = k_.pool[e];
    varies[e] = n.prim == Prim::Var && is_lane[n.imm];
    kernel::each_operand(n, [&](kernel::ExprId o) { varies[e] = varies[e] || varies[o]; });
    if (n.prim == Prim::IndexDiv && varies[e]) return;
  }
  for (LoopDecl& l : k_.loops)
    if (l.kind == LoopKind::Vector) l.again = false;
}

/// The kernel's totals, and the figures that the launch decides threading by.
void RegionLowering::complete() {
  k_.n_params = static_cast<std::uint32_t>(out_.params.size());
  k_.threads = s_.threads;
  if (target_.gpu) k_.threads.narrow = (product_ == ir::kNoNode || narrow_) && index_is_narrow();
  out_.form = s_.form;
  if (!target_.gpu && product_ == ir::kNoNode &&
      std::ranges::none_of(p_.outputs, [&](const Pulled::Output& o) {
        return regions_.placements.contains(o.node);  // an argument's memory, which the kernel may read
      }))
    end_early(k_, out_.params);
  if (target_.gpu) forget_quotients();
  note_reductions();
  out_.origins = std::move(origins_);
  double points = 1;
  for (const Group& g : groups_) points *= static_cast<double>(g.extent);
  if (!target_.gpu)
    for (AccDecl& a : k_.accs) a.narrow = positional(a.monoid) && points < 0x1p31;
  double iterations = p_.loops.empty() ? 1 : kAssumedIterations;
  for (const LoopRun& run : p_.loops) iterations = std::max(iterations, static_cast<double>(run.count));
  points *= iterations;
  out_.work = points * static_cast<double>(std::max(prims_, 1.0f));
  out_.grain = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(out_.grid) * 16384.0 / std::max(points, 1.0)));
  if (s_.one_thread) out_.grain = std::max<std::int64_t>(1, out_.grid);
}

/// Gives the kernel its canonical numbers, and what the launch binds with it.
static void number(Lowered& lowered) {
  const kernel::OldNumbers old = kernel::canonicalise(lowered.kernel);
  const auto reorder = [](auto& list, const std::vector<std::uint32_t>& numbers) {
    std::remove_reference_t<decltype(list)> out;
    out.reserve(numbers.size());
    for (const std::uint32_t n : numbers) out.push_back(std::move(list[n]));
    list = std::move(out);
  };
  reorder(lowered.params, old.params);
  reorder(lowered.slots, old.slots);
  reorder(lowered.buffers, old.buffers);
  const auto renumber = [](std::int32_t& number, const std::vector<std::uint32_t>& numbers) {
    const auto at = std::find(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(number));
    number = number < 0 || at == numbers.end() ? -1 : static_cast<std::int32_t>(at - numbers.begin());
  };
  for (std::int32_t& p : lowered.given) renumber(p, old.params);
  renumber(lowered.given_buffer, old.buffers);
  std::vector<plan::NodeId> origins(lowered.kernel.pool.size(), ir::kNoNode);
  for (std::size_t e = 0; e < lowered.origins.size(); ++e)
    if (old.expressions[e] != kernel::kNoExpr) origins[old.expressions[e]] = lowered.origins[e];
  lowered.origins = std::move(origins);
  for (device::TiledBuffer& t : lowered.tiled)
    t.buffer = static_cast<std::uint32_t>(std::find(old.buffers.begin(), old.buffers.end(), t.buffer) -
                                          old.buffers.begin());
}

Lowered lower(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region,
              const schedule::Target& target) {
  if (region.kind == plan::Region::Kind::Attention)
    return lower_attention(graph, *regions.attentions[static_cast<std::size_t>(region.tiled)], target);
  RegionLowering lowering(graph, regions, region.parts.empty() ? region : region.parts.front(), target);
  Lowered out =
      region.parts.empty() ? lowering.run() : lowering.run_together(std::span(region.parts).subspan(1));
  number(out);
  for (Lowered& behind : out.then) {
    behind = RegionLowering(graph, regions, region, target).run_behind();
    number(behind);
  }
  if (lowering.knows_sizes()) {
    out.kernel = kernel::specialise(out.kernel, out.params);
    out.origins.clear();
  }
  return out;
}

}  // namespace kiln::lower
