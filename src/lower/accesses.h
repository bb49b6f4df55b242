// How many adjacent elements a thread of a GPU has at one place.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kiln::lower {

inline constexpr std::int64_t kAccessBytes = 16;  // of a GPU's widest access

/// The sizes of what is read and written there, in bytes of an element.
class AccessWidths {
 public:
  void read(std::int64_t bytes) {
    narrowest_ = std::min(narrowest_, bytes);
    widest_ = std::max(widest_, bytes);
  }
  /// At every point.
  void write(std::int64_t bytes) {
    read(bytes);
    written_ = std::max(written_, bytes);
  }
  std::int64_t narrowest() const { return narrowest_; }
  std::int64_t widest() const { return widest_; }
  /// Elements that one access writes. Two of a thread would each write halves of sectors: int16 to float32
  /// then takes a third longer.
  std::int64_t most() const { return kAccessBytes / written_; }
  /// As many as an access of the narrowest has, if that is no more than two of the widest that is read.
  std::int64_t elements() const {
    return std::min({kAccessBytes / narrowest_, 2 * kAccessBytes / widest_, most(), std::int64_t{8}});
  }

 private:
  std::int64_t narrowest_ = kAccessBytes, widest_ = 1, written_ = 1;
};

}  // namespace kiln::lower
