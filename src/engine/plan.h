// Plan: everything an evaluation of one structure does, with sizes resolved: steps over numbered buffers. A
// plan is immutable and shared; running it needs only the argument addresses and scalar values of a walk.
#pragma once

#include "cache/kernel_cache.h"
#include "device/launch.h"
#include "engine/plan_graphs.h"
#include "engine/walk.h"
#include "inspect/explain.h"
#include "ir/graph.h"
#include "library/attention.h"
#include "library/call.h"
#include "library/pair_sums.h"
#include "plan/region.h"
#include "schedule/target.h"

#include <kiln/report.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kiln::engine {

/// Memory of a plan: an argument, or a buffer that the plan allocates.
struct Place {
  enum class Kind : std::uint8_t { Arg, Buffer, None } kind = Kind::None;
  std::uint32_t index = 0;
  std::int64_t byte_offset = 0;
  bool written = false;     // of a Launch: by its kernel
  std::uint32_t moved = 0;  // above 0: by the moves with this number less 1, see Plan::moves
};

/// What a scalar slot adds to an address: the slot's value, moved into [0, last], times the stride.
struct Move {
  std::uint32_t slot;
  std::int64_t last, stride;  // stride in bytes, of `divisor` positions
  std::int64_t divisor = 1;   // of which the slot's value is a multiple
};

/// What the device launches, and where its arguments come from.
struct Launch : device::Launch {
  std::shared_ptr<const CachedKernel> kernel;
  std::vector<Place> buffers;        // of the kernel
  std::vector<std::uint32_t> slots;  // plan slot of each kernel slot
  std::int64_t bytes = 0;            // memory traffic, each operand once
  std::string ops, extents;          // for logs
  Verdict verdict = Verdict::Memory;
  std::vector<DType> types;                // of the buffers, where launches are written (replay.h)
  SourceLocation line = SourceLocation();  // that recorded its first result
};

struct ArrayOperand {
  Place place;
  DType dtype;
  std::vector<std::int64_t> dims, strides;  // elements
  // of a product's operand: where its rows (columns) begin, if they lie at no single stride; in elements
  std::vector<std::int64_t> row_offsets = {}, col_offsets = {};
};

/// A step that the device's library does.
struct LibraryCall {
  const library::Routine* routine = nullptr;
  ir::Op op;
  std::uint64_t attr64 = 0;
  std::vector<std::int64_t> attrs;
  bool strict = false, exact = false, tf32 = false;
  std::vector<ArrayOperand> operands;
  DType dtype;                     // of the result
  std::vector<std::int64_t> dims;  // of the result, which is row-major
  Place out;                       // perhaps the first operand's memory, where nobody else reads that
  std::vector<Place> others;       // of an op of several results those after the first. None: nobody asks
  library::Variants ways;          // see library::Call
  std::int32_t epilogue = -1;      // not -1: of Plan::epilogues, which stores the results; `out` is no place
  std::int32_t maker = -1;         // not -1: of Plan::epilogues, which makes the operand without a place, see
  std::int64_t piece = 0;          // library::Maker
  std::shared_ptr<const library::FixedCall>
      fixed;                               // of a complete call; null: it is put together in each run
  SourceLocation line = SourceLocation();  // that recorded it
};

/// What the library is asked to do, but for the addresses. `call` lives as long as the result.
library::Call call_without_memory(const LibraryCall& call, Device device);

/// A step whose library calls kernels for tiles.
struct TileStep {
  std::int64_t tile_rows = 0, tile_columns = 0, local_bytes = 0;
  std::vector<std::shared_ptr<const CachedKernel>> kernels;
  std::vector<DType> slot_types;
  SourceLocation line = SourceLocation();  // that recorded its result
};

/// A step that computes an attention tile by tile.
struct AttentionStep : TileStep {
  std::shared_ptr<const plan::Attention> what;
  const library::AttentionRoutine* routine = nullptr;
  std::vector<library::TileKernel> step[2][2][2], finish[2];  // see library::AttentionCall
  Place q, k, v, result;
  std::vector<Place> memory, row_results;
  DType result_type = DType::Float32;
};

