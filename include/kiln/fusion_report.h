// What became of the operations of one evaluation, as data: kernels, boundaries between them with the reason,
// near misses, what was saved, what forced the evaluation. Programs and their tests read it; KILN_EXPLAIN
// writes it. docs/explain.md explains every field. Not part of <kiln/kiln.h>.
#pragma once

#include <kiln/dtype.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// What a program may change.
enum class FusionHint : std::uint8_t {
#define KILN_HINT(Name, text) Name,
#include <kiln/fusion.def>
#undef KILN_HINT
};

/// What fuses under conditions of its own.
enum class FusionPattern : std::uint8_t {
#define KILN_PATTERN(Name, text) Name,
#include <kiln/fusion.def>
#undef KILN_PATTERN
};

/// Why two operations are not one kernel.
enum class FusionReason : std::uint8_t {
#define KILN_REASON(Name, Pattern, Hint, text, explanation) Name,
#include <kiln/fusion.def>
#undef KILN_REASON
};

/// What a kernel or library call is.
enum class RegionKind : std::uint8_t {
#define KILN_REGION_KIND(Name, text) Name,
#include <kiln/fusion.def>
#undef KILN_REGION_KIND
};

/// Another way to run a region (docs/adaptive.md).
enum class FusionVariant : std::uint8_t {
#define KILN_VARIANT(Name, Way, text) Name,
#include <kiln/fusion.def>
#undef KILN_VARIANT
};

/// Why a value was stored.
enum class StoredBecause : std::uint8_t {
#define KILN_STORED(Name, text) Name,
#include <kiln/fusion.def>
#undef KILN_STORED
};

/// The enumerator's name: "OtherPoints", as in JSON.
std::string_view name(FusionHint hint);
std::string_view name(FusionPattern pattern);
std::string_view name(FusionReason reason);
std::string_view name(RegionKind kind);
std::string_view name(FusionVariant variant);
std::string_view name(StoredBecause why);
/// The text for people; of a reason with … where its arguments stand.
std::string_view text_of(FusionHint hint);
std::string_view text_of(FusionPattern pattern);
std::string_view text_of(FusionReason reason);
std::string_view text_of(RegionKind kind);
std::string_view text_of(FusionVariant variant);
std::string_view text_of(StoredBecause why);
/// The text of a reason with its arguments.
std::string text_of(FusionReason reason, const std::vector<std::string>& arguments);
std::string_view explanation_of(FusionReason reason);  ///< may be empty
FusionHint hint_of(FusionReason reason);
/// None: the reason belongs to no pattern, and is no near miss.
FusionPattern pattern_of(FusionReason reason);

