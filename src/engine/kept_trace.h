// Kept traces: what a function recorded once, to be run on other arguments without recording or walking
// (kiln/compile.h).
//
// A kept trace is the outcome of a walk: the key of its plan, the scalars, and for each leaf which argument
// it is, or the leaf itself where the function took it from elsewhere. It is good for arguments that a walk
// could not tell from those it was made of: `describe_argument` has what a walk's key has of a leaf.
#pragma once

#include "record/node.h"
#include "support/hash128.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kiln::engine {

struct Plan;
struct Workspace;

/// What plans depend on beside a trace and its arguments.
std::uint64_t surroundings();

/// Adds to `words` what a plan depends on of an argument. `moved`: the caller gives it away, so that its
/// memory may be overwritten if nobody else has it. False where an evaluation is overwriting it.
bool describe_argument(const ir::Node& leaf, bool moved, std::vector<std::uint64_t>& words);

/// While one lives on a thread, a function is recorded to be kept.
class KeptRecording {
 public:
  KeptRecording();
  ~KeptRecording();
  KeptRecording(const KeptRecording&) = delete;
  static bool active();
  /// Notes that the function needs a value while it runs.
  static void note_evaluation(SourceLocation line);

  /// Where the function needed one first.
  const std::optional<SourceLocation>& evaluated() const { return evaluated_; }
  /// What was pending on the thread before.
  std::span<const ir::NodeRef> pending_before() const { return before_; }

 private:
  std::optional<SourceLocation> evaluated_;
  std::vector<ir::NodeRef> before_;
};

/// Runs on any threads at once.
class KeptTrace {
 public:
  struct Made {
    std::shared_ptr<const KeptTrace> trace;  // null: what was recorded cannot stand for later calls …
    std::string why_not;                     // … because of this
  };
  /// Keeps what `recording` saw recorded. Arguments are leaves. `release_arguments` drops the function's own
  /// handles on them. Computes pending values that the function took from elsewhere; its results stay
  /// pending.
  static Made make(const KeptRecording& recording, std::span<ir::Node* const> results,
                   std::span<ir::Node* const> arguments, const std::function<void()>& release_arguments);

  /// Runs the trace; the results are leaves. False, with nothing done, where the trace has to be recorded:
  /// its plan is not in memory, or somebody wants to see or check what is recorded.
  bool run(std::span<ir::Node* const> arguments, std::vector<ir::NodeRef>& results) const;

 private:
  struct Leaf {
    std::size_t argument = 0;
    ir::NodeRef captured;  // null: the argument
  };
  struct Result {
    Leaf leaf;                   // of a result that was not computed
    std::uint32_t position = 0;  // in the walk, of one that was
    std::size_t same = 0;        // the first result that is the same node
    bool computed = false;
    DType dtype = DType::Float32;
    std::vector<std::int64_t> dims;
    SourceLocation line = SourceLocation();
  };

  class Maker;

  static ir::Node* shown(const Leaf& leaf, std::span<ir::Node* const> arguments);
  /// A result as a leaf; `number`: of the plan's.
  ir::NodeRef made(const Result& r, const Plan& plan, std::size_t number, Workspace& w,
                   std::span<ir::Node* const> arguments) const;

  Device device_;
  Hash128 key_;
  std::vector<Leaf> leaves_;
  std::vector<std::uint64_t> slots_;
  std::vector<Result> results_;
  std::string where_;  // for errors: the first result
};

}  // namespace kiln::engine