/// A step that computes sums over pairs tile by tile.
struct PairSumsStep : TileStep {
  std::shared_ptr<const plan::PairSums> what;
  const library::PairSumsRoutine* routine = nullptr;
  struct Tiles {
    std::vector<std::vector<library::TileKernel>> statistics;  // by level
    std::vector<library::TileKernel> weights;
  };
  Tiles tiles[2][2];  // see library::PairSumsCall
  std::vector<std::pair<Place, Place>> products;
  std::vector<Place> others, memory, results;
};

struct Plan;

/// A loop over whole tensors: two plans, run in turn. Arguments of both: the states, then the captures.
struct Loop {
  struct State {
    Place init;                               // None: the count
    std::vector<std::int64_t> dims, strides;  // of init
    DType dtype;
    Place result;  // None: nobody asks
  };
  std::vector<State> states;
  std::vector<Place> captures;
  std::shared_ptr<const Plan> condition;  // result: one bool; null where `count` says how often the body runs
  std::shared_ptr<const Plan> body;       // results: the states' next values, then the yields
  std::int64_t count =
      0;  // above 0: the first state is the iteration's number, which the host writes; no result of body
  struct Yield {
    Place stack;                     // None: nobody asks
    std::vector<std::int64_t> dims;  // of one value
    DType dtype;
  };
  std::vector<Yield> yields;
};

/// Takes the time of a part of a run.
struct StepTimer {
  std::uint32_t first = 0, last = 0;  // steps [first, last)
  double seconds = -1;
};

class Trial;

struct Step {
  enum class Kind : std::uint8_t { Launch, Library, Loop, Attention, PairSums } kind;
  std::uint32_t index;  // into launches, library, loops, attentions, pair_sums
  std::uint32_t count =
      1;  // launches that follow each other and run as one: the same kernel, none needs another
};

struct Plan {
  Device device;
  std::vector<Step> steps;
  std::vector<Launch> launches;
  /// Kernels that library calls run on their results, or for their operands, while these are in a cache.
  std::vector<Launch> epilogues;
  std::vector<LibraryCall> library;
  std::vector<Loop> loops;
  std::vector<std::unique_ptr<AttentionStep>> attentions;
  std::vector<std::unique_ptr<PairSumsStep>> pair_sums;
  struct BufferPlan {
    std::uint64_t bytes = 0;
    std::int32_t first = -1, last = -1;  // steps that touch it first and last; -1: none does
    bool result = false;                 // handed out: lives on
    std::uint64_t offset = 0;            // of others: where they lie in the plan's block of memory …
  };
  std::uint64_t arena_bytes = 0;  // … which has so many bytes. 0: each has memory of its own
  std::vector<BufferPlan> buffers;
  std::vector<std::uint32_t> by_first;  // buffers in the order of their first steps
  std::vector<std::uint32_t> by_last;   // those that are not handed out, in the order of their last steps
  struct Result {
    std::uint32_t position;  // walk position of the node that becomes a leaf
    Place place;
    std::int64_t offset = 0;            // elements
    std::vector<std::int64_t> strides;  // empty: row-major
    bool root = false;
    std::uint32_t moved = 0;  // as of a place
  };
  std::vector<Result> results;
  // walk positions of held nodes that stay pending although they are computed
  std::vector<std::uint32_t> left_pending;
  std::vector<std::uint32_t> donated;  // arguments that are overwritten
  std::int32_t first_write =
      -1;  // the first step that does; the buffers of all later steps are allocated before it
  std::vector<std::vector<Move>> moves;  // of places whose address the slots decide
  /// Bytes that moves add in a run with these slots.
  std::int64_t moved(std::uint32_t number, std::span<const std::uint64_t> slots) const {
    std::int64_t bytes = 0;
    for (const Move& m : moves[number - 1])
      bytes += std::clamp<std::int64_t>(static_cast<std::int64_t>(slots[m.slot]), 0, m.last) / m.divisor *
               m.stride;
    return bytes;
  }
  std::uint32_t n_nodes = 0;
  int again = 0;  // regions that run once more, for Config::memory_budget
  /// Where launches are written (replay.h), of each argument: bytes in front of its first element, and all
  /// bytes.
  std::vector<std::pair<std::int64_t, std::uint64_t>> argument_bytes;
  std::unique_ptr<PlanGraphs> graphs;  // null: steps are enqueued one by one
  // Not null: this plan answers while kernels of a better one are compiled; set when they are.
  std::shared_ptr<const std::atomic<bool>> superseded;
  /// Not null: runs of this plan take turns with others (trial.h).
  std::shared_ptr<Trial> trial;
  /// Not null: reports of fusion were wanted when the plan was made. The nodes of `results`, with the reasons
  /// why these are stored, stand beside it.
  std::unique_ptr<PlanReport> report;
  std::vector<FusionReport::Stored> stored;
};

