// From a walked trace to a plan: transform, fuse, lower, compile, resolve every buffer.
#include "engine/plan.h"

#include "cache/gpu_source.h"
#include "device/cuda/driver.h"
#include "engine/group_launches.h"
#include "engine/lifetime.h"
#include "engine/loop_graphs.h"
#include "engine/run_gpu.h"
#include "inspect/dump.h"
#include "inspect/explain.h"
#include "inspect/statistics.h"
#include "kernel/specialise.h"
#include "lower/lower.h"
#include "plan/donate.h"
#include "plan/fuse.h"
#include "support/check.h"
#include "support/log.h"
#include "transform/transform.h"

#include <kiln/config.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace kiln::engine {
namespace {

using ir::NodeId;

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

constexpr std::int64_t kPinnedBytes = 16 << 10;  // of arguments that a held node may always keep alive
constexpr std::int64_t kPinnedRatio = 8;         // … and how much more than its own size

class PlanMaker {
 public:
  /// `donatable`: leaves of the graph that may be overwritten.
  PlanMaker(const Walk& walk, ir::Graph graph, const std::vector<NodeId>& ids, Device device,
            const std::vector<NodeId>& donatable)
      : device_(device),
        donatable_(donatable),
        walk_(walk),
        ids_(ids),
        start_(std::chrono::steady_clock::now()),
        wanted_(wanted(walk, graph, ids)),
        recorded_(recorded(walk, graph, ids)),
        t_(transform::transform(std::move(graph), device.kind == Device::Kind::Cuda && config().strict)),
        g_(t_.graph) {}

  /// Null where arguments are donated and a plan that overwrites them would be wrong, or could not be made.
  std::shared_ptr<const Plan> run() {
    store_pinning_nodes();
    if (const GraphHook hook = graph_hook.load(std::memory_order_relaxed)) hook(g_);
    donate();
    bool made = false;
    const auto defect = defect_in([&] { made = plan_with(plan::Fusion::Full); });
    if (!defect) return made ? plan_ : nullptr;
    if (!donatable_.empty()) return nullptr;
    const std::string what = *defect + in_region();
    if (defect_in([&] { plan_with(plan::Fusion::None); })) throw CompileError(what);
    count(Counter::Fallbacks);
    warn(what + "; its operations were planned one by one");
    return plan_;
  }

 private:
  /// False where an argument would be overwritten while something still reads it.
  bool plan_with(plan::Fusion fusion) {
    plan_ = std::make_shared<Plan>();
    lowered_.clear();
    region_of_launch_.clear();
    classes_.clear();
    biased_.clear();
    at_ = nullptr;
    regions_ = plan::fuse(g_, planning_target(device_), fusion);
    regions_.placements = donations_.placements;
    buffer_of_.assign(g_.size(), -1);
    overwritten_.assign(g_.size(), false);
    plan_->device = device_;
    plan_->n_nodes = static_cast<std::uint32_t>(walk_.nodes.size());
    accesses_.assign(g_.args.size(), {});
    overlaps_ = false;
    find_biases();
    for (const plan::Region& r : regions_.regions) {
      switch (r.kind) {
        case plan::Region::Kind::Library:
          if (!waits_for_bias_[r.nodes.front()]) add_library_call(r.nodes.front());
          break;
        case plan::Region::Kind::Loop: add_loop(r); break;
        case plan::Region::Kind::Fused:
          if (const auto it = biased_.find(r.nodes.front()); it != biased_.end())
            add_matmul(it->second.product, it->first, it->second.bias);
          else
            add_launch(r);
          break;
      }
    }
    add_results();
    if (overwrites_too_early()) return false;
    log_refusals();
    explain(g_, regions_);
    plan_->donated = donations_.args;
    find_classes();
    group();
    set_lifetimes(*plan_);
    if (suits_graph(*plan_)) plan_->graphs = std::make_unique<PlanGraphs>();
    count(Counter::PlanNs, static_cast<std::uint64_t>((std::chrono::steady_clock::now() - start_).count()));
    compile();
    return true;
  }

  /// The region that was being lowered or verified, and its line, for a message.
  std::string in_region() const {
    if (!at_) return {};
    const ir::GraphNode& n = g_[at_->outputs.front()];
    return cat(" (in a kernel of ", op_names(g_, *at_), ", recorded at ", n.loc.file_name(), ":",
               n.loc.line(), ")");
  }

