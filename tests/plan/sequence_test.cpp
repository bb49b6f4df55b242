// Sequence against a plain list, under moves that use up the numbers between two items.
#include "plan/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kiln::plan {
namespace {

class Moved {
 public:
  explicit Moved(int n) {
    for (int i = 0; i < n; ++i) {
      list_.push_back(i);
      sequence_.push_back();
    }
  }
  int at(std::size_t place) const { return list_[place]; }
  void move(int item, int behind) {
    sequence_.remove(item);
    list_.erase(std::find(list_.begin(), list_.end(), item));
    sequence_.insert(item, behind);
    list_.insert(std::find(list_.begin(), list_.end(), behind) + 1, item);
  }
  void remove(int item) {
    sequence_.remove(item);
    list_.erase(std::find(list_.begin(), list_.end(), item));
  }
  std::size_t size() const { return list_.size(); }
  void check() const {
    for (std::size_t i = 1; i < list_.size(); ++i)
      ASSERT_LT(sequence_.place(list_[i - 1]), sequence_.place(list_[i])) << "at " << i;
  }

 private:
  std::vector<int> list_;
  Sequence sequence_;
};

TEST(Sequence, KeepsTheOrderOfRandomMoves) {
  std::mt19937 gen(3);
  Moved moved(200);
  for (int step = 0; step < 20000; ++step) {
    const int item = moved.at(gen() % moved.size()), behind = moved.at(gen() % moved.size());
    if (item != behind) moved.move(item, behind);
    if (step % 1000 == 0 && moved.size() > 100) moved.remove(moved.at(gen() % moved.size()));
    if (step % 50 == 0) moved.check();
  }
  moved.check();
}

/// Each move halves what is left between the first two items: 32 moves use it up.
TEST(Sequence, FindsRoomWhereMovesCrowd) {
  Moved moved(1000);
  for (int round = 0; round < 20; ++round)
    for (int item = 999; item > 0; --item) moved.move(item, 0);
  moved.check();
  for (int round = 0; round < 3000; ++round)
    moved.move(moved.at(moved.size() / 2), moved.at(moved.size() - 1));
  moved.check();
}

}  // namespace
}  // namespace kiln::plan
