// kiln: what this machine can do, what the options are, what the cache holds, how fast it goes.
#include "commands.h"

#include <kiln/error.h>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  CLI::App app{"Kiln " KILN_VERSION ": lazy tensors that become fused native kernels", "kiln"};
  app.set_version_flag("--version", "kiln " KILN_VERSION);
  app.require_subcommand(1);
  kiln::tool::add_doctor(app);
  kiln::tool::add_env(app);
  kiln::tool::add_cache(app);
  kiln::tool::add_bench(app);
  kiln::tool::add_explain(app);
  kiln::tool::add_diff(app);
  kiln::tool::add_replay(app);
  kiln::tool::add_tune(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const std::exception& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "kiln: %s\n", e.what());
    return 1;
  }
}
