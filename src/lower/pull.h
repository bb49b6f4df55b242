// pull: from a region's outputs backwards to memory, composing views into index maps.
//
// The result is a list of entries in dependency order, each a value at known coordinates of the domain: a
// load, an operation, a select made by a pad, a reduction. Views leave no entry. Sizes are still concrete
// numbers here.
#pragma once

#include "lower/index.h"
#include "plan/region.h"

#include <vector>

namespace kiln::lower {

using EntryId = std::uint32_t;
inline constexpr EntryId kNoEntry = 0xffffffffu;

/// 0 <= t < extent*step and t mod step == 0.
struct Predicate {
  Index t;
  std::int64_t extent, step;
};

struct Entry {
  enum class Kind : std::uint8_t {
    Load,
    Scalar,
    Iota,
    Op,
    Pad,
    Reduce,
    Scan,
    LoopState,
    LoopResult,
    Product  // of matrices: something else makes its sums
  } kind;
  plan::NodeId node;                               // Load: the leaf or stored node
  EntryId in[3] = {kNoEntry, kNoEntry, kNoEntry};  // Pad: {body, fill or none: 0}; Reduce, Scan: {value};
                                                   // LoopResult: {state, or a yielded value}
  Index index;                                     // Load: element offset; Iota: the coordinate;
                                                   // Product with a partner: the element
  std::int32_t predicates = -1;      // Load: chain that must hold; Pad: the chain's newest links decide
  std::int32_t predicates_end = -1;  // Pad: where the enclosing chain begins
  std::int32_t loop = -1;            // LoopState, LoopResult: the run of a loop
  bool inside = false;               // it has one value in each iteration of a loop
  int phase = 0;                     // reduction levels below it
  int place = 1;                     // Reduce: of its value, see plan::Region
  std::uint32_t used_in = 0;         // phases that need it (bit set)
  float cost = 0;                    // primitives of its whole tree, loads included
};

struct PredicateLink {
  Predicate predicate;
  std::int32_t next;
};

/// One run of a loop, for the points of one node.
struct LoopRun {
  std::int32_t parent = -1;  // the run that it is part of
  std::vector<plan::NodeId> state_nodes;
  std::vector<EntryId> states, inits, nexts;
  EntryId condition = kNoEntry;
  std::int64_t count = 0;  // iterations, counted by the first state; 0: until the condition fails
  std::vector<EntryId> results;
  struct Yield {
    EntryId value, entry;  // in an iteration; what stands for all of them
    plan::NodeId stack;
    bool row;
  };
  std::vector<Yield> yields;  // stored in each iteration
};

struct Pulled {
  Shape domain;                       // extents of the axes
  std::uint64_t reduced = 0;          // mask over them
  std::vector<std::uint64_t> places;  // the axes of each place, see plan::Region; all axes first
  bool nest = false;
  IndexSpace space;
  std::vector<Entry> entries;
  std::vector<PredicateLink> links;
  std::vector<LoopRun> loops;
  struct Output {
    plan::NodeId node;
    EntryId entry;
    bool row;  // stored once per row
    int level;
    Index at;             // element of its memory
    bool placed = false;  // the memory is not its own, see plan::Placement
    /// Of the second of two points that one of the domain stands for: elements behind the first.
    std::int64_t behind = 0;
  };
  std::vector<Output> outputs;
  /// Calls f on every entry that the value of `e` needs: its operands, and those that its coordinates and
  /// predicates are made of. All of them come before `e`. What a run yields belongs to the entries of its
  /// stacks alone: another result of the run may be wanted in phases in which the yielded values are not
  /// there yet.
  template <class F>
  void each_operand(const Entry& e, const F& f) const {
    for (EntryId in : e.in)
      if (in != kNoEntry) f(in);
    if (e.kind == Entry::Kind::LoopResult) {
      const LoopRun& run = loops[static_cast<std::size_t>(e.loop)];
      for (const auto* list : {&run.inits, &run.nexts})
        for (EntryId in : *list) f(in);
      f(run.condition);
    }
    if (!space.has_values()) return;
    space.each_value(e.index, f);
    for (std::int32_t l = e.predicates; l != e.predicates_end; l = links[static_cast<std::size_t>(l)].next)
      space.each_value(links[static_cast<std::size_t>(l)].predicate.t, f);
  }
  std::vector<Index> linear;  // positions of outputs of each level in memory of their own (contiguous)
  const Index& full_linear() const { return linear.front(); }
  const Index& row_linear() const { return linear.back(); }
  explicit Pulled(std::span<const std::int64_t> axes) : space(axes) {}
};

Pulled pull(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region);

}  // namespace kiln::lower
