// Storage of values by linear scan: a value lives from its first definition to its last use, and to the end
// of every loop that uses it but does not define it.
#include "codegen/vm/vm_storage.h"

#include <algorithm>

namespace kiln::codegen {
namespace {

// of values that live at once: the most of a first-level cache
constexpr std::int64_t kBlockBytes = 32 << 10;
constexpr std::int64_t kMinBlock = 256, kMaxBlock = 4096;

std::int64_t align64(std::int64_t n) { return (n + 63) & ~std::int64_t{63}; }

/// Calls use(value) for the values an instruction reads and def(value) for those it writes. Accumulators are
/// both.
template <class Use, class Def>
void each_value(const VmInstr& i, Use use, Def def) {
  switch (i.op) {
    case VmOp::End:
    case VmOp::Loop:
    case VmOp::Next:
    case VmOp::VectorLoop:
    case VmOp::VectorNext:
    case VmOp::Param:
    case VmOp::Slot:
    case VmOp::Scalar:
    case VmOp::Copy:
    case VmOp::LoadScalar:
    case VmOp::StoreScalar:
    case VmOp::ArgScalar:
    case VmOp::LanesBegin:
    case VmOp::LanesEnd:
    case VmOp::Aim:
    case VmOp::While:
    case VmOp::Unless:
    case VmOp::WhileNext: return;
    case VmOp::UnlessAny: return use(i.a);
    case VmOp::Splat:
    case VmOp::Iota:
    case VmOp::Load:
    case VmOp::LoadCopy:
    case VmOp::LoadStrided: return def(i.out);
    case VmOp::Apply:
    case VmOp::Each: use(i.a), use(i.b), use(i.c); return def(i.out);
    case VmOp::Fill:
    case VmOp::Gather:
    case VmOp::CopyValue: use(i.a); return def(i.out);
    case VmOp::LoadIf:
    case VmOp::LoadStridedIf: use(i.c); return def(i.out);
    case VmOp::GatherIf: use(i.a), use(i.c); return def(i.out);
    case VmOp::Store:
    case VmOp::StoreStrided: return use(i.c);
    case VmOp::Scatter: return use(i.a), use(i.c);
    case VmOp::Reduce:
      use(i.a);
      if (i.b != kVmNone) use(i.b);
      return;
    case VmOp::ScanLanes:
      use(i.a);
      if (i.b != kVmNone) def(i.b);
      if (i.c != kVmNone) def(i.c);
      return;
    case VmOp::ArgReduce: return use(i.a), use(i.b);
    case VmOp::ArgBlock: return use(i.a), use(i.b), use(i.c), use(i.out);
  }
}

struct Life {
  int first = -1, last = -1;
};

class Lives {
 public:
  Lives(const std::vector<VmInstr>& code, std::size_t values) : lives_(values), loop_of_(code.size(), -1) {
    find_loops(code);
    for (std::size_t at = 0; at < code.size(); ++at) {
      const int here = static_cast<int>(at);
      const auto use = [&](std::uint32_t v) { extend(lives_[v], here); };
      each_value(code[at], use, [&](std::uint32_t v) {
        if (lives_[v].first < 0)
          lives_[v] = {here, here};
        else
          use(v);
      });
    }
  }
  const Life& operator[](std::uint32_t v) const { return lives_[v]; }

 private:
  struct Loop {
    int begin, end, parent;
  };

  void find_loops(const std::vector<VmInstr>& code) {
    int open = -1;
    for (std::size_t at = 0; at < code.size(); ++at) {
      const VmOp op = code[at].op;
      const bool begins = op == VmOp::Loop || op == VmOp::VectorLoop || op == VmOp::While;
      const bool ends = op == VmOp::Next || op == VmOp::VectorNext || op == VmOp::WhileNext;
      if (begins) {
        loops_.push_back({static_cast<int>(at), static_cast<int>(at), open});
        open = static_cast<int>(loops_.size() - 1);
      }
      loop_of_[at] = open;
      if (ends) {
        loops_[static_cast<std::size_t>(open)].end = static_cast<int>(at);
        open = loops_[static_cast<std::size_t>(open)].parent;
      }
    }
  }

  void extend(Life& life, int use) {
    life.last = std::max(life.last, use);
    if (life.first < 0) life.first = use;  // constants: not stored
    for (int l = loop_of_[static_cast<std::size_t>(use)]; l >= 0;
         l = loops_[static_cast<std::size_t>(l)].parent) {
      const Loop& loop = loops_[static_cast<std::size_t>(l)];
      if (loop.begin <= life.first && life.first <= loop.end) return;
      life.last = std::max(life.last, loop.end);
    }
  }

