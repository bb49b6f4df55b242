// Recorder: one walk of a Replay. It finds out which nodes differ between examples, and records them.
#pragma once

#include "record/recorded.h"
#include "vmap/list_dependents.h"
#include "vmap/replay.h"

#include <optional>
#include <unordered_set>

namespace kiln::mapped {

class Recorder {
 public:
  Recorder(Replay& to, Dependents list);
  void run();

 private:
  /// A loop, from its first state to the node that has them all.
  struct Loop {
    const LoopParts* parts = nullptr;
    bool open = false;
    std::optional<std::size_t> rank;  // of all states of one example as they are carried, where their
                                      // condition differs between examples: it broadcasts to each
    std::unordered_map<const ir::Node*, ir::NodeRef> states;
    api::LoopNodes made;
  };

  void find_mapped();
  bool find_mapped_states();
  bool is_mapped(const ir::Node* n) const;
  bool reads_mapped(const ir::Node& n) const;
  void record(ir::Node* n);
  void record_operation(ir::Node* n);
  void record_each(const ir::Node& n, std::span<const Value> in);
  void record_call(const ir::Call& call);
  void open_loop(ir::Node* state);
  void close_loop(ir::Node* node);
  void record_loop(Loop& loop, std::int64_t count);
  void take_result(ir::Node* result);
  ir::NodeRef carried(const Loop& loop, const ir::NodeRef& all) const;
  ir::NodeRef condition_of(const Loop& loop) const;
  void finish(const Value& v);
  void finish(const Loop& loop);

  Replay& to_;
  Dependents list_;
  std::unordered_set<const ir::Node*> mapped_;
  std::unordered_map<const ir::Node*, Loop> loops_;
  std::unordered_map<const ir::Node*, std::vector<ir::NodeRef>> each_;  // results of calls for each example
  // While a loop is open: nothing in it can be computed.
  int open_ = 0;
  std::optional<api::Recording> body_;
  std::optional<ir::UnnotedRecording> unnoted_;
};

}  // namespace kiln::mapped
