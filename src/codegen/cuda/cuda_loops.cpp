// CudaEmitter: loops, their scopes, and the runs of statements inside them.
#include "codegen/cuda/cuda_function.h"

#include <algorithm>
#include <utility>

namespace kiln::codegen {

constexpr int kUnrolled = 4;  // iterations of a short loop body that are in flight together

void CudaEmitter::block(const std::vector<Stmt>& body) {
  for (std::size_t i = 0; i < body.size();) {
    if (body[i].kind == Stmt::Kind::Loop) {
      const LoopDecl& l = k_.loops[body[i++].target];
      loop(l);
      if (fills_shared(l) && depth() == 1) line("__syncthreads();");
      continue;
    }
    std::size_t end = i;
    while (end < body.size() && body[end].kind != Stmt::Kind::Loop) ++end;
    run_of(std::span(body).subspan(i, end - i));
    i = end;
  }
}

bool CudaEmitter::fills_shared(const LoopDecl& l) const {
  return std::any_of(l.body.begin(), l.body.end(), [&](const Stmt& s) {
    return s.kind == Stmt::Kind::Loop ? fills_shared(k_.loops[s.target])
                                      : s.kind == Stmt::Kind::Store && k_.buffers[s.target].shared > 0;
  });
}

std::string CudaEmitter::marks_of(const Stmt& s) const {
  using kernel::Mark;
  if (!marked_) return {};
  const auto of = s.kind == Stmt::Kind::Store ? Mark::Of::Store : Mark::Of::Update;
  return kernel::word_of({of, s.target}) + kernel::word_of({Mark::Of::Expression, s.value});
}

void CudaEmitter::statements(std::span<const Stmt> list) {
  for (const Stmt& s : list) {
    statement_ = marks_of(s);
    s.kind == Stmt::Kind::Store ? store(s) : update(s);
    statement_.clear();
  }
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
    statement_ = marks_of(*step);
    scan_step(*step);
    statement_.clear();
    list = list.subspan(before + 1);
  }
  if (list.empty()) return;
  if (at_.lanes_depth() == 0 || (lanes_ == 1 && rounds_ == 0)) return statements(list);
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
  if (rounds_ > 0) {
    out += over_rounds(run_text_);
    run_text_.clear();
    before_run_.clear();
    after_run_.clear();
    run_memo_.clear();
    return;
  }
  out += cat(unroll(), "\nfor (int v = 0; v < ", lanes_, "; ++v) {\n");
  if (ragged)
    out += cat("if (", scopes_[static_cast<std::size_t>(at_.lanes_depth())].var, " + v < ", extent_, ") {\n");
  out += run_text_;
  if (ragged) out += "}\n";
  out += "}\n" + after_run_;
  run_text_.clear();
  before_run_.clear();
  after_run_.clear();
  run_memo_.clear();
}

