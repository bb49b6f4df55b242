// Slab allocation, reference counting and the leaf transition of nodes.
//
// Nodes live in 128-byte slots. Each thread allocates from and frees to its own list; slots wander between
// threads and slabs are never returned (a program's peak of live nodes bounds them). Destruction is
// iterative: a chain of any length is freed without recursion.
#include "record/node.h"

#include "record/learned_lines.h"
#include "record/recorded.h"
#include "record/trace_locks.h"
#include "support/call_scope.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace kiln::ir {
namespace {

constexpr std::size_t kSlabNodes = 512;

/// A free slot keeps refs, which is 0 then, where a node has it: the log of recorded nodes looks there.
union Slot {
  struct {
    std::byte head[64];
    Slot* next;
  };
  alignas(64) std::byte bytes[sizeof(Node)];
};
static_assert(sizeof(Node) == 128 && offsetof(Node, refs) == 0 && sizeof(Slot) == sizeof(Node));

/// Free slots of threads that have ended.
struct Orphans {
  std::mutex mutex;
  Slot* head = nullptr;
};
Orphans& orphans() {
  static Orphans* const o = new Orphans;  // never destroyed: nodes may be freed during exit
  return *o;
}

struct FreeList {
  Slot* head = nullptr;
  ~FreeList() {
    if (!head) return;
    Slot* tail = head;
    while (tail->next) tail = tail->next;
    std::lock_guard lock(orphans().mutex);
    tail->next = orphans().head;
    orphans().head = std::exchange(head, nullptr);
  }
};
constinit thread_local FreeList free_list;

[[gnu::noinline]] void refill() {
  {
    std::lock_guard lock(orphans().mutex);
    if (orphans().head) {
      free_list.head = std::exchange(orphans().head, nullptr);
      return;
    }
  }
  auto* slab = static_cast<Slot*>(::operator new(kSlabNodes * sizeof(Slot), std::align_val_t{64}));
  for (std::size_t i = 0; i + 1 < kSlabNodes; ++i) slab[i].next = &slab[i + 1];
  slab[kSlabNodes - 1].next = nullptr;
  free_list.head = slab;
}

/// Room for more nodes than before, at least so many that reading the log costs little a node.
[[gnu::noinline]] void grow_log() {
  constexpr std::size_t kFirst = 2 * kRecordedLimit;
  if (current_trace_id == kSharedTrace) {  // nobody reads it
    static constinit thread_local Node* unread[2];
    recorded.begin = recorded.next = unread;
    recorded.end = unread + 1;
    recorded.limit = unread + 2;
    return;
  }
  const auto used = static_cast<std::size_t>(recorded.next - recorded.begin);
  const std::size_t room = std::max(kFirst, 2 * used);
  auto** memory = static_cast<Node**>(std::realloc(recorded.begin, room * sizeof(Node*)));
  if (!memory) throw std::bad_alloc();
  recorded.limit = memory + (recorded.begin ? recorded.limit - recorded.begin : kRecordedLimit);
  recorded.begin = memory;
  recorded.next = memory + used;
  recorded.end = memory + room;
}

inline Node* take_slot() {
  if (!free_list.head) [[unlikely]]
    refill();
  Slot* slot = free_list.head;
  free_list.head = slot->next;
  return reinterpret_cast<Node*>(slot);
}

inline void give_slot(Node* node) {
  node->refs.store(0, std::memory_order_relaxed);
  auto* slot = reinterpret_cast<Slot*>(node);
  slot->next = free_list.head;
  free_list.head = slot;
}

inline void init(Node* node, Op op, DType dtype, int rank, SourceLocation loc) {
  node->home = current_trace() & 0xfff;
  node->device = kAnyDevice;
  node->refs.store(1, std::memory_order_release);  // after home: see pending_nodes
  if (op != Op::leaf) {
    if (recorded.next == recorded.end) [[unlikely]]
      grow_log();
    *recorded.next++ = node;
    ++recorded.alive;
  }
  node->op = op;
  node->dtype = dtype;
  node->rank = static_cast<std::uint8_t>(rank);
  node->n_in = 0;
  node->n_attrs = 0;
  node->notes = 0;
  node->in[0] = node->in[1] = node->in[2] = nullptr;
  node->imm = 0;
  node->attr64 = 0;
  node->attrs = nullptr;
  std::memcpy(&node->loc, &loc, sizeof loc);
  if (const CallScope* const scope = CallScope::current()) [[unlikely]]
    std::memcpy(&node->loc, &scope->line(), sizeof loc);
}

/// Drops one reference; true when it was the last. A sole owner needs no atomic read-modify-write.
inline bool drop(std::atomic<std::uint32_t>& refs) {
  if (refs.load(std::memory_order_acquire) == 1) return true;
  return refs.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

/// The same for a node. One that another thread recorded is dropped by counting: its thread may be about to
/// retain it (pending_nodes), which an unchanged count would not tell.
inline bool drop(Node* node) {
  if (node->refs.load(std::memory_order_acquire) == 1 && node->home == current_trace_id) return true;
  return node->refs.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

/// Where a leaf with strides keeps its row-major copy: in the word behind them.
Buffer** copy_word(const Node& leaf) { return reinterpret_cast<Buffer**>(leaf.strides + leaf.rank); }
static_assert(sizeof(Buffer*) == sizeof(std::int64_t));

[[gnu::noinline]] void drop_strides(Node* leaf) {
  if (Buffer* const copy = row_major_copy(*leaf)) release(copy);
  std::free(leaf->strides);
}

[[gnu::noinline]] void destroy(Node* first) {
  // Nodes to destroy are linked through imm, which a dying node no longer needs.
  Node* stack = first;
  first->imm = 0;
  while (stack) {
    Node* node = stack;
    stack = reinterpret_cast<Node*>(node->imm);
    if (node->op == Op::leaf) {
      if (node->attr64 == kUnread) [[unlikely]]
        died_unread(node->loc);
      if (node->buffer) release(node->buffer);
      if (node->strides) drop_strides(node);
    } else {
      if (node->home == current_trace_id) recorded.settle();
      for (Node* in : operands(*node))
        if (in && drop(in)) {
          in->imm = reinterpret_cast<std::uint64_t>(stack);
          stack = in;
        }
      if (node->n_in == kManyOperands) [[unlikely]]
        std::free(node->many);
    }
    if (node->attrs) std::free(node->attrs);
    if (node->rank > kInlineDims) std::free(node->dims_heap);
    give_slot(node);
  }
}

}  // namespace

void retain(Node* node) noexcept { node->refs.fetch_add(1, std::memory_order_relaxed); }

void release(Node* node) noexcept {
  if (drop(node)) destroy(node);
}

void retain(Buffer* buffer) noexcept { buffer->refs.fetch_add(1, std::memory_order_relaxed); }

void release(Buffer* buffer) noexcept {
  if (drop(buffer->refs)) buffer->free(buffer);
}

Node* new_node(Op op, DType dtype, std::span<const std::int64_t> dims, SourceLocation loc) {
  std::int64_t bytes = size_of(dtype);
  bool has_zero = false, overflow = false;
  for (std::int64_t d : dims) {
    if (d < 0) throw UserError(cat("[", info(op).name, "] negative extent in shape ", to_string(dims)), loc);
    has_zero |= d == 0;
    if (d != 0) overflow |= __builtin_mul_overflow(bytes, d, &bytes);
  }
  if (overflow)
    throw UserError(cat("[", info(op).name, "] shape ", to_string(dims), " of ", name(dtype),
                        " has more bytes than 63 bits can count"),
                    loc);
  const std::int64_t numel = has_zero ? 0 : bytes / size_of(dtype);
  Node* node = take_slot();
  init(node, op, dtype, static_cast<int>(dims.size()), loc);
  node->numel = numel;
  std::int64_t* to = node->dims_inline;
  if (node->rank > kInlineDims) {
    to = static_cast<std::int64_t*>(std::malloc(dims.size_bytes()));
    node->dims_heap = to;
  }
  if (!dims.empty()) std::memcpy(to, dims.data(), dims.size_bytes());
  return node;
}

Node* new_node_like(Op op, DType dtype, const Node& like, SourceLocation loc) {
  if (like.rank > kInlineDims || size_of(dtype) > size_of(like.dtype)) [[unlikely]]
    return new_node(op, dtype, like.dims(), loc);
  Node* node = take_slot();
  init(node, op, dtype, like.rank, loc);
  node->device = like.device;
  node->numel = like.numel;
  std::memcpy(node->dims_inline, like.dims_inline, sizeof like.dims_inline);
  return node;
}

std::uint16_t joint_device(const Node& node, const Node& input) {
  if (node.device == kAnyDevice) return input.device;
  if (input.device == kAnyDevice) return node.device;
  throw UserError(cat("[", info(node.op).name, "] operands live on ", device_of(node.device).str(), " and ",
                      device_of(input.device).str(), "; move one with to(device)"),
                  node.loc);
}

void set_inputs(Node* node, std::span<Node* const> inputs) {
  if (inputs.size() <= kInlineOperands) {
    node->n_in = static_cast<std::uint8_t>(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) set_input(node, static_cast<int>(i), inputs[i]);
    return;
  }
  auto** const list = static_cast<Node**>(std::malloc(inputs.size_bytes()));
  if (!list) throw std::bad_alloc();
  node->many = list;
  node->n_many = 0;
  node->n_in = kManyOperands;
  for (Node* input : inputs) {  // a node that is refused drops those that it has
    if (input && input->device != node->device) [[unlikely]]
      node->device = joint_device(*node, *input);
    if (input) retain(input);
    list[node->n_many++] = input;
  }
}

std::int64_t* new_attrs(Node* node, std::size_t n) {
  node->attrs = static_cast<std::int64_t*>(std::malloc(sizeof(std::int64_t) * n));
  node->n_attrs = static_cast<std::uint8_t>(n);
  return node->attrs;
}

namespace {

void show(Node* node, Buffer* buffer, std::int64_t offset, const std::int64_t* strides, std::uint64_t edge) {
  std::int64_t* kept = nullptr;
  if (strides && node->rank > 0) {
    kept = static_cast<std::int64_t*>(std::malloc(sizeof(std::int64_t) * (node->rank + 1u)));
    std::memcpy(kept, strides, sizeof(std::int64_t) * node->rank);
    kept[node->rank] = 0;
  }
  node->n_in = 0;
  node->settle();
  node->imm = edge;
  node->attr64 = 0;
  node->buffer = buffer;
  node->offset = offset;
  node->strides = kept;
  __atomic_store_n(reinterpret_cast<std::uint16_t*>(&node->op), static_cast<std::uint16_t>(Op::leaf),
                   __ATOMIC_RELEASE);
}

}  // namespace

void become_leaf(Node* node, Buffer* buffer, std::int64_t offset, const std::int64_t* strides,
                 std::vector<Node*>& dropped, std::uint64_t edge) {
  for (Node* in : operands(*node))
    if (in) dropped.push_back(in);
  if (node->n_in == kManyOperands) [[unlikely]]
    std::free(node->many);
  if (node->home == current_trace_id) recorded.settle();
  // often a view of an argument
  count_leaf_bytes(static_cast<std::uint64_t>(node->numel * size_of(node->dtype)));
  show(node, buffer, offset, strides, edge);
}

Buffer* row_major_copy(const Node& leaf) { return __atomic_load_n(copy_word(leaf), __ATOMIC_ACQUIRE); }

Buffer* keep_row_major_copy(const Node& leaf, Buffer* copy) {
  Buffer* first = nullptr;
  if (__atomic_compare_exchange_n(copy_word(leaf), &first, copy, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    count_leaf_bytes(copy->bytes);
    return copy;
  }
  release(copy);
  return first;
}

Node* new_leaf(Buffer* buffer, DType dtype, std::span<const std::int64_t> dims, std::int64_t offset,
               const std::int64_t* strides, SourceLocation loc) {
  Node* node = new_node(Op::leaf, dtype, dims, loc);
  count_leaf_bytes(buffer->bytes);
  node->device = device_code(buffer->device);
  show(node, buffer, offset, strides, 0);
  return node;
}

// ---- the log of recorded nodes ----

constinit thread_local RecordLog recorded;

namespace {
/// Read with every recorded operation, so apart from what is written with every few leaves.
alignas(64) constinit std::atomic<std::uint64_t> all_leaf_bytes{0};
}  // namespace
alignas(64) constinit std::atomic<std::uint32_t> leaf_stretch{0};

void count_leaf_bytes(std::uint64_t bytes) {
  // small leaves write no memory that threads share
  constexpr std::uint64_t kAtATime = std::uint64_t{1} << 20;
  recorded.leaf_bytes += bytes;
  if (recorded.leaf_bytes < kAtATime) return;
  const std::uint64_t more = std::exchange(recorded.leaf_bytes, 0);
  const std::uint64_t before = all_leaf_bytes.fetch_add(more, std::memory_order_relaxed);
  const std::uint64_t stretches = (before + more) / kLeafStretch - before / kLeafStretch;
  if (stretches > 0) leaf_stretch.fetch_add(static_cast<std::uint32_t>(stretches), std::memory_order_relaxed);
}

namespace {

/// Who recorded the node in a slot. Another thread may be writing a node of its own there: 16 bits that are
/// read at once, and believed only while a reference is held.
[[gnu::noinline, gnu::no_sanitize_thread]] std::uint16_t home_of(const Node* slot) { return slot->home; }

/// Takes a reference to the node in a slot if it is alive and the calling thread recorded it.
bool retain_own(Node* slot) {
  const std::uint16_t own = current_trace();
  if (home_of(slot) != own) return false;
  std::uint32_t refs = slot->refs.load(std::memory_order_relaxed);
  do {
    if (refs == 0) return false;
  } while (!slot->refs.compare_exchange_weak(refs, refs + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  if (home_of(slot) == own) return true;
  release(slot);  // freed and taken by another thread between the two looks
  return false;
}

}  // namespace

namespace {

/// The slots in the log, each once, by its latest entry, newest first. A slot that is freed and recorded into
/// again stands there many times (most of a loop that evaluates), and looking at the slot costs more than at
/// this table.
void distinct_slots(std::vector<Node*>& slots) {
  std::vector<Node*> seen(std::bit_ceil(2 * recorded.size() + 1), nullptr);
  const std::size_t mask = seen.size() - 1;
  for (Node** p = recorded.next; p != recorded.begin;) {
    Node* const slot = *--p;
    std::size_t at =
        (reinterpret_cast<std::uintptr_t>(slot) / sizeof(Node) * 0x9e3779b97f4a7c15u >> 20) & mask;
    while (seen[at] && seen[at] != slot) at = (at + 1) & mask;
    if (seen[at]) continue;
    seen[at] = slot;
    slots.push_back(slot);
  }
}

}  // namespace

void pending_nodes(std::vector<Node*>& nodes) {
  std::vector<Node*> slots;
  distinct_slots(slots);
  nodes.clear();
  for (std::size_t i = slots.size(); i-- > 0;) {
    Node* const n = slots[i];
    if (!retain_own(n)) continue;
    if (n->op == Op::leaf) {
      release(n);
      continue;
    }
    n->set_mark(nodes.size());
    nodes.push_back(n);
  }
  std::copy(nodes.begin(), nodes.end(), recorded.begin);
  recorded.next = recorded.begin + nodes.size();
  recorded.alive = nodes.size();
}

std::string describe(const Node* node) { return cat(name(node->dtype), " ", to_string(node->dims())); }

}  // namespace kiln::ir
