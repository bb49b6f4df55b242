// All steps of a plan as one graph. What a graph has that differs between runs is set anew in its launches
// where the driver can: addresses of arguments and results, scalars, positions. Calls of the library stay as
// they were recorded, so a graph serves only runs in which their memory is the same.
#include "engine/run.h"
#include "support/hash128.h"

#include <algorithm>

namespace kiln::engine {

void Run::steps_or_graph() {
  if (!plan_.graphs || traced_ || ranged_ || log_enabled(Topic::Kernel) || !plan_.argument_bytes.empty())
    return steps();
  open_arena();
  allocate_results();
  const Hash128 calls = fixed_key(), key = memory_key(calls), fixed = device_.graphs_change() ? calls : key;
  if (wrote_) *wrote_ = plan_.first_write >= 0;
  const auto set = [this](PlanGraphs::Entry& e) { set_anew(e); };
  PlanGraphs::Answer answer = plan_.graphs->launch(key, fixed, slots_, set);
  const bool recorded = answer == PlanGraphs::Answer::Capture;
  if (recorded) {
    PlanGraphs::Entry entry = captured();
    entry.key = key;
    entry.fixed = fixed;
    plan_.graphs->keep(std::move(entry));
    answer = plan_.graphs->launch(key, fixed, slots_, set);
  }
  if (answer != PlanGraphs::Answer::Launched) return steps();
  count(Counter::Graphs);
  if (recorded) return;  // which counted the steps
  for (const Step& s : plan_.steps)
    count(s.kind == Step::Kind::Launch ? Counter::Launches : Counter::LibraryCalls);
}

void Run::allocate_results() {
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    if (plan_.buffers[b].result) buffers_[b] = device_.allocate(plan_.buffers[b].bytes);
}

Hash128 Run::fixed_key() const {
  auto& words = thread_own<std::vector<std::uint64_t>, Plan>();
  words.clear();
  words.push_back(device_.stream_id());
  words.push_back(reinterpret_cast<std::uintptr_t>(arena_ ? arena_->data : nullptr));
  const auto add = [&](const Place& p) {
    if (p.kind == Place::Kind::None) return;
    if (p.kind == Place::Kind::Arg || buffers_[p.index])  // others are the graph's own
      words.push_back(reinterpret_cast<std::uintptr_t>(address(p)));
    else if (p.moved > 0)
      words.push_back(static_cast<std::uint64_t>(plan_.moved(p.moved, slots_)));
  };
  for (const LibraryCall& l : plan_.library) {
    for (const ArrayOperand& o : l.operands) add(o.place);
    add(l.out);
    for (const Place& other : l.others) add(other);
  }
  return hash128(std::span<const std::uint64_t>(words));
}

Hash128 Run::memory_key(const Hash128& fixed) const {
  auto& words = thread_own<std::vector<std::uint64_t>, Plan>();
  words.clear();
  words.push_back(fixed.hi);
  words.push_back(fixed.lo);
  for (const std::byte* a : args_) words.push_back(reinterpret_cast<std::uintptr_t>(a));
  if (!device_.graphs_change()) words.insert(words.end(), slots_.begin(), slots_.end());
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    if (plan_.buffers[b].result) words.push_back(reinterpret_cast<std::uintptr_t>(buffers_[b]->data));
  return hash128(std::span<const std::uint64_t>(words));
}

/// The plan as a graph over this run's memory, and over memory that stays the graph's.
PlanGraphs::Entry Run::captured() {
  PlanGraphs::Entry out;
  out.slots.assign(slots_.begin(), slots_.end());
  for (std::uint32_t b = 0; b < buffers_.size(); ++b) {
    if (buffers_[b]) continue;
    out.memory.emplace_back(device_.allocate(plan_.buffers[b].bytes));
    buffers_[b] = out.memory.back().get();
    ir::retain(buffers_[b]);
    out.owned.push_back(b);
  }
  note_memory(out);
  std::size_t workspace = 1;
  std::int64_t counters = 0;
  bool whole = true;
  for (const Step& s : plan_.steps) {
    if (s.kind == Step::Kind::Library) {
      const LibraryCall& l = plan_.library[s.index];
      const library::Call call = call_of(l);
      whole = whole && l.routine->is_recordable(call);
      if (whole) workspace = std::max(workspace, l.routine->workspace_bytes(call));
    } else {
      std::int64_t together = 0;
      for (std::uint32_t l = s.index; l < s.index + s.count; ++l) together += plan_.launches[l].counters;
      counters = std::max(counters, together);
    }
  }
  if (whole) {
    out.workspace.reset(device_.allocate(workspace));
    workspace_ = out.workspace->data;
    out.graph = device_.record(plan_.steps.size(), counters, [&](std::size_t i) { step(plan_.steps[i]); });
    workspace_ = nullptr;
  }
  for (std::uint32_t b : out.owned) ir::release(std::exchange(buffers_[b], nullptr));
  return out;
}

/// Keeps the addresses that the launches of a graph have.
void Run::note_memory(PlanGraphs::Entry& e) const {
  e.arguments.assign(args_.begin(), args_.end());
  e.results.clear();
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    e.results.push_back(plan_.buffers[b].result ? buffers_[b]->data : nullptr);
}

/// Whether a launch has other arguments in this run than in a graph.
bool Run::differs(const PlanGraphs::Entry& e, const Launch& l) const {
  const auto set_anew = [&](std::uint32_t slot) { return slots_[slot] != e.slots[slot]; };
  return std::ranges::any_of(l.slots, set_anew) || std::ranges::any_of(l.buffers, [&](const Place& p) {
           if (p.kind == Place::Kind::Arg && args_[p.index] != e.arguments[p.index]) return true;
           if (p.kind == Place::Kind::Buffer && e.results[p.index] &&
               e.results[p.index] != buffers_[p.index]->data)
             return true;
           return p.moved > 0 && std::ranges::any_of(plan_.moves[p.moved - 1],
                                                     [&](const Move& m) { return set_anew(m.slot); });
         });
}

/// Gives the launches of a graph whose arguments differ those of this run.
void Run::set_anew(PlanGraphs::Entry& e) {
  for (std::size_t i = 0; i < e.owned.size(); ++i) {
    buffers_[e.owned[i]] = e.memory[i].get();
    ir::retain(buffers_[e.owned[i]]);
  }
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& s = plan_.steps[i];
    if (s.kind != Step::Kind::Launch) continue;
    const auto launches = std::span(plan_.launches).subspan(s.index, s.count);
    const GraphStep recorded{*e.graph, i};
    if (std::ranges::any_of(launches, [&](const Launch& l) { return differs(e, l); }))
      launch(launches, &recorded);
  }
  for (std::uint32_t b : e.owned) ir::release(std::exchange(buffers_[b], nullptr));
  e.slots.assign(slots_.begin(), slots_.end());
  note_memory(e);
}

}  // namespace kiln::engine
