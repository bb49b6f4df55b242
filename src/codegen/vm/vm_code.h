// Bytecode of the vm: what a section of a kernel becomes.
//
// Two kinds of operand. A *scalar* is an eight-byte slot, written at one place (loop variables and
// accumulators excepted). A *value* is a vector of the current Vector loop's block, or a uniform strip; its
// address stands in a table that contiguous loads point straight into memory. Several values share storage
// when their lives do not overlap.
#pragma once

#include "codegen/vm/vm_loops.h"
#include "kernel/eval.h"
#include "kernel/kernel.h"

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::codegen {

enum class VmOp : std::uint8_t {
#define KILN_VM_OP(Name) Name,
#include "codegen/vm/vm_ops.def"
#undef KILN_VM_OP
};

inline constexpr std::uint32_t kVmNone = 0xffffffffu;
inline constexpr std::int64_t kVmSlotBytes = 8 * kStrip;  // of a VmCustom

struct VmInstr {
  using EachFn = kernel::ArrayFn;
  VmOp op = VmOp::End;
  std::uint8_t steps = 0;  // bit k: operand k is a block (not a uniform strip)
  std::uint8_t size = 0;   // bytes of an element
  bool truth = false;      // Bool: anything but 0 is loaded as 1
  std::uint32_t out = kVmNone, a = kVmNone, b = kVmNone, c = kVmNone;
  std::uint32_t target = 0;  // jumps: instruction; memory: buffer
  union {
    std::uint64_t imm = 0;
    ApplyFn apply;
    EachFn each;
    ReduceFn reduce;
    ArgReduceFn arg_reduce;
  };
};

/// A custom monoid on lanes: Apply and Each instructions over slots, a strip each.
struct VmCustom {
  struct Constant {
    std::uint32_t slot;
    std::uint8_t size;
    std::uint64_t bits;
  };
  struct Part {
    std::uint8_t size;
    std::uint64_t identity;
    std::uint32_t earlier, later, lifted, merged;  // slots
  };
  std::vector<Part> parts;
  std::vector<VmInstr> lift, merge, show;
  std::vector<Constant> constants;  // slots that nothing is written to
  std::uint32_t value = 0, shown = 0, slots = 1;
  std::int64_t offset = 0;  // of the slots in the working memory
};

/// An accumulator with lanes side by side, combined when its loop ends.
struct VmLanes {
  std::int64_t count = 0;
  std::int64_t offset = 0;  // in the working memory; positions follow the values
  std::uint8_t size = 0;
  bool positional = false;
  bool scan = false;         // the same on all lanes: what the last one hands on
  ReduceFn merge = nullptr;  // null: by `each` on single elements, or by `custom`, if that has parts
  VmInstr::EachFn each = nullptr;
  bool swap = false;  // each(x, acc) instead of each(acc, x)
  std::uint64_t identity = 0;
  ArgReduceFn arg_merge = nullptr;
  VmCustom custom;  // then each lane has the parts one after the other, `count` of each
};

struct VmValue {
  std::int64_t offset = -1;  // in the working memory, or, if `constant`, in the section's constants
  bool constant = false;
  std::uint8_t size = 0;  // bytes of an element
};

struct VmSection {
  std::vector<VmInstr> code;
  std::vector<std::uint64_t> scalars;  // as they are at the start; [0] and [1] receive the grid's range
  std::vector<VmValue> values;
  std::vector<VmLanes> lanes;
  std::vector<std::byte> constants;  // strips
  std::int64_t block = 0;            // lanes of a block
  std::int64_t table_offset = 0;     // addresses of values, in the working memory
  std::int64_t memory_bytes = 0;
};

struct VmBuffer {
  bool scratch = false;
  std::uint32_t offset_param = 0;
};

/// One section of a kernel (body or finish). Pre: kernel::verify(kernel).
VmSection translate(const kernel::Kernel& kernel, const std::vector<kernel::Stmt>& section,
                    const VmLoops& loops);

/// Readable bytecode.
std::string print(const VmSection& section);

}  // namespace kiln::codegen