/// Plans the graph of a walk and compiles what it needs; reads no node of the trace. A defect of Kiln (an
/// InternalError) does not end the program: what cannot be planned as kernels of many operations is planned
/// one by one, with a warning. Throws CompileError where that fails too.
std::shared_ptr<const Plan> make_plan(const Walk& walk, ir::Graph graph, const std::vector<ir::NodeId>& ids,
                                      Device device);

/// The same for a graph of its own: results are its roots, in order. `donatable`: leaves that the plan may
/// overwrite.
std::shared_ptr<const Plan> make_plan(ir::Graph graph, Device device,
                                      const std::vector<ir::NodeId>& donatable = {});

/// Kernels of a plan, and of the plans that its loops run, which were in no cache when it was made, and the
/// time that their compiles have taken so far.
struct NewKernels {
  int kernels = 0;
  std::uint64_t ns = 0;
};
NewKernels new_kernels(const Plan& plan);

/// Called with every graph that is planned, as the planner gets it, for tests: what another target would make
/// of it. Null: none.
using GraphHook = void (*)(const ir::Graph&);
void set_graph_hook(GraphHook hook);

/// Called with every region before it is lowered, for tests: it may throw InternalError. Null: none.
using RegionHook = void (*)(const ir::Graph&, const plan::Region&);
void set_region_hook(RegionHook hook);

/// Plans made from now on have kernels that know their sizes, to be measured beside the others. Plans and
/// kernels made before stay: clear_memory_caches().
void specialise_kernels(bool on);

/// Plans made from now on give a GPU's products with maps behind them, and gradients of attention, to
/// hand-written main loops, also where the library and kernels for the maps would be faster: for tests and
/// measurements. KILN_TEST_TEMPLATES=1 in the environment does the same.
void prefer_templates(bool on);

/// Plans made from now on make products whose rows are reduced in blocks of so many rows, however small they
/// are; 0: as costs say. For tests and measurements. KILN_TEST_BLOCKS=rows in the environment does the same.
void set_block_rows(std::int64_t rows);

/// Plans made from now on take arrays of more bytes than this for ones that leave the caches, and so are made
/// as those of large arrays; 0: as the device says. For tests. KILN_TEST_CACHES=bytes in the environment does
/// the same.
void set_cache_bytes(std::int64_t bytes);

/// The planner's view of a device. DeviceError when there is no such device.
const schedule::Target& planning_target(Device device = Device::cpu());

/// While one lives, targets that its thread plans for have no main loops that take long to compile where the
/// library and kernels without them do the same.
class QuickPlanning {
 public:
  QuickPlanning();
  ~QuickPlanning();
  QuickPlanning(const QuickPlanning&) = delete;
  QuickPlanning& operator=(const QuickPlanning&) = delete;
};

/// Finds a plan in memory; null on a miss. Takes no lock for plans this thread has used lately.
std::shared_ptr<const Plan> find_plan(const Hash128& key);
/// Keeps a plan and returns it (or the one another thread kept first).
std::shared_ptr<const Plan> keep_plan(const Hash128& key, std::shared_ptr<const Plan> plan);
void clear_plan_cache();
std::mutex& plan_cache_mutex();  // for fork

/// Runs a plan: args[i] is the address of argument i's first element. Buffers of results are returned with
/// one reference each, parallel to plan.results (null for results that show an argument). `wrote` is set
/// before the first donated argument is written. `timer`: gets the time of its steps, for which a GPU waits.
void run_plan(const Plan& plan, std::span<std::byte* const> args, std::span<const std::uint64_t> slots,
              std::vector<ir::Buffer*>& result_buffers, bool* wrote = nullptr, StepTimer* timer = nullptr);

}  // namespace kiln::engine
