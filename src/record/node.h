// Node: one recorded operation. 128 bytes, slab-allocated per thread, intrusively counted, never shared by
// value.
//
// Invariant: a node is immutable once another node or handle refers to it, except for one transition, made by
// the evaluator under the trace locks: a computed node becomes a leaf (op = leaf, storage set) and drops its
// inputs. The notes that evaluations leave on pending nodes are written under the same locks. Recording takes
// no lock: it only reads immutable fields (shape, dtype) of its operands.
#pragma once

#include "ir/attributes.h"

#include <kiln/shape.h>
#include <kiln/tensor.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace kiln::ir {

inline constexpr int kInlineDims = 6;
inline constexpr std::size_t kInlineOperands = 3;
inline constexpr std::uint8_t kManyOperands = 255;

/// Memory a leaf shows. Counted on its own: several leaves (views) may show one buffer.
struct Buffer {
  std::atomic<std::uint32_t> refs{1};
  bool writable = true;                // false: borrowed memory, never written and never reused
  std::atomic<std::uint8_t> claim{0};  // a BufferClaim, changed under the trace locks
  Device device;                       // whose memory `data` is
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;          // bytes usable at data
  void (*free)(Buffer*) = nullptr;  // called at the last release; owns this object
};
void retain(Buffer* buffer) noexcept;
void release(Buffer* buffer) noexcept;
/// Whether an evaluation writes a new value into the memory of the old one. Nobody reads it until the new one
/// is published. Lost: the evaluation failed on the way, and neither value is there.
enum class BufferClaim : std::uint8_t { None, Written, Lost };
inline BufferClaim claim_of(const Buffer& b) {
  return static_cast<BufferClaim>(b.claim.load(std::memory_order_relaxed));
}

struct Node {
  std::atomic<std::uint32_t> refs;
  Op op;
  DType dtype;
  std::uint8_t rank;
  std::uint8_t n_in;         // operands in `in`, or kManyOperands: in a list of their own. See operands()
  std::uint8_t n_attrs;      // entries of attrs
  std::uint16_t home : 12;   // recording thread, for the trace locks
  std::uint16_t device : 4;  // where its value lives: see ir::device_code; immutable like dtype
  std::uint32_t notes;       // of evaluations: see marked, passed and claimed
  union {
    Node* in[kInlineOperands];
    struct {
      Node** many;  // owned
      std::size_t n_many;
    };
    struct {
      Buffer* buffer;         // leaf
      std::int64_t offset;    // elements from buffer->data
      std::int64_t* strides;  // elements per axis, then a word for row_major_copy; null: row-major contiguous
    };
  };
  std::uint64_t imm;  // immediate scalar's bits in the operand dtype's storage format (see imm_dtype); of a
                      // leaf: the number of its edge on a tape (tape.h), or 0
  std::uint64_t attr64;  // attributes, as attributes.h stores them; of a leaf: kUnread or 0
  std::int64_t* attrs;   // the list that some attributes have, owned
  SourceLocation loc;
  std::int64_t numel;
  union {
    std::int64_t dims_inline[kInlineDims];
    std::int64_t* dims_heap;
  };

  std::span<const std::int64_t> dims() const { return {rank <= kInlineDims ? dims_inline : dims_heap, rank}; }
  Shape shape() const { return Shape(dims()); }
  bool is_leaf() const { return op == Op::leaf; }

  // What evaluations note on a node, under its trace lock. But a walk reads the marks of other threads'
  // leaves, which their walks write meanwhile: what it finds may be anybody's place.
  static constexpr std::uint32_t kPassed = 1u << 30, kClaimed = 1u << 31;
  /// Scratch of the walk that holds the trace lock: the node's position there.
  std::uint32_t marked() const { return __atomic_load_n(&notes, __ATOMIC_RELAXED) & (kPassed - 1); }
  void set_mark(std::size_t place) {
    set_notes((notes & (kPassed | kClaimed)) | static_cast<std::uint32_t>(place));
  }
  /// Pending: an evaluation computed it on its way and did not store it (learned_lines.h).
  bool passed() const { return (notes & kPassed) != 0; }
  void pass() { set_notes(notes | kPassed); }
  /// Pending: an evaluation that will store it is running.
  bool claimed() const { return (notes & kClaimed) != 0; }
  void claim() { set_notes(notes | kClaimed); }
  void give_up() { set_notes(notes & ~kClaimed); }
  /// Of a node that becomes a leaf: neither passed nor claimed.
  void settle() { set_notes(marked()); }
  void set_notes(std::uint32_t to) { __atomic_store_n(&notes, to, __ATOMIC_RELAXED); }
};
static_assert(sizeof(SourceLocation) == 8 && sizeof(Node) == 128);

/// All operands of a node, none of a leaf. Null: the immediate scalar.
inline std::span<Node* const> operands(const Node& n) {
  if (n.n_in == kManyOperands) [[unlikely]]
    return {n.many, n.n_many};
  return {n.in, n.n_in};
}

inline Stored stored(const Node& n) { return {n.attr64, {n.attrs, n.n_attrs}}; }

/// The op of a node whose trace lock is not held: another thread may be making the node a leaf. A leaf stays
/// one.
inline Op op_now(const Node* n) {
  return static_cast<Op>(__atomic_load_n(reinterpret_cast<const std::uint16_t*>(&n->op), __ATOMIC_ACQUIRE));
}

