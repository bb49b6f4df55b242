#include "commands.h"

#include "support/env.h"

#include <kiln/config.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace kiln::tool {
namespace {

void run(bool json) {
  const std::vector<EnvironmentRow> rows = environment_rows(config());
  if (json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const EnvironmentRow& row : rows)
      out.push_back({{"name", row.name},
                     {"value", row.value},
                     {"changed", row.changed},
                     {"values", row.values},
                     {"meaning", row.meaning}});
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::size_t name_width = 0, value_width = 0;
  for (const EnvironmentRow& row : rows) {
    name_width = std::max(name_width, row.name.size());
    value_width = std::max(value_width, std::min<std::size_t>(row.value.size(), 24));
  }
  for (const EnvironmentRow& row : rows)
    std::printf("%c %-*s  %-*s  %s\n", row.changed ? '*' : ' ', static_cast<int>(name_width),
                row.name.c_str(), static_cast<int>(value_width), row.value.empty() ? "-" : row.value.c_str(),
                row.meaning.c_str());
  std::printf("\n* differs from the default\n");
}

}  // namespace

void add_env(CLI::App& app) {
  CLI::App* command = app.add_subcommand("env", "The KILN_ variables and the values in force");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->callback([json] { run(*json); });
}

}  // namespace kiln::tool
