// A notice, which needs no option, where one line of a program keeps causing compiles: what its evaluations
// compile is counted, and the line is named once with what changed.
#pragma once

#include "ir/graph.h"

#include <kiln/arguments.h>
#include <kiln/fusion_report.h>

#include <cstdint>
#include <string>

namespace kiln::engine {

/// Evaluations of a line that compile before the line is named.
constexpr int kCompileBudget = 16;

/// Whether the next evaluation of a line that compiles may be the one that names it: then the difference from
/// the one before is worth finding.
bool nears_compile_budget(const SourceLocation& line);
/// What was recorded otherwise than at the latest call for the line. Empty: it is the first.
FusionReport::Difference difference_of_line(const SourceLocation& line, ir::Graph graph);

/// An evaluation that this line forced made so many kernels anew, whose compiles have taken `ns` so far.
/// Warns at the budget's end, once for a line and for five lines at most. Returns what it said, or nothing.
std::string note_compiles(const SourceLocation& line, int kernels, std::uint64_t ns,
                          const FusionReport::Difference& difference);

/// Names no line from now on, or names them again: tests have lines that compile for many programs.
void mute_compile_budget(bool on);

}  // namespace kiln::engine
