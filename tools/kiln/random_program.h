// The programs that `kiln bench --random` draws: data that Kiln records and that
// bench/peers/random_programs.py runs with PyTorch and JAX. A program is a function of a seed, its index and
// the number of elements alone.
#pragma once

#include <kiln/kiln.h>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::tool {

/// A small generator with the same numbers on every machine (splitmix64: Steele, Lea and Flood, 2014). The
/// distributions of the standard library differ between libraries.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  /// A whole number in [low, high]. Pre: low <= high.
  std::int64_t between(std::int64_t low, std::int64_t high);
  /// True in `parts` of `whole` draws.
  bool chance(int parts, int whole) { return between(1, whole) <= parts; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(list.size()) - 1))];
  }

 private:
  std::uint64_t state_;
};

using Integers = std::vector<std::int64_t>;

/// Values in [low, high), evenly spread; whole numbers for integer dtypes.
struct RandomInput {
  Integers shape;
  DType dtype = DType::Float32;
  double low = -1, high = 1;
};

/// One operation. Values are numbered: the inputs first, then the result of each step.
struct RandomStep {
  std::string op;       // a name of random_ops.cpp
  std::vector<int> in;  // numbers of earlier values
  Integers axes;        // of reductions, scans, permutations, …
  Integers sizes;       // a shape; starts, stops and steps of a slice; widths of a pad; a count
  double number = 0;    // the second operand of an operation with a number
  bool keep = false;    // reductions: axes of extent 1 stay
  bool exclusive = false, reverse = false;  // scans; `reverse` also means descending order
  DType dtype = DType::Float32;             // of a cast
};

struct RandomProgram {
  std::string family;
  std::uint64_t seed = 0;
  int index = 0;
  std::vector<RandomInput> inputs;
  std::vector<RandomStep> steps;
  std::vector<int> outputs;

  // What bounds the time from below; filled by `draw` and the families.
  double input_bytes = 0, output_bytes = 0;  // each input read once, each output written once
  double slab_bytes = 0;  // what must stay on chip so that `again_bytes` are not read a second time
  double again_bytes = 0;
  /// Instructions on single elements, where they may take longer than memory: pairwise work. How many of them
  /// are minima and maxima, and whether all are on float64. Apart from these: multiply-adds of a matrix
  /// product, and exponentials and the like.
  double instructions = 0, extremes = 0, products = 0, functions = 0;
  bool doubles = false;
  /// Rows of a table that indices choose: `moved` times `row_bytes` bytes in all.
  struct Rows {
    double count = 0, row_bytes = 0, table_bytes = 0;
    int moved = 1;           // 1: read; 2: read and written
    bool in_inputs = false;  // input_bytes counts the whole table, of which only these rows are read
    double sum_bytes = 0;    // not 0: each row is added to one of sums, which has so many bytes
  } rows;
};

/// Names of the families, in the order in which `draw` numbers them.
const std::vector<std::string>& random_families();

/// The program with this index: of a family that is drawn only when asked for, if `asked` names one; else
/// of any other family. Pre: elements >= 64.
RandomProgram draw(std::uint64_t seed, int index, std::int64_t elements, const std::string& asked = {});

/// Records the program over its inputs; evaluates nothing. Pre: one tensor per input.
std::vector<Tensor> record(const RandomProgram& program, const std::vector<Tensor>& inputs);

/// The inputs on config().device, the same values in every run. Made on the host.
std::vector<Tensor> make_inputs(const RandomProgram& program);

/// One statement a line: "v2 = sum(v0, axes [1])".
std::string to_text(const RandomProgram& program);
/// As docs/benchmarks.md describes.
nlohmann::ordered_json to_json(const RandomProgram& program);

/// The same with every value, inputs first.
std::vector<Tensor> record_values(const RandomProgram& program, const std::vector<Tensor>& inputs);
/// record_values over inputs that take no memory: for shapes and dtypes.
std::vector<Tensor> unevaluated(const RandomProgram& program);

/// Builds a program step by step. Inputs may be added after steps: until `draw` numbers the values, an input
/// has a negative number. A call whose arguments draw or write more than once names them first, because C++
/// does not fix the order in which arguments are evaluated.
class ProgramWriter {
 public:
  explicit ProgramWriter(RandomProgram& program) : p_(program) {}
  /// Both return the number of the new value.
  int input(const Integers& shape, DType dtype, double low = -1, double high = 1);
  int step(RandomStep step);

  int unary(const std::string& op, int x) { return step({.op = op, .in = {x}}); }
  int binary(const std::string& op, int x, int y) { return step({.op = op, .in = {x, y}}); }
  int with_number(const std::string& op, int x, double number) {
    return step({.op = op, .in = {x}, .number = number});
  }
  int reduce(const std::string& op, int x, const Integers& axes, bool keep) {
    return step({.op = op, .in = {x}, .axes = axes, .keep = keep});
  }
  int slice(int x, const Integers& starts, const Integers& stops, const Integers& steps = {});
  int cast(int x, DType dtype) { return step({.op = "astype", .in = {x}, .dtype = dtype}); }
  int reshape(int x, const Integers& shape) { return step({.op = "reshape", .in = {x}, .sizes = shape}); }
  void output(int value) { p_.outputs.push_back(value); }

 private:
  RandomProgram& p_;
};

// How families draw (random_draw.cpp).

/// float32 mostly; float16, bfloat16; some float64.
DType draw_float(Draw& draw);
/// draw_float, and integers in one of ten.
DType draw_dtype(Draw& draw);
/// One extent in [1, most]: 1, 2, small ones, primes, powers of two and their neighbours, tens of thousands.
std::int64_t draw_extent(Draw& draw, std::int64_t most);
/// A shape of `rank` (0: drawn, 1 to 6) whose product is at most `elements` and more than half of it, where
/// the rank allows.
Integers draw_shape(Draw& draw, std::int64_t elements, int rank = 0);
/// Some of the axes of a shape, at least one, ascending.
Integers draw_axes(Draw& draw, int rank);
Integers draw_order(Draw& draw, int rank);
std::int64_t product(const Integers& extents);

/// Records that x, of this shape, is read once per pass by reductions over `axes` on which other values of
/// the same program depend: again, unless the elements that the reductions combine stay on chip.
void hold(RandomProgram& program, const Integers& shape, DType dtype, const Integers& axes);

/// What CUDA 13's library takes for a function of one element, in instructions of compute capability 9.0
/// where it takes no branch and without its constants, a sigmoid's quotient by an approximate reciprocal; of
/// float64 those on float64. Halves take the hardware's approximations, which are few.
double library_instructions(const std::string& function, DType dtype);

// The families: each fills inputs, steps and outputs.
using Family = void (*)(RandomProgram& program, Draw& draw, std::int64_t elements);
struct NamedFamily {
  const char* name;
  Family fill;
};
const std::vector<NamedFamily>& reduction_families();  // random_reductions.cpp
const std::vector<NamedFamily>& movement_families();   // random_movements.cpp
const std::vector<NamedFamily>& model_families();      // random_models.cpp
const std::vector<NamedFamily>& layer_families();      // random_layers.cpp
const std::vector<NamedFamily>& asked_families();      // random_contractions.cpp

}  // namespace kiln::tool
