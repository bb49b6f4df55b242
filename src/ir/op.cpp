#include "ir/op.h"

namespace kiln::ir {

const OpInfo kOpInfo[] = {
#define KILN_STRUCTURAL(Name, Kind) {#Name, OpKind::Kind, 0, TypeRule::Structural, ANY, "", 0, 0},
#include "ir/structural.def"
#undef KILN_STRUCTURAL
#define KILN_OP(Name, Arity, Rule, Types, Reference, Expansion, Lo, Hi, Doc) \
  {#Name, OpKind::Elementwise, Arity, TypeRule::Rule, Types, Doc, Lo, Hi},
#include <kiln/ops.def>
#undef KILN_OP
};

const int kOpCount = static_cast<int>(sizeof(kOpInfo) / sizeof(kOpInfo[0]));

}  // namespace kiln::ir
