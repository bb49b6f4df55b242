#include "plan/atoms.h"

#include <algorithm>

namespace kiln::plan {

void Unifier::begin(Side& s, const Space& of) {
  s.n = of.n;
  for (int i = 0; i < of.n; ++i) {
    s.extent[i] = of.extent[i];
    s.atom[i] = static_cast<std::int8_t>(i);
    s.link[i] = -1;
  }
}

/// A part of `atom` before part `at`.
bool Unifier::insert(int side, int at, std::int64_t extent, int atom) {
  Side &s = side_[side], &other = side_[1 - side];
  if (s.n == Space::kMost) return false;
  for (int i = s.n++; i > at; --i) {
    s.extent[i] = s.extent[i - 1];
    s.atom[i] = s.atom[i - 1];
    s.link[i] = s.link[i - 1];
  }
  for (int i = 0; i < other.n; ++i)
    if (other.link[i] >= at) ++other.link[i];
  s.extent[at] = extent;
  s.atom[at] = static_cast<std::int8_t>(atom);
  s.link[at] = -1;
  changed_ = true;
  return true;
}

/// Gives part `at` of a side, of one element, its like from part `into` of the other side on: one that these
/// atoms have there, or a new one.
bool Unifier::insert_one(int at, int side, int into, AtomSet within) {
  const Side& other = side_[1 - side];
  if (side_[side].link[at] >= 0 || side_[side].extent[at] != 1 || other.n == 0) return false;
  for (int i = into; i < other.n && other.extent[i] == 1; ++i)
    if (other.link[i] < 0 && (within >> other.atom[i] & 1)) return side == 0 ? link(at, i) : link(i, at);
  const int atom = other.atom[std::min(into, other.n - 1)];
  if (!insert(1 - side, into, 1, atom)) return false;
  return side == 0 ? link(at, into) : link(into, at);
}

/// Part `at` becomes one of `outer` and what is left, and so does the part that it is the same as.
bool Unifier::split(int side, int at, std::int64_t outer) {
  Side& s = side_[side];
  const int partner = s.link[at];
  const std::int64_t inner = s.extent[at] / outer;
  if (!insert(side, at + 1, inner, s.atom[at])) return false;
  s.extent[at] = outer;
  if (partner < 0) return true;
  Side& other = side_[1 - side];
  if (!insert(1 - side, partner + 1, inner, other.atom[partner])) return false;
  other.extent[partner] = outer;
  s.link[at + 1] = static_cast<std::int8_t>(partner + 1);
  other.link[partner + 1] = static_cast<std::int8_t>(at + 1);
  return true;
}

bool Unifier::link(int a, int b) {
  if (side_[0].link[a] != side_[1].link[b] && (side_[0].link[a] != b || side_[1].link[b] != a)) return false;
  if (side_[0].link[a] >= 0) return side_[0].link[a] == b && side_[1].link[b] == a;
  side_[0].link[a] = static_cast<std::int8_t>(b);
  side_[1].link[b] = static_cast<std::int8_t>(a);
  return true;
}

static std::uint32_t parts(const std::int8_t* atoms, int n, AtomSet set) {
  std::uint32_t found = 0;
  for (int i = 0; i < n; ++i)
    if (set >> atoms[i] & 1) found |= std::uint32_t{1} << i;
  return found;
}

bool Unifier::walk(AtomSet from, AtomSet to, std::span<const Run> runs) {
  for (;;) {
    std::uint32_t kept = 0;
    Step step = cut(from, to, runs, kept);
    if (step == Step::Done) step = meet(from, to, kept);
    if (step != Step::Again) return step == Step::Done;
  }
}

/// Cuts b's parts at the ends of the runs. `kept`: those of the kept runs, and all without runs.
Unifier::Step Unifier::cut(AtomSet from, AtomSet to, std::span<const Run> runs, std::uint32_t& kept) {
  const Side &a = side_[0], &b = side_[1];
  kept = parts(b.atom, b.n, to);
  if (runs.empty()) return Step::Done;
  std::size_t run = 0;
  std::int64_t left = runs[0].extent;
  for (int i = 0; i < b.n; ++i) {
    const std::uint32_t bit = std::uint32_t{1} << i;
    if (!(kept & bit)) continue;
    const std::int64_t e = b.extent[i];
    if (e == 1) {  // it goes with what it is the same as
      if (b.link[i] < 0 || !(from >> a.atom[b.link[i]] & 1)) kept &= ~bit;
      continue;
    }
    if (left == 1) {
      if (++run == runs.size()) return Step::Fails;
      left = runs[run].extent;
    }
    if (left % e != 0) {
      if (e % left != 0) return Step::Fails;
      return split(1, i, left) ? Step::Again : Step::Fails;
    }
    left /= e;
    if (runs[run].repeated) kept &= ~bit;
  }
  return left == 1 && run + 1 == runs.size() ? Step::Done : Step::Fails;
}

/// One step towards two sequences of parts that are the same.
Unifier::Step Unifier::meet(AtomSet from, AtomSet to, std::uint32_t b) {
  const std::uint32_t a = parts(side_[0].atom, side_[0].n, from);
  const auto again = [](bool done) { return done ? Step::Again : Step::Fails; };
  int i = 0, j = 0, after_a = 0, after_b = 0;  // and behind the last that met
  for (;; ++i, ++j) {
    while (i < side_[0].n && !(a >> i & 1)) ++i;
    while (j < side_[1].n && !(b >> j & 1)) ++j;
    const bool no_a = i >= side_[0].n, no_b = j >= side_[1].n;
    if (no_a && no_b) return Step::Done;
    if (no_a) return again(insert_one(j, 1, after_a, from));
    if (no_b) return again(insert_one(i, 0, after_b, to));
    const std::int64_t x = side_[0].extent[i], y = side_[1].extent[j];
    if (x == y) {
      if (!link(i, j)) return Step::Fails;
      after_a = i + 1;
      after_b = j + 1;
      continue;
    }
    if (x == 1) return again(insert_one(i, 0, after_b, to));
    if (y == 1) return again(insert_one(j, 1, after_a, from));
    if (x % y == 0) return again(split(0, i, y));
    if (y % x == 0) return again(split(1, j, x));
    return Step::Fails;
  }
}

/// The next parts, from these on, that are the same; the ends of both if there are none. False: other parts
/// lie between them that are the same as something outside.
bool Unifier::next_pair(int& a, int& b) const {
  const int from = b;
  while (a < side_[0].n && side_[0].link[a] < 0) ++a;
  b = a < side_[0].n ? side_[0].link[a] : side_[1].n;
  if (b < from) return false;
  return std::none_of(side_[1].link + from, side_[1].link + b, [](std::int8_t l) { return l >= 0; });
}

void Unifier::join_gap(int a, int a_end, int b, int b_end) {
  std::int64_t x = 1, y = 1;
  for (int i = a; i < a_end; ++i) x *= side_[0].extent[i];
  for (int j = b; j < b_end; ++j) y *= side_[1].extent[j];
  if (x != y) return;
  for (; a < a_end && b < b_end; ++a, ++b) {
    const std::int64_t u = side_[0].extent[a], v = side_[1].extent[b];
    if (u > v && u % v == 0) {
      if (!split(0, a, v)) return;
      ++a_end;
    } else if (v > u && v % u == 0) {
      if (!split(1, b, u)) return;
      ++b_end;
    } else if (u != v) {
      return;
    }
    link(a, b);
  }
}

bool Unifier::finish() {
  for (int a = 0, b = 0; a < side_[0].n || b < side_[1].n;) {
    int a_end = a, b_end = b;
    if (!next_pair(a_end, b_end)) return false;
    join_gap(a, a_end, b, b_end);
    a_end = a, b_end = b;
    while (a_end < side_[0].n && side_[0].link[a_end] >= 0 && side_[0].link[a_end] == b_end) ++a_end, ++b_end;
    if (a_end == a) {  // nothing joined: past the gap
      if (!next_pair(a_end, b_end)) return false;
      if (a_end < side_[0].n) ++a_end, ++b_end;
    }
    a = a_end;
    b = b_end;
  }
  space_.n = 0;
  for (int a = 0, b = 0; a < side_[0].n || b < side_[1].n;) {
    if (space_.n == Space::kMost) return false;
    const bool own = a < side_[0].n && side_[0].link[a] < 0;
    const bool others = !own && b < side_[1].n && side_[1].link[b] < 0;
    const auto place = static_cast<std::int8_t>(space_.n);
    if (!own && !others && (a >= side_[0].n || b >= side_[1].n || side_[0].link[a] != b)) return false;
    space_.add(others ? side_[1].extent[b] : side_[0].extent[a]);
    if (!others) side_[0].out[a++] = place;
    if (!own) side_[1].out[b++] = place;
  }
  return true;
}

AtomSet Unifier::of(int side, AtomSet set) const {
  const Side& s = side_[side];
  AtomSet made = 0;
  for (int i = 0; i < s.n; ++i)
    if (set >> s.atom[i] & 1) made |= AtomSet{1} << s.out[i];
  return made;
}

bool Unifier::is_identity(int side, int atoms) const {
  const Side& s = side_[side];
  bool same = s.n == atoms;
  for (int i = 0; i < s.n && same; ++i) same = s.atom[i] == i && s.out[i] == i;
  return same;
}

}  // namespace kiln::plan
