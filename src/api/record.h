// Recording: turns API calls into nodes. Checks operands (the only place user errors about shapes and dtypes
// are raised), promotes dtypes, resolves weak scalars, broadcasts. Takes no lock and never merges nodes.
#pragma once

#include "record/node.h"
#include "support/call_scope.h"

#include <kiln/error.h>
#include <kiln/ops.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kiln::api {

/// An operand of an op: a node, or a weak scalar (node null, is_scalar). Neither: an empty handle.
struct Arg {
  ir::Node* node = nullptr;
  bool is_scalar = false;
  Scalar scalar;
  Arg(const Tensor& t) : node(t.node()) {}
  Arg(Scalar s) : is_scalar(true), scalar(s) {}
  Arg(const Operand& o)
      : node(o.tensor ? o.tensor->node() : nullptr), is_scalar(o.tensor == nullptr), scalar(o.scalar) {}
};

/// Records an elementwise op of ops.def: promotes, casts operands where needed, broadcasts. `loc`: of a call
/// that opens no CallScope.
Tensor elementwise(ir::Op op, const Arg& x, SourceLocation loc = {});
Tensor elementwise(ir::Op op, const Arg& x, const Arg& y, SourceLocation loc = {});
Tensor elementwise(ir::Op op, const Arg& x, const Arg& y, const Arg& z, SourceLocation loc = {});

/// The same as the two-operand form, straight from the public arguments: copying an Operand costs more than
/// recording the node (its parts are stored one by one and would be read back as one).
Tensor elementwise_binary(ir::Op op, const Tensor& x, const Operand& y);

/// Bits of a weak scalar as `dtype` (storage format, zero-extended): integers wrap, floats round.
std::uint64_t scalar_bits(Scalar s, DType dtype);
/// The dtype a weak scalar gives when combined with a tensor of dtype t (float with int: float32; int with
/// bool: int64, uint64 from 2^63; otherwise t).
DType weak_promote(DType t, Scalar s);
/// The dtype of a number that meets nothing else: bool, int64 (uint64 from 2^63) or float32.
DType default_dtype(Scalar s);
/// Checks a handle and returns its node: "[op] an operand is an empty Tensor".
ir::Node* checked(std::string_view op, const Tensor& t);
/// Checks two handles: "[op] an operand is an empty Tensor: float32 (2, 3) and empty".
void check_both(std::string_view op, const Tensor& x, const Tensor& y);
/// A conversion node (x itself when the dtype is already right).
ir::NodeRef cast_node(ir::Node* x, DType dtype);
/// The bits of x as another dtype of its size, neither of them bool.
ir::NodeRef bitcast_node(ir::Node* x, DType dtype);
/// A rank-0 scalar slot holding `value` as `dtype`.
ir::NodeRef scalar_node(Scalar value, DType dtype, std::optional<Device> device = std::nullopt);
/// View nodes; callers have checked the arguments. Each returns x itself where nothing changes.
ir::NodeRef reshape_node(ir::Node* x, std::span<const std::int64_t> dims);
/// x under an identity of its own; `stops`: no derivative passes it. Always a new node, with x's line unless
/// a call is open.
ir::NodeRef alias_node(ir::Node* x, bool stops);
ir::NodeRef permute_node(ir::Node* x, std::span<const int> axes);
ir::NodeRef broadcast_node(ir::Node* x, std::span<const std::int64_t> dims);
/// dims: the result's.
ir::NodeRef slice_node(ir::Node* x, std::span<const std::int64_t> start, std::span<const std::int64_t> step,
                       std::span<const std::int64_t> dims);
/// A null fill takes the immediate `fill_bits`.
ir::NodeRef pad_node(ir::Node* body, ir::Node* fill, std::uint64_t fill_bits,
                     std::span<const std::int64_t> low, std::span<const std::int64_t> step,
                     std::span<const std::int64_t> dims);
