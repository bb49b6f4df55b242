// What the fake driver's handles stand for: devices, streams, graphs, events, modules.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

inline constexpr int kDevices = 2;
inline constexpr std::size_t kMemory = std::size_t{6} << 30;

struct Mark {  // a point in a stream
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::chrono::steady_clock::time_point when;

  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    when = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
};

struct Device {
  std::mutex mutex;
  std::map<CUdeviceptr, std::size_t> memory;
  std::size_t used = 0;
  std::atomic<int> error{CUDA_SUCCESS};
};

struct Driver {
  std::array<Device, kDevices> devices;
  std::mutex mutex;
  std::set<CUstream> streams;
  std::map<CUdeviceptr, std::size_t> pinned;
  std::atomic<unsigned long long> ids{1};
};
inline Driver& driver() {
  static Driver* const instance = new Driver;
  return *instance;
}

struct CUgraphNode_st {
  std::size_t index;  // in its graph's work
};
struct CUgraph_st {
  std::vector<std::function<void()>> work;
  std::deque<CUgraphNode_st> nodes;  // one for each of them, up to the latest that was asked for
  CUgraphNode latest = nullptr;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<std::function<void()>>> work;
};

struct CUctx_st {
  int device = 0;
};

struct CUstream_st {
  int device = 0;
  unsigned long long id = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool ending = false;
  std::atomic<CUgraph_st*> recorded{nullptr};  // while it is captured

  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
  std::shared_ptr<Mark> mark() {
    auto out = std::make_shared<Mark>();
    push([out] { out->reach(); });
    return out;
  }
  void run() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return ending || !tasks.empty(); });
      if (tasks.empty()) break;
      auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
    }
    delete this;
  }
};

struct CUevent_st {
  std::shared_ptr<Mark> mark;
};
struct CUmod_st {
  std::string image;
  void* library = nullptr;  // of the fake NVRTC
};
struct CUfunc_st {
  std::string name;
  void* (*bind)(void** params) = nullptr;
  void (*run)(void* bound, unsigned grid, unsigned block) = nullptr;
  void (*free)(void* bound) = nullptr;
};
