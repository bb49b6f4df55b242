// elementwise_kernel: a formula becomes a list of steps once, and each call records them as ordinary
// operations.
//
// The grammar is C's for expressions, by precedence climbing. Numbers that meet only numbers stay numbers, so
// that `2 * 3 * x` has x's dtype.
#include <kiln/custom_kernel.h>

#include "api/record.h"
#include "support/check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <variant>

namespace kiln {
namespace {

using ir::Op;

/// A node of the formula.
struct Term {
  enum class Kind : std::uint8_t { Number, Parameter, Step, Convert } kind = Kind::Number;
  Scalar number;              // Number
  std::size_t parameter = 0;  // Parameter
  Op op = Op::add;            // Step
  DType dtype{};              // Convert
  std::vector<std::size_t> in;
  std::size_t at = 0;  // in the formula, for messages
};

struct Formula {
  std::vector<std::string> parameters;
  std::vector<Term> terms;  // each after what it is made of
  std::size_t result = 0;
};

/// Functions by name: the operations of ops.def.
std::optional<Op> function_of(std::string_view name) {
#define KILN_OP(Name, ...) \
  if (name == #Name) return Op::Name;
#include <kiln/ops.def>
#undef KILN_OP
  return std::nullopt;
}

std::optional<DType> dtype_named(std::string_view text) {
  for (std::size_t i = 0; i < kDTypeCount; ++i)
    if (name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  return std::nullopt;
}

struct Binary {
  std::string_view text;
  int precedence;
  Op op;
};
constexpr Binary kBinary[] = {
    {"||", 1, Op::logical_or},
    {"&&", 2, Op::logical_and},
    {"|", 3, Op::bitwise_or},
    {"^", 4, Op::bitwise_xor},
    {"&", 5, Op::bitwise_and},
    {"==", 6, Op::equal},
    {"!=", 6, Op::not_equal},
    {"<=", 7, Op::less_equal},
    {">=", 7, Op::greater_equal},
    {"<<", 8, Op::bitwise_left_shift},
    {">>", 8, Op::bitwise_right_shift},
    {"<", 7, Op::less},
    {">", 7, Op::greater},
    {"+", 9, Op::add},
    {"-", 9, Op::subtract},
    {"*", 10, Op::multiply},
    {"/", 10, Op::divide},
    {"%", 10, Op::remainder},
};
constexpr std::string_view kOther[] = {"->", "?", ":", "!", "~", "(", ")", ",", ";", "="};

class Parser {
 public:
  Parser(std::string_view name, std::string_view text) : name_(name), text_(text) {}

  Formula run() {
    parameters();
    for (;;) {
      const std::size_t start = at_;
      const std::string_view word = identifier();
      if (!word.empty() && peek() == "=") {
        take("=");
        define(word, start);
        continue;
      }
      at_ = start;
      break;
    }
    out_.result = choice();
    if (peek() == ";") take(";");
    skip();
    if (at_ != text_.size()) fail(at_, "expected the end of the formula");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t last = before.rfind('\n');
    const std::size_t begin = last == before.npos ? 0 : last + 1;
    const std::string_view whole = text_.substr(begin, text_.substr(begin).find('\n'));
    throw UserError(cat("[", name_, "] formula, line ", line, ", column ", at - begin + 1, ": ", what, "\n  ",
                        whole, "\n  ", std::string(at - begin, ' '), "^"));
  }

  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  static bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  /// The operator or sign that comes next; empty: another token or the end.
  std::string_view peek() {
    skip();
    const std::string_view rest = text_.substr(at_);
    std::string_view best;
    const auto consider = [&](std::string_view t) {
      if (rest.starts_with(t) && t.size() > best.size()) best = t;
    };
    for (const Binary& b : kBinary) consider(b.text);
    for (const std::string_view t : kOther) consider(t);
    return best;
  }
  void take(std::string_view sign) {
    if (peek() != sign) fail(at_, cat("expected `", sign, "`"));
    at_ += sign.size();
  }
  /// The name that comes next, which is taken; empty: another token.
  std::string_view identifier() {
    skip();
    std::size_t end = at_;
    if (end < text_.size() && begins_name(text_[end]))
      while (end < text_.size() && (begins_name(text_[end]) || is_digit(text_[end]))) ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    return word;
  }

  void parameters() {
    while (peek() != "->") {
      const std::size_t start = at_;
      const std::string_view word = identifier();
      if (word.empty()) fail(at_, "expected the name of a parameter, or `->`");
      if (!names_.emplace(word, out_.terms.size()).second)
        fail(start, cat("two parameters are called ", word));
      add({.kind = Term::Kind::Parameter, .parameter = out_.parameters.size(), .at = start});
      out_.parameters.emplace_back(word);
      if (peek() != "->") take(",");
    }
    if (out_.parameters.empty()) fail(at_, "a formula has parameters: `x, y -> x + y`");
    take("->");
  }

  void define(std::string_view word, std::size_t start) {
    const std::size_t value = choice();
    if (!names_.emplace(word, value).second)
      fail(start, cat(word, " has a value already: names do not change"));
    take(";");
  }

  std::size_t add(Term term) {
    out_.terms.push_back(std::move(term));
    return out_.terms.size() - 1;
  }
  std::size_t step(std::size_t at, Op op, std::vector<std::size_t> in) {
    return add({.kind = Term::Kind::Step, .op = op, .in = std::move(in), .at = at});
  }

  std::size_t choice() {
    if (++depth_ > kDeepest) fail(at_, "expressions inside each other: too deep");
    const std::size_t condition = binary(1);
    std::size_t out = condition;
    if (peek() == "?") {
      const std::size_t at = at_;
      take("?");
      const std::size_t yes = choice();
      take(":");
      const std::size_t no = choice();
      out = step(at, Op::where, {condition, yes, no});
    }
    --depth_;
    return out;
  }

  std::size_t binary(int least) {
    std::size_t left = unary();
    for (;;) {
      const std::string_view sign = peek();
      const auto row = std::ranges::find(kBinary, sign, &Binary::text);
      if (sign.empty() || row == std::end(kBinary) || row->precedence < least) return left;
      const std::size_t at = at_;
      take(sign);
      const std::size_t right = binary(row->precedence + 1);
      left = step(at, row->op, {left, right});
    }
  }

  std::size_t unary() {
    if (++depth_ > kDeepest) fail(at_, "expressions inside each other: too deep");
    const std::string_view sign = peek();
    const std::size_t at = at_;
    std::size_t out = 0;
    if (sign == "-" || sign == "!" || sign == "~" || sign == "+") {
      take(sign);
      out = unary();
      if (sign != "+")
        out = step(at,
                   sign == "-"   ? Op::negative
                   : sign == "!" ? Op::logical_not
                                 : Op::bitwise_invert,
                   {out});
    } else {
      out = primary();
    }
    --depth_;
    return out;
  }

  std::size_t primary() {
    if (peek() == "(") {
      take("(");
      const std::size_t out = choice();
      take(")");
      return out;
    }
    const std::size_t at = at_;
    if (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) return number();
    const std::string_view word = identifier();
    if (word.empty()) fail(at, "expected a number, a name or `(`");
    if (peek() == "(") return function(word, at);
    if (word == "true" || word == "false") return add({.number = word == "true", .at = at});
    const auto known = names_.find(word);
    if (known == names_.end()) fail(at, cat("nothing is called ", word));
    return known->second;
  }

  std::size_t number() {
    const std::size_t at = at_;
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    double value = 0;
    const auto [stop, wrong] = std::from_chars(begin, end, value);
    if (wrong != std::errc{}) fail(at, "this is no number");
    const std::string_view digits(begin, static_cast<std::size_t>(stop - begin));
    at_ += digits.size();
    Scalar s(value);
    if (digits.find_first_of(".eE") == digits.npos) {
      std::int64_t whole = 0;
      if (std::from_chars(begin, stop, whole).ec != std::errc{}) fail(at, "this integer is above 64 bits");
      s = Scalar(whole);
    }
    if (at_ < text_.size() && text_[at_] == 'f' && digits.find_first_of(".eE") != digits.npos) ++at_;  // 1.5f
    if (at_ < text_.size() && begins_name(text_[at_])) fail(at_, "a name right behind a number");
    return add({.number = s, .at = at});
  }

  std::size_t function(std::string_view word, std::size_t at) {
    take("(");
    std::vector<std::size_t> in;
    while (peek() != ")") {
      if (!in.empty()) take(",");
      in.push_back(choice());
    }
    take(")");
    if (const auto dtype = dtype_named(word)) {
      if (in.size() != 1) fail(at, cat(word, " converts one value, not ", in.size()));
      return add({.kind = Term::Kind::Convert, .dtype = *dtype, .in = std::move(in), .at = at});
    }
    const std::optional<Op> op = function_of(word);
    if (!op) fail(at, cat("there is no elementwise function ", word, ": docs/ops.md lists them"));
    const std::size_t arity = ir::info(*op).arity;
    if (in.size() != arity) fail(at, cat(word, " takes ", arity, " operands, not ", in.size()));
    return step(at, *op, std::move(in));
  }

  static constexpr int kDeepest = 200;
  std::string_view name_, text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string_view, std::size_t> names_;
  Formula out_;
};

/// What a term is in one call.
using Value = std::variant<Scalar, Tensor>;

api::Arg arg_of(const Value& v) {
  return std::holds_alternative<Scalar>(v) ? api::Arg(std::get<Scalar>(v)) : api::Arg(std::get<Tensor>(v));
}

/// Arithmetic of numbers alone; nothing for other operations.
std::optional<Scalar> folded(Op op, std::span<const Scalar> in) {
  using Kind = Scalar::Kind;
  const bool whole = std::ranges::all_of(in, [](const Scalar& s) { return s.kind == Kind::Int; });
  const double x = in[0].to_double(), y = in.size() > 1 ? in[1].to_double() : 0;
  std::int64_t i = 0;
  switch (op) {
    case Op::negative:
      if (whole && !__builtin_sub_overflow(std::int64_t{0}, in[0].i, &i)) return Scalar(i);
      return Scalar(-x);
    case Op::add:
      if (whole && !__builtin_add_overflow(in[0].i, in[1].i, &i)) return Scalar(i);
      return Scalar(x + y);
    case Op::subtract:
      if (whole && !__builtin_sub_overflow(in[0].i, in[1].i, &i)) return Scalar(i);
      return Scalar(x - y);
    case Op::multiply:
      if (whole && !__builtin_mul_overflow(in[0].i, in[1].i, &i)) return Scalar(i);
      return Scalar(x * y);
    case Op::divide: return Scalar(x / y);
    case Op::sqrt: return Scalar(std::sqrt(x));
    case Op::pow: return whole ? std::nullopt : std::optional(Scalar(std::pow(x, y)));
    default: return std::nullopt;
  }
}

Value step_value(const std::string& name, const Term& term, std::span<const Value> in) {
  const bool numbers =
      std::ranges::all_of(in, [](const Value& v) { return std::holds_alternative<Scalar>(v); });
  if (numbers) {
    std::vector<Scalar> given;
    for (const Value& v : in) given.push_back(std::get<Scalar>(v));
    if (const auto number = folded(term.op, given)) return *number;
    throw UserError(cat("[", name, "] ", ir::info(term.op).name, " of numbers alone: write the number"));
  }
  switch (in.size()) {
    case 1: return api::elementwise(term.op, arg_of(in[0]));
    case 2: return api::elementwise(term.op, arg_of(in[0]), arg_of(in[1]));
    default: return api::elementwise(term.op, arg_of(in[0]), arg_of(in[1]), arg_of(in[2]));
  }
}

}  // namespace

struct ElementwiseKernel::State {
  std::string name;
  Formula formula;
};

Tensor ElementwiseKernel::call(std::span<const Operand> operands, SourceLocation loc) const {
  const auto& [name, formula] = *state_;
  const CallScope scope(name, operands.empty() ? loc : operands[0].loc);
  if (operands.size() != formula.parameters.size())
    throw UserError(
        cat("[", name, "] takes ", formula.parameters.size(), " operands, not ", operands.size()));
  std::vector<Value> values;
  for (const Term& term : formula.terms) {
    std::vector<Value> in;
    for (const std::size_t i : term.in) in.push_back(values[i]);
    switch (term.kind) {
      case Term::Kind::Number: values.emplace_back(term.number); break;
      case Term::Kind::Parameter: {
        const Operand& o = operands[term.parameter];
        if (o.tensor) api::checked(name, *o.tensor);
        values.push_back(o.tensor ? Value(*o.tensor) : Value(o.scalar));
        break;
      }
      case Term::Kind::Step: values.push_back(step_value(name, term, in)); break;
      case Term::Kind::Convert:
        if (std::holds_alternative<Scalar>(in[0]))
          throw UserError(
              cat("[", name, "] ", kiln::name(term.dtype), "() of a number: numbers have no dtype"));
        values.emplace_back(std::get<Tensor>(in[0]).astype(term.dtype));
        break;
    }
  }
  const Value& result = values[formula.result];
  if (std::holds_alternative<Scalar>(result))
    throw UserError(cat("[", name, "] the result is a number that depends on no tensor"));
  return std::get<Tensor>(result);
}

const std::string& ElementwiseKernel::name() const { return state_->name; }

ElementwiseKernel elementwise_kernel(std::string name, std::string_view formula, SourceLocation loc) {
  const CallScope scope({}, loc);
  if (name.empty()) throw UserError("[elementwise_kernel] a kernel has no name");
  auto state = std::make_shared<ElementwiseKernel::State>();
  state->formula = Parser(name, formula).run();
  state->name = std::move(name);
  ElementwiseKernel out;
  out.state_ = std::move(state);
  return out;
}

}  // namespace kiln
