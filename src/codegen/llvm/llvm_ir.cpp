#include "codegen/llvm/llvm_ir.h"

#include "codegen/llvm/llvm_function.h"
#include "codegen/llvm/llvm_marks.h"

#include <llvm/IR/Dominators.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

namespace kiln::codegen {

FunctionEmitter::FunctionEmitter(const Kernel& kernel, const LlvmTarget& target, llvm::Module& module,
                                 const std::string& name, bool marked)
    : k_(kernel),
      at_(kernel),
      pool_(at_.pool()),
      target_(target),
      module_(module),
      c_(module.getContext()),
      b_(c_),
      v_(b_, target),
      marked_(marked) {
  llvm::Type* ptr = llvm::PointerType::getUnqual(c_);
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, i64(), i64(), ptr}, false);
  fn_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  fn_->addFnAttr(llvm::Attribute::NoUnwind);
  for (unsigned i : {0u, 3u}) fn_->addParamAttr(i, llvm::Attribute::NoAlias);
  if (marked_) b_.SetCurrentDebugLocation(mark_here_ = begin_marks(*fn_));
  fn_->addFnAttr("prefer-vector-width", std::to_string(target.vector_bytes * 8));
  fn_->addFnAttr("min-legal-vector-width", std::to_string(target.vector_bytes * 8));
}

void FunctionEmitter::emit(const std::vector<Stmt>& body) {
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

void FunctionEmitter::load_arguments() {
  llvm::Type* ptr = llvm::PointerType::getUnqual(c_);
  scalar_.assign(pool_.size(), nullptr);
  vector_.assign(pool_.size(), nullptr);
  accs_.resize(k_.accs.size());
  for (ExprId e = 0; e < pool_.size(); ++e) {
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Running) accs_[n.imm].scan = accs_[n.imm].reads_running = true;
    if (n.prim == Prim::Before) accs_[n.imm].scan = accs_[n.imm].reads_before = true;
  }
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
    buffers_.push_back(b_.CreateAlignedLoad(ptr,
                                            b_.CreateConstGEP1_32(ptr, pointers, static_cast<unsigned>(i)),
                                            llvm::Align(8), "buf" + std::to_string(i)));
  }
}

Value* FunctionEmitter::param(std::uint64_t i) {
  return b_.CreateAlignedLoad(i64(), b_.CreateConstGEP1_64(i64(), params_, i), llvm::Align(8),
                              "p" + std::to_string(i));
}

FunctionEmitter::Marked::Marked(FunctionEmitter& emitter, kernel::Mark mark)
    : emitter_(emitter), before_(emitter.mark_here_) {
  const bool own = mark.of != kernel::Mark::Of::Expression || mark.number < emitter.k_.pool.size();
  if (!emitter.marked_ || !own) return;
  emitter.mark_here_ = location_of(*emitter.fn_, mark);
  emitter.b_.SetCurrentDebugLocation(emitter.mark_here_);
}

FunctionEmitter::Marked::~Marked() {
  if (!emitter_.marked_) return;
  emitter_.mark_here_ = before_;
  emitter_.b_.SetCurrentDebugLocation(before_);
}

void FunctionEmitter::promote_allocas() {
  llvm::DominatorTree tree(*fn_);
  llvm::PromoteMemToReg(allocas_, tree);
}

std::unique_ptr<llvm::Module> emit_llvm(const Kernel& kernel, const std::string& symbol,
                                        const LlvmTarget& target, llvm::LLVMContext& context, bool marked) {
  auto module = std::make_unique<llvm::Module>(symbol, context);
  FunctionEmitter(kernel, target, *module, symbol, marked).emit(kernel.body);
  auto section = [&](const char* suffix, const std::vector<Stmt>& body) {
    if (!body.empty()) FunctionEmitter(kernel, target, *module, symbol + suffix, marked).emit(body);
  };
  section("_link", kernel.link);
  section("_second", kernel.second);
  section("_finish", kernel.finish);
  return module;
}

}  // namespace kiln::codegen
