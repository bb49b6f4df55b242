// einsum: operands are folded in from the left, two at a time, each pair as one batched matmul.
//
// A term is a tensor whose axes carry labels. Before a product, labels that nothing later reads are summed
// out of their one operand; a repeated label becomes its diagonal (a strided slice of the flattened pair, not
// a copy).
#include "api/record.h"
#include "support/check.h"

#include <algorithm>
#include <array>

namespace kiln {
namespace {

using ir::NodeRef;
using Labels = std::vector<int>;  // a letter, or kEllipsis + position counted from the back

constexpr int kEllipsis = 256;

struct Term {
  NodeRef node;
  Labels labels;
};

struct Equation {
  std::vector<Labels> inputs;
  Labels output;
  std::array<std::int64_t, kEllipsis + kMaxRank> extent{};  // by label; 0 also where unused
};

bool has(const Labels& labels, int label) { return std::ranges::find(labels, label) != labels.end(); }

class Parser {
 public:
  Parser(std::string_view text, std::span<const Tensor> operands) : text_(text), operands_(operands) {}

  Equation run() {
    const std::size_t arrow = text_.find("->");
    const std::string_view left = text_.substr(0, arrow);
    std::size_t from = 0;
    for (const Tensor& operand : operands_) {
      const ir::Node* node = api::checked("einsum", operand);
      if (from > left.size()) fail(cat(operands_.size(), " operands"));
      const std::size_t comma = std::min(left.find(',', from), left.size());
      equation_.inputs.push_back(term(left.substr(from, comma - from), node->rank));
      note_extents(equation_.inputs.back(), node);
      from = comma + 1;
    }
    if (from <= left.size()) fail(cat(operands_.size(), " operands"));
    equation_.output =
        arrow == std::string_view::npos ? implicit_output() : explicit_output(text_.substr(arrow + 2));
    return std::move(equation_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    std::string shapes;
    for (const Tensor& t : operands_)
      shapes += (shapes.empty() ? "" : ", ") + (t.valid() ? api::describe(t.node()) : std::string("empty"));
    throw UserError(cat("[einsum] \"", text_, "\" does not fit: ", what, "; operands: ", shapes));
  }

  /// Labels of one operand of `rank` axes; rank < 0: of the output, whose ellipsis is all of them.
  Labels term(std::string_view text, int rank) {
    Labels out;
    int letters = 0;
    for (char c : text) letters += std::isalpha(static_cast<unsigned char>(c)) != 0;
    bool dots = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == ' ') continue;
      if (std::isalpha(static_cast<unsigned char>(c))) {
        out.push_back(c);
      } else if (text.substr(i, 3) == "..." && !dots) {
        dots = true;
        i += 2;
        const int count = rank < 0 ? ellipsis_ : rank - letters;
        ellipsis_ = std::max(ellipsis_, count);
        for (int k = count; k-- > 0;) out.push_back(kEllipsis + k);
      } else {
        fail(cat("'", c, "' is not a label"));
      }
    }
    if (rank >= 0 && static_cast<int>(out.size()) != rank)
      fail(cat("\"", text, "\" names ", letters, " of ", rank, " axes"));
    return out;
  }

  void note_extents(const Labels& labels, const ir::Node* node) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      std::int64_t& known = equation_.extent[static_cast<std::size_t>(labels[i])];
      const std::int64_t extent = node->dims()[i];
      const bool fresh = !has(seen_, labels[i]);
      if (fresh) seen_.push_back(labels[i]);
      if (fresh || known == 1)
        known = extent;
      else if (extent != known && extent != 1)
        fail(cat("a label has extents ", known, " and ", extent));
    }
  }

  Labels implicit_output() const {
    Labels out, letters;
    for (int k = ellipsis_; k-- > 0;) out.push_back(kEllipsis + k);
    for (int label : seen_) {
      std::ptrdiff_t uses = 0;
      for (const Labels& in : equation_.inputs) uses += std::ranges::count(in, label);
      if (label < kEllipsis && uses == 1) letters.push_back(label);
    }
    std::ranges::sort(letters);
    out.insert(out.end(), letters.begin(), letters.end());
    return out;
  }

  Labels explicit_output(std::string_view text) {
    Labels out = term(text, -1);
    for (int label : out)
      if (!has(seen_, label) || std::ranges::count(out, label) > 1)
        fail("an output label is repeated or in no operand");
    return out;
  }

  std::string_view text_;
  std::span<const Tensor> operands_;
  Equation equation_;
  Labels seen_;
  int ellipsis_ = 0;
};

