// A matrix product and the maps around it. Something else makes the sums, a rectangle at a time: the library
// of a CPU, or a hand-written main loop of a GPU. What is lowered is the epilogue, whose coordinates are
// parameters that come with each call instead of with the launch.
//
//   CPU  a kernel of two loops over the rectangle, rows and columns; its sums are a buffer in cache
//   GPU  a hook of a kernel::Template for `width` adjacent columns of a row; its sums are an array in
//   registers
//
// Invariant: nothing of a batch, row or column reaches an expression but through those parameters.
#include "ir/layout.h"
#include "lower/region_lowering.h"
#include "math/expand.h"
#include "plan/fuse.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kiln::lower {
namespace {

/// As struct Product in kernels_templates/product_head.cuh.
struct ProductHead {
  std::int32_t m, n, k, batch;
  std::int64_t a_m, a_k, b_n, b_k;
};
static_assert(sizeof(ProductHead) == 48);

constexpr std::int64_t kPlainTile = 64;  // rows and columns of a block of product_plain.cuh
constexpr int kPlainThreads = 256, kWide = 8, kPair = 2;

}  // namespace

/// The type that sums of products of a dtype are made in; integers wrap in it as in their own.
DType RegionLowering::sum_type(DType element) {
  if (is_half(element)) return DType::Float32;
  if (is_float(element)) return element;
  return size_of(element) == 8 ? DType::UInt64 : DType::UInt32;
}

/// Batch axes may be one where every access walks them as one; rows and columns stay axes of their own.
void RegionLowering::collapse_product() {
  const int rank = p_.domain.rank();
  for (int a = 0; a < rank; ++a) {
    if (p_.domain[a] == 1) continue;
    const Group g{std::uint64_t{1} << a, a, p_.domain[a], false, {}};
    bool joins = a + 2 < rank && !groups_.empty();
    if (joins) {
      const int outer = groups_.back().last;
      each_index([&](const Index& i) { joins &= i.coef(outer) == i.coef(g.last) * g.extent; });
    }
    if (joins) {
      groups_.back().last = a;
      groups_.back().axes |= g.axes;
      groups_.back().extent *= g.extent;
      continue;
    }
    groups_.push_back(g);
    const auto number = static_cast<int>(groups_.size()) - 1;
    if (a + 2 < rank) batch_groups_.push_back(number);
    if (a + 2 == rank) row_group_ = number;
    if (a + 1 == rank) column_group_ = number;
  }
  // A CPU's lanes run along rows where there is one column only.
  if (!target_.gpu && column_group_ < 0) column_group_ = std::exchange(row_group_, -1);
}

void RegionLowering::choose_product() {
  schedule::Facts f;
  std::vector<schedule::Facts::Axis> axes;
  for (const Group& g : groups_) axes.push_back({g.extent, false});
  if (axes.empty()) axes.push_back({1, false});
  f.axes = axes;
  f.prims = static_cast<int>(prims_);
  f.widest_bytes = widest_bytes_;
  f.random = random_;
  for (const Entry& e : p_.entries) f.loads += e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Product;
  if (!target_.gpu) {
    s_ = std::get<schedule::Schedule>(schedule::schedule(f, target_));
    s_.stream = false;  // the tile's lines are in cache, and readers follow
  } else {
    const int vector = column_group_ < 0 ? 1 : vector_elements();
    s_.lanes = vector >= kWide ? kWide : kPair;
    s_.steps = 1;
    s_.ragged = unaligned_ = vector < kPair;
    s_.threads = {kPlainThreads, 1, false};
  }
  s_.form = Form::Product;
}

/// The sum at hand, as the product's value.
E RegionLowering::product_value(const Entry& e) {
  const DType type = g_[e.node].dtype, sum = sum_type(type);
  const E x = load(sums_buffer_, sum, sums_row_ ? sums_row_ + lane_ : lane_);
  return kernel::cast(is_int(type) ? kernel::cast(x, type) : x, compute_type(type));
}

void RegionLowering::build_product() {
  const GraphNode& product = g_[product_];
  sums_buffer_ =
      new_buffer({BufferDecl::Role::In, sum_type(product.dtype), 64}, {BufferSource::Kind::Scratch, 0, 0});
  if (target_.gpu) {
    k_.buffers[sums_buffer_].alignment = static_cast<std::uint8_t>(size_of(sum_type(product.dtype)));
    return build_template();
  }
  const auto given = [&](Size which) { return size(which, 0); };
  const E batch = given(kGivenBatch), row = given(kGivenRow), column = given(kGivenColumn),
          columns = given(kGivenColumns), pitch = given(kGivenPitch);
  LoopDecl grid = open_grid();
  decompose(batch, batch_groups_);
  if (row_group_ >= 0) axis_[static_cast<std::size_t>(row_group_)] = row + var(grid.var);
  sums_row_ = var(grid.var) * pitch;
  const std::vector<int> along = column_group_ < 0 ? std::vector<int>{} : std::vector<int>{column_group_};
  grid.body.push_back(lane_loop({column, columns}, along, [&](Body& body) { store_full(body); }));
  close_grid(std::move(grid), 1);
  for (const E& g : {batch, row, column, columns, pitch})
    out_.given.push_back(static_cast<std::int32_t>(g.node().imm));
  out_.given_buffer = static_cast<std::int32_t>(sums_buffer_);
}

