// Random programs over the public API, for tests that compare one way of evaluating with another.
//
// A program is a list of instructions, each a kind, earlier values and a seed; everything else (axes, slices,
// numbers) is drawn from the seed and fitted to the operands at hand. So every list is a valid program, and a
// failing one shrinks by dropping instructions and extents. Values are either exact (integers that every
// float on the way holds exactly, so any order of evaluation gives equal results) or carry a bound of their
// error; only exact values reach functions that jump. A sort may take inexact ones: the k-th least of values
// that are off by at most so much is off by no more. The positions in that order may differ, and are asked of
// exact values only.
#pragma once

#include <kiln/kiln.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::test {

enum class Kind : std::uint8_t {
  Leaf,
  Creation,
  Random,
  Unary,
  Smooth,
  Binary,
  SmoothBinary,
  BinaryNumber,
  Compare,
  Where,
  Clip,
  Cast,
  Reshape,
  Permute,
  Slice,
  Flip,
  Roll,
  Pad,
  Concat,
  Stack,
  Tile,
  Repeat,
  Broadcast,
  Window,
  Expand,
  Squeeze,
  Update,
  Triangle,
  Reduce,
  Arg,
  Norm,
  Sweeps,  // reductions over several axes of one value
  Matmul,
  Scan,
  Gather,
  Scatter,
  Sort,
  Select,
  Loop,
  Another,  // result of one of the latest loops
  Cond,
  Custom,
  Evaluate,
  kCount
};

struct Instruction {
  Kind kind = Kind::Leaf;
  int in[3] = {0, 0, 0};  // earlier values
  std::uint64_t seed = 0;
  std::vector<std::int64_t> dims;  // Leaf, Creation, Random
  DType dtype = DType::Float32;    // Leaf, Creation, Random, Cast
};

/// Has no operands: `in` means nothing.
inline bool is_source(Kind kind) {
  return kind == Kind::Leaf || kind == Kind::Creation || kind == Kind::Random;
}

struct Program {
  std::vector<Instruction> instructions;
  std::vector<int> outputs;    // evaluated together
  std::vector<int> held;       // handles that live during that, read afterwards
  std::vector<Tensor> leaves;  // of Leaf instructions, in their order; none: leaf() makes them
  int variant = 0;  // slices and pads begin elsewhere, with the same extents: another step of a loop
};

struct Value {
  Tensor tensor;
  std::string name;
  bool exact = true;
  double bound = 0;  // of the magnitude of finite elements; infinite: elements may be infinite
  double error = 0;  // of each element, absolute
};

Program random_program(std::uint64_t seed);

/// One whose values mostly come from loops: several results of one loop are read and wanted together.
Program random_loops(std::uint64_t seed);

/// One whose leaves have millions of elements.
Program random_huge(std::uint64_t seed);

/// One with calls of kernels of the program's own.
Program random_customs(std::uint64_t seed);

/// Elements that depend on the seed only: small integers, sometimes NaN and infinities; sometimes a strided
/// view of larger memory, sometimes borrowed and misaligned.
Tensor leaf(const Shape& shape, DType dtype, std::uint64_t seed);

/// Runs the program's instructions in the mode in force; the last value of each instruction. Statements that
/// do the same are appended to `text`.
std::vector<Value> record(const Program& program, std::string* text = nullptr);

/// A C++ program that records `program` and evaluates its outputs.
std::string to_cpp(const Program& program);

/// Bytes of each output, then of each held value.
struct Result {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Value> values;  // without tensors
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
};
Result run(const Program& program);

/// Empty, or where and how `got` differs from `want` by more than the values' errors allow.
std::string difference(const Result& want, const Result& got);

/// The smallest program found for which `fails` holds.
template <class F>
Program shrink(Program program, F fails);

// ---------------------------------------------------------------------------------------------------------

/// Programs one step smaller, most promising first.
std::vector<Program> smaller(const Program& program);

template <class F>
Program shrink(Program program, F fails) {
  for (bool progress = true; progress;) {
    progress = false;
    for (Program& candidate : smaller(program)) {
      if (!fails(candidate)) continue;
      program = std::move(candidate);
      progress = true;
      break;
    }
  }
  return program;
}

}  // namespace kiln::test
