// FunctionEmitter: loads and stores. Masked lanes and false predicates touch nothing.
#include "codegen/llvm/llvm_function.h"
#include "support/check.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <cstdlib>

namespace kiln::codegen {

constexpr std::uint64_t kZeroBytes = 512;

Value* FunctionEmitter::from_memory(Value* v, DType type) {
  return is_bool(type) ? b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType())) : v;
}

Value* FunctionEmitter::to_memory(Value* v, DType type) {
  if (!is_bool(type)) return v;
  llvm::Type* i8 = b_.getInt8Ty();
  return b_.CreateZExt(v, v->getType()->isVectorTy() ? vec(i8) : i8);
}

Value* FunctionEmitter::scalar_load(const ExprNode& n, Value* at, Value* predicate) {
  llvm::Type* t = memory_type(c_, n.type);
  Value* p = b_.CreateGEP(t, buffers_[n.imm], at);
  if (predicate) p = b_.CreateSelect(predicate, p, zero_memory());
  return from_memory(b_.CreateAlignedLoad(t, p, element_align(n.type)), n.type);
}

/// Zero bytes, as many as a vector has at most: lanes and vectors that may not touch memory read them
/// instead.
Value* FunctionEmitter::zero_memory() {
  if (!zero_) {
    llvm::Type* bytes = llvm::ArrayType::get(b_.getInt8Ty(), kZeroBytes);
    zero_ = new llvm::GlobalVariable(module_, bytes, true, llvm::GlobalValue::PrivateLinkage,
                                     llvm::Constant::getNullValue(bytes));
    zero_->setAlignment(llvm::Align(64));
  }
  return zero_;
}

/// Whether any lane of a mask is on.
Value* FunctionEmitter::any(Value* mask) {
  if (mask->getType() == b_.getInt1Ty()) return mask;
  llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(lanes_));
  return b_.CreateICmpNE(b_.CreateBitCast(mask, bits), llvm::ConstantInt::get(bits, 0));
}

/// Whether a condition, of which `on` are the values or the value for all lanes, holds on any lane: found
/// outside the loops that it does not depend on.
Value* FunctionEmitter::any_lane(ExprId predicate, Value* on) {
  const int d = predicate == kNoExpr ? depth() : at_.depth_of(predicate);
  if (on->getType() == b_.getInt1Ty() || d >= depth()) return any(on);
  for (const AnyLane& known : any_lane_)
    if (known.condition == predicate) return known.bit;
  const std::size_t loop = static_cast<std::size_t>(d) + 1;
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(scopes_[loop].preheader_end);
  any_lane_.push_back({predicate, any(on), loop});
  return any_lane_.back().bit;
}

/// The lanes that are on for code of scope d.
Value* FunctionEmitter::mask_at(int d) const {
  for (int k = d; k > at_.lanes_depth(); --k)
    if (Value* active = scopes_[static_cast<std::size_t>(k)].active) return active;
  return mask_;
}

/// Addresses of all lanes. The operands were evaluated by `prepare`, so this may run at any deeper place.
Value* FunctionEmitter::pointers(std::uint64_t buffer, DType type, ExprId index, E stride) {
  llvm::Type* t = memory_type(c_, type);
  if (!stride) return b_.CreateGEP(t, buffers_[buffer], vector(index));
  Value* base = b_.CreateGEP(t, buffers_[buffer], scalar(index));
  return b_.CreateGEP(t, base, lane_offsets(stride.id));
}

void FunctionEmitter::prepare(ExprId index, E stride) {
  if (!stride) {
    vector(index);
  } else {
    scalar(index);
    scalar(stride.id);
  }
}

/// stride · (0, 1, 2, …), outside the vector loop where possible.
Value* FunctionEmitter::lane_offsets(ExprId stride) {
  for (auto& [id, value] : lane_offsets_)
    if (id == stride) return value;
  Value* s = scalar(stride);
  auto make = [&] {
    llvm::SmallVector<llvm::Constant*, 64> steps;
    for (int l = 0; l < lanes_; ++l) steps.push_back(b_.getInt64(static_cast<std::uint64_t>(l)));
    const auto count = llvm::ElementCount::getFixed(static_cast<unsigned>(lanes_));
    return b_.CreateMul(b_.CreateVectorSplat(count, s), llvm::ConstantVector::get(steps));
  };
  if (at_.depth_of(stride) >= at_.lanes_depth()) return make();
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(scopes_[static_cast<std::size_t>(at_.lanes_depth())].preheader_end);
  lane_offsets_.emplace_back(stride, make());
  return lane_offsets_.back().second;
}

