// The table of rules, and the rules of operations whose axes move by one: everything but reading and writing
// at indices (indices.cpp).
#include "vmap/rules.h"

#include "ir/infer.h"
#include "record/step_alias.h"

#include <array>
#include <utility>

namespace kiln::mapped {
namespace {

using ir::NodeRef;
using ir::Op;

constexpr std::size_t kOps = static_cast<std::size_t>(Op::where) + 1;

std::array<Rule, kOps> table() {
  std::array<Rule, kOps> rules;
  const auto of = [&](Op op) -> Rule& { return rules[static_cast<std::size_t>(op)]; };
  for (std::size_t i = 0; i < kOps; ++i)
    if (ir::info(static_cast<Op>(i)).kind == ir::OpKind::Elementwise) rules[i].map = map_elementwise;
#define KILN_MAPPED(Name, By) of(Op::Name).map = map_##By;
#define KILN_EACH(Name) of(Op::Name).each = true;
#define KILN_LOOP_PART(Name) of(Op::Name).loop_part = true;
#define KILN_UNMAPPED(Name, Why) of(Op::Name).why_not = Why;
#include "vmap/structural.def"
#undef KILN_MAPPED
#undef KILN_EACH
#undef KILN_LOOP_PART
#undef KILN_UNMAPPED
  return rules;
}

/// All operands with the axis of the examples.
std::vector<NodeRef> all_operands(const Step& s) {
  std::vector<NodeRef> in;
  for (std::size_t k = 0; k < s.in.size(); ++k) in.push_back(s.all(k));
  return in;
}

/// A box that is the whole along the axis of the examples.
struct MovedBox {
  Shape first{0}, step{1};
  MovedBox(const ir::Box& box) {
    for (std::size_t a = 0; a < box.rank(); ++a) {
      first.push_back(box.first(a));
      step.push_back(box.step(a));
    }
  }
};

}  // namespace

const Rule& rule_of(Op op) {
  static const std::array<Rule, kOps> rules = table();
  return rules[static_cast<std::size_t>(op)];
}

Shape Step::with_count(std::span<const std::int64_t> one) const { return ir::stacked_dims(count, one); }

NodeRef repeated(ir::Node* x, std::int64_t count) {
  return api::broadcast_node(x, ir::stacked_dims(count, x->dims()));
}

NodeRef with_rank(ir::Node* x, std::size_t rank) {
  Shape dims{x->dims()[0]};
  for (std::size_t a = x->rank; a <= rank; ++a) dims.push_back(1);
  for (const std::int64_t d : x->dims().subspan(1)) dims.push_back(d);
  return api::reshape_node(x, dims);
}

NodeRef Step::all(std::size_t k) const {
  return in[k].mapped ? in[k].node : repeated(in[k].node.get(), count);
}

NodeRef Step::aligned(std::size_t k) const {
  return in[k].mapped ? with_rank(in[k].node.get(), rank()) : in[k].node;
}

NodeRef Step::made(std::span<const NodeRef> operands) const {
  NodeRef out = NodeRef::adopt(ir::new_node(node.op, node.dtype, dims()));
  std::vector<ir::Node*> nodes;
  for (const NodeRef& n : operands) nodes.push_back(n.get());
  ir::set_inputs(out.get(), nodes);
  out->imm = node.imm;
  return out;
}

NodeRef map_elementwise(const Step& s) {
  std::vector<NodeRef> in;
  for (std::size_t k = 0; k < s.in.size(); ++k) in.push_back(s.aligned(k));
  return s.made(in);
}

// ---- views ----

NodeRef map_reshape(const Step& s) { return api::reshape_node(s.in[0].node.get(), s.dims()); }

NodeRef map_alias(const Step& s) {
  NodeRef out = api::alias_node(s.in[0].node.get(), s.attributes<ir::Alias>().stops);
  if (!s.attributes<ir::Alias>().stops && !ir::begins_step(s.node)) ir::mark_inside_step(out.get());
  return out;
}

NodeRef map_permute(const Step& s) {
  const auto axes = s.attributes<ir::Permute>();
  std::vector<int> moved{0};
  for (std::size_t a = 0; a < s.rank(); ++a) moved.push_back(static_cast<int>(axes[a]) + 1);
  return api::permute_node(s.in[0].node.get(), moved);
}

NodeRef map_broadcast(const Step& s) { return api::broadcast_node(s.aligned(0).get(), s.dims()); }

NodeRef map_slice(const Step& s) {
  const MovedBox box(s.attributes<ir::Box>());
  return api::slice_node(s.in[0].node.get(), box.first, box.step, s.dims());
}

NodeRef map_pad(const Step& s) {
  const MovedBox box(s.attributes<ir::Box>());
  const NodeRef body = s.all(0), fill = s.in[1].node ? s.aligned(1) : NodeRef();
  return api::pad_node(body.get(), fill.get(), s.node.imm, box.first, box.step, s.dims());
}

NodeRef map_join(const Step& s) {
  return s.made(all_operands(s), ir::Join{s.attributes<ir::Join>().axis + 1});
}

NodeRef map_sliding_window(const Step& s) {
  const auto windows = s.attributes<ir::Windows>();
  std::vector<std::int64_t> words;
  for (std::size_t k = 0; k < windows.count(); ++k) {
    words.push_back(static_cast<std::int64_t>(windows.axis(k)) + 1);
    words.push_back(windows.stride(k));
    words.push_back(windows.dilation(k));
  }
  return s.made({{s.in[0].node}}, ir::Windows(words));
}

// ---- reductions, scans, sorts ----

NodeRef map_reduce(const Step& s) {
  return s.made({{s.in[0].node}}, ir::Reduce{s.attributes<ir::Reduce>().mask << 1});
}

NodeRef map_scan(const Step& s) {
  auto how = s.attributes<ir::Scan>();
  ++how.axis;
  return s.made({{s.in[0].node}}, how);
}

NodeRef map_sort(const Step& s) {
  auto how = s.attributes<ir::Sort>();
  ++how.axis;
  return s.made({{s.in[0].node}}, how);
}

/// A result of an operation of several: its operands are the operation and the results after it.
NodeRef map_part(const Step& s) {
  std::vector<NodeRef> in;
  for (const Value& v : s.in) in.push_back(v.node);
  return s.made(in, s.attributes<ir::Part>());
}

// ---- matrices ----

/// Operations on stacks of matrices, which all operands have.
NodeRef map_matrices(const Step& s) { return s.made(all_operands(s)); }

/// One matrix for all examples makes one product of their rows, or of their columns where each has one.
NodeRef map_matmul(const Step& s) {
  const ir::Node &x = *s.in[0].node, &y = *s.in[1].node;
  const auto dims = s.node.dims();
  if (!s.in[1].mapped && Shape(y.dims().first(y.rank - 2u)).numel() == 1) {
    const NodeRef matrix = api::reshape_node(s.in[1].node.get(), y.dims().subspan(y.rank - 2u));
    return api::matmul_node(s.in[0].node.get(), matrix.get());
  }
  if (!s.in[0].mapped && x.rank == 2 && dims[1] == 1) {
    const int turned[] = {1, 0};
    const NodeRef rows = api::reshape_node(s.in[1].node.get(), Shape{s.count, x.dims()[1]});
    const NodeRef matrix = api::permute_node(s.in[0].node.get(), turned);
    return api::reshape_node(api::matmul_node(rows.get(), matrix.get()).get(), s.dims());
  }
  return s.made(all_operands(s));
}

}  // namespace kiln::mapped
