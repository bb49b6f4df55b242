// How product_strips.cuh has windows of an array whose channels lie apart: the shape of a thread's strip and
// of a block's strips.
#pragma once

#include "plan/window_view.h"

#include <cstdint>
#include <optional>

namespace kiln::lower {

/// Strips of adjacent windows. Elements, unless said otherwise.
struct WindowStrips {
  std::int64_t each, beside;         ///< windows of a thread; filters of a tile
  std::int64_t unit, shift;          ///< of a copy; in front of a strip's first element
  std::int64_t x, y, images, depth;  ///< strips of a tile; channels of a stage
  std::int64_t tiles;                ///< a block has some, one after the other
  std::int64_t blocks, shared,
      resident;  ///< of a launch; bytes; blocks of a multiprocessor that registers allow
};

/// How long a multiprocessor takes for its part of so many blocks, of which `resident` run at one time, in
/// times of one that has all of it: few at one time leave it waiting.
double rounds_of_blocks(std::int64_t blocks, std::int64_t resident, int sms);

/// Who multiplies strips: nobody, single threads, tensor cores. A float is two numbers to tensor cores, and
/// its product is not that of the strict and the deterministic mode.
enum class StripLoop : std::uint8_t { None, Threads, TensorCores };

/// Which main loop takes the windows, which are columns of the product: their channels lie apart and their
/// elements side by side, they move along one or two axes, by steps of one or two along the inner one.
StripLoop strip_loop(const plan::Graph& graph, plan::NodeId product, const plan::WindowView& view,
                     const schedule::Target& target);

/// Adjacent windows of a row that a thread of that main loop has, and those of a call of the epilogue.
/// Pre: there is such a loop.
std::int64_t windows_of_strip(const plan::WindowView& view, bool doubles);
int width_of_strip(const plan::WindowView& view, bool doubles, StripLoop loop);

/// The strips whose blocks take the least time. Pre: there is such a loop. `flat`: all images of the batch
/// have the same filters, and are one matrix; `sms`: multiprocessors.
WindowStrips window_strips(const plan::Graph& graph, plan::NodeId product, const plan::WindowView& view,
                           StripLoop loop, bool flat, int sms);

}  // namespace kiln::lower
