// Lines of a tile made of its rows, and rows of its lines, for every width and number of elements.
#include "library/cpu/sort_network.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace kiln::cpu {
namespace {

template <class Item>
std::vector<Item> numbered(std::size_t n) {
  std::vector<Item> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<Item>(i * 7 + i / 31);
  return out;
}

template <class Item>
void rows_become_lines_and_rows_again(const char* type) {
  const TransposeRows<Item> transpose = transpose_rows<Item>();
  if (!transpose) GTEST_SKIP() << "this host has better";
  constexpr std::int64_t kRows = kNetworkRows<Item>, kRegister = 16 / sizeof(Item);
  for (std::int64_t n = 1; n <= 70; ++n) {
    const std::int64_t whole = (n + kRegister - 1) / kRegister * kRegister;
    const std::vector<Item> rows = numbered<Item>(static_cast<std::size_t>(kRows * n + kRegister));
    std::vector<Item> lines(static_cast<std::size_t>(whole * kRows + kRegister), Item{77});
    transpose(rows.data(), n, kRows, n, lines.data(), kRows);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t r = 0; r < kRows; ++r)
        ASSERT_EQ(lines[static_cast<std::size_t>(i * kRows + r)], rows[static_cast<std::size_t>(r * n + i)])
            << type << " n " << n << " row " << r << " element " << i;
    for (std::int64_t k = 0; k < kRegister; ++k)
      ASSERT_EQ(lines[static_cast<std::size_t>(whole * kRows + k)], Item{77}) << type << " n " << n;
    for (const std::int64_t kept : {std::int64_t{1}, (n + 1) / 2, n}) {
      std::vector<Item> back(static_cast<std::size_t>(kRows * kept + 2 * kRegister), Item{55});
      transpose(lines.data(), kRows, kept, kRows, back.data(), kept);
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t i = 0; i < kept; ++i)
          ASSERT_EQ(back[static_cast<std::size_t>(r * kept + i)], rows[static_cast<std::size_t>(r * n + i)])
              << type << " n " << n << " kept " << kept << " row " << r << " element " << i;
      for (std::int64_t k = 0; k < kRegister; ++k)  // less than a register behind the last row
        ASSERT_EQ(back[static_cast<std::size_t>(kRows * kept + kRegister - 1 + k)], Item{55})
            << type << " n " << n << " kept " << kept;
    }
  }
}

TEST(SortNetwork, RowsOf1ByteBecomeLines) { rows_become_lines_and_rows_again<std::uint8_t>("1 byte"); }
TEST(SortNetwork, RowsOf2BytesBecomeLines) { rows_become_lines_and_rows_again<std::uint16_t>("2 bytes"); }
TEST(SortNetwork, RowsOf4BytesBecomeLines) { rows_become_lines_and_rows_again<std::uint32_t>("4 bytes"); }
TEST(SortNetwork, RowsOf8BytesBecomeLines) { rows_become_lines_and_rows_again<std::uint64_t>("8 bytes"); }

std::vector<std::byte> bytes_of(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
  t.copy_to(out.data(), t.dtype());
  return out;
}

/// Zeros of both signs and NaN among them, and a last tile, and a last batch of tiles, that are not full.
TEST(SortNetwork, RowsOfAnyLengthGiveWhatTheInterpreterGives) {
  const Config before = config();
  Config here = before;
  here.device = "cpu";  // a GPU's casts have NaNs of their own
  configure(here);
  for (const DType dtype : {DType::UInt8, DType::BFloat16, DType::Float32, DType::Float64})
    for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33}) {
      const std::int64_t rows = 1037;
      Tensor i = arange(0, rows * n, 1, DType::Int64) * 7919 % 211 - 100;
      Tensor x = i.astype(DType::Float32);
      if (dtype != DType::UInt8)
        x = where(i == 0, -abs(x), where(i == 7, std::numeric_limits<float>::quiet_NaN(), x));
      x = x.astype(dtype).reshape({rows, n});
      eval({x});
      std::vector<std::vector<std::byte>> results[2];
      for (const Mode mode : {Mode::Interpret, Mode::Lazy}) {
        Config c = here;
        c.mode = mode;
        configure(c);
        const std::int64_t kept = (n + 1) / 2;
        for (const Tensor& t : {sort(x, 1), argsort(x, 1), topk(x, kept, 1).values})
          results[mode == Mode::Lazy].push_back(bytes_of(t));
      }
      configure(here);
      EXPECT_TRUE(results[1] == results[0]) << name(dtype) << " rows of " << n;
    }
  configure(before);
}

}  // namespace
}  // namespace kiln::cpu
