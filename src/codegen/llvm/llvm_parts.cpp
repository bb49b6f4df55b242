// FunctionEmitter: windows without registers of masks, as AVX2 has them not.
//
// The lanes of one register are a part, with a window of its own of up to 64 bytes. Elements of 4 and 8 bytes
// are two loads of 32 bytes under masks, permuted. Elements of 1 and 2 bytes have no such loads; there a
// window is read in two pieces of 16, 8, 4, … bytes, of which the second ends where the window ends, or in
// four of 16 bytes: nothing else is read. Each piece is broadcast and shuffled to the lanes that take from
// it. Everything but these loads and shuffles is found out before the loop inside the Vector loop.
#include "codegen/llvm/llvm_function.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace kiln::codegen {

constexpr std::int64_t kPartBytes = 32;     // of a register
constexpr std::int64_t kWindowBytes = 64;   // at most
constexpr std::uint64_t kNoByte = 0x80;     // in an order of bytes: 0
constexpr std::uint64_t kNoBytes = 0x8080;  // for a pair of them
constexpr std::int64_t kFar = std::int64_t{1} << 62;

/// The windows of all parts. `offsets`: of the lanes from a base; `active`: the lanes that are on, null: all.
void FunctionEmitter::add_parts(Window& w, Value* offsets, Value* active) {
  const std::int64_t size = size_of(w.type), elements = kPartBytes / size;
  w.fits = b_.getTrue(), w.second = b_.getFalse(), w.any = b_.getFalse();
  Value *least = nullptr, *most = nullptr;
  for (std::int64_t lane = 0; lane < lanes_; lane += elements) {
    llvm::SmallVector<int, 32> lanes;
    for (std::int64_t k = 0; k < elements; ++k)
      lanes.push_back(static_cast<int>(std::min<std::int64_t>(lane + k, lanes_ - 1)));
    const auto each = [&](Value* x) { return b_.CreateVectorSplat(static_cast<unsigned>(elements), x); };
    const auto each_number = [&](std::int64_t x) { return each(b_.getInt64(static_cast<std::uint64_t>(x))); };
    Value* part_offsets = b_.CreateShuffleVector(offsets, lanes);
    Value* part_active = active ? b_.CreateShuffleVector(active, lanes) : nullptr;
    const auto or_else = [&](std::int64_t x) {
      return part_active ? b_.CreateSelect(part_active, part_offsets, each_number(x)) : part_offsets;
    };
    Value* first = b_.CreateIntMinReduce(or_else(kFar), true);
    Value* last = b_.CreateIntMaxReduce(or_else(-kFar), true);
    Value* length = b_.CreateSub(last, first);
    least = least ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, least, first) : first;
    most = most ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, most, last) : last;
    Value* any = b_.CreateICmpSGE(length, b_.getInt64(0));
    Value* fits = b_.CreateICmpSLT(length, b_.getInt64(static_cast<std::uint64_t>(kWindowBytes / size)));
    Value* second = b_.CreateICmpSGE(length, b_.getInt64(static_cast<std::uint64_t>(elements)));
    Value* from_first = b_.CreateSub(part_offsets, each(first));
    length = b_.CreateSelect(any, length, b_.getInt64(static_cast<std::uint64_t>(elements - 1)));
    WindowPart part = size >= 4 ? wide_part(w, from_first, length, part_active)
                                : narrow_part(w, from_first, length, part_active);
    part.first = first, part.any = any, part.keep = b_.CreateSExt(any, i64());
    w.parts.push_back(part);
    w.fits = b_.CreateAnd(w.fits, fits);
    w.second = b_.CreateOr(w.second, b_.CreateAnd(any, second));
    w.any = b_.CreateOr(w.any, any);
  }
  w.least = least;
  w.width = b_.CreateMul(b_.CreateSub(most, least), b_.getInt64(static_cast<std::uint64_t>(size)));
}

