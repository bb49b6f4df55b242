#include "io/safetensors.h"

#include "io/npy.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

namespace kiln::io {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
/// What the reference implementation refuses to read beyond, too.
constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr const char* kMetadata = "__metadata__";

std::string dtype_code(DType dtype) {
  if (is_bool(dtype)) return "BOOL";
  if (dtype == DType::BFloat16) return "BF16";
  if (dtype == DType::Float8E4M3FN) return "F8_E4M3";
  if (dtype == DType::Float8E5M2) return "F8_E5M2";
  const char* kind = is_signed_int(dtype) ? "I" : is_unsigned_int(dtype) ? "U" : "F";
  return kind + std::to_string(8 * size_of(dtype));
}

std::optional<DType> dtype_of_code(std::string_view code) {
  for (int i = 0; i < kAllDTypeCount; ++i)
    if (dtype_code(static_cast<DType>(i)) == code) return static_cast<DType>(i);
  return std::nullopt;
}

/// Takes the header as a stream of tokens: no tree of it is built, and a repeated key is seen.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const Where& where) : header_(header), where_(where) {}

  bool start_object(std::size_t) override {
    if (at_ == At::Begin) return go(At::Top);
    if (at_ == At::Entry) return go(At::Fields);
    if (at_ == At::MetadataBegin) return go(At::Metadata);
    unexpected("an object");
  }
  bool end_object() override {
    if (at_ == At::Top) return go(At::End);
    if (at_ == At::Fields) return end_entry();
    if (at_ == At::Metadata) return go(At::Top);
    unexpected("the end of an object");
  }
  bool key(string_t& key) override {
    if (at_ == At::Top) return tensor(key);
    if (at_ == At::Fields) return field(key);
    if (at_ != At::Metadata) unexpected("a key");
    if (!fields_.insert(key).second) where_.fail("metadata '", printable(key), "' twice");
    metadata_key_ = key;
    return true;
  }
  bool string(string_t& text) override {
    if (at_ == At::Metadata) {
      header_.metadata[metadata_key_] = text;
      return true;
    }
    if (at_ != At::Dtype) unexpected("a string");
    const std::optional<DType> dtype = dtype_of_code(text);
    if (!dtype) fail("has dtype ", printable(text), ", which is none of Kiln's");
    entry().dtype = *dtype;
    return go(At::Fields);
  }
  bool start_array(std::size_t) override {
    if (at_ == At::ShapeBegin) return go(At::Shape);
    if (at_ != At::OffsetsBegin) unexpected("an array");
    offsets_ = 0;
    return go(At::Offsets);
  }
  bool end_array() override {
    if (at_ == At::Offsets && offsets_ != 2) fail("needs two offsets");
    return go(At::Fields);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::Shape) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) fail("has an extent beyond 2^63 - 1");
      if (entry().shape.rank() == kMaxRank) fail("has more than ", kMaxRank, " dimensions");
      entry().shape.push_back(static_cast<std::int64_t>(value));
    } else if (at_ == At::Offsets) {
      if (offsets_ == 2) fail("needs two offsets");
      (offsets_++ == 0 ? entry().begin : entry().end) = value;
    } else {
      unexpected("a number");
    }
    return true;
  }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    unexpected("a fraction or a number beyond 64 bits");
  }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    where_.fail("the header is not JSON near its byte ", position);
  }

 private:
  enum class At {
    Begin,
    Top,
    Entry,
    Fields,
    Dtype,
    ShapeBegin,
    Shape,
    OffsetsBegin,
    Offsets,
    MetadataBegin,
    Metadata,
    End
  };
  bool tensor(const string_t& name) {
    if (!names_.insert(name).second) where_.fail("tensor '", printable(name), "' twice");
    fields_.clear();
    if (name == kMetadata) return go(At::MetadataBegin);
    header_.entries.emplace_back().name = name;
    return go(At::Entry);
  }
  bool field(const string_t& key) {
    if (!fields_.insert(key).second) fail("has '", printable(key), "' twice");
    if (key == "dtype") return go(At::Dtype);
    if (key == "shape") return go(At::ShapeBegin);
    if (key == "data_offsets") return go(At::OffsetsBegin);
    fail("has an unknown field '", printable(key), "'");
  }
  bool go(At at) {
    at_ = at;
    return true;
  }
  SafetensorsEntry& entry() { return header_.entries.back(); }
  template <class... Args>
  [[noreturn]] void fail(Args&&... why) {
    where_.fail("tensor '", printable(entry().name), "' ", std::forward<Args>(why)...);
  }
  [[noreturn]] void unexpected(const char* what) {
    if (at_ == At::Metadata || at_ == At::MetadataBegin)
      where_.fail("metadata maps strings to strings, not to ", what);
    if (header_.entries.empty() || at_ == At::Top)
      where_.fail("the header has ", what, " where it needs tensors by name");
    fail("has ", what, " out of place");
  }
  bool end_entry() {
    for (const char* field : {"dtype", "shape", "data_offsets"})
      if (!fields_.contains(field)) fail("has no ", field);
    const SafetensorsEntry& e = entry();
    if (e.begin > e.end) fail("ends at ", e.end, ", before its beginning at ", e.begin);
    const std::uint64_t bytes = checked_bytes(e.dtype, e.shape, where_);
    if (bytes != e.end - e.begin)
      fail("is ", name(e.dtype), " ", e.shape.str(), " of ", bytes, " bytes, but its offsets span ",
           e.end - e.begin);
    return go(At::Top);
  }

  SafetensorsHeader& header_;
  const Where& where_;
  At at_ = At::Begin;
  std::set<std::string> names_, fields_;
  std::string metadata_key_;
  int offsets_ = 0;
};

