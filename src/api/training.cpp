// The parts of kiln/training.h that need no template: rows of a batch, and tensors by name.
#include <kiln/training.h>

#include "api/record.h"
#include "support/check.h"

namespace kiln::detail {

std::int64_t examples(const std::vector<Tensor>& leaves, std::int64_t size, SourceLocation loc) {
  const CallScope scope("batches", loc);
  if (size < 1) throw UserError(cat("[batches] size = ", size, ", needs at least 1"));
  if (leaves.empty()) throw UserError("[batches] there are no arrays");
  for (const Tensor& x : leaves)
    if (x.rank() == 0) throw UserError("[batches] an array of rank 0 has no rows");
  for (const Tensor& x : leaves)
    if (x.dim(0) != leaves[0].dim(0))
      throw UserError(cat("[batches] arrays of different first extents: ", api::describe(leaves[0]), " and ",
                          api::describe(x)));
  return leaves[0].dim(0);
}

Tensor shuffled(random::Key key, std::int64_t count, SourceLocation loc) {
  return random::permutation(key, count, {}, loc).eval(loc);
}

/// The start is an operand, not an index: the batches of a pass have one plan from the first on.
Tensor batch_of(const Tensor& x, const Tensor& order, std::int64_t start, std::int64_t size,
                SourceLocation loc) {
  const CallScope scope("batches", loc);
  if (order.valid()) return take(x, dynamic_slice(order, {start}, size), 0);
  std::vector<Operand> starts(static_cast<std::size_t>(x.rank()), Operand(0));
  starts[0] = Operand(start);
  Shape sizes = x.shape();
  sizes[0] = size;
  return dynamic_slice(x, starts, sizes);
}

const Tensor& named(const TensorMap& tensors, const std::string& name, const Tensor* like,
                    SourceLocation loc) {
  const CallScope scope("from_tensors", loc);
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw UserError(cat("[from_tensors] there is no tensor ", name));
  const Tensor& x = found->second;
  if (like ? !(x.shape() == like->shape()) || x.dtype() != like->dtype() : x.numel() != 1)
    throw UserError(cat("[from_tensors] ", name, " is ", api::describe(x), ", the tree has ",
                        like ? api::describe(*like) : "a number"));
  return x;
}

void unknown_names(const TensorMap& tensors, const std::map<std::string, bool>& used, SourceLocation loc) {
  const CallScope scope("from_tensors", loc);
  for (const auto& [name, tensor] : tensors)
    if (!used.contains(name))
      throw UserError(cat("[from_tensors] the tree has no place for ", printable(name)));
  throw UserError("[from_tensors] two leaves have one name");
}

}  // namespace kiln::detail
