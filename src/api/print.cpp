// Readable text of a tensor: nested brackets in aligned columns, then dtype and shape. Above kWhole elements
// only the first and last kEdge of each of the last kDetailed axes are shown, and the first of any axis
// before, so the text stays short whatever the size and the rank.
#include "api/record.h"
#include "engine/device_memory.h"
#include "engine/evaluate.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ostream>

namespace kiln {
namespace {

constexpr std::int64_t kWhole = 1000;
constexpr std::int64_t kEdge = 3;
constexpr std::size_t kDetailed = 4;
constexpr std::size_t kLineWidth = 100;

std::string format(double value, int digits) {
  if (value != value) return "nan";  // its sign says nothing
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  if (std::strcspn(text, ".einf") == std::strlen(text)) std::strcat(text, ".");  // 1. is not an integer
  return text;
}

/// The shortest text of three to five digits that reads back as the same half.
template <class H>
std::string format_half(H value) {
  std::string text;
  for (int digits = 3; digits <= 5; ++digits) {
    text = format(value, digits);
    if (H(std::strtof(text.c_str(), nullptr)).bits == value.bits) break;
  }
  return text;
}

std::string format_element(const std::byte* at, DType dtype) {
  return dispatch_stored(dtype, [&]<class T>() -> std::string {
    T value;
    std::memcpy(&value, at, sizeof value);
    if constexpr (std::is_same_v<T, bool>)
      return value ? "true" : "false";
    else if constexpr (std::is_integral_v<T>)
      return std::to_string(value);
    else if constexpr (is_storage_float<T>)
      return format_half(value);
    else
      return format(static_cast<double>(value), sizeof(T) == 8 ? 10 : 6);
  });
}

class Printer {
 public:
  explicit Printer(const ir::Node& leaf) : leaf_(leaf), bounded_(leaf.numel > kWhole) {
    std::int64_t stride = 1;
    strides_.resize(leaf.rank);
    for (std::size_t i = leaf.rank; i-- > 0;) {
      strides_[i] = leaf.strides ? leaf.strides[i] : stride;
      stride *= leaf.dims()[i];
    }
  }

  std::string text() {
    if (leaf_.numel != 0) measure(0, leaf_.offset);
    std::string out;
    write(out, 0, leaf_.offset);
    return out;
  }

 private:
  std::string element(std::int64_t offset) const {
    return format_element(engine::host_memory(*leaf_.buffer) + offset * size_of(leaf_.dtype), leaf_.dtype);
  }

  /// Calls f(i), or f(-1) in place of the elements left out.
  template <class F>
  void each(std::size_t axis, F f) const {
    const std::int64_t extent = leaf_.dims()[axis];
    const bool detailed = axis + kDetailed >= leaf_.rank;
    for (std::int64_t i = 0; i < extent; ++i) {
      if (bounded_ && !detailed && i == 1) return f(std::int64_t{-1});
      if (bounded_ && detailed && i == kEdge && extent > 2 * kEdge) {
        f(std::int64_t{-1});
        i = extent - kEdge;
      }
      f(i);
    }
  }

  void measure(std::size_t axis, std::int64_t offset) {
    if (axis == leaf_.rank) {
      width_ = std::max(width_, element(offset).size());
      return;
    }
    each(axis, [&](std::int64_t i) {
      if (i >= 0) measure(axis + 1, offset + i * strides_[axis]);
    });
  }

  void write(std::string& out, std::size_t axis, std::int64_t offset) const {
    if (axis == leaf_.rank) {
      const std::string text = element(offset);
      out.append(leaf_.rank == 0 ? 0 : width_ - text.size(), ' ').append(text);
      return;
    }
    out += '[';
    bool first = true;
    std::size_t line = out.size();
    each(axis, [&](std::int64_t i) {
      if (!first) out += ',';
      if (!first && axis + 1 < leaf_.rank) {
        out.append(leaf_.rank - axis - 1, '\n').append(axis + 1, ' ');
      } else if (!first && out.size() - line + width_ > kLineWidth) {
        out.append("\n").append(axis + 1, ' ');
        line = out.size();
      } else if (!first) {
        out += ' ';
      }
      first = false;
      if (i < 0)
        out += "...";
      else
        write(out, axis + 1, offset + i * strides_[axis]);
    });
    out += ']';
  }

  const ir::Node& leaf_;
  const bool bounded_;
  std::vector<std::int64_t> strides_;
  std::size_t width_ = 0;
};

}  // namespace

std::string Tensor::str() const {
  if (!valid()) return "(empty Tensor)";
  ir::Node* const root = node_;
  const CallScope scope("print", root->loc);  // an operator knows no line of its caller
  engine::evaluate({&root, 1});
  return Printer(*node_).text() + "  " + api::describe(node_);
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << t.str(); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }
std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }
std::string Device::str() const {
  switch (kind) {
#define KILN_DEVICE(Name, name, library) \
  case Kind::Name: return #name;
#define KILN_DEVICES(Name, name, most, library) \
  case Kind::Name: return #name ":" + std::to_string(int{index});
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
  }
  return "?";
}
std::ostream& operator<<(std::ostream& out, Device device) { return out << device.str(); }

}  // namespace kiln
