// How an operation of one example becomes one of all examples: a rule for each operation (structural.def).
//
// A value of all examples has a first axis more than that of one, which counts the examples: it is mapped. A
// value that is the same for all examples is not, and has one example's shape. A rule is asked only where an
// operand is mapped; it records ordinary nodes, and its result is mapped.
#pragma once

#include "api/record.h"

#include <span>
#include <string_view>

namespace kiln::mapped {

struct Value {
  ir::NodeRef node;  // null: the immediate
  bool mapped = false;
};

/// One operation, as it was recorded for one example, and its operands now.
struct Step {
  const ir::Node& node;
  std::span<const Value> in;
  std::int64_t count;  // examples

  std::size_t rank() const { return node.rank; }
  /// The result's extents: the count, then those of one example.
  Shape dims() const { return with_count(node.dims()); }
  Shape with_count(std::span<const std::int64_t> dims) const;
  /// Operand k with the axis of the examples, along which it repeats if it is not mapped.
  ir::NodeRef all(std::size_t k) const;
  /// Operand k so that it broadcasts to the result as it did for one example.
  ir::NodeRef aligned(std::size_t k) const;
  template <class A>
  A attributes() const {
    return ir::attributes<A>(node);
  }
  /// A node of the same operation, dtype and immediate, without attributes.
  ir::NodeRef made(std::span<const ir::NodeRef> in) const;
  template <class A>
  ir::NodeRef made(std::span<const ir::NodeRef> in, const A& attributes) const {
    ir::NodeRef out = made(in);
    ir::set_attributes(out.get(), attributes);
    return out;
  }
};

/// x, whose first axis counts examples, with axes of extent 1 behind that until one example has this rank.
ir::NodeRef with_rank(ir::Node* x, std::size_t rank);
/// x with another extent in front.
ir::NodeRef repeated(ir::Node* x, std::int64_t count);

using MapRule = ir::NodeRef (*)(const Step& s);

struct Rule {
  MapRule map = nullptr;
  bool each = false;              // a call for each example
  bool loop_part = false;         // recorded again with its loop
  std::string_view why_not = {};  // it never has a mapped operand
};
/// Of an op without an entry: no rule at all, which a test finds.
const Rule& rule_of(ir::Op op);

ir::NodeRef map_elementwise(const Step& s);
ir::NodeRef map_reshape(const Step& s);
ir::NodeRef map_alias(const Step& s);
ir::NodeRef map_permute(const Step& s);
ir::NodeRef map_broadcast(const Step& s);
ir::NodeRef map_slice(const Step& s);
ir::NodeRef map_pad(const Step& s);
ir::NodeRef map_join(const Step& s);
ir::NodeRef map_slice_at(const Step& s);
ir::NodeRef map_update_at(const Step& s);
ir::NodeRef map_sliding_window(const Step& s);
ir::NodeRef map_reduce(const Step& s);
ir::NodeRef map_scan(const Step& s);
ir::NodeRef map_part(const Step& s);
ir::NodeRef map_gather(const Step& s);
ir::NodeRef map_sort(const Step& s);
ir::NodeRef map_searchsorted(const Step& s);
ir::NodeRef map_scatter(const Step& s);
ir::NodeRef map_matrices(const Step& s);
ir::NodeRef map_matmul(const Step& s);

}  // namespace kiln::mapped
