// Operands of library calls that are in no memory.
//
// A histogram's indices are made by a map, read once and in order. A kernel of its own would write all of
// them to memory. On a CPU the library runs the kernel for a few thousand at a time and reads them from the
// first cache; on a GPU the kernel counts them where it would store them, and there is no call. A pass over
// finished steps: the kernel stays a region of its own for schedules, variants and reports.
#include "device/device.h"
#include "engine/group_launches.h"
#include "engine/plan_maker.h"
#include "engine/replay.h"
#include "ir/layout.h"

#include <algorithm>
#include <functional>
#include <optional>

namespace kiln::engine {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr std::int64_t kMostBytes = 32 << 10;  // of a piece, which is to stay in a cache

bool same_memory(const Place& a, const Place& b) {
  return a.kind != Place::Kind::None && a.kind == b.kind && a.index == b.index;
}

/// Whether threads of a GPU share nothing but a loop over elements, each of which is made once.
bool is_map(const kernel::Kernel& k) {
  return !k.main_loop && k.accs.empty() && std::ranges::none_of(k.buffers, [](const kernel::BufferDecl& b) {
    return b.role == kernel::BufferDecl::Role::Scratch || b.role == kernel::BufferDecl::Role::Partial;
  });
}

}  // namespace

/// The step whose kernel writes an operand of the library call of another step, and writes nothing else that
/// any step reads; or kNone.
std::size_t PlanMaker::maker_of(std::size_t call, std::size_t operand, bool counts) const {
  const LibraryCall& l = plan_->library[plan_->steps[call].index];
  const ArrayOperand& o = l.operands[operand];
  if (o.place.kind != Place::Kind::Buffer || o.place.byte_offset != 0 || o.place.moved > 0) return kNone;
  const std::int64_t bytes = ir::element_count(o.dims) * size_of(o.dtype);
  if (plan_->buffers[o.place.index].bytes != static_cast<std::uint64_t>(bytes)) return kNone;
  std::size_t maker = kNone;
  int touched = 0;
  for (std::size_t i = 0; i < plan_->steps.size(); ++i)
    each_place(*plan_, plan_->steps[i], [&](const Place& p, bool written) {
      if (!same_memory(p, o.place)) return;
      ++touched;
      if (written) maker = i;
    });
  if (touched != 2 || maker >= call || plan_->steps[maker].kind != Step::Kind::Launch) return kNone;
  const std::size_t i = plan_->steps[maker].index;
  const Launch& launch = plan_->launches[i];
  const lower::Lowered& lowered = *lowered_[i];
  const auto results = std::ranges::count_if(launch.buffers, [](const Place& p) { return p.written; });
  const bool plain = lowered.piece > 0 && results == 1 && launch.scratch_bytes == 0 &&
                     launch.finish_grid == 0 && lowered.kernel.link.empty();
  if (counts) return plain && is_map(lowered.kernel) ? maker : kNone;
  const std::int64_t piece_bytes = lowered.piece * size_of(o.dtype);
  return plain && piece_bytes <= kMostBytes && piece_bytes % 64 == 0 ? maker : kNone;
}

/// How the kernel that makes an operand does all of a library call, or nothing.
std::optional<library::Counting> PlanMaker::counting_in(const LibraryCall& l) const {
  const std::optional<library::Counting> counting = l.routine->counted(call_without_memory(l, device_));
  if (!counting || l.operands.empty()) return {};
  const Place &x = l.operands.front().place, &out = l.out;
  return same_memory(x, out) && x.byte_offset == out.byte_offset && x.moved == out.moved ? counting
                                                                                         : std::nullopt;
}

/// Whether nothing that a step reads is overwritten before the library call, or by it.
bool PlanMaker::moves_to(std::size_t maker, std::size_t call) const {
  const Launch& launch = plan_->launches[plan_->steps[maker].index];
  bool kept = true;
  for (std::size_t i = maker + 1; i <= call; ++i)
    each_place(*plan_, plan_->steps[i], [&](const Place& p, bool written) {
      kept &= !written || std::ranges::none_of(launch.buffers, [&](const Place& q) {
        return !q.written && same_memory(p, q);
      });
    });
  return kept;
}

/// A node that has a buffer to itself and is shown by no root, or kNoNode.
NodeId PlanMaker::only_owner(std::uint32_t buffer) const {
  const auto at = std::ranges::find(buffer_of_, static_cast<std::int32_t>(buffer));
  if (std::count(at, buffer_of_.end(), static_cast<std::int32_t>(buffer)) != 1) return ir::kNoNode;
  const auto id = static_cast<NodeId>(at - buffer_of_.begin());
  const bool shown = std::ranges::any_of(
      g_.roots, [&](NodeId root) { return root == id || plan::resolve_alias(g_, root).base == id; });
  return shown ? ir::kNoNode : id;
}

void PlanMaker::choose_makers() {
  makers_.clear();
  if (dumps_runs() || plan_->again > 0) return;
  for (std::size_t i = 0; i < plan_->steps.size(); ++i) {
    if (plan_->steps[i].kind != Step::Kind::Library) continue;
    const LibraryCall& l = plan_->library[plan_->steps[i].index];
    const std::optional<library::Counting> counting = counting_in(l);
    const int operand = counting ? static_cast<int>(counting->indices)
                                 : l.routine->made_in_pieces(call_without_memory(l, device_));
    if (operand < 0) continue;
    const std::size_t maker = maker_of(i, static_cast<std::size_t>(operand), counting.has_value());
    if (maker == kNone || !moves_to(maker, i)) continue;
    const std::uint32_t buffer = l.operands[static_cast<std::size_t>(operand)].place.index;
    const NodeId made = only_owner(buffer);
    if (made == ir::kNoNode) continue;
    buffer_of_[made] = -1;
    std::erase_if(regions_.refusals, [&](const plan::Refusal& r) { return r.producer == made; });
    makers_.push_back(
        {plan_->steps[maker].index, plan_->steps[i].index, static_cast<std::size_t>(operand), counting});
  }
}

