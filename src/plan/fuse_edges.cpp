// Fuser: which nodes compute, and who reads whom through which views.
#include "plan/fuser.h"
#include "plan/strided.h"

#include <algorithm>

namespace kiln::plan {

constexpr float kGeneratorCost =
    24;                         // values made from indices alone are recomputed up to this many primitives
constexpr int kMaxPieces = 64;  // arrays joined by pads in one kernel: LLVM takes seconds for hundreds
constexpr int kMaxReshapes =
    16;  // views of views: what a reshape does to coordinates is divided again by the next
constexpr int kCostlyPieces = 4;  // a tensor of so many (rolled along two axes), read directly by
constexpr int kCostlyReaders =
    3;  // … so many operations, is computed once: a copy costs less than their predicates
constexpr int kShiftedReaders =
    16;  // of a pad on a CPU, through shifts with predicates of their own, as the terms of a stencil
constexpr std::int64_t kLeastPadded = 1 << 14;  // elements of such a pad
constexpr int kMaxReread =
    24;  // the same, summed over the readers of a tensor that parts are written to in turn

static bool places_a_part(Op op) { return op == Op::pad || op == Op::update_at || op == Op::join; }

/// Whether a view shows every second element, or fewer.
static bool skips(const GraphNode& n) {
  if (n.op != Op::slice) return false;
  const auto box = ir::attributes<ir::Box>(n);
  for (std::size_t a = 0; a < n.dims.size(); ++a)
    if (n.dims[a] > 1 && box.step(a) != 1) return true;
  return false;
}

void Fuser::begin_classes() {
  const NodeId n = g_.size();
  loops_ = ir::find_loops(g_);
  transparent_.assign(n, true);
  is_root_.assign(n, false);
  generator_cost_.assign(n, -1.0f);
  pieces_.assign(n, 1);
  reads_.assign(n, 0);
  reread_.assign(n, 0);
  reshapes_.assign(n, 0);
  for (NodeId r : g_.roots) is_root_[r] = true;
  readers_.assign(n, 0);
  for (NodeId id = 0; id < n; ++id)
    if (!ir::is_view(g_[id].op))
      for (const NodeId in : g_[id].in) ++readers_[in];
  shown_ = readers_;
  for (NodeId id = n; id-- > 0;)
    if (ir::is_view(g_[id].op) && !places_a_part(g_[id].op) && !skips(g_[id]))
      for (const NodeId in : g_[id].in) shown_[in] += shown_[id];
  find_windows();
}

/// Products that a main loop of a GPU does, whose operand is windows.
void Fuser::find_windows() {
  constexpr int kAmpere = 80;
  if (fusion_ != Fusion::Full || !t_.gpu || t_.architecture < kAmpere ||
      t_.templates < schedule::Target::Templates::Few)
    return;
  windows_ = products_of_windows(g_, t_, [&](NodeId product, const WindowView& windows) {
    return loops_.owner_of(product) == kNoNode && tiled_of_[product] < 0 &&
           std::ranges::none_of(windows.views, [&](NodeId view) { return is_apart(view); });
  });
}

/// A view, a cast or an elementwise operation.
void Fuser::classify_map(NodeId id) {
  const GraphNode& x = g_[id];
  if (ir::is_view(x.op) && tiled_of_[id] >= 0 && ends_tiled(id)) return store_view(id);
  float cost = ir::is_view(x.op) ? 0 : t_.cost_of(static_cast<int>(x.op));
  for (const NodeId in : x.in) {
    if (cost < 0) break;
    cost = generator(in) ? cost + generator_cost_[in] : -1.0f;
  }
  if (cost <= kGeneratorCost) generator_cost_[id] = cost;
  if (is_written_in_place(x)) generator_cost_[id] = -1;
  if (is_apart(id)) generator_cost_[id] = -1;
  transparent_[id] = ir::is_view(x.op) || generator(id) || (!recomputed_.empty() && recomputed_[id]);
  count_pieces(id);
  if (ir::is_view(x.op) && is_apart(id)) store_view(id);
  if (!transparent_[id]) count_reads(id);
}

/// A compute node gets a place in some region; transparent nodes (views, scalars, iotas, cheap values of
/// indices alone) are recomputed wherever they are read.
void Fuser::classify() {
  begin_classes();
  const NodeId n = g_.size();
  std::vector<bool> wanted = is_root_;  // read as memory by somebody that cannot compute it in place
  for (NodeId id = 0; id < n; ++id) {
    const GraphNode& x = g_[id];
    if (loops_.owner_of(id) != kNoNode) continue;
    switch (ir::info(x.op).kind) {
      case OpKind::Leaf: break;
      case OpKind::LoopState:
      case OpKind::LoopNext: break;
      case OpKind::Loop:
        if (const ir::LoopParts& l = loops_.of(id); l.parent == kNoNode && !inside_a_kernel(l))
          // the count is written
          for (std::size_t s = l.counts(); s < l.states.size(); ++s) wanted[g_[l.states[s]].in[0]] = true;
        break;
      case OpKind::Scalar:
      case OpKind::Iota: generator_cost_[id] = 1; break;
      case OpKind::View:
      case OpKind::Cast:
      case OpKind::Elementwise: classify_map(id); break;
      case OpKind::Library:
      case OpKind::Contraction:
        if (tiled_of_[id] >= 0) {
          transparent_[id] = false;
          break;
        }
        for (const NodeId in : x.in) wanted[memory_of(id, in)] = true;
        if (windows_.contains(id)) {
          transparent_[id] = false;
          break;
        }
        [[fallthrough]];
      case OpKind::Part:
      case OpKind::LoopResult:
      case OpKind::LoopStack:
      case OpKind::Gather:
      case OpKind::Scan:
      case OpKind::Reduce:
        transparent_[id] = ir::has(x.op, ir::BUNDLE);  // its parts are there in its stead
        count_reads(id);
        break;
    }
  }
  for (NodeId id = 0; id < n; ++id)
    if (wanted[id] && transparent_[id] && g_[id].op != Op::leaf && needs_memory(id)) transparent_[id] = false;
  for (const auto& [product, windows] : windows_)
    for (const NodeId view : windows.views) transparent_[view] = true;
  for (const Tiled& t : tiled_)
    for (const NodeId base : t.bases)
      if (g_[base].op != Op::leaf && transparent_[base]) store_view(base);
  for (NodeId r : g_.roots) {  // what a root view shows must be stored, so it is as good as a root
    if (!transparent_[r] || !ir::is_view(g_[r].op)) continue;
    const NodeId base = resolve_alias(g_, r).base;
    if (base != kNoNode && g_[base].op != Op::leaf) is_root_[base] = true;
  }
}

/// What a view shows through pads, each an index map, a predicate and a load. Beyond a number of them what a
/// pad places, or else what it places that on, is stored before.
void Fuser::count_pieces(NodeId id) {
  const GraphNode& x = g_[id];
  if (!ir::is_view(x.op) || is_written_in_place(x)) return;
  // the last is a position
  const bool at_position = x.op == Op::slice_at || x.op == Op::update_at;
  const auto arrays = std::span(x.in.begin(), x.in.size() - at_position);
  int all = x.op == Op::join;  // n arrays meet at as many borders as n pads on a fill have
  for (const NodeId in : arrays) all += pieces_[in];
  for (const NodeId in : arrays) {
    if (all <= kMaxPieces) break;
    if (pieces_[in] == 1) continue;
    transparent_[in] = false;
    generator_cost_[in] = generator_cost_[id] = -1;
    all -= std::exchange(pieces_[in], 1) - 1;
  }
  pieces_[id] = all;
  for (const NodeId in : x.in)
    if (transparent_[in]) reshapes_[id] = std::max(reshapes_[id], reshapes_[in] + (x.op == Op::reshape));
  if (x.op == Op::arrange || reshapes_[id] > kMaxReshapes) return store_view(id);
  if (!places_a_part(x.op)) return;
  if (pieces_[id] >= kCostlyPieces && readers_[id] >= kCostlyReaders) return store_view(id);
  if (x.op == Op::pad && !t_.gpu && shown_[id] >= kShiftedReaders && x.numel >= kLeastPadded)
    return store_view(id);
  if (x.op == Op::join || !transparent_[x.in[1]]) return;
  reread_[id] = reread_[x.in[1]] + reads_[x.in[1]];
  if (reread_[id] > kMaxReread) store_view(id);
}

/// Makes a view a compute node: whoever reads it reads memory.
void Fuser::store_view(NodeId id) {
  transparent_[id] = false;
  generator_cost_[id] = -1;
  pieces_[id] = 1;
  reread_[id] = reshapes_[id] = 0;
}

/// Counts the pieces that a compute node reads, with the pads that show them. When parts of a tensor are
/// updated one after the other, each update reads what all before it wrote: k of them take k kernels with up
/// to k pieces each. Beyond a number in all, the tensor is stored (count_pieces), and pieces are counted
/// anew.
void Fuser::count_reads(NodeId id) {
  for (NodeId view : g_[id].in) {
    while (transparent_[view] && ir::is_view(g_[view].op) && !places_a_part(g_[view].op))
      view = g_[view].in[0];
    if (transparent_[view] && places_a_part(g_[view].op)) reads_[view] += pieces_[view];
  }
}

/// Whether each element's states depend on that element alone, so that a loop can run inside a kernel. The
/// condition must be known before the body, and the code must not be long.
bool Fuser::inside_a_kernel(const ir::LoopParts& l) const {
  if (fusion_ == Fusion::None) return false;
  float cost = 0;
  // what depends on states of one element only has the same states at every point
  std::vector<NodeId> placeless;
  for (NodeId id : l.body) {
    const GraphNode& x = g_[id];
    const bool anywhere =
        x.op == Op::loop_state ? x.numel == 1 : std::all_of(x.in.begin(), x.in.end(), [&](NodeId in) {
          return loops_.owner_of(in) == kNoNode || std::binary_search(placeless.begin(), placeless.end(), in);
        });
    if (anywhere) placeless.push_back(id);
    cost += t_.cost_of(static_cast<int>(x.op));
    switch (ir::info(x.op).kind) {
      case OpKind::Elementwise:
      case OpKind::Cast:
      case OpKind::LoopState:
      case OpKind::LoopNext:
      case OpKind::LoopResult: break;
      case OpKind::Loop:
        if (needs_a_loop(x.in[1])) return false;
        break;
      case OpKind::View:
        // a read of memory, as a gather is
        if (x.op == Op::slice_at && loops_.owner_of(x.in[0]) == kNoNode) break;
        if (x.op != Op::broadcast && !anywhere) return false;
        break;
      case OpKind::Gather:
        if (loops_.owner_of(x.in[0]) != kNoNode) return false;
        break;
      case OpKind::Leaf:
      case OpKind::Scalar:
      case OpKind::Iota:
      case OpKind::Reduce:
      case OpKind::Scan:
      case OpKind::LoopStack:
      case OpKind::Contraction:
      case OpKind::Library:
      case OpKind::Part: return false;
    }
  }
  return cost <= static_cast<float>(t_.max_prims) && !needs_a_loop(l.condition);
}

/// Whether a value inside a loop is made of another loop's result.
bool Fuser::needs_a_loop(NodeId value) const {
  std::vector<NodeId> stack{value};
  std::vector<bool> seen(value + 1);
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    if (seen[id] || loops_.owner_of(id) == kNoNode || g_[id].op == Op::loop_state) continue;
    seen[id] = true;
    if (g_[id].op == Op::loop_result) return true;
    for (const NodeId in : g_[id].in) stack.push_back(in);
  }
  return false;
}

