#include "ir/attributes.h"

#include "support/check.h"

#include <algorithm>
#include <vector>

namespace kiln::ir {
namespace {

template <class A>
bool comes_back(const Stored& s) {
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

template <class... As>
bool any_fits(Kinds<As...>, Op op) {
  return (As::fits(op) || ...);
}
template <class... As>
bool comes_back(Kinds<As...>, Op op, const Stored& s) {
  return ((As::fits(op) && comes_back<As>(s)) || ...);
}

}  // namespace

bool Nothing::fits(Op op) { return !any_fits(AttributeKinds{}, op); }

bool well_stored(Op op, const Stored& stored) {
  return comes_back(AttributeKinds{}, op, stored) || (Nothing::fits(op) && comes_back<Nothing>(stored));
}

void wrong_attributes(Op op) {
  KILN_CHECK_THAT(false, info(op).name, " has other attributes");
  __builtin_unreachable();
}

}  // namespace kiln::ir
