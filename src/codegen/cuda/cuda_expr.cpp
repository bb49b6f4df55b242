#include "codegen/cuda/cuda_expr.h"

#include "support/check.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace kiln::codegen {

using kernel::ExprNode;
using kernel::Monoid;
using kernel::Prim;

namespace {

std::string hex(std::uint64_t bits, const char* suffix) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx%s", static_cast<unsigned long long>(bits), suffix);
  return text;
}

std::string call(const char* fn, const std::string& a) { return cat(fn, '(', a, ')'); }
std::string call(const char* fn, const std::string& a, const std::string& b) {
  return cat(fn, '(', a, ", ", b, ')');
}
std::string infix(const std::string& a, const char* op, const std::string& b) {
  return cat('(', a, ' ', op, ' ', b, ')');
}

/// Integer arithmetic narrower than int is done in int.
std::string narrowed(DType type, const std::string& x) {
  return is_bool(type) || size_of(type) < 4 ? cat(cuda_type(type), '(', x, ')') : x;
}

std::string bitcast(DType to, DType from, const std::string& x) {
  if (is_half(from)) return bitcast(to, DType::UInt16, cat('(', x, ").bits"));
  if (is_half(to)) return cat(cuda_type(to), "{uint16(", x, ")}");
  if (from == DType::Float32) return cat(cuda_type(to), "(__float_as_int(", x, "))");
  if (to == DType::Float32) return cat("__int_as_float(int32(", x, "))");
  if (from == DType::Float64) return cat(cuda_type(to), "(__double_as_longlong(", x, "))");
  if (to == DType::Float64) return cat("__longlong_as_double(int64(", x, "))");
  return cat(cuda_type(to), '(', x, ')');
}

}  // namespace

const char* cuda_type(DType type) {
  switch (type) {
    case DType::Bool: return "bool";
    case DType::Int8: return "int8";
    case DType::Int16: return "int16";
    case DType::Int32: return "int32";
    case DType::Int64: return "int64";
    case DType::UInt8: return "uint8";
    case DType::UInt16: return "uint16";
    case DType::UInt32: return "uint32";
    case DType::UInt64: return "uint64";
    case DType::Float16: return "f16";
    case DType::BFloat16: return "bf16";
    case DType::Float32: return "float";
    case DType::Float64: return "double";
    case DType::Float8E4M3FN:
    case DType::Float8E5M2: break;  // bytes here
  }
  KILN_CHECK_THAT(false, "dtype");
  return "";
}

const char* cuda_memory_type(DType type) { return is_bool(type) ? "uint8" : cuda_type(type); }

std::string cuda_constant(DType type, std::uint64_t bits) {
  char text[64];
  switch (type) {
    case DType::Bool: return bits & 1 ? "true" : "false";
    case DType::Float16:
    case DType::BFloat16: return cat(cuda_type(type), '{', hex(bits, ""), '}');
    case DType::Float32: {
      float v;
      const auto b = static_cast<std::uint32_t>(bits);
      std::memcpy(&v, &b, 4);
      if (!std::isfinite(v)) return cat("__int_as_float(", hex(b, ""), ')');
      // Decimal where that is exact and short, else hexadecimal.
      std::snprintf(text, sizeof text, "%.6g", static_cast<double>(v));
      if (std::strtof(text, nullptr) == v && std::strtod(text, nullptr) == static_cast<double>(v) &&
          !(v == 0 && std::signbit(v))) {
        if (!std::strpbrk(text, ".e")) std::strcat(text, ".0");
        return cat(std::signbit(v) ? "(" : "", text, 'f', std::signbit(v) ? ")" : "");
      }
      std::snprintf(text, sizeof text, std::signbit(v) ? "(%af)" : "%af", static_cast<double>(v));
      return text;
    }
    case DType::Float64: {
      double v;
      std::memcpy(&v, &bits, 8);
      if (!std::isfinite(v)) return cat("__longlong_as_double(", hex(bits, "ll"), ')');
      std::snprintf(text, sizeof text, std::signbit(v) ? "(%a)" : "%a", v);
      return text;
    }
    case DType::UInt32: return std::to_string(static_cast<std::uint32_t>(bits)) + "u";
    case DType::UInt64: return std::to_string(bits) + "ull";
    case DType::UInt8:
    case DType::UInt16: return cat(cuda_type(type), '(', bits, ')');
    case DType::Int8: return cat("int8(", int{static_cast<std::int8_t>(bits)}, ')');
    case DType::Int16: return cat("int16(", int{static_cast<std::int16_t>(bits)}, ')');
    case DType::Int32: {
      const auto v = static_cast<std::int32_t>(bits);
      if (v == std::numeric_limits<std::int32_t>::min()) return "int32(0x80000000)";
      return v < 0 ? cat('(', v, ')') : std::to_string(v);
    }
    case DType::Int64: {
      const auto v = static_cast<std::int64_t>(bits);
      if (v == std::numeric_limits<std::int64_t>::min()) return "int64(0x8000000000000000ll)";
      return v < 0 ? cat('(', v, "ll)") : cat(v, "ll");
    }
    case DType::Float8E4M3FN:
    case DType::Float8E5M2: break;
  }
  return {};
}

