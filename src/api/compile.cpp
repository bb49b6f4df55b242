// Compiled functions: finds the kept trace of a call, or keeps that of one which is recorded.
#include <kiln/compile.h>

#include "api/record.h"
#include "engine/evaluate.h"
#include "engine/kept_trace.h"
#include "record/tape.h"

#include <kiln/config.h>
#include <kiln/ops.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace kiln::detail {
namespace {

using Words = std::vector<std::uint64_t>;

/// Kept calls of one function. Beyond it the one that was used longest ago is dropped.
constexpr std::size_t kMostKept = 32;
/// Calls in a row that were like none before, after which only one of so many is kept.
constexpr std::uint64_t kMissesInARow = 16;

std::vector<ir::Node*> nodes_of(const CallArguments& call) {
  std::vector<ir::Node*> out;
  out.reserve(call.leaves().size());
  for (const CallArguments::Leaf& l : call.leaves()) out.push_back(l.node);
  return out;
}

/// Everything a kept trace depends on; none: an argument's memory is being overwritten.
std::optional<Words> key_of(const CallArguments& call, std::span<ir::Node* const> nodes) {
  Words out;
  out.reserve(call.words().size() + 8 * nodes.size() + 1);
  out = call.words();
  out.push_back(engine::surroundings());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto first = std::find(nodes.begin(), nodes.end(), nodes[i]) - nodes.begin();
    out.push_back(static_cast<std::uint64_t>(first));
    if (!engine::describe_argument(*nodes[i], call.leaves()[i].moved, out)) return std::nullopt;
  }
  return out;
}

void compute(std::span<ir::Node* const> nodes) {
  std::vector<ir::Node*> pending;
  std::ranges::copy_if(nodes, std::back_inserter(pending),
                       [](const ir::Node* n) { return ir::op_now(n) != ir::Op::leaf; });
  if (!pending.empty()) engine::evaluate(pending);
}

struct Kept {
  Words key;
  std::shared_ptr<const engine::KeptTrace> trace;
  std::shared_ptr<const void> like;
};

constexpr const char* kNotRun =
    "its plan is not in memory any more, was made in parts, or is being explained, checked or tuned";
constexpr const char* kDiffer =
    "its arguments differ from call to call; a number that does can be a tensor of rank 0 instead";

}  // namespace

struct KeptCalls::State {
  std::mutex mutex;
  std::list<Kept> kept;  // used last first
  std::uint64_t misses = 0;
  std::string why;

  const Kept* find(const Words& key) {
    const auto at = std::ranges::find(kept, key, &Kept::key);
    if (at == kept.end()) return nullptr;
    if (at != kept.begin()) kept.splice(kept.begin(), kept, at);
    return &kept.front();
  }

  /// Whether a call that was recorded is worth keeping. `why_recorded`: why it was.
  bool is_kept_next(const Words& key, std::string& why_recorded) {
    const std::lock_guard lock(mutex);
    ++misses;
    if (find(key)) {
      why_recorded = kNotRun;
    } else if (misses > kMissesInARow) {
      why_recorded = kDiffer;
    }
    return misses <= kMissesInARow || misses % kMissesInARow == 0;
  }
};

KeptCalls::KeptCalls() : state_(std::make_shared<State>()) {}

bool KeptCalls::is_part() {
  return engine::KeptRecording::active() || api::Recording::active() || ir::OpenTape::any() ||
         config().mode != Mode::Lazy;
}

std::shared_ptr<const void> KeptCalls::replay(const CallArguments& call, std::vector<Tensor>& results) const {
  const std::vector<ir::Node*> nodes = nodes_of(call);
  compute(nodes);
  const std::optional<Words> key = key_of(call, nodes);
  if (!key) return nullptr;
  std::shared_ptr<const engine::KeptTrace> trace;
  std::shared_ptr<const void> like;
  {
    const std::lock_guard lock(state_->mutex);
    const Kept* const kept = state_->find(*key);
    if (!kept) return nullptr;
    trace = kept->trace;
    like = kept->like;
  }
  std::vector<ir::NodeRef> made;
  if (!trace->run(nodes, made)) {
    const std::lock_guard lock(state_->mutex);
    state_->why = kNotRun;
    return nullptr;
  }
  results.reserve(made.size());
  for (ir::NodeRef& n : made) results.push_back(Tensor::adopt(n.take()));
  const std::lock_guard lock(state_->mutex);
  state_->misses = 0;
  state_->why.clear();
  return like;
}

struct KeptCalls::Recording::State {
  std::shared_ptr<KeptCalls::State> calls;
  CallArguments call;
  std::vector<ir::Node*> arguments;
  std::optional<Words> key;
  std::optional<engine::KeptRecording> recording;
};

KeptCalls::Recording::Recording(const KeptCalls& calls, CallArguments call)
    : state_(std::make_unique<State>(calls.state_, std::move(call))) {
  state_->arguments = nodes_of(state_->call);
  state_->key = key_of(state_->call, state_->arguments);
  state_->recording.emplace();
}
KeptCalls::Recording::~Recording() = default;

void KeptCalls::Recording::end(std::span<const Tensor> results, std::shared_ptr<const void> like,
                               const std::function<void()>& release) {
  State& s = *state_;
  std::vector<ir::Node*> roots;
  for (const Tensor& t : results) roots.push_back(t.node());
  engine::KeptTrace::Made made;
  if (s.key && s.calls->is_kept_next(*s.key, made.why_not))
    made = engine::KeptTrace::make(*s.recording, roots, s.arguments, release);
  s.recording.reset();
  release();
  if (!roots.empty()) engine::evaluate_alone(roots);
  const std::lock_guard lock(s.calls->mutex);
  s.calls->why = std::move(made.why_not);
  if (!made.trace) return;
  std::list<Kept>& kept = s.calls->kept;
  std::erase_if(kept, [&](const Kept& k) { return k.key == *s.key; });
  kept.push_front({*std::move(s.key), std::move(made.trace), std::move(like)});
  if (kept.size() > kMostKept) kept.pop_back();
}

std::string KeptCalls::why() const {
  const std::lock_guard lock(state_->mutex);
  return state_->why;
}

const Tensor& stand_in() {
  static const Tensor* const one = new Tensor(0.0f);
  return *one;
}

}  // namespace kiln::detail
