// Running scalar expressions without a compiler: one point at a time, or a block of points through a flat
// program.
//
// Both follow eval_prim bit for bit (it is made of the same scalar functions). Used by folding, the kernel
// interpreter and the accuracy sweeps; never on the path of a compiled kernel.
#pragma once

#include "kernel/expr.h"

#include <functional>
#include <span>
#include <vector>

namespace kiln::kernel {

/// Supplies a leaf's bits. `node` is a Param, Slot, Var, Acc or Load; for a Load `index` is its element
/// index, and the call is made only where its predicate holds.
using LeafFn = std::function<std::uint64_t(const ExprNode& node, std::int64_t index)>;

/// Bits of `root`. Every expression that `root` reaches is computed once (both sides of a Select are).
std::uint64_t evaluate(const ExprPool& pool, ExprId root, const LeafFn& leaf);

/// One primitive on n points: packed arrays in the storage format of their types; unused operands alias the
/// first.
using ArrayFn = void (*)(int n, void* out, const void* a, const void* b, const void* c);
/// The function of a primitive. `from` is the type of the first operand that carries a value (for Select the
/// second).
ArrayFn array_fn(Prim prim, DType type, DType from, std::uint64_t imm);

/// Expressions over given inputs, compiled to a flat list of typed array operations over up to kLanes points.
/// About 1 ns a primitive and point. Not thread-safe: a program owns its registers.
class BlockProgram {
 public:
  static constexpr int kLanes = 256;

  /// `inputs` are the ids that run() is given values for (any node: it cuts the expression there); every leaf
  /// other than Const that `roots` reach must be among them.
  BlockProgram(const ExprPool& pool, std::span<const ExprId> roots, std::span<const ExprId> inputs);

  /// Computes n <= kLanes points: inputs[i] and outputs[i] are packed arrays in the storage format of their
  /// types.
  void run(int n, std::span<const void* const> inputs, std::span<void* const> outputs);

  /// Primitives executed for a point: nodes reached, less constants and inputs.
  int op_count() const { return static_cast<int>(ops_.size()); }

 private:
  struct Op {
    ArrayFn fn;
    int out, a, b, c;  // registers
  };
  struct Copy {
    int reg;
    std::int64_t bytes;  // of one value
  };
  std::byte* reg(int r) { return storage_.data() + static_cast<std::size_t>(r) * kLanes * 8; }

  std::vector<Op> ops_;
  std::vector<Copy> inputs_, outputs_;
  std::vector<std::byte> storage_;
};

}  // namespace kiln::kernel
