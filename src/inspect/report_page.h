// The page of KILN_EXPLAIN=FILE.html: one file without network. It begins with the program that draws it;
// each plan and each later run is a script element behind that, so that a page grows by appending.
#pragma once

#include <kiln/fusion_report.h>

#include <string>
#include <string_view>

namespace kiln::engine {

/// What a page begins with.
std::string page_begin();
/// A plan, with the lines of the program that can be read.
std::string page_plan(const FusionReport& report);
/// A later run: a line of run_to_json.
std::string page_run(std::string_view run);

}  // namespace kiln::engine
