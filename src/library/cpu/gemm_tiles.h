// The tiles of a packed product: rectangles of whole panels, which differ by one panel at most along each
// axis. Threads that have as many tiles then have as much to do.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kiln::cpu {

inline constexpr std::int64_t kDepth = 384;  // k block: an a panel of 14 rows is 21 KiB of L1
inline constexpr std::int64_t kTileRows = 168,
                              kTileCols = 256;  // a tile's operands and result stay in L2

class Tiles {
 public:
  Tiles() = default;
  /// As few tiles of m × n as there can be of `most_rows` and `most_cols`, in panels of `height` rows and
  /// `width` columns.
  Tiles(std::int64_t m, std::int64_t height, std::int64_t most_rows, std::int64_t n, std::int64_t width,
        std::int64_t most_cols)
      : m_(m),
        n_(n),
        height_(height),
        width_(width),
        row_panels_(parts(m, height)),
        col_panels_(parts(n, width)),
        rows_(parts(m, most_rows)),
        cols_(parts(n, most_cols)) {}

  /// Cuts tiles, down to the given panels of an axis (0: it stays as it is), until each thread has four, and
  /// a little more where the thread that has most of them then has less to do.
  void cut(std::int64_t threads, std::int64_t row_panels, std::int64_t col_panels) {
    constexpr std::int64_t kEach = 4;
    const auto halve = [&](std::int64_t& tiles, std::int64_t all, std::int64_t least) {
      while (least != 0 && count() < kEach * threads && all > least * tiles)
        tiles = std::min(2 * tiles, parts(all, least));
    };
    halve(cols_, col_panels_, col_panels);
    halve(rows_, row_panels_, row_panels);
    even_out(threads, row_panels != 0, col_panels != 0);
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t count() const { return rows_ * cols_; }
  /// Where the tiles of a number begin, or behind the last one, end.
  std::int64_t row(std::int64_t tile) const {
    return std::min(m_, tile * row_panels_ / std::max<std::int64_t>(rows_, 1) * height_);
  }
  std::int64_t col(std::int64_t tile) const {
    return std::min(n_, tile * col_panels_ / std::max<std::int64_t>(cols_, 1) * width_);
  }

 private:
  static std::int64_t parts(std::int64_t n, std::int64_t each) { return (n + each - 1) / each; }

  void even_out(std::int64_t threads, bool cuts_rows, bool cuts_cols) {
    constexpr std::int64_t kMore = 3, kUneven = 32;  // with more tiles each, one more or less does not matter
    if (count() > kUneven * threads) return;
    const std::int64_t rows = rows_, cols = cols_,
                       most_rows = cuts_rows ? std::min(rows + kMore, row_panels_) : rows,
                       most_cols = cuts_cols ? std::min(cols + kMore, col_panels_) : cols;
    std::int64_t least = INT64_MAX;
    for (std::int64_t r = rows; r <= most_rows; ++r)
      for (std::int64_t c = cols; c <= most_cols; ++c) {
        // a tile's own cost is that of a panel or so
        const std::int64_t longest =
            parts(r * c, threads) * (parts(row_panels_, r) * parts(col_panels_, c) + 1);
        if (longest >= least) continue;
        least = longest;
        rows_ = r, cols_ = c;
      }
  }

  std::int64_t m_ = 0, n_ = 0, height_ = 1, width_ = 1, row_panels_ = 0, col_panels_ = 0, rows_ = 0,
               cols_ = 0;
};

}  // namespace kiln::cpu