/// The lanes from the last to the first.
Value* FunctionEmitter::reversed(Value* v) {
  if (!v) return nullptr;
  llvm::SmallVector<int, 64> from_end;
  for (int l = lanes_; l-- > 0;) from_end.push_back(l);
  return b_.CreateShuffleVector(v, from_end);
}

/// Whether the target loads the lanes of a mask in one instruction.
bool FunctionEmitter::masks_loads(DType type) const {
  return target_.avx512 || (target_.vector_bytes >= 32 && size_of(type) >= 4);
}

/// The elements of a mask from adjacent places, one by one; 0 elsewhere.
Value* FunctionEmitter::elements(Value* base, llvm::Type* t, DType type, Value* mask) {
  llvm::SmallVector<llvm::Constant*, 64> steps;
  for (int l = 0; l < lanes_; ++l) steps.push_back(b_.getInt64(static_cast<std::uint64_t>(l)));
  return gather(b_.CreateGEP(t, base, llvm::ConstantVector::get(steps)), t, type, mask);
}

/// The adjacent elements below the end of the loop, 0 behind it, of a type whose loads have no masks. Pre:
/// mask_.
Value* FunctionEmitter::load_first(Value* base, llvm::Type* t, DType type) {
  const auto whole = [&] { return b_.CreateAlignedLoad(vec(t), base, element_align(type)); };
  const auto part = [&]() -> Value* {
    if (masks_words()) return load_words(base, t, type);
    llvm::AllocaInst* const copy = vector_memory(t);
    b_.CreateStore(llvm::Constant::getNullValue(vec(t)), copy);
    copy_first(base, copy, t, type);
    return b_.CreateLoad(vec(t), copy);
  };
  return is_last_ ? part() : branch(is_full(), whole, part);
}

/// Whether the target loads the words of four bytes of a mask in one instruction, but no smaller elements.
bool FunctionEmitter::masks_words() const { return !target_.avx512 && target_.vector_bytes >= 32; }

/// The elements of one or two bytes below the end of the loop, fewer than lanes, 0 behind it: whole words of
/// four bytes under a mask, and what is left of a word element by element. Pre: mask_, masks_words().
Value* FunctionEmitter::load_words(Value* base, llvm::Type* t, DType type) {
  const int size = static_cast<int>(size_of(type)), in_word = 4 / size;
  const int words = std::max(4, (lanes_ + in_word - 1) / in_word);  // of a register at least
  llvm::Type* word_type = vec_of(b_.getInt32Ty(), words);
  Value* end = b_.CreateTrunc(remaining_, b_.getInt32Ty());
  const auto numbers = [&](llvm::Type* of, int count) {
    llvm::SmallVector<llvm::Constant*, 64> list;
    for (int k = 0; k < count; ++k) list.push_back(llvm::ConstantInt::get(of, static_cast<std::uint64_t>(k)));
    return llvm::ConstantVector::get(list);
  };
  Value* whole_words =
      b_.CreateVectorSplat(static_cast<unsigned>(words), b_.CreateLShr(end, size == 2 ? 1 : 2));
  Value* below = b_.CreateICmpSLT(numbers(b_.getInt32Ty(), words), whole_words);
  Value* v = b_.CreateMaskedLoad(word_type, base, llvm::Align(static_cast<std::uint64_t>(size)), below,
                                 llvm::Constant::getNullValue(word_type));
  llvm::Type* element = b_.getIntNTy(static_cast<unsigned>(8 * size));
  v = b_.CreateBitCast(v, vec_of(element, words * in_word));
  if (words * in_word != lanes_)
    v = b_.CreateShuffleVector(v, llvm::createSequentialMask(0, static_cast<unsigned>(lanes_), 0));
  for (int k = 1; k < in_word; ++k) {  // the elements before the end, of which the word has at most so many
    Value* at = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax,
                                         b_.CreateSub(remaining_, b_.getInt64(static_cast<std::uint64_t>(k))),
                                         b_.getInt64(0));
    Value* one = b_.CreateAlignedLoad(element, b_.CreateGEP(element, base, at), element_align(type));
    Value* here =
        b_.CreateICmpEQ(numbers(element, lanes_),
                        b_.CreateVectorSplat(static_cast<unsigned>(lanes_), b_.CreateTrunc(at, element)));
    v = b_.CreateSelect(here, b_.CreateVectorSplat(static_cast<unsigned>(lanes_), one), v);
  }
  return b_.CreateBitCast(v, vec(t));
}