/// Work on terms, all of one dtype.
class Contraction {
 public:
  Contraction(const Equation& equation, DType dtype) : equation_(equation), dtype_(dtype) {}

  /// Repeated labels become diagonals; extents of 1 that other operands broadcast lose their label.
  Term prepared(Term t) const {
    for (std::size_t i = 0; i < t.labels.size(); ++i)
      for (std::size_t j = i + 1; j < t.labels.size(); ++j)
        if (t.labels[i] == t.labels[j]) return prepared(diagonal(t, i, j));
    Shape dims;
    Labels labels;
    for (std::size_t i = 0; i < t.labels.size(); ++i) {
      if (t.node->dims()[i] == 1 && extent(t.labels[i]) != 1) continue;
      dims.push_back(t.node->dims()[i]);
      labels.push_back(t.labels[i]);
    }
    return {api::reshape_node(t.node.get(), dims), labels};
  }

  /// Sums out the labels that are not wanted.
  Term summed(const Term& t, const Labels& wanted) const {
    std::uint64_t mask = 0;
    Labels labels;
    for (std::size_t i = 0; i < t.labels.size(); ++i) {
      if (has(wanted, t.labels[i]))
        labels.push_back(t.labels[i]);
      else
        mask |= std::uint64_t{1} << i;
    }
    return {api::reduce_node(ir::Op::reduce_sum, t.node.get(), mask, dtype_, false), labels};
  }

  NodeRef ordered(const Term& t, const Labels& order) const {
    std::vector<int> axes;
    for (int label : order)
      axes.push_back(static_cast<int>(std::ranges::find(t.labels, label) - t.labels.begin()));
    return api::permute_node(t.node.get(), axes);
  }

  /// a * b, summed over the labels that are in both and not in `later`.
  Term product(const Term& left, const Term& right, const Labels& later) const {
    Labels wanted_left = right.labels, wanted_right = left.labels;
    wanted_left.insert(wanted_left.end(), later.begin(), later.end());
    wanted_right.insert(wanted_right.end(), later.begin(), later.end());
    const Term a = summed(left, wanted_left), b = summed(right, wanted_right);
    Labels batch, inner, free_a, free_b;
    for (int label : a.labels)
      (!has(b.labels, label) ? free_a : has(later, label) ? batch : inner).push_back(label);
    for (int label : b.labels)
      if (!has(a.labels, label)) free_b.push_back(label);
    if (inner.empty() || (free_a.empty() && free_b.empty()))
      return elementwise_product(a, b, batch, inner, free_a, free_b);
    const NodeRef x = ordered(a, joined({batch, free_a, inner})),
                  y = ordered(b, joined({batch, inner, free_b}));
    const std::int64_t groups = size(batch), m = size(free_a), k = size(inner), n = size(free_b);
    const bool grouped = !batch.empty();
    const NodeRef flat_x = api::reshape_node(x.get(), grouped ? Shape{groups, m, k} : Shape{m, k});
    const NodeRef flat_y = api::reshape_node(y.get(), grouped ? Shape{groups, k, n} : Shape{k, n});
    const NodeRef out = api::matmul_node(flat_x.get(), flat_y.get());
    const Labels labels = joined({batch, free_a, free_b});
    return {api::reshape_node(out.get(), dims(labels)), labels};
  }

