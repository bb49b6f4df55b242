// Integers of four bits, two in a byte, in an operand that a product makes on the way: which value of the
// region they are, and whether little is made of them. A main loop then makes halves of eight of them with a
// few instructions (kernels_templates/ptx.cuh).
#include "lower/region_lowering.h"

#include <algorithm>

namespace kiln::lower {
namespace {

constexpr int kBits = 4;                // of an integer, and how far its byte moves to take it out
constexpr std::int64_t kInCommon = 32;  // adjacent elements that a lane of the main loop takes at a time

}  // namespace

/// What is converted to get this, if integers are to a wider type, or any to a float.
EntryId RegionLowering::without_casts(EntryId id) const {
  for (;;) {
    const Entry& e = p_.entries[id];
    if (id == copied_ || e.kind != Entry::Kind::Op || g_[e.node].op != Op::cast) return id;
    const DType from = g_[g_[e.node].in[0]].dtype, to = g_[e.node].dtype;
    if (size_of(from) > size_of(to) || is_float(from) > is_float(to)) return id;
    id = e.in[0];
  }
}

/// A copied byte moved up and back, by amounts that the graph knows, so that the lower half comes first: as
/// unpack_int4 records it. Nothing: others read the byte as well, or it is something else.
EntryId RegionLowering::find_nibbles() const {
  const AtomId half = groups_[static_cast<std::size_t>(run_groups_.back())].last;
  const auto reader = [&](EntryId id) {
    EntryId found = kNoEntry;
    int readers = 0;
    for (EntryId at = 0; at < p_.entries.size(); ++at)
      p_.each_operand(p_.entries[at], [&](EntryId in) {
        if (in == id) found = at, ++readers;
      });
    return readers == 1 ? found : kNoEntry;
  };
  const auto moves = [&](EntryId id, Op op, EntryId what, std::int64_t each) {
    if (id == kNoEntry) return false;
    const Entry& e = p_.entries[id];
    if (e.kind != Entry::Kind::Op || g_[e.node].op != op || e.in[0] != what) return false;
    const Entry& by = p_.entries[without_casts(e.in[1])];
    return by.kind == Entry::Kind::Iota && by.index.c == kBits && by.index.coef(half) == each &&
           by.index.n == (each != 0);
  };
  const EntryId up = reader(copied_);
  if (!moves(up, Op::bitwise_left_shift, copied_, -kBits)) return kNoEntry;
  for (EntryId id = up + 1; id < p_.entries.size(); ++id)
    if (moves(id, Op::bitwise_right_shift, up, 0)) return reader(up) == id ? id : kNoEntry;
  return kNoEntry;
}

/// Whether a value is that of the nibbles, less a zero point of eight bits, times a scale of the element
/// type, both of which kInCommon adjacent elements share: then halves give what floats would, rounded once.
std::optional<Quantized> RegionLowering::quantized(EntryId id, DType element) const {
  std::vector<int> inner;
  for (std::int64_t length = 1; length % kInCommon != 0;) {
    if (inner.size() == run_groups_.size()) return std::nullopt;
    inner.push_back(run_groups_[run_groups_.size() - 1 - inner.size()]);
    length *= groups_[static_cast<std::size_t>(inner.back())].extent;
  }
  const auto type = [&](EntryId of) { return g_[p_.entries[of].node].dtype; };
  const auto is = [&](EntryId of, Op op) {  // of floats that have at least the element's bits
    const Entry& e = p_.entries[of];
    return e.kind == Entry::Kind::Op && g_[e.node].op == op && is_float(type(of)) &&
           (type(of) == element || !is_half(type(of)));
  };
  const auto operands = [&](EntryId of, Op op) -> std::optional<std::pair<EntryId, EntryId>> {
    while (is(of, Op::cast) && is_float(type(p_.entries[of].in[0]))) of = p_.entries[of].in[0];
    if (!is(of, op)) return std::nullopt;
    return std::pair{p_.entries[of].in[0], p_.entries[of].in[1]};
  };
  Quantized out;
  if (const auto both = operands(id, Op::multiply)) {
    const bool leads = is_same_along(both->first, inner);
    out.scale = without_casts(leads ? both->first : both->second);
    if (!is_same_along(out.scale, inner) || type(out.scale) != element ||
        !has_stored_bits(p_.entries[out.scale]))
      return std::nullopt;
    id = leads ? both->second : both->first;
  }
  if (const auto both = operands(id, Op::subtract)) {
    out.zero = without_casts(both->second);
    const DType zero = type(out.zero);
    if (!is_same_along(out.zero, inner) || !is_int(zero) || size_of(zero) != 1 ||
        (is_unsigned_int(zero) && is_signed_int(type(copied_))))  // a difference could have nine bits
      return std::nullopt;
    id = both->first;
  }
  return without_casts(id) == copied_ ? std::optional(out) : std::nullopt;
}

}  // namespace kiln::lower