  /// A held node that is not stored keeps what it is computed from alive: a list of losses would keep every
  /// batch. Nodes that are much smaller than the largest of what was read for them are stored with the roots:
  /// writing them costs next to nothing. Of an argument only what a slice shows is read. A held result of a
  /// loop is stored too: another run of the loop would cost more.
  void store_pinning_nodes() {
    const ir::Loops loops = ir::find_loops(g_);
    std::vector<bool> held(g_.size());
    for (std::size_t i = 0; i < ids_.size(); ++i)
      if (wanted_[i] && t_.now[ids_[i]] != ir::kNoNode) held[t_.now[ids_[i]]] = true;
    // bytes, for each node and the nodes before it that are not stored
    std::vector<std::int64_t> read(g_.size());
    for (NodeId id = 0; id < g_.size(); ++id) {
      const ir::GraphNode& n = g_[id];
      const std::int64_t bytes = n.numel * size_of(n.dtype);
      if (n.op == ir::Op::leaf) read[id] = bytes;
      for (int k = 0; k < n.n_in; ++k) read[id] = std::max(read[id], read[n.in[k]]);
      const bool shows = ir::is_view(n.op) || ir::info(n.op).kind == ir::OpKind::Gather;
      if (shows && n.numel < g_[n.in[0]].numel) read[id] = std::min(read[id], bytes);
      if (!held[id] || n.op == ir::Op::leaf || !has_value(loops, id)) continue;
      const bool small = read[id] >= kPinnedBytes && bytes * kPinnedRatio <= read[id];
      if (!small && n.op != ir::Op::loop_result && n.op != ir::Op::loop_stack) continue;
      t_.graph.roots.push_back(id);
      read[id] = bytes;
    }
  }

  /// Lets updates be written into memory that the evaluation alone has.
  void donate() {
    if (donatable_.empty()) return;
    std::vector<NodeId> leaves, later;
    for (NodeId leaf : donatable_)
      if (const NodeId id = t_.now[leaf]; id != ir::kNoNode && g_[id].op == ir::Op::leaf)
        leaves.push_back(id);
    for (std::size_t i = 0; i < ids_.size(); ++i)
      if (wanted_[i] && t_.now[ids_[i]] != ir::kNoNode) later.push_back(t_.now[ids_[i]]);
    donations_ = plan::donate(t_.graph, leaves, later);
    if (donations_.now.empty()) return;
    for (NodeId& id : t_.now)
      if (id != ir::kNoNode) id = donations_.now[id];
  }

  /// Whether a step reads an argument after it was overwritten, or while it is at other points.
  bool overwrites_too_early() const {
    return std::any_of(donations_.args.begin(), donations_.args.end(), [&](std::uint32_t arg) {
      return overlaps_ || accesses_[arg].write < 0 || accesses_[arg].last_read > accesses_[arg].write;
    });
  }

  void note_read(std::uint32_t arg) {
    accesses_[arg].last_read =
        std::max(accesses_[arg].last_read, static_cast<std::int64_t>(plan_->steps.size()));
  }

  /// The argument whose memory a node's value is written into, or -1.
  std::int32_t argument_of(NodeId id) const {
    if (const auto at = regions_.placements.find(id); at != regions_.placements.end())
      return static_cast<std::int32_t>(at->second.arg);
    return plan::is_written_in_place(g_[id]) || g_[id].op == ir::Op::scatter ? g_[id].arg : -1;
  }

  /// Whether a node has a value outside of loops.
  bool has_value(const ir::Loops& loops, NodeId id) const {
    const ir::OpKind kind = ir::info(g_[id].op).kind;
    return loops.owner_of(id) == ir::kNoNode && kind != ir::OpKind::Loop && kind != ir::OpKind::LoopNext;
  }

  std::uint32_t new_buffer(std::uint64_t bytes) {
    plan_->buffers.push_back({bytes});
    return static_cast<std::uint32_t>(plan_->buffers.size() - 1);
  }

  /// The memory of a leaf or stored node.
  Place place_of(NodeId id, std::int64_t byte_offset) {
    if (g_[id].op == ir::Op::leaf) {
      note_read(static_cast<std::uint32_t>(g_[id].arg));
      return {Place::Kind::Arg, static_cast<std::uint32_t>(g_[id].arg), byte_offset};
    }
    if (const std::int32_t arg = argument_of(id); arg >= 0) {
      const auto a = static_cast<std::uint32_t>(arg);
      const bool writes = !plan::is_written_in_place(g_[id]);
      if (writes && accesses_[a].write < 0)
        accesses_[a].write = static_cast<std::int64_t>(plan_->steps.size());
      return {Place::Kind::Arg, a, byte_offset};
    }
    if (buffer_of_[id] < 0)
      buffer_of_[id] = static_cast<std::int32_t>(
          new_buffer(static_cast<std::uint64_t>(g_[id].numel * size_of(g_[id].dtype))));
    return {Place::Kind::Buffer, static_cast<std::uint32_t>(buffer_of_[id]), byte_offset};
  }

