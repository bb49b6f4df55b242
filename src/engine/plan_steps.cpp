// Steps of a plan, and the memory that they use.
#include "codegen/cuda/cuda_c.h"
#include "codegen/cuda/cuda_template.h"
#include "device/device.h"
#include "engine/loop_graphs.h"
#include "engine/plan_maker.h"
#include "engine/replay.h"
#include "inspect/dump.h"
#include "ir/layout.h"
#include "kernel/specialise.h"
#include "plan/strided.h"
#include "support/check.h"

#include <algorithm>

namespace kiln::engine {

std::int32_t PlanMaker::argument_of(NodeId id) const {
  if (const auto at = regions_.placements.find(id); at != regions_.placements.end())
    return static_cast<std::int32_t>(at->second.arg);
  return plan::is_written_in_place(g_[id]) || g_[id].op == ir::Op::scatter ? g_[id].arg : -1;
}

bool PlanMaker::has_value(const ir::Loops& loops, NodeId id) const {
  return loops.owner_of(id) == ir::kNoNode && ir::has_value(g_[id].op);
}

Place PlanMaker::place_of(NodeId id, std::int64_t byte_offset) {
  if (g_[id].op == ir::Op::leaf) {
    note_read(static_cast<std::uint32_t>(g_[id].arg));
    return {Place::Kind::Arg, static_cast<std::uint32_t>(g_[id].arg), byte_offset};
  }
  if (const std::int32_t arg = argument_of(id); arg >= 0) {
    const auto a = static_cast<std::uint32_t>(arg);
    const bool writes = !plan::is_written_in_place(g_[id]);
    if (writes && accesses_[a].write < 0) accesses_[a].write = static_cast<std::int64_t>(plan_->steps.size());
    return {Place::Kind::Arg, a, byte_offset};
  }
  if (buffer_of_[id] < 0)
    buffer_of_[id] = static_cast<std::int32_t>(
        new_buffer(static_cast<std::uint64_t>(g_[id].numel * size_of(g_[id].dtype))));
  return {Place::Kind::Buffer, static_cast<std::uint32_t>(buffer_of_[id]), byte_offset};
}

Place PlanMaker::place_of(const plan::Alias& a, DType dtype) {
  Place p = place_of(a.base, a.offset * size_of(dtype));
  p.moved = moves_of(a, dtype);
  return p;
}

std::uint32_t PlanMaker::moves_of(const plan::Alias& a, DType dtype) {
  if (a.positions.empty()) return 0;
  std::vector<Move>& moves = plan_->moves.emplace_back();
  for (const plan::Alias::Position& p : a.positions)
    moves.push_back({static_cast<std::uint32_t>(p.slot), p.last, p.stride * size_of(dtype)});
  return static_cast<std::uint32_t>(plan_->moves.size());
}

void PlanMaker::add_launch(const plan::Region& r) {
  bool empty = true;
  for (NodeId o : r.outputs) {
    empty &= g_[o].numel == 0;
    place_of(o, 0);
  }
  if (empty) return;
  std::unique_ptr<lower::Lowered> lowered;
  std::map<std::uint32_t, Place> shared;
  Launch l = lowered_launch(r, lowered, &shared);
  std::vector<lower::Lowered> then = std::move(lowered->then);
  push_launch(std::move(l), std::move(lowered), r);
  for (lower::Lowered& next : then) {
    at_ = &r;
    auto own = std::make_unique<lower::Lowered>(std::move(next));
    Launch behind = bound_launch(r, *own, &shared);
    push_launch(std::move(behind), std::move(own), r);
  }
}

void PlanMaker::push_launch(Launch launch, std::unique_ptr<lower::Lowered> lowered, const plan::Region& r) {
  plan_->steps.push_back({Step::Kind::Launch, static_cast<std::uint32_t>(plan_->launches.size())});
  plan_->launches.push_back(std::move(launch));
  lowered_.push_back(std::move(lowered));
  region_of_launch_.push_back(&r);
}

void PlanMaker::push_launches(Launch launch, std::unique_ptr<lower::Lowered> lowered, const plan::Region& r) {
  std::unique_ptr<lower::Lowered> again;
  if (!lowered->again.empty()) again = std::make_unique<lower::Lowered>(*lowered);
  push_launch(launch, std::move(lowered), r);
  if (!again) return;
  launch.head = again->again;
  launch.bytes = 0;  // it mostly ends at once
  launch.work = 0;
  push_launch(std::move(launch), std::move(again), r);
}

Launch PlanMaker::lowered_launch(const plan::Region& r, std::unique_ptr<lower::Lowered>& lowered,
                                 std::map<std::uint32_t, Place>* shared) {
  at_ = &r;
  if (const RegionHook hook = current_region_hook()) hook(g_, r);
  lowered = std::make_unique<lower::Lowered>(lower::lower(g_, regions_, r, planning_target(device_)));
  if (lowered->overlaps && drop_reuse(r)) return lowered_launch(r, lowered, shared);
  note_schedules(r, *lowered);
  return bound_launch(r, *lowered, lowered->then.empty() ? nullptr : shared);
}

Launch PlanMaker::bound_launch(const plan::Region& r, lower::Lowered& lowered,
                               std::map<std::uint32_t, Place>* shared) {
  overlaps_ = overlaps_ || lowered.overlaps;
  // A GPU's chain has its totals in registers and among the counters.
  const bool totals_apart = planning_target(device_).gpu && !lowered.kernel.link.empty();
  const auto own = [&](const lower::BufferSource& s) {
    return Place{Place::Kind::Buffer, new_buffer(totals_apart ? 1 : static_cast<std::uint64_t>(s.bytes)), 0};
  };
  Launch l;
  for (std::size_t b = 0; b < lowered.buffers.size(); ++b) {
    const lower::BufferSource& s = lowered.buffers[b];
    switch (s.kind) {
      case lower::BufferSource::Kind::Arg:
        note_read(s.id);
        l.buffers.push_back({Place::Kind::Arg, s.id, s.byte_offset});
        break;
      case lower::BufferSource::Kind::Node: l.buffers.push_back(place_of(s.id, s.byte_offset)); break;
      case lower::BufferSource::Kind::Partial:
        if (shared) {
          const auto [at, fresh] = shared->try_emplace(s.id);
          if (fresh) at->second = own(s);
          l.buffers.push_back(at->second);
        } else {
          l.buffers.push_back(own(s));
        }
        break;
      case lower::BufferSource::Kind::Scratch: l.buffers.push_back({}); break;
    }
    if (!s.positions.empty()) {
      std::vector<Move>& moves = plan_->moves.emplace_back();
      for (const lower::BufferSource::Position& p : s.positions)
        moves.push_back({static_cast<std::uint32_t>(p.slot), p.last, p.stride, p.divisor});
      l.buffers.back().moved = static_cast<std::uint32_t>(plan_->moves.size());
    }
    l.buffers.back().written = lowered.kernel.buffers[b].role != kernel::BufferDecl::Role::In;
    if (dumps_runs()) l.types.push_back(lowered.kernel.buffers[b].dtype);
  }
  size_launch(l, lowered, r);
  at_ = nullptr;
  return l;
}

void PlanMaker::size_launch(Launch& l, lower::Lowered& lowered, const plan::Region& r) {
  if (specialises_kernels()) [[unlikely]]
    lowered.kernel = kernel::specialise(lowered.kernel, lowered.params);
  l.params = std::move(lowered.params);
  l.narrow = lowered.kernel.threads.narrow;
  if (l.narrow) l.narrow_params.assign(l.params.begin(), l.params.end());
  for (std::uint32_t b = 0; b < l.buffers.size(); ++b)
    if (l.buffers[b].kind != Place::Kind::None) l.arguments.push_back(b);
  for (std::int32_t s : lowered.slots) l.slots.push_back(static_cast<std::uint32_t>(s));
  l.slot_count = static_cast<std::uint32_t>(l.slots.size());
  l.grid = lowered.grid;
  l.head = lowered.head;
  l.tiled = lowered.tiled;
  if (lowered.shape) {
    l.shape = *lowered.shape;
  } else if (lowered.kernel.main_loop) {
    codegen::complete_tiles(lowered.kernel, l.tiled);
    l.shape = codegen::template_shape(lowered.kernel, l.head, planning_target(device_).threads);
  } else {
    l.shape = device::at(device_).shape_of(lowered.kernel, l.grid);
    if (const auto most = static_cast<std::uint32_t>(lowered.most_blocks); most > 0)
      l.shape.grid[0] = std::min(l.shape.grid[0], most);
  }
  l.given = lowered.given;
  l.given_buffer = lowered.given_buffer;
  l.finish_grid = lowered.finish_grid;
  l.counters = lowered.kernel.main_loop
                   ? codegen::template_text(lowered.kernel.main_loop->name).counters + l.finish_grid
               : lowered.kernel.link.empty() ? l.finish_grid
                                             : codegen::chain_counters(lowered.kernel, l.grid);
  l.grain = lowered.grain;
  l.scratch_bytes = lowered.scratch_bytes;
  l.bytes = lowered.bytes;
  l.work = lowered.work;
  l.ops = op_names(g_, r);
  l.extents = Shape(g_[r.outputs.front()].dims).str();
  l.line = g_[r.outputs.front()].loc;
  lowered.kernel.label = label_of(g_, r);
}

void PlanMaker::add_product(const plan::Region& r) {
  for (NodeId o : r.outputs) place_of(o, 0);
  EpilogueOf epilogue{nullptr, &r};
  Launch launch = lowered_launch(r, epilogue.lowered);
  LibraryCall l = library_call(r.product);
  l.epilogue = static_cast<std::int32_t>(plan_->epilogues.size());
  const device::Bound of{&launch, nullptr, nullptr};
  library::Call call = call_without_memory(l, device_);
  call.epilogue = &of;
  l.fixed = l.routine->fixed(call);
  plan_->epilogues.push_back(std::move(launch));
  epilogues_.push_back(std::move(epilogue));
  plan_->steps.push_back({Step::Kind::Library, static_cast<std::uint32_t>(plan_->library.size())});
  plan_->library.push_back(std::move(l));
}

/// The memory that shows an operand of a library call; the step being made reads it.
ArrayOperand PlanMaker::array(NodeId id) {
  plan::Alias a = plan::resolve_alias(g_, id);
  // views and constants too
  if (g_[id].op != ir::Op::leaf && regions_.stored[id]) a = {id, 0, {}, ir::row_major_strides(g_[id].dims)};
  if (a.base == ir::kNoNode) return matrix(id);
  const ir::GraphNode& n = g_[id];
  return {place_of(a, n.dtype), n.dtype, {n.dims.begin(), n.dims.end()}, std::move(a.strides)};
}

/// The same of a product's operand whose rows or columns lie at no single stride.
ArrayOperand PlanMaker::matrix(NodeId id) {
  const ir::GraphNode& n = g_[id];
  const auto v = plan::matrix_view(g_, id, [&](NodeId other) { return regions_.stored[other]; });
  KILN_CHECK_THAT(v, "an operand of a library call has no memory");
  ArrayOperand out{{}, n.dtype, {n.dims.begin(), n.dims.end()}, {}};
  for (const auto& axis : v->axes) out.strides.push_back(plan::stride_of(axis).value_or(0));
  const std::size_t rank = n.dims.size();
  const auto offsets = [&](std::size_t axis, std::vector<std::int64_t>& to) {
    if (plan::stride_of(v->axes[axis])) return;
    for (std::int64_t i = 0; i < n.dims[axis]; ++i) to.push_back(plan::offset_along(v->axes[axis], i));
  };
  offsets(rank - 2, out.row_offsets);
  offsets(rank - 1, out.col_offsets);
  out.place = place_of(plan::Alias{v->base, v->offset, v->positions, out.strides}, n.dtype);
  return out;
}

LibraryCall PlanMaker::library_call(NodeId id) {
  const ir::GraphNode& n = g_[id];
  const schedule::Target& target = planning_target(device_);
  LibraryCall l;
  l.routine = &library::routine(n.op, device_);
  l.op = n.op;
  l.line = n.loc;
  l.attr64 = n.attr64;
  l.attrs.assign(n.attrs.begin(), n.attrs.end());
  l.strict = target.strict;
  l.exact = target.exact;
  l.tf32 = target.tf32;
  for (const NodeId in : n.in) l.operands.push_back(array(in));
  l.dtype = n.dtype;
  l.dims.assign(n.dims.begin(), n.dims.end());
  try {
    l.routine->prepare(call_without_memory(l, device_));
  } catch (const UserError& e) {
    throw UserError(cat(e.message(), ", recorded at ", n.loc.file_name(), ":", n.loc.line()));
  }
  return l;
}

/// What the library adds to a product, an array of its extents.
static ArrayOperand addend(const LibraryCall& product, const Place& place) {
  return {place, product.dtype, product.dims, ir::row_major_strides(product.dims)};
}

bool PlanMaker::library_adds(const plan::ProductRow& parts) {
  LibraryCall l = library_call(parts.product);
  l.dtype = g_[parts.sum].dtype;
  if (parts.row != ir::kNoNode) l.operands.push_back({{}, l.dtype, {l.dims.back()}, {1}});
  if (parts.whole != ir::kNoNode) l.operands.push_back(addend(l, {}));
  library::Call call = call_without_memory(l, device_);
  for (std::size_t i = 2; i < call.n_operands; ++i)  // they are there; not read
    call.operands[i].array.data = reinterpret_cast<const void*>(std::uintptr_t{256});
  return l.routine->supports(call);
}

void PlanMaker::add_library_call(const plan::Region& r) {
  const NodeId id = r.nodes.front(), result = r.nodes.back();
  const ir::GraphNode& n = g_[id];
  if (ir::has(n.op, ir::BUNDLE)) return add_bundle(r);
  const plan::ProductRow parts = result == id ? plan::ProductRow{id, id} : plan::product_row(g_, regions_, r);
  const NodeId overwritten = library::routine(n.op, device_).overwrites_first() ? n.in[0] : parts.whole;
  const bool own = overwritten != ir::kNoNode && regions_.stored[overwritten] && only_operand(overwritten);
  if (own && !regions_.placements.contains(overwritten)) {
    buffer_of_[result] = buffer_of_[overwritten];
    overwritten_[overwritten] = true;
  }
  const Place out = place_of(result, 0);
  if (n.numel == 0) return;
  LibraryCall l = library_call(id);
  l.out = out;
  l.dtype = g_[result].dtype;
  if (parts.row != ir::kNoNode) {
    const auto a = plan::repeated_row(g_, regions_, parts.row, n.dims.back());
    KILN_CHECK_THAT(a, "a row that the library adds has no memory");
    l.operands.push_back({place_of(*a, l.dtype), l.dtype, {n.dims.back()}, {1}});
  }
  if (parts.whole != ir::kNoNode) {
    const auto a = plan::whole_array(g_, regions_, parts.whole);
    KILN_CHECK_THAT(a, "an array that the library adds has no memory");
    l.operands.push_back(addend(l, place_of(*a, l.dtype)));
  }
  choose_way(r, l);
  l.fixed = l.routine->fixed(call_without_memory(l, device_));
  plan_->steps.push_back({Step::Kind::Library, static_cast<std::uint32_t>(plan_->library.size())});
  plan_->library.push_back(std::move(l));
}

/// One call for all results of an op that somebody asks for.
void PlanMaker::add_bundle(const plan::Region& r) {
  const NodeId id = r.nodes.front();
  bool empty = true;
  for (const NodeId part : r.outputs) {
    empty &= g_[part].numel == 0;
    place_of(part, 0);
  }
  if (empty) return;
  LibraryCall l = library_call(id);
  l.others.resize(library::Call::kMostResults - 1);
  for (const NodeId part : r.outputs) {
    const std::size_t index = ir::attributes<ir::Part>(g_[part]).index;
    Place& place = index == 0 ? l.out : l.others[index - 1];
    KILN_CHECK_THAT(place.kind == Place::Kind::None, "a result of ", ir::info(g_[id].op).name,
                    " is there twice");
    place = place_of(part, 0);
  }
  choose_way(r, l);
  l.fixed = l.routine->fixed(call_without_memory(l, device_));
  plan_->steps.push_back({Step::Kind::Library, static_cast<std::uint32_t>(plan_->library.size())});
  plan_->library.push_back(std::move(l));
}

bool PlanMaker::only_operand(NodeId id) const {
  if (g_[id].op == ir::Op::leaf || g_[id].op == ir::Op::loop_result) return false;
  for (std::size_t i = 0; i < ids_.size(); ++i)
    if (wanted_[i] && t_.now[ids_[i]] == id) return false;
  auto reads = std::count(g_.roots.begin(), g_.roots.end(), id);
  for (const ir::GraphNode& n : g_.nodes) reads += std::count(n.in.begin(), n.in.end(), id);
  return reads == 1;
}

void PlanMaker::add_loop(const plan::Region& r) {
  const ir::LoopParts& parts = regions_.loops.of_result(g_, r.nodes.front());
  LoopGraphs graphs = loop_graphs(g_, regions_, parts);
  Loop l;
  for (NodeId state : parts.states) {
    const NodeId init = g_[state].in[0];
    if (parts.counts() && state == parts.states.front()) {
      KILN_CHECK_THAT(g_[state].dtype == DType::Int64 && g_[state].numel == 1, "a loop counts in one int64");
      l.states.push_back({{},
                          {g_[init].dims.begin(), g_[init].dims.end()},
                          ir::row_major_strides(g_[init].dims),
                          DType::Int64,
                          {}});
      continue;
    }
    plan::Alias a = plan::resolve_alias(g_, init);
    if (g_[init].op != ir::Op::leaf && regions_.stored[init])
      a = {init, 0, {}, ir::row_major_strides(g_[init].dims)};
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
    const std::size_t i = ir::attributes<ir::LoopResult>(g_[result]).index;
    Place& place = g_[result].op == ir::Op::loop_stack ? l.yields[i].stack : l.states[i].result;
    place = place_of(result, 0);
  }
  l.count = parts.count;
  for (NodeId capture : graphs.captures) l.captures.push_back(place_of(capture, 0));
  if (!parts.counts()) l.condition = make_plan(std::move(graphs.condition), device_);
  // The loop has its states to itself, but for their first values.
  std::vector<NodeId> states;
  for (NodeId id = 0; id < graphs.body.size(); ++id)
    if (graphs.body[id].op == ir::Op::leaf && static_cast<std::size_t>(graphs.body[id].arg) < l.states.size())
      states.push_back(id);
  l.body = make_plan(std::move(graphs.body), device_, states);
  plan_->steps.push_back({Step::Kind::Loop, static_cast<std::uint32_t>(plan_->loops.size())});
  plan_->loops.push_back(std::move(l));
}

library::Call call_without_memory(const LibraryCall& l, Device device) {
  library::Call call;
  KILN_CHECK_THAT(l.operands.size() <= library::Call::kMostOperands, "too many operands of a library call");
  call.op = l.op;
  call.attr64 = l.attr64;
  call.attrs = l.attrs;
  call.strict = l.strict;
  call.exact = l.exact;
  call.tf32 = l.tf32;
  call.ways = l.ways;
  call.maker.piece = l.piece;
  call.device = device;
  call.n_operands = l.operands.size();
  for (std::size_t i = 0; i < l.operands.size(); ++i) {
    const ArrayOperand& from = l.operands[i];
    library::Operand& to = call.operands[i];
    to.dtype = from.dtype;
    to.array.rank = static_cast<int>(from.dims.size());
    std::copy(from.dims.begin(), from.dims.end(), to.array.dims);
    std::copy(from.strides.begin(), from.strides.end(), to.array.strides);
    if (!from.row_offsets.empty()) to.array.row_offsets = from.row_offsets.data();
    if (!from.col_offsets.empty()) to.array.col_offsets = from.col_offsets.data();
  }
  call.wanted = l.out.kind != Place::Kind::None;
  for (std::size_t i = 0; i < l.others.size(); ++i)
    call.wanted |= std::uint32_t{l.others[i].kind != Place::Kind::None} << (i + 1);
  call.dtype = l.dtype;
  call.rank = static_cast<int>(l.dims.size());
  std::copy(l.dims.begin(), l.dims.end(), call.dims.begin());
  return call;
}

}  // namespace kiln::engine
