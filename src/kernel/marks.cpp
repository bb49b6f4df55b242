#include "kernel/marks.h"

#include "support/check.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

namespace kiln::kernel {
namespace {

constexpr char kBegin = '\x01', kEnd = '\x02';

}  // namespace

std::string word_of(Mark mark) { return cat(kBegin, static_cast<char>(mark.of), mark.number, kEnd); }

std::size_t shown_length(const std::string& text) {
  std::size_t length = 0;
  bool inside = false;
  for (const char c : text) {
    inside = inside || c == kBegin;
    length += !inside;
    inside = inside && c != kEnd;
  }
  return length;
}

std::string mark_assembly(const std::string& assembly,
                          const std::function<std::vector<Mark>(std::uint32_t, std::uint32_t)>& of) {
  std::string out, marks;
  bool debug = false;  // inside of what debuggers read
  std::istringstream in(assembly);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = std::min(line.find_first_not_of(" \t"), line.size());
    const std::string_view text = std::string_view(line).substr(first);
    if (text.starts_with(".section")) debug = text.find(".debug_") != text.npos;
    if (debug || text.starts_with(".file") || text.starts_with(".Ltmp") || text.starts_with("$L__tmp"))
      continue;
    if (text.starts_with(".loc")) {
      // of a function that was inlined, the place that it was inlined at
      const std::size_t outer = line.find("inlined_at");
      std::istringstream words(line.substr(outer == line.npos ? first + 4 : outer + 10));
      std::uint32_t file = 0, number = 0, column = 0;
      words >> file >> number >> column;
      marks.clear();
      if (number > 0)
        for (const Mark mark : of(number, column)) marks += word_of(mark);
      continue;
    }
    out += line;
    if (!text.empty() && text[0] != '.' && text[0] != '#' && text[0] != '/' && !text.ends_with(':'))
      out += marks;
    if (text.ends_with(':') && !text.starts_with(".L") && !text.starts_with("$L"))
      marks.clear();  // a function
    out += '\n';
  }
  return out;
}

Unmarked unmark(const std::string& text) {
  Unmarked out;
  out.lines.emplace_back();
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != kBegin) {
      out.text += text[at];
      if (text[at] == '\n') out.lines.emplace_back();
      continue;
    }
    const std::size_t end = text.find(kEnd, at);
    KILN_CHECK_THAT(end != text.npos && end > at + 2, "a mark without an end");
    Mark mark{static_cast<Mark::Of>(text[at + 1]), 0};
    std::from_chars(text.data() + at + 2, text.data() + end, mark.number);
    if (std::ranges::find(out.lines.back(), mark) == out.lines.back().end()) out.lines.back().push_back(mark);
    at = end;
  }
  if (out.text.ends_with('\n')) out.lines.pop_back();
  return out;
}

}  // namespace kiln::kernel
