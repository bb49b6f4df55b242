// The reference column of ops.def over blocks: operands are read into the type they are computed in (double
// for every float), the expression runs element by element, and the result is rounded once into its storage
// type.
#include "oracle/interpret_value.h"
#include "oracle/reference.h"
#include "support/check.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace kiln::ir::oracle {
namespace {

constexpr std::int64_t kBlock = 256;

template <class S>
constexpr std::uint8_t class_bit() {
  if constexpr (std::is_same_v<S, bool>)
    return BOOL;
  else if constexpr (std::is_integral_v<S>)
    return INTEGER;
  else
    return FLOAT;
}

template <class S, class T>
void read(const Value& v, const std::int64_t* offsets, std::int64_t n, T* out) {
  const std::byte* base = v.data;
  for (std::int64_t i = 0; i < n; ++i) {
    S s;
    std::memcpy(&s, base + offsets[i] * static_cast<std::int64_t>(sizeof(S)), sizeof(S));
    out[i] = ref::cast<T>(s);
  }
}

template <class S, class T>
void write(const T* from, std::int64_t n, std::byte* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    const S s = ref::cast<S>(from[i]);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(S)), &s, sizeof(S));
  }
}

/// Runs `f` (called with x, y, z) over all elements: X the type of operand 0, T of the others, R of the
/// result; SX, ST, SR as they are stored.
template <class SX, class ST, class SR, class F>
void blocks(const GraphNode& node, const Value* in, Value& out, F f) {
  using X = ref::Compute<SX>;
  using T = ref::Compute<ST>;
  using R = decltype(f(X{}, T{}, T{}));
  X x[kBlock] = {};
  T y[kBlock] = {}, z[kBlock] = {};
  R r[kBlock];
  std::int64_t offsets[kBlock];
  std::vector<Cursor> cursors;
  for (std::size_t k = 0; k < node.in.size(); ++k) cursors.emplace_back(in[k]);
  for (std::int64_t at = 0; at < node.numel; at += kBlock) {
    const std::int64_t n = std::min(kBlock, node.numel - at);
    cursors[0].take(offsets, n);
    read<SX>(in[0], offsets, n, x);
    if (node.in.size() > 1) {
      cursors[1].take(offsets, n);
      read<ST>(in[1], offsets, n, y);
    }
    if (node.in.size() > 2) {
      cursors[2].take(offsets, n);
      read<ST>(in[2], offsets, n, z);
    }
    for (std::int64_t i = 0; i < n; ++i) r[i] = f(x[i], y[i], z[i]);
    write<SR>(r, n, out.writable() + at * static_cast<std::int64_t>(sizeof(SR)));
  }
}

template <Op kOp, TypeRule kRule, std::uint8_t kTypes, class F>
void run(const GraphNode& node, const Value* in, Value& out, F f) {
  dispatch(in[node.in.size() - 1].dtype, [&]<class S>() {
    if constexpr ((kTypes & class_bit<S>()) != 0 && (kRule != TypeRule::Logical || std::is_same_v<S, bool>) &&
                  (!(kRule == TypeRule::Word32 || kRule == TypeRule::Word64) ||
                   std::is_same_v<S, std::uint64_t>) &&
                  (kRule != TypeRule::FromBits || std::is_same_v<S, std::uint8_t>)) {
      // Only nextafter looks at the storage type: the others share one instantiation for all floats.
      using Named = std::conditional_t<kOp == Op::nextafter || std::is_integral_v<S>, S, double>;
      const auto g = [&f](auto x, auto y, auto z) { return f.template operator()<Named>(x, y, z); };
      if constexpr (kRule == TypeRule::Select)
        blocks<bool, S, S>(node, in, out, g);
      else if constexpr (kRule == TypeRule::Compare || kRule == TypeRule::Logical)
        blocks<S, S, bool>(node, in, out, g);
      else if constexpr (kRule == TypeRule::Word32)
        blocks<S, S, std::uint32_t>(node, in, out, g);
      else if constexpr (kRule == TypeRule::FromBits)
        blocks<S, S, float>(node, in, out, g);
      else if constexpr (kRule == TypeRule::ToBits)
        blocks<S, S, std::uint8_t>(node, in, out, g);
      else
        blocks<S, S, S>(node, in, out, g);
    } else {
      KILN_CHECK_THAT(false, info(kOp).name, " of ", name(in[node.in.size() - 1].dtype));
    }
  });
}

/// A choice of values that are only stored, as one of their bytes.
Value choose_bytes(GraphNode node, const Value* operands) {
  std::vector<Value> bytes(operands, operands + node.in.size());
  for (Value& v : bytes)
    if (is_only_stored(v.dtype)) v.dtype = DType::UInt8;
  const DType type = std::exchange(node.dtype, DType::UInt8);
  Value out = elementwise(node, bytes.data());
  out.dtype = type;
  return out;
}

}  // namespace

Value elementwise(const GraphNode& node, const Value* operands) {
  if (is_only_stored(node.dtype)) return choose_bytes(node, operands);
  Value out = new_value(node.dtype, node.dims);
  switch (node.op) {
#define KILN_STRUCTURAL(Name, ...) case Op::Name:
#include "ir/structural.def"
#undef KILN_STRUCTURAL
    KILN_CHECK_THAT(false, info(node.op).name, " is not elementwise");
    break;
#define KILN_OP(Name, Arity, Rule, Types, Reference, Expansion, Lo, Hi, Doc, ...)                      \
  case Op::Name:                                                                                       \
    run<Op::Name, TypeRule::Rule, Types>(node, operands, out,                                          \
                                         []<class S>([[maybe_unused]] auto x, [[maybe_unused]] auto y, \
                                                     [[maybe_unused]] auto z) { return Reference; });  \
    break;
#include <kiln/ops.def>
#undef KILN_OP
  }
  return out;
}

}  // namespace kiln::ir::oracle
