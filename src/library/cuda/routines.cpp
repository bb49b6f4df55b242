#include "library/cuda/routines.h"

#include "device/cuda/driver.h"
#include "library/cuda/blas.h"
#include "library/cuda/host_product.h"
#include "library/cuda/scatter.h"
#include "library/cuda/scatter_ways.h"
#include "library/cuda/search.h"
#include "library/cuda/sort.h"

namespace kiln::cuda {
namespace {

using library::Call;
using library::Routine;

/// cuBLASLt's, and the host's where that has none: then a bias is added there, too.
struct Product final : Routine {
  bool is_recordable(const Call& call) const override {
    return !call.strict && blas().available && library(call.device.index).supports(library::matmul_of(call));
  }
  /// A bias is taken where adding it costs nothing.
  bool supports(const Call& call) const override {
    return (call.n_operands < 3 && call.dtype == call.operands[0].dtype) || is_recordable(call);
  }
  std::size_t workspace_bytes(const Call& call) const override {
    return is_recordable(call) ? library(call.device.index).workspace_bytes(library::matmul_of(call)) : 0;
  }
  void run(const Call& call, std::byte* workspace) const override {
    if (is_recordable(call))
      library(call.device.index).matmul(library::matmul_of(call), workspace);
    else
      multiply_on_host(library::matmul_of(call), current_stream(call.device.index));
  }
};

struct Sorting final : Routine {
  std::vector<FusionVariant> ways(const Call& call) const override {
    return sort_choices(library::sort_of(call), device(call.device.index).major).list();
  }
  void run(const Call& call, std::byte*) const override {
    sort(library::sort_of(call), current_stream(call.device.index));
  }
};

struct Searching final : Routine {
  void run(const Call& call, std::byte*) const override {
    search(library::search_of(call), current_stream(call.device.index));
  }
};

struct Scattering final : Routine {
  bool overwrites_first() const override { return true; }
  bool is_recordable(const Call& call) const override {
    return cuda::is_recordable(library::scatter_of(call), device(call.device.index).l2_bytes);
  }
  std::size_t workspace_bytes(const Call& call) const override {
    return scatter_bytes(library::scatter_of(call), device(call.device.index).l2_bytes);
  }
  std::optional<library::Counting> counted(const Call& call) const override {
    const DeviceInfo& d = device(call.device.index);
    const auto counting = counting_of(library::scatter_of(call), d.sm_count, d.l2_bytes);
    const bool fits =
        counting && counting->shared_bytes <= static_cast<std::uint32_t>(d.shared_per_block_optin);
    return fits ? counting : std::nullopt;
  }
  std::vector<FusionVariant> ways(const Call& call) const override {
    return scatter_choices(library::scatter_of(call), device(call.device.index).l2_bytes).list();
  }
  void run(const Call& call, std::byte* workspace) const override {
    scatter(library::scatter_of(call), current_stream(call.device.index), workspace);
  }
};

}  // namespace

const Routine& matmul_routine() {
  static const Product routine;
  return routine;
}

const Routine& sort_routine() {
  static const Sorting routine;
  return routine;
}

const Routine& argsort_routine() { return sort_routine(); }
const Routine& sort_with_positions_routine() { return sort_routine(); }

const Routine& searchsorted_routine() {
  static const Searching routine;
  return routine;
}

const Routine& scatter_routine() {
  static const Scattering routine;
  return routine;
}

const Routine& routine(ir::Op op) {
  static constexpr library::OpRoutine kAll[] = {
#define KILN_STRUCTURAL(...)
#define KILN_LIBRARY(Name, ...) {ir::Op::Name, Name##_routine},
#include "ir/structural.def"
#undef KILN_STRUCTURAL
  };
  return library::routine_of(kAll, op);
}

}  // namespace kiln::cuda
