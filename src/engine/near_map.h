// NearMap: a bounded map by hashes that all threads share, with a small table of each thread in front of it,
// which is read without a lock.
//
// Invariant: an entry of a table holds in the epoch in which it was remembered. clear() begins another epoch,
// and touches no table of another thread.
#pragma once

#include "support/hash128.h"
#include "support/thread_own.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace kiln::engine {

/// The process's map of these values. kMost: beyond so many entries half of them, picked by hash order, are
/// dropped. kNear: entries of a thread's own table.
template <class Value, std::size_t kMost, std::size_t kNear>
class NearMap {
 public:
  using Map = std::unordered_map<Hash128, Value, HashOf>;

  /// The calling thread's own value of a key, or null. It stays until the thread remembers another.
  static const Value* near(const Hash128& key) {
    const Entry& e = table()[key.lo % kNear];
    return e.key == key && e.epoch == epoch_.load(std::memory_order_relaxed) ? &e.value : nullptr;
  }
  static const Value& remember(const Hash128& key, const Value& value) {
    Entry& e = table()[key.lo % kNear];
    e = {key, epoch_.load(std::memory_order_relaxed), value};
    return e.value;
  }

  static std::mutex& mutex() { return shared().mutex; }
  /// Null: there is none. Pre: the caller holds the mutex, as below.
  static const Value* find(const Hash128& key) {
    const auto at = shared().map.find(key);
    return at == shared().map.end() ? nullptr : &at->second;
  }
  /// The value of a key, made where there is none.
  static Value& at(const Hash128& key) {
    Map& map = shared().map;
    if (map.size() >= kMost && !map.contains(key)) {
      std::size_t drop = map.size() / 2;
      for (auto it = map.begin(); drop > 0; --drop) it = map.erase(it);
    }
    return map[key];
  }
  static void clear() {
    shared().map.clear();
    epoch_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  struct Shared {
    std::mutex mutex;
    Map map;
  };
  static Shared& shared() {
    static Shared* const s = new Shared;  // immortal: evaluations may run during exit
    return *s;
  }
  struct Entry {
    Hash128 key;
    std::uint64_t epoch = 0;
    Value value{};
  };
  using Table = std::array<Entry, kNear>;
  static Table& table() { return thread_own<Table, NearMap>(); }

  constinit static inline std::atomic<std::uint64_t> epoch_{1};
};

}  // namespace kiln::engine