/// What a library op reads as memory: its operand, or what shows it. Products read what views show of a
/// tensor that is stored, so that all readers share it: a CPU's rows and columns at offsets, a GPU's lines.
/// An operand that several batches share is copied once instead of packed for each.
NodeId Fuser::memory_of(NodeId by, NodeId operand) const {
  const GraphNode& reader = g_[by];
  const auto windows = windows_.find(by);
  if (windows != windows_.end() && reader.in[windows->second.operand] == operand)
    return windows->second.memory.base;
  if (ir::info(reader.op).kind != OpKind::Contraction || resolve_alias(g_, operand).base != kNoNode)
    return operand;
  const auto v = matrix_view(g_, operand, [&](NodeId id) { return !transparent_[id]; });
  if (!v || (ir::is_view(g_[v->base].op) && resolve_alias(g_, v->base).base != kNoNode)) return operand;
  if (t_.gpu && !shows_lines(*v)) return operand;
  NodeId shared = operand;
  while (g_[shared].op == Op::broadcast) shared = g_[shared].in[0];
  return g_[shared].numel < g_[operand].numel ? shared : v->base;
}

/// A transparent node that somebody reads as memory and that no existing memory shows.
bool Fuser::needs_memory(NodeId id) const {
  if (!ir::is_view(g_[id].op)) return true;
  if (is_written_in_place(g_[id])) return false;
  const Alias a = resolve_alias(g_, id);
  if (a.base != kNoNode && is_written_in_place(g_[a.base])) return false;
  return a.base == kNoNode || (g_[a.base].op != Op::leaf && transparent_[a.base] && !is_root_[a.base]);
}

