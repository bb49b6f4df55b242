#include "lower/pair_kernel.h"

#include "kernel/canonical.h"
#include "math/expand.h"

#include <algorithm>
#include <type_traits>

namespace kiln::lower {

using kernel::BufferDecl;
using kernel::E;
using kernel::Hook;
using kernel::LoopDecl;
using kernel::LoopKind;
using kernel::Prim;
using kernel::Stmt;
using plan::MatrixMemory;
using plan::Term;
using plan::TermId;

constexpr std::int64_t kWord = 16;
constexpr std::int64_t kNarrowExtent = 1 << 24;  // of coordinates whose sums fit 32 bits
constexpr int kNarrowDepth = 6;

// ---- expressions

E PairKernel::param(std::int64_t value) {
  out_.params.push_back(value);
  return leaf(Prim::Param, DType::Int64, out_.params.size() - 1);
}

E PairKernel::leaf(Prim prim, DType type, std::uint64_t imm) {
  return {&k_.pool, k_.pool.intern({prim, type, kernel::kNoExpr, kernel::kNoExpr, kernel::kNoExpr, imm})};
}

E PairKernel::integer(std::int64_t value) {
  return kernel::constant(k_.pool, DType::Int64, static_cast<double>(value));
}

E PairKernel::yes(bool value) { return kernel::constant_bits(k_.pool, DType::Bool, value); }

E PairKernel::load(std::uint32_t buffer, DType type, E index, E predicate) {
  return {&k_.pool, k_.pool.intern({Prim::Load, type, index.id, predicate ? predicate.id : kernel::kNoExpr,
                                    kernel::kNoExpr, buffer})};
}

std::uint32_t PairKernel::buffer(BufferDecl decl, BufferSource source) {
  k_.buffers.push_back(decl);
  out_.buffers.push_back(std::move(source));
  return static_cast<std::uint32_t>(k_.buffers.size() - 1);
}

Hook PairKernel::begin(const std::string& name, std::initializer_list<E*> coordinates) {
  Hook h;
  h.name = name;
  for (E* c : coordinates) {
    *c = param(0);
    h.params.push_back(static_cast<std::uint32_t>(c->node().imm));
  }
  known_.clear();
  near_.clear();
  reciprocals_.clear();
  return h;
}

std::uint32_t PairKernel::given(Hook& h, bool made) {
  const auto role = made ? BufferDecl::Role::Out : BufferDecl::Role::In;
  const std::uint32_t b = buffer({role, DType::Float32, 4}, {BufferSource::Kind::Scratch, 0, 0});
  h.buffers.push_back(b);
  return b;
}

LoopDecl PairKernel::lanes(E extent, bool ragged, int count) {
  LoopDecl l;
  l.kind = LoopKind::Vector;
  l.var = k_.n_vars++;
  l.extent = extent.id;
  l.lanes = static_cast<decltype(l.lanes)>(count);
  l.steps = 1;
  l.ragged = ragged;
  lane_ = leaf(Prim::Var, DType::Int64, l.var);
  return l;
}

// ---- memory

std::uint32_t PairKernel::memory_buffer(const MatrixMemory& m) {
  const auto known = buffers_.find(&m);
  if (known != buffers_.end()) return known->second;
  const std::int64_t bytes = size_of(m.dtype);
  BufferSource source{BufferSource::Kind::Node, m.base, m.offset * bytes};
  if (g_[m.base].op == ir::Op::leaf) {
    source.kind = BufferSource::Kind::Arg;
    source.id = static_cast<std::uint32_t>(g_[m.base].arg);
  }
  for (const plan::Alias::Position& p : m.positions)
    source.positions.push_back({p.slot, p.last, p.stride * bytes, 1});
  out_.bytes += g_[m.base].numel * bytes;
  const std::uint32_t b =
      buffer({BufferDecl::Role::In, m.dtype, static_cast<std::uint8_t>(bytes)}, std::move(source));
  buffers_.emplace(&m, b);
  return b;
}

const PairKernel::Parameters& PairKernel::parameters(const MatrixMemory& m) {
  const auto [at, fresh] = parameters_.try_emplace(&m);
  Parameters& p = at->second;
  if (!fresh) return p;
  for (const MatrixMemory::Part& part : m.parts) {
    p.divisors.push_back(param(part.divisor));
    p.extents.push_back(param(part.extent));
    p.strides.push_back(param(part.stride));
  }
  if (m.row != 0 && m.row != 1) p.row = param(m.row);
  if (m.column != 0 && m.column != 1) p.column = param(m.column);
  return p;
}

/// In 32 bits, which hold a matrix's number: a GPU divides 64 bits by a call.
E PairKernel::quotient(E number, E divisor) const {
  const auto narrow = [](E x) { return kernel::cast(x, DType::UInt32); };
  return kernel::cast(narrow(number) / narrow(divisor), DType::Int64);
}

E PairKernel::coordinate(E number, const MatrixMemory::Part& part, E divisor, E extent) {
  const E at = part.divisor == 1 ? number : quotient(number, divisor);
  return part.divisor * part.extent >= pairs_.batch ? at : at - quotient(at, extent) * extent;
}

E PairKernel::coordinate(E number, const MatrixMemory& m, std::size_t part) {
  const Parameters& p = parameters(m);
  return coordinate(number, m.parts[part], p.divisors[part], p.extents[part]);
}

E PairKernel::first_element(const MatrixMemory& m, E batch) {
  const Parameters& p = parameters(m);
  E at{};
  for (std::size_t i = 0; i < m.parts.size(); ++i) {
    const E step = coordinate(batch, m, i) * p.strides[i];
    at = at ? at + step : step;
  }
  return at ? at : integer(0);
}

Hook PairKernel::matrix(const std::string& name, const MatrixMemory& m) {
  E batch;
  Hook h = begin(name, {&batch});
  h.address = static_cast<std::int32_t>(memory_buffer(m));
  h.results.push_back(first_element(m, batch).id);
  return h;
}

bool PairKernel::is_aligned(const MatrixMemory& m) const {
  const std::int64_t elements = kWord / size_of(m.dtype);
  const bool base =
      g_[m.base].op != ir::Op::leaf || g_.args[static_cast<std::size_t>(g_[m.base].arg)].alignment >= kWord;
  return base && m.positions.empty() && m.offset % elements == 0 && m.row % elements == 0 &&
         std::all_of(m.parts.begin(), m.parts.end(),
                     [&](const MatrixMemory::Part& p) { return p.stride % elements == 0; });
}

// ---- terms

static E counted(E index, DType type) { return kernel::cast(kernel::from_index(index), type); }

E PairKernel::term(TermId id, const Place& at) {
  if (const auto known = known_.find(id); known != known_.end()) return known->second;
  const Term& t = term_at(id);
  const auto among = [&](std::span<const TermId> masks) {
    return std::find(masks.begin(), masks.end(), id) != masks.end();
  };
  const E value = among(at.first) ? term(t.in[1], at) : among(at.other) ? term(t.in[2], at) : make(t, at);
  known_.emplace(id, value);
  return value;
}

E PairKernel::batch_coordinate(const Term& t, E batch) {
  return coordinate(batch, {t.divisor, t.extent, 0}, integer(t.divisor), integer(t.extent));
}

E PairKernel::make(const Term& t, const Place& at) {
  const DType type = compute_type(t.dtype);
  switch (t.kind) {
    case Term::Kind::Score: return at.scores[static_cast<std::size_t>(std::max(t.index, 0))];
    case Term::Kind::Max: return at.max;
    case Term::Kind::Sum: return at.sums[static_cast<std::size_t>(t.index)];
    case Term::Kind::Statistic: return at.statistics[static_cast<std::size_t>(t.index)];
    case Term::Kind::Memory: return element(pairs_.memory[static_cast<std::size_t>(t.index)], at);
    case Term::Kind::Row: return counted(at.row, type);
    case Term::Kind::Column: return counted(at.column, type);
    case Term::Kind::Batch: return counted(batch_coordinate(t, at.batch), type);
    case Term::Kind::Scalar: return kernel::cast(slot(t), type);
    case Term::Kind::Constant: return kernel::cast(kernel::constant_bits(k_.pool, t.dtype, t.bits), type);
    case Term::Kind::Operation: return operation(t, at);
  }
  return {};
}

E PairKernel::slot(const Term& t) {
  const auto at = std::find(out_.slots.begin(), out_.slots.end(), t.index);
  const auto number = static_cast<std::uint64_t>(at - out_.slots.begin());
  if (at == out_.slots.end()) {
    out_.slots.push_back(t.index);
    k_.slots.push_back(t.dtype);
  }
  return leaf(Prim::Slot, t.dtype, number);
}

E PairKernel::element(const MatrixMemory& m, const Place& at) {
  const std::uint32_t b = memory_buffer(m);
  E index = first_element(m, at.batch), inside{};
  const Parameters& p = parameters(m);
  const auto also = [&](E condition) { inside = inside ? inside & condition : condition; };
  if (m.row != 0) {
    index = index + along_rows(m, at.row);
    also(at.row < rows());
  }
  if (m.column != 0) {
    index = index + (m.column == 1 ? at.column : at.column * p.column);
    also(at.column < columns());
  }
  return kernel::cast(load(b, m.dtype, index, inside), compute_type(m.dtype));
}

E PairKernel::extent(E& known, std::int64_t value) {
  if (!known) known = param(value);
  return known;
}

E PairKernel::rounded(E value, DType type) {
  return is_half(type) ? kernel::cast(kernel::cast(value, type), DType::Float32) : value;
}

static bool compares(ir::Op op) {
  return op == ir::Op::less || op == ir::Op::less_equal || op == ir::Op::greater ||
         op == ir::Op::greater_equal || op == ir::Op::equal || op == ir::Op::not_equal;
}

/// A sum or difference of a few coordinates in 32 bits, or nothing: conversions of 64 bits are slow.
E PairKernel::narrow(TermId id, const Place& at, int depth) {
  const Term& t = term_at(id);
  const bool few = std::max({pairs_.rows, pairs_.columns, pairs_.batch}) < kNarrowExtent;
  if (!few || depth == 0 || (t.dtype != DType::Int64 && t.dtype != DType::Int32)) return {};
  switch (t.kind) {
    case Term::Kind::Row:
    case Term::Kind::Column:
    case Term::Kind::Batch: return kernel::cast(term(id, at), DType::Int32);
    case Term::Kind::Operation: break;
    case Term::Kind::Score:
    case Term::Kind::Max:
    case Term::Kind::Sum:
    case Term::Kind::Statistic:
    case Term::Kind::Memory:
    case Term::Kind::Scalar:
    case Term::Kind::Constant: return {};
  }
  if (t.op == ir::Op::cast) return narrow(t.in[0], at, depth - 1);
  if (t.op != ir::Op::add && t.op != ir::Op::subtract) return {};
  const E x = narrow(t.in[0], at, depth - 1), y = narrow(t.in[1], at, depth - 1);
  if (!x || !y) return {};
  return t.op == ir::Op::add ? x + y : x - y;
}

/// A product and a sum in one rounding, or nothing.
E PairKernel::fused(ir::Op op, E x, E y) const {
  const bool subtracts = op == ir::Op::subtract;
  if (!k_.fma || !(subtracts || op == ir::Op::add) || x.type() != DType::Float32) return {};
  const auto factors = [&](E product) {
    return std::pair(E{&k_.pool, product.node().a}, E{&k_.pool, product.node().b});
  };
  if (x.node().prim == kernel::Prim::Mul) {
    const auto [a, b] = factors(x);
    return kernel::fma(a, b, subtracts ? -y : y);
  }
  if (y.node().prim == kernel::Prim::Mul) {
    const auto [a, b] = factors(y);
    return kernel::fma(subtracts ? -a : a, b, x);
  }
  return {};
}

E PairKernel::operation(const Term& t, const Place& at) {
  E in[3];
  for (int k = 0; k < t.n_in; ++k) {
    const Term& x = term_at(t.in[k]);
    in[k] = term(t.in[k], at);
    const bool stored = x.kind != Term::Kind::Operation || x.op == ir::Op::cast;
    if (ir::has(t.op, ir::JUMPS) && !stored) in[k] = rounded(in[k], x.dtype);
  }
  if (t.op == ir::Op::cast && is_float(t.dtype))
    if (const E small = narrow(t.in[0], at, kNarrowDepth)) in[0] = small;
  if (t.op == ir::Op::cast) return is_half(t.dtype) ? rounded(in[0], t.dtype) : kernel::cast(in[0], t.dtype);
  if (compares(t.op)) {
    const E x = narrow(t.in[0], at, kNarrowDepth), y = narrow(t.in[1], at, kNarrowDepth);
    if (x && y) return expand_gpu(t.op, true, x, y, {}, DType::Int32);
  }
  if (t.op == ir::Op::divide)
    if (const auto known = reciprocals_.find(t.in[1]); known != reciprocals_.end())
      return in[0] * known->second;
  if (const E sum = fused(t.op, in[0], in[1])) return sum;
  const auto id = static_cast<TermId>(&t - pairs_.terms.data());
  if (t.op == ir::Op::tanh && in[0].type() == DType::Float32 &&
      std::find(near_.begin(), near_.end(), id) != near_.end())
    return expand_tanh_beside_one(in[0]);
  const DType recorded = term_at(t.in[t.n_in - 1]).dtype;
  return expand_gpu(t.op, true, in[0], in[1], in[2], recorded);
}

// ---- bounds of masks

/// Where integers of a tile lie, if that follows from its coordinates.
std::optional<PairKernel::Range> PairKernel::range(TermId id, const TilePlace& at) {
  const Term& t = term_at(id);
  if (!is_int(t.dtype)) return std::nullopt;
  const auto same = [](E x) { return Range{x, x}; };
  switch (t.kind) {
    case Term::Kind::Row: return Range{kernel::from_index(at.row0), kernel::from_index(at.row1)};
    case Term::Kind::Column: return Range{kernel::from_index(at.column0), kernel::from_index(at.column1)};
    case Term::Kind::Batch: return same(kernel::from_index(batch_coordinate(t, at.batch)));
    case Term::Kind::Scalar: return same(kernel::cast(slot(t), DType::Int64));
    case Term::Kind::Constant:
      return same(kernel::cast(kernel::constant_bits(k_.pool, t.dtype, t.bits), DType::Int64));
    case Term::Kind::Operation: break;
    case Term::Kind::Score:
    case Term::Kind::Max:
    case Term::Kind::Sum:
    case Term::Kind::Statistic:
    case Term::Kind::Memory: return std::nullopt;
  }
  if (size_of(t.dtype) < 4) return std::nullopt;  // it may wrap
  std::optional<Range> x = range(t.in[0], at), y;
  if (t.n_in > 1) y = range(t.in[1], at);
  if (!x || (t.n_in > 1 && !y)) return std::nullopt;
  switch (t.op) {
    case ir::Op::cast: return x;
    case ir::Op::add: return Range{x->low + y->low, x->high + y->high};
    case ir::Op::subtract: return Range{x->low - y->high, x->high - y->low};
    case ir::Op::negative: return Range{-x->high, -x->low};
    case ir::Op::maximum: return Range{kernel::max(x->low, y->low), kernel::max(x->high, y->high)};
    case ir::Op::minimum: return Range{kernel::min(x->low, y->low), kernel::min(x->high, y->high)};
    case ir::Op::multiply: {
      const E a = x->low * y->low, b = x->low * y->high, c = x->high * y->low, d = x->high * y->high;
      return Range{kernel::min(kernel::min(a, b), kernel::min(c, d)),
                   kernel::max(kernel::max(a, b), kernel::max(c, d))};
    }
    default: return std::nullopt;
  }
}

PairKernel::Truth PairKernel::truth(TermId id, const TilePlace& at) {
  const Term& t = term_at(id);
  const Truth unknown{yes(true), yes(true)};
  if (t.kind != Term::Kind::Operation) return unknown;
  const auto both = [&](auto f) {
    const std::optional<Range> x = range(t.in[0], at), y = range(t.in[1], at);
    return x && y ? f(*x, *y) : unknown;
  };
  const auto less = [](const Range& x, const Range& y) { return Truth{x.high >= y.low, x.low < y.high}; };
  const auto not_less = [&](const Range& x, const Range& y) {
    const Truth l = less(x, y);
    return Truth{l.can_be_true, l.can_be_false};
  };
  switch (t.op) {
    case ir::Op::less: return both(less);
    case ir::Op::greater_equal: return both(not_less);
    case ir::Op::greater: return both([&](const Range& x, const Range& y) { return less(y, x); });
    case ir::Op::less_equal: return both([&](const Range& x, const Range& y) { return not_less(y, x); });
    case ir::Op::logical_and:
    case ir::Op::bitwise_and: {
      const Truth x = truth(t.in[0], at), y = truth(t.in[1], at);
      return {x.can_be_false | y.can_be_false, x.can_be_true & y.can_be_true};
    }
    case ir::Op::logical_or:
    case ir::Op::bitwise_or: {
      const Truth x = truth(t.in[0], at), y = truth(t.in[1], at);
      return {x.can_be_false & y.can_be_false, x.can_be_true | y.can_be_true};
    }
    case ir::Op::logical_not:
    case ir::Op::bitwise_invert: {
      const Truth x = truth(t.in[0], at);
      return {x.can_be_true, x.can_be_false};
    }
    default: return unknown;
  }
}

Lowered PairKernel::finished() {
  k_.n_params = static_cast<std::uint32_t>(out_.params.size());
  const kernel::OldNumbers old = kernel::canonicalise(k_);
  const auto reorder = [](auto& list, const std::vector<std::uint32_t>& numbers) {
    std::remove_reference_t<decltype(list)> out;
    for (const std::uint32_t n : numbers) out.push_back(std::move(list[n]));
    list = std::move(out);
  };
  reorder(out_.params, old.params);
  reorder(out_.slots, old.slots);
  reorder(out_.buffers, old.buffers);
  for (device::TiledBuffer& t : out_.tiled)
    t.buffer = static_cast<std::uint32_t>(std::find(old.buffers.begin(), old.buffers.end(), t.buffer) -
                                          old.buffers.begin());
  return std::move(out_);
}

}  // namespace kiln::lower
