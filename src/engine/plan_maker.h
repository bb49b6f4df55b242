// PlanMaker: one evaluation's way from a graph to a plan. make_plan.cpp has its order, plan_steps.cpp the
// steps and the memory that they use, plan_results.cpp what is kept of them.
#pragma once

#include "cache/kernel_cache.h"
#include "engine/group_launches.h"
#include "engine/plan.h"
#include "engine/plan_variants.h"
#include "engine/verdicts.h"
#include "inspect/fusion_builder.h"
#include "lower/lower.h"
#include "plan/donate.h"
#include "plan/fit_memory.h"
#include "plan/fuse.h"
#include "plan/made_operands.h"
#include "plan/product_rows.h"
#include "transform/transform.h"

#include <kiln/config.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace kiln::engine {

struct TileGraph;

/// A kernel with its key, for a thread that outlives the plan.
struct LateKernel {
  std::shared_ptr<const kernel::Kernel> kernel;
  Hash128 key;
  int instances;
};
/// Obtains kernels in the background; then calls `done`, with what went wrong or null.
void compile_later(std::vector<LateKernel> late, Device device,
                   std::function<void(const std::exception*)> done);

using ir::NodeId;

/// What a target wants of transform().
transform::Wishes wishes(const schedule::Target& target, Device device);

/// How large blocks of a product's rows are; nothing: it is switched off.
std::optional<transform::BlockCosts> block_costs(const schedule::Target& target);

/// Called with every graph as it was recorded, before the passes that a target wants, for tests: another
/// target wants other passes. Null: none.
void set_recorded_hook(GraphHook hook);

class PlanMaker {
 public:
  /// `donatable`: leaves of the graph that may be overwritten. `replaceable`: the plan may be one that
  /// answers while a better one's kernels are compiled.
  PlanMaker(const Walk& walk, ir::Graph graph, const std::vector<NodeId>& ids, Device device,
            const std::vector<NodeId>& donatable, bool replaceable)
      : device_(device),
        replaceable_(replaceable),
        donatable_(donatable),
        walk_(walk),
        ids_(ids),
        start_(std::chrono::steady_clock::now()),
        wanted_(wanted(walk, graph, ids)),
        recorded_(recorded(walk, graph, ids)),
        before_(explaining() ? std::optional(unfused(graph)) : std::nullopt),
        t_(transform::transform(std::move(graph), wishes(planning_target(device), device))),
        g_(t_.graph) {}
  /// The plan is to publish what `base` does, and to be made only of kernels that are there: see
  /// make_challenger().
  void make_like(const Plan& base) {
    like_ = &base;
    before_.reset();
  }
  /// After run() without a plan: not null where kernels that it needs are being compiled.
  const std::shared_ptr<std::atomic<LateCompile>>& compiling() const { return compiling_; }
  /// Null where arguments are donated and a plan that overwrites them would be wrong, or could not be made.
  std::shared_ptr<Plan> run();