void Fuser::collect_edges() {
  for (NodeId c = 0; c < g_.size(); ++c) {
    if (transparent_[c]) continue;
    const GraphNode& x = g_[c].op == Op::part ? g_[g_[c].in[0]] : g_[c];
    if (of_loop(x)) {
      walk_loop(loops_.of_result(g_, c), c);
      continue;
    }
    if (tiled_of_[c] >= 0) {
      if (ends_tiled(c)) walk_tiled(tiled(c));
      continue;
    }
    if (ir::is_view(x.op)) {
      walk_view(c, c);
      continue;
    }
    for (std::size_t k = 0; k < x.in.size(); ++k) {
      const ir::Dims space = ir::is_reduce(x.op) ? g_[x.in[k]].dims : x.dims;
      const auto windows = windows_.find(c);
      if (windows != windows_.end() && windows->second.operand == k) {
        const NodeId base = windows->second.memory.base;
        walk(base, c, space, Shape(g_[base].dims), false);
        continue;
      }
      walk(x.in[k], c, space, Shape(g_[x.in[k]].dims), reads_in_order(x, k));
    }
  }
}

/// What is computed tile by tile reads memory alone: what it reads in place is part of it.
void Fuser::walk_tiled(const Tiled& t) {
  for (const NodeId base : t.bases)
    edges_.push_back({base, t.end, Relation::Other, 0, 0, g_[base].numel * size_of(g_[base].dtype)});
}

