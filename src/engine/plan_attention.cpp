// Steps for attentions: the kernels of their tiles, made from small graphs by the planner and the lowering
// that make all kernels, and the memory that they use.
#include "device/device.h"
#include "engine/plan_maker.h"
#include "engine/tile_graphs.h"
#include "inspect/dump.h"
#include "ir/builder.h"
#include "ir/layout.h"
#include "library/attention.h"
#include "lower/attention_form.h"
#include "support/check.h"

#include <numeric>

namespace kiln::engine {

/// The kernels of an attention's tiles are whole whatever options switch off.
static schedule::Target without_options(schedule::Target target) {
  target.off = {};
  target.fuse_least = 0;
  return target;
}

using library::TileBuffer;

void PlanMaker::add_tile_kernels(TileStep& step, TileGraph tile, std::vector<library::TileKernel>& to,
                                 const plan::Region& region) {
  schedule::Target target = planning_target(device_);
  target.threads = 1;  // a unit of work is one thread's
  plan::Regions regions = plan::fuse(tile.graph, without_options(target));
  regions.placements = std::move(tile.placements);
  std::vector<std::int64_t> local(tile.graph.size(), -1);  // bytes into the unit's memory
  const auto own = [&](std::int64_t bytes) {
    const std::int64_t at = step.local_bytes;
    step.local_bytes += (bytes + 63) / 64 * 64;
    return TileBuffer{TileBuffer::Role::Local, at};
  };
  for (const plan::Region& r : regions.regions) {
    auto lowered = std::make_unique<lower::Lowered>(lower::lower(tile.graph, regions, r, target));
    library::TileKernel& k = to.emplace_back();
    for (const lower::BufferSource& s : lowered->buffers) {
      switch (s.kind) {
        case lower::BufferSource::Kind::Arg:
          KILN_CHECK_THAT(s.byte_offset == 0 && s.positions.empty(),
                          "a tile begins in the middle of its memory");
          k.buffers.push_back(tile.arguments[s.id]);
          break;
        case lower::BufferSource::Kind::Node:
          if (const auto at = regions.placements.find(s.id); at != regions.placements.end()) {
            k.buffers.push_back(tile.arguments[at->second.arg]);
            break;
          }
          if (local[s.id] < 0)
            local[s.id] = own(tile.graph[s.id].numel * size_of(tile.graph[s.id].dtype)).index;
          k.buffers.push_back({TileBuffer::Role::Local, local[s.id] + s.byte_offset});
          break;
        case lower::BufferSource::Kind::Partial: k.buffers.push_back(own(s.bytes)); break;
        case lower::BufferSource::Kind::Scratch: k.buffers.push_back(own(0)); break;
      }
    }
    for (const std::int32_t s : lowered->slots) k.slots.push_back(tile.slots[static_cast<std::size_t>(s)]);
    KILN_CHECK_THAT(lowered->kernel.link.empty(), "a tile has no scans");
    k.launch.params = lowered->params;
    k.launch.grid = lowered->grid;
    k.launch.finish_grid = lowered->finish_grid;
    k.launch.scratch_bytes = lowered->scratch_bytes;
    k.launch.grain = lowered->grid;
    lowered->kernel.label = label_of(g_, region);
    tile_kernels_.push_back({std::move(lowered), nullptr, &step, &region, nullptr});
  }
}

Place PlanMaker::place_of(const plan::MatrixMemory& m) {
  KILN_CHECK_THAT(g_[m.base].op == ir::Op::leaf || regions_.stored[m.base],
                  "an operand that is read tile by tile has no memory");
  return place_of(plan::Alias{m.base, 0, m.positions, {}}, m.dtype);
}

void PlanMaker::add_attention(const plan::Region& r) {
  at_ = &r;
  for (NodeId o : r.outputs) place_of(o, 0);
  auto step = std::make_unique<AttentionStep>();
  step->what = regions_.attentions[static_cast<std::size_t>(r.tiled)];
  step->line = g_[r.outputs.front()].loc;
  const plan::Attention& a = *step->what;
  step->routine = &library::attention(device_);
  std::tie(step->tile_rows, step->tile_columns) = step->routine->tile_of(a);
  step->slot_types = g_.slots;
  step->result_type = g_[a.product].dtype;
  const std::size_t first = tile_kernels_.size();
  const std::int64_t rows[2] = {std::min(a.rows, step->tile_rows), a.rows % step->tile_rows};
  const std::int64_t columns[2] = {std::min(a.columns, step->tile_columns), a.columns % step->tile_columns};
  for (int i = 0; i < 2; ++i) {
    const bool exists = i == 0 ? a.rows >= step->tile_rows : rows[1] > 0;
    if (!exists) continue;
    for (int j = 0; j < 2; ++j)
      if (j == 0 ? a.columns >= step->tile_columns : columns[1] > 0)
        for (const bool whole : {false, true})
          if (!whole || !a.masks.empty())
            add_tile_kernels(*step, step_graph(a, g_.slots, step->tile_rows, rows[i], columns[j], whole),
                             step->step[i][j][whole], r);
    add_tile_kernels(*step, finish_graph(a, g_.slots, step->result_type, step->tile_rows, rows[i]),
                     step->finish[i], r);
  }
  // in the order in which the kernels were lowered
  std::size_t at = first;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j)
      for (auto& kernels : step->step[i][j])
        for (library::TileKernel& k : kernels) tile_kernels_[at++].launch = &k.launch;
    for (library::TileKernel& k : step->finish[i]) tile_kernels_[at++].launch = &k.launch;
  }
  step->q = place_of(a.q);
  step->k = place_of(a.k);
  step->v = place_of(a.v);
  for (const plan::MatrixMemory& m : a.memory) step->memory.push_back(place_of(m));
  step->result = place_of(a.product, 0);
  for (const plan::Attention::RowOutput& o : a.row_outputs) step->row_results.push_back(place_of(o.node, 0));
  plan_->steps.push_back({Step::Kind::Attention, static_cast<std::uint32_t>(plan_->attentions.size())});
  plan_->attentions.push_back(std::move(step));
  at_ = nullptr;
}

