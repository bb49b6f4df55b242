// Walks a Kernel's loops and places every expression at the outermost loop that has its operands: what a row needs is
// computed once a row, what nothing varies in once a call. Inside a Vector loop varying expressions are vectors of the
// loop's lane count (LLVM splits those wider than a register), everything else is scalar.
//
// Tails: a small vector body is emitted twice (full, then masked); a large one once, always masked, because compile
// time grows with emitted instructions and an all-true mask costs little.
#include "codegen/llvm_ir.h"

#include "codegen/legalize_vector.h"
#include "codegen/vector_functions.h"
#include "codegen/vector_math.h"
#include "kernel/monoid.h"
#include "support/check.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

#include <algorithm>
#include <optional>

namespace kiln::codegen {
namespace {

using kernel::AccDecl;
using kernel::BufferDecl;
using kernel::E;
using kernel::ExprId;
using kernel::ExprNode;
using kernel::Kernel;
using kernel::kNoExpr;
using kernel::LoopDecl;
using kernel::LoopKind;
using kernel::Monoid;
using kernel::Prim;
using kernel::Stmt;
using llvm::BasicBlock;
using llvm::FixedVectorType;
using llvm::Value;

constexpr std::uint64_t kPrefetchBytes = 2048;
constexpr std::size_t kTwoBodies = 70;  // vector primitives up to which full and masked bodies are both emitted

class FunctionEmitter {
 public:
  FunctionEmitter(const Kernel& kernel, const LlvmTarget& target, llvm::Module& module, const std::string& name)
      : k_(kernel), pool_(kernel.pool), target_(target), module_(module), c_(module.getContext()), b_(c_), v_(b_, target) {
    llvm::Type* ptr = llvm::PointerType::getUnqual(c_);
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, i64(), i64(), ptr}, false);
    fn_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    fn_->addFnAttr(llvm::Attribute::NoUnwind);
    for (unsigned i : {0u, 3u}) fn_->addParamAttr(i, llvm::Attribute::NoAlias);
    fn_->addFnAttr("prefer-vector-width", std::to_string(target.vector_bytes * 8));
    fn_->addFnAttr("min-legal-vector-width", std::to_string(target.vector_bytes * 8));
  }

  void emit(const std::vector<Stmt>& body) {
    entry_ = BasicBlock::Create(c_, "entry", fn_);
    BasicBlock* start = BasicBlock::Create(c_, "start", fn_);
    b_.SetInsertPoint(entry_);
    b_.CreateBr(start);
    b_.SetInsertPoint(start);
    scopes_.push_back({nullptr, nullptr, nullptr, {}});
    load_arguments();
    block(body);
    b_.CreateRetVoid();
    promote_allocas();
  }

 private:
  struct Scope {
    const LoopDecl* loop;
    Value* index;                      // current value of its variable (a Vector loop: of lane 0)
    llvm::Instruction* preheader_end;  // where code for the enclosing scope may still be placed
    std::vector<ExprId> memoized;
    Value* active = nullptr;           // a While loop on lanes: those that go on
  };
  struct AccState {
    llvm::AllocaInst *value = nullptr, *position = nullptr;
    bool vector = false;      // lanes side by side
    bool horizontal = false;  // combined over lanes when its loop ends
    Value *result = nullptr;
    int depth = 0;            // scope that sees the result
    bool scan = false;        // its values are read inside its loop; on lanes `value` is then the same in each: what the
                              // last lane hands on
    Value *none = nullptr;    // the identity, for such a scan
    Value *running = nullptr, *before = nullptr;
    int update_depth = 0;     // scope that sees these
  };

