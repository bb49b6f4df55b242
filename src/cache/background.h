// Compiles that nobody waits for: jobs on a few threads of their own, begun in the order in which they came.
//
// A job runs under a CompileTicket that its thread took before it took the job. So exit waits for jobs that
// have begun, and a fork finds no job half done: the child keeps the queue, and starts threads anew. Jobs
// that wait their turn when the process ends are dropped, unless later processes would have to do them again.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

namespace kiln::engine {

/// Pre: the job throws nothing. When no thread can be started the job stays queued. `kept`: what it makes
/// outlives the process.
void run_in_background(std::function<void()> job, bool kept);
/// Jobs that run at one time, at most.
int background_threads();
/// Returns when no job is queued or running, or when the process exits. Not from a job.
void wait_for_background();
/// Returns when no job whose result is kept is queued, or when so much time has passed. For exit.
void finish_kept_jobs(std::chrono::milliseconds most) noexcept;

std::mutex& background_mutex();             // for fork
void forget_background_threads() noexcept;  // in a forked child, the mutex locked

}  // namespace kiln::engine
