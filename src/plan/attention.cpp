// Finding attentions: for each product, the product that its first operand is made of, and whether what lies
// between them can be read as terms (attention_terms.cpp).
//
// Terminates: a try that is repeated has one more node that must be memory.
#include "plan/attention.h"

#include "plan/attention_terms.h"
#include "plan/pair_sums.h"
#include "support/check.h"

#include <algorithm>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;
using ir::OpKind;

constexpr std::int64_t kMostMatrices = 1 << 20;  // of a batch: each operand has a table of offsets
constexpr int kTries = 16;

struct Use {
  NodeId reader;
  int operand;
};

class Finder {
 public:
  Finder(const Graph& g, std::span<const PairSums> again, std::vector<Refusal>& refusals)
      : g_(g),
        refusals_(refusals),
        uses_(g.size()),
        root_(g.size()),
        kept_for_(g.size()),
        free_(values_without_memory(g)),
        taken_(g.size()),
        makes_again_(g.size()),
        weights_(g.size(), -1) {
    for (const PairSums& s : again) {
      for (const NodeId n : s.nodes) taken_[n] = makes_again_[n] = true;
      for (const PairSums::Sum& x : s.sums) weights_[x.node] = x.operand;
      each_memory(s, [&](NodeId base) { kept_for_[base] = true; });
    }
    for (NodeId id = 0; id < g.size(); ++id)
      for (std::size_t k = 0; k < g[id].in.size(); ++k)
        uses_[g[id].in[k]].push_back({id, static_cast<int>(k)});
    for (NodeId r : g.roots) root_[r] = true;
  }

  std::vector<Attention> run() {
    std::vector<Attention> out;
    for (NodeId id = 0; id < g_.size(); ++id)
      if (g_[id].op == Op::matmul && !taken_[id])
        if (std::optional<Attention> a = find(id)) {
          for (NodeId n : a->nodes) taken_[n] = true;
          out.push_back(*std::move(a));
        }
    return out;
  }

