#include "library/none/routines.h"

namespace kiln::none {
namespace {

struct Nothing final : library::Routine {
  void run(const library::Call&, std::byte*) const override {}
};
/// Its result takes the place of the first operand, as on the other devices.
struct NoScatter final : library::Routine {
  bool overwrites_first() const override { return true; }
  void run(const library::Call&, std::byte*) const override {}
};

}  // namespace

const library::Routine& routine(ir::Op op) {
  static const Nothing nothing;
  static const NoScatter scatter;
  if (op == ir::Op::scatter) return scatter;
  return nothing;
}

}  // namespace kiln::none
