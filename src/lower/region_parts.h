// Groups of axes, what runs along them, roles of parameters, and constants, that the files of RegionLowering
// share.
#pragma once

#include "kernel/expr.h"
#include "lower/pull.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kiln::lower {

/// A run of domain axes that every access walks as one. In the strict mode all adjacent reduced axes are a
/// group, whose pieces then are the runs that accesses walk as one; a group of one run has no pieces.
struct Group {
  struct Piece {
    int last;  // axis
    std::int64_t extent;
  };
  std::uint64_t axes;  // mask
  int last;            // the innermost axis, whose coefficient serves the group
  std::int64_t extent;
  bool reduced;
  int level;                  // of the values that are reduced along it in a nest; -1: kept
  std::uint32_t places;       // that have it
  std::vector<Piece> pieces;  // outermost first
  bool backwards = false;     // of a scan from the end, whose results go from the last to the first
  bool from_end = false;      // its loop begins at the end instead, and results go from the first to the last
};

/// Finds the groups that results walk backwards and whose points may be numbered from the other end.
void find_backwards(const Pulled& p, std::vector<Group>& groups);

/// The axes along which the values change that an index is made of, as a mask. `inside_rows`: what rows are
/// reduced to does not count.
std::uint64_t axes_changing(const Pulled& p, const Index& index, bool inside_rows);
/// The first of these groups along which the values change that an index is made of; their number, where
/// there is none.
int first_jump(const Pulled& p, const std::vector<Group>& groups, const Index& index);

struct Reduction {
  EntryId entry;
  int phase;  // loop that computes it
  int place;  // of its value, see plan::Region
  std::uint32_t acc = 0;
  std::uint32_t final_acc = 0;       // Split: accumulator of the finish section
  std::uint32_t partial[2] = {};     // Split, Stripes: buffers of value and position (or 0)
  std::vector<std::uint32_t> parts;  // Stripes, of a Custom monoid: buffers of a block's parts
  // A logsumexp by two loops (region_logsumexp.cpp): accumulators of the greatest value and of the sum, and
  // the type of the elements as they are compared.
  struct Relative {
    std::uint32_t greatest, sum;
    DType compared;
  };
  std::optional<Relative> relative;
  // Folded: scratch buffers of each lane's value, of each kept point's, and of the latter for each lane.
  std::uint32_t of_lane = 0, of_point = 0, spread = 0;
};

/// What makes values relative before an exponential: x + shift, or x * factor + shift in units of log 2.
struct RelativeTo {
  kernel::E shift, factor;
};

struct Scan {
  EntryId entry;
  // logaddexp of the scan and what stays the same along it, if that is all that reads the scan: the scan
  // begins with `start` then, and its values are those of `joined`
  EntryId joined = kNoEntry, start = kNoEntry;
  std::uint32_t acc = 0;  // of the loop being built
  // Chain: buffers of a chunk's own total and of all before it; Stripes: total
  std::uint32_t total = 0, prefix = 0;
};

/// Two loads of a tensor, of which a pad takes one: where they are, with equal steps. Every point is at one
/// of them.
struct Turned {
  Index low, high;
  EntryId owner;  // of the strides
};

// part of the roles that a predicate's link owns: apart from groups and atoms, which own the same kinds
constexpr std::uint64_t kLinkExtent = 0xffff;
constexpr std::int64_t kAddedInOrder =
    32;  // elements that a sum adds up one after the other: in a column, or in a row's lane
// times as many of a block's elements are read a second time: what is made of each block takes long
constexpr std::int64_t kPartsOfRelative = 4;
// the same where sums are in memory, and blocks of them are one more pass
constexpr std::int64_t kAddedInStripes = 48;
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A nest over pairs (region_pairs.h): values and groups, and the tile of its main loop.
struct NestOfPairs {
  EntryId x = kNoEntry, y = kNoEntry;    // of rows and of columns
  EntryId r = kNoEntry;                  // what is reduced of both along steps
  std::vector<EntryId> kept;             // what is reduced of that along columns; none: it is stored
  int row = -1, column = -1, step = -1;  // groups
  int threads = 0, each = 0;             // of a tile: threads along columns, and columns of each
  int store = 1;                         // adjacent columns that are stored at a time
  bool cut = false;                      // r is a sum of parts
  std::int64_t parts = 1;                // of the columns, each a block's
};

/// What a main loop reads of a product's operand.
struct ProductOperand {
  std::uint32_t buffer;
  std::vector<std::int64_t> strides;  // elements; 0 along axes of one element
  std::int64_t alignment;             // bytes that divide its address and all matrices' offsets
  int made_of = 0;  // bytes of an element of the array that it is made of; 0: it is in memory itself
  bool widens = false, as_given = false, factored = false;  // see lower::MadeOperand
  int share = 1;
  bool nibbles = false, zeroed = false, scaled = false;
};

/// An operand of integers of four bits, less a zero point, times a scale: entries, or none.
struct Quantized {
  EntryId zero = kNoEntry, scale = kNoEntry;
};

/// Parameters of a kernel that is lowered. A role is one parameter whatever its value; what it belongs to
/// (owner) tells roles of a kind apart.
struct Roles {
  enum RoleKind : std::uint64_t {
    kExtent = 1,
    kStride,
    kOffset,
    kAtomCoef,
    kDivisor,
    kInverse,
    kPredicate,
    kSize,
    kTogether  // of groups, by a bit each
  };
  enum Owner : std::uint64_t {  // owners that are neither entries, atoms, links nor groups
    kScratchOwner = 0xfffd0000u,
    kOperandOwner = 0xfffc0000u,  // of a product; plus 1 and the buffer: of one of them
    kRowOwner = 0xfffe0000u,
    kOutputOwner = 0xffff0000u,  // plus the node
  };
  enum Size : std::uint64_t {
    kItems,
    kBlocks,
    kBlock,
    kRuns,
    kRunExtent,
    kRowPitch,
    kChunks,
    kChunk,
    kRows,
    kGroups,
    kAhead,
    kBehind,
    kIterations,
    kPoints,
    kFold,
    kFoldRun,
    kFoldLanes,
    kFoldPoints,
    kTileRows,
    kSumBlock,
    kLastVectors,
    kRounds,
    kRoundsHere,
    kRound,
    kRoundRows,
    kPeriod,
    kSlab,
    kSlabRows,
    kGivenBatch,
    kGivenPart,
    kGivenRow,
    kGivenColumn,
    kGivenColumns,
    kGivenPitch,
    kRepeats,
    kLeftOut,
    kParts,
    kRowsAcross
  };
};

}  // namespace kiln::lower