  Place place_of(const plan::Alias& a, DType dtype) {
    Place p = place_of(a.base, a.offset * size_of(dtype));
    p.moved = moves_of(a, dtype);
    return p;
  }

  std::uint32_t moves_of(const plan::Alias& a, DType dtype) {
    if (a.positions.empty()) return 0;
    std::vector<Move>& moves = plan_->moves.emplace_back();
    for (const plan::Alias::Position& p : a.positions)
      moves.push_back({static_cast<std::uint32_t>(p.slot), p.last, p.stride * size_of(dtype)});
    return static_cast<std::uint32_t>(plan_->moves.size());
  }

  void add_launch(const plan::Region& r) {
    bool empty = true;
    for (NodeId o : r.outputs) {
      empty &= g_[o].numel == 0;
      place_of(o, 0);
    }
    if (empty) return;
    at_ = &r;
    if (const RegionHook hook = region_hook.load(std::memory_order_relaxed)) hook(g_, r);
    auto lowered = std::make_unique<lower::Lowered>(lower::lower(g_, regions_, r, planning_target(device_)));
    overlaps_ = overlaps_ || lowered->overlaps;
    Launch l;
    for (std::size_t b = 0; b < lowered->buffers.size(); ++b) {
      const lower::BufferSource& s = lowered->buffers[b];
      switch (s.kind) {
        case lower::BufferSource::Kind::Arg:
          note_read(s.id);
          l.buffers.push_back({Place::Kind::Arg, s.id, s.byte_offset});
          break;
        case lower::BufferSource::Kind::Node: l.buffers.push_back(place_of(s.id, s.byte_offset)); break;
        case lower::BufferSource::Kind::Partial:
          l.buffers.push_back({Place::Kind::Buffer, new_buffer(static_cast<std::uint64_t>(s.bytes)), 0});
          break;
        case lower::BufferSource::Kind::Scratch: l.buffers.push_back({}); break;
      }
      if (!s.positions.empty()) {
        std::vector<Move>& moves = plan_->moves.emplace_back();
        for (const lower::BufferSource::Position& p : s.positions)
          moves.push_back({static_cast<std::uint32_t>(p.slot), p.last, p.stride, p.divisor});
        l.buffers.back().moved = static_cast<std::uint32_t>(plan_->moves.size());
      }
      l.buffers.back().written = lowered->kernel.buffers[b].role != kernel::BufferDecl::Role::In;
    }
    if (specialises.load(std::memory_order_relaxed)) [[unlikely]]
      lowered->kernel = kernel::specialise(lowered->kernel, lowered->params);
    l.params = std::move(lowered->params);
    l.threads = lowered->kernel.threads;
    if (l.threads.narrow) l.narrow_params.assign(l.params.begin(), l.params.end());
    for (std::int32_t s : lowered->slots) l.slots.push_back(static_cast<std::uint32_t>(s));
    l.grid = lowered->grid;
    l.finish_grid = lowered->finish_grid;
    l.counters = lowered->kernel.link.empty() ? l.finish_grid : l.grid + 2;
    l.grain = lowered->grain;
    l.scratch_bytes = lowered->scratch_bytes;
    l.bytes = lowered->bytes;
    l.work = lowered->work;
    l.ops = op_names(g_, r);
    l.shape = Shape(g_[r.outputs.front()].dims).str();
    lowered->kernel.label = label_of(g_, r);
    add_step(Step::Kind::Launch, plan_->launches.size());
    plan_->launches.push_back(std::move(l));
    lowered_.push_back(std::move(lowered));
    region_of_launch_.push_back(&r);
    at_ = nullptr;
  }

  void add_library_call(NodeId id) {
    switch (g_[id].op) {
      case ir::Op::sort:
      case ir::Op::argsort: return add_sort(id);
      case ir::Op::searchsorted: return add_search(id);
      case ir::Op::scatter: return add_scatter(id);
      default: return add_matmul(id);
    }
  }

  void add_step(Step::Kind kind, std::size_t index) {
    plan_->steps.push_back({kind, static_cast<std::uint32_t>(index)});
  }