  std::vector<Life> lives_;
  std::vector<Loop> loops_;
  std::vector<int> loop_of_;
};

bool writes_memory(const VmInstr& i) {
  return i.op == VmOp::Store || i.op == VmOp::StoreStrided || i.op == VmOp::StoreScalar ||
         i.op == VmOp::Scatter || i.op == VmOp::Aim;
}

/// A result may take the memory of an argument. So a value that is needed behind a store may not stay where
/// it was loaded from.
void copy_what_outlives_stores(std::vector<VmInstr>& code, const Lives& lives) {
  std::vector<int> writes;  // ascending
  for (std::size_t at = 0; at < code.size(); ++at)
    if (writes_memory(code[at])) writes.push_back(static_cast<int>(at));
  for (std::size_t at = 0; at < code.size(); ++at) {
    if (code[at].op != VmOp::Load) continue;
    const auto next = std::upper_bound(writes.begin(), writes.end(), static_cast<int>(at));
    if (next != writes.end() && *next < lives[code[at].out].last) code[at].op = VmOp::LoadCopy;
  }
}

/// Shares places among blocks. Offsets and the width are in bytes a lane.
class BlockPlaces {
 public:
  BlockPlaces(const std::vector<VmInstr>& code, const Lives& lives, const std::vector<VmLife>& values)
      : values_(values), lives_(lives), place_(values.size(), -1) {
    for (std::size_t at = 0; at < code.size(); ++at) visit(code[at], static_cast<int>(at));
  }
  std::int64_t width() const { return width_; }
  std::int64_t operator[](std::size_t v) const { return place_[v]; }

 private:
  void visit(const VmInstr& i, int here) {
    expire(here);
    each_value(
        i, [](std::uint32_t) {},
        [&](std::uint32_t v) {
          if (values_[v].kind != VmLife::Kind::Block || place_[v] >= 0) return;
          // Lane by lane a result may take the place of an operand that is not needed any more.
          if (i.op == VmOp::Apply || i.op == VmOp::Each) {
            for (std::uint32_t operand : {i.a, i.b, i.c}) {
              const auto it = std::find(open_.begin(), open_.end(), operand);
              if (it == open_.end() || lives_[operand].last != here ||
                  values_[operand].size != values_[v].size)
                continue;
              place_[v] = place_[operand];
              *it = v;
              return;
            }
          }
          auto& free = free_[values_[v].size];
          if (free.empty()) {
            place_[v] = width_;
            width_ += values_[v].size;
          } else {
            place_[v] = free.back();
            free.pop_back();
          }
          open_.push_back(v);
        });
  }

  /// Gives the places of values that are dead before `here` back.
  void expire(int here) {
    std::erase_if(open_, [&](std::uint32_t v) {
      if (lives_[v].last >= here) return false;
      free_[values_[v].size].push_back(place_[v]);
      return true;
    });
  }

  const std::vector<VmLife>& values_;
  const Lives& lives_;
  std::vector<std::int64_t> place_;
  std::vector<std::uint32_t> open_;
  std::vector<std::int64_t> free_[9];  // by element size
  std::int64_t width_ = 0;
};

std::int64_t block_of(std::int64_t width, std::int64_t lanes) {
  std::int64_t block = kMaxBlock;
  while (block > kMinBlock && block * width > kBlockBytes) block /= 2;
  return std::max(block, lanes);
}

}  // namespace

void assign_storage(VmSection& s, const std::vector<VmLife>& values, std::int64_t lanes) {
  const Lives lives(s.code, values.size());
  copy_what_outlives_stores(s.code, lives);
  const BlockPlaces places(s.code, lives, values);
  s.block = block_of(places.width(), lanes);
  std::int64_t at = 0;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t here = at;
    at = align64(at + bytes);
    return here;
  };
  take(static_cast<std::int64_t>(s.scalars.size()) * 8);
  s.table_offset = take(static_cast<std::int64_t>(values.size()) * 8);
  for (VmLanes& l : s.lanes) {
    const auto parts = static_cast<std::int64_t>(l.custom.parts.size());
    l.offset =
        take(parts > 0 ? parts * l.count * 8 : align64(l.count * l.size) + (l.positional ? 8 * l.count : 0));
    l.custom.offset = take(l.custom.parts.empty() ? 0 : l.custom.slots * kVmSlotBytes);
  }
  const std::int64_t blocks = take(places.width() * s.block);
  s.values.resize(values.size());
  for (std::size_t v = 0; v < values.size(); ++v) {
    VmValue& value = s.values[v];
    value.size = values[v].size;
    value.constant = values[v].kind == VmLife::Kind::Constant;
    switch (values[v].kind) {
      case VmLife::Kind::Block: value.offset = blocks + places[v] * s.block; break;
      case VmLife::Kind::Strip: value.offset = take(value.size * kStrip); break;
      case VmLife::Kind::Constant: value.offset = values[v].constant; break;
    }
  }
  s.memory_bytes = at;
}

}  // namespace kiln::codegen
