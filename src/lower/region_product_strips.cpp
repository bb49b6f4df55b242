// Chooses strips by what a block's instructions cost: multiply-adds of strips that are there or not, the
// loads of their operands from shared memory, and copies.
#include "lower/region_product_strips.h"

#include "support/check.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>

namespace kiln::lower {
namespace {

using ir::NodeId;
using plan::WindowView;

constexpr std::int64_t kThreads = 128, kFilters = 8;  // of a block; of a thread
constexpr std::int64_t kEntries = 2 * kThreads;       // of a table: whole batches of all threads
constexpr std::int64_t kVectorBytes = 16, kPlanned = 64;
constexpr std::int64_t kMostReach = 24;  // elements of a strip that a thread's registers have
constexpr std::int64_t kMostShared = 96 << 10, kUsualShared = 56 << 10;  // bytes of a block
constexpr double kShortSlowness = 1.15;        // of multiply-adds of strips of four windows
constexpr double kCopy = 6, kFilterCopy = 10;  // instructions
// Of a multiply-add of tensor cores, with the loads of its operands: floats are multiplied three times. Of a
// stage's beginning and end.
constexpr double kSlotsOfParts = 0.35, kStage = 150;
constexpr std::int64_t kFragmentRows = 16, kSteps = 8;
constexpr double kEntry = 30, kBegin = 1200;  // of a block: of its table; its results

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// One axis has a second one that nothing moves along.
WindowView::Axis axis_of(const WindowView& v, std::size_t a) {
  return a < v.axes.size() ? v.axes[a] : WindowView::Axis{};
}

std::int64_t reach_of(const WindowView& v, std::int64_t each) {
  const WindowView::Axis& x = v.axes[0];
  return (each - 1) * x.step + (x.taps - 1) * x.gap + 1;
}

/// Elements that a copy takes: rows begin and end at multiples of them.
std::int64_t unit_of(const plan::Graph& g, const WindowView& v, std::int64_t moved) {
  const ir::GraphNode& base = g[v.memory.base];
  const std::int64_t bytes = size_of(base.dtype);
  std::int64_t unit =
      base.op == ir::Op::leaf ? std::int64_t{g.args[static_cast<std::size_t>(base.arg)].alignment} : kPlanned;
  unit = std::gcd(unit, kVectorBytes);
  for (const std::int64_t elements :
       {v.memory.offset, v.channel_stride, v.image_stride, v.axes[0].extent, moved, axis_of(v, 1).stride})
    unit = std::gcd(unit, elements * bytes);
  for (const plan::Alias::Position& p : v.memory.positions) unit = std::gcd(unit, p.stride * bytes);
  return unit / bytes;
}

/// Sizes that blocks of a form share.
struct Form {
  std::int64_t each, beside, unit, shift;
  std::int64_t units, pitch, strips;  // of a segment; bytes of one; of a block
};

Form form_of(const plan::Graph& g, const WindowView& v, std::int64_t each, std::int64_t beside) {
  const WindowView::Axis& x = v.axes[0];
  const std::int64_t bytes = size_of(g[v.memory.base].dtype), unit = unit_of(g, v, each * x.step);
  const std::int64_t shift = (x.first % unit + unit) % unit, reach = shift + reach_of(v, each);
  const std::int64_t held = unit * bytes >= 4 ? bytes : 4, vectors = ceil_div(reach * held, kVectorBytes);
  return {each,
          beside,
          unit,
          shift,
          ceil_div(reach, unit),
          (vectors | 1) * kVectorBytes,
          kThreads / (beside / kFilters)};
}

class Chooser {
 public:
  Chooser(const plan::Graph& g, NodeId product, const WindowView& v, StripLoop loop, bool flat, int sms)
      : g_(g), v_(v), fragments_(loop == StripLoop::TensorCores), flat_(flat), sms_(sms), y_(axis_of(v, 1)) {
    const ir::Dims dims = g[product].dims;
    filters_ = dims[dims.size() - 2];
    for (std::size_t a = 0; a + 2 < dims.size(); ++a) batch_ *= dims[a];
    sum_bytes_ = std::max<std::int64_t>(4, size_of(g[product].dtype));
    if (fragments_) slots_ = kSlotsOfParts;
  }

