// FunctionEmitter: Philox blocks shared by the lanes that draw from them.
#include "codegen/llvm/llvm_function.h"

#include <llvm/Analysis/VectorUtils.h>

namespace kiln::codegen {

/// Whether an index is a multiple of n (a power of two) on lane 0, whatever the sizes.
bool FunctionEmitter::multiple_of(ExprId e, std::uint64_t n) {
  const ExprNode x = pool_[e];
  switch (x.prim) {
    case Prim::Const: return x.imm % n == 0;
    case Prim::Var: return at_.varying(e) && static_cast<std::uint64_t>(lanes_) % n == 0;
    case Prim::Mul: return multiple_of(x.a, n) || multiple_of(x.b, n);
    case Prim::Add:
    case Prim::Sub: return multiple_of(x.a, n) && multiple_of(x.b, n);
    default: return false;
  }
}

/// Lanes with successive indices, ascending or descending, share blocks: a block is made once and its words
/// are spread over the lanes. Null where the indices do not follow one another. Lanes that begin inside a
/// block take in one block more.
Value* FunctionEmitter::philox_run(ExprId e, const ExprNode& n) {
  ExprNode index = pool_[n.a];
  if (index.prim == Prim::Cast && pool_[index.a].prim == Prim::FromIndex) index.a = pool_[index.a].a;
  if (index.prim != Prim::Cast || pool_[index.a].type != DType::Int64 || at_.varying(n.b)) return nullptr;
  const E stride = at_.lane_stride(index.a);
  sync();
  const int per_block = 16 / static_cast<int>(size_of(n.type));
  const bool backwards = kernel::known(stride) == -1;
  if ((kernel::known(stride) != 1 && !backwards) || lanes_ % per_block != 0) return nullptr;
  Value* lane0 = scalar(index.a);
  Value* key = scalar(n.b);
  llvm::AllocaInst* round_keys = philox_round_keys(n.b, key);
  const bool aligned = !backwards && multiple_of(index.a, static_cast<std::uint64_t>(per_block));
  return place(at_.depth_of(e), e, vector_, [&]() -> Value* {
    Value* first =
        backwards ? b_.CreateSub(lane0, b_.getInt64(static_cast<std::uint64_t>(lanes_ - 1))) : lane0;
    const auto blocks = static_cast<unsigned>(lanes_ / per_block);
    // Block numbers wrap with the index: lanes that begin before a draw (behind padding, say) have indices
    // below zero.
    const std::uint64_t shift = per_block == 4 ? 2 : 1;
    auto round_key = [&](unsigned copies) {
      return [&, copies](int round, int half) -> Value* {
        if (!round_keys) return b_.CreateVectorSplat(copies, v_.philox_key(key, round, half));
        Value* at = b_.CreateConstGEP1_32(i64(), round_keys, static_cast<unsigned>(2 * round + half));
        return b_.CreateVectorSplat(copies, b_.CreateAlignedLoad(i64(), at, llvm::Align(8)));
      };
    };
    llvm::SmallVector<llvm::Constant*, 64> steps;
    for (unsigned l = 0; l < blocks; ++l) steps.push_back(b_.getInt64(l * static_cast<unsigned>(per_block)));
    Value* begins = b_.CreateAdd(b_.CreateVectorSplat(blocks, first), llvm::ConstantVector::get(steps));
    const auto own = v_.philox_pairs(v_.philox_block(b_.CreateLShr(begins, shift), round_key(blocks)));
    Value* words = spread(own, blocks, n.type);
    if (aligned) return words;
    Value* last = b_.CreateLShr(b_.CreateAdd(first, b_.getInt64(static_cast<std::uint64_t>(lanes_))), shift);
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
    return backwards ? reversed(out) : out;
  });
}

/// Blocks as successive words: their halves interleaved.
Value* FunctionEmitter::spread(std::pair<Value*, Value*> halves, unsigned blocks, DType type) {
  Value* all = b_.CreateShuffleVector(halves.first, halves.second, llvm::createInterleaveMask(blocks, 2));
  return b_.CreateBitCast(all,
                          vec_of(reg(type), static_cast<int>(blocks) * 16 / static_cast<int>(size_of(type))));
}

/// The 20 round keys, once a call, in memory: read from there they cost the loop no register. Null for a key
/// that changes inside the function.
llvm::AllocaInst* FunctionEmitter::philox_round_keys(ExprId id, Value* key) {
  if (at_.depth_of(id) != 0) return nullptr;
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

}  // namespace kiln::codegen