/// Whether a compute node reads operand k point by point, the points known before any value is.
bool Fuser::reads_in_order(const GraphNode& x, std::size_t k) {
  const OpKind kind = ir::info(x.op).kind;
  return !ir::is_library(x.op) && !(kind == OpKind::Gather && k == 0);
}

/// Finds the producers below `id`, whose points are (while `linear`) those of `shown`, which broadcasts to
/// `space`.
void Fuser::walk(NodeId id, NodeId consumer, ir::Dims space, Shape shown, bool linear) {
  if (!transparent_[id]) {
    add_edge(id, consumer, space, shown, linear);
    return;
  }
  const GraphNode& x = g_[id];
  switch (ir::info(x.op).kind) {
    case OpKind::Leaf:
    case OpKind::Scalar:
    case OpKind::Iota:
      if (x.op == Op::leaf) add_edge(id, consumer, space, shown, linear);
      return;
    case OpKind::View:
      if (x.op == Op::reshape) return walk(x.in[0], consumer, space, shown, linear);
      if (x.op == Op::broadcast) {
        const GraphNode& in = g_[x.in[0]];
        if (linear && std::equal(x.dims.begin(), x.dims.end(), shown.begin(), shown.end()))
          return walk(x.in[0], consumer, space, Shape(in.dims), true);
        return walk(x.in[0], consumer, space, shown, linear && in.numel == x.numel);
      }
      for (const NodeId in : x.in) walk(in, consumer, space, shown, false);
      return;
    case OpKind::Cast:
    case OpKind::Reduce:
    case OpKind::Scan:
    case OpKind::LoopState:
    case OpKind::LoopNext:
    case OpKind::Loop:
    case OpKind::LoopResult:
    case OpKind::LoopStack:
    case OpKind::Gather:
    case OpKind::Contraction:
    case OpKind::Library:
    case OpKind::Part:
    case OpKind::Elementwise:
      for (const NodeId in : x.in) {
        const ir::Dims dims = g_[in].dims;
        if (linear && std::equal(x.dims.begin(), x.dims.end(), shown.begin(), shown.end()))
          walk(in, consumer, space, Shape(dims), true);  // a broadcast, where the dims differ
        else
          walk(in, consumer, space, shown, linear && std::ranges::equal(dims, x.dims));
      }
  }
}

