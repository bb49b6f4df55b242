// CudaEmitter: loads, stores and the registers that Scratch buffers are.
#include "codegen/cuda/cuda_c.h"
#include "codegen/cuda/cuda_function.h"

#include <algorithm>
#include <utility>

namespace kiln::codegen {
namespace {

// bytes of an operand that no second cache of sm_90 (50 MiB) holds
constexpr std::int64_t kFar = std::int64_t{64} << 20;

/// Of a buffer in shared memory, up to where the next begins; 0: it is elsewhere.
std::uint32_t shared_bytes(const BufferDecl& b) {
  return static_cast<std::uint32_t>((b.shared * size_of(b.dtype) + 15) / 16 * 16);
}

}  // namespace

std::string CudaEmitter::buffer_name(const BufferDecl& decl, std::uint64_t number) {
  switch (decl.role) {
    case BufferDecl::Role::In: return cat("in", number);
    case BufferDecl::Role::Out: return cat("out", number);
    case BufferDecl::Role::Partial: return cat("part", number);
    case BufferDecl::Role::Scratch: return cat(decl.shared ? "tile" : "kept", number);
  }
  return {};
}

std::string CudaEmitter::buffer_name(std::uint64_t b) const { return buffer_name(k_.buffers[b], b); }

/// The register that belongs to the vector and lane at hand.
std::string CudaEmitter::scratch(std::uint64_t b, ExprId index) {
  KILN_CHECK_THAT(at_.lanes_depth() > 0 && steps_ > 0 && pool_[index].prim == Prim::Var && at_.varying(index),
                  "scratch memory that registers cannot be");
  if (const auto it = held_.find(b); it != held_.end()) return it->second;
  const std::string step = steps_ > 1 ? lanes_ > 1 ? cat("k * ", lanes_, " + ") : "k" : "";
  return cat(buffer_name(b), '[', step, lanes_ > 1 ? "v" : steps_ > 1 ? "" : "0", ']');
}

bool CudaEmitter::whole_vectors(std::uint64_t buffer, ExprId index) {
  if (lanes_ == 1 || reach_ == Reach::Ragged || !k_.buffers[buffer].vector) return false;
  if (beside(index).second % lanes_ != 0) return false;
  if (reach_ == Reach::Cut) return kernel::known(at_.lane_stride(index)) == 1;
  return kernel::known(at_.lane_stride(index)) == 1 || (reach_ != Reach::Masked && backwards(index));
}

/// An index as what is known to lie so many elements behind something else.
std::pair<ExprId, std::int64_t> CudaEmitter::beside(ExprId index) const {
  const ExprNode& n = pool_[index];
  if (n.prim != Prim::Add || pool_[n.b].prim != Prim::Const) return {index, 0};
  return {n.a, static_cast<std::int64_t>(pool_[n.b].imm)};
}

bool CudaEmitter::backwards(ExprId index) { return kernel::known(at_.lane_stride(index)) == -1; }

/// The place in its vector of what lane `v` accesses.
std::string CudaEmitter::vector_lane(ExprId index) {
  if (rounds_ > 0) return cat("[k * ", 32 * along(index).step, ']');
  return (windows_.empty() ? backwards(index) : along(index).step == -1) ? cat(".at[", lanes_ - 1, " - v]")
                                                                         : ".at[v]";
}

/// The index of a vector's first element in memory.
std::string CudaEmitter::vector_index_text(ExprId index) {
  return backwards(index) ? cat(index_text(index), " - ", lanes_ - 1) : index_text(index);
}

/// Whether accesses in a scope may be of lanes beyond the extent.
bool CudaEmitter::masked(int depth) const {
  return reach_ == Reach::Masked && !(skips_ && depth > at_.lanes_depth());
}

/// How many lanes of the vector at hand an access has, as its last argument.
const char* CudaEmitter::left(int depth) const { return masked(depth) ? ", left" : ""; }

std::string CudaEmitter::vector_type(DType t) const {
  return cat("vec<", cuda_memory_type(t), ", ", lanes_, '>');
}

/// Whether a load reads adjacent elements on the lanes, all of them or none, so that it is one of a vector.
bool CudaEmitter::takes_vector(ExprId load) {
  if (windows_.contains(load)) return true;
  const ExprNode& n = pool_[load];
  if (!whole_vectors(n.imm, n.a)) return false;
  return n.b == kNoExpr || (!masked(at_.depth_of(load)) && !at_.varying(n.b));
}

/// A vector's load. `depth`: of the scope that it stands in. Of a run by rounds it is where the thread's
/// first element is.
std::string CudaEmitter::load_text(ExprId e, int depth) {
  const ExprNode n = pool_[e];
  if (rounds_ > 0) {
    const std::int64_t step = along(n.a).step;
    return cat(buffer_name(n.imm), " + ", index_text(n.a), " + ", step == 1 ? "" : cat(step, " * "), "int(",
               lane_, " % 32)");
  }
  const bool window = windows_.contains(e),
             aligned = k_.buffers[n.imm].vector && beside(n.a).second % lanes_ == 0;
  const bool back = window ? along(n.a).step == -1 : backwards(n.a);
  const std::string at = back ? cat(index_text(n.a), " - ", lanes_ - 1) : index_text(n.a);
  const std::string loaded = cat(window && !aligned ? "load_any<"
                                 : spread_          ? "load_spread<"
                                 : fixed_           ? "load_fixed<"
                                                    : "load<",
                                 lanes_, ">(", buffer_name(n.imm), " + ", at, window ? "" : left(depth), ')');
  if (n.b == kNoExpr) return loaded;
  return cat('(', value(n.b), " ? ", loaded, " : ", vector_type(n.type), "{})");
}

/// Whether a load is one of those of all steps that are made before the first step computes. What every row
/// reads comes from a cache: fetching it ahead would only take registers. So would much else beside a row
/// that is held in them.
bool CudaEmitter::ahead(ExprId load) {
  constexpr int kBesideRow = 16;  // registers
  if (stage_.steps < 2 || at_.depth_of(load) != stage_.depth || !varies_by_item(pool_[load].a)) return false;
  const auto loads = static_cast<int>(stage_.arrays.size()) + 1;
  const int registers = std::max(1, lanes_ * static_cast<int>(size_of(pool_[load].type)) / 4) * stage_.steps;
  return held_.empty() || loads * registers <= kBesideRow;
}

/// The same of one element, or of a choice between such: what it reads is an operand, at a place that is
/// known before the step.
bool CudaEmitter::element_ahead(ExprId e) {
  const auto known_before = [&](auto& self, ExprId o) -> bool {
    const ExprNode& n = pool_[o];
    if (at_.depth_of(o) < stage_.depth) return true;
    if (n.prim == Prim::Acc || n.prim == Prim::Running || n.prim == Prim::Before) return false;
    if (n.prim == Prim::Load && k_.buffers[n.imm].role != BufferDecl::Role::In) return false;
    bool all = true;
    each_operand(n, [&](ExprId p) { all = all && self(self, p); });
    return all;
  };
  bool loads = false;
  const auto choice = [&](auto& self, ExprId o) -> bool {
    const ExprNode& n = pool_[o];
    if (n.prim == Prim::Load && at_.depth_of(o) == stage_.depth) {
      loads |= ahead(o);
      return (o == e || facts_.uses[o] <= 1) && known_before(known_before, o);
    }
    if (n.prim == Prim::Select && (o == e || facts_.uses[o] <= 1))
      return known_before(known_before, n.a) && self(self, n.b) && self(self, n.c);
    return at_.depth_of(o) < stage_.depth;
  };
  const int registers = stage_.steps * std::max(1, static_cast<int>(size_of(pool_[e].type)) / 4);
  if (stage_.steps < 2 || at_.depth_of(e) != stage_.depth || registers > stage_.registers) return false;
  if (!choice(choice, e) || !loads) return false;
  stage_.registers -= registers;
  return true;
}

/// How many loads that are made ahead follow one another before a value is there. What is chosen between
/// is loaded once the choice is known.
int CudaEmitter::level_of(ExprId e) {
  if (at_.depth_of(e) < stage_.depth) return 0;
  const ExprNode& n = pool_[e];
  int level = 0;
  each_operand(n, [&](ExprId o) { level = std::max(level, level_of(o)); });
  if (n.prim == Prim::Select)
    if (const int chooses = level_of(n.a); chooses > 0) level = std::max(level, chooses + 1);
  return level + (n.prim == Prim::Load ? 1 : 0);
}

/// Whether a loop loads from where other loads say, as a gather does.
bool CudaEmitter::looks_up(const LoopDecl& l) const {
  std::unordered_set<ExprId> seen;
  const auto visit = [&](auto& self, ExprId e, bool place) -> bool {
    if (e == kNoExpr || (!place && !seen.insert(e).second)) return false;
    const ExprNode& n = pool_[e];
    const bool loads = n.prim == Prim::Load && k_.buffers[n.imm].role == BufferDecl::Role::In;
    if (loads) return place || self(self, n.a, true);
    bool any = false;
    each_operand(n, [&](ExprId o) { any = any || self(self, o, place); });
    return any;
  };
  return std::ranges::any_of(
      l.body, [&](const Stmt& s) { return s.kind != Stmt::Kind::Loop && visit(visit, s.value, false); });
}

/// Puts a load of all steps before them; `text` gives what it loads.
template <class F>
void CudaEmitter::load_ahead(ExprId load, const std::string& name, const std::string& type, F text) {
  if (const std::string* const kept = loaded_before(load)) {
    stage_.loaded[load] = *kept + "[k]";
    return;
  }
  const auto level = static_cast<std::size_t>(level_of(load) - 1);
  if (stage_.levels.size() <= level) stage_.levels.resize(level + 1);
  const auto swap = [&] {
    Scope& scope = scopes_[static_cast<std::size_t>(stage_.depth)];
    std::swap(scope.text, stage_.levels[level].text);
    std::swap(scope.memo, stage_.levels[level].memo);
  };
  swap();
  const std::string loaded = text();
  scopes_[static_cast<std::size_t>(stage_.depth)].text += cat(name, "[k] = ", loaded, ";\n");
  swap();
  stage_.arrays.push_back({load, cat(type, ' ', name, '[', stage_.steps, "];\n")});
  stage_.loaded[load] = name + "[k]";
  if (writes_out_) kept_.push_back({load, writes_out_->var, name});
}

/// Name of the vector that a load along the lanes gives.
std::string CudaEmitter::loaded_vector(ExprId e) {
  const ExprNode n = pool_[e];
  const auto d = static_cast<std::size_t>(at_.depth_of(e));
  if (const auto it = stage_.loaded.find(e); it != stage_.loaded.end()) return it->second;
  if (const auto it = scopes_[d].memo.find(e); it != scopes_[d].memo.end()) return it->second;
  const std::string name = fresh("x"),
                    type = rounds_ > 0 ? cat(cuda_memory_type(n.type), '*') : vector_type(n.type);
  const bool was_in_run = std::exchange(in_run_, false), early = ahead(e);
  note_streamed(n);
  const auto load = [&] {
    const std::string mark = marked_ ? kernel::word_of({kernel::Mark::Of::Expression, e}) : std::string();
    return mark + load_text(e, static_cast<int>(d));
  };
  if (early) {
    load_ahead(e, name, type, load);
  } else {
    const std::string text = load();
    scopes_[d].text += cat("const ", type, ' ', name, " = ", text, ";\n");
  }
  in_run_ = was_in_run;
  return early ? stage_.loaded[e] : scopes_[d].memo[e] = name;
}

/// An element, or a choice between elements, where it is loaded.
std::string CudaEmitter::chosen_text(ExprId e) {
  const ExprNode n = pool_[e];
  if (at_.depth_of(e) < stage_.depth) return value(e);
  if (n.prim == Prim::Load) {
    const std::string mark = marked_ ? kernel::word_of({kernel::Mark::Of::Expression, e}) : std::string();
    return mark + element(n, place_of(n.imm, n.a), present(e, false));
  }
  const std::string chooses = value(n.a), yes = chosen_text(n.b), no = chosen_text(n.c);
  return cat('(', chooses, " ? ", yes, " : ", no, ')');
}

/// Name of an element, or of a choice between elements, that was loaded ahead; empty where it is not.
std::string CudaEmitter::loaded_element(ExprId e) {
  if (const auto it = stage_.loaded.find(e); it != stage_.loaded.end()) return it->second;
  if (!element_ahead(e)) return {};
  const std::string name = fresh("x");
  const bool was_in_run = std::exchange(in_run_, false);
  load_ahead(e, name, cuda_type(pool_[e].type), [&] { return chosen_text(e); });
  in_run_ = was_in_run;
  return stage_.loaded[e];
}

/// Whether a value is an element or, where it is not there, something else: one load under a condition.
bool CudaEmitter::chooses_loaded(ExprId e) const {
  const ExprNode& n = pool_[e];
  if (n.prim != Prim::Select || pool_[n.b].prim != Prim::Load) return false;
  return pool_[n.b].b == n.a && facts_.uses[n.b] == 1 && !is_bool(n.type) && !is_register(pool_[n.b].imm);
}

/// Whether a thread stores several results of an array here: a strip of its rows.
bool CudaEmitter::is_strip(std::span<const Stmt> list) const {
  if (at_.lanes_depth() == 0 || lanes_ > 1 || rounds_ > 0 || steps_ != 1 || list.size() < 2 || !is_map())
    return false;
  return std::ranges::count_if(list, [&](const Stmt& s) { return s.target == list.front().target; }) > 1;
}

/// What the first rows of a strip load, of which there are as many as registers allow, comes before they are
/// computed, so that all of it is under way together; what is there under one condition follows each other,
/// so that this is asked once. Returns how many statements these rows are.
std::size_t CudaEmitter::load_strip(std::span<const Stmt> list) {
  constexpr int kMost = 64;  // registers of what is loaded
  struct Loaded {
    int level;
    ExprId condition, value;
  };
  std::vector<Loaded> all;
  std::unordered_map<ExprId, int> levels;
  int registers = 0;
  const auto visit = [&](auto& self, ExprId e) -> int {
    if (e == kNoExpr || at_.depth_of(e) < depth() || here().memo.contains(e)) return 0;
    if (const auto known = levels.find(e); known != levels.end()) return known->second;
    const ExprNode n = pool_[e];
    const bool chooses = chooses_loaded(e);
    int level = chooses ? self(self, n.c) : 0;
    each_operand(chooses ? pool_[n.b] : n, [&](ExprId o) { level = std::max(level, self(self, o)); });
    if (chooses || (n.prim == Prim::Load && !is_register(n.imm))) {
      all.push_back({level++, chooses ? n.a : n.b, e});
      registers += std::max(1, static_cast<int>(size_of(n.type)) / 4);
    }
    return levels[e] = level;
  };
  std::size_t rows = 0;
  for (std::size_t before = 0; rows < list.size(); ++rows, before = all.size()) {
    visit(visit, list[rows].value);
    visit(visit, list[rows].index);
    if (rows == 0 || registers <= kMost) continue;
    all.resize(before);
    break;
  }
  find_bases(list);
  std::ranges::stable_sort(all, {}, [](const Loaded& l) { return std::pair(l.level, l.condition + 1); });
  strip_loads_ += all.size();
  for (const Loaded& l : all) load_chosen(l.value);
  return rows;
}

/// Finds what the indices of several loads and stores of a strip are distances behind: an address of its own,
/// to which each adds its distance by one instruction.
void CudaEmitter::find_bases(std::span<const Stmt> list) {
  constexpr int kLeast = 4;  // accesses
  std::unordered_map<ExprId, int> behind;
  std::unordered_set<ExprId> seen;
  const auto count = [&](ExprId index) {
    const ExprNode& n = pool_[index];
    if (n.prim == Prim::Add && pool_[n.b].prim != Prim::Const && ++behind[n.a] == kLeast) bases_.insert(n.a);
  };
  const auto visit = [&](auto& self, ExprId e) -> void {
    if (e == kNoExpr || at_.depth_of(e) < depth() || !seen.insert(e).second) return;
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Load && !is_register(n.imm)) count(n.a);
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : list) {
    visit(visit, s.value);
    if (s.kind == Stmt::Kind::Store) count(s.index);
  }
}

