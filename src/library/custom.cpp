#include "library/custom.h"

#include "support/check.h"

#include <kiln/error.h>

namespace kiln::library {
namespace {

constexpr std::size_t kAlignment = 256;

bool is_row_major(const Array& a) {
  std::int64_t step = 1;
  for (int axis = a.rank; axis-- > 0;) {
    if (a.dims[axis] == 0) return true;
    if (a.dims[axis] != 1 && a.strides[axis] != step) return false;
    step *= a.dims[axis];
  }
  return true;
}

}  // namespace

CustomCall::CustomCall(const Call& call)
    : call_(call), code_(ir::custom_code(ir::attributes<ir::Custom>(call).kernel)) {
  const auto custom = ir::attributes<ir::Custom>(call);
  n_out_ = custom.results;
  for (std::size_t i = 0; i < call.n_operands; ++i) {
    const Operand& from = call.operands[i];
    in_[i].data = const_cast<void*>(from.array.data);
    in_[i].dtype = from.dtype;
    in_[i].shape = {from.array.dims, static_cast<std::size_t>(from.array.rank)};
    in_at_[i] = kInPlace;
    if (!is_row_major(from.array)) add(in_[i], in_at_[i]);
  }
  for (std::size_t i = 0; i < n_out_; ++i) {
    out_[i].data = i == 0 ? call.out : call.others[i - 1];
    out_[i].dtype = i == 0 ? call.dtype : custom.dtype(i);
    out_[i].shape = i == 0
                        ? std::span<const std::int64_t>(call.dims.data(), static_cast<std::size_t>(call.rank))
                        : custom.dims(i);
    out_at_[i] = kInPlace;
    if (!is_wanted(call, i)) add(out_[i], out_at_[i]);
  }
}

void CustomCall::add(KernelArray& array, std::size_t& offset) {
  offset = bytes_;
  const auto bytes = static_cast<std::size_t>(array.numel() * size_of(array.dtype));
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void CustomCall::place(std::byte* workspace) {
  for (std::size_t i = 0; i < call_.n_operands; ++i)
    if (in_at_[i] != kInPlace) in_[i].data = workspace + in_at_[i];
  for (std::size_t i = 0; i < n_out_; ++i)
    if (out_at_[i] != kInPlace) out_[i].data = workspace + out_at_[i];
}

std::vector<CustomCall::Copy> CustomCall::copies() const {
  std::vector<Copy> out;
  for (std::size_t i = 0; i < call_.n_operands; ++i)
    if (in_at_[i] != kInPlace) out.push_back({&call_.operands[i].array, in_[i].data, size_of(in_[i].dtype)});
  return out;
}

KernelCall CustomCall::kernel_call() const {
  return {code_.name,
          {in_.data(), call_.n_operands},
          {out_.data(), n_out_},
          ir::attributes<ir::Custom>(call_).numbers()};
}

void CustomCall::check_bits() const {
  if (!call_.exact || code_.same_bits) return;
  throw UserError(cat("[", code_.name, "] the ", call_.strict ? "strict" : "deterministic",
                      " mode needs kernels that give the same bits each time: if this one does, say so with "
                      "same_bits in its CustomKernelOptions"));
}

}  // namespace kiln::library
