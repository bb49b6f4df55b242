#include "ir/attributes.h"

#include "support/check.h"

#include <algorithm>
#include <vector>

namespace kiln::ir {
namespace {

template <class... As>
struct Kinds {
  static bool any_fits(Op op) { return (As::fits(op) || ...); }
  static bool well_stored(Op op, const Stored& s) { return ((As::fits(op) && same<As>(s)) || ...); }

 private:
  template <class A>
  static bool same(const Stored& s) {
    const A a = A::from(s);
    if (a.word() != s.word) return false;
    if constexpr (HasList<A>) {
      std::vector<std::int64_t> list(a.list_size());
      a.write_list(list.data());
      return std::ranges::equal(list, s.list);
    } else {
      return s.list.empty();
    }
  }
};

using Some = Kinds<Constant, Iota, Permute, Box, Position, Reduce, Scan, Loop, LoopResult, Gather, Scatter,
                   Sort, Search>;
using All = Kinds<Constant, Iota, Permute, Box, Position, Reduce, Scan, Loop, LoopResult, Gather, Scatter,
                  Sort, Search, Nothing>;

}  // namespace

bool Nothing::fits(Op op) { return !Some::any_fits(op); }

bool well_stored(Op op, const Stored& stored) { return All::well_stored(op, stored); }

void wrong_attributes(Op op) {
  KILN_CHECK_THAT(false, info(op).name, " has other attributes");
  __builtin_unreachable();
}

}  // namespace kiln::ir
