#include "support/call_scope.h"
#include "support/check.h"
#include "support/hash128.h"

#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <xxhash.h>

#include <algorithm>

namespace kiln {

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string out;
  for (char c : text.substr(0, kLongest)) out += (static_cast<unsigned char>(c) < 32 || c == 127) ? '?' : c;
  return text.size() > kLongest ? out + "..." : out;
}

void internal_error(const char* file, int line, const std::string& what) {
  throw InternalError(
      cat("[internal] ", what, " (", file, ":", line, "). This is a bug in Kiln; please report it."));
}

Hash128 hash128(const void* data, std::size_t bytes) {
  const XXH128_hash_t h = XXH3_128bits(data, bytes);
  return {h.low64, h.high64};
}

std::string Hash128::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(32, '0');
  for (int i = 0; i < 16; ++i) {
    out[15 - i] = kDigits[(hi >> (4 * i)) & 15];
    out[31 - i] = kDigits[(lo >> (4 * i)) & 15];
  }
  return out;
}

namespace {

std::string with_line(const std::string& message, const SourceLocation& at) {
  return at.line() == 0 ? message : cat(message, ", called at ", at.file_name(), ":", at.line());
}

/// "[multiply] no such …" in the name of the call that multiplies. An option without meaning belongs to no
/// operation: it is found where options are first read.
std::string in_scope(const std::string& message) {
  const CallScope* const scope = CallScope::current();
  const std::size_t end = message.find(']');
  const bool of_operation =
      message.starts_with('[') && end != message.npos && !message.starts_with("[config]");
  if (scope == nullptr || scope->op().empty() || !of_operation) return message;
  return cat("[", scope->op(), std::string_view(message).substr(end));
}

}  // namespace

constinit thread_local const CallScope* CallScope::current_ = nullptr;

UserError::UserError(const std::string& message) : UserError(message, SourceLocation{}) {}
UserError::UserError(const std::string& message, const SourceLocation& called_at)
    : UserError(in_scope(message), CallScope::line_or(called_at), AsIs{}) {}
UserError::UserError(const std::string& message, const SourceLocation& called_at, AsIs)
    : Error(with_line(message, called_at)), where_(called_at), length_(message.size()) {}

void Shape::check_rank(std::size_t rank, const SourceLocation& loc) {
  if (rank > kMaxRank) throw UserError(cat("[shape] rank ", rank, " is above the limit of ", kMaxRank), loc);
}

Shape::Shape(std::span<const std::int64_t> dims) {
  check_rank(dims.size(), {});
  rank_ = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), dims_);
}

void Shape::push_back(std::int64_t extent) {
  if (rank_ == kMaxRank) throw UserError(cat("[shape] rank is above the limit of ", kMaxRank));
  dims_[rank_++] = extent;
}

void Shape::resize(int rank, std::int64_t fill) {
  check_rank(static_cast<std::size_t>(std::max(rank, 0)), {});
  for (int i = rank_; i < rank; ++i) dims_[i] = fill;
  rank_ = rank;
}

std::int64_t Shape::numel() const {
  std::int64_t n = 1;
  for (std::int64_t d : *this) n *= d;
  return n;
}

bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::string to_string(std::span<const std::int64_t> dims) {
  std::string out = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i) out += ", ";
    out += std::to_string(dims[i]);
  }
  return out + (dims.size() == 1 ? ",)" : ")");
}

std::string Shape::str() const { return to_string(*this); }

namespace detail {

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits_to_float(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude < 0x400u) {  // zero or subnormal: exact in float
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return bits_to_float(sign | std::bit_cast<std::uint32_t>(value));
  }
  return bits_to_float(sign | ((magnitude << 13) + (112u << 23)));
}

std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | static_cast<std::uint16_t>((magnitude >> 13) & 0x3ffu);
  if (magnitude >= 0x47800000u) return sign | 0x7c00u;     // 65536 and above; 65520..65535 round up below
  if (magnitude < 0x38800000u) {                           // below the least normal: round in units of 2^-24
    const float scaled = bits_to_float(magnitude) + 0.5f;  // the ulp of [0.5, 1) is 2^-24: the sum rounds
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scaled) - 0x3f000000u);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - (112u << 23)) >> 13);
}

namespace {

/// A float of 8 bits: a sign, an exponent and kMantissa bits, with the least normal number 2^(1 - kBias).
/// Above kGreatest, the bits of the greatest float that rounds to a number, stands kBeyond.
template <int kMantissa, int kBias, std::uint32_t kGreatest, std::uint8_t kBeyond>
std::uint8_t to_float8(float value) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  if (magnitude > 0x7f800000u) return sign | 0x7fu;
  if (magnitude > kGreatest) return sign | kBeyond;
  if (magnitude <
      kRebias + (1u << 23)) {  // below the least normal: the unit of the sum is that of a subnormal
    const float unit = bits_to_float(static_cast<std::uint32_t>(127 + 1 - kBias - kMantissa + 23) << 23);
    const float sum = bits_to_float(magnitude) + unit;
    return sign |
           static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(unit));
  }
  const std::uint32_t odd = (magnitude >> kDropped) & 1u;
  return sign |
         static_cast<std::uint8_t>((magnitude + (1u << (kDropped - 1)) - 1 + odd - kRebias) >> kDropped);
}

}  // namespace

float e4m3fn_to_float(std::uint8_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x80u} << 24, magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return bits_to_float(sign | 0x7fc00000u);
  if (magnitude < 8)
    return bits_to_float(sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  return bits_to_float(sign | ((magnitude << 20) + (120u << 23)));
}
/// 464, half way between 448 and what would be 480, is 448: its mantissa is even.
std::uint8_t float_to_e4m3fn(float value) { return to_float8<3, 7, 0x43e80000u, 0x7f>(value); }

float e5m2_to_float(std::uint8_t bits) { return half_to_float(static_cast<std::uint16_t>(bits << 8)); }
/// Half way from 57344 to infinity, 61440 is infinity, whose mantissa is even.
std::uint8_t float_to_e5m2(float value) { return to_float8<2, 15, 0x476fffffu, 0x7c>(value); }

void nothing_computes(DType t) { throw InternalError(cat("nothing computes in ", name(t))); }

}  // namespace detail

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_bool(a)) return b;
  if (is_bool(b)) return a;
  if (is_float(a) && is_float(b)) {
    if (is_only_stored(a) || is_only_stored(b)) {
      if (is_only_stored(a) && is_only_stored(b)) return DType::BFloat16;
      return is_only_stored(a) ? b : a;
    }
    if (is_half(a) && is_half(b)) return DType::Float32;  // float16 with bfloat16
    return std::max(a, b);
  }
  if (is_float(a)) return a;
  if (is_float(b)) return b;
  const bool same_class = info(a).cls == info(b).cls;
  if (same_class) return std::max(a, b);
  const DType s = is_signed_int(a) ? a : b, u = is_signed_int(a) ? b : a;
  if (size_of(s) > size_of(u)) return s;
  switch (size_of(u)) {
    case 1: return DType::Int16;
    case 2: return DType::Int32;
    case 4: return DType::Int64;
    default: return DType::Float32;  // no signed type holds uint64
  }
}

}  // namespace kiln
