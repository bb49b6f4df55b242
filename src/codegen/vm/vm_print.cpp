// Bytecode as text: one instruction a line, indented by loops.
#include "codegen/vm/vm_code.h"
#include "support/check.h"

namespace kiln::codegen {
namespace {

constexpr const char* kNames[] = {
#define KILN_VM_OP(Name) #Name,
#include "codegen/vm/vm_ops.def"
#undef KILN_VM_OP
};

}  // namespace

std::string print(const VmSection& s) {
  std::string out = cat("block ", s.block, " lanes, ", s.memory_bytes, " bytes\n");
  std::size_t depth = 0;
  for (const VmInstr& i : s.code) {
    if (i.op == VmOp::Next || i.op == VmOp::VectorNext || i.op == VmOp::WhileNext) --depth;
    out += std::string(2 * depth, ' ') + kNames[static_cast<int>(i.op)];
    const auto operand = [&](const char* name, std::uint32_t v) {
      if (v != kVmNone) out += cat(' ', name, v);
    };
    operand("-> ", i.out);
    operand("a", i.a);
    operand("b", i.b);
    operand("c", i.c);
    switch (i.op) {
      case VmOp::Param:
      case VmOp::Slot: out += cat(" #", i.imm); break;
      case VmOp::LoadScalar:
      case VmOp::StoreScalar:
      case VmOp::Load:
      case VmOp::LoadCopy:
      case VmOp::LoadStrided:
      case VmOp::Gather:
      case VmOp::LoadIf:
      case VmOp::LoadStridedIf:
      case VmOp::GatherIf:
      case VmOp::Aim:
      case VmOp::Store:
      case VmOp::StoreStrided:
      case VmOp::Scatter: out += cat(" buffer ", i.target); break;
      default: break;
    }
    out += '\n';
    if (i.op == VmOp::Loop || i.op == VmOp::VectorLoop || i.op == VmOp::While) ++depth;
  }
  return out;
}

}  // namespace kiln::codegen
