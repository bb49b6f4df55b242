#include "plan/sequence.h"

namespace kiln::plan {

constexpr std::int64_t kGap = std::int64_t{1} << 32;  // between the labels of items that are appended
constexpr std::int64_t kMostLabel = std::int64_t{1} << 62;

void Sequence::push_back() {
  const int item = static_cast<int>(items_.size());
  items_.push_back({last_ < 0 ? 0 : items_[index(last_)].label + kGap, last_, -1});
  if (last_ >= 0) items_[index(last_)].after = item;
  last_ = item;
}

void Sequence::remove(int item) {
  const Item& x = items_[index(item)];
  if (x.before >= 0) items_[index(x.before)].after = x.after;
  if (x.after >= 0) items_[index(x.after)].before = x.before;
  if (last_ == item) last_ = x.before;
}

void Sequence::insert(int item, int behind) {
  if (label_after(behind) - items_[index(behind)].label < 2) make_room(behind);
  Item &x = items_[index(item)], &b = items_[index(behind)];
  x = {b.label + (label_after(behind) - b.label) / 2, behind, b.after};
  if (b.after >= 0) items_[index(b.after)].before = item;
  b.after = item;
  if (last_ == behind) last_ = item;
}

/// The label that ends the numbers between an item and the next one.
std::int64_t Sequence::label_after(int item) const {
  const Item& x = items_[index(item)];
  if (x.after >= 0) return items_[index(x.after)].label;
  return x.label < kMostLabel - 2 * kGap ? x.label + 2 * kGap : kMostLabel;
}

void Sequence::make_room(int behind) {
  const std::int64_t start = items_[index(behind)].label;
  std::int64_t count = 1;  // gaps among those that are spread
  int end = behind;
  while (label_after(end) - start <= 2 * count * count && items_[index(end)].after >= 0) {
    end = items_[index(end)].after;
    ++count;
  }
  const std::int64_t gap = (label_after(end) - start) / count;
  std::int64_t label = start;
  for (int at = behind; at != end; label = items_[index(at)].label) {
    at = items_[index(at)].after;
    items_[index(at)].label = label + gap;
  }
}

}  // namespace kiln::plan
