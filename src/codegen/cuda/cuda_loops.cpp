// CudaEmitter: loops, their scopes, and the runs of statements inside them.
#include "codegen/cuda/cuda_function.h"

#include "kernel/monoid.h"

#include <algorithm>
#include <utility>

namespace kiln::codegen {

constexpr int kUnrolled = 4;      // iterations of a short loop body that are in flight together
constexpr std::size_t kTile = 4;  // results of a loop that have registers of their own
constexpr double kNarrow = 4;     // bytes of an iteration, of which more are in flight together
constexpr int kFewSums = 40;      // registers of accumulators that leave some for the next columns of a tile
constexpr int kAhead = 24;        // registers of a thread for elements of all steps that are loaded ahead, …
constexpr int kMostAhead = 40;    // … and where a map's are of one register each

void CudaEmitter::block(const std::vector<Stmt>& body) {
  for (std::size_t i = 0; i < body.size();) {
    if (body[i].kind == Stmt::Kind::Loop) {
      const LoopDecl& l = k_.loops[body[i++].target];
      loop(l);
      if (fills_shared(l) && (depth() == 1 || (depth() == 2 && meets(*here().loop)))) {
        if (std::exchange(copies_beside_, false)) line("copies_landed();");
        line("__syncthreads();");
      }
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

/// Whether each iteration of a loop of the whole team fills shared memory that it then reads.
bool CudaEmitter::meets(const LoopDecl& l) const {
  const auto fills = [&](const Stmt& s) {
    return s.kind == Stmt::Kind::Loop && fills_shared(k_.loops[s.target]);
  };
  return l.kind == LoopKind::Serial && l.rows == 1 && l.body.size() > 1 && fills(l.body.front());
}

std::string CudaEmitter::marks_of(const Stmt& s) const {
  using kernel::Mark;
  if (!marked_) return {};
  const auto of = s.kind == Stmt::Kind::Update ? Mark::Of::Update : Mark::Of::Store;
  return kernel::word_of({of, s.target}) + kernel::word_of({Mark::Of::Expression, s.value});
}

void CudaEmitter::statements(std::span<const Stmt> list) {
  for (const Stmt& s : list) {
    statement_ = marks_of(s);
    s.kind == Stmt::Kind::Store ? store(s) : s.kind == Stmt::Kind::Across ? across(s) : update(s);
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
  for (const bool strip = is_strip(list); strip && !list.empty();) {
    const std::size_t rows = load_strip(list);
    statements(list.first(rows));
    list = list.subspan(rows);
  }
  if (at_.lanes_depth() == 0 || (lanes_ == 1 && rounds_ == 0)) return statements(list);
  // What the first part stores alone is made by it alone: the assembler moves no branch, as a logarithm has.
  const bool once = once_, alone = once && std::ranges::all_of(list, [&](const Stmt& s) {
                                     return s.kind == Stmt::Kind::Store && !is_register(s.target);
                                   });
  once_ = once && !alone;
  in_run_ = true;
  statements(list);
  const std::string before = alone ? std::exchange(here().text, {}) : std::string();
  end_run();
  if (alone) here().text = cat(before, "if (", row_, " == 0) {\n", here().text, "}\n");
  once_ = once;
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
  return seldom_ || (reach_ == Reach::Ragged && !arrays) ? "#pragma unroll 1" : "#pragma unroll";
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
  const Gathering around = std::exchange(gathering_, {});
  if (l.early != kNoExpr)
    cut_vectors(l, extent);
  else if (l.kind == LoopKind::Vector)
    vector_loop(l, extent);
  else
    l.again ? written_out(l, extent) : serial_loop(l, extent);
  gathering_ = around;
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

/// After an iteration of the body: if it was its group's last, the group's iteration of the finish section.
void CudaEmitter::finish(const std::string& item, const std::string& items) {
  KILN_CHECK_THAT(team_ == k_.threads.block && k_.finish.size() == 1,
                  "a finish section that a block cannot run");
  const LoopDecl& l = k_.loops[k_.finish.front().target];
  const std::string group = cat('i', l.var), count = fresh("n"), groups = index_text(l.extent);
  line(cat("const ", index_type(), ' ', count, " = index_div(", items, ", ", groups, ");"));
  line(cat("const ", index_type(), ' ', group, " = ", item, " - index_div(", item, ", ", groups, ") * ",
           groups, ";"));
  open_scope(l, group);
  block(l.body);
  const std::string body = close_scope();
  line(cat("if (last_of(arrivals + ", group, ", ", count, ")) {"));
  here().text += body;
  line("}");
}

/// Whether something is the position of a value, which takes more registers than the value.
bool CudaEmitter::finds_positions() const {
  return std::ranges::any_of(k_.accs, [](const AccDecl& a) { return kernel::positional(a.monoid); });
}

/// Iterations of a serial loop of so many bytes each that are in flight together.
int CudaEmitter::iterations_at_once(const LoopDecl& l, double bytes, bool scalars, bool copies) {
  if (at_.lanes_depth() > 0 && l.rows == 1)
    if (const int steps = steps_of_scan(l); steps > 0) return steps;
  const bool narrow = bytes > 0 && bytes <= kNarrow, more = narrow || (scalars && l.rows > 1),
             most = copies || (scalars && narrow && 2 * bytes <= kNarrow && !finds_positions());
  return (more ? 2 : 1) * (most ? 2 : 1) * kUnrolled;
}

void CudaEmitter::serial_loop(const LoopDecl& l, const std::string& extent) {
  const std::string i = cat('i', l.var), lane = lane_;
  const int width = width_;
  const bool once = once_;
  std::string first = "0", end = extent;
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
  // A tile's results take the registers that loads ahead would, and time enough for the next loads.
  const bool in_flight = unrolls(k_, l), crosses = this->crosses(l),
             tile = l.body.size() >= kTile && !crosses, words = goes_by_words(l),
             staged = (in_flight || crosses) && !tile && at_.lanes_depth() > 0 && stage_.steps < 2 && !words;
  const Stage around = std::exchange(stage_, {});
  const double bytes = lanes_ * bytes_a_step(l);
  const bool scalars = lanes_ == 1 && at_.lanes_depth() > 0,
             copies = scalars && l.rows > 1 && fills_shared(l);  // and computes nothing
  const int at_once = iterations_at_once(l, bytes, scalars, copies),
            batch = crosses ? rows_across(in_flight, at_once) : at_once;
  // Single elements are loaded ahead where all are: some of them would only take registers.
  const bool elements = copies || (scalars && (l.rows == 1 || crosses) && batch * bytes <= 4 * kAhead);
  open_scope(l, i);
  const Together outside = std::exchange(together_, {});
  if (staged) stage_ = {depth(), batch, elements ? kAhead : 0, {}, {}, {}};
  const bool along = !staged && l.steps > 1 && l.rows == 1;
  if (along) together_ = {depth(), l.var, l.steps, {}, {}, {}, {}};
  if (along && tile && lanes_ > 1 && registers_of_accs() <= kFewSums)
    stage_ = {depth(), l.steps, 0, {}, {}, {}};
  const bool gathered = (words || (in_flight && together_.depth == 0)) && gathers(l);
  if (gathered) gathering_.steps = words ? l.steps : batch;
  block(l.body);
  if (depth() == 2 && meets(l)) line("__syncthreads();");  // before the next iteration fills it
  const std::string body = close_scope();
  const Stage ahead = std::exchange(stage_, around);
  const Together loads = std::exchange(together_, outside);
  once_ = once;
  if (along && (words || !loads.loaded.empty())) {
    here().text += by_vectors(l, first, end, loads, ahead, body);
  } else if (ahead.loaded.empty() && !gathered && !crosses) {
    if (in_flight) line(cat("#pragma unroll ", scalars ? batch : kUnrolled));
    keeps_loads_ |= in_flight && scalars && l.rows > 1;
    line(cat("for (", index_type(), ' ', i, " = ", first, "; ", i, " < ", end, "; ", i, " += ", l.rows,
             ") {"));
    here().text += body;
    line("}");
  } else {
    here().text += in_batches(l, first, end, ahead, body, batch);
  }
  if (at_.lanes_depth() == 0) {
    width_ = width;
    lane_ = lane;
    rows_ = 1;
  }
}

int CudaEmitter::registers_of_accs() const {
  int all = 0;
  for (const AccDecl& a : k_.accs) all += lanes_ * std::max(1, static_cast<int>(size_of(a.type)) / 4);
  return all;
}

/// A serial loop by several iterations at a time, all of whose loads come first. Only the last ones ask which
/// are there.
std::string CudaEmitter::in_batches(const LoopDecl& l, const std::string& first, const std::string& end,
                                    const Stage& ahead, const std::string& body, int at_once) {
  keeps_loads_ = true;
  const Gathering all = std::exchange(gathering_, {});
  const std::vector<Across> rows = std::exchange(across_, {});
  const int batch = rows.empty() ? std::max(ahead.steps, all.steps) : at_once;
  const std::string base = fresh("b"), i = cat('i', l.var);
  const auto each = [&](const std::string& text, bool asks) {
    std::string out = cat("#pragma unroll\nfor (int k = 0; k < ", batch, "; ++k) {\n");
    out += cat("const ", index_type(), ' ', i, " = ", base, " + k * ", l.rows, ";\n");
    return out + (asks ? cat("if (", i, " < ", end, ") {\n", text, "}\n") : text) + "}\n";
  };
  const auto part = [&](bool asks) {
    std::string loads;
    for (const Stage::Level& level : ahead.levels)
      if (!level.text.empty()) loads += each(level.text, asks);
    return ahead.declarations() + begin_across(rows, batch) + loads + gathering(all, each(body, asks)) +
           end_across(l, rows, batch, base, end) + "}\n";
  };
  std::string out = cat(index_type(), ' ', base, " = ", first, ";\n");
  out += cat("for (; ", base, " + ", (batch - 1) * l.rows, " < ", end, "; ", base, " += ", batch * l.rows,
             ") {\n", part(false));
  return out + cat("if (", base, " < ", end, ") {\n", part(true));
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
    KILN_CHECK_THAT(!ragged, "a scan along cut vectors");
    here().text += steps_ > 0 ? scanning_steps(l, extent) : scanning(l, extent);
  } else if (rows > 1 || crosses(l)) {
    KILN_CHECK_THAT(steps_ == 1, "columns of unknown number");
    deal(rows);
    once_ = true;
    skips_ = !ragged && !crosses(l);
    here().text += steps(l, Reach::Masked);  // all threads meet where the rows come together
    once_ = skips_ = false;
    width_ = width;
    lane_ = lane;
    rows_ = 1;
  } else if (l.rows > 1) {
    here().text += tested_runs(l);
  } else if (steps_ > 0) {
    if (!ragged && !has_two_forms(l)) {
      here().text += steps(l, Reach::Guarded);
    } else if (!ragged) {
      const std::string whole = steps(l, Reach::Whole);
      seldom_ = is_block_of_all(l);
      const std::string rest = steps(l, Reach::Guarded);
      seldom_ = false;
      here().text +=
          cat("if (", extent, " == ", team_ * lanes_ * steps_, ") {\n", whole, "} else {\n", rest, "}\n");
    } else if (k_.accs.empty() && !unrolls(k_, l)) {  // two forms of a long body would take long to compile
      here().text += steps(l, Reach::Masked);
    } else {
      const std::string whole = steps(l, Reach::Whole), rest = steps(l, Reach::Ragged);
      here().text +=
          cat("if (", extent, " == ", team_ * lanes_ * steps_, ") {\n", whole, "} else {\n", rest, "}\n");
    }
  } else if (copies(l)) {
    here().text += copy(l);
  } else if (const int batch = ahead_of(l); batch > 1) {
    here().text += by_batches(l, batch);
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
  if (k_.link.empty()) kept_.clear();
  two_quotients_ = l.again;
  differs_.clear();
  quotients_.clear();
  const bool alone = gathering_.steps == 0 && lanes_ > 1 && gathers(l);
  if (alone) gathering_.steps = 1;
  open_scope(l, i);
  block(l.body);
  const std::string body = close_scope();
  two_quotients_ = false;
  return alone ? gathering(std::exchange(gathering_, {}), body) : body;
}

/// Whether a map's block that has all of its elements is worth a form without guards: between them, loads
/// would wait for each other, and each step would compute indices again.
bool CudaEmitter::has_two_forms(const LoopDecl& l) const {
  constexpr double kEnough = 32;  // bytes of a step that are in flight together anyway
  if (l.steps < 2 || !is_map()) return false;
  if (lanes_ > 1 && looks_up(l)) return true;  // for one step after the other
  if (lanes_ * bytes_a_step(l) >= kEnough) return false;
  const bool wide = std::ranges::any_of(k_.buffers, [](const BufferDecl& b) { return size_of(b.dtype) > 4; });
  return lanes_ > 1 || l.steps * bytes_a_step(l, 1) <= 4 * (wide ? kAhead : kMostAhead);
}

/// Whether the kernel reduces nothing and keeps nothing.
bool CudaEmitter::is_map() const {
  const auto keeps = [](const BufferDecl& b) { return b.role == BufferDecl::Role::Scratch; };
  return k_.accs.empty() && std::ranges::none_of(k_.buffers, keeps) &&
         std::ranges::all_of(k_.loops, [](const LoopDecl& l) { return l.kind != LoopKind::While; });
}

/// Registers for elements that a loop of known steps loads ahead. Where nothing is stored to memory between
/// loads, these are under way together anyway; a map has them in its form without guards.
int CudaEmitter::registers_ahead(const LoopDecl& l) const {
  const bool stores = std::ranges::any_of(
      l.body, [&](const Stmt& s) { return s.kind == Stmt::Kind::Store && !is_register(s.target); });
  return !stores ? 0 : !is_map() ? kAhead : has_two_forms(l) ? kMostAhead : 0;
}

/// Whether the elements of a grid item are a part of all elements as one, so that one item at most has fewer
/// than the others.
bool CudaEmitter::is_block_of_all(const LoopDecl& l) const {
  const auto divides = [&](auto& self, ExprId e) -> bool {
    bool any = pool_[e].prim == Prim::IndexDiv;
    each_operand(pool_[e], [&](ExprId o) { any = any || self(self, o); });
    return any;
  };
  return !divides(divides, l.extent);
}

/// Whether a loop of unknown length copies elements from memory to the block's, or back.
bool CudaEmitter::copies(const LoopDecl& l) const {
  const auto shared = [&](std::uint64_t b) { return k_.buffers[b].shared > 0; };
  return std::all_of(l.body.begin(), l.body.end(), [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::Store) return false;
    const ExprNode& n = pool_[s.value];
    return shared(s.target) ? n.prim == Prim::Load && !shared(n.imm) : n.prim == Prim::Load && shared(n.imm);
  });
}

/// Such a loop by several vectors of a thread, all of whose loads come first. A vector that the extent cuts,
/// which few grid items have, is one thread's.
std::string CudaEmitter::copy(const LoopDecl& l) {
  const std::string base = fresh("b"), i = cat('i', l.var);
  const char* const type = index_type();
  int capacity = 0;
  for (const BufferDecl& b : k_.buffers) capacity = std::max(capacity, static_cast<int>(b.shared));
  steps_ = std::clamp((capacity + width_ * lanes_ - 1) / (width_ * lanes_), 1, kUnrolled);
  std::string out = cat("for (", type, ' ', base, " = 0; ", base, " < ", extent_, "; ", base,
                        " += ", steps_ * width_ * lanes_, ") {\n", steps(l, Reach::Guarded, base), "}\n");
  if (lanes_ == 1) return out;
  seldom_ = true;
  const std::string rest = vectors(l, i, Reach::Ragged);
  seldom_ = false;
  return cat(out, "if (", lane_, " == 0 && ", extent_, " % ", lanes_, " > 0) {\nconst ", type, ' ', i, " = ",
             extent_, " - ", extent_, " % ", lanes_, ";\n", rest, "}\n");
}

/// Vectors of a loop of unknown length that a thread loads before it computes: few where the body is long, or
/// one has many bytes. 0: the loop is no such loop.
int CudaEmitter::ahead_of(const LoopDecl& l) const {
  const bool inner =
      std::any_of(l.body.begin(), l.body.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::Loop; });
  const double bytes = bytes_a_step(l);
  if (inner || (lanes_ == 1 && !gathers(l)) || width_ == 1 || bytes == 0) return 0;
  if (!unrolls(k_, l)) return lanes_ * bytes <= 2 * kNarrow ? 2 : 0;
  return lanes_ * bytes <= kNarrow ? 2 * kUnrolled : kUnrolled;
}

/// Such a loop: batches of whole vectors, all of whose loads come first; whole vectors one by one; the one
/// that the extent cuts.
std::string CudaEmitter::by_batches(const LoopDecl& l, int batch) {
  const std::string i = cat('i', l.var), base = fresh("b");
  const char* const type = index_type();
  const int across = width_ * lanes_;
  reach_ = Reach::Whole;
  stage_ = {depth() + 1, batch, kAhead, {}, {}, {}};
  if (gathers(l)) gathering_.steps = batch;
  const std::string body = vectors(l, i, Reach::Whole);
  const Stage all = std::exchange(stage_, {});
  const Gathering gathered = std::exchange(gathering_, {});
  const auto part = [&](bool asks) {
    const auto each = [&](const std::string& text) {
      return cat("#pragma unroll\nfor (int k = 0; k < ", batch, "; ++k) {\nconst ", type, ' ', i, " = ", base,
                 " + k * ", across, ";\n", asks ? cat("if (", i, " < ", extent_, ") {\n", text, "}\n") : text,
                 "}\n");
    };
    std::string loads;
    for (const Stage::Level& level : all.levels)
      if (!level.text.empty()) loads += each(level.text);
    return all.declarations() + loads + gathering(gathered, each(body)) + "}\n";
  };
  std::string out = cat(type, ' ', base, " = ", lane_, " * ", lanes_, ";\n");
  out += cat("for (; ", base, " + ", (batch - 1) * across + lanes_, " <= ", extent_, "; ", base,
             " += ", batch * across, ") {\n", part(false));
  if (lanes_ == 1) return cat(out, "if (", base, " < ", extent_, ") {\n", part(true));
  const auto one = [&](const std::string& text) {
    return cat("const ", type, ' ', i, " = ", base, ";\n", text, "}\n");
  };
  out += cat("#pragma unroll 1\nfor (; ", base, " + ", lanes_, " <= ", extent_, "; ", base, " += ", across,
             ") {\n", one(vectors(l, i, Reach::Whole)));
  if (l.ragged) out += cat("if (", base, " < ", extent_, ") {\n", one(vectors(l, i, Reach::Ragged)));
  return out;
}

/// Bytes that a step of a Vector loop loads a lane; of a choice one is loaded, so each counts for a part.
double CudaEmitter::bytes_a_step(const LoopDecl& l, double chosen) const {
  double bytes = 0;
  std::unordered_set<ExprId> seen;
  const auto visit = [&](auto& self, ExprId e) -> void {
    if (e == kNoExpr || !seen.insert(e).second) return;
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Load && k_.buffers[n.imm].role == BufferDecl::Role::In)
      bytes += static_cast<double>(size_of(n.type)) * (n.b == kNoExpr ? 1 : chosen);
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body) {
    if (s.kind == Stmt::Kind::Loop) continue;
    visit(visit, s.value);
    visit(visit, s.index);
  }
  return bytes;
}

/// A Vector loop of known steps, unrolled: first all loads, then the rest. `base`: of these steps of a loop
/// of unknown length, all of whose vectors are whole.
std::string CudaEmitter::steps(const LoopDecl& l, Reach reach, const std::string& base) {
  stage_ = {depth() + 1, seldom_ ? 1 : steps_, begins_chunk_ ? 1 << 10 : registers_ahead(l), {}, {}, {}};
  if (begins_chunk_) writes_out_ = &l;
  const std::string i = cat('i', l.var);
  // Where steps may be missing, a vector of each is enough: none is computed that is not there.
  if (gathers(l) && reach != Reach::Cut && (reach == Reach::Whole || lanes_ < 4)) gathering_.steps = steps_;
  const std::string body = vectors(l, i, reach);
  if (begins_chunk_) writes_out_ = nullptr;
  const Gathering gathered = std::exchange(gathering_, {});
  std::string first = width_ > 1 ? lane_ : "0";
  if (steps_ > 1) first = width_ > 1 ? cat("(k * ", width_, " + ", lane_, ')') : "k";
  if (lanes_ > 1) first += cat(" * ", lanes_);
  if (!early_.empty()) first += " - " + early_;
  if (!base.empty()) first = cat(base, " + ", first);
  const std::string there = base.empty() || lanes_ == 1 || reach == Reach::Cut
                                ? cat(i, " < ", extent_)
                                : cat(i, " + ", lanes_, " <= ", extent_);
  auto wrap = [&](const std::string& text) {
    std::string out;
    if (steps_ > 1) out += cat(unroll(), "\nfor (int k = 0; k < ", steps_, "; ++k) {\n");
    out += cat("const ", index_type(), ' ', i, " = ", first, ";\n");
    if (reach == Reach::Masked) out += cat("const int left = int(", extent_, " - ", i, ");\n");
    const bool guarded = reach == Reach::Guarded || reach == Reach::Ragged || reach == Reach::Cut;
    if (reach == Reach::Cut) out += cut_lanes(i, steps_ > 1);
    if (guarded) out += cat("if (", there, ") {\n");
    out += text;
    if (guarded) out += "}\n";
    return out + (steps_ > 1 ? "}\n" : "");
  };
  const Stage all = std::exchange(stage_, {});
  std::string staged;
  (begins_chunk_ ? held_arrays_ : staged) += all.declarations();
  for (const Stage::Level& level : all.levels)
    if (!level.text.empty()) staged += wrap(level.text);
  const std::string rest = gathering(gathered, wrap(body));
  return steps_ > 1 ? staged + rest : cat("{\n", rest, "}\n");
}

}  // namespace kiln::codegen
