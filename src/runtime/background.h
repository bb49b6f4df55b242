// Compiles that nobody waits for: jobs on a few threads of their own, begun in the order in which they came.
//
// A job runs under a CompileTicket that its thread took before it took the job. So exit waits for jobs that have
// begun and drops the others, and a fork finds no job half done: the child keeps the queue, and starts threads anew.
#pragma once

#include <functional>
#include <mutex>

namespace kiln::runtime {

/// Pre: the job throws nothing. When no thread can be started the job stays queued.
void run_in_background(std::function<void()> job);
/// Returns when no job is queued or running, or when the process exits. Not from a job.
void wait_for_background();

std::mutex& background_mutex();           // for fork
void forget_background_threads() noexcept;  // in a forked child, the mutex locked

}  // namespace kiln::runtime
