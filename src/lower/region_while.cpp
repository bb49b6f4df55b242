// Loops over the states of an element: a While loop in the body that asks for a result.
//
// Invariant: a loop stands in the body before the first statement that reads one of its results, and is there
// once for each environment: it gives all of its results, and stores everything it yields to outputs of that
// environment. Loops that it needs stand before it, those that depend on its states inside it.
#include "lower/region_lowering.h"
#include "math/expand.h"
#include "support/check.h"

#include <algorithm>
#include <utility>

namespace kiln::lower {

E RegionLowering::loop_result(EntryId id) {
  run_loop(p_.entries[id].loop);
  KILN_CHECK_THAT(memo_[id], "a loop ran without this result");
  return memo_[id];
}

void RegionLowering::run_loop(std::int32_t run) {
  const LoopRun& r = p_.loops[static_cast<std::size_t>(run)];
  KILN_CHECK_THAT(body_, "a loop without a body to stand in");
  run_loops_outside(run);
  LoopDecl l;
  l.kind = LoopKind::While;
  l.var = new_var();
  const std::size_t first = r.count ? 1 : 0;  // a count is the loop's own variable
  if (r.count) {
    l.extent = param(role(kSize, kIterations, static_cast<std::uint64_t>(run)), r.count).id;
    memo_[r.states[0]] = kernel::from_index(var(l.var));
  }
  for (std::size_t s = first; s < r.states.size(); ++s)
    l.inits.push_back(rounded(build(r.inits[s]), g_[p_.entries[r.states[s]].node].dtype).id);
  for (std::size_t s = first; s < r.states.size(); ++s) {
    const EntryId state = r.states[s];
    const DType type = compute_type(g_[p_.entries[state].node].dtype);
    l.accs.push_back(static_cast<std::uint32_t>(k_.accs.size()));
    memo_[state] = leaf(Prim::Before, type, k_.accs.size());
    note_origin(memo_[state], p_.entries[state].node);
    k_.accs.push_back({Monoid::State, type});
  }
  if (!r.count) l.condition = build(r.condition).id;
  Body* const around = std::exchange(body_, &l.body);
  Body updates;
  for (std::size_t s = first; s < r.states.size(); ++s) {
    const DType stored = g_[p_.entries[r.states[s]].node].dtype;
    E next = build(r.nexts[s]);
    next = rounded(next, stored);  // as it is between iterations
    Stmt update{Stmt::Kind::Update, l.accs[s - first]};
    update.value = next.id;
    updates.push_back(update);
  }
  store_yields(r, l.var);
  l.body.insert(l.body.end(), updates.begin(), updates.end());
  body_ = around;
  const std::vector<std::uint32_t> accs = l.accs;
  body_->push_back(loop(std::move(l)));
  for (EntryId result : r.results) {
    const auto s = static_cast<std::size_t>(
        std::find(r.states.begin(), r.states.end(), p_.entries[result].in[0]) - r.states.begin());
    if (s < first) continue;  // nobody asks for a count
    memo_[result] = acc_value(accs[s - first], k_.accs[accs[s - first]].type);
    note_origin(memo_[result], p_.entries[result].node);
  }
}

/// Whether a stack is stored past the caches: it is larger than they are, and every iteration begins on a
/// cache line.
bool RegionLowering::streams_past(const LoopRun::Yield& y) const {
  const std::int64_t size = size_of(g_[y.stack].dtype), row = groups_.back().extent * size;
  return !target_.gpu && !y.row && g_[y.stack].numel * size >= target_.stream_bytes && row % 64 == 0 &&
         s_.lanes * size % 64 == 0 && s_.lane_axis == last_group();
}

/// Whether a stack is among the outputs that the current environment stores.
bool RegionLowering::stores_now(const LoopRun::Yield& y) const {
  return y.row == storing_.rows && ((storing_.phases >> p_.entries[y.entry].phase) & 1) != 0;
}

/// In an iteration: what it adds to the stacks that the current environment stores.
void RegionLowering::store_yields(const LoopRun& run, std::uint32_t iteration) {
  for (const LoopRun::Yield& y : run.yields) {
    if (!stores_now(y)) continue;
    auto buffer = out_buffer_.find(y.stack);
    if (buffer == out_buffer_.end())
      buffer = out_buffer_.emplace(y.stack, output_buffer(y.stack, streams_past(y))).first;
    const E points = param(role(kSize, kPoints, y.stack), g_[y.stack].numel / run.count);
    const E at = to_expr(y.row ? p_.row_linear() : p_.full_linear(), kOutputOwner + y.stack);
    body_->push_back(store(buffer->second, var(iteration) * points + at, build(y.value)));
    memo_[y.entry] = konst(0);
  }
}

/// Runs the loops whose results a run reads and that do not depend on its states, before its body opens.
void RegionLowering::run_loops_outside(std::int32_t run) {
  const LoopRun& r = p_.loops[static_cast<std::size_t>(run)];
  std::vector<bool> seen(p_.entries.size());
  std::vector<EntryId> stack(r.nexts), found;
  for (const LoopRun::Yield& y : r.yields)
    if (stores_now(y)) stack.push_back(y.value);
  stack.push_back(r.condition);
  while (!stack.empty()) {
    const EntryId id = stack.back();
    stack.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    const Entry& e = p_.entries[id];
    // What accumulators or memory hold is there: what it was made of belongs to another environment.
    if (e.kind == Entry::Kind::Reduce || e.kind == Entry::Kind::Scan) continue;
    if (scratch_[id] >= 0 && phase_ > first_phase(e)) continue;
    bool within = false;
    for (std::int32_t i = e.loop; i >= 0 && !within; i = p_.loops[static_cast<std::size_t>(i)].parent)
      within = i == run;
    if (e.kind == Entry::Kind::LoopResult && !within) {
      found.push_back(id);
      continue;
    }
    p_.each_operand(e, [&](EntryId in) { stack.push_back(in); });
  }
  std::sort(found.begin(), found.end());
  for (EntryId id : found) build(id);
}

}  // namespace kiln::lower
