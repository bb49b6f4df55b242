#include "library/cpu/routines.h"

#include "device/cpu/threads.h"
#include "library/cpu/gemm.h"
#include "library/cpu/scatter.h"
#include "library/cpu/sort.h"

namespace kiln::cpu {
namespace {

using library::Call;
using library::Routine;

struct Product final : Routine {
  bool supports(const Call& call) const override { return library().supports(library::matmul_of(call)); }
  std::size_t workspace_bytes(const Call& call) const override {
    return library().workspace_bytes(library::matmul_of(call));
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
    std::vector<FusionVariant> out;
    if (sorts_side_by_side(library::sort_of(call))) out.push_back(FusionVariant::RowsAlone);
    if (thread_count() > 1) out.push_back(FusionVariant::OneThread);
    return out;
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
    std::vector<FusionVariant> out;
    const ScatterTables tables = scatter_tables(library::scatter_of(call));
    if (tables.possible) out.push_back(tables.used ? FusionVariant::OneTable : FusionVariant::OwnTables);
    if (thread_count() > 1) out.push_back(FusionVariant::OneThread);
    return out;
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
