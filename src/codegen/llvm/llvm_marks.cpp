#include "codegen/llvm/llvm_marks.h"

#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/IR/AssemblyAnnotationWriter.h>
#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/Support/FormattedStream.h>
#include <llvm/Support/raw_ostream.h>

#include <array>
#include <unordered_map>

namespace kiln::codegen {
namespace {

using kernel::Mark;

constexpr std::array kKinds = {Mark::Of::Expression, Mark::Of::Store, Mark::Of::Update};  // by column

class Writer final : public llvm::AssemblyAnnotationWriter {
 public:
  explicit Writer(const std::unordered_map<const llvm::Value*, Mark>& marks) : marks_(marks) {}
  void printInfoComment(const llvm::Value& value, llvm::formatted_raw_ostream& out) override {
    if (const auto at = marks_.find(&value); at != marks_.end()) out << kernel::word_of(at->second);
  }

 private:
  const std::unordered_map<const llvm::Value*, Mark>& marks_;
};

}  // namespace

llvm::DebugLoc begin_marks(llvm::Function& function) {
  llvm::DIBuilder builder(*function.getParent());
  llvm::DIFile* const file = builder.createFile("kernel", "");
  builder.createCompileUnit(llvm::dwarf::DW_LANG_C, file, "Kiln", false, "", 0, "",
                            llvm::DICompileUnit::LineTablesOnly);
  function.setSubprogram(
      builder.createFunction(file, function.getName(), function.getName(), file, 0,
                             builder.createSubroutineType(builder.getOrCreateTypeArray({})), 0,
                             llvm::DINode::FlagZero, llvm::DISubprogram::SPFlagDefinition));
  builder.finalize();
  return llvm::DILocation::get(function.getContext(), 0, 0, function.getSubprogram());
}

llvm::DebugLoc location_of(const llvm::Function& function, Mark mark) {
  unsigned column = 0;
  while (kKinds[column] != mark.of) ++column;
  return llvm::DILocation::get(function.getContext(), mark.number + 1, column, function.getSubprogram());
}

std::vector<Mark> mark_at(std::uint32_t line, std::uint32_t column) {
  if (line == 0 || column >= kKinds.size()) return {};
  return {{kKinds[column], line - 1}};
}

std::string print_with_marks(llvm::Module& module) {
  std::unordered_map<const llvm::Value*, Mark> marks;
  for (const llvm::Function& f : module)
    for (const llvm::Instruction& i : llvm::instructions(f))
      if (const llvm::DebugLoc& at = i.getDebugLoc(); at && at.getLine() > 0)
        marks.insert({&i, mark_at(at.getLine(), at.getCol()).front()});
  llvm::StripDebugInfo(module);
  Writer writer(marks);
  std::string text;
  llvm::raw_string_ostream out(text);
  module.print(out, &writer);
  return text;
}

}  // namespace kiln::codegen