/// An element in memory.
std::string CudaEmitter::place_of(std::uint64_t buffer, ExprId index) {
  const ExprNode n = pool_[index];
  if (n.prim != Prim::Add || !bases_.contains(n.a))
    return cat(buffer_name(buffer), '[', index_text(index), ']');
  Scope& scope = scopes_[static_cast<std::size_t>(at_.depth_of(n.a))];
  std::string& name = scope.bases[{buffer, n.a}];
  if (name.empty()) {
    name = fresh("q");
    const std::string base = index_text(n.a);
    scope.text += cat("auto* const ", name, " = ", buffer_name(buffer), " + ", base, ";\n");
  }
  return cat(name, '[', index_text(n.b), ']');
}

/// An element, or what stands for it where it is not there, under a name.
void CudaEmitter::load_chosen(ExprId e) {
  const ExprNode n = pool_[e];
  if (n.prim == Prim::Load) {
    value(e);
    return;
  }
  const ExprNode& load = pool_[n.b];
  const std::string element = place_of(load.imm, load.a), condition = value(n.a), otherwise = value(n.c),
                    name = fresh("t");
  line(cat("const ", type_of(e), ' ', name, " = (", condition, " ? ", element, " : ", otherwise, ");"));
  here().memo[e] = name;
}

/// An operand of which each grid item reads elements of its own.
void CudaEmitter::note_streamed(const ExprNode& load) {
  const BufferDecl& d = k_.buffers[load.imm];
  if (d.role != BufferDecl::Role::In || lanes_ * size_of(d.dtype) < 16 || k_.body.empty()) return;
  const Walk w = walk(load.a, k_.loops[k_.body.front().target].var);
  if (w.var && !w.memory) streamed_[load.imm] = vectors_bytes(d.dtype);
}