  WindowStrips run() {
    constexpr std::int64_t kLeast = 4;  // windows: tiles are more then
    const std::int64_t most = windows_of_strip(v_, sum_bytes_ == 8);
    for (std::int64_t each = most; each >= kLeast; each /= 2)
      for (const std::int64_t beside : {64, 32, 16, 8})
        if (!fragments_ || beside >= kFragmentRows) try_form(form_of(g_, v_, each, beside));
    KILN_CHECK_THAT(best_cost_ >= 0, "no strips of windows fit a block");
    return best_;
  }

 private:
  void try_form(const Form& f) {
    const std::int64_t across = ceil_div(v_.axes[0].count, f.each);
    for (std::int64_t x = 1; x <= std::min(across, f.strips); ++x) {
      if (x < across && x < f.strips && ceil_div(across, x) == ceil_div(across, x + 1)) continue;
      for (std::int64_t y = 1; y <= std::min(y_.count, f.strips / x); ++y) {
        const std::int64_t images = flat_ ? std::min(batch_, f.strips / (x * y)) : 1;
        try_block(f, x, y, images);
      }
    }
  }

  void try_block(const Form& f, std::int64_t x, std::int64_t y, std::int64_t images) {
    const std::int64_t rows = (y - 1) * y_.step + (y_.taps - 1) * y_.gap + 1;
    const Block b{images * rows * x, y_.taps * v_.axes[0].taps, f};
    const std::int64_t depth = depth_of(b), shared = shared_of(b, depth);
    if (shared > kMostShared) return;
    const std::int64_t tiles = ceil_div(ceil_div(v_.axes[0].count, f.each), x) * ceil_div(y_.count, y) *
                               ceil_div(batch_, images) * ceil_div(filters_, f.beside);
    const double each = static_cast<double>(v_.channels / depth) * stage_cost(b, depth) + kBegin +
                        kEntry * static_cast<double>(ceil_div(b.units(), kThreads));
    // A split float's sums are those of a stage, too.
    const std::int64_t most = fragments_        ? (f.each == 8 ? 2 : 3)
                              : sum_bytes_ == 8 ? 3
                                                : 4,
                       resident = shared > kUsualShared ? 2 : most;
    const double slowness = sum_bytes_ < 8 && f.each < 8 ? kShortSlowness : 1;
    const double cost = rounds_of_blocks(tiles, resident, sms_) * each * slowness;
    if (best_cost_ >= 0 && cost >= best_cost_) return;
    best_cost_ = cost;
    // Blocks of which each has tiles at one place of the images, if that leaves few unused.
    const std::int64_t places = tiles / ceil_div(batch_, images), most_blocks = resident * sms_,
                       rest = most_blocks % places;
    const std::int64_t blocks = std::min(tiles, 32 * rest <= most_blocks ? most_blocks - rest : most_blocks);
    best_ = {f.each, f.beside, f.unit, f.shift, x, y, images, depth, tiles, blocks, shared, most};
  }

  /// A block's memory: segments and terms of a channel.
  struct Block {
    std::int64_t segments, terms;
    const Form& form;

    std::int64_t units() const { return segments * form.units; }
  };
  std::int64_t lines_of(const Block& b, std::int64_t depth) const {
    return fragments_ ? ceil_div(depth * b.terms, kSteps) * kSteps : depth * b.terms;
  }
  std::int64_t shared_of(const Block& b, std::int64_t depth) const {
    const std::int64_t line = b.form.beside * sum_bytes_ + kVectorBytes, lines = lines_of(b, depth),
                       results = fragments_ ? lines * 4 : kThreads * b.form.each * sum_bytes_;
    return 2 * (depth * b.segments * b.form.pitch + lines * line) +
           ceil_div(b.units(), kEntries) * kEntries * 8 + results;
  }

  /// Instructions of a thread, of a stage.
  double stage_cost(const Block& b, std::int64_t depth) const {
    const auto terms = static_cast<double>(b.terms * depth);
    const double copies =
        kCopy * static_cast<double>(depth * ceil_div(b.units(), kThreads)) +
        kFilterCopy * static_cast<double>(ceil_div(b.form.beside * b.terms * depth, kThreads));
    if (!fragments_) {  // loads of a term's filters, and of a row's segment, beside multiply-adds
      const double loads =
          terms * kFilters / 4 + static_cast<double>(depth * y_.taps * b.form.pitch / kVectorBytes);
      return terms * static_cast<double>(b.form.each * kFilters) + loads + copies;
    }
    const auto sums = static_cast<double>(b.form.each * kFilters);
    return (static_cast<double>(lines_of(b, depth)) * slots_ + 2) * sums + copies + kStage;
  }

