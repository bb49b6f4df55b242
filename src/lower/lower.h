// lower: one region → one kernel plus the values its parameters take for this region's sizes.
#pragma once

#include "device/launch.h"
#include "kernel/kernel.h"
#include "plan/made_operands.h"
#include "plan/region.h"
#include "schedule/schedule.h"

#include <kiln/fusion_report.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kiln::lower {

/// Where a kernel's buffer comes from at launch.
struct BufferSource {
  enum class Kind : std::uint8_t { Arg, Node, Partial, Scratch } kind;
  std::uint32_t id;          // Arg: index into Graph::args; Node: the stored node
  std::int64_t byte_offset;  // from the argument's first element / the node's buffer
  std::int64_t bytes = 0;    // Partial, Scratch: size
  /// A start that a scalar slot holds, moved into [0, last]: a stride, in bytes, further on for every
  /// `divisor` of it.
  struct Position {
    std::int32_t slot;
    std::int64_t last, stride, divisor;
    friend bool operator==(const Position&, const Position&) = default;
  };
  std::vector<Position> positions = {};
};

struct Lowered {
  kernel::Kernel kernel;  // canonically numbered, so that its hash is the key of its structure
  std::vector<std::int64_t> params;
  std::vector<std::int32_t> slots;    // graph slot of each kernel slot
  std::vector<BufferSource> buffers;  // parallel to kernel.buffers
  std::int64_t grid = 1;              // iterations of the Grid loop
  std::int64_t most_blocks = 0;       // of a GPU's, at a time; 0: any number
  std::int64_t finish_grid = 0;       // iterations of the finish section's
  std::int64_t grain = 1;             // least iterations worth a thread
  std::int64_t scratch_bytes = 0;     // per thread
  bool overlaps = false;              // it reads, at other points, memory of an argument that it writes
  double work = 0;                    // primitives in all (for the threading decision)
  std::int64_t bytes = 0;             // memory traffic, each operand once
  std::int64_t piece = 0;  // above 0: a grid item makes so many elements of the results, in row-major order
  schedule::Form form{};
  /// Of each expression of the kernel the node whose value it is a part of, or kNoNode; empty: not known.
  std::vector<plan::NodeId> origins;
  std::vector<FusionVariant> alternatives;  // variants of the chosen schedule (schedule/variants.h)
  /// The epilogue of a CPU's product: parameters, and the buffer of the sums, that come with each call; see
  /// device::Launch.
  std::vector<std::int32_t> given;
  std::int32_t given_buffer = -1;
  // Of a kernel with a main loop.
  std::vector<std::byte> head;
  std::vector<std::byte> again;  // the head of a second launch behind the first; empty: there is none
  std::vector<Lowered> then;  // further kernels behind this one, which share its Partial buffers by their ids
  std::optional<device::LaunchShape> shape;  // where the main loop does not tell its own
  std::vector<device::TiledBuffer> tiled;    // their boxes are codegen::complete_tiles()'s
};

/// Whether the main loop of a product can make its second operand on the way: of one array of the operand's
/// extents that is smaller in memory, whose lines the copies of the loop can take, and of little else. Of two
/// products side by side: both operands, in one way.
bool makes_operands(const plan::Graph& graph, const plan::Regions& regions,
                    std::span<const plan::MadeOperand> operands, const schedule::Target& target);

/// Whether one main loop does two products of the same rows, with columns and maps of their own: it would be
/// compiled with the same constants for either.
bool shares_launch(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region,
                   const plan::Region& other, const schedule::Target& target);

/// Whether a main loop has the two columns of a product at hand that maps read together, as
/// plan::Region::partner says, and the maps read nothing else of it.
bool meets_partners(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region,
                    const schedule::Target& target);

/// Whether maps read less where a thread has two points together, as plan::Region::partner says, than apart.
bool shares_halves(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region);

/// Pre: a region made by plan::fuse over a verified graph. Never fails for such a region.
Lowered lower(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region,
              const schedule::Target& target);

}  // namespace kiln::lower
