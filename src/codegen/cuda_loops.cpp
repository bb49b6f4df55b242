// CudaEmitter: loops, their scopes, and the runs of statements inside them.
#include "codegen/cuda_function.h"

#include <algorithm>
#include <utility>

namespace kiln::codegen {

constexpr int kUnrollBelow = 60;  // expressions of a loop body that is unrolled four times

void CudaEmitter::block(const std::vector<Stmt>& body) {
  for (std::size_t i = 0; i < body.size();) {
    if (body[i].kind == Stmt::Kind::Loop) {
      loop(k_.loops[body[i++].target]);
      continue;
    }
    std::size_t end = i;
    while (end < body.size() && body[end].kind != Stmt::Kind::Loop) ++end;
    run_of(std::span(body).subspan(i, end - i));
    i = end;
  }
}

void CudaEmitter::statements(std::span<const Stmt> list) {
  for (const Stmt& s : list) s.kind == Stmt::Kind::Store ? store(s) : update(s);
}

/// Stores and updates without a loop between them.
void CudaEmitter::run_of(std::span<const Stmt> list) {
  // A step of a scan over the team is every thread's, not each lane's.
  while (!on_.empty()) {
    const auto step = std::find_if(list.begin(), list.end(), [&](const Stmt& s) {
      return s.kind == Stmt::Kind::Update && is_scan(s.target) && at_.lanes_of(s.target) == Lanes::Inside;
    });
    if (step == list.end()) break;
    const auto before = static_cast<std::size_t>(step - list.begin());
    if (before > 0) run_of(list.first(before));
    scan_step(*step);
    list = list.subspan(before + 1);
  }
  if (list.empty()) return;
  if (at_.lanes_depth() == 0 || lanes_ == 1) return statements(list);
  in_run_ = true;
  statements(list);
  end_run();
}

/// Puts the run's loop over the lanes where it belongs.
void CudaEmitter::end_run() {
  in_run_ = false;
  std::string& out = here().text;
  out += before_run_;
  const bool ragged = reach_ == Reach::Ragged;
  out += cat(unroll(), "\nfor (int v = 0; v < ", lanes_, "; ++v) {\n");
  if (ragged) out += cat("if (", scopes_[static_cast<std::size_t>(at_.lanes_depth())].var, " + v < ", extent_, ") {\n");
  out += run_text_;
  if (ragged) out += "}\n";
  out += "}\n" + after_run_;
  run_text_.clear();
  before_run_.clear();
  after_run_.clear();
  run_memo_.clear();
}

/// Arrays in registers need unrolled loops. Cut vectors are rare: without arrays they are not worth compiling at length.
const char* CudaEmitter::unroll() const {
  const bool arrays = !k_.accs.empty() || std::any_of(k_.buffers.begin(), k_.buffers.end(), [](const BufferDecl& b) {
    return b.role == BufferDecl::Role::Scratch;
  });
  return reach_ == Reach::Ragged && !arrays ? "#pragma unroll 1" : "#pragma unroll";
}

void CudaEmitter::open_scope(const LoopDecl& l, std::string var) {
  scopes_.push_back({&l, std::move(var), {}, {}});
  at_.open(l);
}

std::string CudaEmitter::close_scope() {
  at_.close(*here().loop);
  std::string text = std::move(here().text);
  scopes_.pop_back();
  return text;
}

void CudaEmitter::loop(const LoopDecl& l) {
  if (l.kind == LoopKind::Grid) return grid_loop(l);
  if (l.kind == LoopKind::While) return while_loop(l);
  std::string extent = index_text(l.extent);
  if (extent.find('(') != std::string::npos) {
    const std::string name = fresh("n");
    line(cat("const ", index_type(), ' ', name, " = ", extent, ';'));
    extent = name;
  }
  begin_accs(l);
  l.kind == LoopKind::Vector ? vector_loop(l, extent) : serial_loop(l, extent);
  end_accs(l);
}

void CudaEmitter::grid_loop(const LoopDecl& l) {
  const std::string i = cat('i', l.var), items = index_text(l.extent);
  open_scope(l, i);
  declare_registers();
  block(l.body);
  if (!k_.finish.empty()) finish(i, items);
  const std::string body = close_scope();
  const int teams = k_.threads.block / team_;
  const std::string first =
      teams == 1 ? cat(index_type(), "(", block_index(), ")")
                 : cat(index_type(), "(", block_index(), ") * ", teams, " + ", index_type(), "(threadIdx.x / ", team_, ')');
  line(cat("for (", index_type(), ' ', i, " = ", first, "; ", i, " < ", items, "; ", i, " += ", block_count(), " * ", teams, ") {"));
  here().text += body;
  line("}");
}

/// The sections of a chain, one item after the other. Other than on a CPU an item's link section waits for the bodies of all
/// items before and reads what these stored, so that no item waits for another's link.
void CudaEmitter::chain() {
  KILN_CHECK_THAT(team_ == k_.threads.block, "a chain that is not of blocks");
  const auto loop_of = [&](const std::vector<Stmt>& section) -> const LoopDecl& { return k_.loops[section.front().target]; };
  const std::string items = index_text(loop_of(k_.body).extent), item = fresh("n");
  const auto part = [&](const std::vector<Stmt>& section) {
    open_scope(loop_of(section), item);
    block(loop_of(section).body);
    return cat("{\n", close_scope(), "}\n");
  };
  const std::string text = cat(part(k_.body), "publish_item(arrivals, ", item, ");\nwait_for_items(arrivals, ", item, ");\n",
                               part(k_.link), "share_in_block();\n", part(k_.second));
  line(cat("for (", index_type(), ' ', item, "; (", item, " = next_item(arrivals)) < ", items, ";) {"));
  here().text += text;
  line("}");
  line(cat("leave_chain(arrivals, ", items, ");"));
}

/// After an iteration of the body: if it was its group's last, the group's iteration of the finish section.
void CudaEmitter::finish(const std::string& item, const std::string& items) {
  KILN_CHECK_THAT(team_ == k_.threads.block && k_.finish.size() == 1, "a finish section that a block cannot run");
  const LoopDecl& l = k_.loops[k_.finish.front().target];
  const std::string group = cat('i', l.var), count = fresh("n");
  line(cat("const ", index_type(), ' ', count, " = index_div(", items, ", ", index_text(l.extent), ");"));
  line(cat("const ", index_type(), ' ', group, " = index_div(", item, ", ", count, ");"));
  open_scope(l, group);
  block(l.body);
  const std::string body = close_scope();
  line(cat("if (last_of(arrivals + ", group, ", ", count, ")) {"));
  here().text += body;
  line("}");
}

void CudaEmitter::serial_loop(const LoopDecl& l, const std::string& extent) {
  const std::string i = cat('i', l.var);
  open_scope(l, i);
  block(l.body);
  const std::string body = close_scope();
  if (unrolls(l)) line("#pragma unroll 4");
  line(cat("for (", index_type(), ' ', i, " = 0; ", i, " < ", extent, "; ++", i, ") {"));
  here().text += body;
  line("}");
}

/// Whether a loop of unknown length does so little that several iterations should be in flight.
bool CudaEmitter::unrolls(const LoopDecl& l) const {
  int count = 0;
  std::vector<bool> seen(pool_.size());
  auto visit = [&](auto&& self, ExprId e) -> void {
    if (e == kNoExpr || seen[e]) return;
    seen[e] = true;
    ++count;
    each_operand(pool_[e], [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body) {
    if (s.kind == Stmt::Kind::Loop) return false;
    visit(visit, s.value);
  }
  return count < kUnrollBelow;
}

void CudaEmitter::vector_loop(const LoopDecl& l, const std::string& extent) {
  lanes_ = l.lanes;
  steps_ = l.steps;
  extent_ = extent;
  const bool ragged = l.ragged && lanes_ > 1;
  if (scans(l)) {
    KILN_CHECK_THAT(!ragged && steps_ == 0, "a scan along cut vectors");
    here().text += scanning(l, extent);
  } else if (steps_ > 0) {
    if (!ragged) {
      here().text += steps(l, Reach::Guarded);
    } else {
      const std::string whole = steps(l, Reach::Whole), rest = steps(l, Reach::Ragged);
      here().text += cat("if (", extent, " == ", team_ * lanes_ * steps_, ") {\n", whole, "} else {\n", rest, "}\n");
    }
  } else {
    const std::string i = cat('i', l.var);
    std::string body = vectors(l, i, Reach::Whole);
    if (ragged)
      body = cat("if (", i, " + ", lanes_, " <= ", extent, ") {\n", body, "} else {\n", vectors(l, i, Reach::Ragged), "}\n");
    if (unrolls(l)) line("#pragma unroll 4");
    const std::string first = lanes_ > 1 ? cat("lane * ", lanes_) : std::string("lane");
    line(cat("for (", index_type(), ' ', i, " = ", first, "; ", i, " < ", extent, "; ", i, " += ", team_ * lanes_, ") {"));
    here().text += body;
    line("}");
  }
  lanes_ = 1;
  steps_ = 0;
}

/// The body of a Vector loop for the vector that begins at `i`.
std::string CudaEmitter::vectors(const LoopDecl& l, const std::string& i, Reach reach) {
  reach_ = reach;
  open_scope(l, i);
  block(l.body);
  return close_scope();
}

/// A Vector loop of known steps, unrolled: first all loads, then the rest.
std::string CudaEmitter::steps(const LoopDecl& l, Reach reach) {
  stage_ = {};
  const std::string i = cat('i', l.var);
  const std::string body = vectors(l, i, reach);
  std::string first = team_ > 1 ? "lane" : "0";
  if (steps_ > 1) first = team_ > 1 ? cat("(k * ", team_, " + lane)") : "k";
  if (lanes_ > 1) first += cat(" * ", lanes_);
  auto wrap = [&](const std::string& text) {
    std::string out;
    if (steps_ > 1) out += cat(unroll(), "\nfor (int k = 0; k < ", steps_, "; ++k) {\n");
    out += cat("const ", index_type(), ' ', i, " = ", first, ";\n");
    if (reach == Reach::Guarded) out += cat("if (", i, " < ", extent_, ") {\n");
    if (reach == Reach::Ragged) out += cat("if (", i, " < ", extent_, ") {\n");
    out += text;
    if (reach != Reach::Whole) out += "}\n";
    return out + (steps_ > 1 ? "}\n" : "");
  };
  const std::string staged = stage_.text.empty() ? std::string() : stage_.arrays + wrap(stage_.text);
  const std::string rest = wrap(body);
  return steps_ > 1 ? staged + rest : cat("{\n", rest, "}\n");
}

}  // namespace kiln::codegen
