#include "ir/op.h"

#include <cmath>

namespace kiln::ir {
namespace {

/// A comparison jumps whatever it compares by.
constexpr std::uint16_t traits_of(TypeRule rule, int traits = 0) {
  return static_cast<std::uint16_t>(traits | (rule == TypeRule::Compare ? JUMPS : 0));
}

constexpr OpInfo structural(std::string_view name, OpKind kind, int traits = 0) {
  return {name, kind, 0, TypeRule::Structural, ANY, traits_of(TypeRule::Structural, traits), "", 0, 0};
}

constexpr OpInfo folding(std::string_view name, OpKind kind, Fold fold, double of_none = 0, int traits = 0) {
  OpInfo facts = structural(name, kind, traits);
  facts.fold = fold;
  facts.of_none = of_none;
  return facts;
}

}  // namespace

const OpInfo kOpInfo[] = {
#define KILN_STRUCTURAL(Name, ...) structural(#Name, OpKind::__VA_ARGS__),
#define KILN_REDUCE(Name, HowTwo, ...) folding(#Name, OpKind::Reduce, Fold::HowTwo, __VA_ARGS__),
#define KILN_SCAN(Name, HowTwo) folding(#Name, OpKind::Scan, Fold::HowTwo),
#include "ir/structural.def"
#undef KILN_STRUCTURAL
#define KILN_OP(Name, Arity, Rule, Types, Reference, Expansion, Lo, Hi, Doc, ...) \
  {#Name, OpKind::Elementwise,                                                    \
   Arity, TypeRule::Rule,                                                         \
   Types, traits_of(TypeRule::Rule __VA_OPT__(, ) __VA_ARGS__),                   \
   Doc,   Lo,                                                                     \
   Hi},
#include <kiln/ops.def>
#undef KILN_OP
};

const int kOpCount = static_cast<int>(sizeof(kOpInfo) / sizeof(kOpInfo[0]));

}  // namespace kiln::ir