 private:
  /// False where an argument would be overwritten while something still reads it.
  bool plan_with(plan::Fusion fusion);
  /// Lets the plan run as a graph, if that suits it.
  void prepare_graphs();
  /// Everything of plan_with but the code.
  bool make_steps(plan::Fusion fusion);
  /// Where main loops would have to be compiled: begins to in the background, and makes the steps of a plan
  /// without them, which answers meanwhile. False: as make_steps().
  bool answer_meanwhile(plan::Fusion fusion);
  /// In adaptive mode: makes regions as verdicts say. `orders`: those of the program.
  void choose_variants(plan::Orders orders);
  void note_candidates(const plan::Region& r, const Hash128& unit, const UnitVerdict& verdict,
                       std::span<const FusionVariant> variants);
  void note_schedules(const plan::Region& r, const lower::Lowered& lowered);
  /// The same for a call of the library: it runs as its region's variant says, if that is one of its ways.
  void choose_way(const plan::Region& r, LibraryCall& l);
  /// Whether the plan publishes what `like_` does and its kernels are there; begins to compile them.
  bool is_like();
  /// Whether a recorded node may become a leaf.
  bool may_publish(std::uint32_t position) const;
  /// Kernels of the plan that are not at hand, of those that `wanted` takes.
  std::vector<LateKernel> late_kernels(const std::function<bool(const KernelRequest&)>& wanted);
  /// One for each launch step, for each epilogue and for each kernel of tiles.
  std::vector<KernelRequest> kernel_requests();
  /// The region that was being lowered or verified, and its line, for a message.
  std::string in_region() const;
  /// A held node that is not stored keeps what it is computed from alive: a list of losses would keep every
  /// batch. Nodes that are much smaller than the largest of what was read for them are stored with the roots:
  /// writing them costs next to nothing. Of an argument only what a slice shows is read. A held result of a
  /// loop is stored too: another run of the loop would cost more.
  void store_pinning_nodes();
  /// Lets updates be written into memory that the evaluation alone has.
  void donate();
  /// The same of results of maps, once there are regions.
  void reuse();
  /// A region's results get memory of their own. False: they had.
  bool drop_reuse(const plan::Region& r);
  /// Nodes of the graph as it was recorded that stay pending, and what they are made of: transforms may have
  /// left nothing of them, or made them of less.
  std::unordered_set<NodeId> read_later() const;
  /// Recorded nodes that somebody may read later, as nodes of the graph.
  std::vector<NodeId> wanted_nodes() const;
  /// Whether a step reads an argument after it was overwritten, or while it is at other points.
  bool overwrites_too_early(std::span<const std::uint32_t> args) const;
  void note_read(std::uint32_t arg) {
    accesses_[arg].last_read =
        std::max(accesses_[arg].last_read, static_cast<std::int64_t>(plan_->steps.size()));
  }
  /// The argument whose memory a node's value is written into, or -1.
  std::int32_t argument_of(NodeId id) const;
  /// Whether a node has a value outside of loops.
  bool has_value(const ir::Loops& loops, NodeId id) const;
  std::uint32_t new_buffer(std::uint64_t bytes) {
    plan_->buffers.push_back({bytes});
    return static_cast<std::uint32_t>(plan_->buffers.size() - 1);
  }
  /// The memory of a leaf or stored node.
  Place place_of(NodeId id, std::int64_t byte_offset);
  Place place_of(const plan::Alias& a, DType dtype);
  std::uint32_t moves_of(const plan::Alias& a, DType dtype);
  /// The steps of all regions, some of them more than once where there is a memory budget (plan_memory.cpp).
  void add_regions();
  void add_region(const plan::Region& r);
  void add_region_again(const plan::Region& r);
  plan::MemoryNeeds memory_needs() const;
  bool is_fixed(const plan::Region& r, const std::vector<int>& readers) const;
  bool may_run_again(const plan::Region& r) const;
  /// Warns where the budget is not kept.
  void check_budget() const;
  void add_launch(const plan::Region& r);
  /// A region's kernel, with its arguments bound to memory of the plan.
  /// `shared`: see below; filled where further kernels are behind.
  Launch lowered_launch(const plan::Region& r, std::unique_ptr<lower::Lowered>& lowered,
                        std::map<std::uint32_t, Place>* shared = nullptr);
  /// The same of a kernel that is lowered. `shared`: memory of the region's own, by number, which its kernels
  /// share; null: memory of a kernel's own is nobody else's.
  Launch bound_launch(const plan::Region& r, lower::Lowered& lowered,
                      std::map<std::uint32_t, Place>* shared = nullptr);
  /// Everything of a launch but its buffers.
  void size_launch(Launch& l, lower::Lowered& lowered, const plan::Region& r);
  /// A product of a CPU, whose epilogue is a kernel that the library runs.
  void add_product(const plan::Region& r);
  /// A step of the device's library: a node, or a product and the sum that adds a row to it.
  void add_library_call(const plan::Region& r);
  /// The call that makes a node of the operands that it has, and perhaps one more.
  LibraryCall library_call(NodeId id);
  ArrayOperand matrix(NodeId id);
  ArrayOperand array(NodeId id);
  bool library_adds(const plan::ProductRow& parts);
  /// Whether a node is one operand of one node and nobody's result. States of a loop may share memory when it
  /// has ended.
  bool only_operand(NodeId id) const;
  /// A step of the library that gives several results.
  void add_bundle(const plan::Region& r);
  /// Two products and what lies between them, tile by tile (plan_attention.cpp).
  void add_attention(const plan::Region& r);
  /// Sums over pairs, tile by tile.
  void add_pair_sums(const plan::Region& r);
  /// The same by several kernels, which share memory of the region's own.
  void add_pair_sums_launches(const plan::Region& r);
  /// The memory of what a region reads tile by tile.
  Place place_of(const plan::MatrixMemory& m);
  /// The same where one kernel does all of it, perhaps behind one that looks for values that are not finite.
  void add_attention_launch(const plan::Region& r);
  void add_flags_launch(const plan::Region& r, const plan::Attention& a, const Place& flags);
  void push_launch(Launch launch, std::unique_ptr<lower::Lowered> lowered, const plan::Region& r);
  /// The same, and behind it the second launch that Lowered::again asks for.
  void push_launches(Launch launch, std::unique_ptr<lower::Lowered> lowered, const plan::Region& r);
  /// A loop over whole tensors: plans of its own for what it repeats.
  void add_loop(const plan::Region& r);
  /// Which recorded nodes become leaves: the roots, held nodes whose value is in memory anyway, and what is
  /// in memory nearest to the held nodes that stay pending, so that computing those later begins there.
  void add_results();
  /// Publishes the node at a walk position if its value is in memory after the plan has run.
  bool add_result(std::uint32_t i, bool root);
  /// Publishes the nearest ancestors of a node that have a buffer.
  void add_nearest(std::uint32_t pending, std::vector<bool>& visited);
  /// Kernels that make an operand of one library call, and nothing else, become that call's
  /// (plan_pieces.cpp). Which do is known before results are; whoever still holds what they make has it as a
  /// pending node.
  struct MakerOf {
    std::uint32_t launch, call;  // in the plan's lists
    std::size_t operand;
    std::optional<library::Counting> counting;  // the kernel does all of the call
  };
  void choose_makers();
  void make_in_pieces();
  std::size_t maker_of(std::size_t call, std::size_t operand, bool counts) const;
  std::optional<library::Counting> counting_in(const LibraryCall& l) const;
  bool moves_to(std::size_t maker, std::size_t call) const;
  NodeId only_owner(std::uint32_t buffer) const;
  void become_maker(const MakerOf& maker);
  void become_counter(const MakerOf& maker);
  void drop_call(std::uint32_t call);
  /// Keys of the launches' kernels, and how many of one a launch may run at once.
  void find_classes();
  void verify_kernels();
  void group();
  /// Recorded nodes that somebody may read later: roots, what is stored with them, and held ones, leaves
  /// excepted.
  static std::vector<bool> wanted(const Walk& walk, const ir::Graph& g, const std::vector<NodeId>& ids);
  /// What was recorded at a walk position: transforms may have made something else of it.
  struct Recorded {
    ir::Operands operands;  // walk positions
    // made of no argument by a few operations: computing it again costs less than reading it
    bool cheap = false;
  };
  static std::vector<Recorded> recorded(const Walk& walk, const ir::Graph& g, const std::vector<NodeId>& ids);
  void compile();
  void log_refusals();
  /// Where reports are wanted: what was fused, of kernels that are there (plan_reports.cpp).
  void report();
  void add_facts(const Step& s, const std::function<RegionFacts&(const plan::Region*)>& facts_of);
  /// As measured, of the region's variants together; 0: it has none.
  double gain_of(const plan::Region& r) const;
  /// The steps that were added since the last call are the region's.
  void note_steps(const plan::Region& r);
  void share_main_loops();
  bool is_idle(const transform::PatternNote& note) const;
  void note_argument_bytes();
  std::vector<FusionReport::Stored> stored_values() const;
  Device device_;
  bool replaceable_;
  const std::vector<NodeId>& donatable_;
  const Walk& walk_;
  const std::vector<NodeId>& ids_;
  std::chrono::steady_clock::time_point start_;
  std::vector<bool> wanted_;
  std::vector<Recorded> recorded_;  // by walk position
  std::optional<Unfused> before_;   // where reports are wanted: what was recorded
  std::vector<bool> published_;     // by walk position: becomes a leaf
  transform::Transformed t_;
  const ir::Graph& g_;
  plan::Donations donations_;
  bool reuses_ = true;
  std::vector<std::uint32_t> reused_;  // arguments whose memory results take, see reuse()
  struct Accesses {
    std::int64_t last_read = -1, write = -1;  // steps
  };
  std::vector<Accesses> accesses_;  // by argument
  bool overlaps_ = false;           // a step reads, at other points, what it overwrites
  plan::Regions regions_;
  struct UnitOf {
    Hash128 key;
    UnitVerdict verdict;
  };
  std::unordered_map<NodeId, UnitOf> units_;  // in adaptive mode: of each region, by its first output
  const Plan* like_ = nullptr;
  std::shared_ptr<std::atomic<LateCompile>> compiling_;
  std::shared_ptr<Plan> plan_ = std::make_shared<Plan>();
  std::vector<std::int32_t> buffer_of_;
  std::vector<bool> overwritten_;  // its buffer became another node's
  std::vector<bool> kept_;         // with a memory budget: its buffer outlives the plan
  std::vector<std::unique_ptr<lower::Lowered>> lowered_;
  std::vector<const plan::Region*> region_of_launch_;
  struct EpilogueOf {
    std::unique_ptr<lower::Lowered> lowered;
    const plan::Region* region;
  };
  std::vector<EpilogueOf> epilogues_;  // parallel to the plan's
  std::vector<MakerOf> makers_;
  struct TileLowered {
    std::unique_ptr<lower::Lowered> lowered;
    device::Launch* launch;  // of the plan
    TileStep* step;
    const plan::Region* region;
    std::shared_ptr<const CachedKernel> kernel;  // once it is compiled
    Verdict verdict = Verdict::Memory;
  };
  std::vector<TileLowered> tile_kernels_;
  void add_tile_kernels(TileStep& step, struct TileGraph graph, std::vector<library::TileKernel>& to,
                        const plan::Region& r);
  const plan::Region* at_ = nullptr;  // being lowered or verified
  std::vector<LaunchClass> classes_;  // parallel to the launches
  // of library calls, of loops, of attentions and of sums over pairs, in the order of the plan's
  std::vector<const plan::Region*> region_of_library_, region_of_loop_, region_of_attention_,
      region_of_pair_sums_;
};

/// See set_region_hook and specialise_kernels.
RegionHook current_region_hook();
bool specialises_kernels();

}  // namespace kiln::engine
