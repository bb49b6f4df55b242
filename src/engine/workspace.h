// Workspace: the working memory of one evaluation.
#pragma once

#include "device/device.h"
#include "engine/walk.h"
#include "record/node.h"
#include "support/thread_own.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kiln::engine {

/// Working memory of one evaluation; kept per thread, one per nesting level.
struct Workspace {
  Walk walk;
  device::Device* device = nullptr;  // that runs it
  std::vector<ir::Node*> roots;
  std::vector<std::byte*> args;
  std::vector<ir::Buffer*> arg_buffers;
  std::vector<ir::Node*> keep;  // nodes besides the roots whose value may be published
  std::vector<ir::Node*> claimed;
  std::vector<ir::Node*> dropped;  // inputs to release after publishing
  std::vector<ir::Buffer*> results;
  std::vector<std::uint64_t> slots;
  bool busy = false;
  bool nested = false;  // inside another evaluation of the thread
  bool checks = false;  // values are checked, see KILN_CHECK
};

/// Sets how an evaluation by w.device, which is `device`, walks. What a caller says of the walk comes after.
void prepare(Workspace& w, Device device, bool interpreted);

/// A workspace of the thread for one evaluation; what it holds at the end is released.
class WorkspaceLease {
 public:
  WorkspaceLease() {
    auto& pool = thread_own<std::vector<std::unique_ptr<Workspace>>, WorkspaceLease>();
    for (auto& w : pool)
      if (!w->busy) {
        w_ = w.get();
        break;
      }
    if (!w_) {
      pool.push_back(std::make_unique<Workspace>());
      w_ = pool.back().get();
    }
    w_->busy = true;
    w_->nested = w_ != pool.front().get();
  }
  ~WorkspaceLease() {
    for (ir::Buffer* b : w_->arg_buffers) ir::release(b);
    for (ir::Node* n : w_->keep) ir::release(n);
    for (ir::Node* n : w_->dropped) ir::release(n);
    for (ir::Buffer* b : w_->results)
      if (b) ir::release(b);
    w_->arg_buffers.clear();
    w_->keep.clear();
    w_->dropped.clear();
    w_->results.clear();
    w_->busy = false;
  }
  Workspace* operator->() const { return w_; }
  Workspace& operator*() const { return *w_; }

 private:
  Workspace* w_ = nullptr;
};

}  // namespace kiln::engine
