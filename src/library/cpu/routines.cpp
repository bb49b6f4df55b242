#include "library/cpu/routines.h"

#include "device/cpu/threads.h"
#include "library/cpu/gemm.h"
#include "library/cpu/scatter.h"
#include "library/cpu/sort.h"

namespace kiln::cpu {
namespace {

using library::Call;
using library::Routine;

/// The choices of a call, and one thread for it.
std::vector<FusionVariant> with_threads(const Call& call, library::Variants choices) {
  if (thread_count() > 1 && !call.ways.has(FusionVariant::OneThread)) choices.add(FusionVariant::OneThread);
  return choices.list();
}

struct Product final : Routine {
  bool supports(const Call& call) const override { return library().supports(library::matmul_of(call)); }
  std::size_t workspace_bytes(const Call& call) const override {
    return library().workspace_bytes(library::matmul_of(call));
  }
  std::shared_ptr<const library::FixedCall> fixed(const Call& call) const override {
    return fixed_product(library::matmul_of(call));
  }
  void run(const Call& call, std::byte* workspace) const override {
    library().matmul(library::matmul_of(call), workspace);
  }
};

struct Sorting final : Routine {
  std::size_t workspace_bytes(const Call& call) const override {
    return sort_workspace_bytes(library::sort_of(call));
  }
  std::vector<FusionVariant> ways(const Call& call) const override {
    return with_threads(call, sort_choices(library::sort_of(call)));
  }
  void run(const Call& call, std::byte* workspace) const override { sort(library::sort_of(call), workspace); }
};

struct Searching final : Routine {
  void run(const Call& call, std::byte*) const override { search(library::search_of(call)); }
};

struct Scattering final : Routine {
  bool overwrites_first() const override { return true; }
  std::size_t workspace_bytes(const Call& call) const override {
    return scatter_workspace_bytes(library::scatter_of(call));
  }
  std::vector<FusionVariant> ways(const Call& call) const override {
    return with_threads(call, scatter_choices(library::scatter_of(call)));
  }
  int made_in_pieces(const Call& call) const override {
    return scatter_counts_in_order(library::scatter_of(call)) ? 1 : -1;
  }
  void run(const Call& call, std::byte* workspace) const override {
    scatter(library::scatter_of(call), workspace);
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

}  // namespace kiln::cpu