/// Bytes that a grid item's Vector loop at hand covers, or 0 where that is not known.
std::int64_t CudaEmitter::vectors_bytes(DType t) const {
  return std::int64_t{team_} * lanes_ * steps_ * size_of(t);
}

/// Where a kernel writes as much as it reads, by whole vectors: how what it reads of large operands passes
/// the second cache. (Their size is told by the number of blocks. A comparison of a parameter took a layer
/// norm seven registers more.)
std::string CudaEmitter::streams() const {
  std::int64_t read = 0, written = 0;
  for (const auto& [buffer, bytes] : streamed_) read += bytes;
  for (const auto& [buffer, bytes] : written_) written += bytes;
  std::string out;
  if (written < read || !k_.finish.empty()) return out;
  for (const auto& [buffer, bytes] : streamed_) {
    const std::string name = buffer_name(buffer);
    const std::int64_t a_block = bytes * (k_.threads.block / team_);
    if (bytes > 0)
      out += cat(name, " = leaves_last(", name, ", ", block_count(), " >= ", kFar / a_block, ");\n");
  }
  return out;
}

void CudaEmitter::store(const Stmt& s) {
  const BufferDecl& d = k_.buffers[s.target];
  const auto in_memory = [&](const std::string& x) { return is_bool(d.dtype) ? cat("uint8(", x, ')') : x; };
  if (is_register(s.target)) {
    if (hold_loaded(s)) return;
    const std::string x = lane(s.value);
    line(cat(scratch(s.target, s.index), " = ", x, ';'));
    return;
  }
  if (const std::string to = chained(s.target, in_run_); !to.empty())
    return line(cat(to, " = ", at_.lanes_depth() > 0 ? lane(s.value) : value(s.value), ';'));
  if (store_together(s) || copy_beside(s)) return;
  if (at_.lanes_depth() == 0) {
    const std::string x = in_memory(value(s.value));
    line(cat(width_ > 1 ? cat("if (", lane_, " == 0) ") : std::string(), stored(s, x), ';'));
    return;
  }
  const std::string x = in_memory(lane(s.value));
  if (in_run_ && whole_vectors(s.target, s.index)) {
    const std::string name = fresh("y");
    if (d.role == BufferDecl::Role::Out) written_[s.target] = vectors_bytes(d.dtype);
    line(cat(name, vector_lane(s.index), " = ", x, ';'));
    before_run_ += cat(vector_type(d.dtype), ' ', name, ";\n");
    in_run_ = false;
    const std::string at = vector_index_text(s.index);
    in_run_ = true;
    after_run_ +=
        cat(storing(""), spread_ ? "store_spread(" : "store(", buffer_name(s.target), " + ", at, ", ", name,
            reach_ == Reach::Cut ? ", from, left" : left(depth()), ");", statement_, '\n');
    return;
  }
  line(cat(storing(in_run_ ? "v < left" : "left > 0"), stored(s, x), ';'));
}