  /// The memory that shows an operand of a library call; the step being made reads it.
  ArrayOperand array(NodeId id) {
    plan::Alias a = plan::resolve_alias(g_, id);
    // views and constants too
    if (g_[id].op != ir::Op::leaf && regions_.stored[id]) a = {id, 0, {}, row_major(g_[id].dims)};
    KILN_CHECK_THAT(a.base != ir::kNoNode, "an operand of a library call has no memory");
    const ir::GraphNode& n = g_[id];
    return {place_of(a, n.dtype), {n.dims.begin(), n.dims.end()}, std::move(a.strides)};
  }

  void add_sort(NodeId id) {
    const ir::GraphNode& n = g_[id];
    const Place out = place_of(id, 0);
    if (n.numel == 0) return;
    Sort s;
    s.dtype = g_[n.in[0]].dtype;
    s.in = array(n.in[0]);
    s.axis = static_cast<int>(n.attr64 & 255);
    s.kept = n.dims[n.attr64 & 255];
    s.descending = (n.attr64 >> 8) != 0;
    s.positions = n.op == ir::Op::argsort;
    s.out = out;
    add_step(Step::Kind::Sort, plan_->sorts.size());
    plan_->sorts.push_back(std::move(s));
  }

  void add_search(NodeId id) {
    const ir::GraphNode& n = g_[id];
    const Place out = place_of(id, 0);
    if (n.numel == 0) return;
    Search s;
    s.dtype = g_[n.in[0]].dtype;
    s.sorted = array(n.in[0]);
    s.values = array(n.in[1]);
    s.right = n.attr64 != 0;
    s.out = out;
    add_step(Step::Kind::Search, plan_->searches.size());
    plan_->searches.push_back(std::move(s));
  }

  void add_scatter(NodeId id) {
    const ir::GraphNode& n = g_[id];
    if (only_operand(n.in[0])) {  // nobody else reads x: it becomes the result
      buffer_of_[id] = buffer_of_[n.in[0]];
      overwritten_[n.in[0]] = true;
    }
    const Place out = place_of(id, 0);
    if (n.numel == 0) return;
    Scatter s;
    s.dtype = n.dtype;
    s.index_dtype = g_[n.in[1]].dtype;
    s.x = array(n.in[0]);
    s.values = array(n.in[2]);
    s.indices = repeated(array(n.in[1]), s.values.dims);
    s.axis = static_cast<int>(n.attr64 & 255);
    s.how = static_cast<Combine>(n.attr64 >> 8);
    s.ordered = planning_target(device_).exact;
    s.out = out;
    add_step(Step::Kind::Scatter, plan_->scatters.size());
    plan_->scatters.push_back(std::move(s));
  }

  /// Whether a node is one operand of one node and nobody's result. States of a loop may share memory when it
  /// has ended.
  bool only_operand(NodeId id) const {
    if (g_[id].op == ir::Op::leaf || g_[id].op == ir::Op::loop_result) return false;
    for (std::size_t i = 0; i < ids_.size(); ++i)
      if (wanted_[i] && t_.now[ids_[i]] == id) return false;
    auto reads = std::count(g_.roots.begin(), g_.roots.end(), id);
    for (const ir::GraphNode& n : g_.nodes) reads += std::count(n.in, n.in + n.n_in, id);
    return reads == 1;
  }

  /// An array under broadcasting to `dims`.
  static ArrayOperand repeated(ArrayOperand a, const std::vector<std::int64_t>& dims) {
    a.strides.insert(a.strides.begin(), dims.size() - a.strides.size(), 0);
    a.dims.insert(a.dims.begin(), dims.size() - a.dims.size(), 1);
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (a.dims[i] != dims[i]) a.strides[i] = 0;
    a.dims = dims;
    return a;
  }

  MatrixOperand operand(NodeId id, std::span<const std::int64_t> batch) {
    const ArrayOperand a = array(id);
    const ir::GraphNode& n = g_[id];
    MatrixOperand m;
    m.place = a.place;
    const std::size_t rank = n.dims.size();
    m.row_stride = a.strides[rank - 2];
    m.col_stride = a.strides[rank - 1];
    for (std::size_t i = 0; i + 2 < rank; ++i)
      m.batch_strides.push_back(n.dims[i] == 1 && batch[i] != 1 ? 0 : a.strides[i]);
    return m;
  }

  /// The memory of a value that is one row, repeated: of adjacent elements.
  std::optional<plan::Alias> repeated_row(NodeId id, std::int64_t length) const {
    const ir::GraphNode& n = g_[id];
    plan::Alias a = plan::resolve_alias(g_, id);
    if (n.op != ir::Op::leaf && regions_.stored[id]) a = {id, 0, {}, row_major(n.dims)};
    if (a.base == ir::kNoNode || n.dims.size() == 0 || n.dims.back() != length || a.strides.back() != 1)
      return std::nullopt;
    if (g_[a.base].op != ir::Op::leaf && !regions_.stored[a.base]) return std::nullopt;
    for (std::size_t i = 0; i + 1 < n.dims.size(); ++i)
      if (n.dims[i] != 1 && a.strides[i] != 0) return std::nullopt;
    return a;
  }

