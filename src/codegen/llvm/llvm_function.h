// Emits one section of a Kernel as an LLVM function.
//
// Walks the loops and places every expression at the outermost loop that has its operands: what a row needs
// is computed once a row, what nothing varies in once a call. Inside a Vector loop varying expressions are
// vectors of the loop's lane count (LLVM splits those wider than a register), everything else is scalar.
//
// The class is implemented by topic: llvm_ir.cpp, llvm_loops.cpp, llvm_stages.cpp, llvm_guards.cpp,
// llvm_windows.cpp, llvm_pieces.cpp, llvm_parts.cpp, llvm_expressions.cpp, llvm_memory.cpp,
// llvm_prefetch.cpp, llvm_random.cpp, llvm_accumulators.cpp.
#pragma once

#include "codegen/llvm/llvm_values.h"
#include "codegen/llvm/vector_functions.h"
#include "kernel/marks.h"
#include "kernel/nouns.h"
#include "kernel/placement.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/Module.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kiln::codegen {

using namespace kernel::nouns;
using Lanes = kernel::Placement::Lanes;
using llvm::BasicBlock;
using llvm::FixedVectorType;
using llvm::Value;

using Parts = llvm::SmallVector<Value*, 2>;  // of an accumulator's value

class FunctionEmitter {
 public:
  FunctionEmitter(const Kernel& kernel, const LlvmTarget& target, llvm::Module& module,
                  const std::string& name, bool marked = false);
  void emit(const std::vector<Stmt>& body);

 private:
  struct Scope {
    const LoopDecl* loop;
    Value* index;                      // current value of its variable (a Vector loop: of lane 0)
    llvm::Instruction* preheader_end;  // where code for the enclosing scope may still be placed
    std::vector<ExprId> memoized;
    Value* active = nullptr;  // a While loop on lanes: those that go on
  };
  struct AccState {
    llvm::SmallVector<llvm::AllocaInst*, 2> parts;  // of its value; most have one
    llvm::AllocaInst* position = nullptr;
    Value* result = nullptr;
    bool reads_running = false, reads_before = false;  // inside its loop
    // either of them; on lanes `parts` are then the same in each: what the last lane hands on
    bool scan = false;
    Parts none;  // the identity, for such a scan
    Value *running = nullptr, *before = nullptr;
  };

  llvm::Type* i64() { return b_.getInt64Ty(); }
  llvm::Type* reg(DType t) { return register_type(c_, t); }
  static llvm::Type* vec_of(llvm::Type* t, int lanes) {
    return FixedVectorType::get(t, static_cast<unsigned>(lanes));
  }
  llvm::Type* vec(llvm::Type* t) { return vec_of(t, lanes_); }
  int depth() const { return at_.depth(); }

  // ---- the function
  void load_arguments();
  Value* param(std::uint64_t i);
  void promote_allocas();

  // ---- loops
  void block(const std::vector<Stmt>& body);
  void open_scope(const LoopDecl& l, Value* index, llvm::Instruction* preheader_end);
  void close_scope(const LoopDecl& l);
  void while_loop(const LoopDecl& l);
  void loop(const LoopDecl& l);
  Value* counted(const LoopDecl& l, Value* first, Value* end, Value* step,
                 llvm::function_ref<void(Value*)> body, llvm::Instruction* preheader_end = nullptr);
  Value* opaque(Value* number);
  std::size_t addresses_in(const LoopDecl& l);
  bool contains_loop(const LoopDecl& l) const;
  bool splits_tail(const LoopDecl& l);
  std::size_t body_size(const LoopDecl& l);
  void share_divider(const LoopDecl& l);
  void set_lanes(int lanes);
  void vector_loop(const LoopDecl& l);
  void lane_body(const LoopDecl& l, Value* rest, bool is_last, llvm::function_ref<void()> inside = nullptr);
  ExprId ragged_rows(const LoopDecl& l);
  Value* line_before(const LoopDecl& l, ExprId index, llvm::Instruction* before);
  void loop_from_line(const LoopDecl& l, ExprId index);
  std::vector<ExprId> chain_of(const LoopDecl& l, std::vector<ExprId>& last_reader);
  std::vector<ExprId> waists(const LoopDecl& l);
  std::vector<ExprId> waists_inside(const LoopDecl& l);
  void loop_in_stages(const LoopDecl& l, const std::vector<ExprId>& cuts);
  void loop_side_by_side(const LoopDecl& l);
  void store_transposed(const Stmt& s, std::size_t serial_depth, const std::vector<Value*>& iterations,
                        Value* length);
  void set_mask(Value* rest);
  Value* lanes_below(Value* count);

