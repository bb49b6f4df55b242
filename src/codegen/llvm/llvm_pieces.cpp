// FunctionEmitter: windows under registers of masks (AVX-512).
//
// The elements that the lanes of one register read are taken from pieces of adjacent memory of up to 64
// bytes, which are loaded under masks and permuted. A piece begins at the first element that none before it
// has: the second has what skips every other element, or goes on elsewhere behind the end of a row.
// Everything but these loads and permutations is found out before the loop inside the Vector loop: of two
// pieces for the loops of windows that are known to fit into them, of four for the loop of those that are
// not.
#include "codegen/llvm/llvm_function.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace kiln::codegen {

constexpr std::int64_t kPieceBytes = 64;
constexpr std::int64_t kFar = std::int64_t{1} << 62;
// Places behind the first element are numbers of 32 bits: all those far away are as far, and in no piece;
// lanes that are off, or have their piece, are gone.
constexpr std::uint32_t kFarAway = 0x3fffffff, kGone = 0x7fffffff;

/// The elements of a piece up to the last, `last` behind the first of them.
Value* FunctionEmitter::piece_mask(const WindowPieces& p, int k, Value* last, std::uint32_t elements) {
  last = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, last, b_.getInt64(elements - 1));
  Value* bits = b_.CreateLShr(b_.getInt64(~std::uint64_t{0}), b_.CreateSub(b_.getInt64(63), last));
  bits = b_.CreateTrunc(bits, b_.getIntNTy(elements));
  return b_.CreateSelect(p.there[k], bits, llvm::Constant::getNullValue(bits->getType()));
}

/// The next piece, from the least place that is left on. What lies between two pieces is memory of the array:
/// a piece is read whole where another follows it, else up to the last element.
void FunctionEmitter::add_piece(WindowPieces& p, int k, DType type) {
  const auto elements = static_cast<std::uint32_t>(kPieceBytes / size_of(type));
  const auto count = llvm::cast<FixedVectorType>(p.left->getType())->getNumElements();
  const auto each = [&](Value* x) { return b_.CreateVectorSplat(count, x); };
  const auto each_number = [&](std::uint32_t x) { return each(b_.getInt32(x)); };
  Value* start = b_.getInt32(0);
  if (k > 0) start = b_.CreateIntMinReduce(p.left, false);
  p.there[k] = k == 0 ? p.any : b_.CreateICmpULT(start, b_.getInt32(kFarAway - elements));
  if (k > 0) start = b_.CreateSelect(p.there[k], start, b_.getInt32(0));
  Value* from_start = k == 0 ? p.left : b_.CreateSub(p.left, each(start));
  Value* here = b_.CreateICmpULT(from_start, each_number(elements));
  p.masks[k] = piece_mask(p, k, b_.CreateZExt(b_.CreateSub(p.last, start), i64()), elements);
  p.starts[k] = b_.CreateZExt(start, i64());
  Value* place = k % 2 == 0 ? from_start : b_.CreateAdd(from_start, each_number(elements));
  p.order = k == 0 ? place : b_.CreateSelect(here, place, p.order);
  if (k >= 2) p.upper = p.upper ? b_.CreateOr(p.upper, here) : here;
  p.left = b_.CreateSelect(here, each_number(kGone), p.left);
}

/// Whether no lane is left without a piece.
static Value* has_all(llvm::IRBuilder<>& b, Value* left) {
  const auto count = llvm::cast<FixedVectorType>(left->getType())->getNumElements();
  Value* some = b.CreateICmpNE(left, b.CreateVectorSplat(count, b.getInt32(kGone)));
  return b.CreateNot(b.CreateOrReduce(some));
}

