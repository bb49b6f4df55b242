// Finding sums over pairs: products whose operand is made of products of as many elements, through reductions
// of these among others; those that share a product and do not wait for each other are one PairSums.
//
// Terminates: a reading is repeated with fewer sums.
//
// What is looked at for one PairSums is what lies between its products and its sums, so that planning stays
// linear.
#include "plan/pair_sums.h"

#include "plan/pair_sums_reader.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_map>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;
using ir::Use;

constexpr std::int64_t kMostMatrices = 1 << 20;  // of a batch: each operand has a table of offsets
// Beyond it, products of rows cost more to make again than to store. Heads are narrower; what is wider is a
// layer of a network.
constexpr std::int64_t kMostDepth = 512;
constexpr std::size_t kMostWalked = 400;  // nodes between a sum and its products
constexpr std::size_t kMostSums = 12;     // that are read together
constexpr int kMostFollowed = 64;         // readers behind each other of a value that may be made again

struct Candidate {
  NodeId node;
  int operand;
  std::vector<NodeId> sources;
};

class Finder {
 public:
  Finder(const PairFacts& facts, std::vector<Refusal>& refusals)
      : g_(facts.graph),
        refusals_(refusals),
        uses_(facts.uses),
        root_(facts.root),
        free_(facts.free),
        mark_(g_.size()) {}

