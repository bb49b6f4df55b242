// Why two operations are not one kernel: every text that a refusal may have, for KILN_EXPLAIN and its page.
#pragma once

#include <string_view>

namespace kiln::plan {

/// "…" stands for numbers, shapes and names. docs/seeing.md has a row for each, which a test compares;
/// another test compares what the planner says.
inline constexpr std::string_view kReasons[] = {
    "contractions run as library calls",
    "operands of matrix products are read from memory",
    "each matrix product is a kernel of its own",
    "a matrix product takes maps along, no reductions, scans or loops",
    "its result is written into an argument",
    "an attention is one kernel by itself",
    "attention: …",
    "sorts and searches run as library calls",
    "a loop over whole tensors runs its own kernels",
    "read at other points, through …",
    "they go along different axes: …",
    "spread from … to …, along other axes than the reduction's",
    "spread from … to …, where nothing is reduced",
    "one has points …, the other …",
    "one runs from the start of the axis, the other from its end",
    "together … primitives, above the cap of …",
    "more than … inputs",
    "more than … reductions and scans",
    "more than … results that are held",
    "more than … arrays joined",
    "… independent … keep fewer than … threads busy over … elements",
    "… elements are combined in chunks of a fixed size (strict)",
    "scans and reductions combine in orders of their own (strict)",
    "reductions over different axes combine in orders of their own (strict)",

    "reductions along further axes, of values that need several sweeps",
    "a loop would run once for each phase of the other's rows",
    "another kernel lies between them",
    "no elements",
};

/// Whether a text is one of them.
constexpr bool is_reason(std::string_view text, std::string_view pattern) {
  constexpr std::string_view kAny = "…";
  const std::size_t any = pattern.find(kAny);
  if (any == pattern.npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, any))) return false;
  text.remove_prefix(any);
  pattern.remove_prefix(any + kAny.size());
  for (std::size_t i = 0; i <= text.size(); ++i)
    if (is_reason(text.substr(i), pattern)) return true;
  return false;
}
constexpr bool is_reason(std::string_view text) {
  for (const std::string_view pattern : kReasons)
    if (is_reason(text, pattern)) return true;
  return false;
}

}  // namespace kiln::plan