/// At least one array, all of one dtype, behind each other along an axis.
ir::NodeRef join_node(std::span<const ir::NodeRef> pieces, int axis, std::span<const std::int64_t> dims);
/// On a device, where one is given: what is made of it is there too.
ir::NodeRef iota_node(std::span<const std::int64_t> dims, int axis, DType dtype,
                      std::optional<Device> device = std::nullopt);
/// x (cast to `dtype`, but for argmax and argmin) reduced over the axes of `mask`; no axes: x itself.
ir::NodeRef reduce_node(ir::Op op, ir::Node* x, std::uint64_t mask, DType dtype, bool keepdims);
/// A loop's states, the loop, and its results: last values of the states, and what it kept of each iteration
/// (see ir/loops.h; `count` is 0 for a loop that does not count, and then there are no yields). Callers have
/// checked that states and next values agree and that the condition is bool and fits.
ir::NodeRef loop_state_node(ir::Node* init);
struct LoopNodes {
  std::vector<ir::NodeRef> results, stacks;
};
LoopNodes loop_nodes(std::span<const ir::NodeRef> states, std::span<const ir::NodeRef> nexts,
                     ir::Node* condition, std::span<const ir::NodeRef> yields, std::int64_t count);
/// Running values of x along an axis.
ir::NodeRef scan_node(ir::Op op, ir::Node* x, int axis, bool exclusive, bool reverse);
/// x at `indices` (see structural.def); callers have checked that everything fits `dims`.
ir::NodeRef gather_node(ir::Node* x, ir::Node* indices, const ir::Gather& at,
                        std::span<const std::int64_t> dims);
/// `size` elements of x along an axis from a start on, and x with an update there (see structural.def). The
/// start is an int64 scalar, negative ones count from the back; the update has x's dtype and, off the axis,
/// x's extents.
ir::NodeRef slice_at_node(ir::Node* x, ir::Node* start, int axis, std::int64_t size);
ir::NodeRef update_at_node(ir::Node* x, ir::Node* update, ir::Node* start, int axis);
/// x with values written at `indices` (see structural.def); callers have checked that
/// everything fits.
ir::NodeRef scatter_node(ir::Node* x, ir::Node* indices, ir::Node* values, const ir::Scatter& at);
/// The results of an op of several, in order. Each refers to those after it, so that whoever computes one
/// computes those with it that handles hold.
std::vector<ir::NodeRef> part_nodes(const ir::NodeRef& bundle, std::size_t count);
/// sort, argsort or sort_with_positions: the first `kept` of each sorted row along `axis`.
ir::NodeRef sort_node(ir::Op op, ir::Node* x, int axis, bool descending, std::int64_t kept);
/// (b…, m, k) @ (b…, k, n), batch extents broadcast; dtypes and inner extents already agree.
ir::NodeRef matmul_node(ir::Node* x, ir::Node* y);
/// Resolves a possibly negative axis of x: "[op] axis 3 is out of range for float32 (2, 3)".
int checked_axis(std::string_view op, Axis axis, const ir::Node* x);
/// The same where only a shape is at hand.
int checked_axis(std::string_view op, Axis axis, std::span<const std::int64_t> dims);
/// A bit mask of resolved, distinct axes of x, or of a result with `added` axes more than x.
std::uint64_t checked_axes(std::string_view op, const Axes& axes, const ir::Node* x, int added = 0);
using ir::describe;
/// "2.5", "true"; "empty" for an empty handle.
std::string describe(Scalar s);
std::string describe(const Tensor& t);
/// While one lives on this thread, operations are recorded in every mode: what a loop repeats has no value
/// yet.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  static bool active() { return depth() > 0; }
  static int depth();  // of functions inside each other, on this thread
};
/// Hands a new node to the caller; in eager and interpret modes evaluates it first.
Tensor finish(ir::NodeRef node);

/// A leaf over `buffer` (takes the reference, also when it throws). No strides: row-major. It is moved to
/// `device`, or to the default device, if its memory is elsewhere.
Tensor leaf(ir::Buffer* buffer, const Shape& shape, DType dtype, std::int64_t offset = 0,
            const std::int64_t* strides = nullptr, std::optional<Device> device = std::nullopt);

}  // namespace kiln::api
