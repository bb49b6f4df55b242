// The nouns of the loop IR, for namespaces that are about little else: `using namespace kernel::nouns;`.
#pragma once

#include "kernel/kernel.h"

namespace kiln::kernel::nouns {

using kernel::AccDecl;
using kernel::BufferDecl;
using kernel::CustomMonoid;
using kernel::E;
using kernel::ExprId;
using kernel::ExprNode;
using kernel::Kernel;
using kernel::kNoExpr;
using kernel::LoopDecl;
using kernel::LoopKind;
using kernel::Monoid;
using kernel::Prim;
using kernel::Stmt;

}  // namespace kiln::kernel::nouns
