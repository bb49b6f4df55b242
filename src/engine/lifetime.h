// Lifetime: how compiles meet the end of the process, and fork.
//
// Every plan is made, and every kernel obtained, under a CompileTicket. Exit waits until no ticket is out and
// hands out no more: LLVM's own static objects die after that, with no thread inside them. Fork waits in the
// same way and takes this library's locks, so that the child finds them, and the guards of function-local
// statics, free.
#pragma once

namespace kiln::engine {

/// Covers the calling thread, and workers that it waits for; a thread that holds one gets more at once. May
/// block while the process forks. Once the process exits: CompileError on the exiting thread (which can still
/// be served by the interpreter), while other threads wait here for the end of the process.
class CompileTicket {
 public:
  CompileTicket();
  ~CompileTicket();
  CompileTicket(const CompileTicket&) = delete;
  CompileTicket& operator=(const CompileTicket&) = delete;

  /// To be called after LLVM was used: handlers run in reverse order of registration, so ours has to follow
  /// those of LLVM's static objects.
  static void guard_exit();
  /// Whether the process is exiting, so that no more tickets are handed out.
  static bool closed();
};

}  // namespace kiln::engine
