// FunctionEmitter: requests for memory that later iterations will use.
//
// Invariant: a request changes no value; its address is in a buffer of the kernel or a few lines behind it.
#include "codegen/llvm/llvm_function.h"

#include <algorithm>

namespace kiln::codegen {

constexpr std::uint64_t kPrefetchBytes = 2048;
constexpr std::uint64_t kVectorsAhead =
    64;  // iterations of a loop inside the Vector loop, of its quarter at most
constexpr std::uint64_t kRowsAhead = 2;  // iterations of a loop around it, of a row each
constexpr std::int64_t kLineBytes = 64;

/// Asks for the lines that this stream will read some iterations later: with long bodies the hardware's own
/// prefetcher does not run far enough ahead. What is wanted a given number of bytes ahead goes to the second
/// cache.
void FunctionEmitter::prefetch(Value* base, std::int64_t bytes, std::int32_t ahead_param, bool backwards,
                               bool written) {
  const bool near = ahead_param < 0;
  Value* ahead = b_.getInt64(backwards ? ~kPrefetchBytes + 1 : kPrefetchBytes);
  if (!near)
    ahead = scalar(pool_.intern(
        {Prim::Param, DType::Int64, kNoExpr, kNoExpr, kNoExpr, static_cast<std::uint64_t>(ahead_param)}));
  Value* from = b_.CreateGEP(b_.getInt8Ty(), base, ahead);
  for (std::int64_t line = 0; line < bytes; line += kLineBytes)
    prefetch_line(b_.CreateConstGEP1_64(b_.getInt8Ty(), from, static_cast<std::uint64_t>(line)), near,
                  written);
}

void FunctionEmitter::prefetch_line(Value* at, bool near, bool written) {
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {at->getType()},
                     {at, b_.getInt32(written), b_.getInt32(near ? 3 : 2), b_.getInt32(1)});
}

/// The depth of the loop that reads the places which an index is made of from memory, one an iteration; 0:
/// there is none.
int FunctionEmitter::depth_of_jump(ExprId index) {
  const ExprNode n = pool_[index];
  if (n.prim == Prim::Load) return at_.varying(index) ? 0 : at_.depth_of(index);
  int depth = 0;
  each_operand(n, [&](ExprId o) { depth = std::max(depth, depth_of_jump(o)); });
  return depth;
}

/// What holds or not for all lanes of a condition; null: nothing.
Value* FunctionEmitter::scalar_part(ExprId condition) {
  if (condition == kNoExpr) return nullptr;
  if (!at_.varying(condition)) return scalar(condition);
  const ExprNode n = pool_[condition];
  if (n.prim != Prim::And) return nullptr;
  Value* const first = scalar_part(n.a);
  return combine(first, scalar_part(n.b));
}

/// Whether so many iterations of a loop inside the Vector loop fit into the processor at a time that it reads
/// far enough ahead by itself, sooner than it makes more indices to ask for: the body stores elements as they
/// are, or nearly so.
bool FunctionEmitter::is_short(const LoopDecl& l) {
  constexpr int kMostWork = 4, kHalfCast = 8;  // instructions of a vector
  int work = 0;
  const auto add = [&](const auto& self, ExprId e) -> void {
    const ExprNode n = pool_[e];
    if (n.prim == Prim::Load || !at_.varying(e) || work > kMostWork) return;
    work += n.prim == Prim::Cast && (is_half(n.type) || is_half(pool_[n.a].type)) ? kHalfCast : 1;
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body) {
    if (s.kind != Stmt::Kind::Store) return false;
    add(add, s.value);
  }
  return work <= kMostWork;
}

