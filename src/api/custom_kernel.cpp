#include <kiln/custom_kernel.h>

#include "api/record.h"
#include "device/cpu/threads.h"
#include "ir/custom.h"
#include "library/call.h"
#include "record/tape.h"
#include "support/check.h"

#include <kiln/config.h>
#include <kiln/custom_vjp.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

namespace kiln {
namespace {

using api::describe;
using ir::NodeRef;

constexpr std::size_t kMostNumbers = 32;

/// A kernel that this device cannot run at all is refused where it is called; values that were made of no
/// argument may be computed on any device.
void check_device(const ir::CustomCode& code, const ir::Node& node) {
  if (node.device == ir::kAnyDevice || config().mode == Mode::Interpret) return;
  const Device device = ir::device_of(node.device);
  if (device.kind == Device::Kind::Cpu && !code.cpu)
    throw UserError(cat("[", code.name, "] has no function for the CPU, where its operands are"));
  if (device.kind == Device::Kind::Cuda && code.cuda_source.empty())
    throw UserError(cat("[", code.name, "] has no CUDA C, and its operands are on ", device.str()));
}

std::string listed(std::span<const Tensor> operands) {
  std::string out;
  for (const Tensor& x : operands) out += cat(out.empty() ? "" : ", ", describe(x));
  return out;
}

}  // namespace

void KernelArray::wrong_type(DType asked) const {
  throw UserError(
      cat("[kernel] an array of ", kiln::name(dtype), " was asked for its elements as ", kiln::name(asked)));
}

void KernelCall::parallel_for(std::int64_t n, std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t)>& f) const {
  cpu::parallel_for(n, std::max<std::int64_t>(1, grain),
                    [&](std::int64_t begin, std::int64_t end, int) { f(begin, end); });
}

CudaLaunch CudaLaunch::each(std::int64_t n) {
  CudaLaunch out;
  const std::int64_t blocks = std::max<std::int64_t>(1, (n + 255) / 256);
  if (blocks > std::int64_t{0x7fffffff})
    throw UserError(cat("[CudaLaunch] ", n, " items are more than one thread each"));
  out.grid[0] = static_cast<std::uint32_t>(blocks);
  out.block[0] = 256;
  out.numbers = {n};
  return out;
}

namespace {

struct CustomCalls {
  /// The types of the results, as the user's function says.
  static KernelTypes types_of(const CustomKernelOptions& options, std::span<const Tensor> operands,
                              KernelNumbers numbers) {
    KernelTypes in;
    for (const Tensor& x : operands) {
      const ir::Node* const node = api::checked(options.name, x);
      in.push_back({Shape(node->dims()), node->dtype});
    }
    KernelTypes out;
    try {
      out = options.results(in, numbers);
    } catch (const UserError& e) {
      // An error that the function throws by itself begins with the kernel's name, whatever it says.
      const std::string_view message = e.message();
      const std::string mark = cat("[", options.name, "]");
      throw UserError(message.starts_with(mark) ? std::string(message) : cat(mark, " ", message));
    }
    if (out.empty() || out.size() > library::Call::kMostResults)
      throw UserError(cat("[", options.name, "] its `results` gives ", out.size(), " types for ",
                          listed(operands), ": a kernel has 1 to ", library::Call::kMostResults, " results"));
    return out;
  }

  static std::vector<Tensor> record(const CustomKernel& kernel, std::span<const Tensor> operands,
                                    KernelNumbers numbers) {
    const std::uint32_t number = CustomKernelAccess::number(kernel);
    const KernelTypes types = types_of(CustomKernelAccess::options(kernel), operands, numbers);
    const NodeRef node = NodeRef::adopt(ir::new_node(ir::Op::custom, types[0].dtype, types[0].shape));
    std::vector<ir::Node*> in;
    for (const Tensor& x : operands) in.push_back(x.node());
    ir::set_inputs(node.get(), in);
    const auto others = std::span(types).subspan(1);
    const std::vector<std::int64_t> words = ir::custom_words(numbers, others);
    ir::set_attributes(node.get(), ir::Custom{number, static_cast<std::uint32_t>(types.size()), words});
    check_device(ir::custom_code(number), *node);
    std::vector<NodeRef> parts = api::part_nodes(node, types.size());
    std::vector<Tensor> out(parts.size());
    for (std::size_t i = parts.size(); i-- > 0;) out[i] = api::finish(std::move(parts[i]));
    return out;
  }