/// Elements of 4 or 8 bytes, as words of 4. `length`: how many elements behind the first the last one is.
FunctionEmitter::WindowPart FunctionEmitter::wide_part(Window& w, Value* from_first, Value* length,
                                                       Value* active) {
  constexpr int kWords = kPartBytes / 4;
  const int words = static_cast<int>(size_of(w.type)) / 4;  // of an element
  llvm::Type* type = vec_of(b_.getInt32Ty(), kWords);
  const auto each = [&](std::uint64_t x) {
    return b_.CreateVectorSplat(static_cast<unsigned>(kWords), b_.getInt32(static_cast<std::uint32_t>(x)));
  };
  const auto of_words = [&](Value* v) {  // what is known of elements, for each word of them
    llvm::SmallVector<int, kWords> order;
    for (int k = 0; k < kWords; ++k) order.push_back(k / words);
    return b_.CreateShuffleVector(v, order);
  };
  WindowPart part{};
  Value* order = b_.CreateTrunc(from_first, vec_of(b_.getInt32Ty(), kWords / words));
  if (words == 2) {
    llvm::SmallVector<llvm::Constant*, kWords> odd;
    for (std::uint32_t k = 0; k < kWords; ++k) odd.push_back(b_.getInt32(k % 2));
    order = b_.CreateAdd(b_.CreateShl(of_words(order), 1), llvm::ConstantVector::get(odd));
  }
  part.orders[0] = order;
  part.upper = b_.CreateShl(order, each(28));  // bit 3: of the second register
  Value* count =
      b_.CreateMul(b_.CreateAdd(length, b_.getInt64(1)), b_.getInt64(static_cast<std::uint64_t>(words)));
  count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, count, b_.getInt64(kWindowBytes / 4));
  Value* all = b_.CreateVectorSplat(static_cast<unsigned>(kWords), b_.CreateTrunc(count, b_.getInt32Ty()));
  for (std::uint32_t half = 0; half < 2; ++half) {
    llvm::SmallVector<llvm::Constant*, kWords> words_at;
    for (std::uint32_t k = 0; k < kWords; ++k) words_at.push_back(b_.getInt32(half * kWords + k));
    part.halves[half] = b_.CreateSExt(b_.CreateICmpSLT(llvm::ConstantVector::get(words_at), all), type);
  }
  Value* second = b_.CreateICmpSGT(count, b_.getInt64(kWords));
  part.next = b_.CreateSelect(second, b_.getInt64(kPartBytes), b_.getInt64(0));
  if (active) part.on = b_.CreateSExt(of_words(active), type);
  return part;
}

/// Elements of 1 or 2 bytes.
FunctionEmitter::WindowPart FunctionEmitter::narrow_part(Window& w, Value* from_first, Value* length,
                                                         Value* active) {
  const auto size = static_cast<std::uint64_t>(size_of(w.type));
  const auto elements = static_cast<unsigned>(kPartBytes) / static_cast<unsigned>(size);
  llvm::Type *i16 = b_.getInt16Ty(), *pairs = FixedVectorType::get(i16, elements);
  const auto number = [&](std::int64_t x) { return b_.getInt64(static_cast<std::uint64_t>(x)); };
  const auto each = [&](Value* x) { return b_.CreateVectorSplat(elements, b_.CreateTrunc(x, i16)); };
  WindowPart part{};
  Value* bytes = b_.CreateMul(b_.CreateAdd(length, number(1)), b_.getInt64(size));
  const auto at_least = [&](std::int64_t n) { return b_.CreateICmpSGE(bytes, number(n)); };
  part.four = at_least(33), part.has16 = at_least(16), part.has8 = at_least(8), part.has4 = at_least(4),
  part.has2 = at_least(2);
  Value* log = b_.CreateSelect(part.has4, b_.CreateSelect(part.has8, number(3), number(2)),
                               b_.CreateSelect(part.has2, number(1), number(0)));
  log = b_.CreateSelect(part.has16, number(4), log);
  Value* last = b_.CreateSub(bytes, b_.CreateShl(number(1), log));
  part.starts[0] = number(0);
  part.starts[1] = b_.CreateSelect(part.four, number(16), last);
  part.starts[2] = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, number(32), last);
  part.starts[3] = last;
  Value* at = b_.CreateMul(b_.CreateTrunc(from_first, pairs), each(b_.getInt64(size)));
  Value* piece = b_.CreateLShr(at, each(log));
  for (std::int64_t k = 0; k < 4; ++k) {
    Value* here = b_.CreateICmpEQ(piece, each(number(k)));
    if (active) here = b_.CreateAnd(here, active);
    Value *order = b_.CreateSub(at, each(part.starts[k])), *none = each(b_.getInt64(kNoBytes));
    if (size == 2)
      order = b_.CreateAdd(b_.CreateMul(order, each(b_.getInt64(0x101))), each(b_.getInt64(0x100)));
    else
      order = b_.CreateTrunc(order, vec_of(b_.getInt8Ty(), kPartBytes)),
      none = b_.CreateVectorSplat(kPartBytes, b_.getInt8(kNoByte));
    part.orders[k] = b_.CreateBitCast(b_.CreateSelect(here, order, none), vec_of(b_.getInt8Ty(), kPartBytes));
  }
  return part;
}