/// The first two pieces of each register's lanes. `offsets`: of the lanes from a base; `active`: the lanes
/// that are on, null: all.
void FunctionEmitter::add_pieces(Window& w, Value* offsets, Value* active) {
  const std::int64_t size = size_of(w.type), elements = kPieceBytes / size;
  const auto count = static_cast<unsigned>(std::min<std::int64_t>(elements, lanes_));
  const auto each = [&](std::int64_t x) {
    return b_.CreateVectorSplat(count, b_.getInt64(static_cast<std::uint64_t>(x)));
  };
  w.fits = b_.getTrue(), w.second = b_.getFalse(), w.any = b_.getFalse();
  Value *least = b_.getInt64(kFar), *most = b_.getInt64(static_cast<std::uint64_t>(-kFar));
  for (unsigned lane = 0; lane < static_cast<unsigned>(lanes_); lane += count) {
    const auto lanes_of = [&](Value* v) {
      return static_cast<int>(count) == lanes_
                 ? v
                 : b_.CreateShuffleVector(v, llvm::createSequentialMask(lane, count, 0));
    };
    WindowPieces p{};
    Value *own = lanes_of(offsets), *on = active ? lanes_of(active) : nullptr;
    Value* first = b_.CreateIntMinReduce(on ? b_.CreateSelect(on, own, each(kFar)) : own, true);
    p.any = on ? b_.CreateICmpSLT(first, b_.getInt64(kFar)) : b_.getTrue();
    p.first = b_.CreateSelect(p.any, first, b_.getInt64(0));
    Value* behind = b_.CreateSub(own, b_.CreateVectorSplat(count, p.first));
    behind = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, behind, each(kFarAway));
    p.left = b_.CreateTrunc(behind, vec_of(b_.getInt32Ty(), static_cast<int>(count)));
    if (on) p.left = b_.CreateSelect(on, p.left, b_.CreateVectorSplat(count, b_.getInt32(kGone)));
    Value* there = on ? b_.CreateSelect(on, p.left, b_.CreateVectorSplat(count, b_.getInt32(0))) : p.left;
    p.last = b_.CreateIntMaxReduce(there, false);
    least = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, least, first);
    most = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, most,
                                    b_.CreateAdd(p.first, b_.CreateZExt(p.last, i64())));
    add_piece(p, 0, w.type);
    add_piece(p, 1, w.type);
    w.fits = b_.CreateAnd(w.fits, has_all(b_, p.left));
    w.second = b_.CreateOr(w.second, p.there[1]);
    w.any = b_.CreateOr(w.any, p.any);
    p.whole_order = register_order(p, w.type);
    w.pieces.push_back(p);
  }
  w.least = b_.CreateSelect(w.any, least, b_.getInt64(0));
  w.width = b_.CreateMul(b_.CreateSub(most, least), b_.getInt64(static_cast<std::uint64_t>(size)));
  w.width = b_.CreateSelect(w.any, w.width, b_.getInt64(0));
}

/// The last two pieces, here.
void FunctionEmitter::add_last_pieces(Window& w) {
  w.fits_four = b_.getTrue();
  for (WindowPieces p : w.pieces) {
    add_piece(p, 2, w.type);
    add_piece(p, 3, w.type);
    w.fits_four = b_.CreateAnd(w.fits_four, has_all(b_, p.left));
    p.whole_order = register_order(p, w.type);
    w.four.push_back(p);
  }
}

/// The same before the loop of windows that are not known to fit into two.
void FunctionEmitter::ask_about_four(Window& w) {
  if (w.fits_four) return;
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  if (unknown_at_)
    b_.SetInsertPoint(unknown_at_);
  else if (depth() > at_.lanes_depth())
    b_.SetInsertPoint(scopes_[static_cast<std::size_t>(at_.lanes_depth()) + 1].preheader_end);
  add_last_pieces(w);
}

/// Whether the lanes of a window lie apart by a number of the kernel, so that its pieces are found at the
/// beginning of the function, for vectors of which at most the last lanes are off.
bool FunctionEmitter::known_at_entry(DType type, const LaneSplit& split) {
  if (!has_registers(type) || early_ || mask_at(at_.lanes_depth()) != mask_) return false;
  const E stride = at_.lane_stride(split.lanes.id);
  sync();
  return stride && is_steady(type, stride.id);
}