/// Finds the scratch buffers that vectors of loops of one length fill, and nothing else writes: `filled_`.
void FunctionEmitter::find_filled(const std::vector<Stmt>& body, const LoopDecl* lanes) {
  for (const Stmt& s : body) {
    if (s.kind == Stmt::Kind::Loop) {
      const LoopDecl& l = k_.loops[s.target];
      find_filled(l.body, l.kind == LoopKind::Vector ? &l : lanes);
    } else if (s.kind == Stmt::Kind::Store) {
      Filled& f = filled_[s.target];
      const bool own = lanes && pool_[s.index].prim == Prim::Var && pool_[s.index].imm == lanes->var;
      f.otherwise |= !own || (f.extent != kNoExpr && f.extent != lanes->extent);
      if (own) f.extent = lanes->extent;
    }
  }
}

/// Whether an access is to a vector's own places in scratch memory, which has room for all lanes of the last
/// vector (RegionLowering::scratch_buffer): what lanes behind the end of the loop leave there nobody reads,
/// because the loops that fill it have one length in all of a grid item. A vector that is stored in parts
/// could not be loaded before they are in the cache.
bool FunctionEmitter::fills_scratch(std::uint64_t buffer, ExprId index) {
  if (k_.buffers[buffer].role != BufferDecl::Role::Scratch || from_line_ != kNoExpr) return false;
  const LoopDecl& l = *scopes_[static_cast<std::size_t>(at_.lanes_depth())].loop;
  if (filled_.empty()) {
    filled_.resize(k_.buffers.size());
    for (const auto* section : {&k_.body, &k_.link, &k_.second, &k_.finish}) find_filled(*section, nullptr);
  }
  const Filled& f = filled_[buffer];
  if (f.otherwise || f.extent != l.extent) return false;
  const int known = at_.depth_of(l.extent);
  const bool item = known == 0 || (known == 1 && scopes_[1].loop->kind == LoopKind::Grid);
  return item && pool_[index].prim == Prim::Var && pool_[index].imm == l.var;
}

/// Stores the first elements of a vector, not all of them, up to the end of the loop. Without registers of
/// masks a masked store takes long, or a branch for each element. Pre: mask_.
void FunctionEmitter::store_first(Value* v, Value* p, DType type) {
  llvm::Type* t = v->getType()->getScalarType();
  llvm::AllocaInst* const copy = vector_memory(t);
  b_.CreateStore(v, copy);
  copy_first(copy, p, t, type);
}

/// Memory of a vector, on the stack.
llvm::AllocaInst* FunctionEmitter::vector_memory(llvm::Type* t) {
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(entry_, entry_->begin());
  return b_.CreateAlloca(vec(t));
}

/// Copies as many elements as there are up to the end of the loop, fewer than lanes: by the bits of their
/// number, a half, a quarter, … of a vector at a time, so that nothing else is read or written.
void FunctionEmitter::copy_first(Value* from, Value* to, llvm::Type* t, DType type) {
  const llvm::Align align = element_align(type);
  Value* copied = b_.getInt64(0);
  for (int n = lanes_ / 2; n > 0; n /= 2) {
    Value* count = b_.getInt64(static_cast<std::uint64_t>(n));
    const auto part = [&] {
      llvm::Type* elements = llvm::FixedVectorType::get(t, static_cast<unsigned>(n));
      b_.CreateAlignedStore(b_.CreateAlignedLoad(elements, b_.CreateGEP(t, from, copied), align),
                            b_.CreateGEP(t, to, copied), align);
      return b_.CreateAdd(copied, count);
    };
    copied = branch(b_.CreateICmpNE(b_.CreateAnd(remaining_, count), b_.getInt64(0)), part,
                    [&] { return copied; });
  }
}