  /// Sums of a matrix product that nothing else reads and one row, where a library adds that before it
  /// rounds: the step that would add makes the product.
  void find_biases() {
    waits_for_bias_.assign(g_.size(), false);
    if (device_.kind != Device::Kind::Cuda || planning_target(device_).strict || config().mode != Mode::Lazy)
      return;
    std::vector<int> uses(g_.size());
    for (NodeId id = 0; id < g_.size(); ++id)
      for (int k = 0; k < g_[id].n_in; ++k) ++uses[g_[id].in[k]];
    for (NodeId root : g_.roots) ++uses[root];
    for (const plan::Region& r : regions_.regions) {
      const NodeId sum = r.nodes.front();
      const ir::GraphNode& s = g_[sum];
      if (r.kind != plan::Region::Kind::Fused || r.nodes.size() != 1 || s.op != ir::Op::add || s.numel == 0 ||
          s.dims.empty())
        continue;
      if (s.dtype != DType::Float32 && !is_half(s.dtype)) continue;
      for (int k = 0; k < 2; ++k) {
        const NodeId row = s.in[1 - k];
        NodeId product = s.in[k];
        const auto only_here = [&] { return uses[product] == 1 && !g_[product].held; };
        while (g_[product].op == ir::Op::reshape && only_here()) product = g_[product].in[0];
        const ir::GraphNode& p = g_[product];
        if (p.op != ir::Op::matmul || !only_here() || p.numel != s.numel || p.dims.back() != s.dims.back())
          continue;
        if (g_[p.in[0]].dims.back() == 0 || g_[row].dtype != s.dtype) continue;
        std::optional<plan::Alias> bias = repeated_row(row, s.dims.back());
        if (!bias || !library_adds(product)) continue;
        waits_for_bias_[product] = true;
        biased_.emplace(sum, Biased{product, std::move(*bias)});
        break;
      }
    }
  }

  bool library_adds(NodeId product) {
    library::Matmul call = call_without_memory(product_of(product));
    call.bias = reinterpret_cast<const void*>(std::uintptr_t{256});  // not read
    return enqueues_matmul(call, device_.index);
  }

  void add_matmul(NodeId id) { add_matmul(id, id, {}); }

  /// `result`: the node whose memory the product with the bias is.
  void add_matmul(NodeId id, NodeId result, const plan::Alias& bias) {
    const ir::GraphNode& n = g_[id];
    const Place c = place_of(result, 0);
    if (n.numel == 0) return;
    Matmul m = product_of(id);
    if (bias.base != ir::kNoNode) m.bias = place_of(bias, n.dtype);
    m.c = c;
    add_step(Step::Kind::Matmul, plan_->matmuls.size());
    plan_->matmuls.push_back(std::move(m));
  }

  Matmul product_of(NodeId id) {
    const ir::GraphNode& n = g_[id];
    const std::size_t rank = n.dims.size();
    Matmul m;
    m.dtype = n.dtype;
    m.strict = planning_target(device_).strict;
    m.m = n.dims[rank - 2];
    m.n = n.dims[rank - 1];
    m.k = g_[n.in[0]].dims.back();
    m.batch.assign(n.dims.begin(), n.dims.end() - 2);
    m.a = operand(n.in[0], m.batch);
    m.b = operand(n.in[1], m.batch);
    m.loc = n.loc;
    return m;
  }

