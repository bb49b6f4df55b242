// Sequence: numbered items in an order in which they can be moved, and compared at once.
//
// A list whose items carry labels that ascend along it. A move labels an item between its neighbours; where
// there is no number left between them, the labels that follow are spread: as many as it takes until they lie
// j apart for j of them (Dietz and Sleator, "Two algorithms for maintaining order in a list", 1987), which is
// a constant number of labels a move, amortised over all but log n.
#pragma once

#include <cstdint>
#include <vector>

namespace kiln::plan {

class Sequence {
 public:
  /// Appends the next item: items are numbered in the order in which they are appended.
  void push_back();
  /// Where an item stands: item a stands before item b where place(a) < place(b). Any move may change places.
  std::int64_t place(int item) const { return items_[index(item)].label; }
  /// Takes an item out of the order. Pre: it is in it.
  void remove(int item);
  /// Puts an item right behind another one. Pre: `item` is not in the order, `behind` is.
  void insert(int item, int behind);

 private:
  struct Item {
    std::int64_t label;
    int before, after;  // -1: none
  };
  static std::size_t index(int item) { return static_cast<std::size_t>(item); }
  std::int64_t label_after(int item) const;
  void make_room(int behind);

  std::vector<Item> items_;
  int last_ = -1;
};

}  // namespace kiln::plan
