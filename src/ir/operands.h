// Operands: the operands of a graph's node, any number of them, in order. Up to three stand in the node; a
// longer list is memory of its own that the node owns.
//
// A value like any other: a copy has operands of its own. Whoever renumbers the operands of a copied node
// does not change the node that it was copied from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

namespace kiln::ir {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = 0xffffffffu;

class Operands {
 public:
  Operands() = default;
  Operands(std::initializer_list<NodeId> ids) { assign(ids); }
  explicit Operands(std::span<const NodeId> ids) { assign(ids); }
  Operands(const Operands& o) { assign(o); }
  Operands(Operands&& o) noexcept { take(o); }
  Operands& operator=(const Operands& o) {
    if (this != &o) assign(o);
    return *this;
  }
  Operands& operator=(Operands&& o) noexcept {
    if (this != &o) take(o);
    return *this;
  }
  ~Operands() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  NodeId* begin() { return data(); }
  NodeId* end() { return data() + size_; }
  const NodeId* begin() const { return data(); }
  const NodeId* end() const { return data() + size_; }
  /// Pre: k < size().
  NodeId& operator[](std::size_t k) { return data()[k]; }
  NodeId operator[](std::size_t k) const { return data()[k]; }

  /// `ids` are none of its own.
  void assign(std::span<const NodeId> ids) {
    list_.reset(ids.size() > kInside ? new NodeId[ids.size()] : nullptr);
    size_ = static_cast<std::uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), data());
  }

  friend bool operator==(const Operands& a, const Operands& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr std::size_t kInside = 3;

  NodeId* data() { return size_ <= kInside ? inside_ : list_.get(); }
  const NodeId* data() const { return size_ <= kInside ? inside_ : list_.get(); }
  void take(Operands& o) noexcept {
    size_ = o.size_;
    std::copy(o.inside_, o.inside_ + kInside, inside_);
    list_ = std::move(o.list_);
    o.size_ = 0;
  }

  std::uint32_t size_ = 0;
  NodeId inside_[kInside] = {};
  std::unique_ptr<NodeId[]> list_;
};

}  // namespace kiln::ir