/// The elements of all parts, each of which begins at an address. As in memory.
Value* FunctionEmitter::elements_of_parts(const Window& w, DType type,
                                          llvm::function_ref<Value*(const WindowPart&)> at) {
  const std::int64_t size = size_of(type);
  llvm::Type* part_type =
      vec_of(b_.getIntNTy(static_cast<unsigned>(8 * size)), static_cast<int>(kPartBytes / size));
  llvm::SmallVector<Value*, 4> out;
  for (const WindowPart& part : w.parts) {
    Value* v = size >= 4 ? wide_elements(part, at(part)) : narrow_elements(part, at(part));
    out.push_back(b_.CreateBitCast(v, part_type));
  }
  Value* all = llvm::concatenateVectors(b_, out);
  if (static_cast<std::int64_t>(out.size()) * kPartBytes != lanes_ * size)
    all = b_.CreateShuffleVector(all, llvm::createSequentialMask(0, static_cast<unsigned>(lanes_), 0));
  return b_.CreateBitCast(all, vec(memory_type(c_, type)));
}

/// The elements of a window that fits, 0 on lanes that are off and where `bit` is.
Value* FunctionEmitter::parts_load(const ExprNode& n, const LaneSplit& split, const Window& w, Value* bit) {
  llvm::Type* t = memory_type(c_, n.type);
  Value* base = scalar(split.base.id);
  const BufferDecl& d = k_.buffers[n.imm];
  return elements_of_parts(w, n.type, [&](const WindowPart& part) {
    Value* buffer = nullptr;
    {
      llvm::IRBuilder<>::InsertPointGuard guard(b_);
      b_.SetInsertPoint(scopes_[static_cast<std::size_t>(at_.lanes_depth()) + 1].preheader_end);
      buffer = b_.CreateSelect(part.any, buffers_[n.imm], zero_memory());
    }
    Value* at = b_.CreateGEP(t, buffer, b_.CreateAnd(b_.CreateAdd(base, part.first), part.keep));
    if (bit) at = b_.CreateSelect(bit, at, zero_memory());
    // The loop inside goes from line to line of memory: the next vector's elements are asked for on the way.
    if (d.stream && d.ahead_param >= 0)
      prefetch(at, kPartBytes, d.ahead_param, false);
    else
      b_.CreateIntrinsic(
          llvm::Intrinsic::prefetch, {at->getType()},
          {b_.CreateGEP(b_.getInt8Ty(), at, w.width), b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
    return at;
  });
}

/// Whether a window may be found at the beginning of the function: `e` is all that decides it.
bool FunctionEmitter::is_steady(DType type, ExprId e) {
  const std::int64_t size = size_of(type);
  if (at_.depth_of(e) != 0) return false;
  if (has_registers(type)) return lanes_ >= 8 && lanes_ * size <= (size <= 2 ? 1 : 4) * kWindowBytes;
  return target_.vector_bytes >= 32 && lanes_ >= 4 && lanes_ * size <= 4 * kWindowBytes;
}

/// The window of lanes that lie apart by `stride`.
const FunctionEmitter::Window& FunctionEmitter::steady_window(DType type, ExprId stride) {
  for (const SteadyWindow& s : steady_windows_)
    if (s.stride == stride && s.lanes == lanes_ && size_of(s.window.type) == size_of(type)) return s.window;
  const auto count = static_cast<unsigned>(lanes_);
  Value* step = scalar(stride);
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(scopes_[1].preheader_end);
  llvm::SmallVector<llvm::Constant*, 64> lanes;
  for (unsigned l = 0; l < count; ++l) lanes.push_back(b_.getInt64(l));
  Value* offsets = b_.CreateMul(b_.CreateVectorSplat(count, step), llvm::ConstantVector::get(lanes));
  Window w{stride, kNoExpr, type};
  if (has_registers(type))
    add_pieces(w, offsets, nullptr), add_last_pieces(w);
  else
    add_parts(w, offsets, nullptr);
  steady_windows_.push_back({stride, lanes_, std::move(w)});
  return steady_windows_.back().window;
}

/// The elements of such a window from a base on; zeros where `bit` is false (null: it is not). `otherwise`:
/// those that no window has.
Value* FunctionEmitter::strided_load(Value* base, const Window& w, Value* bit, DType type,
                                     llvm::function_ref<Value*()> otherwise) {
  llvm::Type* as_in_memory = vec(memory_type(c_, type));
  const auto of_pieces = [&](llvm::ArrayRef<WindowPieces> pieces) {
    return b_.CreateBitCast(from_registers(pieces, base, bit, type), as_in_memory);
  };
  if (has_registers(type))
    return branch(
        w.fits, [&] { return of_pieces(w.pieces); },
        [&] { return branch(w.fits_four, [&] { return of_pieces(w.four); }, otherwise); });
  const auto of_parts = [&] {
    return elements_of_parts(w, type, [&](const WindowPart& part) {
      return b_.CreateSelect(combine(part.any, bit), b_.CreateGEP(memory_type(c_, type), base, part.first),
                             zero_memory());
    });
  };
  return branch(w.fits, of_parts, otherwise);
}

Value* FunctionEmitter::wide_elements(const WindowPart& part, Value* at) {
  llvm::Type* floats = vec_of(b_.getFloatTy(), kPartBytes / 4);
  const auto half = [&](Value* from, Value* lanes) {
    Value* v = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_maskload_d_256, {}, {from, lanes});
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permd, {}, {v, part.orders[0]});
  };
  Value* v = half(at, part.halves[0]);
  if (reach_ != Reach::One) {
    Value* upper = half(b_.CreateGEP(b_.getInt8Ty(), at, part.next), part.halves[1]);
    v = b_.CreateIntrinsic(
        llvm::Intrinsic::x86_avx_blendv_ps_256, {},
        {b_.CreateBitCast(v, floats), b_.CreateBitCast(upper, floats), b_.CreateBitCast(part.upper, floats)});
    v = b_.CreateBitCast(v, vec_of(b_.getInt32Ty(), kPartBytes / 4));
  }
  return part.on ? b_.CreateAnd(v, part.on) : v;
}

