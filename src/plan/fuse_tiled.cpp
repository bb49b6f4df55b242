// Fuser: attentions and sums over pairs, which are regions from the beginning, and the order of nodes in
// which each of these regions stands behind all that it reads.
#include "plan/fuser.h"
#include "plan/pair_reader.h"
#include "plan/place_results.h"

#include <algorithm>
#include <utility>

namespace kiln::plan {

/// Whether a GPU has separate kernels that are faster than its main loops: those lack registers and shared
/// memory for wide heads. docs/attention.md has the times.
static bool is_faster_apart(const PairSums& s, const schedule::Target& target) {
  constexpr int kHopper = 90;
  constexpr std::int64_t kMostByCopyEngine = 192, kMost = 128;
  if (target.templates == schedule::Target::Templates::All) return false;
  const std::int64_t most = target.architecture == kHopper ? kMostByCopyEngine : kMost;
  return std::ranges::any_of(s.products, [&](const PairSums::Product& p) { return p.depth > most; }) ||
         std::ranges::any_of(s.sums, [&](const PairSums::Sum& x) { return x.width > most; });
}

/// Sums over pairs that main loops may do. `misses`: near misses.
std::vector<PairSums> Fuser::wanted_sums(const PairFacts& facts, std::vector<Refusal>& misses) const {
  std::vector<PairSums> sums;
  if (t_.pair_sums) sums = find_pair_sums(facts, misses);
  std::erase_if(sums, [&](const PairSums& s) {
    return std::ranges::any_of(s.products, [&](const PairSums::Product& p) { return is_apart(p.node); });
  });
  if (!t_.gpu) return sums;
  std::erase_if(sums, [&](const PairSums& s) {
    if (is_faster_apart(s, t_)) return true;
    Why why = refuse_on_gpu(s);
    if (why.empty()) return false;
    misses.push_back({s.products.front().node, s.sums.front().node, std::move(why)});
    return true;
  });
  return sums;
}

/// The attentions that main loops do beside these sums. `readers`: on a GPU, see only_readers().
void Fuser::choose_attentions(const PairFacts& facts, std::span<const PairSums> sums,
                              const std::vector<NodeId>& readers) {
  near_misses_.clear();
  attentions_.clear();
  for (Attention& a : find_attentions(facts, sums, near_misses_)) {
    if (is_apart(a.scores)) continue;
    const bool wanted = std::ranges::find(orders_.together, a.product) != orders_.together.end();
    if (t_.gpu && !wanted && is_faster_apart(a, t_)) {
      near_misses_.push_back({a.scores, a.product, because(FusionReason::GpuFewBlocks, a.rows)});
      continue;
    }
    if (t_.gpu) store_arranged(g_, readers, a);
    Why why = t_.gpu ? refuse_on_gpu(g_, a) : wanted ? Why() : refuse_on_cpu(a);
    if (why.empty())
      attentions_.push_back(std::make_shared<const Attention>(std::move(a)));
    else
      near_misses_.push_back({a.scores, a.product, std::move(why)});
  }
}

/// Attentions leave values of pairs to sums that make them again; sums whose shared values no attention takes
/// would make them beside somebody who stores them, and are given up. That is decided for one after the other
/// of them, because an attention may take what one that was given up has left. A deep network has hundreds,
/// and each decision looks at the whole graph: all of them are given up at once where this comes to the same.
void Fuser::find_tiled() {
  if (!tiled_of_.empty()) return;  // a round before found them
  tiled_of_.assign(g_.size(), -1);
  if (fusion_ != Fusion::Full || !t_.attentions || t_.strict) return;
  const PairFacts facts(g_);
  std::vector<Refusal> misses;
  std::vector<PairSums> sums = wanted_sums(facts, misses), before, given_up;
  const std::vector<NodeId> readers = t_.gpu ? only_readers(g_) : std::vector<NodeId>();
  std::size_t told = 0;  // misses before those of `given_up`
  for (bool one_by_one = false;;) {
    choose_attentions(facts, sums, readers);
    std::vector<bool> taken(g_.size());
    for (const auto& a : attentions_)
      for (const NodeId n : a->nodes) taken[n] = true;
    const auto is_stored = [&](const PairSums& s) {
      return std::ranges::any_of(s.shared, [&](NodeId n) { return !taken[n]; });
    };
    if (!std::ranges::all_of(given_up, is_stored)) {
      one_by_one = true;
      sums = std::move(before);
      misses.erase(misses.begin() + static_cast<std::ptrdiff_t>(told), misses.end());
      given_up.clear();
      continue;
    }
    told = misses.size();
    before = std::exchange(sums, {});
    given_up.clear();
    for (const PairSums& s : before) {
      const bool stays = !is_stored(s) || (one_by_one && !given_up.empty());
      (stays ? sums : given_up).push_back(s);
      if (!stays) note_given_up(s, misses);
    }
    const bool settled = given_up.empty();
    if (given_up.size() == 1) given_up.clear();  // as one by one
    if (!settled) continue;
    if (add_tiled(sums) || sums.empty()) break;
    sums.pop_back();
  }
  // what looks like a gradient of attention at first is one if there is an attention
  for (Refusal& m : misses)
    if (looks_like_scores(m.producer)) near_misses_.push_back(std::move(m));
}

void Fuser::note_given_up(const PairSums& s, std::vector<Refusal>& misses) const {
  const auto scores =
      std::ranges::find_if(s.products, [&](const PairSums::Product& p) { return looks_like_scores(p.node); });
  if (scores != s.products.end())
    misses.push_back({scores->node, s.sums.front().node, FusionReason::PairsRead});
}

std::vector<bool> Fuser::tiled_nodes() {
  find_tiled();
  std::vector<bool> out(g_.size());
  for (NodeId id = 0; id < g_.size(); ++id) out[id] = tiled_of_[id] >= 0;
  return out;
}

/// Whether a product has the scores of an attention, or of what is nearly one.
bool Fuser::looks_like_scores(NodeId product) const {
  return std::ranges::any_of(attentions_, [&](const auto& a) { return a->scores == product; }) ||
         std::ranges::any_of(near_misses_, [&](const Refusal& r) { return r.producer == product; });
}

/// False: some wait for each other.
bool Fuser::add_tiled(const std::vector<PairSums>& sums) {
  tiled_.clear();
  pair_sums_.clear();
  const auto add = [&](Region::Kind kind, std::size_t index, const auto& x) {
    Tiled t{kind, static_cast<int>(index), x.nodes.back(), x.nodes, {}};
    each_memory(x, [&](NodeId base) { t.bases.push_back(base); });
    tiled_.push_back(std::move(t));
  };
  for (std::size_t a = 0; a < attentions_.size(); ++a) add(Region::Kind::Attention, a, *attentions_[a]);
  for (std::size_t s = 0; s < sums.size(); ++s) {
    add(Region::Kind::PairSums, s, sums[s]);
    pair_sums_.push_back(std::make_shared<const PairSums>(sums[s]));
  }
  tiled_of_.assign(g_.size(), -1);
  for (std::size_t t = 0; t < tiled_.size(); ++t)
    for (const NodeId id : tiled_[t].nodes) tiled_of_[id] = static_cast<int>(t);
  return order_of_nodes().has_value();
}

/// The nodes in an order in which each stands behind what it reads: of a region that is computed tile by tile
/// the last node stands for all. Nothing: there is no such order.
std::optional<std::vector<NodeId>> Fuser::order_of_nodes() const {
  enum class State : std::uint8_t { New, Waits, Done };
  std::vector<State> state(g_.size(), State::New);
  std::vector<NodeId> out, stack;
  const auto unit = [&](NodeId id) { return tiled_of_[id] >= 0 ? tiled(id).end : id; };
  for (NodeId first = 0; first < g_.size(); ++first) {
    stack.push_back(unit(first));
    while (!stack.empty()) {
      const NodeId id = stack.back();
      if (state[id] != State::New) {
        stack.pop_back();
        if (state[id] == State::Waits) out.push_back(id);
        state[id] = State::Done;
        continue;
      }
      state[id] = State::Waits;
      const GraphNode& n = g_[id];
      const std::span<const NodeId> reads =
          tiled_of_[id] >= 0 ? std::span(tiled(id).bases) : std::span(n.in.begin(), n.in.size());
      for (const NodeId in : reads) {
        const NodeId of = unit(in);
        if (state[of] == State::Waits) return std::nullopt;
        if (state[of] == State::New) stack.push_back(of);
      }
    }
  }
  return out;
}

std::vector<NodeId> Fuser::in_order() const {
  if (!pair_sums_.empty()) return *order_of_nodes();
  std::vector<NodeId> out;
  for (NodeId id = 0; id < g_.size(); ++id)
    if (tiled_of_[id] < 0 || ends_tiled(id)) out.push_back(id);
  return out;
}

}  // namespace kiln::plan