/// Copies a vector of memory to shared memory as it is, without a register in between; false where what is
/// stored is something else.
bool CudaEmitter::copy_beside(const Stmt& s) {
  constexpr std::int64_t kWord = 4;  // bytes, the fewest that can be copied so
  const BufferDecl& d = k_.buffers[s.target];
  const ExprNode n = pool_[s.value];
  if (!in_run_ || rounds_ > 0 || d.shared == 0 || n.prim != Prim::Load || n.b != kNoExpr || fixed_ ||
      spread_ || windows_.contains(s.value) || reach_ == Reach::Cut || lanes_ * size_of(d.dtype) < kWord)
    return false;
  const BufferDecl& from = k_.buffers[n.imm];
  if (from.role != BufferDecl::Role::In || from.dtype != d.dtype || !whole_vectors(n.imm, n.a) ||
      backwards(n.a) || !whole_vectors(s.target, s.index) || backwards(s.index))
    return false;
  in_run_ = false;
  const std::string to = index_text(s.index), at = index_text(n.a);
  in_run_ = true;
  after_run_ += cat(storing(""), "copy_beside<", lanes_, ">(", buffer_name(s.target), " + ", to, ", ",
                    buffer_name(n.imm), " + ", at, left(depth()), ");", statement_, '\n');
  copies_beside_ = true;
  keeps_loads_ = true;  // as where registers have them: blocks are resident together
  return true;
}

