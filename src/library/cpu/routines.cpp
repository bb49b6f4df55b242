#include "library/cpu/routines.h"

#include "library/cpu/gemm.h"
#include "library/cpu/scatter.h"
#include "library/cpu/sort.h"
#include "support/check.h"

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
  void run(const Call& call, std::byte* workspace) const override {
    scatter(library::scatter_of(call), workspace);
  }
};

}  // namespace

const Routine& routine(ir::Op op) {
  static const Product product;
  static const Sorting sorting;
  static const Searching searching;
  static const Scattering scattering;
  if (op == ir::Op::matmul) return product;
  if (op == ir::Op::sort || op == ir::Op::argsort) return sorting;
  if (op == ir::Op::searchsorted) return searching;
  if (op == ir::Op::scatter) return scattering;
  KILN_CHECK_THAT(false, "the CPU has no routine for ", ir::info(op).name);
  return product;
}

}  // namespace kiln::cpu