  /// A loop over whole tensors: plans of its own for what it repeats.
  void add_loop(const plan::Region& r) {
    const ir::LoopParts& parts = regions_.loops.of_result(g_, r.nodes.front());
    LoopGraphs graphs = loop_graphs(g_, regions_, parts);
    Loop l;
    for (NodeId state : parts.states) {
      const NodeId init = g_[state].in[0];
      if (parts.counts() && state == parts.states.front()) {
        KILN_CHECK_THAT(g_[state].dtype == DType::Int64 && g_[state].numel == 1,
                        "a loop counts in one int64");
        l.states.push_back(
            {{}, {g_[init].dims.begin(), g_[init].dims.end()}, row_major(g_[init].dims), DType::Int64, {}});
        continue;
      }
      plan::Alias a = plan::resolve_alias(g_, init);
      if (g_[init].op != ir::Op::leaf && regions_.stored[init]) a = {init, 0, {}, row_major(g_[init].dims)};
      KILN_CHECK_THAT(a.base != ir::kNoNode, "a loop's first value has no memory");
      l.states.push_back({place_of(a, g_[init].dtype),
                          {g_[init].dims.begin(), g_[init].dims.end()},
                          std::move(a.strides),
                          g_[init].dtype,
                          {}});
    }
    for (NodeId yield : parts.yields)
      l.yields.push_back({{}, {g_[yield].dims.begin(), g_[yield].dims.end()}, g_[yield].dtype});
    for (NodeId result : r.outputs) {
      Place& place = g_[result].op == ir::Op::loop_stack ? l.yields[g_[result].attr64].stack
                                                         : l.states[g_[result].attr64].result;
      place = place_of(result, 0);
    }
    l.count = parts.count;
    for (NodeId capture : graphs.captures) l.captures.push_back(place_of(capture, 0));
    if (!parts.counts()) l.condition = make_plan(std::move(graphs.condition), device_);
    // The loop has its states to itself, but for their first values.
    std::vector<NodeId> states;
    for (NodeId id = 0; id < graphs.body.size(); ++id)
      if (graphs.body[id].op == ir::Op::leaf &&
          static_cast<std::size_t>(graphs.body[id].arg) < l.states.size())
        states.push_back(id);
    l.body = make_plan(std::move(graphs.body), device_, states);
    plan_->steps.push_back({Step::Kind::Loop, static_cast<std::uint32_t>(plan_->loops.size())});
    plan_->loops.push_back(std::move(l));
  }

  /// Which recorded nodes become leaves: the roots, held nodes whose value is in memory anyway, and what is
  /// in memory nearest to the held nodes that stay pending, so that computing those later begins there.
  void add_results() {
    std::vector<bool> root(walk_.nodes.size());
    for (std::uint32_t r : walk_.roots) root[r] = true;
    published_.assign(walk_.nodes.size(), false);
    for (std::uint32_t i = 0; i < walk_.nodes.size(); ++i) {
      if (!wanted_[i] || add_result(i, root[i])) continue;
      KILN_CHECK_THAT(!root[i], "a root was not computed");
      const NodeId id = t_.now[ids_[i]];
      if (!recorded_[i].cheap && id != ir::kNoNode && has_value(regions_.loops, id))
        plan_->left_pending.push_back(i);
    }
    std::vector<bool> visited(walk_.nodes.size());
    for (std::uint32_t i : plan_->left_pending) add_nearest(i, visited);
  }

  /// Publishes the node at a walk position if its value is in memory after the plan has run.
  bool add_result(std::uint32_t i, bool root) {
    const NodeId id = t_.now[ids_[i]];
    if (id == ir::kNoNode || !has_value(regions_.loops, id) || overwritten_[id]) return false;
    Plan::Result result{i, {}, 0, {}, root};
    if (buffer_of_[id] >= 0) {
      result.place = place_of(id, 0);
    } else {
      plan::Alias a = plan::resolve_alias(g_, id);
      const bool in_memory =
          a.base != ir::kNoNode && !overwritten_[a.base] &&
          (g_[a.base].op == ir::Op::leaf || buffer_of_[a.base] >= 0 || argument_of(a.base) >= 0);
      if (!in_memory) return false;
      result.place = place_of(a.base, 0);
      result.offset = a.offset;
      result.moved = moves_of(a, g_[id].dtype);
      result.strides = std::move(a.strides);
      if (contiguous(g_[id].dims, result.strides)) result.strides.clear();
    }
    if (result.place.kind == Place::Kind::Buffer) plan_->buffers[result.place.index].result = true;
    plan_->results.push_back(std::move(result));
    published_[i] = true;
    return true;
  }

  /// Publishes the nearest ancestors of a node that have a buffer.
  void add_nearest(std::uint32_t pending, std::vector<bool>& visited) {
    std::vector<std::uint32_t> stack{pending};
    while (!stack.empty()) {
      const std::uint32_t i = stack.back();
      stack.pop_back();
      for (const std::uint32_t in : recorded_[i].operands) {
        if (in == Walk::kNone || visited[in] || published_[in]) continue;
        visited[in] = true;
        const NodeId id = t_.now[ids_[in]];
        if (id == ir::kNoNode || g_[id].op == ir::Op::leaf || buffer_of_[id] < 0 || !add_result(in, false))
          stack.push_back(in);
      }
    }
  }

