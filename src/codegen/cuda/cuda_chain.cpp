// CudaEmitter: long scans in chunks (the body, link and second sections of a kernel). A warp has a chunk,
// which stays in registers between its total and its scan; kernels_templates/chain.cuh hands totals on.
//
// Invariant: the loops over a chunk's elements have the same steps in both sections, so that what the first
// one loads is what the second one reads. The buffers of totals and of what comes before them are registers.
#include "codegen/cuda/cuda_function.h"

#include "kernel/monoid.h"

#include <algorithm>
#include <utility>

namespace kiln::codegen {
namespace {

const LoopDecl& first_loop(const Kernel& k, const std::vector<Stmt>& section) {
  return k.loops[section.front().target];
}
/// Whether a warp's lanes have columns, down which each thread goes alone.
bool down_columns(const Kernel& k) {
  return first_loop(k, first_loop(k, k.link).body).body.front().kind == Stmt::Kind::Loop;
}
/// Of the link section: the loop around that over the totals before a chunk, and that loop.
const LoopDecl& around_totals(const Kernel& k) {
  const LoopDecl& grid = first_loop(k, k.link);
  return down_columns(k) ? first_loop(k, grid.body) : grid;
}
const LoopDecl& totals_loop(const Kernel& k) { return first_loop(k, around_totals(k).body); }

constexpr int kCounters = 4;  // words of 4 bytes in front of those that are told

/// Words of 4 bytes that a scan's totals of a turn take: two values of each column, or row, each 4 bytes of
/// which stand beside a mark.
std::int64_t words_of(const Kernel& k, DType type) {
  const std::int64_t values = down_columns(k) ? std::int64_t{2 * 32} * around_totals(k).lanes : 2;
  return values * (size_of(type) > 4 ? 4 : 2);
}
std::int64_t words_of(const Kernel& k) {
  std::int64_t words = 0;
  for (const Stmt& s : totals_loop(k).body) words += words_of(k, k.pool[s.value].type);
  return words;
}

}  // namespace

std::int64_t chain_counters(const Kernel& kernel, std::int64_t items) {
  if (kernel.threads.block == 0) return 0;  // no GPU's
  return kCounters + words_of(kernel) * (items / (kernel.threads.block / kernel.threads.team));
}

/// The registers that stand for a buffer of totals, or of what comes before them; empty for another.
std::string CudaEmitter::chained(std::uint64_t buffer, bool on_lane) const {
  if (k_.link.empty() || k_.buffers[buffer].role != BufferDecl::Role::Partial) return {};
  return cat(buffer_name(buffer), !down_columns(k_) ? "_" : on_lane ? "_[v]" : "_[0]");
}

/// Whether two variables are that of a chunk, or of a column, in the body and in the second section.
bool CudaEmitter::same_chunk(std::uint64_t a, std::uint64_t b) const {
  if (k_.link.empty()) return false;
  const LoopDecl &first = first_loop(k_, k_.body), &second = first_loop(k_, k_.second);
  return (a == second.var && b == first.var) ||
         (down_columns(k_) && a == first_loop(k_, second.body).var && b == first_loop(k_, first.body).var);
}

/// Turns of blocks: each warp finds the total of its item, the block what comes before them, then each warp
/// scans its item. A block takes its next turn last: others wait for the turns that were given out.
void CudaEmitter::chain() {
  KILN_CHECK_THAT(team_ == 32 && k_.threads.block > team_, "a chain that is not of warps");
  keeps_loads_ = true;
  const char* const type = index_type();
  const int warps = k_.threads.block / team_;
  const std::string items = index_text(first_loop(k_, k_.body).extent),
                    turns = cat('(', items, " / ", warps, ')'), item = fresh("n"), first = fresh("n");
  const auto part = [&](const std::vector<Stmt>& section) {
    open_scope(first_loop(k_, section), item);
    block(first_loop(k_, section).body);
    return close_scope();
  };
  begins_chunk_ = true;
  const std::string body = part(k_.body);
  begins_chunk_ = false;
  const Links link = links(first, turns);
  const std::string second = part(k_.second);
  if (!link.memory.empty())
    line(cat("alignas(16) __shared__ unsigned char totals_memory[most_bytes<", link.memory, ">()];"));
  line("unsigned int taken = 0;");
  line(cat("for (unsigned int turn; (turn = next_turn(arrivals)) < (unsigned int)", turns, "; ++taken) {"));
  line(cat("const ", type, ' ', first, " = ", type, "(turn) * ", warps, ", ", item, " = ", first, " + ", type,
           "(threadIdx.x / 32);"));
  here().text += cat(held_arrays_, link.totals, body, link.hear, second);
  line("}");
  line(cat("leave_chain(arrivals, ", turns, ", ", words_of(k_), " * ", turns, ", taken);"));
}

/// How totals are handed on, of each scan by its own words.
CudaEmitter::Links CudaEmitter::links(const std::string& first, const std::string& turns) {
  const LoopDecl &grid = first_loop(k_, k_.link), &around = around_totals(k_), &totals = totals_loop(k_);
  const bool columns = down_columns(k_);
  const int warps = k_.threads.block / team_;
  Links out;
  open_scope(grid, first);
  const std::string before = cat("(unsigned int)(", index_text(totals.extent), ") / ", warps, 'u');
  std::int64_t words = 0;
  for (std::size_t i = 0; i < totals.body.size(); ++i) {
    const AccDecl& a = k_.accs[totals.body[i].target];
    const Stmt& prefix = around.body[around.body.size() - totals.body.size() + i];
    const ExprNode& total = pool_[totals.body[i].value];
    const std::string value = cuda_type(a.type), none = start_with_type(a), member = cat("totals", i),
                      op = a.monoid == Monoid::Custom ? op_of(a) : cat("Plain<", op_of(a), ", ", value, '>'),
                      own = buffer_name(total.imm), before_it = buffer_name(prefix.target),
                      at = cat(columns ? "totals_memory, " : "", "arrivals + ", kCounters, " + ", words,
                               " * ", turns, ", turn, "),
                      array = columns ? cat('[', around.lanes, "] = {}") : std::string();
    const std::string kind = cat(columns ? "ColumnTotals<" : "RowTotals<", op, ", ", k_.threads.block, ", ",
                                 columns ? cat(around.lanes, ", ") : "", value, '>');
    out.totals += cat(kind, ' ', member, ";\n", value, ' ', own, '_', array, ";\n");
    if (columns) out.memory += cat(i > 0 ? ", " : "", kind, "::Memory");
    // All scans share the same memory: what the one before has there may still be read.
    if (i > 0) line("__syncthreads();");
    line(cat(member, ".tell(", at, own, "_, ", none, ");"));
    const std::string declared = cat(value, ' ', before_it, '_', array);
    if (columns)
      line(cat(declared, ";\n", member, ".hear(", at, before, ", ", turn_of(total.a, warps), ", ", before_it,
               "_, ", none, ");"));
    else
      line(cat("const ", declared, " = ", member, ".hear(", at, before, ", ", none, ");"));
    words += words_of(k_, a.type);
  }
  out.hear = close_scope();
  return out;
}

/// A function from a turn's place down its columns to its number, by where the link section looks for its
/// first chunk's totals.
std::string CudaEmitter::turn_of(ExprId index, int warps) {
  const LoopDecl& around = around_totals(k_);
  open_scope(around, "0");
  open_scope(totals_loop(k_), "at");
  const std::string place = index_text(index), inner = close_scope(), outer = close_scope();
  const char* const type = index_type();
  return cat("[&](unsigned int b) {\nconst ", type, " at = ", type, "(b) * ", warps, ";\n", outer, inner,
             "return (unsigned int)((", place, ") / ", warps * team_ * around.lanes, ");\n}");
}

/// A Vector loop of known steps along a scan, all of whose loads come first; those that the body section made
/// are registers.
std::string CudaEmitter::scanning_steps(const LoopDecl& l, const std::string& extent) {
  const std::string i = cat('i', l.var), at = fresh("n"), on = fresh("on");
  const char* const type = index_type();
  stage_ = {depth() + 1, steps_, 1 << 10, {}, {}, {}};
  writes_out_ = &l;
  on_ = on;
  const std::string text = vectors(l, i, early_.empty() ? Reach::Whole : Reach::Cut);
  on_.clear();
  writes_out_ = nullptr;
  const Stage all = std::exchange(stage_, {});
  const std::string before = early_.empty() ? std::string() : cat(" - ", early_),
                    other = early_.empty() ? cat(extent, " - ", lanes_) : cat('-', early_);
  const auto each = [&](const std::string& part) {
    return cat("#pragma unroll\nfor (int k = 0; k < ", steps_, "; ++k) {\nconst ", type, ' ', at, " = (k * ",
               team_, " + ", lane_, ") * ", lanes_, before, ";\nconst bool ", on, " = ", at, " < ", extent,
               ";\nconst ", type, ' ', i, " = ", on, " ? ", at, " : ", other, ";\n",
               early_.empty() ? "" : cut_lanes(i, false), part, "}\n");
  };
  std::string out = all.declarations();
  for (const Stage::Level& level : all.levels)
    if (!level.text.empty()) out += each(level.text);
  return out + each(text);
}

}  // namespace kiln::codegen