/// Arrays in registers need unrolled loops. Cut vectors are rare: without arrays they are not worth compiling
/// at length.
const char* CudaEmitter::unroll() const {
  const bool arrays = !k_.accs.empty() ||
                      std::any_of(k_.buffers.begin(), k_.buffers.end(),
                                  [](const BufferDecl& b) { return b.role == BufferDecl::Role::Scratch; });
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
  if (!is_name(l.extent)) {
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
  block(l.body);
  if (!k_.finish.empty()) finish(i, items);
  if (fills_shared(l)) line("__syncthreads();");  // before the next iteration fills it
  const std::string body = registers() + close_scope();
  here().text += streams();
  const int teams = k_.threads.block / team_;
  const std::string first = teams == 1 ? cat(index_type(), "(", block_index(), ")")
                                       : cat(index_type(), "(", block_index(), ") * ", teams, " + ",
                                             index_type(), "(threadIdx.x / ", team_, ')');
  line(cat("for (", index_type(), ' ', i, " = ", first, "; ", i, " < ", items, "; ", i, " += ", block_count(),
           " * ", teams, ") {"));
  here().text += body;
  line("}");
}

/// The sections of a chain, one item after the other. Other than on a CPU an item's link section waits for
/// the bodies of all items before and reads what these stored, so that no item waits for another's link.
void CudaEmitter::chain() {
  KILN_CHECK_THAT(team_ == k_.threads.block, "a chain that is not of blocks");
  const auto loop_of = [&](const std::vector<Stmt>& section) -> const LoopDecl& {
    return k_.loops[section.front().target];
  };
  const std::string items = index_text(loop_of(k_.body).extent), item = fresh("n");
  const auto part = [&](const std::vector<Stmt>& section) {
    open_scope(loop_of(section), item);
    block(loop_of(section).body);
    return cat("{\n", close_scope(), "}\n");
  };
  const std::string text =
      cat(part(k_.body), "publish_item(arrivals, ", item, ");\nwait_for_items(arrivals, ", item, ");\n",
          part(k_.link), "share_in_block();\n", part(k_.second));
  line(cat("for (", index_type(), ' ', item, "; (", item, " = next_item(arrivals)) < ", items, ";) {"));
  here().text += text;
  line("}");
  line(cat("leave_chain(arrivals, ", items, ");"));
}

/// After an iteration of the body: if it was its group's last, the group's iteration of the finish section.
void CudaEmitter::finish(const std::string& item, const std::string& items) {
  KILN_CHECK_THAT(team_ == k_.threads.block && k_.finish.size() == 1,
                  "a finish section that a block cannot run");
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
  const std::string i = cat('i', l.var), lane = lane_;
  const int width = width_;
  std::string first = "0", end = extent;
  const bool once = once_;
  if (skips_ && depth() == at_.lanes_depth()) {
    end = fresh("n");
    line(cat("const ", index_type(), ' ', end, " = left > 0 ? ", extent, " : 0;"));
  }
  if (l.rows > 1) {
    if (at_.lanes_depth() == 0) deal(l.rows);
    KILN_CHECK_THAT(l.rows == rows_, "threads dealt twice");
    first = row_;
    once_ = false;
  }
  const bool in_flight = unrolls(k_, l), staged = in_flight && at_.lanes_depth() > 0 && stage_.steps < 2;
  const Stage around = std::exchange(stage_, {});
  open_scope(l, i);
  if (staged) stage_ = {depth(), kUnrolled, {}, {}, {}, {}};
  block(l.body);
  const std::string body = close_scope();
  const Stage ahead = std::exchange(stage_, around);
  once_ = once;
  if (ahead.loaded.empty()) {
    const bool scalars = l.rows > 1 && lanes_ == 1 && at_.lanes_depth() > 0;
    if (in_flight) line(cat("#pragma unroll ", scalars ? 2 * kUnrolled : kUnrolled));
    keeps_loads_ |= in_flight && scalars;
    line(cat("for (", index_type(), ' ', i, " = ", first, "; ", i, " < ", end, "; ", i, " += ", l.rows,
             ") {"));
    here().text += body;
    line("}");
  } else {
    here().text += in_batches(l, first, end, ahead, body);
  }
  if (at_.lanes_depth() == 0) {
    width_ = width;
    lane_ = lane;
    rows_ = 1;
  }
}

/// A serial loop by several iterations at a time, all of whose loads come first. Only the last ones ask which
/// are there.
std::string CudaEmitter::in_batches(const LoopDecl& l, const std::string& first, const std::string& end,
                                    const Stage& ahead, const std::string& body) {
  keeps_loads_ = true;
  const std::string base = fresh("b"), i = cat('i', l.var);
  const auto each = [&](const std::string& text, bool asks) {
    std::string out = cat("#pragma unroll\nfor (int k = 0; k < ", kUnrolled, "; ++k) {\n");
    out += cat("const ", index_type(), ' ', i, " = ", base, " + k * ", l.rows, ";\n");
    return out + (asks ? cat("if (", i, " < ", end, ") {\n", text, "}\n") : text) + "}\n";
  };
  const auto batch = [&](bool asks) {
    return ahead.declarations() + each(ahead.text, asks) + each(body, asks) + "}\n";
  };
  std::string out = cat(index_type(), ' ', base, " = ", first, ";\n");
  out += cat("for (; ", base, " + ", (kUnrolled - 1) * l.rows, " < ", end, "; ", base,
             " += ", kUnrolled * l.rows, ") {\n", batch(false));
  return out + cat("if (", base, " < ", end, ") {\n", batch(true));
}

/// From here on a Vector loop is shared by a part of the team.
void CudaEmitter::deal(int rows) {
  KILN_CHECK_THAT(rows_ == 1 && rows <= team_, "threads dealt twice");
  rows_ = rows;
  width_ = team_ / rows;
  row_ = fresh("row");
  lane_ = fresh("lane");
  line(cat("const int ", row_, " = lane / ", width_, ", ", lane_, " = lane % ", width_, ';'));
}

void CudaEmitter::vector_loop(const LoopDecl& l, const std::string& extent) {
  lanes_ = l.lanes;
  steps_ = l.steps;
  extent_ = extent;
  const bool ragged = l.ragged && lanes_ > 1;
  const int rows = rows_inside(k_, l), width = width_;
  const std::string lane = lane_;
  if (scans(l)) {
    KILN_CHECK_THAT(!ragged && steps_ == 0, "a scan along cut vectors");
    here().text += scanning(l, extent);
  } else if (rows > 1) {
    KILN_CHECK_THAT(steps_ == 1, "columns of unknown number");
    deal(rows);
    once_ = true;
    skips_ = !ragged;
    here().text += steps(l, Reach::Masked);  // all threads meet where the rows come together
    once_ = skips_ = false;
    width_ = width;
    lane_ = lane;
    rows_ = 1;
  } else if (l.rows > 1) {
    here().text += tested_runs(l);
  } else if (steps_ > 0) {
    if (!ragged) {
      here().text += steps(l, Reach::Guarded);
    } else if (k_.accs.empty() && !unrolls(k_, l)) {  // two forms of a long body would take long to compile
      here().text += steps(l, Reach::Masked);
    } else {
      const std::string whole = steps(l, Reach::Whole), rest = steps(l, Reach::Ragged);
      here().text +=
          cat("if (", extent, " == ", team_ * lanes_ * steps_, ") {\n", whole, "} else {\n", rest, "}\n");
    }
  } else {
    const std::string i = cat('i', l.var);
    std::string body = vectors(l, i, Reach::Whole);
    if (ragged)
      body = cat("if (", i, " + ", lanes_, " <= ", extent, ") {\n", body, "} else {\n",
                 vectors(l, i, Reach::Ragged), "}\n");
    if (unrolls(k_, l)) line(cat("#pragma unroll ", kUnrolled));
    const std::string first = lanes_ > 1 ? cat(lane_, " * ", lanes_) : lane_;
    line(cat("for (", index_type(), ' ', i, " = ", first, "; ", i, " < ", extent, "; ", i,
             " += ", width_ * lanes_, ") {"));
    here().text += body;
    line("}");
  }
  lanes_ = 1;
  steps_ = 0;
  reach_ = Reach::Whole;
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
  stage_ = {depth() + 1, steps_, {}, {}, {}, {}};
  const std::string i = cat('i', l.var);
  const std::string body = vectors(l, i, reach);
  std::string first = width_ > 1 ? lane_ : "0";
  if (steps_ > 1) first = width_ > 1 ? cat("(k * ", width_, " + ", lane_, ')') : "k";
  if (lanes_ > 1) first += cat(" * ", lanes_);
  auto wrap = [&](const std::string& text) {
    std::string out;
    if (steps_ > 1) out += cat(unroll(), "\nfor (int k = 0; k < ", steps_, "; ++k) {\n");
    out += cat("const ", index_type(), ' ', i, " = ", first, ";\n");
    if (reach == Reach::Masked) out += cat("const int left = int(", extent_, " - ", i, ");\n");
    const bool guarded = reach == Reach::Guarded || reach == Reach::Ragged;
    if (guarded) out += cat("if (", i, " < ", extent_, ") {\n");
    out += text;
    if (guarded) out += "}\n";
    return out + (steps_ > 1 ? "}\n" : "");
  };
  const std::string staged =
      stage_.loaded.empty() ? std::string() : stage_.declarations() + wrap(stage_.text);
  const std::string rest = wrap(body);
  return steps_ > 1 ? staged + rest : cat("{\n", rest, "}\n");
}

}  // namespace kiln::codegen