std::string cuda_cast(DType to, DType from, bool in_range, const std::string& x) {
  if (to == from) return x;
  if (is_half(from)) return cuda_cast(to, DType::Float32, in_range, call("to_float", x));
  if (is_half(to)) {
    const char* fn = to == DType::Float16 ? "to_f16" : "to_bf16";
    return is_float(from) ? call(fn, x) : call(fn, cat("double(", x, ')'));
  }
  if (is_bool(to)) return infix(x, "!=", cuda_constant(from, 0));
  if (is_float(from) && !is_float(to) && !in_range) return cat("to_int<", cuda_type(to), ">(", x, ')');
  return cat(cuda_type(to), '(', x, ')');
}

std::string cuda_primitive(const ExprNode& n, DType from, bool index, const std::string& a,
                           const std::string& b, const std::string& c) {
  const DType t = n.type;
  const bool f32 = t == DType::Float32;
  const bool plain = index || is_float(t);  // the operators of C++ mean what is meant
  switch (n.prim) {
    case Prim::FromIndex: return cat("int64(", a, ')');
    case Prim::IndexDiv: return call("index_div", a, b);
    case Prim::Neg: return plain ? cat("(-", a, ')') : is_bool(t) ? a : call("wrap_neg", a);
    case Prim::Abs:
      return is_float(t) ? call(f32 ? "fabsf" : "fabs", a) : is_bool(t) ? a : call("wrap_abs", a);
    case Prim::Sqrt: return call(f32 ? "square_root" : "__dsqrt_rn", a);
    case Prim::Floor: return call(f32 ? "floorf" : "floor", a);
    case Prim::Ceil: return call(f32 ? "ceilf" : "ceil", a);
    case Prim::Trunc: return call(f32 ? "truncf" : "trunc", a);
    case Prim::RoundEven: return call(f32 ? "rintf" : "rint", a);
    case Prim::Not: return is_bool(t) ? cat("(!", a, ')') : narrowed(t, cat("(~", a, ')'));
    case Prim::Cast: return cuda_cast(t, from, false, a);
    case Prim::CastInRange: return cuda_cast(t, from, true, a);
    case Prim::Bitcast: return bitcast(t, from, a);
    case Prim::Add: return plain ? infix(a, "+", b) : is_bool(t) ? infix(a, "||", b) : call("wrap_add", a, b);
    case Prim::Sub: return plain ? infix(a, "-", b) : is_bool(t) ? infix(a, "!=", b) : call("wrap_sub", a, b);
    case Prim::Mul: return plain ? infix(a, "*", b) : is_bool(t) ? infix(a, "&&", b) : call("wrap_mul", a, b);
    case Prim::Div:
      return f32 ? call("divide", a, b) : is_float(t) ? infix(a, "/", b) : call("int_div", a, b);
    case Prim::Rem: return call("int_rem", a, b);
    case Prim::Min: return call("min_of", a, b);
    case Prim::Max: return call("max_of", a, b);
    case Prim::And: return narrowed(t, infix(a, "&", b));
    case Prim::Or: return narrowed(t, infix(a, "|", b));
    case Prim::Xor: return narrowed(t, infix(a, "^", b));
    case Prim::Shl: return call("wrap_shl", a, b);
    case Prim::Shr: return narrowed(t, cat('(', a, " >> int(", b, "))"));
    case Prim::Eq: return infix(a, "==", b);
    case Prim::Ne: return infix(a, "!=", b);
    case Prim::Lt: return infix(a, "<", b);
    case Prim::Le: return infix(a, "<=", b);
    case Prim::Fma: return cat(f32 ? "__fmaf_rn(" : "__fma_rn(", a, ", ", b, ", ", c, ')');
    case Prim::Select: return cat('(', a, " ? ", b, " : ", c, ')');
    case Prim::Call1: return call(kernel::symbol(static_cast<kernel::MathFn>(n.imm)), a);
    case Prim::Call2: return call(kernel::symbol(static_cast<kernel::MathFn>(n.imm)), a, b);
    case Prim::Philox: return call(t == DType::UInt32 ? "philox_word" : "philox_pair", a, b);
    case Prim::DivBounded: return call("div_bounded", a, b);
    case Prim::Scale: return call("scale", a, b);
    case Prim::Native: return call(kernel::symbol(static_cast<kernel::NativeFn>(n.imm)), a);
    case Prim::Exponent: return call("exponent", a);
    case Prim::Mantissa: return call("mantissa", a);
    case Prim::Const:
    case Prim::Param:
    case Prim::Slot:
    case Prim::Var:
    case Prim::Acc:
    case Prim::Load:
    case Prim::Running:
    case Prim::Before:
    case Prim::Earlier:
    case Prim::Later: break;
  }
  KILN_CHECK_THAT(false, kernel::name(n.prim), " is not computed");
  return {};
}

const char* cuda_monoid(Monoid m) {
  switch (m) {
    case Monoid::Sum: return "Sum";
    case Monoid::Prod: return "Prod";
    case Monoid::Max: return "Max";
    case Monoid::Min: return "Min";
    case Monoid::ArgMax: return "ArgMax";
    case Monoid::ArgMin: return "ArgMin";
    case Monoid::Custom:
    case Monoid::State: break;
  }
  return "";
}

}  // namespace kiln::codegen
