#include "kernel/marks.h"

#include "support/check.h"

#include <algorithm>
#include <charconv>

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
