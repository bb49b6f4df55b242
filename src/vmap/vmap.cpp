// What kiln/vmap.h calls that is no template.
#include <kiln/vmap.h>

#include "support/check.h"
#include "vmap/examples.h"

#include <kiln/ops.h>

#include <map>

namespace kiln {

void MapAxes::check(std::size_t arguments, const SourceLocation& loc) const {
  if (!every_ && axes_.size() != arguments)
    throw UserError(cat("[vmap] ", axes_.size(), " axes for ", arguments, " arguments"), loc);
  for (std::size_t i = 0; i < arguments; ++i)
    if (of(i)) return;
  throw UserError("[vmap] no argument is mapped", loc);
}

namespace detail {

struct Mapping::Call {
  std::map<std::size_t, std::vector<Tensor>> leaves;  // by argument, the examples along their first axes
  std::int64_t count = -1;
  std::string counted;  // the leaf that said how many
  std::optional<mapped::Examples> examples;
};

Mapping::Mapping(const MapAxes& axes, std::size_t arguments, const SourceLocation& loc)
    : axes_(axes), loc_(loc), call_(std::make_unique<Call>()) {
  axes.check(arguments, loc);
}
Mapping::~Mapping() = default;

void Mapping::add(std::span<const Tensor> leaves, std::span<const std::string> names, std::size_t argument) {
  const CallScope scope("vmap", loc_);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::string what = cat("argument ", argument, names[i].empty() ? "" : ", " + names[i] + ",", " is ",
                                 api::describe(leaves[i]));
    const int rank = leaves[i].rank();
    const std::int64_t given = axes_.of(argument)->value(), axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank)
      throw UserError(cat("[vmap] ", what, ", which has no axis ", given, " to map along"));
    const std::int64_t count = leaves[i].shape()[static_cast<int>(axis)];
    if (call_->count >= 0 && call_->count != count)
      throw UserError(cat("[vmap] ", what, ", ", count, " examples along axis ", given, "; ", call_->counted,
                          ", ", call_->count, " examples"));
    if (call_->count < 0) call_->counted = what;
    call_->count = count;
    call_->leaves[argument].push_back(moveaxis(leaves[i], axis, 0));
  }
}

void Mapping::refuse_argument(std::size_t argument) const {
  throw UserError(cat("[vmap] argument ", argument, " is no tree of tensors: give it the axis none"), loc_);
}

std::vector<Tensor> Mapping::examples(std::size_t argument) {
  if (call_->count < 0) throw UserError("[vmap] no mapped argument has a tensor", loc_);
  if (!call_->examples) call_->examples.emplace(call_->count);
  std::vector<Tensor> out;
  for (const Tensor& x : call_->leaves[argument]) out.push_back(call_->examples->one_of(x));
  return out;
}

std::vector<Tensor> Mapping::results(std::span<const Tensor> leaves, Axis axis) {
  std::vector<Tensor> out = call_->examples->all_of(leaves);
  const CallScope scope("vmap", loc_);
  for (Tensor& y : out) {
    const std::int64_t rank = y.rank(), to = axis.value();
    if (to < -rank || to >= rank)
      throw UserError(cat("[vmap] the function returns ",
                          api::describe(leaves[static_cast<std::size_t>(&y - out.data())]),
                          ": the result has no axis ", to, " for the examples"));
    y = moveaxis(y, 0, axis);
  }
  return out;
}

}  // namespace detail
}  // namespace kiln
