// Finding attentions: for each product, the product that its first operand is made of, and whether what lies
// between them can be read as terms (attention_terms.cpp).
//
// Terminates: a try that is repeated has one more node that must be memory.
//
// What is looked at for one product is what lies between it and the other, so that planning stays linear.
#include "plan/attention.h"

#include "plan/attention_terms.h"
#include "plan/pair_sums.h"
#include "support/check.h"

#include <algorithm>
#include <queue>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;
using ir::OpKind;
using ir::Use;

constexpr std::int64_t kMostMatrices = 1 << 20;  // of a batch: each operand has a table of offsets
constexpr int kTries = 16;
constexpr int kMostWalked = 400;  // nodes between weights and scores
// Nodes recorded from the scores to the product; a gradient far behind its forward pass is no attention.
constexpr NodeId kMostBetween = 1 << 14;

class Finder {
 public:
  Finder(const PairFacts& facts, std::span<const PairSums> again, std::vector<Refusal>& refusals)
      : g_(facts.graph),
        refusals_(refusals),
        uses_(facts.uses),
        root_(facts.root),
        kept_for_(g_.size()),
        free_(facts.free),
        taken_(g_.size()),
        makes_again_(g_.size()),
        weights_(g_.size(), -1) {
    for (const PairSums& s : again) {
      for (const NodeId n : s.nodes) taken_[n] = makes_again_[n] = true;
      for (const PairSums::Sum& x : s.sums) weights_[x.node] = x.operand;
      each_memory(s, [&](NodeId base) { kept_for_[base] = true; });
    }
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
    std::priority_queue<NodeId> next;  // the last one first: the first product that is met is the one
    next.push(from);
    NodeId before = kNoNode;
    for (int walked = 0; !next.empty() && walked < kMostWalked;) {
      const NodeId id = next.top();
      next.pop();
      if (id == before) continue;
      before = id;
      ++walked;
      const GraphNode& n = g_[id];
      if (n.op == Op::matmul && n.numel == numel) return id;
      if (!ir::is_elementwise(n.op) && !ir::is_view(n.op)) continue;
      for (const NodeId in : n.in) next.push(in);
    }
    return kNoNode;
  }

  /// Nodes that are made of one, up to another.
  std::vector<bool> made_of(NodeId from, NodeId last) const {
    std::vector<bool> out(g_.size());
    out[from] = true;
    for (NodeId id = from + 1; id <= last; ++id)
      for (const NodeId in : g_[id].in) out[id] = out[id] || out[in];
    return out;
  }

  struct Claimed {
    std::vector<bool> is;
    std::vector<NodeId> nodes;  // descending
  };

  bool is_row(NodeId id, const Attention& a) const {
    return a.columns > 1 && g_[id].numel == a.batch * a.rows && !ir::is_view(g_[id].op);
  }

