// Kernel: one generated function as a tree of loops over scalar expressions.
//
// A kernel knows classes, not sizes: extents, strides and offsets are Params (int64 values given at launch),
// user scalars are Slots. Two regions with equal Kernels share one executable. Sections:
//   body    one Grid loop (or none): its iterations are independent and may run on any thread in any order
//   link    a Grid loop of body's range; iteration i runs after iteration i of the body and iteration i - 1
//   of the link, so
//           that each item hands something on to the next through a Partial buffer. May be empty.
//   second  a Grid loop of body's range; iteration i runs after iteration i of the link. There is one if
//   there is a link. finish  one Grid loop, which combines partial results; may be empty. Its iteration g may
//   run once n iterations of the body are done, n being the quotient of both loops' extents: [g·n, (g+1)·n),
//           on a GPU every (extent of the finish)-th from g on.
// A section shares nothing with the others but memory.
// A kernel with a main loop (Template) has no sections: its statements stand in hooks, which the hand-written
// main loop calls. Loop kinds: Grid and Serial are scalar loops; Vector runs its variable over lanes, the
// last lanes masked. Inside a Vector loop an expression that depends on its variable is a vector, everything
// else stays scalar and is evaluated once, outside the loop: emitters place each expression at the outermost
// loop that has its operands. A While loop runs while its condition holds, or as many times as it has an
// extent. It carries State accumulators: an update gives the next iteration's value, Before is this
// iteration's, in the condition too, and all updates take effect together. Inside a Vector loop each lane has
// a condition of its own: where it is false the states stay, and the loop ends when no lane goes on.
#pragma once

#include "kernel/expr.h"
#include "support/hash128.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kiln::kernel {

enum class LoopKind : std::uint8_t { Grid, Serial, Vector, While };
enum class Monoid : std::uint8_t { Sum, Prod, Max, Min, ArgMax, ArgMin, Custom, State };
const char* name(Monoid m);

/// Memory as the kernel sees it: a pointer to elements.
struct BufferDecl {
  enum class Role : std::uint8_t { In, Out, Partial, Scratch } role;
  DType dtype;
  std::uint8_t alignment = 1;  // bytes the pointer is known to be a multiple of, at most 64
  bool vector = false;         // accesses that run along the lanes begin at multiples of all lanes' bytes
  bool stream = false;  // more than the caches hold: Out is stored past them, In is fetched ahead (contiguous
                        // vector accesses only)
  bool ragged = false;  // Out, stream: a row begins anywhere in a line. Only loops store past the caches that
                        // begin early, at a whole line, and mask what is before the row.
  std::uint32_t offset_param = 0;  // Scratch: parameter holding its byte offset in the thread's scratch
                                   // memory (on a GPU it is registers, indexed by the variable of a Vector
                                   // loop with known steps)
  std::uint32_t shared = 0;  // Scratch on a GPU, if not 0: as many elements of the team's memory. A loop at
                             // the top of the Grid loop that fills it ends before what follows begins.
  std::int32_t ahead_param =
      -1;  // In, stream, or Out: parameter holding how many bytes ahead to fetch; -1: a few lines, or none
};

/// A reduction: starts at the monoid's identity when its loop begins, final when the loop has ended.
/// ArgMax/ArgMin carry a position; their value is the position (Int64) of the first best value, NaN being
/// best of all. Inside its loop an accumulator other than those shows its values as a scan: Prim::Running and
/// Prim::Before. On lanes they are those of the lane's iteration, lanes following one another.
struct AccDecl {
  Monoid monoid;
  DType type;                // of the values combined
  std::uint32_t custom = 0;  // Custom: index into Kernel::customs
  // a Float32 Sum that is given back what rounding took from it, to as many bits again
  bool compensated = false;
  bool narrow = false;  // ArgMax/ArgMin: positions are below 2^31
};

/// A monoid by expressions, whose values are kept in one part or several: a value becomes parts, parts are
/// combined, and in the end, or where a scan is read, parts become a value again. Associative and
/// commutative; show(lift(x)) is x.
struct CustomMonoid {
  std::vector<DType> types;             // of the parts
  std::vector<std::uint64_t> identity;  // bits of the parts
  std::vector<ExprId> lift;             // the parts of a value, which is Later 0
  std::vector<ExprId> merge;            // the parts of Earlier and Later combined
  ExprId show = kNoExpr;                // the value of Earlier
  friend bool operator==(const CustomMonoid&, const CustomMonoid&) = default;
};

struct Stmt {
  /// Across stores what the monoid of an accumulator, which no loop has, makes of the values that all
  /// iterations of the Vector loop around have at once; a GPU's kernels alone do so.
  enum class Kind : std::uint8_t { Loop, Update, Store, Across } kind;
  std::uint16_t acc;     // Across
  std::uint32_t target;  // Loop: index into loops; Update: accumulator; Store, Across: buffer
  ExprId index;          // Store, Across: element index; Update of ArgMax/ArgMin: position
  ExprId value;          // Store, Update, Across

  constexpr Stmt(Kind what = Kind::Loop, std::uint32_t to = 0, ExprId at = kNoExpr, ExprId of = kNoExpr,
                 std::uint32_t by = 0)
      : kind(what), acc(static_cast<std::uint16_t>(by)), target(to), index(at), value(of) {}
};
static_assert(sizeof(Stmt) == 16);

