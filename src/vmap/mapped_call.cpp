#include "vmap/mapped_call.h"

#include "grad/call_rule.h"
#include "vmap/examples.h"

namespace kiln::mapped {
namespace {

using ir::NodeRef;

class MappedCall : public diff::CallRule {
 public:
  MappedCall(const ir::Call& call, std::shared_ptr<const Replay> base, std::vector<bool> mapped)
      : rule_(std::static_pointer_cast<const diff::CallRule>(call.rule)),
        base_(std::move(base)),
        mapped_(std::move(mapped)) {}

  /// An operand that all examples share has the sum of their cotangents.
  std::vector<Tensor> pull(std::span<const Tensor> g, const std::vector<bool>& wanted) const override {
    Examples examples(base_);
    std::vector<Tensor> given;
    for (const Tensor& each : g) given.push_back(each.valid() ? examples.one_of(each) : Tensor());
    const std::vector<Tensor> all = examples.all_of(rule_->pull(given, wanted));
    std::vector<Tensor> out;
    for (std::size_t k = 0; k < all.size(); ++k)
      out.push_back(!all[k].valid() || mapped_[k] ? all[k] : summed(all[k]));
    return out;
  }

  std::vector<Tensor> push(std::span<const Tensor> t) const override {
    Examples examples(base_);
    std::vector<Tensor> given;
    for (std::size_t k = 0; k < t.size(); ++k)
      given.push_back(t[k].valid() && mapped_[k] ? examples.one_of(t[k]) : t[k]);
    return examples.all_of(rule_->push(given));
  }

 private:
  static Tensor summed(const Tensor& x) {
    return api::finish(api::reduce_node(ir::Op::reduce_sum, x.node(), 1, x.dtype(), false));
  }

  std::shared_ptr<const diff::CallRule> rule_;
  std::shared_ptr<const Replay> base_;
  std::vector<bool> mapped_;  // by operand
};

}  // namespace

std::shared_ptr<const void> mapped_rule(const ir::Call& call, std::shared_ptr<const Replay> base,
                                        std::vector<bool> mapped) {
  return std::shared_ptr<const diff::CallRule>(
      std::make_shared<const MappedCall>(call, std::move(base), std::move(mapped)));
}

}  // namespace kiln::mapped
