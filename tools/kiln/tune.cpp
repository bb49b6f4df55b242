// `kiln tune`: runs a program in adaptive mode until its regions are settled.
#include "commands.h"

#include <kiln/adapt.h>
#include <kiln/config.h>
#include <kiln/error.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace kiln::tool {
namespace {

struct Count {
  std::uint64_t tried = 0, won = 0;
};

Count count_of(const std::vector<AdaptResult>& results) {
  Count c;
  for (const AdaptResult& r : results) {
    c.tried += r.tried;
    c.won += r.won;
  }
  return c;
}

/// Returns when the program has ended. Error: it could not be started, or failed.
void run_program(const std::vector<std::string>& command) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw Error(std::string("[tune] no process can be started: ") + std::strerror(errno));
  if (child == 0) {
    setenv("KILN_ADAPT", "tune", 1);
    setenv("KILN_CACHE", "rw", 1);
    std::vector<char*> arguments;
    for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "kiln: [tune] %s: %s\n", arguments[0], std::strerror(errno));
    std::_Exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    throw Error("[tune] " + command[0] + " ended by signal " + std::to_string(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    throw Error("[tune] " + command[0] + " ended with exit code " + std::to_string(WEXITSTATUS(status)));
}

void tune(const std::vector<std::string>& command) {
  if (command.empty()) throw UserError("[tune] name a program, and its arguments behind it");
  Config c = config();
  if (c.cache != "rw")
    throw UserError("[tune] KILN_CACHE=" + c.cache + ": verdicts are kept in the disk cache");
  const Count before = count_of(kept_adapt_results());
  run_program(command);
  const std::vector<AdaptResult> results = kept_adapt_results();
  const Count after = count_of(results);
  std::fprintf(stderr, "%llu variants tried, %llu taken; all verdicts in the disk cache:\n%s",
               static_cast<unsigned long long>(after.tried - before.tried),
               static_cast<unsigned long long>(after.won - before.won), to_text(results).c_str());
}

}  // namespace

void add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tune", "Run a program; measure other ways to run its kernels, and keep the better ones (KILN_ADAPT)");
  command->prefix_command();
  command->footer("kiln tune PROGRAM [ARGUMENT...]");
  command->callback([command] { tune(command->remaining()); });
}

}  // namespace kiln::tool