// ---- GPU ----

/// The memory of an operand, from the first element of its first matrix on, and its strides: none along axes
/// of one element.
std::pair<std::uint32_t, std::vector<std::int64_t>> RegionLowering::product_operand(NodeId id) {
  const GraphNode& n = g_[id];
  plan::Alias a = plan::resolve_alias(g_, id);
  if (n.op != Op::leaf && regions_.stored[id]) a = {id, 0, {}, ir::row_major_strides(n.dims)};
  KILN_CHECK_THAT(a.base != ir::kNoNode, "an operand of a product has no memory");
  const std::int64_t bytes = size_of(n.dtype);
  BufferSource source{BufferSource::Kind::Node, a.base, a.offset * bytes};
  if (g_[a.base].op == Op::leaf) {
    source.kind = BufferSource::Kind::Arg;
    source.id = static_cast<std::uint32_t>(g_[a.base].arg);
  }
  for (const plan::Alias::Position& p : a.positions)
    source.positions.push_back({p.slot, p.last, p.stride * bytes, 1});
  for (std::size_t axis = 0; axis < n.dims.size(); ++axis)
    if (n.dims[axis] == 1) a.strides[axis] = 0;
  out_.bytes += n.numel * bytes;
  const auto b =
      new_buffer({BufferDecl::Role::In, n.dtype, static_cast<std::uint8_t>(bytes)}, std::move(source));
  return {b, std::move(a.strides)};
}

/// The hook that says where an operand's matrix of a batch begins.
kernel::Hook RegionLowering::matrix_hook(const char* name, std::uint32_t buffer,
                                         const std::vector<std::int64_t>& strides, E batch) {
  E offset{}, rest = batch;
  const ir::Dims dims = g_[product_].dims;
  for (std::size_t a = dims.size() - 2; a-- > 0;) {
    if (dims[a] == 1) continue;
    const auto [outer, at] = divide_with_rest(rest, param(role(kExtent, kOperandOwner, a), dims[a]));
    rest = outer;
    if (strides[a] == 0) continue;
    const E step = at * param(role(kStride, kOperandOwner + 1 + buffer, a), strides[a]);
    offset = offset ? offset + step : step;
  }
  kernel::Hook hook{
      name, {static_cast<std::uint32_t>(batch.node().imm)}, {}, {}, {}, static_cast<std::int32_t>(buffer)};
  hook.results.push_back((offset ? offset : konst(0)).id);
  return hook;
}

void RegionLowering::build_template() {
  const GraphNode& product = g_[product_];
  const std::size_t rank = product.dims.size();
  const E batch = size(kGivenBatch, 0), row = size(kGivenRow, 0), column = size(kGivenColumn, 0),
          left = size(kGivenColumns, 0);
  kernel::Template t{"product_plain", product.dtype, {{"kWidth", s_.lanes}}, {}};
  const auto [a, a_strides] = product_operand(product.in[0]);
  const auto [b, b_strides] = product_operand(product.in[1]);
  t.hooks.push_back(matrix_hook("a_matrix", a, a_strides, batch));
  t.hooks.push_back(matrix_hook("b_matrix", b, b_strides, batch));

  kernel::Hook epilogue{"epilogue", {}, {sums_buffer_}, {}, {}, -1};
  for (const E& g : {batch, row, column, left})
    epilogue.params.push_back(static_cast<std::uint32_t>(g.node().imm));
  decompose(batch, batch_groups_);
  if (row_group_ >= 0) axis_[static_cast<std::size_t>(row_group_)] = row;
  const std::vector<int> along = column_group_ < 0 ? std::vector<int>{} : std::vector<int>{column_group_};
  const E count = s_.ragged ? left : konst(s_.lanes);
  epilogue.body.push_back(lane_loop({column, count}, along, [&](Body& body) { store_full(body); }));
  t.hooks.push_back(std::move(epilogue));
  k_.main_loop = std::move(t);

  std::int64_t batches = 1;
  for (std::size_t axis = 0; axis + 2 < rank; ++axis) batches *= product.dims[axis];
  const std::int64_t m = product.dims[rank - 2], n = product.dims[rank - 1],
                     k = g_[product.in[0]].dims.back();
  const ProductHead head{static_cast<std::int32_t>(m), static_cast<std::int32_t>(n),
                         static_cast<std::int32_t>(k), static_cast<std::int32_t>(batches),
                         a_strides[rank - 2],          a_strides[rank - 1],
                         b_strides[rank - 1],          b_strides[rank - 2]};
  out_.head.resize(sizeof head);
  std::memcpy(out_.head.data(), &head, sizeof head);
  out_.grid = batches * ceil_div(m, kPlainTile) * ceil_div(n, kPlainTile);
  out_.shape.emplace();
  out_.shape->grid[0] = static_cast<std::uint32_t>(out_.grid);
  out_.shape->block[0] = kPlainThreads;
}

}  // namespace kiln::lower
