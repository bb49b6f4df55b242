// made_operands: a product whose time is that of reading its second operand can make that operand itself.
//
// Where maps make the operand of something that is smaller in memory, as weights of 8 bits and their scales,
// storing it would take longer than the product. So a main loop that reads the operand once, whole, makes it
// on the way. Planned after all merges: regions change, the graph does not.
#pragma once

#include "plan/region.h"
#include "schedule/target.h"

#include <functional>
#include <optional>
#include <span>

namespace kiln::plan {

/// Whether the rows of all matrices of a product's first operand are those of one taller matrix: there is one
/// second operand, and all rows lie at one distance.
bool rows_are_one_matrix(const Graph& graph, NodeId product);

/// Whether a product has so few rows that its time is that of reading its second operand, and operands that a
/// main loop made for that can read: halves, in lines that begin at multiples of 16 bytes.
bool reads_operand_once(const Graph& graph, NodeId product);

/// Whether operands of two products have equal extents, and elements at equal distances; and each the maps
/// or the memory of its own.
bool lie_alike(const Graph& graph, NodeId operand, NodeId other);

/// Whether both operands of a product of tensor cores are stacks of matrices that a copy engine reads by
/// tiles: one axis of each is adjacent (that of the sum, but of halves), everything else begins at multiples
/// of 16 bytes.
bool suits_copy_engine(const Graph& graph, const schedule::Target& target, const ir::GraphNode& product);

/// What a product is to make of its second operand: the region whose one output that is, and its lines along
/// the axis whose elements are adjacent in the output's memory.
struct MadeOperand {
  const Region* maker = nullptr;
  NodeId product = ir::kNoNode;
  bool by_k = false;  // that axis is the one which the product sums over; else its columns
  std::int64_t lines = 0, length = 0;
};
std::optional<MadeOperand> made_operand(const Graph& graph, const Regions& regions, NodeId product);

/// Moves regions that `can` says a product can do to Regions::made; of two products side by side, those of
/// both.
void make_operands(const Graph& graph, Regions& regions,
                   const std::function<bool(std::span<const MadeOperand>)>& can);

}  // namespace kiln::plan
