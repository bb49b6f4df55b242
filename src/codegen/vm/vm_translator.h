// Kernel → bytecode, a section at a time. Every expression is placed at the outermost loop that has its
// operands, as in compiled code: what a row needs is computed once a row, what nothing varies in once a call.
// Inside a Vector loop varying expressions are blocks, everything else stays scalar; a scalar that meets a
// block becomes a uniform strip.
//
// Invariant: the code of a scope is complete up to the loop being built inside it, so that code for an outer
// scope can still be appended there: it then stands before that loop. Jumps are relative.
//
// The class is implemented by topic: vm_translate.cpp (expressions, memory, loops) and vm_accumulators.cpp.
#pragma once

#include "codegen/vm/vm_storage.h"
#include "kernel/nouns.h"
#include "kernel/placement.h"
#include "support/check.h"

#include <map>
#include <utility>
#include <vector>

namespace kiln::codegen {

using namespace kernel::nouns;
using Lanes = kernel::Placement::Lanes;

class Translator {
 public:
  Translator(const Kernel& kernel, const VmLoops& loops)
      : k_(kernel),
        at_(kernel, /*own_lanes=*/true),
        pool_(at_.pool()),
        loops_(loops),
        accs_(kernel.accs.size()) {
    out_.scalars = {0, 0};
    sync();
  }
  VmSection run(const std::vector<Stmt>& section);

 private:
  struct Scope {
    const LoopDecl* loop = nullptr;
    std::uint32_t index = kVmNone;  // scalar of its variable (a Vector loop: of lane 0)
    std::vector<VmInstr> code;
    std::vector<ExprId> memoized;
    std::uint32_t active =
        kVmNone;  // in a While loop on lanes: value that holds on those that go on; none: all
    // of a While loop: accumulators and their next values
    std::vector<std::pair<std::uint32_t, std::uint32_t>> nexts;
  };
  struct AccState {
    enum class Kind : std::uint8_t {
      Scalar,  // one value (two scalars if it has a position)
      Block,   // a value of every lane of the Vector loop around: never combined over lanes
      Lanes,   // lanes of a Vector loop inside, combined when the accumulator's loop ends
    } kind = Kind::Scalar;
    std::uint32_t at = kVmNone, position = kVmNone;    // scalars, values, or index into lanes
    std::uint32_t result = kVmNone;                    // scalar, or value of a Block
    std::vector<std::uint32_t> parts;                  // of a custom monoid instead of `at`, unless Lanes
    bool reads_running = false, reads_before = false;  // somebody reads these, scalars or values:
    std::uint32_t running = kVmNone, before = kVmNone;
  };

  int depth() const { return at_.depth(); }
  void emit(int depth, VmInstr i) { scopes_[static_cast<std::size_t>(depth)].code.push_back(i); }

  // ---- operands
  std::uint32_t new_scalar(std::uint64_t start = 0) {
    out_.scalars.push_back(start);
    return static_cast<std::uint32_t>(out_.scalars.size() - 1);
  }
  std::uint32_t constant(std::uint64_t bits) {
    const auto [it, fresh] = constants_.try_emplace(bits, 0u);
    if (fresh) it->second = new_scalar(bits);
    return it->second;
  }
  std::uint32_t new_value(DType type, VmLife::Kind kind = VmLife::Kind::Block) {
    values_.push_back({kind, static_cast<std::uint8_t>(size_of(type))});
    return static_cast<std::uint32_t>(values_.size() - 1);
  }
  std::uint8_t step(std::uint32_t value, int operand) const {
    const bool block = values_[value].kind == VmLife::Kind::Block;
    return static_cast<std::uint8_t>(block ? 1 << operand : 0);
  }
  std::uint32_t constant_strip(DType type, std::uint64_t bits);
  static std::uint8_t size8(DType t) { return static_cast<std::uint8_t>(size_of(t)); }

