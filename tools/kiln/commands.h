// The subcommands of `kiln`, each in its own file: adds itself to the application and runs from its callback.
// A command fails by throwing.
#pragma once

#include <CLI/CLI.hpp>

namespace kiln::tool {

void add_doctor(CLI::App& app);
void add_env(CLI::App& app);
void add_cache(CLI::App& app);
void add_bench(CLI::App& app);
void add_explain(CLI::App& app);
void add_diff(CLI::App& app);
void add_replay(CLI::App& app);
void add_tune(CLI::App& app);

}  // namespace kiln::tool