/// Everything that a loop reads from outside.
void Fuser::walk_loop(const ir::LoopParts& l, NodeId consumer) {
  std::vector<NodeId> found;
  auto read = [&](NodeId in, bool in_order) {
    if (loops_.owner_of(in) != kNoNode || ir::info(g_[in].op).kind == OpKind::LoopNext) return;
    if (std::find(found.begin(), found.end(), in) != found.end()) return;
    found.push_back(in);
    walk(in, consumer, elements_of(g_[consumer]), Shape(g_[in].dims), in_order);
  };
  auto read_all = [&](const GraphNode& x) {
    for (std::size_t k = 0; k < x.in.size(); ++k) read(x.in[k], reads_in_order(x, k));
  };
  for (NodeId id : l.body) read_all(g_[id]);
  read_all(g_[l.node]);
  for (const auto* made : {&l.nexts, &l.yields})
    for (NodeId id : *made) read(id, true);
}

void Fuser::walk_view(NodeId view, NodeId consumer) {
  transparent_[view] = true;
  walk(view, consumer, g_[view].dims, Shape(g_[view].dims), true);
  transparent_[view] = false;
}

void Fuser::add_edge(NodeId producer, NodeId consumer, ir::Dims space, const Shape& shown, bool linear) {
  Edge e{producer, consumer, Relation::Other};
  e.bytes = g_[producer].numel * size_of(g_[producer].dtype);
  if (linear && g_[producer].op != Op::loop_stack) {  // whose loop ends before anybody reads it
    std::int64_t n = 1;
    for (std::int64_t d : space) n *= d;
    if (shown.numel() == n) {
      e.relation = Relation::Same;
    } else if (shown.rank() <= static_cast<int>(space.size())) {
      e.relation = Relation::Spread;
      e.first_run = static_cast<std::uint32_t>(runs_.size());
      const std::size_t skip = space.size() - static_cast<std::size_t>(shown.rank());
      for (std::size_t a = 0; a < space.size(); ++a)
        add_run(runs_, e.first_run, {space[a], a < skip || shown[static_cast<int>(a - skip)] == 1});
      e.runs = static_cast<std::uint32_t>(runs_.size()) - e.first_run;
    }
  }
  edges_.push_back(e);
}

}  // namespace kiln::plan
