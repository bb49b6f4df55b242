// schedule: how one region runs on one target, or why it cannot.
//
// Shapes of kernel (all are combinations of the same loops):
//   Rows     grid over kept axes, the reduced (or last) axis on lanes; phases reread the row
//   Columns  grid over kept axes and blocks of the last kept axis, which is on lanes; reduced axes are serial
//            Folded: several points of a reduced axis share the lanes with the short axes inside it
//   Bunch    many short rows a grid item, staged in a GPU's shared memory: threads share its elements while
//   they are copied, and each has a row of its own between
//   Split    a long reduction cut into chunks: partial results, combined by the kernel's finish section
//   Chain    a long scan cut into chunks: their totals, linked one to the next, then the scan of each chunk
//   Flat     no reduction, one axis, cut into blocks
//   Slab     reductions along different axes: loops over the same values one after the other, a grid item's
//            fit a cache, or a GPU's shared memory
//   Nest     reductions of reductions along further axes: loops inside loops, one level on lanes
//   Tiles    no reduction, operands that are contiguous along other axes than the last: they go through
//   scratch memory
//   Product  the epilogue of a matrix product: rectangles of sums that something else makes
#pragma once

#include "kernel/kernel.h"
#include "schedule/target.h"
#include "support/why.h"

#include <cstdint>
#include <span>
#include <string>
#include <variant>

