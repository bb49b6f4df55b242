// CudaEmitter: strips, of which a thread stores several results of an array (lower/region_strips.cpp).
#include "codegen/cuda/cuda_function.h"

#include <algorithm>
#include <utility>

namespace kiln::codegen {

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

/// Whether a condition compares indices alone.
bool CudaEmitter::is_guard(ExprId e) const {
  const ExprNode& n = pool_[e];
  if (n.prim == Prim::And) return is_guard(n.a) && is_guard(n.b);
  return (n.prim == Prim::Lt || n.prim == Prim::Le) && is_index(n.a) && is_index(n.b);
}

/// The conditions of a strip's loads, and of what is chosen where these do not hold, if few conditions decide
/// about many loads.
std::vector<ExprId> CudaEmitter::shared_conditions(std::span<const Stmt> list) {
  constexpr std::size_t kLoadsEach = 4;  // of a condition, at least
  std::vector<ExprId> conditions;
  std::unordered_set<ExprId> seen;
  std::size_t loads = 0;
  const auto add = [&](ExprId condition) {
    if (at_.depth_of(condition) >= depth() && std::ranges::find(conditions, condition) == conditions.end())
      conditions.push_back(condition);
  };
  const auto visit = [&](auto& self, ExprId e) -> void {
    if (e == kNoExpr || at_.depth_of(e) < depth() || !seen.insert(e).second) return;
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Load && n.b != kNoExpr && !is_register(n.imm)) {
      ++loads;
      add(n.b);
    }
    if (n.prim == Prim::Select && pool_[n.c].prim == Prim::Const && is_guard(n.a)) add(n.a);
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : list) visit(visit, s.value);
  if (loads < kLoadsEach * conditions.size()) conditions.clear();
  return conditions;
}

/// Loads what is there in any case, if that is little: both forms of a strip use it.
void CudaEmitter::load_shared(std::span<const Stmt> list) {
  constexpr std::size_t kMost = 8;
  std::vector<ExprId> always;
  std::unordered_set<ExprId> seen;
  const auto visit = [&](auto& self, ExprId e) -> void {
    if (e == kNoExpr || at_.depth_of(e) < depth() || !seen.insert(e).second) return;
    const ExprNode& n = pool_[e];
    each_operand(n, [&](ExprId o) { self(self, o); });
    if (n.prim == Prim::Load && n.b == kNoExpr && !is_register(n.imm)) always.push_back(e);
  };
  for (const Stmt& s : list) visit(visit, s.value);
  if (always.size() <= kMost)
    for (const ExprId load : always) value(load);
}

/// A strip's rows, as many at a time as registers hold what they load.
void CudaEmitter::strip_rows(std::span<const Stmt> list) {
  while (!list.empty()) {
    const std::size_t rows = load_strip(list);
    statements(list.first(rows));
    list = list.subspan(rows);
  }
}

/// Stores of a strip. Where few conditions decide about its loads, a thread asks once whether all hold: then
/// nothing is chosen, and no load waits for a register to be cleared.
void CudaEmitter::store_strip(std::span<const Stmt> list) {
  const std::vector<ExprId> conditions = shared_conditions(list);
  if (conditions.empty()) return strip_rows(list);
  find_bases(list);
  std::string all;
  load_shared(list);
  for (const ExprId there : conditions) all += cat(all.empty() ? "" : " && ", value(there));
  const std::string before = std::exchange(here().text, {});
  const auto scopes = scopes_;
  for (const ExprId there : conditions) here().memo[there] = "true";
  const std::size_t loads = strip_loads_;
  const auto rows = [&] {
    strip_loads_ = loads;
    strip_rows(list);
    return std::exchange(here().text, {});
  };
  const std::string whole = rows();
  for (std::size_t i = 0; i < scopes_.size(); ++i) {
    scopes_[i].memo = scopes[i].memo;
    scopes_[i].divisors = scopes[i].divisors;
    scopes_[i].bases = scopes[i].bases;
  }
  const std::string guarded = rows();
  here().text = cat(before, "if (", all, ") {\n", whole, "} else {\n", guarded, "}\n");
  here().memo = scopes.back().memo;
  here().divisors = scopes.back().divisors;
  here().bases = scopes.back().bases;
}

}  // namespace kiln::codegen