  /// Channels of a stage: few, but so many that a stage's products outlast its copies.
  std::int64_t depth_of(const Block& b) const {
    constexpr std::int64_t kEnough = 512, kRest = 4096;
    const std::int64_t products = b.terms * b.form.each * kFilters;
    std::int64_t best = 1;
    for (std::int64_t d = 2; d <= v_.channels; ++d) {
      if (v_.channels % d != 0) continue;
      if (shared_of(b, d) > kUsualShared - (fragments_ ? 0 : kRest)) break;
      const auto of_channel = [&](std::int64_t depth) {
        return stage_cost(b, depth) / static_cast<double>(depth);
      };
      if (fragments_ ? of_channel(d) < of_channel(best) : best * products < kEnough) best = d;
    }
    return best;
  }

  const plan::Graph& g_;
  const WindowView& v_;
  bool fragments_, flat_;
  int sms_;
  WindowView::Axis y_;
  double slots_ = 1;  // of instructions, of a multiply-add
  std::int64_t filters_ = 1, batch_ = 1, sum_bytes_ = 4;
  double best_cost_ = -1;
  WindowStrips best_{};
};

}  // namespace

double rounds_of_blocks(std::int64_t blocks, std::int64_t resident, int sms) {
  constexpr double kWaiting = 0.5;  // of the time of all that are resident
  const std::int64_t each = ceil_div(blocks, sms), last = each % resident;
  const auto all = static_cast<double>(resident);
  return static_cast<double>(each / resident) * all +
         (last > 0 ? kWaiting * all + (1 - kWaiting) * static_cast<double>(last) : 0);
}

std::int64_t windows_of_strip(const WindowView& v, bool doubles) {
  if (doubles) return 4;
  struct Strip {
    std::int64_t windows;
    double slowness;  // of a multiply-add
  };
  constexpr Strip kStrips[] = {{8, 1}, {4, kShortSlowness}};
  double least = 0;
  std::int64_t best = 4;
  for (const Strip& s : kStrips) {
    const double cost = static_cast<double>(ceil_div(v.axes[0].count, s.windows) * s.windows) * s.slowness;
    if (reach_of(v, s.windows) > kMostReach || (least > 0 && cost >= least)) continue;
    least = cost;
    best = s.windows;
  }
  return best;
}

int width_of_strip(const WindowView& v, bool doubles, StripLoop loop) {
  const int most = doubles || loop == StripLoop::TensorCores ? 2 : 4;
  return std::gcd(static_cast<int>(std::gcd(v.axes[0].count, windows_of_strip(v, doubles))), most);
}

StripLoop strip_loop(const plan::Graph& g, plan::NodeId product, const WindowView& v,
                     const schedule::Target& target) {
  constexpr std::int64_t kFewWindows = 4, kMostTerms = 64, kLongRow = 5, kFewFilters = 8, kFewOfHalves = 16,
                         kManyTerms = 400;
  const WindowView::Axis& x = v.axes[0];
  const bool apart = v.channels_outer || v.channel_stride != 1 || v.channels == 1;
  const ir::GraphNode& n = g[product];
  if (v.operand != 1 || !apart || !is_float(n.dtype) || v.axes.size() > 2 || x.stride != 1 || x.step > 2 ||
      x.taps <= 1 || x.count < kFewWindows || reach_of(v, 4) > kMostReach || v.taps() > kMostTerms ||
      !(v.images_are_batch || v.images == 1))
    return StripLoop::None;
  const std::int64_t filters = n.dims[n.dims.size() - 2];
  // Tensor cores are so fast that a tile's beginning and end must be few beside its terms.
  const bool exact = n.dtype == DType::Float32 && (target.strict || target.exact);
  if (!is_half(n.dtype) && !exact && filters >= kFragmentRows && v.channels * v.taps() >= kManyTerms)
    return StripLoop::TensorCores;
  // Of short rows beside more filters, smaller tiles are as fast; of halves they are faster, and of doubles,
  // which tensor cores multiply there.
  const bool shares = is_half(n.dtype)            ? filters <= kFewOfHalves
                      : n.dtype == DType::Float64 ? filters <= kFewFilters
                                                  : x.taps >= kLongRow || filters <= kFewFilters;
  return shares ? StripLoop::Threads : StripLoop::None;
}

WindowStrips window_strips(const plan::Graph& g, plan::NodeId product, const WindowView& v, StripLoop loop,
                           bool flat, int sms) {
  return Chooser(g, product, v, loop, flat, sms).run();
}

}  // namespace kiln::lower
