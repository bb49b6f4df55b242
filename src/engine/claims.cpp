#include "engine/claims.h"

#include <algorithm>
#include <atomic>

#include <pthread.h>

namespace kiln::engine {
namespace {

std::atomic<std::uint32_t> ended{0};    // evaluations whose claims others waited for
std::atomic<std::uint32_t> waiting{0};  // threads in Claims::wait
std::atomic<bool> forked{false};  // claimed nodes may be those of threads that this process does not have
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });

}  // namespace

bool Claims::may_wait() { return !forked.load(std::memory_order_relaxed); }

void Claims::wait(ir::TraceGuard& guard) {
  waiting.fetch_add(1);
  // read under the guard: what is claimed now is given up after this
  const std::uint32_t before = ended.load();
  guard.unlock();
  ended.wait(before);
  waiting.fetch_sub(1);
  guard.relock();
}

void Claims::keep_memory(std::span<ir::Buffer* const> kept) {
  std::erase_if(buffers_, [&](ir::Buffer* b) {
    if (std::find(kept.begin(), kept.end(), b) != kept.end()) return false;
    b->claim.store(static_cast<std::uint8_t>(ir::BufferClaim::None), std::memory_order_relaxed);
    return true;
  });
}

Claims::~Claims() {
  if (nodes_.empty()) return;
  if (!guard_.held()) guard_.relock();
  for (ir::Node* n : nodes_) n->give_up();
  const ir::BufferClaim left = wrote ? ir::BufferClaim::Lost : ir::BufferClaim::None;
  for (ir::Buffer* b : buffers_) b->claim.store(static_cast<std::uint8_t>(left), std::memory_order_relaxed);
  nodes_.clear();
  // Who waits has said so under a guard that covers the node: before ours, or it found the node free.
  if (waiting.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  ended.fetch_add(1);
  ended.notify_all();
}

}  // namespace kiln::engine
