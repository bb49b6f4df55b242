// Values of the reference interpreter: strided memory, and the walk over its elements in row-major order.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kiln::ir::oracle {

/// An array somewhere in memory. Views share `memory` and differ in data, dims and strides.
struct Value {
  DType dtype = DType::Float32;
  std::vector<std::int64_t> dims, strides;  // strides in elements
  std::shared_ptr<std::vector<std::byte>> memory;
  const std::byte* data = nullptr;

  std::int64_t numel() const;
  bool dense() const;
  std::byte* writable() const { return memory->data(); }
};

/// Fresh row-major memory.
Value new_value(DType dtype, Dims dims);
/// The same elements in row-major memory (v itself when they are).
Value densified(const Value& v);
/// v under broadcasting to dims: strides of 0 where an extent of 1, or an axis that is not there, repeats.
Value broadcast(const Value& v, Dims dims);

/// Element offsets of a strided array in row-major order, a run at a time.
class Cursor {
 public:
  explicit Cursor(const Value& v);
  /// The next n offsets (there must be as many).
  void take(std::int64_t* offsets, std::int64_t n);

 private:
  std::vector<std::int64_t> dims_, strides_, index_;
  std::int64_t offset_ = 0;
};

/// One op of ops.def over operands of the result's shape.
Value elementwise(const GraphNode& node, const Value* operands);

/// A view of its operands: shared memory where strides can show it.
Value view(const GraphNode& node, std::span<const Value> operands);

/// Called with each element that an index out of range leaves without a value (of a scatter: each value left
/// out), and what to say of it. Null: nobody asks.
using OutOfRange = std::function<void(std::int64_t element, const std::string& error)>;
/// x at indices, or values written to them; indices have the shape of the result, or of the values.
Value gather(const GraphNode& node, const Value& x, const Value& indices, const OutOfRange& out_of_range);
Value scatter(const GraphNode& node, const Value& x, const Value& indices, const Value& values,
              const OutOfRange& out_of_range);

/// A library operation but scatter, of one operand or two.
Value library(const GraphNode& node, const Value& x, const Value& y);
/// All results of one that has several.
std::vector<Value> library_results(const GraphNode& node, std::span<const Value> operands);

/// A reduction or scan of x, by the node's operation along its axes.
Value reduce(const GraphNode& node, const Value& x);
Value scan(const GraphNode& node, const Value& x);

}  // namespace kiln::ir::oracle