struct FusionReport {
  /// An operation of the planned graph; transforms may have replaced what was recorded.
  struct Node {
    std::uint32_t id = 0;
    std::string op;
    DType dtype = DType::Float32;
    std::vector<std::int64_t> shape;
    std::string file;
    std::uint32_t line = 0;
    std::vector<std::uint32_t> operands;  ///< ids
    bool operator==(const Node&) const = default;
  };
  /// A compiled kernel of a region.
  struct Kernel {
    std::string name;              ///< as in dumps and logs
    std::string key;               ///< 32 hexadecimal digits; equal kernels have equal keys
    std::string schedule;          ///< "rows"
    std::string why;               ///< why this schedule
    std::string verdict;           ///< where the code came from: memory, disk, compiled, vm; not run: none
    std::int64_t compile_ns = -1;  ///< -1: not compiled by this plan, or not yet
    int registers = -1;            ///< of a thread of a GPU; -1: not known
    int spilled_bytes = -1;        ///< of a thread of a GPU; -1: not known
    /// Why a new kernel was made although others of the same operations are there: the first part of the loop
    /// IR that differs from the nearest of them. Empty: there was none, or the kernel was there.
    std::string field, now, was;
    /// Where the report goes to a page: the kernel by stages of KILN_DUMP ("kernel", "ll", "asm", "cu", …).
    std::map<std::string, std::string> sources;
    /// Of the stages whose lines are known: for each line the ids of the nodes that it computes, loads or
    /// stores.
    std::map<std::string, std::vector<std::vector<std::uint32_t>>> lines;
    bool operator==(const Kernel&) const = default;
  };
  /// One kernel, or one call of a library.
  struct Region {
    RegionKind kind = RegionKind::Elementwise;
    std::vector<std::uint32_t> nodes, outputs;  ///< ids: computed, stored
    std::vector<Kernel> kernels;                ///< none: of a library, or nothing to do
    bool library = false;
    std::int64_t bytes = 0;        ///< memory traffic as modelled
    std::int64_t floor_bytes = 0;  ///< each operand and each result once
    double operations = 0;         ///< of numbers
    double modelled_ns = 0;        ///< by the planner's rates
    double measured_ns = -1;       ///< of the latest measured run; -1: none
    /// How it runs, where adaptive mode found a better way: the variants of its schedule, in the order in
    /// which they were taken.
    std::vector<FusionVariant> variants;
    double gain = 0;  ///< time as planned / time with all of them, as measured; 0: none, or not known
    bool operator==(const Region&) const = default;
  };
  /// Two operations with memory between them.
  struct Boundary {
    std::uint32_t from = 0, to = 0;  ///< ids
    FusionReason reason{};
    std::vector<std::string> arguments;
    std::int64_t bytes = 0;  ///< written and read for it
    bool operator==(const Boundary&) const = default;
    std::string text() const { return text_of(reason, arguments); }
    FusionHint hint() const { return hint_of(reason); }
  };
  /// Operations that look like a pattern and fail one condition of it.
  struct NearMiss {
    FusionPattern pattern{};
    std::vector<std::uint32_t> nodes;  ///< ids: the first and the last of the pattern
    FusionReason condition{};
    std::vector<std::string> arguments;
    bool operator==(const NearMiss&) const = default;
    std::string text() const { return text_of(condition, arguments); }
    FusionHint hint() const { return hint_of(condition); }
  };
  /// A value that is in memory afterwards.
  struct Stored {
    std::uint32_t node = 0;  ///< id
    StoredBecause why{};
    std::int64_t bytes = 0;
    bool operator==(const Stored&) const = default;
  };
  /// What forced the evaluation.
  struct Trigger {
    std::string call;  ///< "item", "eval", "print", …
    std::string file;  ///< of the call; of print, bool and untyped data(): of the value
    std::uint32_t line = 0;
    bool operator==(const Trigger&) const = default;
  };
  /// The first part of the plan key that differs from the latest plan of the same line.
  struct Difference {
    std::string op, file;  ///< empty: nothing of this line was planned before, or options differ
    std::uint32_t line = 0;
    std::string field;     ///< "shape", "strides", …
    std::string now, was;  ///< may be empty
    bool operator==(const Difference&) const = default;
    std::string text() const;
  };
  struct Before {
    int kernels = 0;         ///< one for each recorded operation that is no view, argument or number
    std::int64_t bytes = 0;  ///< each of them reads its operands and writes its result
    int buffers = 0;         ///< their results
    bool operator==(const Before&) const = default;
  };
  struct After {
    int kernels = 0, library_calls = 0;
    std::int64_t bytes = 0;
    int buffers = 0;
    std::int64_t peak_bytes =
        0;          ///< of values, at the worst time of the evaluation; arguments are not among them
    int again = 0;  ///< kernels and calls that run once more, for Config::memory_budget
    bool operator==(const After&) const = default;
  };

  std::uint64_t plan = 0;  ///< number of the plan in this process
  std::uint64_t runs = 0;  ///< of the plan so far
  std::string device;
  Trigger trigger;
  bool planned = false;   ///< this evaluation made the plan
  Difference difference;  ///< planned: why
  Before before;
  After after;
  std::map<std::string, int> by_op;    ///< recorded operations that are no view, argument or number
  std::map<std::string, int> by_kind;  ///< regions, by text_of(kind)
  std::vector<Node> nodes;
  std::vector<Region> regions;
  std::vector<Boundary> boundaries;
  std::vector<NearMiss> near_misses;
  std::vector<Stored> stored;
  double bytes_per_ns = 0, operations_per_ns = 0;  ///< the planner's rates of the device
  std::vector<FusionReport> loops;  ///< plans that loops over whole tensors run: condition and body

  /// Kernels and library calls that fusion removed, in per cent of those before.
  double reduction_percent() const;
  std::int64_t bytes_saved() const { return before.bytes - after.bytes; }
  int buffers_removed() const { return before.buffers - after.buffers; }
  /// The operation with an id. UserError if there is none.
  const Node& node(std::uint32_t id) const;
  bool operator==(const FusionReport&) const = default;
};

/// One JSON object in one line; docs/explain.md has the schema. `indent` above 0: over several lines.
std::string to_json(const FusionReport& report, int indent = 0);
/// The inverse of to_json. UserError for text that is no such object.
FusionReport fusion_report_from_json(std::string_view json);
/// The table that KILN_EXPLAIN=1 prints.
std::string to_text(const FusionReport& report);

/// While one lives, evaluations of all threads are reported: new ones and those that find their plan. Begin
/// and end it while no other thread evaluates.
class FusionRecorder {
 public:
  FusionRecorder();
  ~FusionRecorder();
  FusionRecorder(const FusionRecorder&) = delete;
  FusionRecorder& operator=(const FusionRecorder&) = delete;
  /// The reports of the evaluations that have ended since it began, oldest first. An evaluation without work
  /// has none, nor has one that failed or was interpreted.
  std::vector<FusionReport> reports() const;
  /// The last of them. UserError if there is none.
  FusionReport last() const;

 private:
  std::size_t first_;
};

}  // namespace kiln
