// Kernels that the user gave (kiln/custom_kernel.h), by number. A node `custom` has the number of its kernel;
// equal code has one number, so that plans of calls that are made anew each time are found again.
//
// Kernels are kept until the process ends: nodes and plans have numbers only, and count nothing.
#pragma once

#include "ir/attributes.h"

#include <kiln/custom_kernel.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::ir {

/// What a device runs. Two of these are one kernel if all members are equal.
struct CustomCode {
  std::string name;
  CpuKernel cpu = nullptr;
  std::string cuda_source, cuda_function;
  CudaLaunch (*cuda_launch)(const KernelCall&) = nullptr;
  bool same_bits = false;

  friend bool operator==(const CustomCode&, const CustomCode&) = default;
};

/// Whether a kernel of this name was made.
bool is_custom_name(std::string_view name);

/// The number of a kernel, which is kept.
std::uint32_t keep_custom(CustomCode code);
/// Pre: the number is a kernel's. The reference lives as long as the process.
const CustomCode& custom_code(std::uint32_t kernel);

/// Runs the function for the CPU. What it throws becomes a UserError with the kernel's name.
void run_custom(const CustomCode& code, const KernelCall& call);

/// The words of ir::Custom. `others`: the types of the results after the first.
std::vector<std::int64_t> custom_words(KernelNumbers numbers, std::span<const KernelType> others);

/// The name of an operation for people: that of a custom kernel is the user's.
std::string_view name_of(Op op, const Stored& attributes);
template <class N>
std::string_view name_of(const N& node) {
  return name_of(node.op, stored(node));
}

}  // namespace kiln::ir

namespace kiln {

struct CustomKernel::State {
  CustomKernelOptions options;
  std::uint32_t number = 0;
};

/// What a handle stands for.
struct CustomKernelAccess {
  static const CustomKernelOptions& options(const CustomKernel& kernel) { return kernel.state_->options; }
  static std::uint32_t number(const CustomKernel& kernel) { return kernel.state_->number; }
  static CustomKernel make(CustomKernelOptions options, std::uint32_t number) {
    CustomKernel out;
    out.state_ = std::make_shared<const CustomKernel::State>(CustomKernel::State{std::move(options), number});
    return out;
  }
};

}  // namespace kiln