  /// Keys of the launches' kernels, and how many of one a launch may run at once.
  void find_classes() {
    if (config().check_key || config().check_diff) verify_kernels();
    for (const auto& l : lowered_)
      classes_.push_back({kernel::hash(l->kernel), most_instances(l->kernel, device_)});
  }

  void verify_kernels() {
    for (std::size_t i = 0; i < lowered_.size(); ++i) {
      at_ = region_of_launch_[i];
      kernel::verify(lowered_[i]->kernel);
    }
    at_ = nullptr;
  }

  void group() {
    if (device_.kind != Device::Kind::Cuda || plan_->launches.size() < 2) return;
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

  /// Recorded nodes that somebody may read later: roots, what is stored with them, and held ones, leaves
  /// excepted.
  static std::vector<bool> wanted(const Walk& walk, const ir::Graph& g, const std::vector<NodeId>& ids) {
    std::vector<bool> w(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) w[i] = g[ids[i]].op != ir::Op::leaf && g[ids[i]].held;
    for (std::uint32_t r : walk.roots) w[r] = true;
    for (std::uint32_t s : walk.stored) w[s] = true;
    return w;
  }

  /// What was recorded at a walk position: transforms may have made something else of it.
  struct Recorded {
    std::array<std::uint32_t, 3> operands{Walk::kNone, Walk::kNone, Walk::kNone};  // walk positions
    // made of no argument by a few operations: computing it again costs less than reading it
    bool cheap = false;
  };

  static std::vector<Recorded> recorded(const Walk& walk, const ir::Graph& g,
                                        const std::vector<NodeId>& ids) {
    constexpr int kFewOperations = 8;
    std::vector<std::uint32_t> position(g.size(), Walk::kNone);
    for (std::uint32_t i = 0; i < ids.size(); ++i) position[ids[i]] = i;
    std::vector<int> cost(g.size(), kFewOperations + 1);
    std::vector<Recorded> out(walk.nodes.size());
    for (NodeId id = 0; id < g.size(); ++id) {
      const ir::GraphNode& n = g[id];
      if (n.op == ir::Op::scalar || n.op == ir::Op::iota ||
          ((ir::is_elementwise(n.op) || ir::is_view(n.op)) && !ir::is_random(n.op)))
        cost[id] = 1;
      for (int k = 0; k < n.n_in; ++k) cost[id] += cost[n.in[k]];
      cost[id] = std::min(cost[id], kFewOperations + 1);
      if (position[id] == Walk::kNone) continue;
      Recorded& r = out[position[id]];
      r.cheap = cost[id] <= kFewOperations;
      for (int k = 0; k < n.n_in; ++k) r.operands[static_cast<std::size_t>(k)] = position[n.in[k]];
    }
    return out;
  }

  static std::vector<std::int64_t> row_major(ir::Dims dims) {
    std::vector<std::int64_t> strides(dims.size(), 1);
    for (std::size_t a = dims.size(); a-- > 1;) strides[a - 1] = strides[a] * dims[a];
    return strides;
  }

  static bool contiguous(ir::Dims dims, const std::vector<std::int64_t>& strides) {
    std::int64_t s = 1;
    for (std::size_t a = dims.size(); a-- > 0;) {
      if (dims[a] != 1 && strides[a] != s) return false;
      s *= dims[a];
    }
    return true;
  }

  void compile() {
    std::vector<KernelRequest> requests;
    std::vector<Step> steps;
    for (const Step& step : plan_->steps) {
      if (step.kind != Step::Kind::Launch) continue;
      const kernel::Kernel& k = lowered_[step.index]->kernel;
      requests.push_back({&k, classes_[step.index].key, device_,
                          room_for(k, device_, static_cast<int>(step.count)), nullptr, Verdict::Memory});
      steps.push_back(step);
    }
    if (requests.empty()) return;
    try {
      obtain(requests);
    } catch (const InternalError&) {
      verify_kernels();  // the one that is not well formed is named
      throw;
    }
    for (std::size_t r = 0; r < requests.size(); ++r) {
      for (std::uint32_t i = steps[r].index; i < steps[r].index + steps[r].count; ++i) {
        plan_->launches[i].kernel = requests[r].result;
        plan_->launches[i].verdict = requests[r].verdict;
      }
      const std::uint32_t first = steps[r].index;
      if (!config().dump.empty())
        dump_kernel(g_, regions_, *region_of_launch_[first], *lowered_[first], *requests[r].result, device_);
    }
  }

  void log_refusals() {
    if (!log_enabled(Topic::Plan)) return;
    log(Topic::Plan, cat("plan of ", g_.size(), " nodes: ", regions_.regions.size(),
                         " kernels and library steps, ", regions_.refusals.size(), " boundaries"));
    for (const plan::Refusal& f : regions_.refusals)
      log(Topic::Plan,
          cat(ir::info(g_[f.producer].op).name, " | ", ir::info(g_[f.consumer].op).name, ": ", f.reason));
  }

  Device device_;
  const std::vector<NodeId>& donatable_;
  const Walk& walk_;
  const std::vector<NodeId>& ids_;
  std::chrono::steady_clock::time_point start_;
  std::vector<bool> wanted_;
  std::vector<Recorded> recorded_;  // by walk position
  std::vector<bool> published_;     // by walk position: becomes a leaf
  transform::Transformed t_;
  const ir::Graph& g_;
  plan::Donations donations_;
  struct Accesses {
    std::int64_t last_read = -1, write = -1;  // steps
  };
  std::vector<Accesses> accesses_;  // by argument
  bool overlaps_ = false;           // a step reads, at other points, what it overwrites
  plan::Regions regions_;
  std::shared_ptr<Plan> plan_ = std::make_shared<Plan>();
  std::vector<std::int32_t> buffer_of_;
  std::vector<bool> overwritten_;  // its buffer became another node's
  struct Biased {
    NodeId product;
    plan::Alias bias;
  };
  std::unordered_map<NodeId, Biased> biased_;  // by the node of the sum
  std::vector<bool> waits_for_bias_;           // products that the step of such a sum makes
  std::vector<std::unique_ptr<lower::Lowered>> lowered_;
  std::vector<const plan::Region*> region_of_launch_;
  const plan::Region* at_ = nullptr;  // being lowered or verified
  std::vector<LaunchClass> classes_;  // parallel to the launches
};

std::shared_ptr<const Plan> made_plan(const Walk& walk, ir::Graph graph, const std::vector<NodeId>& ids,
                                      Device device, const std::vector<NodeId>& donatable) {
  std::shared_ptr<const Plan> plan;
  const auto defect =
      defect_in([&] { plan = PlanMaker(walk, std::move(graph), ids, device, donatable).run(); });
  if (defect) throw CompileError(*defect);  // of what comes before regions
  return plan;
}

}  // namespace

library::Matmul call_without_memory(const Matmul& m) {
  library::Matmul call;
  call.dtype = m.dtype;
  call.strict = m.strict;
  call.batch_rank = static_cast<int>(m.batch.size());
  std::copy(m.batch.begin(), m.batch.end(), call.batch);
  call.m = m.m;
  call.n = m.n;
  call.k = m.k;
  const auto stack = [](const MatrixOperand& o, library::MatrixStack& s) {
    s.row_stride = o.row_stride;
    s.col_stride = o.col_stride;
    std::copy(o.batch_strides.begin(), o.batch_strides.end(), s.batch_strides);
  };
  stack(m.a, call.a);
  stack(m.b, call.b);
  return call;
}

void set_graph_hook(GraphHook hook) { graph_hook.store(hook); }
void set_region_hook(RegionHook hook) { region_hook.store(hook); }
void specialise_kernels(bool on) { specialises.store(on); }

namespace {

std::shared_ptr<const Plan> plan_of(const Walk& walk, ir::Graph graph, const std::vector<NodeId>& ids,
                                    Device device, const std::vector<NodeId>& donatable) {
  static const std::vector<NodeId> nothing;
  if (!donatable.empty()) {
    // The copy's extents lie in the graph's memory, which stays.
    if (std::shared_ptr<const Plan> plan = made_plan(walk, graph, ids, device, donatable)) return plan;
  }
  return made_plan(walk, std::move(graph), ids, device, nothing);
}

}  // namespace

std::shared_ptr<const Plan> make_plan(const Walk& walk, ir::Graph graph, const std::vector<NodeId>& ids,
                                      Device device) {
  const CompileTicket ticket;
  std::vector<NodeId> donatable;
  for (std::uint32_t i : walk.donatable) donatable.push_back(ids[i]);
  return plan_of(walk, std::move(graph), ids, device, donatable);
}

std::shared_ptr<const Plan> make_plan(ir::Graph graph, Device device, const std::vector<NodeId>& donatable) {
  Walk walk;  // of nothing recorded: its nodes are the roots
  std::vector<NodeId> ids = graph.roots;
  walk.nodes.assign(ids.size(), nullptr);
  for (std::uint32_t i = 0; i < ids.size(); ++i) walk.roots.push_back(i);
  return plan_of(walk, std::move(graph), ids, device, donatable);
}

}  // namespace kiln::engine