  std::vector<PairSums> run() {
    for (NodeId id = g_.size(); id-- > 0;)
      if (g_[id].op == Op::matmul) consider(id);
    for (std::size_t c = 0; c < candidates_.size(); ++c)
      for (const NodeId s : candidates_[c].sources) with_source_[s].push_back(c);
    std::vector<PairSums> out;
    std::vector<bool> done(candidates_.size());
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      if (done[c]) continue;
      std::vector<std::size_t> members = joined_with(c, done);
      std::optional<PairSums> found = find(members);
      for (const std::size_t m : members) done[m] = true;
      done[c] = true;
      if (found) out.push_back(*std::move(found));
    }
    return out;
  }

 private:
  bool suits(NodeId id) const {
    const GraphNode& n = g_[id];
    return n.numel > 0 && n.dims.size() >= 2 && (n.dtype == DType::Float32 || is_half(n.dtype)) &&
           g_[n.in[0]].dims.back() > 0;
  }

  void consider(NodeId id) {
    if (!suits(id)) return;
    const GraphNode& n = g_[id];
    for (int k = 0; k < 2; ++k) {
      const std::int64_t width = n.dims[n.dims.size() - (k == 0 ? 1 : 2)];
      if (width > kMostDepth) continue;
      std::vector<NodeId> sources = sources_of(n.in[k]);
      if (sources.empty()) continue;
      candidates_.push_back({id, k, std::move(sources)});
      return;
    }
  }

  /// The products of as many elements that a value is made of, if a reduction of them is among what it is
  /// made of. Without one it is a layer of a network, whose author does not expect its values to be made
  /// again.
  std::vector<NodeId> sources_of(NodeId from) const {
    const ir::Dims dims = g_[from].dims;
    const std::int64_t numel = g_[from].numel;
    if (dims.size() < 2 || dims[dims.size() - 1] < 2 || dims[dims.size() - 2] < 2) return {};
    std::vector<NodeId> stack{from}, sources, reductions;
    const std::uint32_t seen = ++marks_;
    std::size_t walked = 0;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (mark_[id] == seen) continue;
      if (walked++ == kMostWalked) return {};
      mark_[id] = seen;
      const GraphNode& n = g_[id];
      if (n.op == Op::matmul) {
        if (n.numel == numel && suits(id) && g_[n.in[0]].dims.back() <= kMostDepth) sources.push_back(id);
      } else if (ir::is_reduce(n.op)) {
        if (g_[n.in[0]].numel != numel) continue;
        reductions.push_back(n.in[0]);
        stack.push_back(n.in[0]);
      } else if (ir::is_elementwise(n.op) || ir::is_view(n.op)) {
        stack.insert(stack.end(), n.in.begin(), n.in.end());
      }
    }
    if (sources.empty()) return {};
    std::ranges::sort(sources);
    // a product of values of pairs is no product of every pair, though it may have as many elements
    for (std::size_t s = 0; s + 1 < sources.size(); ++s) {
      const std::vector<bool> pairs = values_of_pairs({sources[s]}, sources.back());
      std::erase_if(sources, [&](NodeId other) {
        return std::ranges::any_of(g_[other].in, [&](NodeId in) { return pairs[in]; });
      });
    }
    const bool reduced = std::ranges::any_of(reductions, [&](NodeId of) { return reads(of, sources, seen); });
    return reduced ? sources : std::vector<NodeId>();
  }

  /// Whether a node is made of one of `sources`, by way of those with a mark, which they lose.
  bool reads(NodeId from, const std::vector<NodeId>& sources, std::uint32_t among) const {
    std::vector<NodeId> stack{from};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (std::ranges::binary_search(sources, id)) return true;
      if (g_[id].op == Op::matmul || mark_[id] != among) continue;
      mark_[id] = 0;
      stack.insert(stack.end(), g_[id].in.begin(), g_[id].in.end());
    }
    return false;
  }

  /// Nodes that are made of others, up to `last`.
  std::vector<bool> made_of(const std::vector<NodeId>& from, NodeId last) const {
    std::vector<bool> out(g_.size());
    for (const NodeId f : from) out[f] = true;
    for (NodeId id = from.front(); id <= last; ++id)
      for (const NodeId in : g_[id].in) out[id] = out[id] || out[in];
    return out;
  }

  /// Nodes up to `last` that are made of sources with no other product in between.
  std::vector<bool> values_of_pairs(const std::vector<NodeId>& sources, NodeId last) const {
    std::vector<bool> out(g_.size());
    for (const NodeId s : sources) out[s] = true;
    for (NodeId id = sources.front(); id <= last; ++id)
      if (g_[id].op != Op::matmul)
        for (const NodeId in : g_[id].in) out[id] = out[id] || out[in];
    return out;
  }

  /// Marks what a node is made of, down to `least`.
  void mark_below(NodeId node, NodeId least, std::uint32_t mark) const {
    std::vector<NodeId> stack{node};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (id < least || mark_[id] == mark) continue;
      mark_[id] = mark;
      stack.insert(stack.end(), g_[id].in.begin(), g_[id].in.end());
    }
  }

  /// Candidates behind `first` that have one of the products, ascending.
  std::vector<std::size_t> sharing(const std::vector<NodeId>& sources, std::size_t first) const {
    std::vector<std::size_t> out;
    for (const NodeId s : sources) {
      const std::vector<std::size_t>& all = with_source_.at(s);
      out.insert(out.end(), std::ranges::upper_bound(all, first), all.end());
    }
    std::ranges::sort(out);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  /// Candidates that share products with one and with each other, none of which is made of another.
  std::vector<std::size_t> joined_with(std::size_t first, const std::vector<bool>& done) const {
    std::vector<std::size_t> members{first};
    std::vector<NodeId> sources = candidates_[first].sources;
    for (bool grows = true; grows;) {
      grows = false;
      const std::vector<std::size_t> others = sharing(sources, first);
      if (others.empty()) break;
      // Candidates stand in descending order: a later one may be below an earlier one, not the reverse.
      const NodeId least = candidates_[others.back()].node;
      const std::uint32_t below = ++marks_;
      for (const std::size_t m : members) mark_below(candidates_[m].node, least, below);
      for (const NodeId s : sources) mark_below(s, least, below);
      for (const std::size_t c : others) {
        const Candidate& x = candidates_[c];
        if (done[c] || mark_[x.node] == below || members.size() == kMostSums) continue;
        members.push_back(c);
        mark_below(x.node, least, below);
        for (const NodeId s : x.sources) mark_below(s, least, below);
        sources.insert(sources.end(), x.sources.begin(), x.sources.end());
        grows = true;
      }
    }
    // those made of most products have the reductions that tell rows from columns
    std::ranges::stable_sort(members, std::greater(),
                             [&](std::size_t m) { return candidates_[m].sources.size(); });
    return members;
  }

  /// What members' weights are made of, up to products and to what is no value of a pair: descending.
  std::vector<NodeId> between(const std::vector<std::size_t>& members,
                              const PairSumsReader::Facts& facts) const {
    std::vector<NodeId> stack, out;
    for (const std::size_t m : members) stack.push_back(g_[candidates_[m].node].in[candidates_[m].operand]);
    const std::uint32_t seen = ++marks_;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (mark_[id] == seen) continue;
      mark_[id] = seen;
      out.push_back(id);
      const GraphNode& n = g_[id];
      if (n.op == Op::matmul || !(facts.pairs[id] || ir::is_elementwise(n.op) || ir::is_view(n.op))) continue;
      stack.insert(stack.end(), n.in.begin(), n.in.end());
    }
    std::ranges::sort(out, std::greater());
    return out;
  }

  /// Of what lies between: what is stored, or made by others, whatever becomes of the members' weights.
  /// Readers that do not lie between are others.
  std::vector<bool> needed_by_others(const std::vector<std::size_t>& members,
                                     const std::vector<NodeId>& sources,
                                     const PairSumsReader::Facts& facts) const {
    std::unordered_map<NodeId, int> weights;
    for (const std::size_t m : members) weights[candidates_[m].node] = candidates_[m].operand;
    std::vector<bool> needed(g_.size()), known(g_.size());
    for (const NodeId id : facts.between) known[id] = true;
    for (const NodeId s : sources)
      for (const NodeId in : g_[s].in) needed[in] = true;
    for (const NodeId id : facts.between) {
      const bool read_by_pairs =
          std::ranges::any_of(uses_[id], [&](const Use& u) { return facts.pairs[u.reader]; });
      // what another product makes of values of pairs is read from memory
      bool is = needed[id] || root_[id] || (facts.depends[id] && !facts.pairs[id] && read_by_pairs);
      for (const Use& u : uses_[id]) {
        if (is) break;
        const auto sum = weights.find(u.reader);
        if (sum != weights.end() && sum->second == u.operand) continue;
        is = !known[u.reader] || needed[u.reader];
      }
      needed[id] = is;
    }
    return needed;
  }

  /// Whether a value of no source is read by values of pairs alone, through elementwise nodes and views.
  bool is_inside(NodeId id, const std::vector<bool>& depends, std::unordered_map<NodeId, bool>& known,
                 int followed = 0) const {
    if (const auto at = known.find(id); at != known.end()) return at->second;
    const GraphNode& n = g_[id];
    const bool view = ir::is_view(n.op) && !is_written_in_place(n);
    bool inside = followed < kMostFollowed && !depends[id] && !root_[id] && !uses_[id].empty() &&
                  (view || ir::is_elementwise(n.op));
    for (const Use& u : uses_[id]) {
      if (!inside) break;
      inside = (depends[u.reader] && ir::is_elementwise(g_[u.reader].op)) ||
               is_inside(u.reader, depends, known, followed + 1);
    }
    return known[id] = inside;
  }

  PairSumsReader::Facts facts_of(const std::vector<std::size_t>& members,
                                 const std::vector<NodeId>& sources) const {
    NodeId last = sources.back();
    for (const std::size_t m : members) last = std::max(last, candidates_[m].node);
    PairSumsReader::Facts facts;
    facts.sources.assign(g_.size(), false);
    for (const NodeId s : sources) facts.sources[s] = true;
    facts.depends = made_of(sources, last);
    facts.pairs = values_of_pairs(sources, last);
    facts.between = between(members, facts);
    facts.needed = needed_by_others(members, sources, facts);
    facts.inside.assign(g_.size(), false);
    std::unordered_map<NodeId, bool> known;
    for (const NodeId id : facts.between)
      facts.inside[id] = (free_[id] && !facts.depends[id]) || is_inside(id, facts.depends, known);
    return facts;
  }

  std::optional<PairSums> find(std::vector<std::size_t>& members) {
    while (!members.empty()) {
      std::vector<NodeId> sources;
      for (const std::size_t m : members)
        sources.insert(sources.end(), candidates_[m].sources.begin(), candidates_[m].sources.end());
      std::ranges::sort(sources);
      sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
      const PairSumsReader::Facts facts = facts_of(members, sources);
      const Candidate& first = candidates_[members.front()];
      const ir::Dims dims = g_[g_[first.node].in[first.operand]].dims;
      const std::int64_t a = dims[dims.size() - 2], b = dims[dims.size() - 1];
      std::optional<PairSums> found = read(members, facts, a, b);
      if (!found && again_) continue;
      if (!found && a != b) found = read(members, facts, b, a);
      if (!found && again_) continue;
      if (found) return found;
      refusals_.push_back({candidates_[members.back()].sources.front(), first.node, reason_});
      return std::nullopt;
    }
    return std::nullopt;
  }

  /// again_: members became fewer. `turned`: of square weights the first axis is j. `settled`: which axis is
  /// which is known.
  std::optional<PairSums> read(std::vector<std::size_t>& members, const PairSumsReader::Facts& facts,
                               std::int64_t rows, std::int64_t columns, bool turned = false,
                               bool settled = false) {
    again_ = false;
    PairSums s;
    s.rows = rows;
    s.columns = columns;
    const Candidate& first = candidates_[members.front()];
    s.batch = g_[g_[first.node].in[first.operand]].numel / (rows * columns);
    if (s.batch > kMostMatrices) return std::nullopt;
    PairSumsReader reader(g_, s, facts);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const Candidate& c = candidates_[members[m]];
      const bool added = reader.add(c.node, c.operand, turned);
      if (added && m == 0 && !settled && reader.wrong_way())
        return read(members, facts, columns, rows, rows == columns, true);
      // one product and a sum over columns: the forward pass, which the other finder knows
      const bool forward = added && !s.sums.back().over_rows && c.sources.size() == 1;
      if (added && !forward) continue;
      reason_ = reader.reason();
      if (m == 0 && !forward) return std::nullopt;
      members.erase(members.begin() + static_cast<std::ptrdiff_t>(m));
      again_ = true;
      return std::nullopt;
    }
    std::ranges::sort(s.sums, {}, &PairSums::Sum::node);
    if (!take_nodes(s, facts, reader.visited())) return std::nullopt;
    // one product that nobody makes anyway: two layers of a network with a norm between them
    if (s.products.size() == 1 && s.shared.empty()) return std::nullopt;
    return s;
  }

  bool take_nodes(PairSums& s, const PairSumsReader::Facts& facts, const std::vector<bool>& visited) {
    std::unordered_map<NodeId, int> weights;
    std::vector<NodeId> nodes = facts.between;
    for (const PairSums::Sum& x : s.sums) {
      weights[x.node] = x.operand;
      nodes.push_back(x.node);
    }
    std::ranges::sort(nodes, std::greater());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    const auto is_weights = [&](const Use& u) {
      const auto sum = weights.find(u.reader);
      return sum != weights.end() && sum->second == u.operand;
    };
    const std::int64_t pairs = s.batch * s.rows * s.columns;
    std::vector<bool> own(g_.size());
    for (const NodeId id : nodes) {
      if (weights.contains(id)) s.nodes.push_back(id);
      if (!visited[id]) continue;
      own[id] = !root_[id] && !facts.needed[id] &&
                std::ranges::all_of(uses_[id], [&](const Use& u) { return own[u.reader] || is_weights(u); });
      if (own[id])
        s.nodes.push_back(id);
      else if (facts.depends[id] && g_[id].numel == pairs && !ir::is_view(g_[id].op))
        s.shared.push_back(id);
    }
    std::ranges::reverse(s.nodes);
    std::ranges::reverse(s.shared);
    // what is read must be there before the first sum is
    std::vector<NodeId> ends;
    for (const PairSums::Sum& x : s.sums) ends.push_back(x.node);
    NodeId last = ends.back();
    each_memory(s, [&](NodeId base) { last = std::max(last, base); });
    const std::vector<bool> behind = made_of(ends, last);
    bool good = true;
    each_memory(s, [&](NodeId base) { good = good && !behind[base] && !own[base]; });
    if (!good)
      reason_ = FusionReason::PairsElsewhere;  // no program is known; candidates that wait are not joined
    return good;
  }

  const Graph& g_;
  std::vector<Refusal>& refusals_;
  const ir::Uses& uses_;
  const std::vector<bool>&root_, &free_;                              // free_: made again for each reader
  std::vector<Candidate> candidates_;                                 // descending
  std::unordered_map<NodeId, std::vector<std::size_t>> with_source_;  // candidates, ascending
  mutable std::vector<std::uint32_t> mark_;                           // of walks, each of which has a number
  mutable std::uint32_t marks_ = 0;
  Why reason_;
  bool again_ = false;
};

}  // namespace