/// Whether all lanes are iterations of the loop. Pre: mask_.
Value* FunctionEmitter::is_full() {
  Value* full = b_.CreateICmpSGE(remaining_, b_.getInt64(static_cast<std::uint64_t>(lanes_)));
  return early_ ? b_.CreateAnd(full, b_.CreateICmpSLE(early_, b_.getInt64(0))) : full;
}

/// One element on the lanes where a condition holds, 0 elsewhere; read if there is such a lane. `predicate`:
/// the part of the condition that differs.
Value* FunctionEmitter::same_element(const ExprNode& n, const Condition& on, Value* predicate) {
  llvm::Type* t = memory_type(c_, n.type);
  Value* p = b_.CreateGEP(t, buffers_[n.imm], scalar(n.a));
  if (Value* somewhere = any_of(on, predicate)) p = b_.CreateSelect(somewhere, p, zero_memory());
  Value* all =
      b_.CreateVectorSplat(static_cast<unsigned>(lanes_), b_.CreateAlignedLoad(t, p, element_align(n.type)));
  return from_memory(predicate ? b_.CreateSelect(predicate, all, llvm::Constant::getNullValue(vec(t))) : all,
                     n.type);
}

/// Elements which are not neighbours, as they lie in memory, of the lanes of `mask` (null: all) and where
/// `bit` is not false.
Value* FunctionEmitter::apart(const ExprNode& n, E stride, Value* mask, Value* bit) {
  llvm::Type* t = memory_type(c_, n.type);
  const auto each = [&] {
    Value* on = bit ? combine(mask, uniform_mask(bit)) : mask;
    return gather(pointers(n.imm, n.type, n.a, stride), t, n.type, on);
  };
  if (mask || !stride || !is_steady(n.type, stride.id)) return each();
  const Window& w = steady_window(n.type, stride.id);
  Value* base = b_.CreateGEP(t, buffers_[n.imm], scalar(n.a));
  return strided_load(base, w, bit, n.type, each);
}

/// A load whose predicate holds on no lane reads zero_memory(): for an address beyond the buffer, perhaps of
/// a page that is not there, the processor takes a hundred times as long even if all lanes are off.
Value* FunctionEmitter::vector_load(ExprId e, const ExprNode& n) {
  llvm::Type* t = memory_type(c_, n.type);
  Condition on = condition_of(n.b);
  const E stride = at_.lane_stride(n.a);
  sync();
  if (const auto known = kernel::known(stride);
      known && std::abs(*known) <= 1 && at_.depth_of(e) > at_.lanes_depth())
    if (Value* bit = fixed(on.lanes)) on.lanes = kNoExpr, on.bits.push_back(bit);
  Value* predicate = on.lanes == kNoExpr ? nullptr : vector(on.lanes);
  const bool backwards = kernel::known(stride) == -1, contiguous = kernel::known(stride) == 1 || backwards;
  const auto lanes_on = [&](bool with_bit) {
    Value* mask = combine(mask_at(at_.depth_of(e)), predicate);
    Value* bit = with_bit ? bit_of(on) : nullptr;
    return bit ? combine(mask, uniform_mask(bit)) : mask;
  };
  // Without registers of masks the narrow elements of the lanes that are on are a window, too; load_first
  // knows better where these are the lanes below the end of the loop.
  const bool part = kernel::known(stride) == 1 && !masks_loads(n.type) && predicate;
  if ((!contiguous || part) && kernel::known(stride) != 0 && at_.depth_of(e) > at_.lanes_depth())
    if (const auto split = lane_split(n.a); split && (!part || takes_window(n, *split, on.lanes))) {
      sync();
      vector(split->lanes.id), scalar(split->base.id);
      return place(at_.depth_of(e), e, vector_, [&]() -> Value* {
        if (takes_window(n, *split, on.lanes))
          return from_memory(window_load(n, *split, on, lanes_on(true)), n.type);
        prefetch_jump(n);
        Value* base = b_.CreateGEP(t, buffers_[n.imm], scalar(split->base.id));
        Value* many = b_.CreateGEP(t, base, vector(split->lanes.id));
        return from_memory(gather(many, t, n.type, lanes_on(true)), n.type);
      });
    }
  prepare(n.a, stride);
  return place(at_.depth_of(e), e, vector_, [&]() -> Value* {
    if (kernel::known(stride) == 0) return same_element(n, on, predicate);
    // Without registers of masks a mask takes as long as the load, and scratch has room for a whole vector.
    const bool has_room = !target_.avx512 && kernel::known(stride) == 1 && from_line_ == kNoExpr &&
                          k_.buffers[n.imm].role == BufferDecl::Role::Scratch;
    Value* mask = (has_room || fills_scratch(n.imm, n.a)) && on.lanes == kNoExpr ? nullptr : lanes_on(false);
    if (!contiguous) return from_memory(apart(n, stride, mask, bit_of(on)), n.type);
    Value* base = b_.CreateGEP(t, buffers_[n.imm], scalar(n.a));
    if (backwards)
      base = b_.CreateGEP(t, base, b_.getInt64(static_cast<std::uint64_t>(1 - lanes_))),
      mask = reversed(mask);
    const llvm::Align align = element_align(n.type);
    Value* somewhere = any_of(on, predicate);
    if (somewhere) base = b_.CreateSelect(somewhere, base, zero_memory());
    prefetch_later(n, base, backwards);
    Value* loaded = nullptr;
    const auto whole = [&] { return b_.CreateAlignedLoad(vec(t), base, align); };
    if (!mask)
      loaded = whole();
    else if (mask == mask_ && !masks_loads(n.type))
      loaded = load_first(base, t, n.type);
    else if (!somewhere || masks_loads(n.type))
      loaded = b_.CreateMaskedLoad(vec(t), base, align, mask, llvm::Constant::getNullValue(vec(t)));
    else
      loaded = branch(b_.CreateAndReduce(mask), whole, [&] { return elements(base, t, n.type, mask); });
    return from_memory(backwards ? reversed(loaded) : loaded, n.type);
  });
}