  // ---- conditions
  /// A predicate as what differs between lanes and what is equal on all of them; either may be missing. The
  /// bits are joined where they are used: a load may be placed outside the loop that asks for it.
  struct Condition {
    ExprId lanes = kNoExpr;
    llvm::SmallVector<Value*, 4> bits;
  };
  std::optional<ExprId> lanes_part(ExprId predicate);
  void add_bits(ExprId predicate, Condition& to);
  Condition condition_of(ExprId predicate);
  Value* bit_of(const Condition& on);
  Value* any_of(const Condition& on, Value* lanes);
  Value* arm(llvm::function_ref<Value*()> value);
  int loads_below(ExprId e, int& cost);

  // ---- loops inside a Vector loop (llvm_windows.cpp)
  /// An index as what is equal on all lanes and what is not, which no loop inside the Vector loop changes.
  struct LaneSplit {
    E base, lanes;
  };
  std::optional<LaneSplit> lane_split(ExprId e);
  bool is_position(ExprId e) const;
  Value* compare_split(ExprId e, const ExprNode& n);
  /// Without registers of masks: the elements that the lanes of one register read (llvm_parts.cpp).
  struct WindowPart {
    Value *first, *any, *keep;  // offset of the first from the base; whether there is one; ones if so, else 0
    Value* orders[4];           // of the elements, in each of two registers or up to four pieces
    // Of 4 and 8 bytes:
    Value *halves[2], *next, *upper,
        *on;  // lanes of the loads, bytes from one to the other, lanes of the second
    // Of 1 and 2 bytes:
    Value* starts[4];                          // of the pieces, in bytes
    Value *four, *has16, *has8, *has4, *has2;  // whether there are four, and how large two are
  };
  /// With registers of masks: the same, as pieces of adjacent memory of up to 64 bytes (llvm_pieces.cpp).
  struct WindowPieces {
    static constexpr int kMost = 4;
    Value *any, *first, *last;   // whether there is an element; offset of the first; of the last from there
    Value* starts[kMost] = {};   // of the pieces: elements behind the first
    Value* there[kMost] = {};    // whether there is such a piece
    Value* masks[kMost] = {};    // of its elements up to the last
    Value *order, *whole_order;  // of the elements in each two pieces: of the lanes, and of a whole register
    Value *left, *upper = nullptr;  // places that no piece has yet; lanes of the last two pieces
  };
  /// The elements that the lanes of a load read. Known to be in one piece or two of each register, or asked
  /// about whether they are in four.
  struct Window {
    ExprId lanes, predicate;  // the predicate's part that differs between lanes
    DType type;
    Value *fits = nullptr, *fits_four = nullptr;  // whether they are in parts; in two pieces, in four
    Value *any = nullptr, *second = nullptr;      // whether there is an element, and one in the second piece
    bool asked = false;  // the open loop's versions depend on how many pieces it fits into
    bool moved = false;  // all its pieces were found at the beginning of the function
    llvm::SmallVector<WindowPart, 4> parts;
    llvm::SmallVector<WindowPieces, 4> pieces, four;  // of each register: two, and all four
    Value *least = nullptr, *width = nullptr;  // offset of the first element; bytes from it to the last
  };
  /// How many pieces, or registers of parts, every window of the loop at hand is known to fit into.
  enum class Reach : std::uint8_t { One, Two, Unknown };
  struct WindowedLoad {
    ExprId load, predicate;
    LaneSplit split;
  };
  /// A comparison of positions in a loop inside the Vector loop: where the bound is greater than `most` (or
  /// equal, if so compared) it holds on all lanes, where it is less than `least` on none.
  struct InnerGuard {
    ExprId expression, bound;
    LaneSplit lanes;
    bool or_equal;
    Value *least = nullptr, *most = nullptr;
  };
  struct InnerLoop {
    std::vector<WindowedLoad> windows;
    std::vector<InnerGuard> guards;
    std::vector<ExprId> fixed;  // conditions that differ between lanes and do not change in the loop
    std::vector<ExprId> steps;  // comparisons that are equal on all lanes and change in the loop
    void keep_few(std::size_t body_size);
  };
  void find_fixed(ExprId condition, std::vector<ExprId>& found);
  void find_steps(ExprId condition, std::vector<ExprId>& found);
  Value* equal_lanes(const std::vector<ExprId>& conditions, std::vector<std::pair<ExprId, Value*>>& bits);
  Value* fixed(ExprId condition);
  bool is_linear(ExprId e);
  std::optional<InnerGuard> inner_guard(ExprId e, const ExprNode& n);
  void examine(const LoopDecl& l, InnerLoop& found);
  void find_reach(InnerGuard& guard);
  Value* find_bits(const LoopDecl& l, const InnerLoop& found, Value* end, llvm::Instruction* before,
                   std::vector<std::pair<ExprId, Value*>>& bits);
  bool inner_loop(const LoopDecl& l);
  void inner_body(const LoopDecl& l, const std::vector<InnerGuard>& guards);
  void unknown_loop(llvm::function_ref<void()> loop);
  void add_pieces(Window& w, Value* offsets, Value* active);
  void add_last_pieces(Window& w);
  void ask_about_four(Window& w);
  Value* piece_mask(const WindowPieces& p, int k, Value* last, std::uint32_t elements);
  void add_piece(WindowPieces& p, int k, DType type);
  bool known_at_entry(DType type, const LaneSplit& split);
  Window moved_window(DType type, const LaneSplit& split);
  void end_pieces(WindowPieces& p, std::size_t number, Value* step, DType type);
  Value* register_order(const WindowPieces& p, DType type);
  Value* load_piece(const WindowPieces& p, int k, Value* at, DType type);
  Value* permuted(Value* order, Value* piece, Value* other, DType type);
  Value* joined_registers(llvm::ArrayRef<Value*> registers, DType type);
  Value* known_window_load(const ExprNode& n, const LaneSplit& split, const Window& w, Value* bit);
  bool takes_window(const ExprNode& n, const LaneSplit& split, ExprId predicate);
  Window& window_of(const ExprNode& n, const LaneSplit& split, ExprId predicate);
  Value* window_load(const ExprNode& n, const LaneSplit& split, const Condition& on, Value* mask);
  void add_parts(Window& w, Value* offsets, Value* active);
  WindowPart wide_part(Window& w, Value* rel, Value* length, Value* active);
  WindowPart narrow_part(Window& w, Value* rel, Value* length, Value* active);
  Value* parts_load(const ExprNode& n, const LaneSplit& split, const Window& w, Value* bit);
  Value* elements_of_parts(const Window& w, DType type, llvm::function_ref<Value*(const WindowPart&)> at);
  /// A window that is the same in all vectors of a loop, found at the beginning of the function.
  struct SteadyWindow {
    ExprId stride;
    int lanes;
    Window window;
  };
  bool is_steady(DType type, ExprId e);
  const Window& steady_window(DType type, ExprId stride);
  Value* strided_load(Value* base, const Window& w, Value* bit, DType type,
                      llvm::function_ref<Value*()> otherwise);
  bool has_registers(DType type) const;
  Value* from_registers(llvm::ArrayRef<WindowPieces> pieces, Value* base, Value* bit, DType type);
  Value* wide_elements(const WindowPart& part, Value* at);
  Value* narrow_elements(const WindowPart& part, Value* at);