/// An element's store, or where it is counted instead.
std::string CudaEmitter::stored(const Stmt& s, const std::string& x) {
  if (is_counted(s.target)) return cat("tally.add(", x, ')');
  if (at_.lanes_depth() == 0 || (lanes_ == 1 && !bases_.empty()))
    return cat(place_of(s.target, s.index), " = ", x);
  return cat(buffer_name(s.target), '[', lane_index_text(s.index), "] = ", x);
}

/// The condition under which this thread stores what it has of the vector at hand; `mask` where lanes may be
/// missing.
std::string CudaEmitter::storing(const char* mask) const {
  std::string all = on_;
  const auto add = [&](const std::string& condition) {
    if (!condition.empty()) all += (all.empty() ? "" : " && ") + condition;
  };
  if (once_) add(row_ + " == 0");
  if (masked(depth()) && *mask) add(mask);
  if (*mask) add(lanes_there());
  return all.empty() ? all : cat("if (", all, ") ");
}

/// A register that would only have an element of a vector loaded for all steps, or that element as a float:
/// the vector stays instead, which is smaller where it is of half types. False where it is not that.
bool CudaEmitter::hold_loaded(const Stmt& s) {
  const ExprNode value = pool_[s.value];
  const bool cast = value.prim == Prim::Cast && value.type == DType::Float32 && is_half(pool_[value.a].type);
  const ExprId source = cast ? value.a : s.value;
  const ExprNode n = pool_[source];
  if (!in_run_ || steps_ <= 1 || (reach_ != Reach::Guarded && reach_ != Reach::Cut) ||
      k_.buffers[s.target].dtype != value.type)
    return false;
  if (n.prim != Prim::Load || n.b != kNoExpr || is_bool(n.type) || is_register(n.imm) ||
      !whole_vectors(n.imm, n.a))
    return false;
  const std::string vector = loaded_vector(source);
  if (!stage_.loaded.contains(source)) return false;  // not loaded ahead
  const auto array = std::find_if(stage_.arrays.begin(), stage_.arrays.end(),
                                  [&](const Stage::Array& a) { return a.load == source; });
  if (array != stage_.arrays.end()) {
    held_arrays_ += array->declaration;
    stage_.arrays.erase(array);
  }
  const std::string element = vector + vector_lane(n.a);
  held_[s.target] = cast ? cat("to_float(", element, ")") : element;
  return true;
}

