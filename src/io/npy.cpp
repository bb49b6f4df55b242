#include "io/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>

namespace kiln::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "arrays are read and written as they lie in memory");

constexpr char kMagic[] = "\x93NUMPY";
constexpr std::size_t kMagicBytes = 6, kAlignment = 64;
/// NumPy writes headers of more than some hundred bytes for structured dtypes alone, which are refused
/// anyway.
constexpr std::uint64_t kLongestHeader = 1 << 16;

/// kind and size as in 'f4'.
std::string type_code(DType dtype) {
  if (dtype == DType::BFloat16) return "V2";
  const char* kind = is_bool(dtype) ? "b" : is_signed_int(dtype) ? "i" : is_unsigned_int(dtype) ? "u" : "f";
  return kind + std::to_string(size_of(dtype));
}

std::optional<DType> dtype_of_code(std::string_view code) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (type_code(static_cast<DType>(i)) == code) return static_cast<DType>(i);
  return std::nullopt;
}

/// The part of Python that such a header is written in: one dictionary of strings, truth values and a tuple.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const Where& where) : rest_(text), where_(where) {}

  NpyHeader parse() {
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      if (!seen_.insert(key).second) where_.fail("the header has '", printable(key), "' twice");
      expect(':');
      value(key);
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    space();
    if (!rest_.empty()) malformed();
    for (const char* key : {"descr", "fortran_order", "shape"})
      if (!seen_.contains(key)) where_.fail("the header has no '", key, "'");
    return header_;
  }

 private:
  [[noreturn]] void malformed() const {
    where_.fail("the header is not one of a .npy file near `", printable(rest_.substr(0, 40)), "`");
  }
  void space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t' || rest_[0] == '\r'))
      rest_.remove_prefix(1);
  }
  bool take(char c) {
    space();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take(std::string_view word) {
    space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(char c) {
    if (!take(c)) malformed();
  }
  std::string string() {
    space();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    const std::size_t end = quote == '\'' || quote == '"' ? rest_.find(quote, 1) : rest_.npos;
    if (end == rest_.npos) malformed();
    std::string text(rest_.substr(1, end - 1));
    if (text.find('\\') != text.npos) malformed();
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::int64_t integer() {
    space();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc::result_out_of_range) where_.fail("an extent of the shape does not fit 63 bits");
    if (error != std::errc()) malformed();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    take('L');  // written by Python 2
    return value;
  }

  void value(std::string_view key) {
    if (key == "descr")
      describe();
    else if (key == "fortran_order")
      header_.fortran_order = truth();
    else if (key == "shape")
      shape();
    else
      where_.fail("the header has an unknown key '", printable(key), "'");
  }
  bool truth() {
    if (take("True")) return true;
    if (take("False")) return false;
    malformed();
  }
  void shape() {
    expect('(');
    while (!take(')')) {
      const std::int64_t extent = integer();
      if (extent < 0) where_.fail("the shape has a negative extent");
      if (header_.shape.rank() == kMaxRank) where_.fail("more than ", kMaxRank, " dimensions");
      header_.shape.push_back(extent);
      if (take(',')) continue;
      // (3) is a number in Python, not a tuple.
      if (header_.shape.rank() == 1) malformed();
      expect(')');
      break;
    }
  }
  void describe() {
    space();
    if (!rest_.empty() && rest_[0] == '[') where_.fail("structured dtypes are not tensors");
    const std::string descr = string();
    std::string_view code = descr;
    const char order = code.empty() ? '\0' : code[0];
    if (order == '<' || order == '>' || order == '|' || order == '=') code.remove_prefix(1);
    if (code.starts_with('O'))
      where_.fail("holds Python objects (dtype '", printable(descr), "'); those are never loaded");
    const std::optional<DType> dtype = dtype_of_code(code);
    if (!dtype) where_.fail("dtype '", printable(descr), "' is none of Kiln's");
    header_.dtype = *dtype;
    header_.big_endian = order == '>';
  }

  std::string_view rest_;
  const Where& where_;
  NpyHeader header_;
  std::set<std::string> seen_;
};

template <class Word>
Word swapped(Word w) {
  if constexpr (sizeof(Word) == 2) return __builtin_bswap16(w);
  if constexpr (sizeof(Word) == 4) return __builtin_bswap32(w);
  if constexpr (sizeof(Word) == 8) return __builtin_bswap64(w);
}

template <class Word>
void swap_all(std::byte* at, std::uint64_t count) {
  auto* words = reinterpret_cast<Word*>(at);
  for (std::uint64_t i = 0; i < count; ++i) words[i] = swapped(words[i]);
}

void swap_bytes(std::byte* at, std::uint64_t bytes, std::int64_t size) {
  switch (size) {
    case 2: return swap_all<std::uint16_t>(at, bytes / 2);
    case 4: return swap_all<std::uint32_t>(at, bytes / 4);
    case 8: return swap_all<std::uint64_t>(at, bytes / 8);
    default: return;
  }
}

}  // namespace