/// Elements of the lanes of a mask, 0 on the others. Most processors without registers of masks gather
/// element by element, and would ask for each whether its lane is on: lanes that are off read zeros instead.
Value* FunctionEmitter::gather(Value* many, llvm::Type* t, DType type, Value* mask) {
  if (mask && !target_.avx512) {
    const auto count = llvm::ElementCount::getFixed(static_cast<unsigned>(lanes_));
    many = b_.CreateSelect(mask, many, b_.CreateVectorSplat(count, zero_memory()));
    mask = nullptr;
  }
  if (size_of(type) >= 4 && target_.vector_bytes >= 32) {
    return b_.CreateMaskedGather(vec(t), many, element_align(type), mask,
                                 llvm::Constant::getNullValue(vec(t)));
  }
  if (target_.vector_bytes >= 32) return gather_narrow(many, t, type, mask);
  Value* out = llvm::PoisonValue::get(vec(t));
  for (int l = 0; l < lanes_; ++l) {
    const auto lane = static_cast<std::uint64_t>(l);
    Value* one = b_.CreateAlignedLoad(t, b_.CreateExtractElement(many, lane), element_align(type));
    out = b_.CreateInsertElement(out, one, lane);
  }
  return out;
}

/// Elements of one or two bytes, which no instruction gathers: the aligned word of four bytes that each is
/// in, shifted. Such a word may reach beyond the buffer, but never into a line of memory that has none of it.
Value* FunctionEmitter::gather_narrow(Value* many, llvm::Type* t, DType type, Value* mask) {
  llvm::Type* word = vec(b_.getInt32Ty());
  const auto splat = [&](std::uint64_t x) {
    return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(static_cast<unsigned>(lanes_)),
                                          b_.getInt64(x));
  };
  Value* address = b_.CreatePtrToInt(many, vec(i64()));
  Value* aligned = b_.CreateIntToPtr(b_.CreateAnd(address, splat(~std::uint64_t{3})), many->getType());
  Value* words =
      b_.CreateMaskedGather(word, aligned, llvm::Align(4), mask, llvm::Constant::getNullValue(word));
  Value* shift =
      b_.CreateShl(b_.CreateTrunc(b_.CreateAnd(address, splat(3)), word), llvm::ConstantInt::get(word, 3));
  Value* bits = b_.CreateTrunc(b_.CreateLShr(words, shift),
                               vec(b_.getIntNTy(static_cast<unsigned>(8 * size_of(type)))));
  return b_.CreateBitCast(bits, vec(t));
}