Why refuse_on_gpu(const PairSums& s) {
  constexpr std::int64_t kMostWidth = 256, kLeastRows = 64, kMost = std::int64_t{1} << 31;
  constexpr std::size_t kMostProducts = 3;
  constexpr std::ptrdiff_t kMostStatistics = 4;
  const DType type = s.products.front().x.dtype;
  std::vector<std::pair<const MatrixMemory*, std::int64_t>> operands;
  std::int64_t depths = 0;
  for (const PairSums::Product& p : s.products) {
    operands.insert(operands.end(), {{&p.x, p.depth}, {&p.y, p.depth}});
    depths += p.depth;
  }
  for (const PairSums::Sum& x : s.sums) operands.emplace_back(&x.other, x.width);
  for (const auto& [m, width] : operands) {
    if (!is_half(m->dtype) || m->dtype != type) return FusionReason::GpuHalves;
    if (width > kMostWidth) return FusionReason::GpuHeads;
    if (m->column != 1 && width != 1) return FusionReason::GpuColumns;
  }
  if (s.products.size() > kMostProducts || depths > 2 * kMostWidth) return FusionReason::GpuHeads;
  for (int level = 0; level < s.levels; ++level)
    if (std::ranges::count(s.statistics, level, &PairSums::Statistic::level) > kMostStatistics)
      return FusionReason::GpuTooMany;
  const std::int64_t blocks = (std::max(s.rows, s.columns) + kLeastRows - 1) / kLeastRows;
  return s.batch * blocks >= kMost || std::max(s.rows, s.columns) >= kMost ? Why(FusionReason::GpuTooMany)
                                                                           : Why();
}

std::vector<PairSums> find_pair_sums(const PairFacts& facts, std::vector<Refusal>& refusals) {
  return Finder(facts, refusals).run();
}

}  // namespace kiln::plan