/// Bytes that divide the address of v's first element.
static std::uint32_t alignment_of(const ir::Graph& g, const plan::MatrixMemory& v) {
  constexpr std::int64_t kPlanned = 64;  // of memory that a plan allocates
  const ir::GraphNode& base = g[v.base];
  std::int64_t unit =
      base.arg < 0 ? kPlanned : std::int64_t{g.args[static_cast<std::size_t>(base.arg)].alignment};
  unit = std::gcd(unit, v.offset * size_of(v.dtype));
  for (const plan::Alias::Position& p : v.positions) unit = std::gcd(unit, p.stride * size_of(v.dtype));
  return static_cast<std::uint32_t>(unit);
}

/// Of each tile of v whether it has a value that is not finite: of rows of `columns`, for each of v's
/// matrices.
static ir::Graph flags_graph(const plan::MatrixMemory& v, std::int64_t columns, std::int64_t width,
                             std::uint32_t alignment) {
  ir::Graph g;
  ir::Builder add(g);
  std::vector<std::int64_t> dims, strides;
  for (std::size_t i = v.parts.size(); i-- > 0;) {
    dims.push_back(v.parts[i].extent);
    strides.push_back(v.parts[i].stride);
  }
  const std::size_t rank = dims.size() + 2;
  dims.insert(dims.end(), {columns, width});
  strides.insert(strides.end(), {v.row, v.column});
  ir::ArgInfo info;
  info.dtype = v.dtype;
  info.dims = g.keep(dims);
  info.strides = g.keep(strides);
  info.alignment = alignment;
  g.args.push_back(info);
  ir::GraphNode leaf;
  leaf.op = ir::Op::leaf;
  leaf.dtype = v.dtype;
  leaf.dims = g.keep(dims);
  leaf.numel = ir::element_count(dims);
  leaf.arg = 0;
  NodeId x = add.push(leaf);
  x = add.add(ir::Op::logical_not, {add.add(ir::Op::isfinite, {x})});
  const std::int64_t each = lower::kAttentionColumns, tiles = (columns + each - 1) / each;
  if (tiles * each != columns) {
    dims[rank - 2] = tiles * each;
    const std::vector<std::int64_t> first(rank, 0), step(rank, 1);
    const NodeId none =
        add.add(ir::Op::constant, {}, ir::Constant{0}, {.dtype = DType::Bool, .dims = ir::Dims()});
    x = add.add(ir::Op::pad, {x, none}, ir::Box(first, step), {.dims = g.keep(dims)});
  }
  dims[rank - 2] = tiles;
  dims.insert(dims.end() - 1, each);
  x = add.add(ir::Op::reshape, {x}, {}, {.dims = g.keep(dims)});
  x = add.add(ir::Op::reduce_max, {x}, ir::Reduce{std::uint64_t{3} << (rank - 1)});
  g[x].held = true;
  g.roots = {x};
  return g;
}

void PlanMaker::add_flags_launch(const plan::Region& r, const plan::Attention& a, const Place& flags) {
  const ir::Graph g = flags_graph(a.v, a.columns, a.width, alignment_of(g_, a.v));
  const schedule::Target& target = planning_target(device_);
  const plan::Regions regions = plan::fuse(g, without_options(target));
  KILN_CHECK_THAT(regions.regions.size() == 1, "the flags of an attention are several kernels");
  auto lowered = std::make_unique<lower::Lowered>(lower::lower(g, regions, regions.regions[0], target));
  Launch l;
  for (std::size_t b = 0; b < lowered->buffers.size(); ++b) {
    const lower::BufferSource& s = lowered->buffers[b];
    switch (s.kind) {
      case lower::BufferSource::Kind::Arg:
        l.buffers.push_back(place_of(plan::Alias{a.v.base, a.v.offset, a.v.positions, {}}, a.v.dtype));
        l.buffers.back().byte_offset += s.byte_offset;
        break;
      case lower::BufferSource::Kind::Node: l.buffers.push_back(flags); break;
      case lower::BufferSource::Kind::Partial:
        l.buffers.push_back({Place::Kind::Buffer, new_buffer(static_cast<std::uint64_t>(s.bytes)), 0});
        break;
      case lower::BufferSource::Kind::Scratch: l.buffers.push_back({}); break;
    }
    l.buffers.back().written = lowered->kernel.buffers[b].role != kernel::BufferDecl::Role::In;
  }
  size_launch(l, *lowered, r);
  push_launch(std::move(l), std::move(lowered), r);
}

void PlanMaker::add_attention_launch(const plan::Region& r) {
  for (NodeId o : r.outputs) place_of(o, 0);
  std::unique_ptr<lower::Lowered> lowered;
  Launch l = lowered_launch(r, lowered);
  for (std::size_t b = 0; b < lowered->buffers.size(); ++b)
    if (lowered->buffers[b].kind == lower::BufferSource::Kind::Partial && lowered->again.empty())
      add_flags_launch(r, *regions_.attentions[static_cast<std::size_t>(r.tiled)], l.buffers[b]);
  push_launches(std::move(l), std::move(lowered), r);
}

}  // namespace kiln::engine
