// What a training program needs beside gradients and optimisers: shuffled batches, and trees in files.
#pragma once

#include <kiln/io.h>
#include <kiln/random.h>
#include <kiln/tree.h>

#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kiln {

namespace detail {
/// The extent of the first axis that all leaves share. UserError otherwise.
[[nodiscard]] std::int64_t examples(const std::vector<Tensor>& leaves, std::int64_t size, SourceLocation loc);
/// The order of a pass over `count` examples, in memory.
[[nodiscard]] Tensor shuffled(random::Key key, std::int64_t count, SourceLocation loc);
/// Rows `start` to `start + size` of x in that order; an empty order is x's own.
[[nodiscard]] Tensor batch_of(const Tensor& x, const Tensor& order, std::int64_t start, std::int64_t size,
                              SourceLocation loc);
}  // namespace detail

/// The batches of one pass over a data set; see `batches`.
template <Tree T>
class Batches {
 public:
  class Iterator {
   public:
    using value_type = T;
    using reference = T;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;  // batches are made when they are asked for
    Iterator() = default;
    Iterator(const Batches* of, std::int64_t start) : of_(of), start_(start) {}
    [[nodiscard]] T operator*() const { return of_->from(start_); }
    Iterator& operator++() { return start_ += of_->size_, *this; }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.start_ == b.start_; }

   private:
    const Batches* of_ = nullptr;
    std::int64_t start_ = 0;
  };

  Batches(const T& arrays, Tensor order, std::int64_t examples, std::int64_t size, bool rest,
          SourceLocation loc)
      : arrays_(arrays), order_(std::move(order)), examples_(examples), size_(size), loc_(loc) {
    count_ = (examples + (rest ? size - 1 : 0)) / size;
  }
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, count_ * size_}; }
  /// The number of batches.
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(count_); }

 private:
  [[nodiscard]] T from(std::int64_t start) const {
    const std::int64_t size = std::min(size_, examples_ - start);
    return tree_map([&](const Tensor& x) { return detail::batch_of(x, order_, start, size, loc_); }, arrays_);
  }

  T arrays_;
  Tensor order_;
  std::int64_t examples_ = 0, size_ = 1, count_ = 0;
  SourceLocation loc_;
};

/// The rows of arrays, `size` at a time, in an order drawn from the key, each row once:
///
///     for (const auto& [x, y] : batches(std::pair(images, labels), 64, random::fold_in(key, epoch)))
///
/// `arrays` is a tree whose leaves have equal first extents, and so is each batch. A last batch of fewer rows
/// is left out unless `rest`. All batches of a size are one plan. UserError unless size >= 1 and the extents
/// agree.
template <Tree T>
[[nodiscard]] Batches<T> batches(const T& arrays, Whole size, random::Key key, Flag rest = false,
                                 SourceLocation loc = SourceLocation::current()) {
  const std::int64_t count = detail::examples(tree_leaves(arrays), size, loc);
  return {arrays, detail::shuffled(key, count, loc), count, size, rest, loc};
}
/// The same in the order of the arrays, with a last batch of fewer rows.
template <Tree T>
[[nodiscard]] Batches<T> batches(const T& arrays, Whole size,
                                 SourceLocation loc = SourceLocation::current()) {
  return {arrays, {}, detail::examples(tree_leaves(arrays), size, loc), size, true, loc};
}

// ---------------------------------------------------------------------------------------------------------

namespace detail {
/// A number that a tree carries, as a file holds it.
template <class N>
[[nodiscard]] Tensor number_tensor(N value) {
  if constexpr (ElementType<N>)
    return Tensor(value);
  else
    return Tensor(static_cast<std::conditional_t<std::is_floating_point_v<N>, double, std::int64_t>>(value));
}
/// The tensor of that name. UserError unless there is one like `like`, where that is given.
[[nodiscard]] const Tensor& named(const TensorMap& tensors, const std::string& name, const Tensor* like,
                                  SourceLocation loc);
[[noreturn]] void unknown_names(const TensorMap& tensors, const std::map<std::string, bool>& used,
                                SourceLocation loc);
}  // namespace detail

/// The leaves of a tree by their names ("layers.0.weight"), and the C++ numbers that it carries.
template <Tree T>
[[nodiscard]] TensorMap to_tensors(const T& tree) {
  TensorMap out;
  detail::walk_trees(
      "to_tensors",
      [&]<class L>(const TreePath& path, const L& leaf) {
        if constexpr (std::same_as<L, Tensor>)
          out[path.str()] = leaf;
        else
          out[path.str()] = detail::number_tensor(leaf);
      },
      tree);
  return out;
}

/// A tree like another one, with its leaves and numbers from `tensors`. UserError for a name that is missing
/// or that the tree has not, and for a shape or dtype that is not that of `like`.
template <Tree T>
[[nodiscard]] T from_tensors(const T& like, const TensorMap& tensors,
                             SourceLocation loc = SourceLocation::current()) {
  T out = like;
  std::map<std::string, bool> used;
  detail::walk_trees(
      "from_tensors",
      [&]<class L>(const TreePath& path, L& leaf) {
        const std::string name = path.str();
        used[name] = true;
        if constexpr (std::same_as<L, Tensor>)
          leaf = detail::named(tensors, name, &leaf, loc);
        else
          leaf = static_cast<L>(detail::named(tensors, name, nullptr, loc).template item<double>(loc));
      },
      out);
  if (used.size() != tensors.size()) detail::unknown_names(tensors, used, loc);
  return out;
}

/// A tree as a safetensors file; load_tree(path, like) reads it into a tree like another one.
/// save_tree(path, std::pair(params, state)) is a checkpoint. Errors: those of save_safetensors.
template <Tree T>
void save_tree(const std::filesystem::path& path, const T& tree,
               const std::map<std::string, std::string>& metadata = {},
               SourceLocation loc = SourceLocation::current()) {
  save_safetensors(path, to_tensors(tree), metadata, loc);
}
/// The leaves borrow the file as load_safetensors describes it. Errors: those of load_safetensors and
/// from_tensors.
template <Tree T>
[[nodiscard]] T load_tree(const std::filesystem::path& path, const T& like,
                          SourceLocation loc = SourceLocation::current()) {
  return from_tensors(like, load_safetensors(path, loc).tensors, loc);
}

}  // namespace kiln
