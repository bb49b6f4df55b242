// The environment: one table of every KILN_ name with its parser and its line of help.
#pragma once

#include <kiln/config.h>

#include <string>
#include <utility>
#include <vector>

namespace kiln {

/// Parses name=value pairs (only names beginning with KILN_ are looked at) into a Config. An unknown name or
/// a value without meaning throws UserError with one line that has the nearest valid spelling:
///   [config] KILN_MODE=lazzy: expected lazy, eager or interpret; did you mean 'lazy'?
Config parse_environment(const std::vector<std::pair<std::string, std::string>>& variables);
/// The same for the process's own environment; all defaults where that is not to be believed
/// (environment_variable).
Config parse_environment();
/// A variable of the process's environment, or null: always null in a program that has rights its caller has
/// not (setuid, setgid, capabilities). Whoever calls such a program must not choose files that it writes or
/// loads.
const char* environment_variable(const char* name);
/// One line per variable: name, values, default, meaning (KILN_HELP=1 and `kiln env` print it).
std::string environment_help();
/// The names and the values in force, for `kiln env` and the table in README.md.
struct EnvironmentRow {
  std::string name, values, value, meaning;  // values: what may be said; value: what is in force
  bool changed = false;
};
std::vector<EnvironmentRow> environment_rows(const Config& config);

}  // namespace kiln
