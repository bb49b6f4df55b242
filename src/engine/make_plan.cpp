// From a walked trace to a plan: transform, fuse, lower, compile, resolve every buffer.
#include "engine/plan_arena.h"
#include "engine/plan_maker.h"

#include "cache/kernel_cache.h"
#include "device/device.h"
#include "engine/lifetime.h"
#include "engine/plan_variants.h"
#include "engine/replay.h"
#include "inspect/dump.h"
#include "inspect/statistics.h"
#include "ir/custom.h"
#include "ir/layout.h"
#include "plan/joined_halves.h"
#include "plan/made_operands.h"
#include "plan/multiply_bytes.h"
#include "plan/partner_columns.h"
#include "plan/place_results.h"
#include "plan/shared_inputs.h"
#include "plan/turn_windows.h"
#include "plan/window_view.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

namespace kiln::engine {
namespace {

std::atomic<GraphHook> recorded_hook{nullptr};
std::atomic<GraphHook> graph_hook{nullptr};
std::atomic<RegionHook> region_hook{nullptr};
std::atomic<bool> specialises{false};

/// What was wrong inside Kiln while f ran, or nothing. Errors of the caller, of a compiler and of a device
/// pass.
template <class F>
std::optional<std::string> defect_in(F f) {
  try {
    f();
  } catch (const WrongKernel&) {
    throw;
  } catch (const InternalError& e) {
    return e.what();
  } catch (const std::logic_error& e) {  // of the standard library: a look-up that finds nothing
    return cat("[internal] ", e.what());
  }
  return std::nullopt;
}

/// Whether a GPU adds doubles half as fast as floats.
bool has_doubles(const schedule::Target& t) {
  return t.gpu && (t.architecture == 80 || t.architecture == 90 || t.architecture == 100);
}

/// Whether dependent reductions are one kernel that has rows in registers, or columns in shared memory.
bool keeps_rows(const transform::ReducedRows& r, const schedule::Target& t) {
  constexpr std::int64_t kMostColumn = (112 << 10) / 64, kShortColumn = 8, kWord = 4;
  const schedule::NormFacts n{
      .rows = r.rows, .length = r.length, .columns = r.columns, .run = r.run, .bytes = r.bytes};
  if (!schedule::refuse_norm(n, t).empty()) return false;
  if (!r.columns) return r.length <= t.held;
  return r.length < kShortColumn || (r.length <= kMostColumn && r.run * r.bytes % kWord == 0);
}

transform::ReductionCosts reduction_costs(const schedule::Target& target) {
  transform::ReductionCosts costs{target.run_bytes,
                                  target.launch_ns * target.bytes_per_ns,
                                  target.gpu ? 0 : schedule::kMostFolded,
                                  target.threads,
                                  target.gpu ? 0 : schedule::kMostSlab,
                                  target.held,
                                  !target.gpu,
                                  {}};
  if (target.gpu)
    costs.keeps_groups = [&target](const transform::ReductionCosts::Columns& c) {
      return schedule::grouped_columns({c.items, c.rows, c.columns, c.together, c.bytes}, 1, target) > 0;
    };
  return costs;
}

/// Products of halves by a library whose tensor cores want rows that begin at 16 bytes.
transform::PadCosts pad_costs(const schedule::Target& target) {
  constexpr double kSlow = 14, kFast = 70;  // of an addition or multiplication, in primitives at a time
  return {.slow_per_ns = kSlow * target.prims_per_ns,
          .fast_per_ns = kFast * target.prims_per_ns,
          .launch_ns = target.launch_ns,
          .moved_ns = [&target](double bytes) { return target.traffic_ns(bytes); },
          .by_others =
              [&target](const ir::Graph& g) {
                std::vector<bool> out = plan::tiled_nodes(g, target);
                const auto any = [](ir::NodeId, const plan::WindowView&) { return true; };
                for (const auto& [product, windows] : plan::products_of_windows(g, target, any))
                  out[product] = true;
                for (ir::NodeId id = 0; id < g.size(); ++id)
                  out[id] = out[id] || (g[id].op == ir::Op::matmul && plan::reads_operand_once(g, id));
                return out;
              }};
}

/// What products want whose operands a GPU's tensor cores read.
void use_tensor_cores(transform::Wishes& w, const schedule::Target& target) {
  if (target.templates >= schedule::Target::Templates::Few)
    w.turns_windows = [&target](ir::Graph& g) { return plan::turn_windows(g, target); };
  if (target.templates < schedule::Target::Templates::All) w.pads = pad_costs(target);
}

/// What a CPU's kernels make of few operations rather than read.
void make_in_kernels(transform::Wishes& w, const schedule::Target& target) {
  constexpr int kFewMaps = 4;
  constexpr int kWays = 8;  // rows of a matrix, pages apart, that the first cache holds side by side
  w.seconds = {.seconds = true, .most_maps = kFewMaps};
  w.writes_out = transform::TermCosts{
      .most_products = kWays, .terms_per_ns = target.prims_per_ns, .moved_ns = [&target](double bytes) {
        return target.launch_ns + target.traffic_ns(bytes);
      }};
}

}  // namespace

transform::Wishes wishes(const schedule::Target& target, Device device) {
  transform::Wishes w;
  w.patterns = transform::PatternTarget{device, target.strict, target.exact};
  w.blocks = block_costs(target);
  if (target.attentions && !target.strict)
    w.tiled = [&target](const ir::Graph& g) { return plan::tiled_nodes(g, target); };
  if (target.strict) {
    w.products_as_sums = target.gpu;
    return w;
  }
  w.finds_products = true;
  w.vectors = transform::VectorCosts{};
  if (target.gpu) {
    w.vectors = transform::VectorCosts{
        .apart = true, .most_terms = 1024, .most_across = 64, .most_of_two = 64, .least_sums = 1 << 16};
    w.most_nested = 16;
    w.seconds = {.seconds = true, .by_values = true};
    w.finds_logsumexps = true;
    if (has_doubles(target))
      w.keeps_rows = [&target](const transform::ReducedRows& r) { return keeps_rows(r, target); };
    w.writes_out =
        transform::TermCosts{.most_terms = 4, .most_products = 8, .most_stored = 2, .of_windows = 160};
    if (target.templates >=
        schedule::Target::Templates::Few) {  // a main loop for nests (lower/region_pairs.cpp)
      w.nests = transform::NestCosts{.rows = 96,
                                     .results = (1 << 15) * target.threads,
                                     .pairs = schedule::kPairs * target.threads,
                                     .most_terms = 256,
                                     .most_of_halves = 40};
      w.writes_out->nests = *w.nests;
    }
  } else {
    make_in_kernels(w, target);
  }
  w.sums_batches = !target.gpu;
  w.reuses_products = target.gpu && target.pair_sums;
  w.reductions = reduction_costs(target);
  w.shares_reductions = target.gpu;
  w.arranges = 16;
  w.aligns_orders = !target.gpu;
  w.reduces_in_order = true;
  w.extremes = true;
  w.narrow_indices = true;
  constexpr int kAmpere = 80;
  if (target.gpu && target.architecture >= kAmpere) use_tensor_cores(w, target);
  if (plan::multiplies_float8(target))
    w.multiplies_bytes = [&target](ir::Graph& g) { return plan::multiply_bytes(g, target); };
  if (target.gpu && target.attentions) {
    w.places_results = plan::place_results;
    w.keys = transform::KeyCosts{.blocks = target.threads, .small_blocks = 8 * target.threads};
  }
  if (target.scans > 0) {
    w.scans = transform::ScanCosts{target.scans};
    w.scans->slab_bytes = schedule::kBunchBytes;
    w.scans->row_bytes = schedule::kBunchBytes / schedule::kBunchThreads;
  }
  return w;
}

std::shared_ptr<Plan> PlanMaker::run() {
  store_pinning_nodes();
  if (const GraphHook hook = graph_hook.load(std::memory_order_relaxed)) hook(g_);
  donate();
  bool made = false;
  const auto defect = defect_in([&] { made = plan_with(plan::Fusion::Full); });
  if (!defect) return made ? plan_ : nullptr;
  if (!donatable_.empty() || like_) return nullptr;
  const std::string what = *defect + in_region();
  if (defect_in([&] { plan_with(plan::Fusion::None); })) throw CompileError(what);
  count(Counter::Fallbacks);
  warn(what + "; its operations were planned one by one");
  return plan_;
}

bool PlanMaker::plan_with(plan::Fusion fusion) {
  if (!make_steps(fusion)) return false;
  if (like_ && !is_like()) return false;
  if (replaceable_ && !answer_meanwhile(fusion)) return false;
  log_refusals();
  prepare_graphs();
  count(Counter::PlanNs, static_cast<std::uint64_t>((std::chrono::steady_clock::now() - start_).count()));
  compile();
  if (before_) report();
  return true;
}

/// Few intermediates are each graph's own; many lie in a block that the plan takes from the pool in each run,
/// if that leaves most of the memory to others.
void PlanMaker::prepare_graphs() {
  constexpr std::uint64_t kFewBytes = 16 << 20, kMostShare = 8;
  if (!suits_graph(*plan_)) return;
  std::uint64_t bytes = 0;
  for (const Plan::BufferPlan& b : plan_->buffers)
    if (!b.result) bytes += b.bytes;
  if (bytes > kFewBytes) {
    if (plan_->argument_bytes.empty())
      lay_out_arena(*plan_, device::at(device_).memory_use().limit / kMostShare);
    if (plan_->arena_bytes == 0) return;
  }
  plan_->graphs = std::make_unique<PlanGraphs>();
}

bool PlanMaker::make_steps(plan::Fusion fusion) {
  plan_ = std::make_shared<Plan>();
  lowered_.clear();
  tile_kernels_.clear();
  region_of_launch_.clear();
  for (auto* regions : {&region_of_library_, &region_of_loop_, &region_of_attention_, &region_of_pair_sums_})
    regions->clear();
  epilogues_.clear();
  classes_.clear();
  at_ = nullptr;
  plan::Orders orders;
  for (const transform::PatternNote& note : t_.notes)
    if (note.why.reason() == FusionReason::UserApart) orders.apart.push_back({note.last, note.why});
  regions_ = plan::fuse(g_, planning_target(device_), fusion, orders);
  if (VariantScope::current() && fusion == plan::Fusion::Full) choose_variants(std::move(orders));
  for (const transform::PatternNote& note : t_.notes)
    if (note.why.reason() != FusionReason::UserApart && !is_idle(note))
      regions_.refusals.push_back({note.first, note.last, note.why});
  if (fusion == plan::Fusion::Full) share_main_loops();
  regions_.placements = donations_.placements;
  reuse();
  buffer_of_.assign(g_.size(), -1);
  overwritten_.assign(g_.size(), false);
  plan_->device = device_;
  plan_->n_nodes = static_cast<std::uint32_t>(walk_.nodes.size());
  if (dumps_runs()) note_argument_bytes();
  accesses_.assign(g_.args.size(), {});
  overlaps_ = false;
  if (config().mode == Mode::Lazy)
    plan::join_product_rows(g_, regions_, [&](const plan::ProductRow& parts) { return library_adds(parts); });
  add_regions();
  choose_makers();
  add_results();
  if (overwrites_too_early(reused_)) {
    reuses_ = false;
    return make_steps(fusion);
  }
  if (overwrites_too_early(donations_.args)) return false;
  plan_->donated = donations_.args;
  plan_->donated.insert(plan_->donated.end(), reused_.begin(), reused_.end());
  make_in_pieces();
  find_classes();
  group();
  set_lifetimes(*plan_);
  check_budget();
  return true;
}

/// Whether a product that was not cut into blocks is stored nowhere: an attention has it, for example.
bool PlanMaker::is_idle(const transform::PatternNote& note) const {
  return note.why.reason() != FusionReason::InBlocks &&
         pattern_of(note.why.reason()) == FusionPattern::RowBlocks && !regions_.stored[note.first];
}

/// What main loops of products do beside the maps of their results: make operands, and several products.
void PlanMaker::share_main_loops() {
  const schedule::Target& target = planning_target(device_);
  plan::make_operands(g_, regions_, [&](std::span<const plan::MadeOperand> made) {
    return lower::makes_operands(g_, regions_, made, target);
  });
  if (!target.gpu) return;
  plan::join_partners(g_, target, regions_, [&](const plan::Region& all) {
    return lower::meets_partners(g_, regions_, all, target);
  });
  plan::share_launches(g_, target, regions_, [&](const plan::Region& a, const plan::Region& b) {
    return lower::shares_launch(g_, regions_, a, b, target);
  });
  plan::join_halves(g_, target, regions_,
                    [&](const plan::Region& r) { return lower::shares_halves(g_, regions_, r); });
}

void PlanMaker::note_argument_bytes() {
  for (const ir::ArgInfo& arg : g_.args) {
    std::int64_t first = 0, last = 0;  // elements
    for (std::size_t d = 0; d < arg.dims.size(); ++d)
      (arg.strides[d] < 0 ? first : last) += (arg.dims[d] - 1) * arg.strides[d];
    const std::int64_t size = size_of(arg.dtype), elements = ir::element_count(arg.dims);
    plan_->argument_bytes.emplace_back(elements ? -first * size : 0,
                                       static_cast<std::uint64_t>(elements ? (last - first + 1) * size : 0));
  }
}

std::string PlanMaker::in_region() const {
  if (!at_) return {};
  const ir::GraphNode& n = g_[at_->outputs.front()];
  return cat(" (in a kernel of ", op_names(g_, *at_), ", recorded at ", n.loc.file_name(), ":", n.loc.line(),
             ")");
}

void PlanMaker::find_classes() {
  if (config().check_key || config().check_diff) verify_kernels();
  for (const auto& l : lowered_)
    classes_.push_back({kernel::hash(l->kernel), device::at(device_).most_instances(l->kernel)});
}

void PlanMaker::verify_kernels() {
  for (std::size_t i = 0; i < lowered_.size(); ++i) {
    at_ = region_of_launch_[i];
    kernel::verify(lowered_[i]->kernel);
  }
  for (const EpilogueOf& e : epilogues_) {
    at_ = e.region;
    kernel::verify(e.lowered->kernel);
  }
  for (const TileLowered& t : tile_kernels_) {
    at_ = t.region;
    kernel::verify(t.lowered->kernel);
  }
  at_ = nullptr;
}

void PlanMaker::group() {
  const bool any =
      std::any_of(classes_.begin(), classes_.end(), [](const LaunchClass& c) { return c.most > 1; });
  if (plan_->launches.size() < 2 || !any || plan_->again > 0)
    return;  // what runs again would join its first run
  const std::vector<std::uint32_t> order = group_launches(*plan_, classes_);
  const auto reorder = [&](auto& list) {
    std::remove_reference_t<decltype(list)> out;
    for (std::uint32_t i : order) out.push_back(std::move(list[i]));
    list = std::move(out);
  };
  reorder(lowered_);
  reorder(region_of_launch_);
  reorder(classes_);
}

std::vector<KernelRequest> PlanMaker::kernel_requests() {
  std::vector<KernelRequest> requests;
  for (const Step& step : plan_->steps) {
    if (step.kind != Step::Kind::Launch) continue;
    const kernel::Kernel& k = lowered_[step.index]->kernel;
    requests.push_back({&k, classes_[step.index].key, device_,
                        device::at(device_).room_for(k, static_cast<int>(step.count)), nullptr,
                        Verdict::Memory, g_[region_of_launch_[step.index]->outputs.front()].loc});
  }
  const auto add = [&](const kernel::Kernel& k, const plan::Region& r) {
    requests.push_back({&k, kernel::hash(k), device_, 1, nullptr, Verdict::Memory, g_[r.nodes.front()].loc});
  };
  for (const EpilogueOf& e : epilogues_) add(e.lowered->kernel, *e.region);
  for (const TileLowered& t : tile_kernels_) add(t.lowered->kernel, *t.region);
  return requests;
}

void PlanMaker::compile() {
  std::vector<KernelRequest> requests = kernel_requests();
  std::vector<Step> steps;
  for (const Step& step : plan_->steps)
    if (step.kind == Step::Kind::Launch) steps.push_back(step);
  if (requests.empty()) return;
  try {
    obtain(requests);
  } catch (const InternalError&) {
    verify_kernels();  // the one that is not well formed is named
    throw;
  }
  const auto take = [](Launch& l, const KernelRequest& made) {
    l.kernel = made.result;
    l.code = l.kernel->code;
    l.instances = l.kernel->instances;
    l.verdict = made.verdict;
  };
  for (std::size_t i = 0; i < epilogues_.size(); ++i) {
    const KernelRequest& made = requests[steps.size() + i];
    take(plan_->epilogues[i], made);
    if (!config().dump.empty())
      dump_kernel(g_, regions_, *epilogues_[i].region, *epilogues_[i].lowered, *made.result, device_);
  }
  for (std::size_t t = 0; t < tile_kernels_.size(); ++t) {
    const KernelRequest& made = requests[steps.size() + epilogues_.size() + t];
    tile_kernels_[t].launch->code = made.result->code;
    tile_kernels_[t].step->kernels.push_back(made.result);
    tile_kernels_[t].kernel = made.result;
    tile_kernels_[t].verdict = made.verdict;
    if (!config().dump.empty())
      dump_kernel(g_, regions_, *tile_kernels_[t].region, *tile_kernels_[t].lowered, *made.result, device_);
  }
  for (std::size_t r = 0; r < steps.size(); ++r) {
    for (std::uint32_t i = steps[r].index; i < steps[r].index + steps[r].count; ++i) {
      take(plan_->launches[i], requests[r]);
    }
    device::at(device_).prepare(plan_->launches[steps[r].index]);
    const std::uint32_t first = steps[r].index;
    if (!config().dump.empty())
      dump_kernel(g_, regions_, *region_of_launch_[first], *lowered_[first], *requests[r].result, device_);
  }
}

void PlanMaker::log_refusals() {
  if (!log_enabled(Topic::Plan)) return;
  log(Topic::Plan,
      cat("plan of ", g_.size(), " nodes for ", device::at(device_).name(), ": ", regions_.regions.size(),
          " kernels and library steps, ", regions_.refusals.size(), " boundaries"));
  for (const plan::Refusal& f : regions_.refusals)
    log(Topic::Plan,
        cat(ir::name_of(g_[f.producer]), " | ", ir::name_of(g_[f.consumer]), ": ", f.why.text()));
}

namespace {

std::shared_ptr<Plan> made_plan(const Walk& walk, ir::Graph graph, const std::vector<NodeId>& ids,
                                Device device, const std::vector<NodeId>& donatable, bool replaceable) {
  if (const GraphHook hook = recorded_hook.load(std::memory_order_relaxed)) hook(graph);
  std::shared_ptr<Plan> plan;
  const auto defect =
      defect_in([&] { plan = PlanMaker(walk, std::move(graph), ids, device, donatable, replaceable).run(); });
  if (defect) throw CompileError(*defect);  // of what comes before regions
  return plan;
}

}  // namespace

void set_recorded_hook(GraphHook hook) { recorded_hook.store(hook); }
void set_graph_hook(GraphHook hook) { graph_hook.store(hook); }
void set_region_hook(RegionHook hook) { region_hook.store(hook); }
void specialise_kernels(bool on) { specialises.store(on); }
RegionHook current_region_hook() { return region_hook.load(std::memory_order_relaxed); }
bool specialises_kernels() { return specialises.load(std::memory_order_relaxed); }

namespace {

std::shared_ptr<Plan> plan_of(const Walk& walk, ir::Graph graph, const std::vector<NodeId>& ids,
                              Device device, const std::vector<NodeId>& donatable, bool replaceable) {
  static const std::vector<NodeId> nothing;
  keep_binaries_on_disk();
  if (!donatable.empty()) {
    // The copy's extents lie in the graph's memory, which stays.
    if (std::shared_ptr<Plan> plan = made_plan(walk, graph, ids, device, donatable, replaceable)) return plan;
  }
  return made_plan(walk, std::move(graph), ids, device, nothing, replaceable);
}

}  // namespace

std::shared_ptr<const Plan> make_plan(const Walk& walk, ir::Graph graph, const std::vector<ir::NodeId>& ids,
                                      Device device) {
  const CompileTicket ticket;
  std::vector<NodeId> donatable;
  for (std::uint32_t i : walk.donatable) donatable.push_back(ids[i]);
  const Config& c = config();
  if (c.adapt == Adapt::Off || c.mode != Mode::Lazy) [[likely]]
    return plan_of(walk, std::move(graph), ids, device, donatable, true);
  VariantScope scope;
  const std::shared_ptr<Plan> plan = plan_of(walk, std::move(graph), ids, device, donatable, true);
  if (c.adapt != Adapt::Kept && c.tier != Tier::Vm) begin_trial(*plan, std::move(scope.candidates));
  return plan;
}

std::shared_ptr<const Plan> make_plan(ir::Graph graph, Device device, const std::vector<NodeId>& donatable) {
  Walk walk;  // of nothing recorded: its nodes are the roots
  std::vector<NodeId> ids = graph.roots;
  walk.nodes.assign(ids.size(), nullptr);
  for (std::uint32_t i = 0; i < ids.size(); ++i) walk.roots.push_back(i);
  return plan_of(walk, std::move(graph), ids, device, donatable, false);
}

}  // namespace kiln::engine