/// Ranges in order, each beginning where the one before ends, the last at the end of the file.
void check_ranges(const std::vector<SafetensorsEntry>& entries, std::uint64_t bytes, const Where& where) {
  std::uint64_t at = 0;
  for (const SafetensorsEntry& e : entries) {
    if (e.end > bytes)
      where.fail("tensor '", printable(e.name), "' ends at byte ", e.end, " of ", bytes, " bytes of data");
    if (e.begin != at)
      where.fail("tensor '", printable(e.name), "' begins at byte ", e.begin, ", but the one before ends at ",
                 at);
    at = e.end;
  }
  if (at != bytes) where.fail(bytes - at, " bytes after the last tensor");
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const Where& where) {
  if (file.size() < kLengthBytes) where.fail("is too short for a safetensors file (", file.size(), " bytes)");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  const std::uint64_t rest = file.size() - kLengthBytes;
  if (length > rest) where.fail("a header of ", length, " bytes, but ", rest, " follow");
  if (length > kLongestHeader)
    where.fail("a header of ", length, " bytes; at most ", kLongestHeader, " are read");
  const char* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (length == 0 || *text != '{') where.fail("is not a safetensors file: no header in JSON");
  SafetensorsHeader header;
  header.data = kLengthBytes + length;
  HeaderReader reader(header, where);
  nlohmann::json::sax_parse(text, text + length, &reader);
  // Empty tensors lie on a border: before what begins there.
  std::ranges::sort(header.entries, {}, [](const SafetensorsEntry& e) { return std::pair(e.begin, e.end); });
  check_ranges(header.entries, rest - length, where);
  return header;
}

std::string safetensors_header(std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata, const Where& where) {
  std::string text = "{";
  const auto field = [&](const std::string& name, const nlohmann::ordered_json& value) {
    text += (text.size() > 1 ? "," : "") + nlohmann::json(name).dump() + ":" + value.dump();
  };
  try {
    if (!metadata.empty()) field(kMetadata, metadata);
    std::uint64_t at = 0;
    for (SafetensorsEntry& e : entries) {
      if (e.name == kMetadata) where.fail("no tensor can be named ", kMetadata);
      e.begin = at;
      at += checked_bytes(e.dtype, e.shape, where);
      e.end = at;
      field(e.name, {{"dtype", dtype_code(e.dtype)},
                     {"shape", std::vector<std::int64_t>(e.shape.begin(), e.shape.end())},
                     {"data_offsets", {e.begin, e.end}}});
    }
  } catch (const nlohmann::json::exception&) {
    where.fail("a name or metadata is not UTF-8");
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  if (length > kLongestHeader)
    where.fail("the header would take ", length, " bytes; readers take ", kLongestHeader);
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

}  // namespace kiln::io