  llvm::Type* i64() { return b_.getInt64Ty(); }
  llvm::Type* reg(DType t) { return register_type(c_, t); }
  static llvm::Type* vec_of(llvm::Type* t, int lanes) { return FixedVectorType::get(t, static_cast<unsigned>(lanes)); }
  llvm::Type* vec(llvm::Type* t) { return vec_of(t, lanes_); }
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }

  void load_arguments() {
    llvm::Type* ptr = llvm::PointerType::getUnqual(c_);
    scalar_.assign(pool_.size(), nullptr);
    vector_.assign(pool_.size(), nullptr);
    varying_.assign(pool_.size(), -1);
    depth_.assign(pool_.size(), -1);
    accs_.resize(k_.accs.size());
    for (ExprId e = 0; e < pool_.size(); ++e)
      if (pool_[e].prim == Prim::Running || pool_[e].prim == Prim::Before) accs_[pool_[e].imm].scan = true;
    var_scope_.assign(k_.n_vars, -1);
    Value* frame = fn_->getArg(0);
    auto field = [&](unsigned i) {
      return b_.CreateAlignedLoad(ptr, b_.CreateConstGEP1_32(ptr, frame, i), llvm::Align(8));
    };
    Value* pointers = field(0);
    params_ = field(1);
    slots_ = field(2);
    for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
      const BufferDecl& d = k_.buffers[i];
      if (d.role == BufferDecl::Role::Scratch) {
        buffers_.push_back(b_.CreateGEP(b_.getInt8Ty(), fn_->getArg(3), param(d.offset_param)));
        continue;
      }
      buffers_.push_back(b_.CreateAlignedLoad(ptr, b_.CreateConstGEP1_32(ptr, pointers, static_cast<unsigned>(i)),
                                              llvm::Align(8), "buf" + std::to_string(i)));
    }
  }

  Value* param(std::uint64_t i) {
    return b_.CreateAlignedLoad(i64(), b_.CreateConstGEP1_64(i64(), params_, i), llvm::Align(8), "p" + std::to_string(i));
  }

  // ---- placement -----------------------------------------------------------------------------------------------

  /// Expressions made while emitting (lane strides) extend the pool; the tables follow.
  void sync() {
    scalar_.resize(pool_.size(), nullptr);
    vector_.resize(pool_.size(), nullptr);
    varying_.resize(pool_.size(), -1);
    depth_.resize(pool_.size(), -1);
  }

  template <class F>
  void each_operand(const ExprNode& n, F f) {
    for (ExprId o : {n.a, n.b, n.c})
      if (o != kNoExpr) f(o);
  }

  int depth_of(ExprId e) {
    if (depth_[e] >= 0) return depth_[e];
    const ExprNode& n = pool_[e];
    int d = 0;
    if (n.prim == Prim::Var)
      d = var_scope_[n.imm];
    else if (n.prim == Prim::Acc)
      d = accs_[n.imm].depth;
    else if (n.prim == Prim::Running || n.prim == Prim::Before)
      d = accs_[n.imm].update_depth;
    else
      each_operand(n, [&](ExprId o) { d = std::max(d, depth_of(o)); });
    KILN_CHECK_THAT(d >= 0, "expression used outside its loop");
    return depth_[e] = d;
  }

  bool varying(ExprId e) {
    if (!vector_scope_) return false;
    if (varying_[e] >= 0) return varying_[e];
    const ExprNode& n = pool_[e];
    bool v = false;
    if (n.prim == Prim::Var)
      v = static_cast<int>(var_scope_[n.imm]) == vector_scope_;
    else if (n.prim == Prim::Acc)
      v = accs_[n.imm].vector && !accs_[n.imm].horizontal;
    else if (n.prim == Prim::Running || n.prim == Prim::Before)
      v = accs_[n.imm].vector || accs_[n.imm].horizontal;
    else
      each_operand(n, [&](ExprId o) { v |= varying(o); });
    varying_[e] = v;
    return v;
  }

  /// Moves the builder to where an expression of depth d belongs while `f` runs, and remembers the value there.
  template <class F>
  Value* place(int d, ExprId e, std::vector<Value*>& memo, F f) {
    if (memo[e]) return memo[e];
    Value* v;
    if (d == depth()) {
      v = f();
    } else {
      llvm::IRBuilder<>::InsertPointGuard guard(b_);
      b_.SetInsertPoint(scopes_[static_cast<std::size_t>(d) + 1].preheader_end);
      v = f();
    }
    memo[e] = v;
    scopes_[static_cast<std::size_t>(d)].memoized.push_back(e);
    return v;
  }

  // ---- expressions -----------------------------------------------------------------------------------------------

  /// The value on one lane: for a varying index, that of lane 0.
  Value* scalar(ExprId e) {
    sync();
    if (scalar_[e]) return scalar_[e];
    const ExprNode n = pool_[e];
    if (n.prim == Prim::Const) return constant_of(c_, n.type, n.imm);
    if (n.prim == Prim::Var) return scopes_[static_cast<std::size_t>(var_scope_[n.imm])].index;
    if (n.prim == Prim::Acc) return accs_[n.imm].result;
    if (const ExprId same = spelled_out(n); same != kNoExpr) return scalar(same);
    if (n.prim == Prim::Running) return accs_[n.imm].running;
    if (n.prim == Prim::Before) return accs_[n.imm].before;
    // Operands first: each is placed at its own depth.
    Value* in[3] = {};
    int i = 0;
    if (n.prim != Prim::Load) each_operand(n, [&](ExprId o) { in[i++] = scalar(o); });
    Value* at = n.prim == Prim::Load ? scalar(n.a) : nullptr;
    Value* predicate = n.prim == Prim::Load && n.b != kNoExpr ? scalar(n.b) : nullptr;
    return place(depth_of(e), e, scalar_, [&]() -> Value* {
      switch (n.prim) {
        case Prim::Param: return param(n.imm);
        case Prim::Slot: {
          Value* p = b_.CreateConstGEP1_64(i64(), slots_, n.imm);
          return from_memory(b_.CreateAlignedLoad(memory_type(c_, n.type), p, llvm::Align(8)), n.type);
        }
        case Prim::Load: return scalar_load(n, at, predicate);
        case Prim::Call1:
        case Prim::Call2: return call(n, in);
        default: return v_.compute(n.prim, n.type, pool_[n.prim == Prim::Select ? n.b : n.a].type, in[0], in[1], in[2]);
      }
    });
  }

  /// The same value in primitives that have instructions, or kNoExpr when `n` has one.
  ExprId spelled_out(const ExprNode& n) {
    if (n.prim == Prim::FromIndex) return n.a;
    if (n.prim != Prim::IndexDiv) return kNoExpr;
    // By a reciprocal: (x + 1/2)/d is at least 1/(2d) away from every integer, which is more than the product's
    // rounding error.
    const E x{&pool_, n.a}, d{&pool_, n.b};
    const E reciprocal = x.lit(DType::Float64, 1.0) / kernel::cast(d, DType::Float64);
    return kernel::cast_in_range((kernel::cast(x, DType::Float64) + 0.5) * reciprocal, DType::Int64).id;
  }

  /// The values on all lanes of the current Vector loop.
  Value* vector(ExprId e) {
    sync();
    if (vector_[e]) return vector_[e];
    const ExprNode n = pool_[e];
    const auto count = llvm::ElementCount::getFixed(static_cast<unsigned>(lanes_));
    if (!varying(e)) {
      Value* s = scalar(e);
      if (auto* constant = llvm::dyn_cast<llvm::Constant>(s)) return llvm::ConstantVector::getSplat(count, constant);
      return place(depth_of(e), e, vector_, [&] { return b_.CreateVectorSplat(count, s); });
    }
    if (n.prim == Prim::Acc) return accs_[n.imm].result;
    if (const ExprId same = spelled_out(n); same != kNoExpr) return vector(same);
    if (n.prim == Prim::Running) return accs_[n.imm].running;
    if (n.prim == Prim::Before) return accs_[n.imm].before;
    if (n.prim == Prim::Var) {
      return place(depth_of(e), e, vector_, [&] {
        llvm::SmallVector<llvm::Constant*, 64> steps;
        for (int l = 0; l < lanes_; ++l) steps.push_back(b_.getInt64(static_cast<std::uint64_t>(l)));
        return b_.CreateAdd(b_.CreateVectorSplat(count, scalar(e)), llvm::ConstantVector::get(steps));
      });
    }
    if (n.prim == Prim::Load) return vector_load(e, n);
    if (n.prim == Prim::Div && n.type == DType::Float32 && target_.fma && lanes_ >= 8 && !varying(n.b))
      return divide_by_uniform(e, n);
    if (n.prim == Prim::Philox)
      if (Value* shared = philox_run(e, n)) return shared;
    if (const E legal = legalize_vector(pool_, e, n.b == kNoExpr || !varying(n.b))) return vector(legal.id);
    // Without the instruction each Fma would be a call too.
    if ((n.prim == Prim::Call1 || n.prim == Prim::Call2) && target_.fma && library_symbol(n).empty())
      if (const VectorFunction f = vector_function(static_cast<kernel::MathFn>(n.imm), {&pool_, n.a}, {&pool_, n.b}); f.value)
        return f.in_range ? function_in_range(e, n, f) : vector(f.value.id);
    Value* in[3] = {};
    int i = 0;
    each_operand(n, [&](ExprId o) { in[i++] = vector(o); });
    return place(depth_of(e), e, vector_, [&]() -> Value* {
      if (n.prim == Prim::Call1 || n.prim == Prim::Call2) return call(n, in);
      return v_.compute(n.prim, n.type, pool_[n.prim == Prim::Select ? n.b : n.a].type, in[0], in[1], in[2]);
    });
  }

  /// x / d with one d for all lanes: q = x·r with r = 1/d, corrected by its remainder. That is the rounded quotient
  /// (Markstein, "IA-64 and Elementary Functions", 2000, theorem 8.4) as long as d and r are normal numbers, which is
  /// asked once where d is computed; other divisors take the divider, which needs five times as long. An infinite or
  /// NaN q is the quotient already.
  Value* divide_by_uniform(ExprId e, const ExprNode& n) {
    const E d{&pool_, n.b};
    const E r = d.lit(1.0) / d;
    const E magnitude = kernel::abs(d);
    const E normal = (magnitude >= 0x1p-125) & (magnitude <= 0x1p125);
    Value* x = vector(n.a);
    Value* divisor = vector(d.id);
    Value* reciprocal = vector(r.id);
    Value* fast = scalar(normal.id);
    return place(depth_of(e), e, vector_, [&]() -> Value* {
      if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(fast); constant && constant->isZero())
        return b_.CreateFDiv(x, divisor);
      auto corrected = [&] {
        Value* q = b_.CreateFMul(x, reciprocal);
        Value* rest = v_.compute(Prim::Fma, n.type, n.type, b_.CreateFNeg(q), divisor, x);
        Value* better = v_.compute(Prim::Fma, n.type, n.type, rest, reciprocal, q);
        return b_.CreateSelect(b_.CreateFCmpORD(better, better), better, q);
      };
      if (llvm::isa<llvm::ConstantInt>(fast)) return corrected();
      return branch(fast, corrected, [&] { return b_.CreateFDiv(x, divisor); });
    });
  }

  /// f where it holds on all lanes, else the function itself lane by lane.
  Value* function_in_range(ExprId e, const ExprNode& n, const VectorFunction& f) {
    Value* const in[] = {vector(n.a), n.prim == Prim::Call2 ? vector(n.b) : nullptr};
    Value* fast = vector(f.value.id);
    Value* holds = vector(f.in_range.id);
    return place(depth_of(e), e, vector_, [&] {
      return branch(b_.CreateAndReduce(holds), [&] { return fast; }, [&] { return call(n, in); });
    });
  }

  /// One of two values of equal type, each computed on its own branch.
  template <class Then, class Else>
  Value* branch(Value* condition, Then&& then_value, Else&& else_value) {
    // The builder may stand at the end of an open block or before a loop's branch: split there.
    llvm::Instruction *then_end, *else_end;
    llvm::Instruction* at = b_.GetInsertPoint() == b_.GetInsertBlock()->end() ? b_.CreateUnreachable() : &*b_.GetInsertPoint();
    const bool open = llvm::isa<llvm::UnreachableInst>(at);
    llvm::SplitBlockAndInsertIfThenElse(condition, at->getIterator(), &then_end, &else_end);
    b_.SetInsertPoint(then_end);
    Value* first = then_value();
    b_.SetInsertPoint(else_end);
    Value* second = else_value();
    BasicBlock* joined = at->getParent();
    b_.SetInsertPoint(at);
    llvm::PHINode* out = b_.CreatePHI(first->getType(), 2);
    out->addIncoming(first, then_end->getParent());
    out->addIncoming(second, else_end->getParent());
    if (open) {
      at->eraseFromParent();
      b_.SetInsertPoint(joined);
    }
    return out;
  }

  // ---- random bits -------------------------------------------------------------------------------------------------

  /// Whether an index is a multiple of n (a power of two) on lane 0, whatever the sizes.
  bool multiple_of(ExprId e, std::uint64_t n) {
    const ExprNode x = pool_[e];
    switch (x.prim) {
      case Prim::Const: return x.imm % n == 0;
      case Prim::Var: return varying(e) && static_cast<std::uint64_t>(lanes_) % n == 0;
      case Prim::Mul: return multiple_of(x.a, n) || multiple_of(x.b, n);
      case Prim::Add:
      case Prim::Sub: return multiple_of(x.a, n) && multiple_of(x.b, n);
      default: return false;
    }
  }

  /// Lanes with successive indices share blocks: a block is made once and its words are spread over the lanes. Null
  /// where the indices do not follow one another. Lanes that begin inside a block take in one block more.
  Value* philox_run(ExprId e, const ExprNode& n) {
    ExprNode index = pool_[n.a];
    if (index.prim == Prim::Cast && pool_[index.a].prim == Prim::FromIndex) index.a = pool_[index.a].a;
    if (index.prim != Prim::Cast || pool_[index.a].type != DType::Int64 || varying(n.b)) return nullptr;
    const E stride = lane_stride(index.a);
    sync();
    const int per_block = 16 / static_cast<int>(size_of(n.type));
    if (known(stride) != 1 || lanes_ % per_block != 0) return nullptr;
    Value* first = scalar(index.a);
    Value* key = scalar(n.b);
    llvm::AllocaInst* round_keys = philox_round_keys(n.b, key);
    const bool aligned = multiple_of(index.a, static_cast<std::uint64_t>(per_block));
    return place(depth_of(e), e, vector_, [&]() -> Value* {
      const auto blocks = static_cast<unsigned>(lanes_ / per_block);
      Value* block = b_.CreateLShr(first, per_block == 4 ? 2 : 1);
      auto round_key = [&](unsigned copies) {
        return [&, copies](int round, int half) -> Value* {
          if (!round_keys) return b_.CreateVectorSplat(copies, v_.philox_key(key, round, half));
          Value* at = b_.CreateConstGEP1_32(i64(), round_keys, static_cast<unsigned>(2 * round + half));
          return b_.CreateVectorSplat(copies, b_.CreateAlignedLoad(i64(), at, llvm::Align(8)));
        };
      };
      llvm::SmallVector<llvm::Constant*, 64> steps;
      for (unsigned l = 0; l < blocks; ++l) steps.push_back(b_.getInt64(l));
      const auto own = v_.philox_pairs(v_.philox_block(
          b_.CreateAdd(b_.CreateVectorSplat(blocks, block), llvm::ConstantVector::get(steps)), round_key(blocks)));
      Value* words = spread(own, blocks, n.type);
      if (aligned) return words;
      Value* last = b_.CreateAdd(block, b_.getInt64(blocks));
      const auto more = v_.philox_pairs(v_.philox_block(b_.CreateVectorSplat(1, last), round_key(1)));
      const auto lanes = static_cast<unsigned>(lanes_), block_lanes = static_cast<unsigned>(per_block);
      Value* next = b_.CreateShuffleVector(spread(more, 1, n.type),
                                           llvm::createSequentialMask(0, block_lanes, lanes - block_lanes));
      Value* within = b_.CreateAnd(first, b_.getInt64(static_cast<std::uint64_t>(per_block - 1)));
      Value* out = words;
      for (unsigned skip = 1; skip < block_lanes; ++skip) {
        Value* moved = b_.CreateShuffleVector(words, next, llvm::createSequentialMask(skip, lanes, 0));
        out = b_.CreateSelect(b_.CreateICmpEQ(within, b_.getInt64(skip)), moved, out);
      }
      return out;
    });
  }

  /// Blocks as successive words: their halves interleaved.
  Value* spread(std::pair<Value*, Value*> halves, unsigned blocks, DType type) {
    Value* all = b_.CreateShuffleVector(halves.first, halves.second, llvm::createInterleaveMask(blocks, 2));
    return b_.CreateBitCast(all, vec_of(reg(type), static_cast<int>(blocks) * 16 / static_cast<int>(size_of(type))));
  }

  /// The 20 round keys, once a call, in memory: read from there they cost the loop no register. Null for a key that
  /// changes inside the function.
  llvm::AllocaInst* philox_round_keys(ExprId id, Value* key) {
    if (depth_of(id) != 0) return nullptr;
    for (auto& [known_id, memory] : round_keys_)
      if (known_id == id) return memory;
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(entry_, entry_->begin());
    llvm::AllocaInst* memory = b_.CreateAlloca(llvm::ArrayType::get(i64(), 20));
    b_.SetInsertPoint(scopes_[1].preheader_end);
    for (int i = 0; i < 20; ++i)
      b_.CreateAlignedStore(v_.philox_key(key, i / 2, i % 2),
                            b_.CreateConstGEP1_32(i64(), memory, static_cast<unsigned>(i)), llvm::Align(8));
    round_keys_.emplace_back(id, memory);
    return memory;
  }

  Value* call(const ExprNode& n, Value* const* in) {
    llvm::Type* t = reg(n.type);
    const bool two = n.prim == Prim::Call2;
    auto* type = two ? llvm::FunctionType::get(t, {t, t}, false) : llvm::FunctionType::get(t, {t}, false);
    llvm::FunctionCallee fn = module_.getOrInsertFunction(kernel::symbol(static_cast<kernel::MathFn>(n.imm)), type);
    auto one = [&](Value* a, Value* b) {
      return two ? b_.CreateCall(fn, {a, b}) : b_.CreateCall(fn, {a});
    };
    if (!in[0]->getType()->isVectorTy()) return one(in[0], in[1]);
    if (Value* whole = vector_call(n, in[0], two ? in[1] : nullptr)) return whole;
    Value* out = llvm::PoisonValue::get(vec(t));
    for (int l = 0; l < lanes_; ++l) {
      const auto lane = static_cast<std::uint64_t>(l);
      out = b_.CreateInsertElement(
          out, one(b_.CreateExtractElement(in[0], lane), two ? b_.CreateExtractElement(in[1], lane) : nullptr), lane);
    }
    return out;
  }

  /// Float64 lanes of a register, and a function's symbol in the target's library for so many; empty where it has none.
  int register_lanes() const { return std::min(lanes_, target_.vector_bytes / 8); }
  std::string library_symbol(const ExprNode& n) const {
    return target_.vector_math ? vector_symbol(static_cast<kernel::MathFn>(n.imm), register_lanes()) : std::string();
  }

  /// A Float64 function of whole registers, where the target's library has it.
  Value* vector_call(const ExprNode& n, Value* x, Value* y) {
    const int width = register_lanes();
    const std::string name = library_symbol(n);
    if (name.empty()) return nullptr;
    llvm::Type* t = FixedVectorType::get(b_.getDoubleTy(), static_cast<unsigned>(width));
    auto* type = y ? llvm::FunctionType::get(t, {t, t}, false) : llvm::FunctionType::get(t, {t}, false);
    const llvm::FunctionCallee callee = module_.getOrInsertFunction(name, type);
    llvm::SmallVector<Value*, 8> parts;
    for (int first = 0; first < lanes_; first += width) {
      llvm::SmallVector<Value*, 2> args;
      for (Value* v : {x, y})
        if (v)
          args.push_back(width == lanes_ ? v : b_.CreateShuffleVector(v, llvm::createSequentialMask(first, width, 0)));
      parts.push_back(b_.CreateCall(callee, args));
    }
    return llvm::concatenateVectors(b_, parts);
  }

  Value* from_memory(Value* v, DType type) {
    return is_bool(type) ? b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType())) : v;
  }
  Value* to_memory(Value* v, DType type) {
    if (!is_bool(type)) return v;
    llvm::Type* i8 = b_.getInt8Ty();
    return b_.CreateZExt(v, v->getType()->isVectorTy() ? vec(i8) : i8);
  }

  Value* scalar_load(const ExprNode& n, Value* at, Value* predicate) {
    llvm::Type* t = memory_type(c_, n.type);
    Value* p = b_.CreateGEP(t, buffers_[n.imm], at);
    if (predicate) p = b_.CreateSelect(predicate, p, zero_memory());
    return from_memory(b_.CreateAlignedLoad(t, p, element_align(n.type)), n.type);
  }

  llvm::Align element_align(DType t) { return llvm::Align(static_cast<std::uint64_t>(size_of(t))); }

  /// Eight zero bytes: what lanes that may not touch memory read instead.
  Value* zero_memory() {
    if (!zero_) {
      zero_ = new llvm::GlobalVariable(module_, i64(), true, llvm::GlobalValue::PrivateLinkage, b_.getInt64(0));
      zero_->setAlignment(llvm::Align(8));
    }
    return zero_;
  }

  // ---- vector memory -----------------------------------------------------------------------------------------------

  /// d(index)/d(lane) as an expression, or none when the index is not affine in the vector variable.
  E lane_stride(ExprId e) {
    const ExprNode n = pool_[e];
    auto konst = [&](double v) { return kernel::constant(pool_, DType::Int64, v); };
    if (!varying(e)) return konst(0);
    if (n.prim == Prim::Var) return konst(1);
    if (n.type != DType::Int64) return {};
    auto zero = [](E x) { return x.node().prim == Prim::Const && x.node().imm == 0; };
    if (n.prim == Prim::Neg) {
      E a = lane_stride(n.a);
      return a ? -a : E{};
    }
    if (n.prim == Prim::Add || n.prim == Prim::Sub) {
      E a = lane_stride(n.a), b = lane_stride(n.b);
      sync();
      if (!a || !b) return {};
      if (zero(b)) return a;
      if (zero(a)) return n.prim == Prim::Add ? b : -b;
      return n.prim == Prim::Add ? a + b : a - b;
    }
    if (n.prim == Prim::Mul) {
      for (auto [x, k] : {std::pair{n.a, n.b}, std::pair{n.b, n.a}}) {
        if (varying(k)) continue;
        E s = lane_stride(x);
        sync();
        if (!s) return {};
        if (s.node().prim == Prim::Const && s.node().imm == 1) return {&pool_, k};
        return s * E{&pool_, k};
      }
    }
    return {};
  }

  static std::optional<std::int64_t> known(E stride) {
    if (!stride || stride.node().prim != Prim::Const) return std::nullopt;
    return static_cast<std::int64_t>(stride.node().imm);
  }

  /// The lanes that are on for code of scope d.
  Value* mask_at(int d) const {
    for (int k = d; k > vector_scope_; --k)
      if (Value* active = scopes_[static_cast<std::size_t>(k)].active) return active;
    return mask_;
  }

  Value* combine(Value* a, Value* b) { return !a ? b : !b ? a : b_.CreateAnd(a, b); }

  /// Addresses of all lanes. The operands were evaluated by `prepare`, so this may run at any deeper place.
  Value* pointers(std::uint64_t buffer, DType type, ExprId index, E stride) {
    llvm::Type* t = memory_type(c_, type);
    if (!stride) return b_.CreateGEP(t, buffers_[buffer], vector(index));
    Value* base = b_.CreateGEP(t, buffers_[buffer], scalar(index));
    return b_.CreateGEP(t, base, lane_offsets(stride.id));
  }
  void prepare(ExprId index, E stride) {
    if (!stride) {
      vector(index);
    } else {
      scalar(index);
      scalar(stride.id);
    }
  }

  /// stride · (0, 1, 2, …), outside the vector loop where possible.
  Value* lane_offsets(ExprId stride) {
    for (auto& [id, value] : lane_offsets_)
      if (id == stride) return value;
    Value* s = scalar(stride);
    auto make = [&] {
      llvm::SmallVector<llvm::Constant*, 64> steps;
      for (int l = 0; l < lanes_; ++l) steps.push_back(b_.getInt64(static_cast<std::uint64_t>(l)));
      const auto count = llvm::ElementCount::getFixed(static_cast<unsigned>(lanes_));
      return b_.CreateMul(b_.CreateVectorSplat(count, s), llvm::ConstantVector::get(steps));
    };
    if (depth_of(stride) >= vector_scope_) return make();
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(scopes_[static_cast<std::size_t>(vector_scope_)].preheader_end);
    lane_offsets_.emplace_back(stride, make());
    return lane_offsets_.back().second;
  }

  Value* vector_load(ExprId e, const ExprNode& n) {
    llvm::Type* t = memory_type(c_, n.type);
    Value* predicate = n.b == kNoExpr ? nullptr : vector(n.b);
    const E stride = lane_stride(n.a);
    sync();
    prepare(n.a, stride);
    const bool contiguous = known(stride) == 1;
    return place(depth_of(e), e, vector_, [&]() -> Value* {
      Value* mask = combine(mask_at(depth_of(e)), predicate);
      if (!contiguous) return from_memory(gather(pointers(n.imm, n.type, n.a, stride), t, n.type, mask), n.type);
      Value* base = b_.CreateGEP(t, buffers_[n.imm], scalar(n.a));
      const llvm::Align align = element_align(n.type);
      if (k_.buffers[n.imm].stream) prefetch(base, lanes_ * size_of(n.type), k_.buffers[n.imm].ahead_param);
      if (!mask) return from_memory(b_.CreateAlignedLoad(vec(t), base, align), n.type);
      return from_memory(b_.CreateMaskedLoad(vec(t), base, align, mask, llvm::Constant::getNullValue(vec(t))), n.type);
    });
  }

  /// Asks for the lines that this stream will read some iterations later: with long bodies the hardware's own
  /// prefetcher does not run far enough ahead. What is wanted a given number of bytes ahead goes to the second cache.
  void prefetch(Value* base, std::int64_t bytes, std::int32_t ahead_param) {
    const bool near = ahead_param < 0;
    Value* ahead = b_.getInt64(kPrefetchBytes);
    if (!near) ahead = scalar(pool_.intern({Prim::Param, DType::Int64, kNoExpr, kNoExpr, kNoExpr, static_cast<std::uint64_t>(ahead_param)}));
    Value* from = b_.CreateGEP(b_.getInt8Ty(), base, ahead);
    for (std::int64_t line = 0; line < bytes; line += 64) {
      Value* at = b_.CreateConstGEP1_64(b_.getInt8Ty(), from, static_cast<std::uint64_t>(line));
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {at->getType()},
                         {at, b_.getInt32(0), b_.getInt32(near ? 3 : 2), b_.getInt32(1)});
    }
  }

  Value* gather(Value* many, llvm::Type* t, DType type, Value* mask) {
    if (size_of(type) >= 4 && target_.vector_bytes >= 32) {
      return b_.CreateMaskedGather(vec(t), many, element_align(type), mask, llvm::Constant::getNullValue(vec(t)));
    }
    if (mask) {
      const auto count = llvm::ElementCount::getFixed(static_cast<unsigned>(lanes_));
      many = b_.CreateSelect(mask, many, b_.CreateVectorSplat(count, zero_memory()));
    }
    Value* out = llvm::PoisonValue::get(vec(t));
    for (int l = 0; l < lanes_; ++l) {
      const auto lane = static_cast<std::uint64_t>(l);
      Value* one = b_.CreateAlignedLoad(t, b_.CreateExtractElement(many, lane), element_align(type));
      out = b_.CreateInsertElement(out, one, lane);
    }
    return out;
  }

  void store(const Stmt& s) {
    const BufferDecl& d = k_.buffers[s.target];
    llvm::Type* t = memory_type(c_, d.dtype);
    if (!vector_scope_) {
      Value* v = to_memory(scalar(s.value), d.dtype);
      b_.CreateAlignedStore(v, b_.CreateGEP(t, buffers_[s.target], scalar(s.index)), element_align(d.dtype));
      return;
    }
    Value* v = to_memory(vector(s.value), d.dtype);
    const E stride = lane_stride(s.index);
    sync();
    if (known(stride) != 1) {
      Value* many = pointers(s.target, d.dtype, s.index, stride);
      b_.CreateMaskedScatter(v, many, element_align(d.dtype), mask_);
      return;
    }
    Value* p = b_.CreateGEP(t, buffers_[s.target], scalar(s.index));
    const bool stream = d.stream && lanes_ * size_of(d.dtype) % 16 == 0;
    if (!mask_) {
      stream_or_store(v, p, d, stream);
    } else if (!stream) {
      b_.CreateMaskedStore(v, p, element_align(d.dtype), mask_);
    } else {  // full vectors bypass the caches, the last one cannot
      BasicBlock* full = BasicBlock::Create(c_, "full", fn_);
      BasicBlock* part = BasicBlock::Create(c_, "part", fn_);
      BasicBlock* done = BasicBlock::Create(c_, "done", fn_);
      b_.CreateCondBr(b_.CreateICmpSGE(remaining_, b_.getInt64(static_cast<std::uint64_t>(lanes_))), full, part);
      b_.SetInsertPoint(full);
      stream_or_store(v, p, d, true);
      b_.CreateBr(done);
      b_.SetInsertPoint(part);
      b_.CreateMaskedStore(v, p, element_align(d.dtype), mask_);
      b_.CreateBr(done);
      b_.SetInsertPoint(done);
    }
  }

  void stream_or_store(Value* v, Value* p, const BufferDecl& d, bool stream) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(lanes_ * size_of(d.dtype));
    const std::uint64_t align = stream ? std::min<std::uint64_t>(64, bytes & (~bytes + 1)) : static_cast<std::uint64_t>(size_of(d.dtype));
    llvm::StoreInst* st = b_.CreateAlignedStore(v, p, llvm::Align(align));
    if (stream)
      st->setMetadata(llvm::LLVMContext::MD_nontemporal,
                      llvm::MDNode::get(c_, llvm::ConstantAsMetadata::get(b_.getInt32(1))));
  }

  // ---- accumulators ------------------------------------------------------------------------------------------------


  Value* merge(const AccDecl& a, Value* x, Value* acc) {
    switch (a.monoid) {
      case Monoid::Sum: return v_.compute(Prim::Add, a.type, a.type, acc, x, nullptr);
      case Monoid::Prod: return v_.compute(Prim::Mul, a.type, a.type, acc, x, nullptr);
      case Monoid::Max: return v_.max(x, acc, a.type, true);
      case Monoid::Min: return v_.max(x, acc, a.type, false);
      case Monoid::ArgMax:
      case Monoid::ArgMin:
      case Monoid::State: break;
    }
    KILN_CHECK_THAT(false, "no monoid of plain values");
    return nullptr;
  }

  /// Whether (x, p) beats (best, q): NaN first, then the better value, then the smaller position.
  Value* beats(const AccDecl& a, Value* x, Value* p, Value* best, Value* q) {
    const bool greatest = a.monoid == Monoid::ArgMax;
    Value* earlier = b_.CreateICmpSLT(p, q);
    if (is_float(a.type)) {
      Value* better = greatest ? b_.CreateFCmpOGT(x, best) : b_.CreateFCmpOLT(x, best);
      Value* tie = b_.CreateAnd(b_.CreateFCmpOEQ(x, best), earlier);
      Value* nan = b_.CreateAnd(b_.CreateFCmpUNO(x, x), b_.CreateOr(b_.CreateFCmpORD(best, best), earlier));
      return b_.CreateOr(b_.CreateAnd(b_.CreateOr(better, tie), b_.CreateFCmpORD(best, best)), nan);
    }
    const bool is_signed = is_signed_int(a.type);
    Value* better = greatest ? (is_signed ? b_.CreateICmpSGT(x, best) : b_.CreateICmpUGT(x, best))
                             : (is_signed ? b_.CreateICmpSLT(x, best) : b_.CreateICmpULT(x, best));
    return b_.CreateOr(better, b_.CreateAnd(b_.CreateICmpEQ(x, best), earlier));
  }

  bool has_vector_loop(const LoopDecl& l) const {
    if (l.kind == LoopKind::Vector) return true;
    for (const Stmt& s : l.body)
      if (s.kind == Stmt::Kind::Loop && has_vector_loop(k_.loops[s.target])) return true;
    return false;
  }
  int lanes_inside(const LoopDecl& l) const {
    if (l.kind == LoopKind::Vector) return l.lanes;
    for (const Stmt& s : l.body)
      if (s.kind == Stmt::Kind::Loop)
        if (const int n = lanes_inside(k_.loops[s.target])) return n;
    return 0;
  }

  llvm::AllocaInst* alloca_of(llvm::Type* t) {
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(entry_, entry_->begin());
    allocas_.push_back(b_.CreateAlloca(t));
    return allocas_.back();
  }

  void begin_accs(const LoopDecl& l) {
    const int inside = lanes_inside(l);
    for (std::uint32_t id : l.accs) {
      const AccDecl& a = k_.accs[id];
      AccState& s = accs_[id];
      s.vector = inside > 0 || vector_scope_;
      s.horizontal = inside > 0;
      s.depth = depth();
      llvm::Type* t = reg(a.type);
      llvm::Constant* start = constant_of(c_, a.type, kernel::identity(a));
      llvm::Constant* far = b_.getInt64(0x7fffffffffffffffull);
      llvm::Type* pt = i64();
      if (s.vector) {
        const unsigned n = static_cast<unsigned>(inside ? inside : lanes_);
        t = FixedVectorType::get(t, n);
        pt = FixedVectorType::get(pt, n);
        start = llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(n), start);
        far = llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(n), far);
      }
      s.value = alloca_of(t);
      b_.CreateStore(start, s.value);
      if (s.scan && s.horizontal) s.none = opaque(start);
      if (kernel::positional(a.monoid)) {
        s.position = alloca_of(pt);
        b_.CreateStore(far, s.position);
      }
    }
  }

  void update(const Stmt& st) {
    const AccDecl& a = k_.accs[st.target];
    AccState& s = accs_[st.target];
    if (a.monoid == Monoid::State) {
      Value* next = s.vector ? vector(st.value) : scalar(st.value);
      Value* active = s.vector ? mask_at(depth()) : nullptr;
      b_.CreateStore(active ? b_.CreateSelect(active, next, s.before) : next, s.value);
      return;
    }
    if (s.scan) return scan(st);
    Value* mask = s.horizontal ? mask_ : nullptr;  // lanes that are never stored may hold anything
    const ExprNode product = pool_[st.value];
    if (a.monoid == Monoid::Sum && is_float(a.type) && product.prim == Prim::Mul && k_.fma && target_.fma) {
      Value* x = s.vector ? vector(product.a) : scalar(product.a);
      Value* y = s.vector ? vector(product.b) : scalar(product.b);
      Value* acc = b_.CreateLoad(s.value->getAllocatedType(), s.value);
      Value* next = v_.compute(Prim::Fma, a.type, a.type, x, y, acc);
      b_.CreateStore(mask ? b_.CreateSelect(mask, next, acc) : next, s.value);
      return;
    }
    Value* x = s.vector ? vector(st.value) : scalar(st.value);
    Value* acc = b_.CreateLoad(s.value->getAllocatedType(), s.value);
    if (kernel::positional(a.monoid)) {
      Value* p = s.vector ? vector(st.index) : scalar(st.index);
      Value* q = b_.CreateLoad(s.position->getAllocatedType(), s.position);
      Value* wins = beats(a, x, p, acc, q);
      if (mask) wins = b_.CreateAnd(wins, mask);
      b_.CreateStore(b_.CreateSelect(wins, x, acc), s.value);
      b_.CreateStore(b_.CreateSelect(wins, p, q), s.position);
      return;
    }
    Value* next = merge(a, x, acc);
    b_.CreateStore(mask ? b_.CreateSelect(mask, next, acc) : next, s.value);
  }

  /// One update of an accumulator that is read inside its loop. On lanes: prefixes by doubling, a tree of fixed shape,
  /// then what the earlier vectors hand on; only that last step waits for them.
  void scan(const Stmt& st) {
    const AccDecl& a = k_.accs[st.target];
    AccState& s = accs_[st.target];
    Value* x = vector_scope_ ? vector(st.value) : scalar(st.value);
    Value* acc = b_.CreateLoad(s.value->getAllocatedType(), s.value);
    s.update_depth = depth();
    Value* next = nullptr;
    if (!s.horizontal) {
      next = s.running = merge(a, x, acc);
      s.before = acc;
    } else {
      if (mask_) x = b_.CreateSelect(mask_, x, s.none);
      for (int d = 1; d < lanes_; d *= 2) x = merge(a, x, moved_up(x, s.none, d));
      next = merge(a, b_.CreateShuffleVector(x, llvm::SmallVector<int, 64>(static_cast<std::size_t>(lanes_), lanes_ - 1)), acc);
      s.running = merge(a, x, acc);
      s.before = moved_up(s.running, acc, 1);
    }
    b_.CreateStore(next, s.value);
  }

  /// v's lanes moved d places up, the first d lanes from the last ones of `fill`: one instruction where registers can be
  /// aligned.
  Value* moved_up(Value* v, Value* fill, int d) {
    llvm::SmallVector<int, 64> lanes;
    for (int i = 0; i < lanes_; ++i) lanes.push_back(i < d ? 2 * lanes_ - d + i : i - d);
    return b_.CreateShuffleVector(v, fill, lanes);
  }

  /// A constant that code generation does not see through: moving lanes up past known zeros it would do by expansion
  /// under a mask, which takes three times as long.
  Value* opaque(llvm::Constant* value) {
    auto* memory = new llvm::GlobalVariable(module_, value->getType(), false, llvm::GlobalValue::PrivateLinkage, value);
    return b_.CreateAlignedLoad(value->getType(), memory, llvm::Align(1));
  }

  Value* upper_half(Value* v, unsigned n) {
    llvm::SmallVector<int, 64> lanes;
    for (unsigned i = n / 2; i < n; ++i) lanes.push_back(static_cast<int>(i));
    return b_.CreateShuffleVector(v, lanes);
  }
  Value* lower_half(Value* v, unsigned n) {
    llvm::SmallVector<int, 64> lanes;
    for (unsigned i = 0; i < n / 2; ++i) lanes.push_back(static_cast<int>(i));
    return b_.CreateShuffleVector(v, lanes);
  }

  /// Final values, combined over lanes by halves: a tree of fixed shape.
  void end_accs(const LoopDecl& l) {
    for (std::uint32_t id : l.accs) {
      const AccDecl& a = k_.accs[id];
      AccState& s = accs_[id];
      Value* v = b_.CreateLoad(s.value->getAllocatedType(), s.value);
      Value* p = kernel::positional(a.monoid) ? b_.CreateLoad(s.position->getAllocatedType(), s.position) : nullptr;
      if (s.horizontal && s.scan) {
        v = b_.CreateExtractElement(v, std::uint64_t{0});
      } else if (s.horizontal) {
        unsigned n = llvm::cast<FixedVectorType>(v->getType())->getNumElements();
        for (; n > 1; n /= 2) {
          Value *x = upper_half(v, n), *y = lower_half(v, n);
          if (p) {
            Value *px = upper_half(p, n), *py = lower_half(p, n);
            Value* wins = beats(a, x, px, y, py);
            v = b_.CreateSelect(wins, x, y);
            p = b_.CreateSelect(wins, px, py);
          } else {
            v = merge(a, x, y);
          }
        }
        v = b_.CreateExtractElement(v, std::uint64_t{0});
        if (p) p = b_.CreateExtractElement(p, std::uint64_t{0});
      }
      s.result = p ? p : v;
    }
  }

  // ---- loops -----------------------------------------------------------------------------------------------------

  void block(const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      switch (s.kind) {
        case Stmt::Kind::Loop: loop(k_.loops[s.target]); break;
        case Stmt::Kind::Update: update(s); break;
        case Stmt::Kind::Store: store(s); break;
      }
    }
  }

  void open_scope(const LoopDecl& l, Value* index, llvm::Instruction* preheader_end) {
    scopes_.push_back({&l, index, preheader_end, {}});
    var_scope_[l.var] = depth();
    forget_depths();
  }

  void close_scope(const LoopDecl& l) {
    for (ExprId e : scopes_.back().memoized) scalar_[e] = vector_[e] = nullptr;
    scopes_.pop_back();
    var_scope_[l.var] = -1;
    forget_depths();
  }

  /// Loop variables come and go; what was derived from them must be derived again.
  void forget_depths() {
    std::fill(varying_.begin(), varying_.end(), -1);
    std::fill(depth_.begin(), depth_.end(), -1);
  }

  /// while (condition) body, all lanes together until none goes on.
  void while_loop(const LoopDecl& l) {
    std::vector<Value*> inits;
    for (ExprId e : l.inits) inits.push_back(vector_scope_ ? vector(e) : scalar(e));
    for (std::size_t i = 0; i < inits.size(); ++i) b_.CreateStore(inits[i], accs_[l.accs[i]].value);
    BasicBlock* head = BasicBlock::Create(c_, "while", fn_);
    BasicBlock* inside = BasicBlock::Create(c_, "body", fn_);
    BasicBlock* after = BasicBlock::Create(c_, "after", fn_);
    llvm::Instruction* preheader_end = b_.CreateBr(head);
    b_.SetInsertPoint(head);
    open_scope(l, b_.getInt64(0), preheader_end);
    for (std::uint32_t a : l.accs) {
      AccState& s = accs_[a];
      s.before = b_.CreateLoad(s.value->getAllocatedType(), s.value);
      s.update_depth = depth();
    }
    forget_depths();
    Value* goes_on = nullptr;
    if (vector_scope_) {
      Value* active = combine(vector(l.condition), mask_at(depth()));
      scopes_.back().active = active;
      goes_on = b_.CreateICmpNE(b_.CreateBitCast(active, b_.getIntNTy(static_cast<unsigned>(lanes_))),
                                b_.getIntN(static_cast<unsigned>(lanes_), 0));
    } else {
      goes_on = scalar(l.condition);
    }
    b_.CreateCondBr(goes_on, inside, after);
    b_.SetInsertPoint(inside);
    block(l.body);
    close_scope(l);
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
  }

  void loop(const LoopDecl& l) {
    begin_accs(l);
    if (l.kind == LoopKind::While) {
      while_loop(l);
    } else if (l.kind == LoopKind::Vector) {
      vector_loop(l);
    } else {
      Value* first = l.kind == LoopKind::Grid ? static_cast<Value*>(fn_->getArg(1)) : b_.getInt64(0);
      Value* end = l.kind == LoopKind::Grid ? static_cast<Value*>(fn_->getArg(2)) : scalar(l.extent);
      counted(l, first, end, b_.getInt64(1), [&](Value*) { block(l.body); });
    }
    end_accs(l);
  }

  /// for (i = first; i < end; i += step) body(i). Returns the value of i after it.
  template <class F>
  Value* counted(const LoopDecl& l, Value* first, Value* end, Value* step, F body) {
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock* head = BasicBlock::Create(c_, "loop", fn_);
    BasicBlock* inside = BasicBlock::Create(c_, "body", fn_);
    BasicBlock* after = BasicBlock::Create(c_, "after", fn_);
    llvm::Instruction* preheader_end = b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(i64(), 2, "i" + std::to_string(l.var));
    i->addIncoming(first, before);
    b_.CreateCondBr(b_.CreateICmpSLT(i, end), inside, after);
    b_.SetInsertPoint(inside);
    open_scope(l, i, preheader_end);
    body(i);
    close_scope(l);
    i->addIncoming(b_.CreateNSWAdd(i, step), b_.GetInsertBlock());
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
    return i;
  }

  bool contains_loop(const LoopDecl& l) const {
    return std::any_of(l.body.begin(), l.body.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::Loop; });
  }

  /// Vector instructions a body will take, roughly: distinct expressions its statements reach.
  std::size_t body_size(const LoopDecl& l) {
    std::vector<bool> seen(pool_.size());
    std::size_t count = 0;
    auto visit = [&](auto&& self, ExprId e) -> void {
      if (e == kNoExpr || seen[e]) return;
      seen[e] = true;
      const ExprNode n = pool_[e];
      if (n.prim != Prim::Const && n.prim != Prim::Param && n.prim != Prim::Slot && n.prim != Prim::Var) ++count;
      each_operand(n, [&](ExprId o) { self(self, o); });
    };
    for (const Stmt& s : l.body) {
      if (s.kind == Stmt::Kind::Loop) continue;
      visit(visit, s.value);
      visit(visit, s.index);
    }
    return count * static_cast<std::size_t>(std::max(1, l.lanes * 4 / target_.vector_bytes));
  }

  /// Bounded quotients of a vector body to leave to the divider. It takes 10 cycles or more for a 512-bit register,
  /// beside two ports for the rest: one for every 20 other instructions, less what needs the divider anyway.
  int quotients_on_divider(const LoopDecl& l) {
    std::vector<bool> seen(pool_.size());
    int others = 0, divider = 0;
    auto visit = [&](auto&& self, ExprId e) -> void {
      if (seen[e] || !varying(e)) return;
      seen[e] = true;
      const ExprNode n = pool_[e];
      if (n.prim == Prim::Load) return;
      if (n.prim == Prim::Sqrt || (n.prim == Prim::Div && varying(n.b)))
        ++divider;
      else if (n.prim != Prim::DivBounded && n.prim != Prim::Bitcast)
        others += n.prim == Prim::Scale ? 2 : 1;
      each_operand(n, [&](ExprId o) { self(self, o); });
    };
    for (const Stmt& s : l.body)
      if (s.kind != Stmt::Kind::Loop) visit(visit, s.value);
    return std::max(0, (others + 4) / 20 - divider);
  }

  void vector_loop(const LoopDecl& l) {
    KILN_CHECK_THAT(!vector_scope_, "nested vector loops");
    lanes_ = l.lanes;
    Value* end = scalar(l.extent);
    Value* step = b_.getInt64(static_cast<std::uint64_t>(lanes_));
    const bool once = contains_loop(l) || body_size(l) > kTwoBodies;
    auto in_scope = [&](auto f) {
      return [&, f](Value* i) {
        vector_scope_ = depth();
        forget_depths();
        lane_offsets_.clear();
        v_.keep_on_divider(quotients_on_divider(l));
        f(i);
        vector_scope_ = 0;
        mask_ = remaining_ = nullptr;
        lane_offsets_.clear();
      };
    };
    if (once) {
      counted(l, b_.getInt64(0), end, step, in_scope([&](Value* i) {
                set_mask(b_.CreateSub(end, i));
                block(l.body);
              }));
      return;
    }
    Value* whole = b_.CreateAnd(end, b_.getInt64(~static_cast<std::uint64_t>(lanes_ - 1)));
    Value* i = counted(l, b_.getInt64(0), whole, step, in_scope([&](Value*) { block(l.body); }));
    // The remaining lanes, if any.
    BasicBlock* tail = BasicBlock::Create(c_, "tail", fn_);
    BasicBlock* after = BasicBlock::Create(c_, "after", fn_);
    Value* rest = b_.CreateSub(end, i);
    llvm::Instruction* branch = b_.CreateCondBr(b_.CreateICmpSGT(rest, b_.getInt64(0)), tail, after);
    b_.SetInsertPoint(tail);
    open_scope(l, i, branch);
    in_scope([&](Value*) {
      set_mask(rest);
      block(l.body);
    })(i);
    close_scope(l);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  /// Lanes below `rest` are on.
  void set_mask(Value* rest) {
    remaining_ = rest;
    const auto count = static_cast<unsigned>(lanes_);
    if (target_.avx512 && lanes_ >= 8 && lanes_ <= 64) {  // one bit a lane, made in a scalar register
      llvm::Type* bits = b_.getIntNTy(count);
      Value* all = llvm::Constant::getAllOnesValue(i64());
      Value* capped = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rest, b_.getInt64(count));
      Value* ones = b_.CreateLShr(all, b_.CreateSub(b_.getInt64(64), capped));  // rest >= 1 here
      mask_ = b_.CreateBitCast(count == 64 ? ones : b_.CreateTrunc(ones, bits), FixedVectorType::get(b_.getInt1Ty(), count));
      return;
    }
    llvm::SmallVector<llvm::Constant*, 64> steps;
    for (unsigned l = 0; l < count; ++l) steps.push_back(b_.getInt32(l));
    Value* capped = b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rest, b_.getInt64(count)), b_.getInt32Ty());
    mask_ = b_.CreateICmpULT(llvm::ConstantVector::get(steps), b_.CreateVectorSplat(count, capped));
  }

  void promote_allocas() {
    llvm::DominatorTree tree(*fn_);
    llvm::PromoteMemToReg(allocas_, tree);
  }

  const Kernel& k_;
  kernel::ExprPool pool_;  // a copy: lane strides are added to it
  const LlvmTarget& target_;
  llvm::Module& module_;
  llvm::LLVMContext& c_;
  llvm::IRBuilder<> b_;
  ValueBuilder v_;
  llvm::Function* fn_ = nullptr;
  BasicBlock* entry_ = nullptr;
  Value *params_ = nullptr, *slots_ = nullptr;
  std::vector<Value*> buffers_;
  llvm::GlobalVariable* zero_ = nullptr;
  std::vector<llvm::AllocaInst*> allocas_;

  std::vector<Scope> scopes_;
  std::vector<int> var_scope_;       // per variable: depth of its loop, or -1
  std::vector<Value*> scalar_, vector_;
  std::vector<signed char> varying_;
  std::vector<int> depth_;
  std::vector<AccState> accs_;

  int vector_scope_ = 0;             // depth of the open Vector loop, or 0
  int lanes_ = 1;
  Value *mask_ = nullptr, *remaining_ = nullptr;
  std::vector<std::pair<ExprId, Value*>> lane_offsets_;
  std::vector<std::pair<ExprId, llvm::AllocaInst*>> round_keys_;
};

}  // namespace

std::unique_ptr<llvm::Module> emit_llvm(const Kernel& kernel, const std::string& symbol, const LlvmTarget& target,
                                        llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>(symbol, context);
  FunctionEmitter(kernel, target, *module, symbol).emit(kernel.body);
  auto section = [&](const char* suffix, const std::vector<Stmt>& body) {
    if (!body.empty()) FunctionEmitter(kernel, target, *module, symbol + suffix).emit(body);
  };
  section("_link", kernel.link);
  section("_second", kernel.second);
  section("_finish", kernel.finish);
  return module;
}

}  // namespace kiln::codegen
