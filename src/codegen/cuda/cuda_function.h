// Emits a Kernel as a CUDA C function.
//
// Walks the loops and writes each expression into the outermost loop that has its operands, like the LLVM
// emitter. A Vector loop becomes a loop over the vectors of a thread (`i` is a vector's first element), and
// inside it each run of stores and updates becomes a loop over the lanes `v` of one vector; what runs along
// the lanes and is aligned is loaded and stored as a whole vector.
//
// Invariant: text goes to the innermost open scope, or to an enclosing one whose loop has not been closed
// yet; so it stands before everything that may use it.
//
// The class is implemented by topic: cuda_c.cpp (the file), cuda_loops.cpp, cuda_cut.cpp, cuda_values.cpp,
// cuda_memory.cpp, cuda_together.cpp, cuda_windows.cpp, cuda_accumulators.cpp, cuda_relative.cpp,
// cuda_running.cpp, cuda_chain.cpp, cuda_across.cpp.
#pragma once

#include "codegen/cuda/cuda_expr.h"
#include "codegen/cuda/cuda_facts.h"
#include "kernel/marks.h"
#include "kernel/nouns.h"
#include "kernel/placement.h"
#include "support/check.h"

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace kiln::codegen {

using namespace kernel::nouns;
using Lanes = kernel::Placement::Lanes;

class CudaEmitter {
 public:
  CudaEmitter(const Kernel& kernel, const std::string& symbol, int instances,
              std::span<const ExprId> results = {}, bool marked = false);
  std::string run();
  /// A hook of a kernel with a main loop: the kernel's body is the hook's, `results` are the hook's. `given`:
  /// for each buffer whether it comes with calls. `name`: of its function, where hooks share theirs.
  void reads_fixed_operands(bool fixed) { fixed_ = fixed; }
  /// The result of that hook becomes a greatest or least value, or is one to which something is added.
  void combines(const kernel::Hook& hook, bool extreme);
  void spreads_columns(bool spread) { spread_ = spread; }
  std::string hook(const kernel::Hook& hook, const std::string& name, const std::vector<bool>& given);
  std::string choice_of_hooks(const kernel::Hook& hook, const std::vector<std::string>& names) const;
  const CudaPreludes& preludes() const { return facts_.preludes; }
  static std::string text_of(const CudaPreludes& preludes);
  static std::string indented(const std::string& text);
  static std::string buffer_name(const BufferDecl& decl, std::uint64_t number);

 private:
  struct HookHead {
    std::string type, parameters, arguments;
  };
  HookHead hook_head(const kernel::Hook& hook) const;
  std::vector<std::uint32_t> arrays_of(const kernel::Hook& hook, bool made) const;
  struct Scope {
    const LoopDecl* loop = nullptr;
    std::string var;  // value of its variable; of a Vector loop: on lane 0
    std::string text;
    std::unordered_map<ExprId, std::string> memo, divisors;
    std::map<std::pair<std::uint64_t, ExprId>, std::string> bases;  // addresses in buffers
    // of a While loop: its states, and what they will be
    std::vector<std::pair<std::string, std::string>> nexts;
  };
  struct AccState {
    std::string name, result;
    std::string running, before;  // inside its loop
    std::string lost;             // of a compensated sum: what rounding took from it, as many as it
    bool lanes = false;           // an array, one a lane
    bool ascending = false;       // of positions that grow from update to update
    bool gathered = false;        // its values are combined by several (Gathering)
  };
  /// What is known inside a Vector loop of the vector at hand.
  enum class Reach : std::uint8_t {
    Whole,    // all of its lanes are inside the extent
    Guarded,  // all or none
    Masked,   // any number: the accesses of the others are left out, what they compute goes nowhere
    Ragged,   // any number: the others are left out
    Cut,      // one at least, of a vector that may begin before the first or end behind the last: memory has
              // the others, and what is computed of them goes nowhere
  };
  /// Loads of all steps of a loop, made before its first step computes.
  struct Stage {
    int depth = 0, steps = 0;  // of the loop's scope; fewer than two steps: none
    int registers = 0;         // that are left for elements
    struct Array {
      ExprId load;
      std::string declaration;
    };
    std::vector<Array> arrays;  // of vectors or elements, one a step
    /// Loads that need none of the others first, then those whose addresses these give, and so on.
    struct Level {
      std::string text;
      std::unordered_map<ExprId, std::string> memo;  // of what the loads' addresses need
    };
    std::vector<Level> levels;
    std::unordered_map<ExprId, std::string> loaded;
    std::string declarations() const {
      std::string out;
      for (const Array& a : arrays) out += a.declaration;
      return out;
    }
  };

  /// Loads along a serial loop that several of its iterations have as one access.
  struct Together {
    int depth = 0;  // of the loop's scope; 0: none
    std::uint32_t var = 0;
    int together = 0;
    std::string declarations, text, after;  // what comes before their iterations, and behind them
    std::unordered_map<ExprId, std::string> memo, after_memo, loaded;
  };

  /// The array that has a load of all iterations of a loop which is written out.
  struct Kept {
    ExprId load;
    std::uint32_t var;  // of the loop
    std::string name;
  };

  /// Values that all steps of a loop give to accumulators which combine several at once (`with` in
  /// kernels_templates/reduce.cuh).
  struct Gathering {
    int steps = 0;  // 0: none
    std::vector<std::pair<std::uint32_t, std::string>> arrays;
    bool first = false;  // nothing was combined before
  };

  int depth() const { return at_.depth(); }
  Scope& here() { return scopes_.back(); }
  void line(const std::string& text) { (in_run_ ? run_text_ : here().text) += text + statement_ + "\n"; }
  std::string fresh(const char* prefix) { return cat(prefix, counter_++); }
  const char* block_index() const { return instances_ > 1 ? "block" : "blockIdx.x"; }
  const char* block_count() const { return instances_ > 1 ? "blocks" : "gridDim.x"; }
  const char* index_type() const { return k_.threads.narrow ? "int" : "int64"; }

  // ---- the file
  struct Parameter {
    std::string type, name;
    bool wide;  // 8 bytes in a table
  };
  std::vector<Parameter> parameters() const;
  std::string global() const;
  std::string head() const;
  std::string table_function() const;
  std::string assemble(const std::string& body) const;
  std::string tally() const;
  bool is_counted(std::uint64_t b) const { return k_.tally && k_.tally->indices == b; }

  // ---- values
  bool is_index(ExprId e) const { return facts_.index[e]; }
  bool varies_by_item(ExprId e) const;
  std::string constant(ExprId e, bool index) const;
  bool is_number(ExprId e) const;
  template <class F>
  std::string spell(ExprId e, F operand);
  std::string divisor(ExprId e);
  std::string keep(ExprId e, std::string text, bool in_place, std::string& into,
                   std::unordered_map<ExprId, std::string>& memo);
  std::string present(ExprId load, bool on_lane);
  std::string element(const ExprNode& n, const std::string& place, const std::string& predicate) const;
  std::string place_of(std::uint64_t buffer, ExprId index);
  void find_bases(std::span<const Stmt> list);
  std::string value(ExprId e);
  bool is_name(ExprId e) const;
  std::string lane(ExprId e);
  /// What differs between the lanes of a vector.
  struct Differs {
    bool any = false, otherwise = false;  // at all; by more than a quotient
    ExprId quotient = kNoExpr;
  };
  const Differs& differs(ExprId e);
  std::string two_valued(ExprId e);
  const char* type_of(ExprId e) const { return is_index(e) ? index_type() : cuda_type(pool_[e].type); }
  /// The same where a plain integer may stand.
  std::string index_text(ExprId e) { return pool_[e].prim == Prim::Const ? constant(e, true) : value(e); }
  std::string lane_index_text(ExprId e) { return pool_[e].prim == Prim::Const ? constant(e, true) : lane(e); }

  // ---- memory
  std::string buffer_name(std::uint64_t b) const;
  std::string scratch(std::uint64_t b, ExprId index);
  bool whole_vectors(std::uint64_t buffer, ExprId index);
  bool backwards(ExprId index);
  std::string vector_lane(ExprId index);
  std::string vector_index_text(ExprId index);
  bool masked(int depth) const;
  const char* left(int depth) const;
  std::string storing(const char* mask) const;
  std::string vector_type(DType t) const;
  bool takes_vector(ExprId load);
  std::string load_text(ExprId e, int depth);
  std::string loaded_vector(ExprId e);
  std::string chosen_text(ExprId e);
  std::string loaded_element(ExprId e);
  std::string loaded_together(ExprId e);
  bool goes_by_words(const LoopDecl& l) const, store_together(const Stmt& s);
  bool ahead(ExprId load);
  bool element_ahead(ExprId load);
  int level_of(ExprId e);
  bool looks_up(const LoopDecl& l) const;
  bool chooses_loaded(ExprId e) const;
  bool is_strip(std::span<const Stmt> list) const;
  std::size_t load_strip(std::span<const Stmt> list);
  void load_chosen(ExprId e);
  bool same_but_for(ExprId a, std::uint32_t var_of_a, ExprId b, std::uint32_t var_of_b) const;
  const std::string* loaded_before(ExprId load) const;
  void written_out(const LoopDecl& l, const std::string& extent);
  template <class F>
  void load_ahead(ExprId load, const std::string& name, const std::string& type, F text);
  void note_streamed(const ExprNode& load);
  std::int64_t vectors_bytes(DType t) const;
  std::string streams() const;
  void store(const Stmt& s);
  bool copy_beside(const Stmt& s);
  std::string stored(const Stmt& s, const std::string& x);
  bool hold_loaded(const Stmt& s);
  std::string registers() const;
  std::string shared_array(std::size_t b) const;
  bool is_register(std::uint64_t b) const {
    return k_.buffers[b].role == BufferDecl::Role::Scratch && k_.buffers[b].shared == 0;
  }
  bool fills_shared(const LoopDecl& l) const;
  bool meets(const LoopDecl& l) const;

  // ---- accumulators
  std::string acc_type(const AccDecl& a) const;
  std::string op_of(const AccDecl& a) const;
  std::string lifted(const AccDecl& a, const std::string& x) const;
  std::string shown(const AccDecl& a, const std::string& x, bool roughly = false) const;
  static std::string parts_type(const CustomMonoid& m);
  bool has_parts(const AccDecl& a) const;
  std::string start_of(const AccDecl& a) const, start_with_type(const AccDecl& a) const;
  std::string customs() const;
  bool is_relative(const CustomMonoid& m) const;
  bool is_relative(const AccDecl& a) const;
  bool shows_logarithm(const CustomMonoid& m) const;
  bool is_shown_roughly(std::uint32_t acc) const;
  bool is_any_shown_roughly(std::size_t custom) const;
  bool combines_several(std::size_t custom) const;
  bool gathers(const LoopDecl& l, std::uint32_t acc) const;
  bool gathers(const LoopDecl& l) const;
  bool gather(const Stmt& st);
  std::string gathering(const Gathering& g, const std::string& body) const;
  struct Walk {
    bool var = false, memory = false;  // a loop's variable; what memory or a running value holds
  };
  Walk walk(ExprId e, std::uint32_t var) const;
  bool ascends(ExprId index, std::uint32_t var) const;
  void begin_accs(const LoopDecl& l);
  void begin_behind(std::uint32_t acc, ExprId first);
  void update(const Stmt& st);
  void end_accs(const LoopDecl& l);
  std::string combine_lanes(const AccDecl& a, const std::string& name, int first, int count) const;

  // ---- values that come together across the threads of a part of the team
  /// A statement that stores them, and the array of what a thread has of the rows at hand.
  struct Across {
    const Stmt* statement;
    std::string name;
  };
  bool crosses(const LoopDecl& l) const, holds_across(const LoopDecl& l) const;
  int rows_across(bool in_flight, int at_once) const;
  void across(const Stmt& st);
  std::string begin_across(const std::vector<Across>& all, int batch) const;
  std::string end_across(const LoopDecl& l, const std::vector<Across>& all, int batch,
                         const std::string& base, const std::string& end);

  // ---- accumulators that are read inside their loops
  bool is_scan(std::uint32_t acc) const { return facts_.is_scan(k_, acc); }
  bool scans(const LoopDecl& l) const;
  void while_loop(const LoopDecl& l);
  void update_state(const Stmt& s);
  void scan_alone(const Stmt& st);
  void scan_step(const Stmt& st);
  std::string scanning(const LoopDecl& l, const std::string& extent);

  // ---- loops
  void block(const std::vector<Stmt>& body);
  std::string marks_of(const Stmt& s) const;
  void statements(std::span<const Stmt> list);
  void run_of(std::span<const Stmt> list);
  void end_run();
  const char* unroll() const;
  void open_scope(const LoopDecl& l, std::string var);
  std::string close_scope();
  void loop(const LoopDecl& l);
  void grid_loop(const LoopDecl& l);
  void chain();
  struct Links {
    // A turn's totals, how they are told and heard, and the kinds of memory that they take for it.
    std::string totals, hear, memory;
  };
  Links links(const std::string& first, const std::string& turns);
  std::string chained(std::uint64_t buffer, bool on_lane) const;
  bool same_chunk(std::uint64_t a, std::uint64_t b) const;
  std::string turn_of(ExprId index, int warps);
  std::string scanning_steps(const LoopDecl& l, const std::string& extent);
  void finish(const std::string& item, const std::string& items);
  void serial_loop(const LoopDecl& l, const std::string& extent);
  std::string in_batches(const LoopDecl& l, const std::string& first, const std::string& end,
                         const Stage& ahead, const std::string& body, int batch);
  std::string by_vectors(const LoopDecl& l, const std::string& first, const std::string& end,
                         const Together& loads, const Stage& ahead, const std::string& body);
  int registers_of_accs() const, steps_of_scan(const LoopDecl& l) const;
  void deal(int rows);
  void vector_loop(const LoopDecl& l, const std::string& extent);
  std::string vectors(const LoopDecl& l, const std::string& i, Reach reach);
  std::string steps(const LoopDecl& l, Reach reach, const std::string& base = {});
  bool copies(const LoopDecl& l) const;
  std::string copy(const LoopDecl& l);
  int ahead_of(const LoopDecl& l) const;
  bool finds_positions() const;
  int iterations_at_once(const LoopDecl& l, double bytes, bool scalars, bool copies);
  std::string by_batches(const LoopDecl& l, int batch);
  std::string cut_lanes(const std::string& i, bool in_steps) const;
  void cut_vectors(const LoopDecl& l, const std::string& extent);
  std::string cut_batches(const LoopDecl& l);
  std::string lanes_there() const;
  double bytes_a_step(const LoopDecl& l, double chosen = 0.25) const;
  bool is_map() const;
  int registers_ahead(const LoopDecl& l) const;
  bool has_two_forms(const LoopDecl& l) const;
  bool is_block_of_all(const LoopDecl& l) const;

  // ---- windows
  /// How a value changes from lane to lane of a vector.
  struct Along {
    enum class Kind : std::uint8_t { Same, Line, Monotone, Any } kind = Kind::Any;
    std::int64_t step = 0;  // Line: from a lane to the next; Monotone: 1 or -1
  };
  std::string tested_runs(const LoopDecl& l);
  std::string window_run(const LoopDecl& l);
  void store_run(const Stmt& s);
  std::string over_rounds(const std::string& body) const;
  std::string find_whole(const LoopDecl& l);
  Along along(ExprId e);
  Along settle(ExprId e);
  void find_windows(ExprId e);
  /// Windows of one array near each other, which are loaded once where all of them are there.
  struct Span {
    std::uint64_t buffer;
    ExprId base;  // elements from `low` on behind it, to `high` behind a run's last
    std::int64_t low = 0, high = 0;
    std::vector<ExprId> loads;
    std::string name;
  };
  std::pair<ExprId, std::int64_t> beside(ExprId index) const;
  void find_spans();
  std::string of_span(ExprId load);
  std::string enter_spans();

  // ---- state
  const Kernel& k_;
  const CudaFacts facts_;
  std::vector<ExprId> combined_;  // what a hook adds to what comes with a call, or compares with it
  kernel::Placement at_;
  const kernel::ExprPool& pool_;
  std::string symbol_;
  int instances_;
  const bool marked_;
  std::string statement_;  // marks of the statement at hand
  int team_ = 1;
  int counter_ = 0;

  std::vector<Scope> scopes_;
  std::vector<AccState> accs_;

  // Threads that share a Vector loop, and which one it is of them.
  bool fixed_ = false;   // a hook's operands keep their values while the kernel runs
  bool spread_ = false;  // a hook's vectors are pairs of columns, four apart
  int width_ = 1;
  std::string lane_ = "lane";
  // Scratch values that are elements of vectors which stay in registers anyway: how they read there.
  std::unordered_map<std::uint64_t, std::string> held_;
  std::string held_arrays_;

  // buffers accessed by whole vectors: bytes a grid item
  std::map<std::uint64_t, std::int64_t> streamed_, written_;

  // Inside a Vector loop whose serial loops are dealt to parts of the team: how many, and the thread's.
  int rows_ = 1;
  std::string row_;
  bool once_ = false;  // what is stored here is stored by the first part

  // The open Vector loop.
  int lanes_ = 1, steps_ = 0;
  std::string extent_, early_;  // the latter empty, or elements that the first vector begins early
  Reach reach_ = Reach::Whole;
  bool seldom_ = false;  // what is written here runs seldom: it is not unrolled
  bool skips_ = false;   // Masked, but no vector is cut: a thread without one goes past the loops inside
  std::string on_;       // along a scanned axis: whether this thread's vector is inside the extent
  Stage stage_;
  Together together_;
  Gathering gathering_;
  std::vector<Across> across_;            // of the innermost loop
  std::vector<Kept> kept_;                // by the loops of the vector at hand
  const LoopDecl* writes_out_ = nullptr;  // the loop that is being written out
  // Tested runs: values that are the same in all of the run at hand, in the order in which that is found out,
  // and whether the run's ends must be compared for it; the loads that are windows then; a thread's
  // iterations of a run where these are a warp apart, or 0.
  int rounds_ = 0;
  std::vector<std::pair<ExprId, bool>> settled_;
  std::unordered_set<ExprId> same_, windows_, visited_;
  std::vector<Span> spans_;
  bool in_spans_ = false;             // a run all of whose spans are there is written
  bool keeps_loads_ = false;          // loads of several iterations of a column are to be in flight together
  bool by_halves_ = false;            // a tile's words come while others are computed
  bool few_results_ = false;          // … elements are waited for
  bool copies_beside_ = false;        // vectors are on their way to shared memory
  std::size_t strip_loads_ = 0;       // of several rows of a thread, which are to be in flight together, too
  std::unordered_set<ExprId> bases_;  // what indices of several of these are a distance behind

  // A quotient along a vector's lanes: where it grows, and what is made of it behind that place.
  struct Quotient {
    std::string grows;
    std::unordered_map<ExprId, std::string> behind;
  };
  bool two_quotients_ = false;  // such have two values at most in a vector of the open loop
  std::unordered_map<ExprId, Differs> differs_;
  std::unordered_map<ExprId, Quotient> quotients_;

  bool begins_chunk_ = false;  // in the body section of a chain: what is loaded is held

  // The open run.
  bool in_run_ = false;
  std::string run_text_, before_run_, after_run_;
  std::unordered_map<ExprId, std::string> run_memo_;
};

}  // namespace kiln::codegen