namespace kiln::schedule {

enum class Form : std::uint8_t {
  Flat,
  Rows,
  Tiles,
  Columns,
  Bunch,
  Stripes,
  Split,
  SplitColumns,
  Chain,
  Nest,
  Slab,
  Product
};

/// Elements of a row for each lane from which it is cut into chunks even where there are rows enough for all
/// threads.
constexpr std::int64_t kAddedByLane = 1024;

/// GPU: elements that a thread of a team with several rows' results adds up one after the other where its
/// sums are not compensated.
constexpr std::int64_t kAddedByTeam = 32;

/// Elements of the axes that share the lanes with another outside them, at most (Schedule::fold).
constexpr std::int64_t kMostFolded = 2048;

/// CPU: elements behind a lane of a bunch, at most.
constexpr std::int64_t kMostSlab = 256;

/// GPU: bytes that a bunch of rows has in shared memory at most, and threads that go along its rows then.
constexpr std::int64_t kBunchBytes = 32 << 10, kBunchThreads = 128;

/// What a region looks like after its axes were collapsed.
struct Facts {
  struct Axis {
    std::int64_t extent;
    bool reduced;
    int level = 0;  // of the values reduced along it, where there are several
  };
  std::span<const Axis> axes;  // outermost first, no extent of 1 unless it is the only axis
  int apart = -1;     // kept axis of which no operand has elements that also differ along the last, or -1
  int repeated = -1;  // GPU: kept axis along which the largest load repeats, where all go along reduced rows
  int folds = -1;  // reduced axis that the memory of the axes inside it continues, which are short, or -1; on
                   // a GPU these are kept ones, and then reduced ones
  int grouped_vector = 1;       // GPU: adjacent elements of those as one that 16-byte accesses allow
  int phases = 0;               // dependent reduction levels (0: a map)
  int levels = 1;               // reductions one of the other's results: more than one is a nest
  bool slab = false;            // reductions go along different axes of the whole
  bool both_ways = false;       // GPU: so do some that are not these, of each element as it is read
  bool scans = false;           // reduced axes are scanned: their order is that of the values
  bool scans_of_scans = false;  // whose totals by chunks are not known before the others have run
  bool in_parts = false;        // a reduction keeps more than a value for each row
  int read_twice = 0;           // reductions that read each row twice
  int states = 0;               // of the largest loop inside the body
  bool stores_full = false;     // writes values of the whole domain that depend on its reductions
  bool whole_rows = false;      // GPU: no second stage is wanted
  bool rows_alone = false;      // CPU: short rows are not to share lanes or a tile
  bool positions = false;       // a reduction finds a position
  int prims = 0;                // cost of the innermost body
  int row_prims = 0;            // cost of what is made of the results of a row, once a row
  int widest_bytes = 4;         // widest element type computed with
  bool random = false;  // makes random bits: a block of them serves four lanes and fills two registers' worth
  std::int64_t out_bytes = 0;        // bytes of the largest full output
  std::int64_t adjoining_bytes = 0;  // the same of outputs that are one row through all axes
  int out_narrowest = 8;             // bytes of an element of the full outputs, the fewest
  std::int64_t touched_bytes = 0;    // CPU: of all arrays that are read or written
  std::int64_t row_bytes_out = 0;  // bytes of the largest result of a reduction that lies along the last axis
  int row_narrowest = 8;           // bytes of an element of such, the fewest
  int flat_vector = 1;  // GPU: of the whole domain as one, where full operands have it so in memory
  int row_vector = 1;   // GPU: the same of rows that begin anywhere, where they lie one after the other
  int window = 0;       // GPU: the same where results have it so and operands begin anywhere in a row, or are
                        // there for a part of the points; 0: none is so
  int window_rounds = 0;  // … by elements: of a warp, a run
  int vector = 1;      // GPU: adjacent elements of the last axis that 16-byte accesses of all operands allow
  int loads = 0;       // full operands read
  int strip = -1;      // GPU, a map: axis along which a thread had better have several rows, or -1, …
  int strip_rows = 0;  // … and how many, …
  int strip_vector = 1;     // … of so many adjacent elements along the axes inside it as one
  int fixed = 0;            // operands of which an element serves a whole run of the last axis
  bool rows_apart = false;  // of them or the results, one whose rows do not lie one after the other
  int row_loads = 0;        // those of them that are other elements in other rows
  int loaded_bytes = 0;     // of an element of each that is reduced
  int held_bytes = 0;       // GPU: of those that are not read by many items anyway
  int kept_bytes = 0;       // CPU: of an element of the values that phases keep for later ones, if they may
  int kept = 0;             // registers that the reductions of an element take
  bool guarded = false;     // an operand is not everywhere along the last axis
  std::int64_t guards_apart = 0;  // CPU: of which all places there are multiples where that changes; 0: none
  bool strided = false;           // or its elements along that axis do not adjoin
  bool jumps = false;             // or its rows are where an index says
  int jumps_along = 0;            // the first axis along which such an index changes
  bool dense = true;  // or there is little between those that follow each other in row-major order
  int near = 0;       // first axis from which on elements that follow each other are near in all operands
  int across = -1;    // axis that an operand is contiguous along although it is not the last, or -1
  std::int64_t across_run = 0;  // elements that it is contiguous along, further axes counted
  std::int64_t last_run = 0;    // elements of the last axes, up to the first that is one of those
  int across_vector = 1;        // GPU: `vector` along them
  int across_narrowest = 4;  // bytes of an element of the operands that are contiguous along them, the fewest
  int bunch_bytes = 0;   // GPU: of what is stored and loaded along all axes as one, an element; 0: nothing is
  int bunch_vector = 1;  // the elements that 16-byte accesses of all these allow
  int bunch_operands = 0;       // of these the loads
  int across_bytes = 4;         // those bytes of all these operands together
  bool reduces_across = false;  // GPU: these axes are reduced, in any order
};

struct Schedule {
  Form form = Form::Flat;
  int lanes = 1;
  int lane_axis = 0;  // Columns: the axis on lanes; Flat, Rows, Tiles: the first of those on lanes together
  std::int64_t block = 0;  // elements of the vector axis a grid item covers
  std::int64_t run = 0;    // Tiles: elements of the axis `across`, and of those with it, a grid item covers;
                           // GPU, Split…: the same of a tile, or 0, and `chunk` are tiles then;
                           // GPU, Columns, Slab: bytes of shared memory for what is read again
  int run_lanes = 1;       // Tiles: lanes along them while the tile is written
  std::int64_t slabs = 0;  // Bunch: of a grid item, which has room for `run` bytes
  std::int64_t batch = 0;  // Rows, CPU: of a grid item whose phases go through all of them, one after the
                           // other; `run_lanes` of them are a vector of results. 0: items are single rows
  int run_rows = 1;        // Tiles: lines along them written side by side (LoopDecl::rows)
  int rows = 1;  // a GPU's Columns, SplitColumns: parts of the team that share the outermost reduced axis;
                 // Tiles: that share the rows of a tile
  std::int64_t chunk =
      0;  // Split…, Stripes, Chain: elements of the outermost reduced axis a grid item covers; 0: all
  bool stream = false;
  bool together = false;  // one loop runs over all reduced axes, and chunks are parts of all
  int tile = 1;  // Columns: rows of the kept axis `tile_axis` that a thread has results of, beside its lanes;
                 // Rows: that a team has results of, or a thread of a map
  int tile_axis = -1;
  int strips = 1;       // GPU, Columns with a tile: columns of each of its rows that a thread has, a team's
                        // threads apart; `lanes` is 1 then
  int lane_level = -1;  // Nest: the level whose axes are on lanes; -1: the kept axis lane_axis is
  int kept_from = -1;   // Columns, Stripes: the first of the kept axes that share the lanes as one, up to the
                        // last of them; -1: lane_axis is alone there
  std::int64_t fold = 0;  // Columns, not 0: points of the axis before lane_axis that share the lanes with the
                          // axes from there on; a grid item has all of these, in blocks of `block` times as
                          // many points where that is not 0. On a GPU 1: a block
                          // has `block` adjacent points of the axes from lane_axis on
  std::int64_t round = 0;  // Rows, a map of short rows: elements after which rows and vectors begin together
  int inside = -1;         // Rows, a map: the axis from which on to lane_axis loops are inside that on lanes;
                           // `block` is of elements of this axis
  bool one_thread = false;   // a CPU's: no thread is woken for it
  bool known_sizes = false;  // the kernel has its sizes as constants: a kernel for each shape
  int fetches = 0;           // CPU: -1: memory is not asked for ahead; 1: further ahead than is usual
  bool one_by_one = false;   // Rows: the reduced axes are loops of single elements, none is on lanes
  // GPU:
  kernel::Threads threads;
  int steps = 0;         // of each Vector loop, when its extent is bounded
  int written_out = 0;   // Columns: iterations at most of loops down them that are written out, or 0
  bool ragged = false;   // Vector loops may end inside a vector
  bool early = false;    // … and begin inside one, each where the row's memory does
  bool windows = false;  // a map's operands begin anywhere in a row: see Facts::window

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// A schedule, or one line that says which condition failed.
std::variant<Schedule, std::string> schedule(const Facts& facts, const Target& target);

/// The same for a GPU; schedule() asks it.
std::variant<Schedule, std::string> schedule_gpu(const Facts& facts, const Target& target);

/// Bytes that a GPU's block keeps in shared memory to read them again. Two blocks share a multiprocessor
/// then: most architectures' have 160 KiB and more, those of 86, 89 and 120 on 100.
std::int64_t held_bytes(const Target& target);

/// Results of pairs on a CPU, Facts::apart >= 0: rows of the tile, and lanes of each. Their accumulators stay
/// in registers.
constexpr int kPairRows = 4;
int pair_lanes(const Facts& facts, const Target& target);

/// The same for reductions and scans in the strict mode; schedule() asks it. Pre: phases > 0 or scans;
/// adjacent reduced axes are one.
Schedule schedule_strict(const Facts& facts, const Target& target);

/// Whether the strict mode combines so many elements in chunks, so that nothing in the same kernel may depend
/// on the result.
bool strict_in_chunks(std::int64_t reduced, bool columns);

struct NormFacts {
  std::int64_t rows = 1, length = 1;  // kept points, and elements that are reduced to each
  bool columns = false;               // the outer axes are reduced
  std::int64_t run = 1;               // of columns: kept points that lie side by side
  std::int64_t bytes = 4;             // an element has in memory: of a GPU's rows
};

/// Whether dependent reductions over rows run as one kernel (asked by the planner before it merges): not
/// where too few threads would be busy, nor where a CPU's thread would read short runs of memory anew for
/// each phase. Returns nothing, or the condition that fails.
Why refuse_norm(const NormFacts& facts, const Target& target);

/// The same for reductions of reductions; schedule() asks it.
Schedule schedule_nest(const Facts& facts, const Target& target);

/// What the planner knows of two regions whose reductions would go on from each other's in one kernel.
struct NestFacts {
  std::int64_t kept = 1;                  // points that are independent of each other
  std::int64_t innermost = 1, outer = 1;  // points of level 0, and of all levels above it, a kept point
  int last_level = -1;                    // of the last axis; -1: kept
  std::int64_t last = 1;                  // its elements
  bool pairs = false;                     // one axis is kept, and there is one of each of two levels
  bool apart_in_memory = false;  // kept axes lie between the axes of level 1 and those of level 0, the last
  double prims = 0;              // of all points
  double bytes = 0;              // that the one kernel moves
  struct Kernel {
    double prims, bytes;
  } apart[2];
};

/// The same where reductions would go along different axes of values that a grid item has.
struct SlabFacts {
  std::int64_t items = 1;   // slabs
  std::int64_t points = 1;  // of a slab
  std::int64_t rows = 0;    // results that are kept for later sweeps, of a slab
  std::int64_t run = 1;     // adjacent points along which a sweep has its lanes
  int sweeps = 0;
  std::int64_t held = 0;  // GPU: bytes of what it reads that are its own, each operand's a power of two
  int reductions = 0;
  double prims = 0, bytes = 0;
  NestFacts::Kernel apart[2];
};
bool slab_pays(const SlabFacts& facts, const Target& target);

/// Whether a GPU's block has room for a slab and the results of its reductions.
bool holds_slab(const SlabFacts& facts, const Target& target);

/// Reductions along outer axes and a short last one, with kept axes between: adjacent columns of a GPU have a
/// result together.
struct GroupedFacts {
  std::int64_t items = 1;     // of the kept axes around the columns
  std::int64_t rows = 1;      // elements of a column
  std::int64_t columns = 1;   // of an item, …
  std::int64_t together = 1;  // … of which so many adjacent ones have a result
  std::int64_t bytes = 4;     // of an element
};

/// Columns that a block has in shared memory while it reads them several times; 0: they have no room there,
/// would be read in short runs, or are few.
std::int64_t grouped_columns(const GroupedFacts& facts, int lanes, const Target& target);

/// Reductions along different axes, none of which depends on another.
struct BothWays {
  std::int64_t run = 1;      // adjacent points along which one reduces
  std::int64_t columns = 1;  // points, but for those that the others reduce, …
  std::int64_t reduced = 1;  // … which are so many
  std::int64_t bytes = 4;    // of an element that is read, the fewest
  int reductions = 2;
  NestFacts::Kernel apart[2], together;
};
/// Whether one kernel takes less time than two. Not for a CPU, nor for the strict mode.
bool both_ways_pay(const BothWays& facts, const Target& target);

/// Whether one kernel of both takes no more time than two. Not for the strict mode.
bool nest_pays(const NestFacts& facts, const Target& target);
/// Results of pairs, for each multiprocessor of a GPU, from which on a nest has a main loop for pairs.
inline constexpr std::int64_t kPairs = 8192;

}  // namespace kiln::schedule