Value* FunctionEmitter::narrow_elements(const WindowPart& part, Value* at) {
  llvm::Type* bytes = vec_of(b_.getInt8Ty(), kPartBytes);
  const auto piece = [&](std::size_t k, int size) {
    Value* from = b_.CreateGEP(b_.getInt8Ty(), at, part.starts[k]);
    llvm::Type* t = size == 16 ? static_cast<llvm::Type*>(vec_of(b_.getInt8Ty(), 16))
                               : b_.getIntNTy(static_cast<unsigned>(8 * size));
    Value* v = b_.CreateAlignedLoad(t, from, llvm::Align(1));
    if (size < 16)
      return b_.CreateBitCast(b_.CreateVectorSplat(static_cast<unsigned>(kPartBytes / size), v), bytes);
    llvm::SmallVector<int, 32> twice;
    for (int k = 0; k < kPartBytes; ++k) twice.push_back(k % 16);
    return b_.CreateShuffleVector(v, twice);
  };
  const auto shuffled = [&](Value* v, std::size_t k) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_pshuf_b, {}, {v, part.orders[k]});
  };
  const auto four = [&]() -> Value* {
    Value* out = shuffled(piece(0, 16), 0);
    for (std::size_t k = 1; k < 4; ++k) out = b_.CreateOr(out, shuffled(piece(k, 16), k));
    return out;
  };
  const auto of_size = [&](int size) {
    return [&, size]() -> Value* { return llvm::concatenateVectors(b_, {piece(0, size), piece(1, size)}); };
  };
  const auto two = [&]() -> Value* {
    Value* both = branch(part.has16, of_size(16), [&] {
      return branch(part.has8, of_size(8), [&] {
        return branch(part.has4, of_size(4), [&] { return branch(part.has2, of_size(2), of_size(1)); });
      });
    });
    const auto half = [&](unsigned k) {
      return shuffled(b_.CreateShuffleVector(both, llvm::createSequentialMask(k * kPartBytes, kPartBytes, 0)),
                      k);
    };
    return b_.CreateOr(half(0), half(1));
  };
  return branch(part.four, four, two);
}

}  // namespace kiln::codegen
