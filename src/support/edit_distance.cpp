#include "support/edit_distance.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace kiln {

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the optimal string alignment table. Bounded: nobody misspells a word by kilobytes.
  constexpr std::size_t kLongest = 256;
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  };
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + !same(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  return *std::min_element(candidates.begin(), candidates.end(), [&](std::string_view x, std::string_view y) {
    return edit_distance(word, x) < edit_distance(word, y);
  });
}

}  // namespace kiln