  // ---- guards (llvm_guards.cpp)
  /// A comparison of positions that holds on the lanes below a bound, or on those from it on.
  struct LaneBound {
    ExprId from, to;    // the bound is to - from, on lane 0
    std::int64_t more;  // and this
    bool below;
  };
  struct Guard {
    ExprId expression;
    LaneBound bound;
    Value* change;  // of the loop's variable, where its value does
  };
  std::optional<LaneBound> lane_bound(const ExprNode& n);
  bool takes_memory(const ExprNode& n) const;
  Value* from_constants(Value* v);
  Value* bound_of(const LaneBound& bound);
  std::vector<Guard> guards_of(const LoopDecl& l);
  bool guarded_loop(const LoopDecl& l);
  Value* vectors_between_changes(const LoopDecl& l, Value* i, Value* stop, llvm::Instruction* before);
  Value* find_there(const LoopDecl& l, llvm::Instruction* before);
  void add_conditions(ExprId condition, std::vector<ExprId>& to);
  bool is_there(ExprId condition) const;
  bool is_absent(ExprId condition) const;
  std::optional<ExprId> part_beside_one(const ExprNode& n);
  bool is_load(ExprId e, ExprId& to) const;
  void find_changes(const LoopDecl& l, llvm::Instruction* before);
  Value* next_change(Value* i, Value* whole, Value* first);
  Value* whole_vectors(Value* end, Value* first);
  Value* capped(Value* i, Value* end, Value* step);
  Value* uniform(ExprId e);
  Value* uniform_mask(Value* bit);
  struct Chosen {
    std::vector<DType> casts;  // around the load, outermost first, and the load's type
    bool stream = false;
    ExprId holds = kNoExpr;  // the condition of the choice at hand
  };
  Value* chosen_part(const ExprNode& n, Chosen& chosen);
  Value* chosen_address(ExprId e, Chosen& chosen);
  Value* filled_memory(ExprId e);
  Value* choose(ExprId e, const ExprNode& n);