/// Such a window, which begins where the first lane is. No piece reads beyond the last lane that is on.
FunctionEmitter::Window FunctionEmitter::moved_window(DType type, const LaneSplit& split) {
  const E stride = at_.lane_stride(split.lanes.id);
  sync();
  Value *first = scalar(split.lanes.id), *step = scalar(stride.id);
  Window w = steady_window(type, stride.id);
  w.lanes = split.lanes.id, w.moved = true;
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  if (depth() > at_.lanes_depth())
    b_.SetInsertPoint(scopes_[static_cast<std::size_t>(at_.lanes_depth()) + 1].preheader_end);
  w.least = b_.CreateAdd(w.least, first);
  for (auto* pieces : {&w.pieces, &w.four})
    for (std::size_t k = 0; k < pieces->size(); ++k) {
      WindowPieces& p = (*pieces)[k];
      p.first = b_.CreateAdd(p.first, first);
      if (remaining_) end_pieces(p, k, step, type);
    }
  if (!remaining_) return w;
  // Of lanes that go backwards the last ones are those of the first elements: these are gathered.
  Value* known = b_.CreateOr(b_.CreateICmpSGT(step, b_.getInt64(0)), is_full());
  w.fits = b_.CreateAnd(w.fits, known);
  w.fits_four = b_.CreateAnd(w.fits_four, known);
  w.second = b_.CreateOr(w.second, b_.CreateNot(known));
  return w;
}

/// Ends the pieces of the register `number` of a vector at the last lane that is on; lanes are `step` apart.
void FunctionEmitter::end_pieces(WindowPieces& p, std::size_t number, Value* step, DType type) {
  const auto elements = static_cast<std::uint32_t>(kPieceBytes / size_of(type));
  const auto count = llvm::cast<FixedVectorType>(p.left->getType())->getNumElements();
  Value* here = b_.CreateSub(remaining_, b_.getInt64(number * count));  // lanes that are on
  Value* behind = b_.CreateMul(b_.CreateSub(here, b_.getInt64(1)), step);
  Value* last =
      b_.CreateSelect(b_.CreateICmpSLT(here, b_.getInt64(count)), behind, b_.CreateZExt(p.last, i64()));
  p.any = b_.CreateICmpSGT(here, b_.getInt64(0));
  p.last = b_.CreateTrunc(b_.CreateSelect(p.any, last, b_.getInt64(0)), b_.getInt32Ty());
  for (int k = 0; k < WindowPieces::kMost && p.there[k]; ++k) {
    p.there[k] = combine(b_.CreateAnd(p.there[k], p.any), b_.CreateICmpSLE(p.starts[k], last));
    p.masks[k] = piece_mask(p, k, b_.CreateSub(last, p.starts[k]), elements);
  }
}

/// The places of a whole register's elements in two pieces.
Value* FunctionEmitter::register_order(const WindowPieces& p, DType type) {
  const std::int64_t size = size_of(type), elements = kPieceBytes / size;
  const auto count = static_cast<int>(llvm::cast<FixedVectorType>(p.order->getType())->getNumElements());
  Value* order = b_.CreateZExtOrTrunc(p.order, vec_of(b_.getIntNTy(static_cast<unsigned>(8 * size)), count));
  if (count == elements) return order;
  llvm::SmallVector<int, 64> lanes;
  for (int k = 0; k < elements; ++k) lanes.push_back(std::min(k, count - 1));
  return b_.CreateShuffleVector(order, lanes);
}

Value* FunctionEmitter::load_piece(const WindowPieces& p, int k, Value* at, DType type) {
  const auto size = static_cast<unsigned>(size_of(type)),
             elements = static_cast<unsigned>(kPieceBytes) / size;
  llvm::Type* whole = vec_of(b_.getIntNTy(8 * size), static_cast<int>(elements));
  Value* lanes = b_.CreateBitCast(p.masks[k], vec_of(b_.getInt1Ty(), static_cast<int>(elements)));
  return b_.CreateMaskedLoad(whole, at, element_align(type), lanes, llvm::Constant::getNullValue(whole));
}

/// The elements of one or two pieces in an order.
Value* FunctionEmitter::permuted(Value* order, Value* piece, Value* other, DType type) {
  const std::int64_t size = size_of(type);
  const llvm::Intrinsic::ID of_two = size == 1   ? llvm::Intrinsic::x86_avx512_vpermi2var_qi_512
                                     : size == 2 ? llvm::Intrinsic::x86_avx512_vpermi2var_hi_512
                                     : size == 4 ? llvm::Intrinsic::x86_avx512_vpermi2var_d_512
                                                 : llvm::Intrinsic::x86_avx512_vpermi2var_q_512;
  const llvm::Intrinsic::ID of_one = size == 1   ? llvm::Intrinsic::x86_avx512_permvar_qi_512
                                     : size == 2 ? llvm::Intrinsic::x86_avx512_permvar_hi_512
                                     : size == 4 ? llvm::Intrinsic::x86_avx512_permvar_si_512
                                                 : llvm::Intrinsic::x86_avx512_permvar_di_512;
  llvm::Function* permute = llvm::Intrinsic::getDeclaration(&module_, other ? of_two : of_one);
  return other ? b_.CreateCall(permute, {piece, order, other}) : b_.CreateCall(permute, {piece, order});
}

