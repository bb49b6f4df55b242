// The key of a kernel. Printing and verifying live in print.cpp and verify.cpp.
//
// The key is a stream of words that decodes to one kernel only: every list is preceded by its length, and a
// node's primitive says how many words follow it. Expressions enter the stream where a statement first needs
// them, operands first, so that neither unused pool entries nor the order in which lowering built the rest
// can change it. Parts count by their numbers, for a launch binds its arguments by them: what makes the
// numbers equal is canonicalise.
#include "kernel/kernel.h"

#include <algorithm>
#include <utility>

namespace kiln::kernel {
namespace {

static_assert(Prim::Const < Prim::Load && Prim::Param < Prim::Load && Prim::Slot < Prim::Load &&
              Prim::Var < Prim::Load && Prim::Acc < Prim::Load && Prim::Running < Prim::Load &&
              Prim::Before < Prim::Load && Prim::Earlier < Prim::Load && Prim::Later < Prim::Load &&
              Prim::Load < Prim::Neg);

class KeyWriter {
 public:
  explicit KeyWriter(const Kernel& kernel) : k_(kernel), number_(kernel.pool.size(), kNoExpr) {
    words_.reserve(64 + 3 * std::size_t{kernel.pool.size()});
  }

  Hash128 run() {
    parts();
    customs();
    for (DType t : k_.slots) put(static_cast<std::uint64_t>(t));
    for (const auto* section : {&k_.body, &k_.link, &k_.second, &k_.finish}) block(*section);
    if (k_.main_loop) main_loop(*k_.main_loop);
    return hash128(std::span<const std::uint64_t>(words_));
  }

 private:
  void parts() {
    put(k_.buffers.size() | std::uint64_t{k_.accs.size()} << 16 | std::uint64_t{k_.slots.size()} << 32 |
        std::uint64_t{k_.fma} << 48 | std::uint64_t{k_.exact} << 49 |
        std::uint64_t{k_.tally.has_value()} << 50);
    put(k_.threads.block | std::uint64_t{k_.threads.team} << 16 | std::uint64_t{k_.threads.narrow} << 32);
    put(k_.n_params | std::uint64_t{k_.n_vars} << 32);
    for (const BufferDecl& b : k_.buffers) describe(b);
    for (const AccDecl& a : k_.accs) describe(a);
    if (k_.tally) describe(*k_.tally);
  }

  void describe(const Tally& t) {
    put(t.indices | std::uint64_t{t.counts} << 32);
    put(t.number | std::uint64_t{t.places} << 32);
    put(t.log_copies | std::uint64_t{t.halves} << 8);
  }

  void describe(const BufferDecl& b) {
    const std::uint64_t ahead = b.ahead_param < 0 ? 0xffff : static_cast<std::uint64_t>(b.ahead_param);
    put(static_cast<std::uint64_t>(b.role) | static_cast<std::uint64_t>(b.dtype) << 8 |
        std::uint64_t{b.alignment} << 16 | std::uint64_t{b.stream} << 24 | std::uint64_t{b.vector} << 25 |
        std::uint64_t{b.ragged} << 26 | std::uint64_t{b.offset_param} << 32 | ahead << 48);
    put(b.shared);
  }

  void describe(const AccDecl& a) {
    put(static_cast<std::uint64_t>(a.monoid) | static_cast<std::uint64_t>(a.type) << 8 |
        std::uint64_t{a.custom} << 16 | std::uint64_t{a.compensated} << 48 | std::uint64_t{a.narrow} << 49);
  }

  void customs() {
    put(k_.customs.size());
    for (const CustomMonoid& c : k_.customs) {
      std::vector<std::uint64_t> words{c.types.size(), number(c.show)};
      for (std::size_t p = 0; p < c.types.size(); ++p)
        words.insert(words.end(), {static_cast<std::uint64_t>(c.types[p]), c.identity[p], number(c.lift[p]),
                                   number(c.merge[p])});
      words_.insert(words_.end(), words.begin(), words.end());
    }
  }

  void put(std::uint64_t word) { words_.push_back(word); }

  void put(const std::string& text) {
    put(text.size());
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      word = word << 8 | static_cast<unsigned char>(text[i]);
      if (i % 8 == 7 || i + 1 == text.size()) put(std::exchange(word, 0));
    }
  }

  void main_loop(const Template& t) {
    put(t.name);
    put(static_cast<std::uint64_t>(t.element));
    put(t.config.size());
    for (const Constant& c : t.config) {
      put(c.name);
      put(static_cast<std::uint64_t>(c.value) << 1 | std::uint64_t{c.truth});
    }
    put(t.hooks.size());
    for (const Hook& h : t.hooks) {
      put(h.name);
      for (const auto* list : {&h.params, &h.buffers}) {
        put(list->size());
        for (const std::uint32_t n : *list) put(n);
      }
      put(static_cast<std::uint64_t>(std::int64_t{h.address}));
      block(h.body);
      std::vector<std::uint64_t> results;
      for (const ExprId e : h.results) results.push_back(number(e));
      put(results.size());
      for (const std::uint64_t r : results) put(r);
    }
  }