/// Where a load with an index, or `first` elements behind it (null: at it), reads some iterations later of
/// the loop that reads its place from memory: no hardware foresees it, and few iterations of a body fit into
/// the processor at a time. Null: there is no such loop.
Value* FunctionEmitter::later_jump(const ExprNode& n, ExprId index, Value* first) {
  const BufferDecl& buffer = k_.buffers[n.imm];
  const int d = buffer.stream && buffer.ahead_param < 0 ? depth_of_jump(index) : 0;
  if (d == 0) return nullptr;
  const std::size_t depth_of_loop = static_cast<std::size_t>(d);
  const LoopDecl& l = *scopes_[depth_of_loop].loop;
  if (l.kind != LoopKind::Grid && l.kind != LoopKind::Serial) return nullptr;
  if (d > at_.lanes_depth() && is_short(l)) return nullptr;
  Value* const here = scopes_[depth_of_loop].index;
  Value* const end = l.kind == LoopKind::Grid ? static_cast<Value*>(fn_->getArg(2)) : scalar(l.extent);
  Value *ahead = b_.getInt64(kRowsAhead), *later = nullptr;
  if (d > at_.lanes_depth()) {
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    b_.SetInsertPoint(scopes_[depth_of_loop].preheader_end);
    ahead =
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateLShr(end, 2), b_.getInt64(kVectorsAhead));
    ahead = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, ahead, b_.getInt64(1));
  }
  {
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    if (d < depth()) b_.SetInsertPoint(scopes_[depth_of_loop + 1].preheader_end);
    later = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateNSWAdd(here, ahead),
                                     b_.CreateNSWSub(end, b_.getInt64(1)));
  }
  const std::vector<Value*> scalars = scalar_, vectors = vector_;
  for (std::size_t scope = depth_of_loop; scope < scopes_.size(); ++scope)
    for (const ExprId e : scopes_[scope].memoized) scalar_[e] = vector_[e] = nullptr;
  scopes_[depth_of_loop].index = later;
  llvm::Type* t = memory_type(c_, n.type);
  Value* at = b_.CreateGEP(t, buffers_[n.imm], scalar(index));
  if (first) at = b_.CreateGEP(t, at, first);
  if (Value* on = scalar_part(n.b)) at = b_.CreateSelect(on, at, zero_memory());
  scopes_[depth_of_loop].index = here;
  scalar_ = scalars, vector_ = vectors;
  sync();
  return at;
}

/// Asks for what a load of adjacent elements reads some iterations later, if something says where.
void FunctionEmitter::prefetch_jump(const ExprNode& n) {
  Value* at = later_jump(n, n.a, nullptr);
  if (!at) return;
  prefetch_line(at, true, false);
  const std::int64_t bytes = lanes_ * size_of(n.type);
  if (bytes >= kLineBytes / 2)
    prefetch_line(b_.CreateConstGEP1_64(b_.getInt8Ty(), at, static_cast<std::uint64_t>(bytes - 1)), true,
                  false);
}

/// The same of a window, whose elements may lie further apart than lanes do; of less, what is beside it, too.
void FunctionEmitter::prefetch_jump(const ExprNode& n, const LaneSplit& split, const Window& w) {
  Value* at = later_jump(n, split.base.id, w.least);
  if (!at) return;
  const auto number = [&](std::int64_t x) { return b_.getInt64(static_cast<std::uint64_t>(x)); };
  const std::int64_t bytes = lanes_ * size_of(n.type);
  Value* last = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, w.width, number(bytes - 1));
  for (std::int64_t line = 0; line < bytes; line += kLineBytes)
    prefetch_line(b_.CreateConstGEP1_64(b_.getInt8Ty(), at, static_cast<std::uint64_t>(line)), true, false);
  for (Value* behind : {b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, last, number(bytes)), last})
    prefetch_line(b_.CreateGEP(b_.getInt8Ty(), at, behind), true, false);
}

/// What a load of adjacent elements at `base` wants ahead, if anything.
void FunctionEmitter::prefetch_later(const ExprNode& n, Value* base, bool backwards) {
  const BufferDecl& d = k_.buffers[n.imm];
  if (!d.stream) return;
  if (d.ahead_param < 0 && depth_of_jump(n.a) > 0)
    prefetch_jump(n);
  else
    prefetch(base, lanes_ * size_of(n.type), d.ahead_param, backwards);
}

}  // namespace kiln::codegen