 private:
  std::int64_t extent(int label) const { return equation_.extent[static_cast<std::size_t>(label)]; }
  std::int64_t size(const Labels& labels) const { return dims(labels).numel(); }
  Shape dims(const Labels& labels) const {
    Shape out;
    for (int label : labels) out.push_back(extent(label));
    return out;
  }
  static Labels joined(std::initializer_list<Labels> lists) {
    Labels out;
    for (const Labels& list : lists) out.insert(out.end(), list.begin(), list.end());
    return out;
  }

  /// No label is contracted, or nothing is free: a broadcast product, which fuses, and a sum.
  Term elementwise_product(const Term& a, const Term& b, const Labels& batch, const Labels& inner,
                           const Labels& free_a, const Labels& free_b) const {
    const Labels labels = joined({batch, free_a, free_b, inner});
    const Tensor x = spread(a, joined({batch, free_a, inner}), labels),
                 y = spread(b, joined({batch, free_b, inner}), labels);
    const Tensor both = api::elementwise(ir::Op::multiply, x, y);
    return summed({NodeRef::share(both.node()), labels}, joined({batch, free_a, free_b}));
  }

  /// t in the given order of its own labels, with extents of 1 for the labels of `all` it lacks.
  Tensor spread(const Term& t, const Labels& own, const Labels& all) const {
    const NodeRef node = ordered(t, own);
    Shape out;
    for (int label : all) out.push_back(has(own, label) ? extent(label) : 1);
    return Tensor::adopt(api::reshape_node(node.get(), out).take());
  }

  /// Axes i and j carry one label: both to the back, flattened, every (n + 1)th element.
  Term diagonal(const Term& t, std::size_t i, std::size_t j) const {
    const std::int64_t n = t.node->dims()[i];
    std::vector<int> order;
    Labels labels;
    for (std::size_t axis = 0; axis < t.labels.size(); ++axis)
      if (axis != i && axis != j) {
        order.push_back(static_cast<int>(axis));
        labels.push_back(t.labels[axis]);
      }
    order.push_back(static_cast<int>(i));
    order.push_back(static_cast<int>(j));
    labels.push_back(t.labels[i]);
    if (t.node->dims()[j] != n)
      throw UserError(cat("[einsum] a repeated label has extents ", n, " and ", t.node->dims()[j], " in ",
                          api::describe(t.node.get())));
    NodeRef node = api::permute_node(t.node.get(), order);
    Shape flat(node->dims().first(node->rank - 2u)), start, step;
    flat.push_back(n * n);
    node = api::reshape_node(node.get(), flat);
    start.resize(flat.rank(), 0);
    step.resize(flat.rank(), 1);
    step[flat.rank() - 1] = n + 1;
    flat[flat.rank() - 1] = n;
    return {api::slice_node(node.get(), start, step, flat), labels};
  }

  const Equation& equation_;
  DType dtype_;
};

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands, SourceLocation loc) {
  const CallScope scope("einsum", loc);
  if (operands.empty()) throw UserError(cat("[einsum] \"", equation, "\" has no operands"));
  const Equation parsed = Parser(equation, operands).run();
  DType dtype = operands[0].dtype();
  for (const Tensor& t : operands) dtype = promote(dtype, t.dtype());
  dtype = computed_as(dtype);
  if (is_bool(dtype)) throw UserError(cat("[einsum] \"", equation, "\" does not take bool operands"));
  const Contraction work(parsed, dtype);
  std::vector<Term> terms;
  for (std::size_t i = 0; i < operands.size(); ++i)
    terms.push_back(work.prepared({api::cast_node(operands[i].node(), dtype), parsed.inputs[i]}));
  Term total = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) {
    Labels later = parsed.output;
    for (std::size_t j = i + 1; j < terms.size(); ++j)
      later.insert(later.end(), terms[j].labels.begin(), terms[j].labels.end());
    total = work.product(total, terms[i], later);
  }
  total = work.summed(total, parsed.output);
  return api::finish(work.ordered(total, parsed.output));
}

Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands, SourceLocation loc) {
  return einsum(equation, std::span(operands.begin(), operands.size()), loc);
}

}  // namespace kiln