/// Registers for Scratch buffers, for the life of a grid iteration, and the memory of those that are shared.
std::string CudaEmitter::registers() const {
  std::string out;
  int per_thread = 0;
  for (const LoopDecl& l : k_.loops)
    if (l.kind == LoopKind::Vector) per_thread = std::max(per_thread, l.steps * l.lanes);
  for (std::size_t b = 0; b < k_.buffers.size(); ++b)
    if (is_register(b) && !held_.contains(b))
      out += cat(cuda_type(k_.buffers[b].dtype), ' ', buffer_name(b), '[', per_thread, "];\n");
  for (std::size_t b = 0; b < k_.buffers.size(); ++b)
    if (k_.buffers[b].shared > 0) out += shared_array(b);
  return out + held_arrays_;
}

std::string CudaEmitter::shared_array(std::size_t b) const {
  const BufferDecl& d = k_.buffers[b];
  const char* const type = cuda_memory_type(d.dtype);
  if (dynamic_shared(k_) == 0)  // of whole vectors, which are stored at once
    return cat("alignas(16) __shared__ ", type, ' ', buffer_name(b), '[', d.shared, "];\n");
  std::uint32_t before = 0;
  for (std::size_t i = 0; i < b; ++i) before += shared_bytes(k_.buffers[i]);
  return cat(before == 0 ? "extern __shared__ uint4 dynamic_shared[];\n" : "", type, "* const ",
             buffer_name(b), " = reinterpret_cast<", type, "*>(dynamic_shared) + ", before / size_of(d.dtype),
             ";\n");
}

std::uint32_t dynamic_shared(const Kernel& kernel) {
  constexpr std::uint32_t kGiven = 40 << 10;  // of the 48 KiB a block always has: reductions take some too
  std::uint32_t bytes = 0;
  for (const BufferDecl& b : kernel.buffers) bytes += shared_bytes(b);
  return bytes > kGiven ? bytes : 0;
}

}  // namespace kiln::codegen