  void block(const std::vector<Stmt>& body) {
    put(body.size());
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::Loop) {
        loop(k_.loops[s.target]);
        continue;
      }
      const std::uint64_t index = s.index == kNoExpr ? kNoExpr : number(s.index);
      const std::uint64_t value = number(s.value);
      put(static_cast<std::uint64_t>(s.kind) | std::uint64_t{s.target} << 8);
      put(index | value << 32);
      if (s.kind == Stmt::Kind::Across) put(s.acc);
    }
  }

  void loop(const LoopDecl& l) {
    // On a CPU the grid's range comes with the launch: its extent decides nothing. On a GPU the kernel reads
    // it.
    const bool given = l.kind == LoopKind::Grid && k_.threads.block == 0;
    const std::uint64_t extent = given || l.extent == kNoExpr ? kNoExpr : number(l.extent);
    std::vector<std::uint64_t> more;
    for (ExprId e : l.inits) more.push_back(e == kNoExpr ? kNoExpr : number(e));
    if (!l.inits.empty() && l.kind != LoopKind::While) more.push_back(kNoExpr);
    if (l.kind == LoopKind::While && l.condition != kNoExpr) more.push_back(number(l.condition));
    if (l.early != kNoExpr) more.insert(more.end(), {kNoExpr, kNoExpr, number(l.early)});
    put(static_cast<std::uint64_t>(Stmt::Kind::Loop) | static_cast<std::uint64_t>(l.kind) << 8 |
        std::uint64_t{l.lanes} << 16 | std::uint64_t{l.var} << 32);
    put(extent | std::uint64_t{l.accs.size()} << 32 | std::uint64_t{l.steps} << 48 |
        std::uint64_t{l.ragged} << 47);
    put(l.rows | std::uint64_t{l.again} << 16);
    for (std::uint32_t acc : l.accs) put(acc);
    for (std::uint64_t word : more) put(word);
    block(l.body);
  }

  /// The key's number of an expression, after writing what it needs.
  std::uint32_t number(ExprId root) {
    if (number_[root] != kNoExpr) return number_[root];
    stack_.push_back(root);
    while (!stack_.empty()) {
      const ExprId id = stack_.back();
      if (number_[id] != kNoExpr) {
        stack_.pop_back();
        continue;
      }
      const ExprNode& n = k_.pool[id];
      const std::size_t height = stack_.size();
      for (ExprId operand : {n.c, n.b, n.a})
        if (operand != kNoExpr && number_[operand] == kNoExpr) stack_.push_back(operand);
      if (stack_.size() != height) continue;
      stack_.pop_back();
      number_[id] = next_++;
      write(n);
    }
    return number_[root];
  }

  void write(const ExprNode& n) {
    constexpr std::uint64_t kExpr = 0xff;  // no statement's kind: an expression begins
    const auto operand = [&](ExprId x) -> std::uint64_t { return x == kNoExpr ? kNoExpr : number_[x]; };
    put(kExpr | static_cast<std::uint64_t>(n.prim) << 8 | static_cast<std::uint64_t>(n.type) << 16 |
        operand(n.a) << 32);
    if (n.b != kNoExpr || n.prim == Prim::Load) put(operand(n.b) | operand(n.c) << 32);
    // The leaves and Load come first in prims.def; of the others calls and divisions of indices read imm.
    if (n.prim <= Prim::Load || n.prim == Prim::Call1 || n.prim == Prim::Call2 || n.prim == Prim::Native ||
        n.prim == Prim::IndexDiv)
      put(n.imm);
  }

  const Kernel& k_;
  std::vector<std::uint32_t> number_;
  std::vector<ExprId> stack_;
  std::vector<std::uint64_t> words_;
  std::uint32_t next_ = 0;
};

}  // namespace

const char* name(Monoid m) {
  switch (m) {
    case Monoid::Sum: return "sum";
    case Monoid::Prod: return "prod";
    case Monoid::Max: return "max";
    case Monoid::Min: return "min";
    case Monoid::ArgMax: return "argmax";
    case Monoid::ArgMin: return "argmin";
    case Monoid::Custom: return "custom";
    case Monoid::State: return "state";
  }
  __builtin_unreachable();
}

bool reads_running_values(const Kernel& kernel) {
  for (ExprId e = 0; e < kernel.pool.size(); ++e)
    if (kernel.pool[e].prim == Prim::Running || kernel.pool[e].prim == Prim::Before) return true;
  return std::any_of(kernel.loops.begin(), kernel.loops.end(),
                     [](const LoopDecl& l) { return l.kind == LoopKind::While; });
}

Hash128 hash(const Kernel& kernel) { return KeyWriter(kernel).run(); }

}  // namespace kiln::kernel
