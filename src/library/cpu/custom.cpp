// Kernels that the user gave as C++ functions.
#include "library/custom.h"

#include "library/cpu/routines.h"
#include "support/check.h"

#include <kiln/error.h>

#include <cstring>
#include <exception>

namespace kiln::cpu {
namespace {

using library::Array;
using library::Call;
using library::CustomCall;

void copy(const CustomCall::Copy& c) {
  const Array& a = *c.from;
  const auto* from = static_cast<const std::byte*>(a.data);
  auto* to = static_cast<std::byte*>(c.to);
  std::int64_t count = 1;
  for (int axis = 0; axis < a.rank; ++axis) count *= a.dims[axis];
  const auto bytes = static_cast<std::size_t>(c.element_bytes);
  std::int64_t at[kMaxRank] = {}, offset = 0;
  for (std::int64_t i = 0; i < count; ++i, to += bytes) {
    std::memcpy(to, from + offset * c.element_bytes, bytes);
    for (int axis = a.rank; axis-- > 0;) {
      offset += a.strides[axis];
      if (++at[axis] < a.dims[axis]) break;
      offset -= a.strides[axis] * a.dims[axis];
      at[axis] = 0;
    }
  }
}

struct Custom final : library::Routine {
  void prepare(const Call& call) const override {
    const CustomCall custom(call);
    custom.check_bits();
    if (!custom.code().cpu)
      throw UserError(
          cat("[", custom.code().name, "] has no function for the CPU: CustomKernelOptions::cpu"));
  }
  std::size_t workspace_bytes(const Call& call) const override { return CustomCall(call).workspace_bytes(); }
  void run(const Call& call, std::byte* workspace) const override {
    CustomCall custom(call);
    custom.place(workspace);
    for (const CustomCall::Copy& c : custom.copies()) copy(c);
    ir::run_custom(custom.code(), custom.kernel_call());
  }
};

}  // namespace

const library::Routine& custom_routine() {
  static const Custom routine;
  return routine;
}

}  // namespace kiln::cpu
