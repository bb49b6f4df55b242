// What loads ask for before it is needed: memory that later iterations, rows or items read, and that no
// hardware foresees, because the loops do not go along it.
//
// Invariant: nothing here changes a value.
#include "lower/region_lowering.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

namespace kiln::lower {

constexpr std::int64_t kIterationsAhead =
    8;  // of a loop that walks memory in long steps: no hardware fetches these
constexpr std::int64_t kRowsAheadBytes = 8 << 10;  // of short rows that a phase fetches ahead, at least
constexpr std::int64_t kStripeAhead = 1024;        // elements of a stripe's rows, likewise
constexpr std::int64_t kLineBytes = 64;

/// The last phase that needs a value.
int RegionLowering::last_phase(const Entry& e) const { return std::bit_width(e.used_in) - 1; }

/// The last of several phases over a row has time to fetch what comes after it; the hardware stops where the
/// row ends. Long rows it fetches itself.
std::int64_t RegionLowering::bytes_to_later_row(const Entry& e) const {
  const std::int64_t size = size_of(g_[e.node].dtype);
  const std::vector<int> kept = kept_groups();
  const std::int64_t step =
      kept.empty() ? 0 : e.index.coef(groups_[static_cast<std::size_t>(kept.back())].last) * size;
  const std::int64_t pitch = std::abs(step), towards = step < 0 ? -1 : 1;
  // Runs of several rows lie between those of one: the next rows' are beside each of them.
  const bool among = std::ranges::any_of(reduced_groups(), [&](int g) {
    return std::abs(e.index.coef(groups_[static_cast<std::size_t>(g)].last)) * size > pitch;
  });
  if (pitch != 0 && among && s_.form == Form::Columns &&
      !s_.fold)  // the next columns', in lines of their own
    return towards * std::max(kLineBytes, s_.lanes * pitch);
  if (pitch != 0 && among) return step * std::max<std::int64_t>(s_.batch, 1);
  if (pitch == 0 || pitch > target_.l2_bytes / 4) return towards * kRowsAheadBytes;
  return towards * std::max(ceil_div(kRowsAheadBytes, pitch), s_.batch) * pitch;
}

/// The group that grid items of rounds, or of rows inside the loop over vectors, go along, and how many of
/// its points an item has; -1: another schedule.
static std::pair<int, std::int64_t> group_of_items(const schedule::Schedule& s,
                                                   const std::vector<Group>& groups) {
  int group = s.round > 0 ? s.lane_axis : s.inside;
  if (group < 0) return {-1, 0};
  std::int64_t count = s.block;
  if (s.round > 0)
    for (auto g = static_cast<std::size_t>(group) + 1; g < groups.size(); ++g) count /= groups[g].extent;
  if (group > 0 && count >= groups[static_cast<std::size_t>(group)].extent) --group, count = 1;
  return {group, count};
}

/// Elements from what an index names to what it names in the next grid item, where the loops of an item do
/// not go along memory: of rounds, and of rows inside the loop over vectors; of stripes, which are parts of
/// rows, in some row after this one. 0: another schedule.
std::int64_t RegionLowering::elements_to_next_item(const Index& index) const {
  if (s_.form == Form::Stripes && !target_.gpu) {
    const std::int64_t row = index.coef(groups_[static_cast<std::size_t>(reduced_groups().back())].last);
    return s_.block < std::abs(row) ? row * ceil_div(kStripeAhead, s_.block) : 0;
  }
  const auto [group, count] = group_of_items(s_, groups_);
  if (group < 0) return 0;
  return index.coef(groups_[static_cast<std::size_t>(group)].last) * count;
}

/// Whether a buffer of the same values is fetched ahead that begins within a line of this one.
bool RegionLowering::fetched_nearby(BufferSource::Kind kind, std::uint32_t id, std::int64_t offset) const {
  constexpr std::int64_t kLine = 64;
  for (std::size_t b = 0; b < out_.buffers.size(); ++b)
    if (const BufferSource& s = out_.buffers[b]; k_.buffers[b].ahead_param >= 0 && s.kind == kind &&
                                                 s.id == id && std::abs(s.byte_offset - offset) < kLine)
      return true;
  return false;
}

/// Bytes from what a load reads to what it reads later and no hardware fetches: some iterations later of a
/// loop that counts to it, or in the next tile or rows. 0: nothing to ask for ahead.
std::int64_t RegionLowering::bytes_ahead(const Entry& e) const {
  const GraphNode& n = g_[e.node];
  const std::int64_t bytes = n.numel * size_of(n.dtype);
  if (target_.gpu || bytes < target_.l2_bytes || reading_ == Reading::First) return 0;
  if (reading_ == Reading::Again || folds_in_blocks()) return bytes_to_next_block(e);
  if (s_.form == Form::Tiles)
    return s_.run * e.index.coef(groups_[static_cast<std::size_t>(tile_rows_.back())].last) *
           size_of(n.dtype);
  if (read_again(e)) return phase_ < last_phase(e) ? 0 : bytes_to_later_row(e);
  // Of what is where an index says the next item reads the same, if the index is that of each item.
  if (const int jump = first_jump(p_, groups_, e.index);
      jump >= s_.lane_axis || jump > group_of_items(s_, groups_).first) {
    const std::int64_t bytes_on = elements_to_next_item(e.index) * size_of(n.dtype);
    if (bytes_on != 0) return bytes_on;
  }
  std::int64_t step = 0;
  for (const Term& term : std::span(e.index.terms, static_cast<std::size_t>(e.index.n))) {
    const Atom& atom = p_.space.atom(term.atom);
    if (atom.kind != Atom::Kind::Value) continue;
    const Entry& value = p_.entries[atom.entry];
    if (value.kind != Entry::Kind::LoopState || step != 0) return 0;
    const LoopRun& run = p_.loops[static_cast<std::size_t>(value.loop)];
    if (run.count == 0 || run.states.front() != atom.entry) return 0;
    step = term.coef;
  }
  return kIterationsAhead * step * size_of(n.dtype);
}

}  // namespace kiln::lower