  /// A call under the derivative that was given.
  static detail::CustomRule rule(const CustomKernel& kernel, std::span<const Tensor> operands,
                                 std::span<const Tensor> results, KernelNumbers numbers) {
    using Linear = decltype(CustomKernelOptions::backward);
    const std::vector<Tensor> in(operands.begin(), operands.end()), out(results.begin(), results.end());
    const std::vector<std::int64_t> given(numbers.begin(), numbers.end());
    const auto linear = [=](const Linear& f, const char* missing, std::span<const Tensor> g,
                            const std::vector<Tensor>& like) {
      const std::string& name = kernel.name();
      if (!f)
        throw UserError(
            cat("[", name, "] the kernel has no derivative: its CustomKernelOptions have no ", missing));
      // Inside another derivative the results are values of this one, too.
      const std::vector<Tensor> y = detail::differentiating() ? kernel.call(in, given) : out;
      const OutsideCalls users;
      return f(detail::with_zeros(g, like), y, in);
    };
    detail::CustomRule rule;
    rule.name = kernel.name();
    rule.pull = [=](std::span<const Tensor> g) {
      return linear(CustomKernelAccess::options(kernel).backward, "backward", g, out);
    };
    rule.push = [=](std::span<const Tensor> t) {
      return linear(CustomKernelAccess::options(kernel).forward, "forward", t, in);
    };
    return rule;
  }
};

}  // namespace

std::vector<Tensor> CustomKernel::call(std::span<const Tensor> operands, KernelNumbers numbers,
                                       SourceLocation loc) const {
  const State& s = *state_;
  const CallScope scope(s.options.name, loc);
  if (operands.size() > library::Call::kMostOperands || numbers.size() > kMostNumbers)
    throw UserError(cat("[", s.options.name, "] called with ", operands.size(), " operands and ",
                        numbers.size(), " numbers: at most ", library::Call::kMostOperands, " and ",
                        kMostNumbers));
  if (!detail::differentiating()) return CustomCalls::record(*this, operands, numbers);
  std::vector<Tensor> in;
  for (const Tensor& x : operands) {
    api::checked(s.options.name, x);
    in.push_back(stop_gradient(x));
  }
  const std::vector<Tensor> out = CustomCalls::record(*this, in, numbers);
  return detail::with_rule(CustomCalls::rule(*this, operands, out, numbers), operands, out);
}

Tensor CustomKernel::operator()(std::initializer_list<Tensor> operands,
                                std::initializer_list<std::int64_t> numbers, SourceLocation loc) const {
  std::vector<Tensor> out = call({operands.begin(), operands.size()}, {numbers.begin(), numbers.size()}, loc);
  if (out.size() != 1) throw UserError(cat("[", name(), "] has ", out.size(), " results: use call()"), loc);
  return std::move(out[0]);
}

const std::string& CustomKernel::name() const { return state_->options.name; }

CustomKernel custom_kernel(CustomKernelOptions options, SourceLocation loc) {
  const CallScope scope("custom_kernel", loc);
  const std::string what = cat("[custom_kernel] ", options.name.empty() ? "a kernel" : options.name);
  if (options.name.empty()) throw UserError(what + " has no name");
  if (!options.results) throw UserError(what + " has no function `results`, which says shapes and dtypes");
  const CudaKernel& cuda = options.cuda;
  if (!options.cpu && cuda.source.empty())
    throw UserError(what + " has neither a function for the CPU nor CUDA C");
  if (!cuda.source.empty() && (cuda.function.empty() || !cuda.launch))
    throw UserError(what + " has CUDA C without the name of its function or without a launch");
  if (cuda.source.empty() && (!cuda.function.empty() || cuda.launch))
    throw UserError(what + " has a launch and no CUDA C");
  const std::uint32_t number = ir::keep_custom(
      {options.name, options.cpu, cuda.source, cuda.function, cuda.launch, options.same_bits});
  return CustomKernelAccess::make(std::move(options), number);
}

}  // namespace kiln