  // ---- expressions
  /// Expressions made while translating (lane strides) extend the pool; the tables follow.
  void sync() {
    scalar_.resize(pool_.size(), kVmNone);
    vector_.resize(pool_.size(), kVmNone);
  }
  /// Remembers what `e` became at its depth.
  std::uint32_t keep(ExprId e, std::vector<std::uint32_t>& memo, std::uint32_t what) {
    memo[e] = what;
    scopes_[static_cast<std::size_t>(at_.depth_of(e))].memoized.push_back(e);
    return what;
  }
  DType operand_type(const ExprNode& n) const;
  VmInstr::EachFn each_fn(const ExprNode& n) const;
  ApplyFn apply_fn(const ExprNode& n) const;
  VmInstr scalar_instr(const ExprNode& n, std::uint32_t out, const std::uint32_t (&in)[3]) const;
  VmInstr apply_instr(const ExprNode& n, std::uint32_t out, const std::uint32_t (&in)[3]) const;
  std::uint32_t scalar(ExprId e);
  std::uint32_t vector(ExprId e);

  // ---- memory
  std::uint32_t vector_load(const ExprNode& n, int d);
  void store(const Stmt& s);
  void aim(const VmInstr& store);

  // ---- accumulators
  // of equals the second stays
  static bool value_first(Monoid m) { return m == Monoid::Max || m == Monoid::Min; }
  ArgReduceFn arg_fn(const AccDecl& a) const {
    const ArgReduceFn fn = loops_.arg_reduce[a.monoid == Monoid::ArgMin][static_cast<std::size_t>(a.type)];
    KILN_CHECK_THAT(fn, "positions of ", name(a.type));
    return fn;
  }
  static Prim merge_prim(Monoid m);
  void begin_accs(const LoopDecl& l);
  void note_reads(std::uint32_t acc);
  std::uint32_t new_lanes(const AccDecl& a, int count, bool scan);
  void update(const Stmt& st);
  void combine(const AccDecl& a, bool scalars, ExprId typed, std::uint32_t out, std::uint32_t later,
               std::uint32_t earlier);
  using Parts = std::vector<std::uint32_t>;
  /// What `make` gives for expressions of Prim::Earlier and Prim::Later, operands first and each node once.
  template <class F>
  Parts each_once(const std::vector<ExprId>& roots, const Parts& later, const Parts& earlier, F make) {
    std::map<ExprId, std::uint32_t> made;
    const auto visit = [&](auto& self, ExprId e) -> std::uint32_t {
      if (const auto it = made.find(e); it != made.end()) return it->second;
      const ExprNode n = pool_[e];
      if (n.prim == Prim::Earlier) return earlier[n.imm];
      if (n.prim == Prim::Later) return later[n.imm];
      std::uint32_t in[3] = {kVmNone, kVmNone, kVmNone};
      int k = 0;
      each_operand(n, [&](ExprId o) { in[k++] = self(self, o); });
      return made[e] = make(n, in);
    };
    Parts out;
    for (ExprId root : roots) out.push_back(visit(visit, root));
    return out;
  }
  Parts with_parts(const std::vector<ExprId>& roots, bool scalars, const Parts& later, const Parts& earlier);
  VmCustom custom_lanes(const CustomMonoid& m);
  void begin_custom(AccState& s, const CustomMonoid& m);
  void update_custom(const Stmt& st, const CustomMonoid& m);
  void copy(bool value, DType type, std::uint32_t out, std::uint32_t from);
  void scan(const Stmt& st);
  void update_state(const Stmt& st);
  std::uint32_t active_lanes() const;
  void update_position(const AccDecl& a, const AccState& s, std::uint32_t x, std::uint32_t p);
  void end_accs(const LoopDecl& l);

  // ---- loops
  void block(const std::vector<Stmt>& body);
  void while_loop(const LoopDecl& l);
  void loop(const LoopDecl& l);
  void note_stores(const LoopDecl& l);
  void close(const LoopDecl& l, std::uint32_t first, std::uint32_t end);

  // ---- state
  const Kernel& k_;
  kernel::Placement at_;
  kernel::ExprPool& pool_;
  const VmLoops& loops_;
  VmSection out_;
  std::vector<VmLife> values_;
  std::map<std::uint64_t, std::uint32_t> constants_;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::uint32_t> strips_;

  std::vector<Scope> scopes_;
  std::vector<AccState> accs_;
  std::vector<std::uint32_t> scalar_, vector_;
  std::vector<bool> stored_in_loop_;
  std::int64_t max_lanes_ = kStrip;
};

}  // namespace kiln::codegen