void FunctionEmitter::store(const Stmt& s, std::span<const Stmt> later) {
  const BufferDecl& d = k_.buffers[s.target];
  llvm::Type* t = memory_type(c_, d.dtype);
  if (!at_.lanes_depth()) {
    Value* v = to_memory(scalar(s.value), d.dtype);
    load_before(s, later);
    b_.CreateAlignedStore(v, b_.CreateGEP(t, buffers_[s.target], scalar(s.index)), element_align(d.dtype));
    return;
  }
  Value* v = to_memory(vector(s.value), d.dtype);
  load_before(s, later);
  const E stride = at_.lane_stride(s.index);
  sync();
  const bool backwards = kernel::known(stride) == -1;
  if (kernel::known(stride) != 1 && !backwards) {
    scatter(v, pointers(s.target, d.dtype, s.index, stride), d.dtype);
    return;
  }
  Value *p = b_.CreateGEP(t, buffers_[s.target], scalar(s.index)), *mask = mask_;
  if (backwards) {
    p = b_.CreateGEP(t, p, b_.getInt64(static_cast<std::uint64_t>(1 - lanes_)));
    v = reversed(v), mask = reversed(mask);
  }
  if (d.ahead_param >= 0) prefetch(p, lanes_ * size_of(d.dtype), d.ahead_param, false, true);
  const bool stream = d.stream && (!d.ragged || s.index == from_line_) && lanes_ * size_of(d.dtype) % 16 == 0;
  const auto part = [&] {
    if (target_.avx512 || backwards)
      b_.CreateMaskedStore(v, p, element_align(d.dtype), mask);
    else
      store_first(v, p, d.dtype);
  };
  if (!mask || fills_scratch(s.target, s.index))
    stream_or_store(v, p, d, stream);
  else if (stream || (!is_last_ && !target_.avx512))  // full vectors bypass the caches, the last one cannot
    full_or_part([&] { stream_or_store(v, p, d, stream); }, part);
  else
    part();
}