std::uint64_t checked_bytes(DType dtype, const Shape& shape, const Where& where) {
  std::int64_t bytes = size_of(dtype);
  bool overflow = false, empty = false;
  for (std::int64_t extent : shape) {
    empty |= extent == 0;
    overflow |= extent != 0 && __builtin_mul_overflow(bytes, extent, &bytes);
  }
  if (overflow) where.fail(name(dtype), " ", shape.str(), " has more than 2^63 - 1 bytes");
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

NpyHeader read_npy_header(Source& source, const Where& where) {
  std::uint8_t begin[kMagicBytes + 2];
  if (source.remaining() < sizeof begin)
    where.fail("is too short for a .npy file (", source.remaining(), " bytes)");
  source.read(begin, sizeof begin);
  if (std::memcmp(begin, kMagic, kMagicBytes) != 0) where.fail("is not a .npy file");
  const int version = begin[kMagicBytes];
  if (version < 1 || version > 3 || begin[kMagicBytes + 1] != 0)
    where.fail("version ", version, ".", int{begin[kMagicBytes + 1]}, " of the .npy format is not known");
  std::uint32_t length = 0;
  const std::uint64_t length_bytes = version == 1 ? 2 : 4;
  if (source.remaining() < length_bytes) where.fail("ends inside its header");
  source.read(&length, length_bytes);
  if (length > source.remaining())
    where.fail("a header of ", length, " bytes, but ", source.remaining(), " are left");
  if (length > kLongestHeader)
    where.fail("a header of ", length, " bytes; at most ", kLongestHeader, " are read");
  std::string text(length, '\0');
  source.read(text.data(), length);
  NpyHeader header = HeaderParser(text, where).parse();
  header.bytes = checked_bytes(header.dtype, header.shape, where);
  if (header.bytes != source.remaining())
    where.fail(name(header.dtype), " ", header.shape.str(), " takes ", header.bytes, " bytes, but ",
               source.remaining(), header.bytes < source.remaining() ? " follow the header" : " are left");
  return header;
}

std::string npy_header(DType dtype, const Shape& shape) {
  const std::string order = size_of(dtype) == 1 ? "|" : "<";
  std::string text =
      cat("{'descr': '", order, type_code(dtype), "', 'fortran_order': False, 'shape': ", shape.str(), ", }");
  const std::size_t before = kMagicBytes + 4;
  text.append(kAlignment - 1 - (before + text.size()) % kAlignment, ' ');
  text += '\n';
  const std::uint16_t length = static_cast<std::uint16_t>(text.size());
  const char begin[] = {1, 0, static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return std::string(kMagic, kMagicBytes) + std::string(begin, sizeof begin) + text;
}

void read_npy_elements(const NpyHeader& header, Source& source, std::byte* to) {
  source.read(to, header.bytes);
  if (header.big_endian) swap_bytes(to, header.bytes, size_of(header.dtype));
  if (is_bool(header.dtype)) normalise_bools(to, header.bytes);
}

void normalise_bools(std::byte* bytes, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) bytes[i] = std::byte{bytes[i] != std::byte{0}};
}

bool are_bools(const std::byte* bytes, std::uint64_t count) {
  std::byte all{0};
  for (std::uint64_t i = 0; i < count; ++i) all |= bytes[i];
  return all <= std::byte{1};
}

}  // namespace kiln::io