  void forget(Scope& scope) {
    for (ExprId e : scope.memoized) scalar_[e] = vector_[e] = nullptr;
    scope.memoized.clear();
  }

  // ---- expressions
  /// Expressions made while emitting (lane strides) extend the pool; the tables follow.
  void sync() {
    scalar_.resize(pool_.size(), nullptr);
    vector_.resize(pool_.size(), nullptr);
  }
  /// While one lives, instructions have a mark: that of an expression of the kernel; what emitting adds to
  /// the pool has the one of the expression that it serves.
  class Marked {
   public:
    Marked(FunctionEmitter& emitter, kernel::Mark mark);
    ~Marked();
    Marked(const Marked&) = delete;
    Marked& operator=(const Marked&) = delete;

   private:
    FunctionEmitter& emitter_;
    const llvm::DebugLoc before_;
  };

  /// Moves the builder to where an expression of depth d belongs while `f` runs, and remembers the value
  /// there.
  template <class F>
  Value* place(int d, ExprId e, std::vector<Value*>& memo, F f) {
    if (memo[e]) return memo[e];
    Value* v;
    if (d == depth()) {
      v = f();
    } else {
      llvm::IRBuilder<>::InsertPointGuard guard(b_);
      b_.SetInsertPoint(scopes_[static_cast<std::size_t>(d) + 1].preheader_end);
      if (marked_) b_.SetCurrentDebugLocation(mark_here_);
      v = f();
    }
    memo[e] = v;
    scopes_[static_cast<std::size_t>(d)].memoized.push_back(e);
    return v;
  }
  Value* scalar(ExprId e);
  ExprId spelled_out(const ExprNode& n);
  std::optional<std::pair<ExprId, ExprId>> index_range(const ExprNode& n);
  Value* compare_lanes(ExprId e, const ExprNode& n);
  Value* vector(ExprId e);
  int registers_for(ExprId e);
  void vector_operands(const ExprNode& n, Value** values);
  Value* divide_by_known(ExprId e, const ExprNode& n);
  ExprId read_of_exponent(ExprId y) const;
  Value* split_exponent(ExprId e, const ExprNode& n);
  Value* turned_if_negative(Value* v);
  Value* extreme_of_halves(ExprId e, const ExprNode& n);
  bool is_above_floor(const ExprNode& n) const;
  Value* function_in_range(ExprId e, const ExprNode& n, const VectorFunction& f);
  Value* branch(Value* condition, llvm::function_ref<Value*()> then_value,
                llvm::function_ref<Value*()> else_value) {
    return v_.branch(condition, then_value, else_value);
  }
  Value* call(const ExprNode& n, Value* const* in);
  VectorFunction vector_function_of(const ExprNode& n, int lanes);
  int register_lanes(int lanes) const;
  std::string library_symbol(const ExprNode& n, int lanes) const;
  Value* vector_call(const ExprNode& n, Value* x, Value* y);

