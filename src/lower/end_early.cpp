// A row of 17 elements on 8 lanes is two vectors and one element. Masked, that element costs more than a
// vector: without registers of masks a load or a store of narrow elements under a mask is a sequence of
// branches, and a large body would be masked in every vector. If the last vector begins at element 9 instead,
// it makes seven elements again and needs no mask.
//
// Elements can be made again where a loop only stores, and reads nothing that it stores.
#include "lower/end_early.h"

#include "kernel/nouns.h"

#include <algorithm>
#include <vector>

namespace kiln::lower {
namespace {

using namespace kernel::nouns;

class Body {
 public:
  explicit Body(const Kernel& k)
      : k_(k), stored_(k.buffers.size()), read_(k.buffers.size()), seen_(k.pool.size()) {}

  bool may_be_made_again(const LoopDecl& l) {
    if (!l.accs.empty() || !statements(l)) return false;
    for (std::size_t b = 0; b < stored_.size(); ++b)
      if (stored_[b] && (read_[b] || k_.buffers[b].stream)) return false;  // a line past the caches is whole
    return true;
  }

 private:
  /// False: an accumulator from outside the loop would take a value twice.
  bool statements(const LoopDecl& l) {
    const std::size_t outside = open_.size();
    open_.insert(open_.end(), l.accs.begin(), l.accs.end());
    for (const ExprId e : l.inits) visit(e);
    visit(l.extent);
    visit(l.condition);
    visit(l.early);
    bool good = true;
    for (const Stmt& s : l.body) {
      if (s.kind == Stmt::Kind::Loop) {
        good = good && statements(k_.loops[s.target]);
        continue;
      }
      if (s.kind == Stmt::Kind::Update) good = good && std::ranges::find(open_, s.target) != open_.end();
      if (s.kind == Stmt::Kind::Store) stored_[s.target] = true;
      visit(s.index);
      visit(s.value);
    }
    open_.resize(outside);
    return good;
  }

  void visit(ExprId e) {
    if (e == kNoExpr || seen_[e]) return;
    seen_[e] = true;
    const ExprNode n = k_.pool[e];
    if (n.prim == Prim::Load) read_[n.imm] = true;
    kernel::each_operand(n, [&](ExprId o) { visit(o); });
  }

  const Kernel& k_;
  std::vector<bool> stored_, read_, seen_;
  std::vector<std::uint32_t> open_;  // accumulators that begin inside
};

}  // namespace

void end_early(Kernel& kernel, std::span<const std::int64_t> params) {
  const auto iterations = [&](ExprId extent) -> std::int64_t {
    const ExprNode n = kernel.pool[extent];
    if (n.prim == Prim::Const) return static_cast<std::int64_t>(n.imm);
    return n.prim == Prim::Param ? params[n.imm] : 0;
  };
  for (LoopDecl& l : kernel.loops)
    l.again = l.kind == LoopKind::Vector && l.lanes > 1 && l.rows == 1 && iterations(l.extent) >= l.lanes &&
              Body(kernel).may_be_made_again(l);
}

}  // namespace kiln::lower