void PlanMaker::make_in_pieces() {
  std::ranges::sort(makers_, std::greater(), &MakerOf::launch);  // the others keep their numbers
  for (const MakerOf& m : makers_)
    if (!m.counting) become_maker(m);
  for (const MakerOf& m : makers_)
    if (m.counting) become_counter(m);
  std::ranges::sort(makers_, std::greater(), &MakerOf::call);
  for (const MakerOf& m : makers_)
    if (m.counting) drop_call(m.call);
}

void PlanMaker::become_maker(const MakerOf& m) {
  Launch launch = std::move(plan_->launches[m.launch]);
  EpilogueOf made{std::move(lowered_[m.launch]), region_of_launch_[m.launch]};
  const auto drop = [&](auto& list) { list.erase(list.begin() + m.launch); };
  drop(plan_->launches);
  drop(lowered_);
  drop(region_of_launch_);
  std::erase_if(plan_->steps,
                [&](const Step& s) { return s.kind == Step::Kind::Launch && s.index == m.launch; });
  for (Step& s : plan_->steps)
    if (s.kind == Step::Kind::Launch && s.index > m.launch) --s.index;
  const auto at = std::ranges::find_if(launch.buffers, [](const Place& p) { return p.written; });
  launch.given_buffer = static_cast<std::int32_t>(at - launch.buffers.begin());
  kernel::BufferDecl& out = made.lowered->kernel.buffers[static_cast<std::size_t>(launch.given_buffer)];
  out.stream = out.ragged = false;  // it is read at once
  LibraryCall& l = plan_->library[m.call];
  ArrayOperand& o = l.operands[m.operand];
  const std::int64_t bytes = ir::element_count(o.dims) * size_of(o.dtype);
  plan_->buffers[o.place.index].bytes = 0;
  launch.bytes -= bytes;
  made.lowered->bytes -= bytes;
  *at = o.place = {};
  l.piece = made.lowered->piece;
  l.maker = static_cast<std::int32_t>(plan_->epilogues.size());
  plan_->epilogues.push_back(std::move(launch));
  epilogues_.push_back(std::move(made));
}

/// The launch takes the place of the call's step.
void PlanMaker::become_counter(const MakerOf& m) {
  const library::Counting& c = *m.counting;
  Launch& launch = plan_->launches[m.launch];
  lower::Lowered& lowered = *lowered_[m.launch];
  kernel::Kernel& k = lowered.kernel;
  LibraryCall& l = plan_->library[m.call];
  const auto at = std::ranges::find_if(launch.buffers, [](const Place& p) { return p.written; });
  const auto indices = static_cast<std::uint32_t>(at - launch.buffers.begin());
  const auto number = static_cast<std::uint32_t>(k.buffers.size()), counts = number + 1;
  k.tally = kernel::Tally{indices, counts, number, k.n_params++, c.log_copies, c.halves};
  k.buffers[indices].vector = k.buffers[indices].stream = k.buffers[indices].ragged = false;
  k.buffers.push_back({.role = kernel::BufferDecl::Role::In, .dtype = l.dtype});
  k.buffers.push_back({.role = kernel::BufferDecl::Role::Out, .dtype = l.dtype});
  // Teams of a smaller block go side by side in one of all threads, which has one set of counters.
  if (k.threads.team == k.threads.block && c.threads % k.threads.team == 0)
    k.threads.block = static_cast<std::uint16_t>(c.threads);

  Place& stored = launch.buffers[indices];
  const std::int64_t bytes = static_cast<std::int64_t>(plan_->buffers[stored.index].bytes);
  plan_->buffers[stored.index].bytes = 0;
  launch.bytes -= bytes;
  lowered.bytes -= bytes;
  stored = {};
  launch.buffers.push_back(l.operands[c.number].place);
  launch.buffers.push_back(l.out);
  launch.buffers.back().written = true;
  lowered.buffers.resize(k.buffers.size(), {lower::BufferSource::Kind::Scratch, 0, 0});
  std::erase(launch.arguments, indices);
  launch.arguments.insert(launch.arguments.end(), {number, counts});
  launch.params.push_back(c.places);
  if (launch.narrow) launch.narrow_params.push_back(static_cast<std::int32_t>(c.places));
  launch.shape = device::at(device_).shape_of(k, launch.grid);
  launch.shape.grid[0] = std::min(launch.shape.grid[0], c.blocks);
  launch.shape.dynamic_shared = c.shared_bytes;

  std::erase_if(plan_->steps,
                [&](const Step& s) { return s.kind == Step::Kind::Launch && s.index == m.launch; });
  for (Step& s : plan_->steps)
    if (s.kind == Step::Kind::Library && s.index == m.call) s = {Step::Kind::Launch, m.launch};
}

void PlanMaker::drop_call(std::uint32_t call) {
  plan_->library.erase(plan_->library.begin() + call);
  region_of_library_.erase(region_of_library_.begin() + call);
  for (Step& s : plan_->steps)
    if (s.kind == Step::Kind::Library && s.index > call) --s.index;
}

}  // namespace kiln::engine
