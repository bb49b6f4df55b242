// Marks: invisible words in generated text that say which part of its kernel a line is made of, so that a
// report can show the lines that belong to an operation. Text is emitted with marks or without; what is
// compiled has none.
#pragma once

#include "kernel/kernel.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kiln::kernel {

/// A part of a kernel: an expression, a store to a buffer, an update of an accumulator.
struct Mark {
  enum class Of : char { Expression = 'e', Store = 'b', Update = 'a' } of;
  std::uint32_t number;
  friend bool operator==(const Mark&, const Mark&) = default;
};
/// The word for a mark. It goes wherever the text goes that it stands in.
std::string word_of(Mark mark);
/// The length of text as people see it.
std::size_t shown_length(const std::string& text);

struct Unmarked {
  std::string text;
  std::vector<std::vector<Mark>> lines;  // the marks of each line
};
Unmarked unmark(const std::string& text);

/// Assembly whose .loc lines name lines of a source, with the marks of these lines: `of` has the marks of a
/// line that .loc names by its number and column. Lines and sections that are there for debuggers alone are
/// left out.
std::string mark_assembly(
    const std::string& assembly,
    const std::function<std::vector<Mark>(std::uint32_t line, std::uint32_t column)>& of);

/// print() with marks.
std::string print_marked(const Kernel& kernel);

}  // namespace kiln::kernel