  // ---- random bits
  bool multiple_of(ExprId e, std::uint64_t n);
  Value* philox_run(ExprId e, const ExprNode& n);
  Value* spread(std::pair<Value*, Value*> halves, unsigned blocks, DType type);
  llvm::AllocaInst* philox_round_keys(ExprId id, Value* key);

  // ---- memory
  Value* combine(Value* a, Value* b) { return !a ? b : !b ? a : b_.CreateAnd(a, b); }
  llvm::Align element_align(DType t) { return llvm::Align(static_cast<std::uint64_t>(size_of(t))); }
  Value* from_memory(Value* v, DType type);
  Value* to_memory(Value* v, DType type);
  Value* scalar_load(const ExprNode& n, Value* at, Value* predicate);
  Value* zero_memory();
  Value* any(Value* mask);
  Value* any_lane(ExprId predicate, Value* on);
  bool masks_loads(DType type) const;
  Value* is_full();
  Value* load_first(Value* base, llvm::Type* t, DType type);
  bool masks_words() const;
  Value* load_words(Value* base, llvm::Type* t, DType type);
  void find_filled(const std::vector<Stmt>& body, const LoopDecl* lanes);
  bool fills_scratch(std::uint64_t buffer, ExprId index);
  void store_first(Value* v, Value* p, DType type);
  llvm::AllocaInst* vector_memory(llvm::Type* t);
  void copy_first(Value* from, Value* to, llvm::Type* t, DType type);
  Value* elements(Value* base, llvm::Type* t, DType type, Value* mask);
  Value* mask_at(int d) const;
  Value* pointers(std::uint64_t buffer, DType type, ExprId index, E stride);
  void prepare(ExprId index, E stride);
  Value* lane_offsets(ExprId stride);
  Value* same_element(const ExprNode& n, const Condition& on, Value* predicate);
  Value* vector_load(ExprId e, const ExprNode& n);
  Value* apart(const ExprNode& n, E stride, Value* mask, Value* bit);
  void prefetch(Value* base, std::int64_t bytes, std::int32_t ahead_param, bool backwards,
                bool written = false);
  void prefetch_line(Value* at, bool near, bool written);
  int depth_of_jump(ExprId index);
  bool is_short(const LoopDecl& l);
  Value* scalar_part(ExprId condition);
  void prefetch_jump(const ExprNode& n);
  void prefetch_jump(const ExprNode& n, const LaneSplit& split, const Window& w);
  Value* later_jump(const ExprNode& n, ExprId index, Value* first);
  void prefetch_later(const ExprNode& n, Value* base, bool backwards);
  Value* reversed(Value* v);
  Value* gather(Value* many, llvm::Type* t, DType type, Value* mask);
  Value* gather_narrow(Value* many, llvm::Type* t, DType type, Value* mask);
  void store(const Stmt& s, std::span<const Stmt> later);
  void load_before(const Stmt& s, std::span<const Stmt> later);
  void full_or_part(llvm::function_ref<void()> full_vector, llvm::function_ref<void()> part_of_it);
  void scatter(Value* v, Value* many, DType type);
  std::vector<Value*> transposed(std::vector<Value*> lines);
  Value* narrowed(Value* v);
  void stream_or_store(Value* v, Value* p, const BufferDecl& d, bool stream);

  // ---- accumulators
  Parts merge(const AccDecl& a, const Parts& x, const Parts& acc);
  Parts lift(const AccDecl& a, Value* x);
  Value* show(const AccDecl& a, const Parts& parts);
  Parts with_parts(llvm::ArrayRef<ExprId> roots, const Parts& later, const Parts& earlier);
  std::vector<std::pair<DType, std::uint64_t>> kept(const AccDecl& a) const;
  bool has_magnitudes(std::uint32_t acc) const;
  Value* greater_magnitude(Value* x, Value* acc);
  Parts load_parts(const AccState& s);
  void store_parts(const AccState& s, const Parts& parts);
  Value* better(const AccDecl& a, Value* x, Value* best);
  llvm::Type* position_type(const AccDecl& a);
  Value* positions(const AccDecl& a, ExprId index);
  void keep_better(const AccDecl& a, AccState& s, Value* x, Value* p, Value* mask);
  Value* best_position(const AccDecl& a, Value* values, Value* positions);
  llvm::AllocaInst* alloca_of(llvm::Type* t);
  void begin_accs(const LoopDecl& l);
  void update(const Stmt& st);
  void scan(const Stmt& st);
  void scan_relative(const AccDecl& a, Parts x, const Parts& acc, const Parts& none,
                     llvm::function_ref<void()> prefixes, Parts& next, Parts& running);
  Value* moved_up(Value* v, Value* fill, int d);
  Value* last_lane(Value* v);
  Value* opaque(llvm::Constant* value);
  Value* upper_half(Value* v, unsigned n);
  Value* lower_half(Value* v, unsigned n);
  void end_accs(const LoopDecl& l);

