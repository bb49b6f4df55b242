#include "lower/index.h"

#include "support/check.h"

#include <numeric>

namespace kiln::lower {

IndexSpace::IndexSpace(std::span<const std::int64_t> axes) : axes_(static_cast<int>(axes.size())) {
  atoms_.reserve(axes.size() + 8);
  for (std::int64_t extent : axes) {
    atoms_.push_back({Atom::Kind::Axis, extent});
    atoms_.back().axes = std::uint64_t{1} << (atoms_.size() - 1);
  }
}

AtomId IndexSpace::intern(Atom atom) {
  for (std::size_t i = static_cast<std::size_t>(axes_); i < atoms_.size(); ++i)
    if (atoms_[i].kind == atom.kind && atoms_[i].divisor == atom.divisor && atoms_[i].of == atom.of &&
        atoms_[i].entry == atom.entry && atoms_[i].extent == atom.extent)
      return static_cast<AtomId>(i);
  atom.jumps = atom.kind == Atom::Kind::Value;
  atom.of_entries = atom.jumps || atom.kind == Atom::Kind::Position;
  for (int i = 0; i < atom.of.n; ++i) {
    const Atom& part = atoms_[static_cast<std::size_t>(atom.of.terms[i].atom)];
    atom.axes |= part.axes;
    atom.jumps |= part.jumps;
    atom.of_entries |= part.of_entries;
  }
  atoms_.push_back(atom);
  return static_cast<AtomId>(atoms_.size() - 1);
}

Index IndexSpace::axis(int a) const {
  Index i;
  if (atom(a).extent == 1) return i;
  i.n = 1;
  i.terms[0] = {a, 1};
  return i;
}

Index IndexSpace::value(std::uint32_t entry, std::int64_t extent) {
  Atom a{Atom::Kind::Value, extent};
  a.entry = entry;
  has_values_ = true;
  Index i;
  i.n = 1;
  i.terms[0] = {intern(a), 1};
  return i;
}

Index IndexSpace::position(std::uint32_t entry, std::int64_t last, std::int64_t factor,
                           std::int64_t from_back) {
  if (last / factor == 0) return constant(0);
  Atom a{Atom::Kind::Position, last / factor + 1, factor};
  a.entry = entry;
  a.of.c = from_back;
  has_values_ = true;
  Index i;
  i.n = 1;
  i.terms[0] = {intern(a), factor};
  return i;
}

Index IndexSpace::add(const Index& a, const Index& b) {
  Index r;
  r.c = a.c + b.c;
  int i = 0, j = 0;
  while (i < a.n || j < b.n) {
    Term t;
    if (j == b.n || (i < a.n && a.terms[i].atom < b.terms[j].atom))
      t = a.terms[i++];
    else if (i == a.n || b.terms[j].atom < a.terms[i].atom)
      t = b.terms[j++];
    else {
      t = {a.terms[i].atom, a.terms[i].coef + b.terms[j].coef};
      ++i, ++j;
    }
    if (t.coef == 0) continue;
    if (r.n == Index::kMaxTerms) {  // too long for one index: what we have becomes one atom
      const auto [lo, hi] = range(r);
      const AtomId whole = intern({Atom::Kind::Sum, hi + 1, 1, lo, r});
      r = Index{};
      r.n = 1;
      r.terms[0] = {whole, 1};
      return add(r, [&] {
        Index rest;
        rest.n = 1;
        rest.terms[0] = t;
        for (; i < a.n; ++i)
          rest = add(rest, [&] {
            Index s;
            s.n = 1;
            s.terms[0] = a.terms[i];
            return s;
          }());
        for (; j < b.n; ++j)
          rest = add(rest, [&] {
            Index s;
            s.n = 1;
            s.terms[0] = b.terms[j];
            return s;
          }());
        return rest;
      }());
    }
    r.terms[r.n++] = t;
  }
  return fold(r);
}

/// k·d·floor(x/d) + k·(x mod d) is k·x: what a reshape there and back leaves. Terminates: every step takes
/// two atoms away and adds the older atoms they are made of.
Index IndexSpace::fold(const Index& a) {
  for (int i = 0; i < a.n; ++i) {
    if (a.terms[i].atom < axes_ || atom(a.terms[i].atom).kind != Atom::Kind::Mod) continue;
    const Atom& mod = atom(a.terms[i].atom);
    for (int j = 0; j < a.n; ++j) {
      if (a.terms[j].atom < axes_) continue;
      const Atom& div = atom(a.terms[j].atom);
      if (div.kind != Atom::Kind::Div || div.divisor != mod.divisor || !(div.of == mod.of) ||
          a.terms[j].coef != a.terms[i].coef * mod.divisor)
        continue;
      const Index whole = mul(mod.of, a.terms[i].coef);
      Index rest;
      rest.c = a.c;
      for (int t = 0; t < a.n; ++t)
        if (t != i && t != j) rest.terms[rest.n++] = a.terms[t];
      return add(rest, whole);
    }
  }
  return a;
}

Index IndexSpace::mul(const Index& a, std::int64_t k) {
  Index r;
  if (k == 0) return r;
  r = a;
  r.c *= k;
  for (int i = 0; i < r.n; ++i) r.terms[i].coef *= k;
  return r;
}

std::pair<std::int64_t, std::int64_t> IndexSpace::range(const Index& a) const {
  std::int64_t lo = a.c, hi = a.c;
  for (int i = 0; i < a.n; ++i) {
    const Atom& t = atom(a.terms[i].atom);
    const std::int64_t k = a.terms[i].coef;
    const std::int64_t x = k * t.lo, y = k * (t.extent - 1);
    lo += std::min(x, y);
    hi += std::max(x, y);
  }
  return {lo, hi};
}

IndexSpace::Divides IndexSpace::divides(std::int64_t d, const Index& a) {
  std::int64_t common = d;  // of the divisor and all coefficients: the index is the constant modulo this
  for (int i = 0; i < a.n; ++i) common = std::gcd(common, a.terms[i].coef);
  if (a.c % common != 0) return Divides::Never;
  return common == d ? Divides::Always : Divides::Perhaps;
}

namespace {

struct Split {
  Index quotient, remainder;
  bool ok;
};

/// a = d·quotient + remainder with 0 <= remainder < d provable, when the terms allow it.
Split split(const IndexSpace& space, const Index& a, std::int64_t d) {
  Split s{};
  s.quotient.c = a.c >= 0 ? a.c / d : -((-a.c + d - 1) / d);
  s.remainder.c = a.c - s.quotient.c * d;
  for (int i = 0; i < a.n; ++i) {
    const Term t = a.terms[i];
    if (t.coef % d == 0)
      s.quotient.terms[s.quotient.n++] = {t.atom, t.coef / d};
    else
      s.remainder.terms[s.remainder.n++] = t;
  }
  const auto [lo, hi] = space.range(s.remainder);
  s.ok = lo >= 0 && hi < d;
  return s;
}

}  // namespace

Index IndexSpace::floor_div(const Index& a, std::int64_t d) {
  if (d == 1) return a;
  Split s = split(*this, a, d);
  if (s.ok) return s.quotient;
  const auto [lo, hi] = range(s.remainder);
  if (lo >= 0) {  // floor((d·q + r) / d) = q + floor(r / d)
    Index r;
    r.n = 1;
    r.terms[0] = {intern({Atom::Kind::Div, hi / d + 1, d, 0, s.remainder}), 1};
    return add(s.quotient, r);
  }
  Index r;
  r.n = 1;
  r.terms[0] = {intern({Atom::Kind::Div, range(a).second / d + 1, d, 0, a}), 1};
  return r;
}

Index IndexSpace::mod(const Index& a, std::int64_t d) {
  if (d == 1) return constant(0);
  Split s = split(*this, a, d);
  if (s.ok) return s.remainder;
  const Index& of = range(s.remainder).first >= 0 ? s.remainder : a;
  Index r;
  r.n = 1;
  r.terms[0] = {intern({Atom::Kind::Mod, d, d, 0, of}), 1};
  return r;
}

Index IndexSpace::linearize(std::span<const Index> coords, std::span<const std::int64_t> dims) {
  Index linear;
  std::int64_t stride = 1;
  for (std::size_t a = dims.size(); a-- > 0;) {
    if (dims[a] != 1) linear = add(linear, mul(coords[a], stride));
    stride *= dims[a];
  }
  return linear;
}

void IndexSpace::delinearize(const Index& linear, std::span<const std::int64_t> dims, Coords& out) {
  out.resize(dims.size());
  Index rest = linear;
  std::size_t outermost = 0;
  while (outermost < dims.size() && dims[outermost] == 1) ++outermost;
  for (std::size_t a = dims.size(); a-- > 0;) {
    if (dims[a] == 1) {
      out[a] = constant(0);
    } else if (a == outermost) {
      out[a] = rest;
    } else {
      out[a] = mod(rest, dims[a]);
      rest = floor_div(rest, dims[a]);
    }
  }
}

Coords IndexSpace::reshaped(std::span<const Index> coords, std::span<const std::int64_t> from,
                            std::span<const std::int64_t> to) {
  Coords out, part;
  const auto is_empty = [](std::int64_t extent) { return extent == 0; };
  if (std::ranges::any_of(from, is_empty)) {
    delinearize(linearize(coords, from), to, out);
    return out;
  }
  std::size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const std::size_t i0 = i, j0 = j;
    std::int64_t a = i < from.size() ? from[i++] : 1, b = j < to.size() ? to[j++] : 1;
    while (a != b) a < b ? a *= from[i++] : b *= to[j++];
    const auto here = from.subspan(i0, i - i0), there = to.subspan(j0, j - j0);
    delinearize(linearize(coords.subspan(i0, i - i0), here), there, part);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

}  // namespace kiln::lower
