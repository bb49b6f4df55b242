// CustomCall: a call of a kernel that the user gave, as the kernel is to see it: row-major operands, and
// memory for every result. Operands that are no row-major arrays, and results that nobody reads, are given
// places in the call's workspace.
#pragma once

#include "ir/custom.h"
#include "library/call.h"

#include <kiln/custom_kernel.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kiln::library {

class CustomCall {
 public:
  explicit CustomCall(const Call& call);
  CustomCall(const CustomCall&) = delete;

  const ir::CustomCode& code() const { return code_; }
  /// Pre: no workspace is needed, or place() was called. Arrays without memory have null data.
  KernelCall kernel_call() const;
  std::size_t workspace_bytes() const { return bytes_; }
  /// Gives arrays that need it memory of the workspace.
  void place(std::byte* workspace);
  /// Operands that are to be copied to their places, row-major.
  struct Copy {
    const Array* from;
    void* to;
    std::int64_t element_bytes;
  };
  std::vector<Copy> copies() const;
  /// UserError: the modes in force want equal bits, and the kernel does not promise them.
  void check_bits() const;

 private:
  void add(KernelArray& array, std::size_t& offset);

  const Call& call_;
  const ir::CustomCode& code_;
  std::array<KernelArray, Call::kMostOperands> in_;
  std::array<KernelArray, Call::kMostResults> out_;
  std::size_t n_out_ = 0;
  static constexpr std::size_t kInPlace = static_cast<std::size_t>(-1);
  std::array<std::size_t, Call::kMostOperands> in_at_{};  // in the workspace, or kInPlace
  std::array<std::size_t, Call::kMostResults> out_at_{};
  std::size_t bytes_ = 0;
};

}  // namespace kiln::library