  // ---- state
  const Kernel& k_;
  kernel::Placement at_;
  kernel::ExprPool& pool_;
  const LlvmTarget& target_;
  llvm::Module& module_;
  llvm::LLVMContext& c_;
  llvm::IRBuilder<> b_;
  ValueBuilder v_;
  const bool marked_;
  llvm::DebugLoc mark_here_;
  llvm::Function* fn_ = nullptr;
  BasicBlock* entry_ = nullptr;
  Value *params_ = nullptr, *slots_ = nullptr;
  std::vector<Value*> buffers_;
  llvm::GlobalVariable* zero_ = nullptr;
  std::vector<llvm::AllocaInst*> allocas_;
  struct Filled {
    ExprId extent = kNoExpr;  // of the Vector loops that write a scratch buffer at their lanes
    bool otherwise = false;   // something else writes it, too
  };
  std::vector<Filled> filled_;  // by buffer; empty: not asked yet

  std::vector<Scope> scopes_;
  llvm::DenseMap<llvm::Constant*, llvm::GlobalVariable*> runs_;  // of equal numbers (from_constants)
  std::vector<Value*> scalar_, vector_;
  std::vector<AccState> accs_;

  int lanes_ = 1;
  Value *mask_ = nullptr, *remaining_ = nullptr;
  bool is_last_ = false;  // with a mask: the vector at hand is the last, which is not full
  // In a loop that begins where a line does, before its first iteration (or there):
  ExprId from_line_ = kNoExpr;   // where its stores are
  Value* early_ = nullptr;       // with a mask: the iterations of the vector at hand before the first
  std::vector<Window> windows_;  // of the open Vector loop
  std::deque<SteadyWindow> steady_windows_;
  Reach reach_ = Reach::Unknown;
  llvm::Instruction* unknown_at_ = nullptr;  // before the loop of windows that are not known to fit
  bool examines_ = false;                    // an inner loop, of which nothing is emitted yet
  struct AnyLane {
    ExprId condition;
    Value* bit;
    std::size_t depth;  // of the inner loop before which the bit is found, and in which it stays
  };
  std::vector<AnyLane> any_lane_;  // of the open Vector loop: conditions outside inner loops
  // In the body without masks of a loop with guards, or in that of a loop inside a Vector loop:
  std::vector<Guard> guards_;
  std::vector<std::pair<ExprId, Value*>> uniform_;  // conditions that are equal on all lanes
  std::vector<std::pair<ExprId, Value*>> fixed_;    // those that the inner loop does not change
  llvm::Instruction* uniform_at_ = nullptr;         // where such are computed; null: where they are needed
  std::vector<ExprId> there_;                       // conditions of a loop's loads, …
  std::vector<ExprId> absent_;                      // … such that do not hold there, …
  std::vector<std::pair<ExprId, ExprId>> either_;   // … pairs of which one holds, …
  bool knows_there_ = false;                        // … and whether that is so in its body at hand
  std::vector<std::pair<ExprId, Value*>> begins_;   // indices of such pairs' loads in the first vector
  std::vector<std::pair<ExprId, Value*>> lane_offsets_;
  std::vector<std::pair<ExprId, llvm::AllocaInst*>> round_keys_;
  struct EqualLanes {
    ExprId value;
    int lanes;
    Value* memory;
  };
  std::vector<EqualLanes> equal_lanes_;  // vectors of one number in memory
  std::vector<std::uint8_t> registers_;  // registers_for() of expressions; 0: not found yet
};

}  // namespace kiln::codegen