 private:
  /// The last product that a value is made of without a reduction in between, and that has as many elements.
  NodeId product_below(NodeId from, std::int64_t numel) const {
    std::vector<NodeId> stack{from};
    std::vector<bool> seen(g_.size());
    NodeId found = kNoNode;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      const GraphNode& n = g_[id];
      if (n.op == Op::matmul) {
        if (n.numel == numel && (found == kNoNode || id > found)) found = id;
      } else if (ir::is_elementwise(n.op) || ir::is_view(n.op)) {
        stack.insert(stack.end(), n.in.begin(), n.in.end());
      }
    }
    return found;
  }

  /// Nodes that are made of one, up to another.
  std::vector<bool> made_of(NodeId from) const {
    std::vector<bool> out(g_.size());
    out[from] = true;
    for (NodeId id = from + 1; id < g_.size(); ++id)
      for (const NodeId in : g_[id].in) out[id] = out[id] || out[in];
    return out;
  }

  bool is_row(NodeId id, const Attention& a) const {
    return a.columns > 1 && g_[id].numel == a.batch * a.rows && !ir::is_view(g_[id].op);
  }

  /// Nodes that only the attention reads, as scores, rows' values or what these are made of; beside them,
  /// rows' values that others read behind the second product.
  std::vector<bool> claim(const Attention& a, const std::vector<bool>& depends,
                          const std::vector<bool>& memory) const {
    std::vector<bool> claimed(g_.size());
    claimed[a.product] = true;
    for (NodeId id = a.product; id-- > 0;) {
      const GraphNode& n = g_[id];
      if (memory[id] || taken_[id]) continue;
      const bool kind = id == a.scores || ir::is_elementwise(n.op) ||
                        (ir::is_view(n.op) && !is_written_in_place(n)) ||
                        (ir::is_reduce(n.op) && depends[id]);
      if (!kind) continue;
      bool inner = false, outer = root_[id];
      for (const Use& u : uses_[id]) {
        const bool in =
            claimed[u.reader] && u.reader != a.scores && !(u.reader == a.product && u.operand == 1);
        inner |= in;
        outer |=
            !in && !made_again(u) && !(depends[id] && is_row(id, a) && first_reader(u.reader) > a.product);
      }
      if (root_[id] && depends[id] && is_row(id, a)) {
        outer = false;
        for (const Use& u : uses_[id])
          outer |= !claimed[u.reader] && !made_again(u) && first_reader(u.reader) < a.product;
      }
      claimed[id] = inner && !outer;
    }
    return claimed;
  }

  /// Whether a reader makes the value again for itself.
  bool made_again(const Use& u) const {
    return weights_[u.reader] >= 0 ? weights_[u.reader] == u.operand : makes_again_[u.reader];
  }

  /// The first node that computes with a value that `id` shows.
  NodeId first_reader(NodeId id) const {
    if (!ir::is_view(g_[id].op)) return id;
    NodeId first = kNoNode;
    for (const Use& u : uses_[id]) first = std::min(first, first_reader(u.reader));
    return first;
  }

  std::optional<Attention> find(NodeId product) {
    const GraphNode& p = g_[product];
    const NodeId weights = p.in[0];
    const NodeId scores = product_below(weights, g_[weights].numel);
    if (scores == kNoNode || taken_[scores]) return std::nullopt;
    const GraphNode& s = g_[scores];
    const std::size_t rank = p.dims.size();
    Attention a;
    a.scores = scores;
    a.product = product;
    a.rows = p.dims[rank - 2];
    a.width = p.dims[rank - 1];
    a.columns = g_[weights].dims[rank - 1];
    a.depth = g_[s.in[0]].dims.back();
    for (std::size_t d = 0; d + 2 < rank; ++d) a.batch *= p.dims[d];
    const bool suits = p.numel > 0 && a.columns > 1 && a.depth > 0 && a.batch <= kMostMatrices &&
                       (s.dtype == DType::Float32 || is_half(s.dtype)) &&
                       (p.dtype == DType::Float32 || is_half(p.dtype));
    if (!suits) return std::nullopt;
    const std::vector<bool> depends = made_of(scores);
    if (!has_reduction(weights, scores, depends)) return std::nullopt;
    if (depends[p.in[1]]) return refused(a, FusionReason::OperandOfScores);
    std::vector<bool> memory(g_.size());
    for (int tries = 0; tries < kTries; ++tries) {
      Attention made = a;
      const Outcome outcome = read(made, depends, memory);
      if (outcome == Outcome::Made) return made;
      if (outcome == Outcome::Refused) return std::nullopt;
    }
    return std::nullopt;
  }

  /// Whether a reduction of scores lies between the products: else this is two layers of a network, and its
  /// author does not expect one kernel.
  bool has_reduction(NodeId weights, NodeId scores, const std::vector<bool>& depends) const {
    std::vector<NodeId> stack{weights};
    std::vector<bool> seen(g_.size());
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (seen[id] || id == scores || !depends[id]) continue;
      seen[id] = true;
      if (ir::is_reduce(g_[id].op)) return true;
      stack.insert(stack.end(), g_[id].in.begin(), g_[id].in.end());
    }
    return false;
  }

  /// A node between the scores and the weights that no attention takes in: a scan, a sort, a gather.
  NodeId no_function_of_scores(const Attention& a, const std::vector<bool>& depends) const {
    std::vector<NodeId> stack{g_[a.product].in[0]};
    std::vector<bool> seen(g_.size());
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (seen[id] || id == a.scores || !depends[id]) continue;
      seen[id] = true;
      const Op op = g_[id].op;
      if (!ir::is_elementwise(op) && !ir::is_view(op) && !ir::is_reduce(op)) return id;
      stack.insert(stack.end(), g_[id].in.begin(), g_[id].in.end());
    }
    return kNoNode;
  }

  std::optional<Attention> refused(const Attention& a, Why why) {
    refusals_.push_back({a.scores, a.product, std::move(why)});
    return std::nullopt;
  }

  enum class Outcome : std::uint8_t { Made, Refused, Again };

  Outcome read(Attention& a, const std::vector<bool>& depends, std::vector<bool>& memory) {
    const auto refuse = [&](Why why) {
      refused(a, std::move(why));
      return Outcome::Refused;
    };
    const std::vector<bool> claimed = claim(a, depends, memory);
    if (!claimed[a.scores]) {
      const NodeId other = no_function_of_scores(a, depends);
      return refuse(other == kNoNode ? Why(FusionReason::ScoresRead)
                                     : because(FusionReason::NotOneScore, ir::info(g_[other].op).name));
    }
    std::vector<bool> inside = claimed;
    for (NodeId id = 0; id < g_.size(); ++id) inside[id] = inside[id] || (free_[id] && !depends[id]);
    TermReader reader(g_, a, inside, depends);
    const GraphNode& p = g_[a.product];
    const std::optional<Reading> w = reader.weights(p.in[0], frame_of(g_[p.in[0]].dims, true));
    if (!w) return refuse(reader.reason().empty() ? Why(FusionReason::ScoresRead) : reader.reason());
    a.weight = w->term;
    a.factor = reader.scale_of(*w);
    reader.find_masks();
    if (!take_nodes(a, claimed, reader, memory)) return Outcome::Again;
    take_operands(a, reader);
    for (const MatrixMemory* m : all_memory(a))
      if (std::binary_search(a.nodes.begin(), a.nodes.end(), m->base) || depends[m->base])
        return refuse(FusionReason::OperandOfScores);
    return Outcome::Made;
  }

  static std::vector<const MatrixMemory*> all_memory(const Attention& a) {
    std::vector<const MatrixMemory*> out{&a.q, &a.k, &a.v};
    for (const MatrixMemory& m : a.memory) out.push_back(&m);
    return out;
  }

  /// The nodes that were read in place. False: one of them is also read by a node that was not, so that it
  /// must be memory.
  bool take_nodes(Attention& a, const std::vector<bool>& claimed, const TermReader& reader,
                  std::vector<bool>& memory) {
    const std::vector<bool>& visited = reader.visited();
    bool good = true;
    for (NodeId id = 0; id < a.product; ++id) {
      if (!visited[id] || !claimed[id]) continue;
      for (const Use& u : uses_[id]) {
        NodeId by = u.reader;
        if (!claimed[by] || by == a.product || ir::is_view(g_[by].op) || visited[by]) continue;
        memory[id] = true;
        good = false;
      }
      a.nodes.push_back(id);
      const bool outside = root_[id] || kept_for_[id] ||
                           std::any_of(uses_[id].begin(), uses_[id].end(),
                                       [&](const Use& u) { return !claimed[u.reader] && !made_again(u); });
      if (!outside) continue;
      const auto* row = reader.row_value_of(id);
      if (!row) {
        memory[id] = true;
        good = false;
        continue;
      }
      a.row_outputs.push_back({id, row->second.term, reader.memory_of(id, row->first.second)});
    }
    a.nodes.push_back(a.product);
    return good;
  }

  void take_operands(Attention& a, const TermReader& reader) {
    const GraphNode &s = g_[a.scores], &p = g_[a.product];
    const int rows = reader.rows_operand();
    // (…, i, depth) and (…, depth, j), or the other way round where S is transposed
    a.q = reader.memory_of(s.in[rows], frame_of(g_[s.in[rows]].dims, rows == 0));
    a.k = reader.memory_of(s.in[1 - rows], frame_of(g_[s.in[1 - rows]].dims, rows != 0));
    a.v = reader.memory_of(p.in[1], frame_of(g_[p.in[1]].dims, true));
  }

  const Graph& g_;
  std::vector<Refusal>& refusals_;
  std::vector<std::vector<Use>> uses_;
  std::vector<bool> root_;
  std::vector<bool> kept_for_;  // sums over pairs read it from memory
  std::vector<bool> free_;      // made again for each reader
  std::vector<bool> taken_;
  std::vector<bool> makes_again_;  // a node of sums over pairs
  std::vector<int> weights_;       // of each of the sums the operand that is the weights; else -1
};

}  // namespace

Why refuse_on_gpu(const Graph&, const Attention& a) {
  constexpr std::int64_t kMostWidth = 256, kMost = std::int64_t{1} << 31;
  if (a.t == kNoTerm) return FusionReason::GpuExponentials;
  if (!is_half(a.q.dtype) || a.k.dtype != a.q.dtype || a.v.dtype != a.q.dtype) return FusionReason::GpuHalves;
  if (a.depth > kMostWidth || a.width > kMostWidth) return FusionReason::GpuHeads;
  for (const MatrixMemory* m : {&a.q, &a.k, &a.v})
    if (m->column != 1 && (m == &a.v ? a.width : a.depth) != 1) return FusionReason::GpuColumns;
  if (a.batch * ((a.rows + 127) / 128) >= kMost || a.columns >= kMost || a.rows >= kMost)
    return FusionReason::GpuTooMany;
  return {};
}

std::vector<Attention> find_attentions(const Graph& graph, std::span<const PairSums> again,
                                       std::vector<Refusal>& refusals) {
  return Finder(graph, again, refusals).run();
}

}  // namespace kiln::plan