struct LoopDecl {
  LoopKind kind = LoopKind::Serial;
  std::uint32_t var = 0;
  ExprId extent =
      kNoExpr;  // Int64; ignored for the Grid loop, whose range is given at launch; While: or a condition
  std::vector<std::uint32_t> accs;  // accumulators that live across this loop's iterations
  std::vector<ExprId> inits;        // While: values that they begin with. Other loops, on a GPU: none, or for
                                    // each scan of a custom monoid the value that comes before it, or kNoExpr
  ExprId condition = kNoExpr;       // While without an extent: Bool
  std::vector<Stmt> body;
  std::uint16_t rows = 1;   // Serial: its iterations may be made in any order. Where threads share it, they
                            // are dealt to as many equal parts of the team, which share the Vector loops
                            // inside; elsewhere it holds one Vector loop of stores, adjacent iterations' to
                            // adjacent elements, as many side by side. Vector, where threads share it:
                            // if not 1, so many adjacent iterations are tested together.
  std::uint16_t lanes = 1;  // Vector: iterations run side by side (a multiple of the register width is fine)
  // Where threads share it. Serial, not 0: divides the extent; so many elements along it are one aligned load
  std::uint16_t steps = 0;  // Vector: extent <= team / rows · lanes · steps; 0: not known
  bool ragged = false;      // Vector: the extent need not be a multiple of lanes
  // Vector, where threads share it, ragged: elements by which its first vector begins before the first
  // iteration, fewer than lanes, so that vectors begin where those of memory do; or none
  ExprId early = kNoExpr;
  bool again = false;  // CPU, Vector: iterations, lanes or more, may be made again: the last begins early.
                       // GPU: a quotient grows once a vector at most; Serial: extent <= steps, loads are kept
};

/// How the threads of a GPU share a kernel. A team takes one Grid iteration at a time: every thread of it
/// runs the same statements, a Vector loop's iterations are dealt to the team's threads `lanes` adjacent ones
/// at a time, and stores outside Vector loops are made once.
struct Threads {
  std::uint16_t block = 0;  // of a block; 0: this kernel is not for a GPU
  std::uint16_t team = 0;   // of a team: a power of two of at most 32, or `block`
  bool narrow = false;      // index arithmetic fits 32 bits
  friend bool operator==(const Threads&, const Threads&) = default;
};

/// A function that a main loop calls. Its statements run with some parameters and buffers that come with each
/// call instead of with the launch: where the call stands (a batch, a row, a column), and what the main loop
/// computed there.
struct Hook {
  std::string name;                   // what the main loop calls it
  std::vector<std::uint32_t> params;  // parameters that come with a call, in the order of its arguments
  std::vector<std::uint32_t>
      buffers;  // In buffers that do, behind the parameters: arrays of the main loop's values
  std::vector<Stmt> body;
  std::vector<ExprId> results;  // what it returns; empty: nothing
  std::int32_t address = -1;    // not -1: it returns the address of this buffer's element results[0]
};

/// A constant that a main loop is compiled with.
struct Constant {
  std::string name;
  std::int64_t value;
  bool truth = false;  // a bool
};

/// A hand-written main loop of kernels_templates/ and what it is made for. It is given its operands' sizes by
/// the launch, see device::Launch::head.
struct Template {
  std::string name;                // see codegen/cuda/cuda_template.h
  DType element = DType::Float32;  // of its operands in memory
  std::vector<Constant> config;
  std::vector<Hook> hooks;
};

/// What is stored to one buffer of a GPU's kernel counts instead: each element, stored once, is an index into
/// `counts`, counted from the back where it is negative; one that is out of range counts nowhere. Blocks
/// count in shared memory, and add the number times what they counted to the elements of `counts`.
struct Tally {
  std::uint32_t indices;        // Out buffer that has no memory
  std::uint32_t counts;         // Out buffer of integers of four or eight bytes, and …
  std::uint32_t number;         // … In buffer of one such integer
  std::uint32_t places;         // parameter: elements of `counts`
  std::uint8_t log_copies = 0;  // of the counters, for different lanes
  bool halves = false;          // counters have 16 bits, and no copies
};

struct Kernel {
  ExprPool pool;
  std::vector<BufferDecl> buffers;
  std::vector<AccDecl> accs;
  std::vector<CustomMonoid> customs;
  std::vector<LoopDecl> loops;
  std::vector<DType> slots;
  std::vector<Stmt> body;
  std::vector<Stmt> link, second;
  std::vector<Stmt> finish;
  std::uint32_t n_params = 0;
  std::uint32_t n_vars = 0;
  bool fma = true;     // contraction of a*b+c allowed
  bool exact = false;  // one implementation of each function for all engines and lanes: quotients are
                       // divisions, Float64 functions the C library's for single values
  Threads threads;
  std::optional<Template> main_loop;  // then the sections are empty
  std::optional<Tally> tally;
  std::string label;  // readable name, not part of the key
};

/// Whether values of accumulators are read inside their loops: scans, While loops. Not every emitter has
/// them.
bool reads_running_values(const Kernel& kernel);
/// Everything that decides the generated code and the order of its arguments, and nothing else. Kernels that
/// differ in the numbers of their parts alone have equal hashes once they are canonical (canonicalise).
Hash128 hash(const Kernel& kernel);
/// Readable loop IR.
std::string print(const Kernel& kernel);
/// Throws InternalError on an operand, type, scope or index that makes no sense.
void verify(const Kernel& kernel);

/// Arguments of one launch, as compiled code sees them.
struct Frame {
  void* const* buffers;
  const std::int64_t* params;
  const std::uint64_t* slots;
};
/// Iterations [begin, end) of a section's grid, `scratch` per-thread memory.
using KernelFn = void (*)(const Frame* frame, std::int64_t begin, std::int64_t end, std::byte* scratch);

}  // namespace kiln::kernel
