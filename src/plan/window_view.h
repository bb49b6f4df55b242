// window_view: a product's operand whose elements are those of windows of an array, as a convolution's are.
//
// An operand in memory has a stride for each of its axes. Here an axis is made of parts, each of which moves
// along one axis of the array, and an axis of the array may be moved along by two parts: windows lie one
// after the other, and elements in a window. Outside of the array everything is 0 (a pad was there).
// Nothing is computed: this is an index map of plain views.
#pragma once

#include "plan/fuse.h"

#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace kiln::plan {

/// An operand (batch…, points, terms) of channels-last windows, or its transposition. A point is a window, a
/// term an element of it.
struct WindowView {
  static constexpr std::size_t kMostAxes = 3;

  /// An axis of the array that windows move along.
  struct Axis {
    std::int64_t extent = 1, stride = 0;  // of the array; elements
    std::int64_t first = 0;               // where the first window begins; negative: before the array
    std::int64_t count = 1, step = 1;     // of windows, from one to the next
    std::int64_t taps = 1, gap = 1;       // the same of elements of a window
  };

  std::size_t operand = 0;    // of the product: 0 or 1
  Alias memory;               // of the array, from the first image's first channel on
  std::vector<NodeId> views;  // between the operand, which is among them, and the memory
  std::vector<Axis> axes;     // innermost first
  /// Channels of a window are adjacent and the innermost part of terms, unless it is asked for others too;
  /// groups of them are further matrices of the batch, inside of images.
  std::int64_t channels = 1, groups = 1;
  std::int64_t channel_stride = 1;
  bool channels_outer = false;  // terms are (channels, elements of a window)
  std::int64_t images = 1, image_stride = 0;
  bool images_are_batch = false;  // else they are the outermost part of points
  bool tensor_cores = false;      // multiply the windows; else single threads do

  std::int64_t taps() const;  // elements of a window, without channels
};

enum class WindowChannels : std::uint8_t { Adjacent, Any, OfMatrix };

/// The windows that operand `which` (0 or 1) of a product shows, where it is no matrix in memory; or, for
/// OfMatrix, where it is one: each point is a window of one element with all channels. memory.base is in
/// memory, or will be once somebody stores it.
std::optional<WindowView> window_view(const Graph& graph, NodeId product, std::size_t which,
                                      WindowChannels channels = WindowChannels::Adjacent);

/// The products of a graph whose main loop on this GPU reads windows where they lie: those of tensor cores,
/// whose neighbours among the channels can be copied, four bytes or more at a time; and others of floats with
/// so few lines beside the windows that a library's rate would not make up for windows that are stored. So
/// are float32 matrices of many short rows, if what reads the result would be a pass over it, or a library
/// cannot read the matrix. Nobody else reads the views between. `may`: whether a product may.
std::map<NodeId, WindowView> products_of_windows(const Graph& graph, const schedule::Target& target,
                                                 const std::function<bool(NodeId, const WindowView&)>& may);

/// An operand that would be windows, several along an axis, if its array had its channels last: they lie
/// apart, and are the outer part of terms.
struct FarChannels {
  std::size_t operand = 0;  // of the product: 0 or 1
  std::size_t views = 0;    // between the operand, which is the first, and the array
  std::size_t axis = 0;     // of channels, in the array
  std::int64_t channels = 1;
  bool adjacent = false;  // in the array's memory they lie side by side in any case
};
std::optional<FarChannels> far_channels(const Graph& graph, NodeId product, std::size_t which);
/// Of a product that products_of_windows() would take then.
std::optional<FarChannels> far_channels(const Graph& graph, const schedule::Target& target, NodeId product);

/// Bytes, at most 16, that divide where the channels of every element of a window begin.
std::int64_t unit_of_windows(const Graph& graph, const WindowView& view);

}  // namespace kiln::plan
