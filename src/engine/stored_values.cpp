#include "engine/stored_values.h"

#include "ir/custom.h"
#include "ir/loops.h"
#include "record/learned_lines.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/gpu.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace kiln::engine {
namespace {

using ir::Node;
using ir::Op;

constexpr std::uint64_t kMostShare =
    8;  // at most one part of so many of the device's memory is stored unasked
constexpr std::uint32_t kTimesUntilNotice = 32;  // evaluations that compute values of a line again

/// A value that is stored and forgotten in turn, or that is too large to be stored unasked, is computed again
/// for ever: its line is named, once. `noted`: nodes of the lines that this evaluation has counted.
void note_computed_again(const Node* n, std::vector<const Node*>& noted) {
  const auto same_line = [&](const Node* other) {
    return std::memcmp(&other->loc, &n->loc, sizeof n->loc) == 0;
  };
  if (std::ranges::any_of(noted, same_line)) return;
  noted.push_back(n);
  const std::uint32_t times = ir::computed_again(n->loc);
  if (times != kTimesUntilNotice) return;
  const std::string line = cat(n->loc.file_name(), ":", n->loc.line());
  warn(cat("[", ir::name_of(*n), "] recorded at ", line, ": values of this line were computed again in ",
           times, " evaluations; eval() where they are made stores them"));
}

/// Marks what descends from nodes that an earlier evaluation passed, and learns the lines of those.
void find_followers(Walk& w) {
  w.follows.assign(w.nodes.size(), false);
  std::vector<const Node*> noted;
  for (std::size_t i = 0; i < w.nodes.size(); ++i) {
    const Node* n = w.nodes[i];
    if (n->op == Op::leaf) continue;
    bool follows = n->passed();
    for (const Node* in : ir::operands(*n))
      if (in) follows = follows || w.follows[w.position(in)];
    w.follows[i] = follows;
    if (!n->passed()) continue;
    ir::learn(n->loc);
    note_computed_again(n, noted);
  }
}

/// What to store so that node i is in memory: a view that is no smaller than what it shows is left to be a
/// view.
std::uint32_t behind_views(const Walk& w, std::uint32_t i) {
  const Node* n = w.nodes[i];
  while (ir::is_view(n->op) && n->op != Op::pad && n->op != Op::join) {
    const Node* const shown = ir::operands(*n)[0];
    if (!shown || shown->numel > n->numel) break;
    n = shown;
  }
  return w.position(n);
}

/// Takes away what has a value in the iterations of a loop alone.
void leave_out_bodies(Walk& w) {
  const auto in_a_loop = [&](std::uint32_t i) { return ir::info(w.nodes[i]->op).kind == ir::OpKind::Loop; };
  std::vector<std::uint32_t> all(w.nodes.size());
  std::iota(all.begin(), all.end(), 0u);
  if (w.stored.empty() || std::ranges::none_of(all, in_a_loop)) return;
  std::vector<ir::NodeId> ids;
  // a loop is found by the graph of the roots alone
  const std::vector<std::uint32_t> stored = std::exchange(w.stored, {});
  const ir::Graph graph = build_graph(w, ids);
  const ir::Loops loops = ir::find_loops(graph);
  for (std::uint32_t i : stored) {
    if (loops.owner_of(ids[i]) == ir::kNoNode) w.stored.push_back(i);
  }
}

}  // namespace

void choose_stored(Walk& w, bool passed) {
  if (passed) find_followers(w);
  w.chosen.assign(w.nodes.size(), false);
  for (std::uint32_t r : w.roots) w.chosen[r] = true;
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < w.nodes.size(); ++i) {
    const Node* n = w.nodes[i];
    if (n->op == Op::leaf || !ir::has_value(n->op) || !w.held(i)) continue;
    const bool follows = passed && w.follows[i];
    if (!follows && !ir::is_learned(n->loc)) continue;
    if (follows) ir::learn(n->loc);
    const std::uint32_t kept = behind_views(w, i);
    const Node* k = w.nodes[kept];
    if (k->op == Op::leaf || w.chosen[kept]) continue;
    if (room == 0) room = memory_use(ir::device_of(w.nodes[w.roots.front()]->device)).limit / kMostShare;
    const auto bytes = static_cast<std::uint64_t>(k->numel * size_of(k->dtype));
    if (bytes >= room) continue;
    room -= bytes;
    w.chosen[kept] = true;
    w.stored.push_back(kept);
    w.stored_for.push_back({i, kept});
    if (w.joined) ir::doubt(n->loc);
  }
  std::sort(w.stored.begin(), w.stored.end());
  leave_out_bodies(w);
}

}  // namespace kiln::engine