/// attr64 of a leaf that a learned line stored and no evaluation has read yet.
inline constexpr std::uint64_t kUnread = 1;

/// A node with one reference, fields zeroed but for those given; dims copied. numel is computed; throws
/// UserError (naming the op) on negative extents or when numel * size_of(dtype) overflows 63 bits.
Node* new_node(Op op, DType dtype, std::span<const std::int64_t> dims, SourceLocation loc = {});
/// Like new_node for a result shaped exactly like `like` (no checks needed): the recording fast path.
Node* new_node_like(Op op, DType dtype, const Node& like, SourceLocation loc = {});
/// A node's device in 4 bits: kAnyDevice for values that live anywhere (made of no argument), then the
/// devices of device.def in their order: 1 for the CPU, 2 + n for cuda:n.
inline constexpr int kAnyDevice = 0, kDeviceCodes = 16;
inline constexpr int kMostOfKind[] = {
#define KILN_DEVICE(Name, name, library) 1,
#define KILN_DEVICES(Name, name, most, library) most,
#include <kiln/device.def>
#undef KILN_DEVICE
#undef KILN_DEVICES
};
/// Devices of a kind that a node can name.
constexpr int most_devices(Device::Kind kind) { return kMostOfKind[static_cast<std::size_t>(kind)]; }

struct DeviceCodes {
  std::uint16_t first[std::size(kMostOfKind)] = {};  // by kind
  Device device[kDeviceCodes] = {};                  // by code
  int used = 1;
  constexpr DeviceCodes() {
    for (std::size_t kind = 0; kind < std::size(kMostOfKind); ++kind) {
      first[kind] = static_cast<std::uint16_t>(used);
      for (int index = 0; index < kMostOfKind[kind]; ++index)
        device[used++] = {static_cast<Device::Kind>(kind), static_cast<std::uint8_t>(index)};
    }
  }
};
inline constexpr DeviceCodes kDevices;
constexpr std::uint16_t device_code(Device d) {
  return static_cast<std::uint16_t>(kDevices.first[static_cast<std::size_t>(d.kind)] + d.index);
}
/// Of kAnyDevice: the CPU.
constexpr Device device_of(int code) { return kDevices.device[code]; }
/// UserError naming the op, unless one of both is kAnyDevice; returns the other one.
std::uint16_t joint_device(const Node& node, const Node& input);

/// Stores an operand (takes a new reference). UserError when it lives on another device than the node's
/// others.
inline void set_input(Node* node, int i, Node* input) {
  if (input) {
    if (input->device != node->device) [[unlikely]]
      node->device = joint_device(*node, *input);
    retain(input);
  }
  node->in[i] = input;
}
/// The same for all operands of a new node, of which there may be any number.
void set_inputs(Node* node, std::span<Node* const> inputs);
/// Allocates n attribute words owned by the node.
std::int64_t* new_attrs(Node* node, std::size_t n);
/// Gives a new node attributes that fit its op.
template <class A>
void set_attributes(Node* node, const A& attributes) {
  assert(A::fits(node->op));
  node->attr64 = attributes.word();
  if constexpr (HasList<A>)
    if (const std::size_t n = attributes.list_size(); n != 0) attributes.write_list(new_attrs(node, n));
}
/// Makes the node a leaf over buffer (takes the caller's buffer reference). Its inputs go to `dropped`, for
/// the caller to release once it no longer holds the trace locks: freeing memory may run a user's deleter.
/// `edge`: the number under which a tape keeps what the node was made of, or 0 (tape.h).
void become_leaf(Node* node, Buffer* buffer, std::int64_t offset, const std::int64_t* strides,
                 std::vector<Node*>& dropped, std::uint64_t edge = 0);
/// The value of a leaf with strides in row-major order, once somebody has asked for it; null before. It lives
/// as long as the leaf, which itself does not change: threads read its strides and its buffer without a lock.
Buffer* row_major_copy(const Node& leaf);
/// Gives a leaf with strides that copy (takes the caller's reference) and returns the one it has: the first
/// that was given.
Buffer* keep_row_major_copy(const Node& leaf, Buffer* copy);
/// A leaf node (takes the caller's buffer reference); strides null: row-major.
Node* new_leaf(Buffer* buffer, DType dtype, std::span<const std::int64_t> dims, std::int64_t offset,
               const std::int64_t* strides, SourceLocation loc = {});

/// Intrusive pointer.
class NodeRef {
 public:
  NodeRef() = default;
  static NodeRef adopt(Node* n) {
    NodeRef r;
    r.node_ = n;
    return r;
  }
  static NodeRef share(Node* n) {
    if (n) retain(n);
    return adopt(n);
  }
  NodeRef(const NodeRef& o) : node_(o.node_) {
    if (node_) retain(node_);
  }
  NodeRef(NodeRef&& o) noexcept : node_(std::exchange(o.node_, nullptr)) {}
  NodeRef& operator=(NodeRef o) noexcept {
    std::swap(node_, o.node_);
    return *this;
  }
  ~NodeRef() {
    if (node_) release(node_);
  }
  Node* get() const { return node_; }
  Node* operator->() const { return node_; }
  Node& operator*() const { return *node_; }
  explicit operator bool() const { return node_; }
  Node* take() { return std::exchange(node_, nullptr); }

 private:
  Node* node_ = nullptr;
};

/// "float32 (2, 3)", for messages.
std::string describe(const Node* node);

}  // namespace kiln::ir
