#include "grad/tape.h"

#include "grad/list_steps.h"
#include "grad/sums.h"
#include "record/step_alias.h"
#include "support/check.h"

#include <unordered_map>

namespace kiln::diff {
namespace {

std::string where(const SourceLocation& loc) {
  return loc.line() == 0 ? std::string() : cat(" (recorded at ", loc.file_name(), ":", loc.line(), ")");
}

}  // namespace

void Tape::cut_at(ir::NodeRef node) {
  open_->add_primal(node);
  primals_.push_back(std::move(node));
}

Tensor Tape::primal(const Tensor& x, const std::function<std::string()>& what) {
  ir::Node* const node = api::checked(op_, x);
  if (!is_float(node->dtype))
    throw UserError(cat("[", op_, "] ", what(), " is ", ir::describe(node), ": only floats have derivatives",
                        where(node->loc)));
  ir::NodeRef alias = api::alias_node(node, false);
  if (inside_) ir::mark_inside_step(alias.get());
  open_->add_primal(alias);
  primals_.push_back(alias);
  return Tensor::adopt(alias.take());
}

void Tape::close(std::span<const Tensor> results) {
  for (const Tensor& r : results) results_.push_back(ir::NodeRef::share(api::checked(op_, r)));
  Listing all = list_steps(primals_, results_);
  steps_ = std::move(all.steps);
  for (Step& s : steps_) s.all = steps_.data();
  result_at_ = std::move(all.result_at);
  open_.reset();
  whole_.reset();
}

void Tape::close_loss(const Tensor& loss) {
  const ir::Node* const node = api::checked(op_, loss);
  if (node->numel != 1 || !is_float(node->dtype))
    throw UserError(cat("[", op_, "] the function returns ", ir::describe(node),
                        ", not a float of one element", where(node->loc)));
  close({&loss, 1});
}

std::vector<Tensor> Tape::pull_loss() const {
  const ir::Node& loss = *results_[0];
  const CallScope scope({}, loss.loc);
  const Tensor one = zeros_of(loss.dims(), loss) + 1.0;
  return pull({&one, 1});
}

void Tape::check_like(std::string_view what, std::size_t i, const Tensor& given, const ir::Node& like) const {
  const ir::Node* const node = api::checked(op_, given);
  if (node->dtype != computed_as(like.dtype) || !std::ranges::equal(node->dims(), like.dims()))
    throw UserError(cat("[", op_, "] ", what, " ", i, " is ", ir::describe(node), ", expected ",
                        ir::describe(&like), where(like.loc)));
}

void Tape::refuse(const Step& s, std::string_view why) const {
  throw UserError(
      cat("[", op_, "] ", ir::info(s.edge.op).name, " has no derivative: ", why, where(s.edge.loc)));
}

void Tape::pull_call(const Step& s, std::vector<Tensor> results, Terms& g) const {
  std::vector<bool> wanted;
  for (std::size_t k = 0; k < s.from.size(); ++k) wanted.push_back(s.wants(k));
  const std::vector<Tensor> to = s.call->pull(results, wanted);
  for (std::size_t k = 0; k < to.size(); ++k)
    if (wanted[k] && to[k].valid()) g[s.from[k]].push_back(to[k]);
}

/// `to`: for what the rule makes, the same memory for all steps; empty before and after.
void Tape::pull_operation(const Step& s, const Tensor& g, std::vector<Tensor>& to, Terms& all) const {
  const Rule& rule = rule_of(s.edge.op);
  if (!rule.why_not.empty()) refuse(s, rule.why_not);
  if (rule.flat) return;
  to.resize(s.from.size());
  rule.pull(s, g, to);
  for (std::size_t k = 0; k < to.size(); ++k)
    if (s.wants(k) && to[k].valid()) all[s.from[k]].push_back(std::move(to[k]));
  to.clear();
}

std::vector<Tensor> Tape::pull(std::span<const Tensor> cotangents) const {
  const ir::WholeRecording whole;
  Terms g(steps_.size());                                         // of each step's value
  std::unordered_map<std::size_t, std::vector<Tensor>> of_calls;  // cotangents of a call's results, by step
  std::vector<Tensor> to;
  for (std::size_t r = 0; r < results_.size(); ++r) {
    if (!is_float(results_[r]->dtype)) continue;
    check_like("cotangent", r, cotangents[r], *results_[r]);
    if (result_at_[r] != Step::kNone) g[result_at_[r]].push_back(cotangents[r]);
  }
  for (std::size_t i = steps_.size(); i-- > primals_.size();) {
    const Step& s = steps_[i];
    if (const auto results = of_calls.find(i); results != of_calls.end()) {
      pull_call(s, std::move(results->second), g);
      continue;
    }
    if (g[i].empty()) continue;
    const CallScope scope(ir::info(s.edge.op).name, s.edge.loc);
    const Tensor total = sum_of(g[i]);
    g[i].clear();  // nobody needs them any more
    if (s.result_of_call < 0) {
      pull_operation(s, total, to, g);
      continue;
    }
    std::vector<Tensor>& results = of_calls[s.from[0]];
    const auto at = static_cast<std::size_t>(s.result_of_call);
    if (results.size() <= at) results.resize(at + 1);
    results[at] = total;
  }
  std::vector<Tensor> out;
  for (std::size_t p = 0; p < primals_.size(); ++p) {
    const CallScope scope({}, primals_[p]->loc);
    out.push_back(g[p].empty() ? zeros_of(primals_[p]->dims(), *primals_[p]) : sum_of(g[p]));
  }
  return out;
}

std::vector<Tensor> Tape::push(std::span<const Tensor> tangents) const {
  const ir::WholeRecording whole;
  std::vector<Tensor> t(steps_.size()), in;
  for (std::size_t p = 0; p < primals_.size(); ++p) {
    check_like("tangent", p, tangents[p], *primals_[p]);
    t[p] = tangents[p];
  }
  std::unordered_map<std::size_t, std::vector<Tensor>> of_calls;  // tangents of a call's results, by step
  for (std::size_t i = primals_.size(); i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    if (s.result_of_call >= 0) {
      const auto made = of_calls.find(s.from[0]);
      if (made != of_calls.end()) t[i] = made->second[static_cast<std::size_t>(s.result_of_call)];
      continue;
    }
    in.clear();
    bool any = false;
    for (const std::uint32_t from : s.from) {
      in.push_back(from == Step::kNone ? Tensor() : t[from]);
      any |= in.back().valid();
    }
    if (!any) continue;
    if (s.call) {
      of_calls[i] = s.call->push(in);
      continue;
    }
    const Rule& rule = rule_of(s.edge.op);
    if (!rule.why_not.empty()) refuse(s, rule.why_not);
    if (rule.flat) continue;
    const CallScope scope(ir::info(s.edge.op).name, s.edge.loc);
    t[i] = rule.push(s, in);
  }
  std::vector<Tensor> out;
  for (std::size_t r = 0; r < results_.size(); ++r) {
    const std::uint32_t at = result_at_[r];
    out.push_back(at != Step::kNone && t[at].valid() ? t[at] : zeros_of(results_[r]->dims(), *results_[r]));
  }
  return out;
}

}  // namespace kiln::diff