  /// Nodes that only the attention reads, as scores, rows' values or what these are made of; beside them,
  /// rows' values that others read behind the second product.
  Claimed claim(const Attention& a, const std::vector<bool>& depends, const std::vector<bool>& memory) const {
    Claimed out{std::vector<bool>(g_.size()), {}};
    std::vector<bool>& claimed = out.is;
    std::priority_queue<NodeId> read;  // by nodes that are claimed, the last one first
    const auto take = [&](NodeId id) {
      claimed[id] = true;
      out.nodes.push_back(id);
      for (const NodeId in : g_[id].in) read.push(in);
    };
    take(a.product);
    for (NodeId before = a.product; !read.empty();) {
      const NodeId id = read.top();
      read.pop();
      if (id == before) continue;
      before = id;
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
      if (inner && !outer) take(id);
    }
    return out;
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
    if (scores == kNoNode || taken_[scores] || product - scores > kMostBetween) return std::nullopt;
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
    NodeId shown = weights;  // a gradient turns what its forward pass made
    while (ir::is_view(g_[shown].op) && g_[shown].in[0] > scores) shown = g_[shown].in[0];
    const std::vector<bool> below = made_of(scores, shown);
    if (!has_reduction(shown, scores, below)) return std::nullopt;
    // most that is no attention is told by this, without a look at all that was recorded before the product
    if (is_made_of(p.in[1], scores)) return refused(a, FusionReason::OperandOfScores);
    std::vector<bool> memory(g_.size());
    if (!claim(a, below, memory).is[scores]) return refused(a, why_not_claimed(a, shown, below));
    const std::vector<bool> depends = made_of(scores, product);
    if (depends[p.in[1]]) return refused(a, FusionReason::OperandOfScores);
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
  NodeId no_function_of_scores(const Attention& a, NodeId weights, const std::vector<bool>& depends) const {
    std::vector<NodeId> stack{weights};
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

  Why why_not_claimed(const Attention& a, NodeId weights, const std::vector<bool>& depends) const {
    const NodeId other = no_function_of_scores(a, weights, depends);
    return other == kNoNode ? Why(FusionReason::ScoresRead)
                            : because(FusionReason::NotOneScore, ir::info(g_[other].op).name);
  }

  /// Whether a node is made of one before it, as far as few nodes tell.
  bool is_made_of(NodeId id, NodeId of) const {
    std::vector<NodeId> stack{id};
    for (int walked = 0; !stack.empty() && walked < kMostWalked; ++walked) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (at == of) return true;
      if (at > of) stack.insert(stack.end(), g_[at].in.begin(), g_[at].in.end());
    }
    return false;
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
    const Claimed claimed = claim(a, depends, memory);
    if (!claimed.is[a.scores]) return refuse(why_not_claimed(a, g_[a.product].in[0], depends));
    std::vector<bool> inside = free_;  // what is made of no memory is made of no scores
    for (const NodeId id : claimed.nodes) inside[id] = true;
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
  bool take_nodes(Attention& a, const Claimed& claim, const TermReader& reader, std::vector<bool>& memory) {
    const std::vector<bool>& visited = reader.visited();
    const std::vector<bool>& claimed = claim.is;
    bool good = true;
    for (std::size_t i = claim.nodes.size(); i-- > 1;) {  // but for the product
      const NodeId id = claim.nodes[i];
      if (!visited[id]) continue;
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
  const ir::Uses& uses_;
  const std::vector<bool>& root_;
  std::vector<bool> kept_for_;     // sums over pairs read it from memory
  const std::vector<bool>& free_;  // made again for each reader
  std::vector<bool> taken_;
  std::vector<bool> makes_again_;  // a node of sums over pairs
  std::vector<int> weights_;       // of each of the sums the operand that is the weights; else -1
};

}  // namespace

Why refuse_on_gpu(const Graph&, const Attention& a) {
  constexpr std::int64_t kMostWidth = 256, kMost = std::int64_t{1} << 31;
  if (a.t == kNoTerm) return FusionReason::GpuExponentials;
  const bool suits = is_half(a.q.dtype) || a.q.dtype == DType::Float32;
  if (!suits || a.k.dtype != a.q.dtype || a.v.dtype != a.q.dtype) return FusionReason::GpuHalves;
  if (a.depth > kMostWidth || a.width > kMostWidth) return FusionReason::GpuHeads;
  for (const MatrixMemory* m : {&a.q, &a.k, &a.v})
    if (m->column != 1 && (m == &a.v ? a.width : a.depth) != 1) return FusionReason::GpuColumns;
  if (a.batch * ((a.rows + 127) / 128) >= kMost || a.columns >= kMost || a.rows >= kMost)
    return FusionReason::GpuTooMany;
  return {};
}

bool has_few_rows(const Attention& a) {
  return a.rows <= kFewPairRows && std::max(a.depth, a.width) <= kFewRowsWidth;
}

bool is_faster_apart(const Attention& a, const schedule::Target& target) {
  // A block of float32 takes 64 rows, or 16 or 32 where there are no more, and all columns of them: few
  // blocks leave most of the chip idle.
  constexpr std::int64_t kFewBlocks = 2, kBlock = 64;
  if (a.q.dtype != DType::Float32 || target.templates == schedule::Target::Templates::All) return false;
  if (has_few_rows(a)) {
    // A tile of 32 columns takes as long where few of them are there, and a row is one product by a vector:
    // with wide heads, of which there are few blocks side by side, both take longer than memory does.
    constexpr std::int64_t kNarrow = 64, kTile = 32;
    const std::int64_t missing = (kTile - a.columns % kTile) % kTile;
    if (std::max(a.depth, a.width) > kNarrow && (a.rows == 1 || 3 * missing >= a.columns)) return true;
    return a.batch < kFewBlocks * target.threads;
  }
  return 4 * a.batch * ((a.rows + kBlock - 1) / kBlock) < 3 * target.threads;
}

Why refuse_on_cpu(const Attention& a) {
  if (a.rows > few_attention_rows.load(std::memory_order_relaxed) || 2 * a.rows > a.depth + a.width)
    return {};
  return because(FusionReason::CpuRows, a.rows);
}

std::vector<Attention> find_attentions(const PairFacts& facts, std::span<const PairSums> again,
                                       std::vector<Refusal>& refusals) {
  return Finder(facts, again, refusals).run();
}

}  // namespace kiln::plan