Value* FunctionEmitter::joined_registers(llvm::ArrayRef<Value*> registers, DType type) {
  Value* out = llvm::concatenateVectors(b_, registers);
  if (static_cast<std::int64_t>(registers.size()) * kPieceBytes == lanes_ * size_of(type)) return out;
  return b_.CreateShuffleVector(out, llvm::createSequentialMask(0, static_cast<unsigned>(lanes_), 0));
}

/// The elements of a window that is known to fit into one piece, or two; of none where there is none. No
/// branch, and what does not change in the inner loop is outside it.
Value* FunctionEmitter::known_window_load(const ExprNode& n, const LaneSplit& split, const Window& w,
                                          Value* bit) {
  llvm::Type* t = memory_type(c_, n.type);
  Value* base = scalar(split.base.id);
  const BufferDecl& d = k_.buffers[n.imm];
  const bool ahead = d.stream && d.ahead_param >= 0;
  llvm::SmallVector<Value*, 4> registers;
  for (const WindowPieces& p : w.pieces) {
    Value *buffer = nullptr, *keep = nullptr, *next = nullptr;
    {
      llvm::IRBuilder<>::InsertPointGuard guard(b_);
      b_.SetInsertPoint(scopes_[static_cast<std::size_t>(at_.lanes_depth()) + 1].preheader_end);
      buffer = b_.CreateSelect(p.any, buffers_[n.imm], zero_memory());
      keep = b_.CreateSExt(p.any, i64());
      next = b_.CreateMul(p.starts[1], b_.getInt64(static_cast<std::uint64_t>(size_of(n.type))));
    }
    Value* at = b_.CreateGEP(t, buffer, b_.CreateAnd(b_.CreateAdd(base, p.first), keep));
    if (bit) at = b_.CreateSelect(bit, at, zero_memory());
    if (ahead) prefetch(at, kPieceBytes, d.ahead_param, false);
    Value *piece = load_piece(p, 0, at, n.type), *other = nullptr;
    if (reach_ == Reach::Two) {
      Value* behind =
          b_.CreateGEP(b_.getInt8Ty(), at, bit ? b_.CreateSelect(bit, next, b_.getInt64(0)) : next);
      if (ahead) prefetch(behind, kPieceBytes, d.ahead_param, false);
      other = load_piece(p, 1, behind, n.type);
    }
    registers.push_back(permuted(p.whole_order, piece, other, n.type));
  }
  return joined_registers(registers, n.type);
}

/// The elements of a window's pieces from a base on; zeros where `bit` is false (null: it is not).
Value* FunctionEmitter::from_registers(llvm::ArrayRef<WindowPieces> pieces, Value* base, Value* bit,
                                       DType type) {
  llvm::Type* t = memory_type(c_, type);
  llvm::SmallVector<Value*, 4> registers;
  for (const WindowPieces& p : pieces) {
    Value *order = p.whole_order, *first = b_.CreateGEP(t, base, p.first);
    const auto piece = [&](int k) {
      // Beyond the buffer even a load of no lanes takes long.
      Value* at =
          b_.CreateSelect(combine(p.there[k], bit), b_.CreateGEP(t, first, p.starts[k]), zero_memory());
      return load_piece(p, k, at, type);
    };
    Value* out = permuted(order, piece(0), piece(1), type);
    if (p.upper) {
      Value* upper = p.upper;
      const auto all = llvm::cast<FixedVectorType>(out->getType())->getNumElements();
      const auto count = llvm::cast<FixedVectorType>(upper->getType())->getNumElements();
      if (all != count)
        upper = b_.CreateShuffleVector(upper, llvm::Constant::getNullValue(upper->getType()),
                                       llvm::createSequentialMask(0, count, all - count));
      out = b_.CreateSelect(upper, permuted(order, piece(2), piece(3), type), out);
    }
    registers.push_back(out);
  }
  return joined_registers(registers, type);
}

}  // namespace kiln::codegen
