// RowValues: what a graph makes of the rows of a product, row by row.
//
// A value's rows are the points of its first axes, as many in all as the product has rows. A node is made row
// by row if each of its rows is made of the same row of its operands. Those that have a row's elements, or
// nearly as many, are large. Where all large ones are read row by row, and none is wanted, only small values
// leave the rows, and a block of rows needs no more memory than a block of the product (block_rows.h).
//
// A node may also combine the rows: a reduction over them, or a product whose sums run over rows, as the
// gradient by the weights has. What it makes of the blocks is combined. The product's own gradients read its
// rows beside its operands: gradient · wᵀ, row by row, and xᵀ · gradient. Other products that do are left to
// attention, unless they are allowed. Of a batch each matrix is a row then: an attention's weights are read
// by products of their matrix, at which the rows end, and meet another product, that of v and the result's
// cotangent.
#pragma once

#include "transform/nouns.h"

#include "support/why.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kiln::transform {

class RowValues {
 public:
  struct Allowed {
    bool products;  // what another product makes of rows, its first operand, is made row by row, too; of
                    // matrices either operand, and products that meet theirs are made beside them
    bool sums;      // rows are combined with each other
  };

  /// Of a product's m rows; if it has several matrices, these are the rows.
  RowValues(const Graph& graph, NodeId product, Allowed allowed);

  std::int64_t rows() const { return rows_; }
  /// Whether they are matrices.
  bool are_matrices() const { return matrices_; }
  /// The node's axes that are its rows, counted from the first; nothing: it is made otherwise, or nobody
  /// needs it.
  std::optional<std::size_t> axes(NodeId id) const {
    return prefix_[id] < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(prefix_[id]));
  }
  /// The leading axes of these extents that have as many points as there are rows.
  std::optional<std::size_t> axes_of(ir::Dims dims) const;

  /// Finds out what is made row by row. A condition that is missed, and the node that misses it; or neither.
  std::pair<Why, NodeId> find();

  /// Whether something of the rows is reduced: find() looked at what the planner may be asked about.
  bool reduces() const { return reduces_; }
  /// Values that others read, or want: ascending. Small ones, what the rows are combined to, and the gradient
  /// by the product's first operand.
  const std::vector<NodeId>& results() const { return results_; }
  /// Whether a node combines all rows.
  bool is_sum(NodeId id) const { return sum_[id]; }
  /// Whether a node shows rows as columns, for a sum.
  bool is_turned(NodeId id) const { return turned_[id]; }
  /// Whether a node is made of results; of find() that missed BlocksMeet, too.
  bool is_after(NodeId id) const { return after_[id]; }
  /// Whether a node is the product, or made of it, row by row or as a sum.
  bool is_made_of_product(NodeId id) const { return of_product_[id]; }

 private:
  bool is_large(NodeId id) const {
    const int share = matrices_ && g_[id].op == Op::matmul ? 2 : 8;  // of an attention's result: wide heads
    return g_[id].numel > g_[product_].numel / share;
  }
  static bool any_operand(const GraphNode& n, const std::vector<bool>& of);
  std::optional<std::size_t> through(NodeId x, const GraphNode& n) const;
  std::optional<std::size_t> through_view(const GraphNode& n) const;
  std::optional<std::size_t> follow(const GraphNode& n) const;
  std::optional<std::size_t> follow_gather(const GraphNode& n) const;
  std::optional<std::size_t> follow_product(const GraphNode& n) const;
  bool has_matrices(const GraphNode& n) const;
  bool is_weighted(NodeId id) const;
  bool is_own(NodeId x, std::size_t operand) const;
  bool sums_rows(const GraphNode& n) const;
  bool turns(const GraphNode& n) const;
  bool is_stored_anyway(NodeId id) const { return sum_[id] || gradient_[id]; }
  std::pair<Why, NodeId> follow_all();
  void keep_needed();
  bool is_small_map(const GraphNode& n) const;
  bool is_taken(NodeId id) const;
  void take_operands();
  std::pair<Why, NodeId> find_results();

  const Graph& g_;
  const NodeId product_;
  const Allowed allowed_;
  std::int64_t rows_ = 1;
  bool matrices_ = false;
  bool reduces_ = false;
  std::vector<std::int8_t> prefix_;  // by node, or -1
  std::vector<bool> of_product_, after_, wanted_, sum_, turned_;
  std::vector<bool> gradient_;  // by the product's first operand
  std::vector<bool> whole_;     // large, and made of the product through large ones: would be stored with it
  std::vector<NodeId> results_;
};

}  // namespace kiln::transform
