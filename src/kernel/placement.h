// Where code for an expression belongs, while an emitter walks a kernel's loops: at the outermost open loop
// that has all it depends on, and on every lane of the open Vector loop if it differs between them.
//
// The emitter says what it opens and closes; the answers are those of that moment. Depth 0 is outside all
// loops.
#pragma once

#include "kernel/kernel.h"

#include <optional>

namespace kiln::kernel {

class Placement {
 public:
  /// `own_lanes`: the emitter runs vectors of another length than the kernel says.
  explicit Placement(const Kernel& kernel, bool own_lanes = false);

  /// The kernel's expressions, and those made while emitting.
  ExprPool& pool() { return pool_; }

  // ---- the emitter's progress
  /// Before `loop` opens: its accumulators begin.
  void begin_accs(const LoopDecl& loop);
  void open(const LoopDecl& loop);
  void close(const LoopDecl& loop);
  /// Running and Before of an accumulator are available from here on, until its loop closes.
  void show_running(std::uint32_t acc);

  // ---- the answers
  int depth() const { return depth_; }
  /// Depth of the open Vector loop; 0: there is none.
  int lanes_depth() const { return lanes_depth_; }
  int depth_of(ExprId e);
  /// Whether the value differs between the lanes of the open Vector loop. The loop's variable over the number
  /// of lanes, which numbers the vectors, does not.
  bool varying(ExprId e);
  /// d(index)/d(lane) as an expression of the pool; none when the index is not affine in the Vector loop's
  /// variable.
  E lane_stride(ExprId index);

  /// How an accumulator stands to the lanes.
  enum class Lanes : std::uint8_t {
    None,    // it has no Vector loop around or inside
    Around,  // each lane has its own, and keeps it
    Inside,  // each lane has its own until its loop ends, then they are combined
  };
  Lanes lanes_of(std::uint32_t acc) const { return accs_[acc].lanes; }

 private:
  struct Acc {
    Lanes lanes = Lanes::None;
    int depth = -1;          // that sees its final value
    int running_depth = -1;  // that sees its running values
  };
  void forget();
  bool numbers_vectors(const ExprNode& n) const;

  const Kernel& k_;
  ExprPool pool_;
  int depth_ = 0, lanes_depth_ = 0;
  const bool own_lanes_;
  std::int64_t lanes_ = 0;      // of the open Vector loop
  std::vector<int> var_depth_;  // of its loop, or -1
  std::vector<Acc> accs_;
  // What was found out since the last loop opened or closed.
  std::vector<int> depths_;
  std::vector<signed char> varying_;
};

/// The Vector loop that updates `acc` and is `loop` or stands inside it; null if there is none.
const LoopDecl* vector_loop_of(const Kernel& kernel, const LoopDecl& loop, std::uint32_t acc);
/// The value of an expression that is a constant integer.
std::optional<std::int64_t> known(E e);

}  // namespace kiln::kernel