/// The first where all lanes are below the end of the loop, else the second. Pre: mask_.
void FunctionEmitter::full_or_part(llvm::function_ref<void()> full_vector,
                                   llvm::function_ref<void()> part_of_it) {
  BasicBlock* full = BasicBlock::Create(c_, "full", fn_);
  BasicBlock* part = BasicBlock::Create(c_, "part", fn_);
  BasicBlock* done = BasicBlock::Create(c_, "done", fn_);
  b_.CreateCondBr(is_full(), full, part);
  b_.SetInsertPoint(full);
  full_vector();
  b_.CreateBr(done);
  b_.SetInsertPoint(part);
  part_of_it();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

/// Stores the lanes that are on, each at its own place. Without an instruction for it a mask costs a branch
/// for each lane: full vectors go without.
void FunctionEmitter::scatter(Value* v, Value* many, DType type) {
  const llvm::Align align = element_align(type);
  const auto store_lanes = [&](Value* mask) { b_.CreateMaskedScatter(v, many, align, mask); };
  if (!mask_ || (target_.avx512 && size_of(type) >= 4)) return store_lanes(mask_);
  full_or_part([&] { store_lanes(nullptr); }, [&] { store_lanes(mask_); });
}

/// A store in several iterations of the loop around the lanes, whose elements are adjacent: 16 bytes of them
/// at once. `length`: of the lanes that are on; null: all are. What the others have goes where the last one
/// is stored after them.
void FunctionEmitter::store_transposed(const Stmt& s, std::size_t serial_depth,
                                       const std::vector<Value*>& iterations, Value* length) {
  const DType type = k_.buffers[s.target].dtype;
  const auto set_iteration = [&](Value* i) {
    forget(scopes_[serial_depth]);
    forget(scopes_.back());
    lane_offsets_.clear();
    scopes_[serial_depth].index = i;
  };
  std::vector<Value*> lines;
  for (Value* i : iterations) {
    set_iteration(i);
    lines.push_back(to_memory(vector(s.value), type));
  }
  set_iteration(iterations.front());
  const E stride = at_.lane_stride(s.index);
  sync();
  KILN_CHECK_THAT(stride, "lines of a tile are equally far apart");
  Value *first = scalar(s.index), *pitch = scalar(stride.id);
  llvm::Type* t = memory_type(c_, type);
  std::vector<Value*> begins{b_.CreateGEP(t, buffers_[s.target], first)};
  Value* last = length ? b_.CreateGEP(t, begins[0], b_.CreateMul(b_.CreateSub(length, b_.getInt64(1)), pitch))
                       : nullptr;
  while (begins.size() < static_cast<std::size_t>(lanes_)) {
    Value* next = b_.CreateGEP(t, begins.back(), pitch);
    if (last) next = b_.CreateSelect(b_.CreateICmpSLT(b_.getInt64(begins.size()), length), next, last);
    begins.push_back(next);
  }
  const int piece = std::min({16 / static_cast<int>(size_of(type)), static_cast<int>(lines.size()), lanes_});
  for (std::size_t line = 0; line < lines.size(); line += static_cast<std::size_t>(piece)) {
    const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(line);
    const std::vector<Value*> across = transposed({begin, begin + piece});
    for (int lane = lanes_; lane-- > 0;) {
      Value* v =
          b_.CreateShuffleVector(across[static_cast<std::size_t>(lane % piece)],
                                 llvm::createSequentialMask(static_cast<unsigned>(lane / piece * piece),
                                                            static_cast<unsigned>(piece), 0));
      Value* p = b_.CreateConstGEP1_64(t, begins[static_cast<std::size_t>(lane)], line);
      b_.CreateAlignedStore(v, p, element_align(type));
    }
  }
}

/// Transposes n lines of n elements, and as many squares beside it as the vectors have, by interleaving
/// halves: every step is an instruction of any x86 when n elements have 16 bytes.
std::vector<Value*> FunctionEmitter::transposed(std::vector<Value*> lines) {
  const int n = static_cast<int>(lines.size());
  llvm::SmallVector<int, 64> low, high;
  for (int lane = 0; lane < lanes_; ++lane) {
    const int from = lane / n * n + lane % n / 2 + lane % 2 * lanes_;
    low.push_back(from);
    high.push_back(from + n / 2);
  }
  for (int step = 1; step < n; step *= 2) {
    std::vector<Value*> next;
    for (std::size_t i = 0; i < lines.size() / 2; ++i)
      for (const auto& mask : {low, high})
        next.push_back(b_.CreateShuffleVector(lines[i], lines[i + lines.size() / 2], mask));
    lines = std::move(next);
  }
  return lines;
}

/// The low halves or quarters of 32-bit lanes by an instruction of its own: code generation would make one of
/// it and the store, which goes to the caches beside stores that do not, and that takes long.
Value* FunctionEmitter::narrowed(Value* v) {
  auto* cut = llvm::dyn_cast<llvm::TruncInst>(v);
  if (!cut || !target_.avx512 || lanes_ % 16 != 0) return v;
  llvm::Type *from = cut->getSrcTy()->getScalarType(), *to = cut->getDestTy()->getScalarType();
  if (!from->isIntegerTy(32) || to->getIntegerBitWidth() > 16 || to->getIntegerBitWidth() < 8) return v;
  llvm::Function* pmov = llvm::Intrinsic::getDeclaration(
      &module_, to->isIntegerTy(16) ? llvm::Intrinsic::x86_avx512_mask_pmov_dw_512
                                    : llvm::Intrinsic::x86_avx512_mask_pmov_db_512);
  llvm::SmallVector<Value*, 4> parts;
  for (int lane = 0; lane < lanes_; lane += 16) {
    Value* part = b_.CreateShuffleVector(cut->getOperand(0),
                                         llvm::createSequentialMask(static_cast<unsigned>(lane), 16, 0));
    parts.push_back(
        b_.CreateCall(pmov, {part, llvm::Constant::getNullValue(vec_of(to, 16)), b_.getInt16(0xffff)}));
  }
  return llvm::concatenateVectors(b_, parts);
}

void FunctionEmitter::stream_or_store(Value* v, Value* p, const BufferDecl& d, bool stream) {
  if (stream) v = narrowed(v);
  const std::uint64_t bytes = static_cast<std::uint64_t>(lanes_ * size_of(d.dtype));
  const std::uint64_t align = stream ? std::min<std::uint64_t>(64, bytes & (~bytes + 1))
                                     : static_cast<std::uint64_t>(size_of(d.dtype));
  llvm::StoreInst* st = b_.CreateAlignedStore(v, p, llvm::Align(align));
  if (stream)
    st->setMetadata(llvm::LLVMContext::MD_nontemporal,
                    llvm::MDNode::get(c_, llvm::ConstantAsMetadata::get(b_.getInt32(1))));
}

}  // namespace kiln::codegen
